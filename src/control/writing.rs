//! Writes the content of a file as a whole or not at all.
//!
//! An existing file keeps its file number, hard links and open handles: content of up to
//! [`WHOLE_BYTES`] replaces the old content in one transaction. Larger content does not fit into
//! memory, and holes of a new file must not become zeros. Such content is written to a staged file,
//! which is renamed at the end. Only a large file with several hard links is overwritten in pieces,
//! because a rename would break its links.

use bytes::{Bytes, BytesMut};

use super::content::{ContentPart, ContentSource};
use super::files::{CallerFiles, FILE_MODE, Result};
use super::limits::{PIECE_BYTES, WHOLE_BYTES};
use super::refusal::Refusal;
use super::request::{AttrChanges, WriteHow};
use crate::delta::MergedPath;
use crate::system_error::words;
use crate::vfs::{
    Attr, CreateHow, FileId, FileKind, FsError, Locator, Name, SetAttr, Stability, Time, Vfs,
};

/// Hint for a failed overwrite in pieces.
const KEEPS_NAMES: &str = "a large file with several names keeps them, and not its old content";

/// A file that is being written in pieces.
struct WriteInProgress<'a> {
    path: &'a MergedPath,
    file: Locator,
    /// Offset of the next byte.
    end: u64,
    /// Current size; below `end` while the content ends in a hole.
    size: u64,
}

impl<'a> WriteInProgress<'a> {
    fn at(path: &'a MergedPath, file: Locator, end: u64) -> Self {
        Self { path, file, end, size: end }
    }
}

/// The beginning of some content.
struct ContentHead {
    data: Bytes,
    /// A hole after the data, in bytes.
    hole: u64,
    /// Whether this is all of the content.
    is_whole: bool,
}

impl ContentHead {
    const NOTHING: Self = Self { data: Bytes::new(), hole: 0, is_whole: false };
}

