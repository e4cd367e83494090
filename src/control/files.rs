//! Changes by path, as a client makes them, one at a time. `writing` handles content.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::limits::REMOVE_PAGE;
use super::refusal::{Refusal, RefusalAdvice};
use super::request::AttrChanges;
use crate::delta::MergedPath;
use crate::overlay::Overlay;
use crate::vfs::{
    Attr, Caller, Cookie, Entry, FileKind, FsError, Locator, Name, NewNode, SetAttr, Vfs,
};

/// Default mode of a new directory.
pub(super) const DIR_MODE: u32 = 0o755;

/// Default mode of a new file.
pub(super) const FILE_MODE: u32 = 0o644;

/// A tree and the caller that changes it.
pub(super) struct CallerFiles<'a> {
    pub vfs: &'a Overlay,
    pub caller: &'a Caller,
}

pub(super) type Result<T> = std::result::Result<T, Refusal>;

impl CallerFiles<'_> {
    /// The object at a path, or `None`.
    pub(super) async fn look(&self, path: &MergedPath) -> Result<Option<(Locator, Attr)>> {
        let at = |error| Refusal::at(path, error);
        let root = Locator::ROOT;
        let attr = self.vfs.getattr(self.caller, &root).await.map_err(at)?;
        let mut found = (root, attr);
        for name in path.names() {
            let entry = self.vfs.lookup(self.caller, &found.0, name.as_bytes()).await;
            match entry.result {
                Ok(entry) => found = (entry.object, entry.attr),
                Err(FsError::NotFound) => return Ok(None),
                Err(error) => return Err(at(error)),
            }
        }
        Ok(Some(found))
    }

    pub(super) async fn find(&self, path: &MergedPath) -> Result<(Locator, Attr)> {
        let found = self.look(path).await?;
        found.ok_or_else(|| Refusal::at(path, FsError::NotFound))
    }

    /// The parent directory of a path, and the last component.
    pub(super) async fn place(&self, path: &MergedPath) -> Result<(Locator, Name)> {
        let name = path.name().ok_or_else(|| Refusal::new("/: is the root of the tree"))?;
        let parent = path.parent();
        let (dir, attr) = self.find(&parent).await?;
        match attr.kind {
            FileKind::Directory => Ok((dir, name)),
            _ => Err(Refusal::at(&parent, FsError::NotDirectory)),
        }
    }

    /// Creates a directory, and with `parents` its missing ancestors; returns the number created.
    pub async fn make_dir(
        &self,
        path: &MergedPath,
        meta: &AttrChanges,
        parents: bool,
    ) -> Result<u64> {
        let mut made = 0;
        if parents {
            let mut above: Vec<_> = path.above().collect();
            while let Some(dir) = above.pop() {
                made += u64::from(self.make_missing_dir(&dir, &AttrChanges::default()).await?);
            }
            return Ok(made + u64::from(self.make_missing_dir(path, meta).await?));
        }
        let above = path.parent();
        if self.look(&above).await?.is_none() {
            let advice = Some(RefusalAdvice::MakeParents);
            return Err(Refusal { advice, ..Refusal::at(&above, FsError::NotFound) });
        }
        self.make_one_dir(path, meta).await?;
        Ok(1)
    }

    async fn make_missing_dir(&self, path: &MergedPath, meta: &AttrChanges) -> Result<bool> {
        match self.look(path).await? {
            Some((_, attr)) if attr.kind == FileKind::Directory => Ok(false),
            Some(_) => Err(Refusal::at(path, FsError::NotDirectory)),
            None => self.make_one_dir(path, meta).await.map(|()| true),
        }
    }

    async fn make_one_dir(&self, path: &MergedPath, meta: &AttrChanges) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        let set = SetAttr { mode: Some(meta.mode.unwrap_or(DIR_MODE)), ..meta.set_attr() };
        let made =
            self.vfs.make_node(self.caller, &dir, name.as_bytes(), NewNode::Directory, set).await;
        made.result.map(drop).map_err(|error| Refusal::at(path, error))
    }

    /// Creates a symbolic link.
    pub async fn make_link(
        &self,
        path: &MergedPath,
        target: &[u8],
        meta: &AttrChanges,
    ) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        let node = NewNode::Symlink(Bytes::copy_from_slice(target));
        let set = meta.set_attr();
        let made = self.vfs.make_node(self.caller, &dir, name.as_bytes(), node, set).await;
        made.result.map(drop).map_err(|error| Refusal::at(path, error))
    }

    /// Sets attributes.
    pub async fn set_meta(&self, path: &MergedPath, meta: &AttrChanges) -> Result<()> {
        let (object, _) = self.find(path).await?;
        let set = self.vfs.setattr(self.caller, &object, meta.set_attr(), None).await;
        set.result.map_err(|error| Refusal::at(path, error))
    }

    /// Removes an object that is not a directory.
    pub async fn remove(&self, path: &MergedPath) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        let at = |error| Refusal::at(path, error);
        let removed = self.vfs.remove(self.caller, &dir, name.as_bytes()).await;
        removed.result.map_err(at)
    }

    /// Removes a directory with everything in it; returns the number of removed objects.
    pub(super) async fn remove_one_by_one(&self, path: &MergedPath) -> Result<u64> {
        let (dir, name) = self.place(path).await?;
        let (object, _) = self.find(path).await?;
        let at = |error| Refusal::at(path, error);
        // Rows of another program may make a directory its own ancestor (invariant S8).
        let mut entered = HashSet::from([object.clone()]);
        let mut open = vec![(dir, name.as_bytes().to_vec(), object)];
        let mut removed = 0;
        while let Some((above, name, dir)) = open.last().cloned() {
            let (entries, _) = self.list(&dir, Cookie(0)).await.map_err(at)?;
            if entries.is_empty() {
                let gone = self.vfs.rmdir(self.caller, &above, &name).await;
                gone.result.map_err(at)?;
                removed += 1;
                entered.remove(&dir);
                open.pop();
            }
            for entry in entries {
                let (object, attr) = entry.object.ok_or(at(FsError::Io))?;
                if attr.kind == FileKind::Directory {
                    if !entered.insert(object.clone()) {
                        return Err(at(FsError::Loop));
                    }
                    open.push((dir.clone(), entry.name.to_vec(), object));
                } else {
                    let gone = self.vfs.remove(self.caller, &dir, &entry.name).await;
                    gone.result.map_err(at)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Removes an empty directory.
    pub async fn remove_dir(&self, path: &MergedPath) -> Result<()> {
        let (dir, name) = self.place(path).await?;
        let removed = self.vfs.rmdir(self.caller, &dir, name.as_bytes()).await;
        removed.result.map_err(|error| Refusal::at(path, error))
    }

    /// Renames an object; the target is replaced as by rename(2).
    pub async fn rename(&self, from: &MergedPath, to: &MergedPath) -> Result<()> {
        self.find(from).await?;
        let (source, old) = self.place(from).await?;
        let (target, new) = self.place(to).await?;
        let (source, target) = ((&source, old.as_bytes()), (&target, new.as_bytes()));
        let renamed = self.vfs.rename(self.caller, source, target).await;
        renamed.result.map_err(|error| Refusal::at(to, error))
    }

    /// Creates a hard link to an object that is not a directory.
    pub async fn link(&self, from: &MergedPath, to: &MergedPath) -> Result<()> {
        let (object, attr) = self.find(from).await?;
        if attr.kind == FileKind::Directory {
            return Err(Refusal::at(from, FsError::IsDirectory).without_hint());
        }
        let (dir, name) = self.place(to).await?;
        let linked = self.vfs.link(self.caller, &object, &dir, name.as_bytes()).await;
        linked.result.map_err(|error| Refusal::at(to, error))
    }

    /// Entries of a directory after `cookie`, without `.` and `..`, and the cookie to continue with
    /// if there are more.
    pub(super) async fn list(
        &self,
        dir: &Locator,
        cookie: Cookie,
    ) -> std::result::Result<(Vec<Entry>, Option<Cookie>), FsError> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&taken);
        let take = move |entry: &Entry| {
            let mut filled = filled.lock();
            let has_room = filled.len() < REMOVE_PAGE;
            if has_room && !matches!(&entry.name[..], b"." | b"..") {
                filled.push(entry.clone());
            }
            has_room
        };
        let page = self.vfs.readdir(self.caller, dir, cookie, true, take).await.result?;
        let mut taken = taken.lock();
        let taken = std::mem::take(&mut *taken);
        let last = taken.last().map_or(cookie, |entry: &Entry| entry.cookie);
        Ok((taken, (!page.eof).then_some(last)))
    }
}
