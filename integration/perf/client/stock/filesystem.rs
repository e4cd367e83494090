//! nfsserve's trait over the overlay.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use acetate::overlay::Overlay;
use acetate::vfs::{
    Caller, Cookie, CreateHow, Created, Entry, FileId, Flavor, Locator, NewNode, SetAttr,
    Stability, Vfs,
};
use async_trait::async_trait;
use bytes::Bytes;
use nfsserve::nfs::{fattr3, fileid3, filename3, nfspath3, nfsstat3, sattr3};
use nfsserve::vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities};

use super::convert::{attr, set, status};

type Answer<T> = Result<T, nfsstat3>;

/// The overlay as nfsserve sees it.
pub struct Stock {
    overlay: Overlay,
    /// nfsserve does not say who calls.
    caller: Caller,
    /// What was shown so far.
    locators: RwLock<HashMap<u64, Locator>>,
    /// Where listings go on after an entry: nfsserve has its number for a cookie.
    cookies: Mutex<HashMap<(u64, u64), Cookie>>,
}

impl Stock {
    /// Wraps the overlay.
    pub fn new(overlay: Overlay) -> Self {
        let root = (FileId::ROOT.0, Locator::ROOT);
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Self {
            overlay,
            caller: Caller {
                client,
                flavor: Flavor::Sys,
                uid: 0,
                gid: 0,
                gids: Vec::new(),
                call: None,
                is_owner: false,
            },
            locators: RwLock::new(HashMap::from([root])),
            cookies: Mutex::default(),
        }
    }

    fn find(&self, id: fileid3) -> Answer<Locator> {
        let locators = self.locators.read().unwrap_or_else(PoisonError::into_inner);
        locators.get(&id).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn keep(&self, object: &Locator) {
        let id = object.fileid().0;
        // Most are known: no need to keep others out for them.
        if self.find(id).ok().as_ref() != Some(object) {
            let mut locators = self.locators.write().unwrap_or_else(PoisonError::into_inner);
            locators.insert(id, object.clone());
        }
    }

    fn made(&self, created: Created) -> (fileid3, fattr3) {
        self.keep(&created.object);
        (created.attr.fileid.0, attr(&created.attr))
    }

    async fn make(
        &self,
        dir: fileid3,
        name: &filename3,
        node: NewNode,
        with: SetAttr,
    ) -> Answer<(fileid3, fattr3)> {
        let dir = self.find(dir)?;
        let made = self.overlay.make_node(&self.caller, &dir, name, node, with).await;
        Ok(self.made(made.result.map_err(status)?))
    }
}

#[async_trait]
impl NFSFileSystem for Stock {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadWrite
    }

    fn root_dir(&self) -> fileid3 {
        FileId::ROOT.0
    }

    async fn lookup(&self, dirid: fileid3, filename: &filename3) -> Answer<fileid3> {
        let dir = self.find(dirid)?;
        let found = self.overlay.lookup(&self.caller, &dir, filename).await;
        let found = found.result.map_err(status)?;
        self.keep(&found.object);
        Ok(found.attr.fileid.0)
    }

    async fn getattr(&self, id: fileid3) -> Answer<fattr3> {
        let object = self.find(id)?;
        let found = self.overlay.getattr(&self.caller, &object).await;
        found.map(|found| attr(&found)).map_err(status)
    }

    async fn setattr(&self, id: fileid3, setattr: sattr3) -> Answer<fattr3> {
        let object = self.find(id)?;
        let outcome = self.overlay.setattr(&self.caller, &object, set(&setattr), None).await;
        outcome.result.map_err(status)?;
        outcome.context.after.as_ref().map(attr).ok_or(nfsstat3::NFS3ERR_IO)
    }

    async fn read(&self, id: fileid3, offset: u64, count: u32) -> Answer<(Vec<u8>, bool)> {
        let object = self.find(id)?;
        let read = self.overlay.read(&self.caller, &object, offset, count).await;
        let read = read.result.map_err(status)?;
        Ok((Vec::from(read.data), read.eof))
    }