impl CallerFiles<'_> {
    /// Writes a file; returns the number of bytes.
    pub async fn write(
        &self,
        path: &MergedPath,
        how: WriteHow,
        meta: &AttrChanges,
        content: &mut dyn ContentSource,
    ) -> Result<u64> {
        let (dir, name) = self.place(path).await?;
        let Some((file, attr)) = self.look(path).await? else {
            return self.make_file(path, (&dir, &name), meta, content).await;
        };
        match (attr.kind, how) {
            (FileKind::Directory, _) => {
                Err(Refusal::new(format!("{}: is a directory", path.display())))
            }
            (_, WriteHow::New) => Err(Refusal::at(path, FsError::Exists)),
            (FileKind::Regular, WriteHow::Append) => {
                let writing = WriteInProgress::at(path, file, attr.size);
                self.append(writing, meta, content).await
            }
            (FileKind::Regular, WriteHow::Replace) => {
                self.replace(path, (&dir, &name), (file, attr), meta, content).await
            }
            _ => Err(Refusal::new(format!("{}: is not a regular file", path.display()))),
        }
    }

    /// Creates a file; removes it again if its content cannot be written completely.
    async fn make_file(
        &self,
        path: &MergedPath,
        (dir, name): (&Locator, &Name),
        meta: &AttrChanges,
        content: &mut dyn ContentSource,
    ) -> Result<u64> {
        let begin = read_head(path, content, 0).await?;
        if !begin.is_whole {
            return self.stage(path, (dir, name), None, meta, (begin, content)).await;
        }
        let file = self.create(path, dir, name, meta.mode.unwrap_or(FILE_MODE)).await?;
        let mut writing = WriteInProgress::at(path, file, 0);
        let made = async {
            if begin.data.len() <= PIECE_BYTES {
                self.fill(&mut writing, begin, content).await?;
                return self.set_late(&writing, meta).await;
            }
            writing.end = begin.data.len() as u64;
            let set = meta.set_attr();
            let replaced = self.vfs.replace(self.caller, &writing.file, begin.data, set).await;
            replaced.result.map_err(|error| Refusal::at(path, error))
        };
        let made = made.await;
        if made.is_err() {
            self.take_back(dir, name, writing.file.fileid()).await;
        }
        made.map(|()| writing.end)
    }

    /// Appends to a file; truncates it again if the content cannot be written completely.
    async fn append(
        &self,
        mut writing: WriteInProgress<'_>,
        meta: &AttrChanges,
        content: &mut dyn ContentSource,
    ) -> Result<u64> {
        let start = writing.end;
        if let Err(refusal) = self.fill(&mut writing, ContentHead::NOTHING, content).await {
            let now = self.vfs.getattr(self.caller, &writing.file).await;
            // Data that a client appended in between must not be cut off.
            if writing.size > start && now.is_ok_and(|now| now.size == writing.size) {
                let set = SetAttr { size: Some(start), ..SetAttr::default() };
                let cut = self.vfs.setattr(self.caller, &writing.file, set, None).await;
                if let Err(error) = cut.result {
                    tracing::warn!(%error, "a part of what was to be added stays");
                }
            }
            return Err(refusal);
        }
        self.set_late(&writing, meta).await?;
        Ok(writing.end - start)
    }

    /// Replaces the content of an existing file.
    async fn replace(
        &self,
        path: &MergedPath,
        (dir, name): (&Locator, &Name),
        (file, attr): (Locator, Attr),
        meta: &AttrChanges,
        content: &mut dyn ContentSource,
    ) -> Result<u64> {
        let begin = read_head(path, content, WHOLE_BYTES).await?;
        if begin.is_whole {
            let bytes = begin.data.len() as u64;
            let replaced = self.vfs.replace(self.caller, &file, begin.data, meta.set_attr()).await;
            return replaced.result.map(|()| bytes).map_err(|error| Refusal::at(path, error));
        }
        if attr.nlink == 1 {
            return self.stage(path, (dir, name), Some(&attr), meta, (begin, content)).await;
        }
        let set = SetAttr { size: Some(0), mode: meta.mode, ..SetAttr::default() };
        let cut = self.vfs.setattr(self.caller, &file, set, None).await;
        cut.result.map_err(|error| Refusal::at(path, error))?;
        let mut writing = WriteInProgress::at(path, file, 0);
        if let Err(refusal) = self.fill(&mut writing, begin, content).await {
            let hint = format!("{} bytes of it are written; {KEEPS_NAMES}", writing.end);
            return Err(Refusal { hint: Some(hint), advice: None, ..refusal });
        }
        self.set_late(&writing, meta).await?;
        Ok(writing.end)
    }

    /// Replaces the content of a file if its file number and ctime (seconds, nanoseconds) are as
    /// given.
    pub async fn rewrite(
        &self,
        path: &MergedPath,
        (id, secs, nanos): (u64, i64, u32),
        meta: &AttrChanges,
        content: &mut dyn ContentSource,
    ) -> Result<()> {
        let content = self.whole(path, content).await?;
        let meta = meta.set_attr();
        let replaced = match self.look(path).await? {
            Some((file, attr)) if attr.fileid == FileId(id) && attr.kind == FileKind::Regular => {
                let guard = Some(Time { secs, nanos });
                self.vfs.replace_if(self.caller, &file, content, meta, guard).await.result
            }
            _ => Err(FsError::NotSync),
        };
        replaced.map_err(|error| match error {
            FsError::NotSync => Refusal {
                hint: Some("it stays as it is; run the command again".to_owned()),
                ..Refusal::new(format!("{}: a client changed it since", path.display()))
            },
            error => Refusal::at(path, error),
        })
    }

    /// Content that must fit into memory.
    pub async fn whole(&self, path: &MergedPath, content: &mut dyn ContentSource) -> Result<Bytes> {
        let begin = read_head(path, content, 0).await?;
        match begin.is_whole {
            true => Ok(begin.data),
            false => Err(Refusal::at(path, FsError::TooLarge)),
        }
    }

    /// Writes a file under a temporary name, then renames it: over the `old` file, or to a name
    /// that must still be free.
    async fn stage(
        &self,
        path: &MergedPath,
        (dir, name): (&Locator, &Name),
        old: Option<&Attr>,
        meta: &AttrChanges,
        (begin, content): (ContentHead, &mut dyn ContentSource),
    ) -> Result<u64> {
        let random = getrandom::u64();
        let random =
            random.map_err(|error| Refusal::new(format!("cannot get random bytes: {error}")))?;
        let staged = format!("{}{random:016x}", Name::STAGED);
        let staged = Name::new(staged.as_bytes()).map_err(|e| Refusal::at(path, e.into()))?;
        let file = self.create(path, dir, &staged, 0o600).await?;
        let mut writing = WriteInProgress::at(path, file, 0);
        let placed = async {
            let filled = self.fill(&mut writing, begin, content).await;
            filled.map_err(|refusal| if old.is_some() { keeping(refusal) } else { refusal })?;
            let mode = meta.mode.unwrap_or(old.map_or(FILE_MODE, |old| old.mode));
            let set = SetAttr {
                mode: Some(mode),
                uid: meta.uid.or(old.map(|old| old.uid)),
                gid: meta.gid.or(old.map(|old| old.gid)),
                ..meta.set_attr()
            };
            let at = |error| Refusal::at(path, error);
            self.vfs.setattr(self.caller, &writing.file, set, None).await.result.map_err(at)?;
            if old.is_some() {
                let (from, to) = ((dir, staged.as_bytes()), (dir, name.as_bytes()));
                return self.vfs.rename(self.caller, from, to).await.result.map_err(at);
            }
            // LINK instead of RENAME: it does not replace an object that a client has created there
            // since.
            let linked = self.vfs.link(self.caller, &writing.file, dir, name.as_bytes()).await;
            linked.result.map_err(at)
        };
        let placed = placed.await;
        if placed.is_err() || old.is_none() {
            self.take_back(dir, &staged, writing.file.fileid()).await;
        }
        placed.map(|()| writing.end)
    }

    async fn create(
        &self,
        path: &MergedPath,
        dir: &Locator,
        name: &Name,
        mode: u32,
    ) -> Result<Locator> {
        let how = CreateHow::Guarded(SetAttr { mode: Some(mode), ..SetAttr::default() });
        let made = self.vfs.create(self.caller, dir, name.as_bytes(), how).await;
        made.result.map(|made| made.object).map_err(|error| Refusal::at(path, error))
    }

    /// Removes a file that was created here, unless another object has its name now.
    async fn take_back(&self, dir: &Locator, name: &Name, id: FileId) {
        let found = self.vfs.lookup(self.caller, dir, name.as_bytes()).await.result;
        if found.is_ok_and(|found| found.attr.fileid == id) {
            let gone = self.vfs.remove(self.caller, dir, name.as_bytes()).await;
            if let Err(error) = gone.result {
                tracing::warn!(%error, "a file that is not whole stays");
            }
        }
    }

    /// Writes `begin` and the rest of `content`.
    async fn fill(
        &self,
        writing: &mut WriteInProgress<'_>,
        begin: ContentHead,
        content: &mut dyn ContentSource,
    ) -> Result<()> {
        let mut data = begin.data;
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(PIECE_BYTES));
            self.write_piece(writing, piece).await?;
        }
        writing.end = writing.end.saturating_add(begin.hole);
        let mut is_over = begin.is_whole;
        while !is_over {
            match next(writing.path, content).await? {
                ContentPart::Hole(bytes) => writing.end = writing.end.saturating_add(bytes),
                ContentPart::Data(piece) if piece.is_empty() => is_over = true,
                ContentPart::Data(piece) => self.write_piece(writing, piece).await?,
            }
        }
        if writing.size < writing.end {
            let set = SetAttr { size: Some(writing.end), ..SetAttr::default() };
            let set = self.vfs.setattr(self.caller, &writing.file, set, None).await;
            set.result.map_err(|error| Refusal::at(writing.path, error))?;
            writing.size = writing.end;
        }
        Ok(())
    }

    async fn write_piece(&self, writing: &mut WriteInProgress<'_>, piece: Bytes) -> Result<()> {
        let (end, bytes) = (writing.end, piece.len() as u64);
        let write = self.vfs.write(self.caller, &writing.file, end, piece, Stability::Unstable);
        write.await.result.map_err(|error| Refusal::at(writing.path, error))?;
        writing.end += bytes;
        writing.size = writing.end;
        Ok(())
    }

    /// Sets the attributes that the writes would have changed.
    async fn set_late(&self, writing: &WriteInProgress<'_>, meta: &AttrChanges) -> Result<()> {
        let late = AttrChanges { mode: None, ..*meta }.set_attr();
        if late == SetAttr::default() {
            return Ok(());
        }
        let set = self.vfs.setattr(self.caller, &writing.file, late, None).await;
        set.result.map_err(|error| Refusal::at(writing.path, error))
    }
}

