//! Many small changes by path, with some hundred in one transaction.
//!
//! A transaction costs more than a small file: batching cuts the time of `acetate cp` and `rm` of
//! 60,000 files to a third. If a transaction fails, its changes are made one by one, so that all
//! possible changes are made and the error names the one that fails.

use std::collections::HashSet;
use std::io::Cursor;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::content::{ContentPart, ContentSource, Reading};
use super::files::{CallerFiles, DIR_MODE, Result};
use super::limits::{BULK_ITEMS, PIECE_BYTES};
use super::refusal::Refusal;
use super::request::{Answer, ItemKind, MakeItem, WriteHow};
use crate::delta::MergedPath;
use crate::overlay::{self, Removal};
use crate::system_error::words;
use crate::vfs::{Cookie, Entry, FileKind, FsError, Locator, SetAttr};

impl CallerFiles<'_> {
    /// Creates `items` in order, up to the first failure. `content` has the contents of the files,
    /// concatenated.
    pub async fn make_all(
        &self,
        items: &[MakeItem],
        content: &mut dyn ContentSource,
    ) -> Result<Answer> {
        let contents = split(items, content).await?;
        let (mut done, mut refusal) = (0, None);
        while done < items.len() && refusal.is_none() {
            let rest = items.iter().zip(&contents).skip(done);
            let prepared = rest.clone().map(|(item, content)| prepare(item, content));
            let made = match prepared.collect::<Result<Vec<_>>>() {
                Ok(prepared) => self.vfs.make_all(self.caller, prepared).await.ok(),
                Err(_) => None,
            };
            if let Some(made) = made {
                done += made;
                continue;
            }
            for (item, content) in rest {
                match self.make(item, content.clone()).await {
                    Ok(()) => done += 1,
                    Err(error) => {
                        refusal = Some(error);
                        break;
                    }
                }
            }
        }
        Ok(Answer::Made { items: done as u64, refusal })
    }

    /// Creates one item.
    async fn make(&self, item: &MakeItem, content: Bytes) -> Result<()> {
        let (path, meta) = (item.path.merged()?, &item.meta);
        match &item.kind {
            ItemKind::Directory => match self.look(&path).await? {
                Some((_, attr)) if attr.kind == FileKind::Directory => Ok(()),
                _ => self.make_dir(&path, meta, false).await.map(drop),
            },
            ItemKind::File { .. } => {
                let mut content = Reading::stream(Cursor::new(content));
                self.write(&path, WriteHow::Replace, meta, &mut content).await.map(drop)
            }
            ItemKind::Link { target } => {
                let there = self.look(&path).await?;
                if there.is_some_and(|(_, attr)| attr.kind == FileKind::Symlink) {
                    self.remove(&path).await?;
                }
                self.make_link(&path, target.as_bytes(), meta).await
            }
            ItemKind::Any => self.set_meta(&path, meta).await,
        }
    }
}