    async fn write(&self, id: fileid3, offset: u64, data: &[u8]) -> Answer<fattr3> {
        let object = self.find(id)?;
        let data = Bytes::copy_from_slice(data);
        let stability = Stability::FileSync;
        let outcome = self.overlay.write(&self.caller, &object, offset, data, stability).await;
        outcome.result.map_err(status)?;
        outcome.context.after.as_ref().map(attr).ok_or(nfsstat3::NFS3ERR_IO)
    }

    async fn create(
        &self,
        dirid: fileid3,
        filename: &filename3,
        with: sattr3,
    ) -> Answer<(fileid3, fattr3)> {
        let dir = self.find(dirid)?;
        let how = CreateHow::Unchecked(set(&with));
        let made = self.overlay.create(&self.caller, &dir, filename, how).await;
        Ok(self.made(made.result.map_err(status)?))
    }

    async fn create_exclusive(&self, _: fileid3, _: &filename3) -> Answer<fileid3> {
        // The verifier, which would make it exclusive, is not passed on.
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn mkdir(&self, dirid: fileid3, dirname: &filename3) -> Answer<(fileid3, fattr3)> {
        self.make(dirid, dirname, NewNode::Directory, SetAttr::default()).await
    }

    async fn remove(&self, dirid: fileid3, filename: &filename3) -> Answer<()> {
        let dir = self.find(dirid)?;
        self.overlay.remove(&self.caller, &dir, filename).await.result.map_err(status)
    }

    async fn rename(
        &self,
        from_dirid: fileid3,
        from_filename: &filename3,
        to_dirid: fileid3,
        to_filename: &filename3,
    ) -> Answer<()> {
        let (from, to) = (self.find(from_dirid)?, self.find(to_dirid)?);
        let (from, to) = ((&from, &from_filename[..]), (&to, &to_filename[..]));
        self.overlay.rename(&self.caller, from, to).await.result.map_err(status)
    }

    async fn readdir(
        &self,
        dirid: fileid3,
        start_after: fileid3,
        max_entries: usize,
    ) -> Answer<ReadDirResult> {
        let dir = self.find(dirid)?;
        let cookie = match start_after {
            0 => Some(Cookie(0)),
            after => {
                let cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
                cookies.get(&(dirid, after)).copied()
            }
        };
        let cookie = cookie.ok_or(nfsstat3::NFS3ERR_BAD_COOKIE)?;
        let taken: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let taking = Arc::clone(&taken);
        let take = move |entry: &Entry| {
            let mut taken = taking.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = taken.len() < max_entries;
            if fits {
                taken.push(entry.clone());
            }
            fits
        };
        let page = self.overlay.readdir(&self.caller, &dir, cookie, true, take).await;
        let end = page.result.map_err(status)?.eof;
        let taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
        let mut entries = Vec::with_capacity(taken.len());
        let mut cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in taken {
            // `..` of the root has the same number as `.`: no place to go on from.
            let Some((object, found)) = entry.object.filter(|_| !is_dots(&entry.name)) else {
                continue;
            };
            self.keep(&object);
            let fileid = entry.fileid.0;
            cookies.insert((dirid, fileid), entry.cookie);
            entries.push(DirEntry { fileid, name: entry.name[..].into(), attr: attr(&found) });
        }
        Ok(ReadDirResult { entries, end })
    }

    async fn symlink(
        &self,
        dirid: fileid3,
        linkname: &filename3,
        symlink: &nfspath3,
        with: &sattr3,
    ) -> Answer<(fileid3, fattr3)> {
        let target = Bytes::copy_from_slice(symlink);
        self.make(dirid, linkname, NewNode::Symlink(target), set(with)).await
    }

    async fn readlink(&self, id: fileid3) -> Answer<nfspath3> {
        let object = self.find(id)?;
        let target = self.overlay.readlink(&self.caller, &object).await;
        target.result.map(|target| target[..].into()).map_err(status)
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