/// Reads content up to [`WHOLE_BYTES`], or up to a hole. A hole that ends within the first `zeros`
/// bytes is read as zeros.
async fn read_head(
    path: &MergedPath,
    content: &mut dyn ContentSource,
    zeros: usize,
) -> Result<ContentHead> {
    let mut begin = BytesMut::new();
    while begin.len() <= WHOLE_BYTES {
        match next(path, content).await? {
            ContentPart::Data(piece) if piece.is_empty() => {
                return Ok(ContentHead { data: begin.freeze(), hole: 0, is_whole: true });
            }
            ContentPart::Data(piece) => begin.extend_from_slice(&piece),
            ContentPart::Hole(hole) => {
                let end = usize::try_from(hole).ok().and_then(|hole| hole.checked_add(begin.len()));
                match end {
                    Some(end) if end <= zeros => begin.resize(end, 0),
                    _ => return Ok(ContentHead { data: begin.freeze(), hole, is_whole: false }),
                }
            }
        }
    }
    Ok(ContentHead { data: begin.freeze(), hole: 0, is_whole: false })
}

async fn next(path: &MergedPath, content: &mut dyn ContentSource) -> Result<ContentPart> {
    let part = content.next().await;
    part.map_err(|error| {
        let (path, why) = (path.display(), words(&error));
        Refusal::new(format!("{path}: the content cannot be read: {why}"))
    })
}

/// Adds a hint if there is no space for the old and the new content at once.
fn keeping(refusal: Refusal) -> Refusal {
    let kept = "the old content is kept until all of the new one is there; removing it first takes \
                less room";
    let hint = match (&refusal.hint, refusal.advice) {
        (Some(hint), _) => format!("{hint}; {kept}"),
        (None, Some(_)) => kept.to_owned(),
        (None, None) => return refusal,
    };
    Refusal { hint: Some(hint), ..refusal }
}