impl CallerFiles<'_> {
    /// Removes an object, or a directory with everything in it; stops after `until`. Returns the
    /// number of removed objects, and whether all were removed.
    pub async fn remove_tree(
        &self,
        path: &MergedPath,
        until: Option<Instant>,
    ) -> Result<(u64, bool)> {
        let (above, name) = self.place(path).await?;
        let (dir, attr) = self.find(path).await?;
        if attr.kind != FileKind::Directory {
            return self.remove(path).await.map(|()| (1, true));
        }
        let at = |error| Refusal::at(path, error);
        // Rows of another program may make a directory its own ancestor (invariant S8).
        let mut entered = HashSet::from([dir.clone()]);
        let name = Bytes::copy_from_slice(name.as_bytes());
        let mut open = vec![DirToRemove { above, name, dir, next: Some(Cookie(0)) }];
        let (mut going, mut gone) = (Vec::new(), 0);
        while let Some(mut last) = open.pop() {
            if let Some(next) = last.next {
                let (entries, next) = self.list(&last.dir, next).await.map_err(at)?;
                let dir = last.dir.clone();
                last.next = next;
                open.push(last);
                for Entry { name, object, .. } in entries {
                    let (object, attr) = object.ok_or(at(FsError::Io))?;
                    if attr.kind == FileKind::Directory {
                        if !entered.insert(object.clone()) {
                            return Err(at(FsError::Loop));
                        }
                        let (above, next) = (dir.clone(), Some(Cookie(0)));
                        open.push(DirToRemove { above, name, dir: object, next });
                    } else {
                        let (dir, bytes) = (dir.clone(), attr.used);
                        going.push(Removal { dir, name, is_dir: false, bytes });
                    }
                }
            } else {
                entered.remove(&last.dir);
                let DirToRemove { above, name, .. } = last;
                going.push(Removal { dir: above, name, is_dir: true, bytes: 0 });
            }
            let is_late = until.is_some_and(|until| until <= Instant::now());
            if is_late || open.is_empty() || going.len() >= BULK_ITEMS {
                match self.remove_all(std::mem::take(&mut going)).await {
                    Ok(removed) => gone += removed,
                    // An entry was added since the listing, or one cannot be removed.
                    Err(_) => return Ok((gone + self.remove_one_by_one(path).await?, true)),
                }
                if is_late && !open.is_empty() {
                    return Ok((gone, false));
                }
            }
        }
        Ok((gone, true))
    }

    async fn remove_all(&self, going: Vec<Removal>) -> std::result::Result<u64, FsError> {
        let mut gone = 0;
        while gone < going.len() {
            let end = going.len().min(gone + BULK_ITEMS);
            gone += self.vfs.remove_all(self.caller, going[gone..end].to_vec()).await?;
        }
        Ok(gone as u64)
    }
}

/// A directory that is being removed.
struct DirToRemove {
    /// Its parent.
    above: Locator,
    /// Its name.
    name: Bytes,
    dir: Locator,
    /// Cookie at which its listing continues; `None` at the end.
    next: Option<Cookie>,
}

/// Splits the content among the items.
async fn split(items: &[MakeItem], content: &mut dyn ContentSource) -> Result<Vec<Bytes>> {
    let bytes: u64 = items.iter().map(MakeItem::bytes).fold(0, u64::saturating_add);
    if items.len() > BULK_ITEMS || bytes > PIECE_BYTES as u64 {
        let what = format!("{} items of {bytes} bytes are too many at once", items.len());
        return Err(Refusal::new(what));
    }
    let mut all = BytesMut::new();
    loop {
        let failed = |error| Refusal::new(format!("the content cannot be read: {}", words(&error)));
        match content.next().await.map_err(failed)? {
            ContentPart::Data(piece) if piece.is_empty() => break,
            ContentPart::Data(piece) if (all.len() + piece.len()) as u64 <= bytes => {
                all.extend_from_slice(&piece);
            }
            ContentPart::Data(_) | ContentPart::Hole(_) => {
                return Err(Refusal::new("more content than said"));
            }
        }
    }
    if all.len() as u64 != bytes {
        return Err(Refusal::new("less content than said"));
    }
    let mut all = all.freeze();
    Ok(items.iter().map(|item| all.split_to(item.bytes() as usize)).collect())
}

/// Converts an item for the overlay.
fn prepare(item: &MakeItem, content: &Bytes) -> Result<overlay::BulkItem> {
    let mode =
        |default| SetAttr { mode: Some(item.meta.mode.unwrap_or(default)), ..item.meta.set_attr() };
    let (content, set) = match &item.kind {
        ItemKind::Directory => (overlay::BulkContent::Directory, mode(DIR_MODE)),
        ItemKind::File { .. } => {
            (overlay::BulkContent::File(content.clone()), item.meta.set_attr())
        }
        ItemKind::Link { target } => {
            let target = Bytes::copy_from_slice(target.as_bytes());
            (overlay::BulkContent::Link(target), item.meta.set_attr())
        }
        ItemKind::Any => (overlay::BulkContent::Any, item.meta.set_attr()),
    };
    Ok(overlay::BulkItem { path: item.path.merged()?, content, set })
}
