//! READDIR and READDIRPLUS, with pages that respect the client's limits to the byte.
//!
//! The cookie verifier is always zero and never checked: cookies stay valid while the directory
//! changes, so no listing becomes invalid.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;

use super::{HandlerResult, Handles, Nfs, attr};
use crate::vfs::{Caller, Cookie, Entry, Vfs};
use crate::wire::nfs3::results::{DirEntry, DirEntryPlus, DirList, EncodedEntries, Reply};
use crate::wire::nfs3::{FHSIZE, MAX_TRANSFER_BYTES, PostOpAttr, Status, VERFSIZE, args};
use crate::wire::xdr::Encode;

/// Bytes of each allocation for the handles of a page.
const HANDLES_BYTES: usize = 4096;

/// The remaining bytes of the client's limits.
struct PageBudget {
    /// For the reply.
    reply: usize,
    /// For the entries' numbers, names and cookies.
    info: usize,
}

impl PageBudget {
    /// Deducts an entry of this size if it fits.
    fn take(&mut self, reply: usize, info: usize) -> bool {
        match (self.reply.checked_sub(reply), self.info.checked_sub(info)) {
            (Some(reply), Some(info)) => {
                *self = Self { reply, info };
                true
            }
            _ => false,
        }
    }
}

/// An entry of READDIR or READDIRPLUS.
trait ReaddirEntry: Encode + Send + Sized + 'static {
    /// Whether the entry has attributes and a handle.
    const WITH_ATTRS: bool;

    /// Encodes `entry`; the bytes of its handle are split off `memory`.
    fn new<O, H: Handles<O>>(entry: &Entry<O>, handles: &H, memory: &mut BytesMut) -> Self;

    /// Deducts the entry from `budget` if it fits.
    fn fits(&self, budget: &mut PageBudget) -> bool;
}

impl ReaddirEntry for DirEntry {
    const WITH_ATTRS: bool = false;

    fn new<O, H: Handles<O>>(entry: &Entry<O>, _: &H, _: &mut BytesMut) -> Self {
        Self { fileid: entry.fileid.0, name: entry.name.clone(), cookie: entry.cookie.0 }
    }

    fn fits(&self, budget: &mut PageBudget) -> bool {
        budget.take(self.encoded_bytes(), self.info_bytes())
    }
}

impl ReaddirEntry for DirEntryPlus {
    const WITH_ATTRS: bool = true;

    fn new<O, H: Handles<O>>(entry: &Entry<O>, handles: &H, memory: &mut BytesMut) -> Self {
        let object = entry.object.as_ref();
        Self {
            entry: DirEntry::new(entry, handles, memory),
            attributes: object.map(|(_, attr)| attr::fattr(attr)),
            handle: object.map(|(locator, _)| handles.encode_in(memory, locator)),
        }
    }

    fn fits(&self, budget: &mut PageBudget) -> bool {
        budget.take(self.encoded_bytes(), self.entry.info_bytes())
    }
}

impl<V: Vfs, H: Handles<V::Object>> Nfs<V, H> {
    /// READDIR (RFC 1813 §3.3.16).
    pub(super) async fn readdir(
        &self,
        caller: &Caller,
        args: args::ReaddirArgs,
    ) -> HandlerResult<DirList<DirEntry>, PostOpAttr> {
        let dir = self.handles.decode(&args.dir)?;
        Ok(self.list(caller, &dir, args.cookie, args.count, usize::MAX).await)
    }

    /// READDIRPLUS (RFC 1813 §3.3.17).
    pub(super) async fn readdirplus(
        &self,
        caller: &Caller,
        args: args::ReaddirplusArgs,
    ) -> HandlerResult<DirList<DirEntryPlus>, PostOpAttr> {
        let dir = self.handles.decode(&args.dir)?;
        Ok(self.list(caller, &dir, args.cookie, args.maxcount, args.dircount as usize).await)
    }

    /// Lists one page: `max_bytes` limits the whole success, `max_info_bytes` the entries' numbers,
    /// names and cookies. `NFS3ERR_TOOSMALL` if not even one entry fits.
    async fn list<E: ReaddirEntry>(
        &self,
        caller: &Caller,
        dir: &V::Object,
        cookie: u64,
        max_bytes: u32,
        max_info_bytes: usize,
    ) -> Reply<DirList<E>, PostOpAttr> {
        let max_bytes = max_bytes.min(MAX_TRANSFER_BYTES) as usize;
        let frame_fits = max_bytes >= DirList::<E>::FRAME_BYTES;
        let mut budget = PageBudget {
            reply: max_bytes.saturating_sub(DirList::<E>::FRAME_BYTES),
            info: max_info_bytes,
        };
        let handles = self.handles.clone();
        // Entries come from another thread, one by one; only one page is in memory.
        let taken = Arc::new(Mutex::new(EncodedEntries::default()));
        let (page, mut memory) = (Arc::clone(&taken), BytesMut::new());
        let take = move |entry: &Entry<V::Object>| {
            if memory.capacity() < FHSIZE {
                memory.reserve(HANDLES_BYTES);
            }
            let entry: E = E::new(entry, &handles, &mut memory);
            let fits = entry.fits(&mut budget);
            if fits {
                page.lock().push(&entry);
            }
            fits
        };
        let outcome = self.vfs.readdir(caller, dir, Cookie(cookie), E::WITH_ATTRS, take).await;
        let dir_attributes = attr::post_op(outcome.context);
        let page = match outcome.result {
            Ok(page) => page,
            Err(error) => return Reply::Fail(super::to_status(error), dir_attributes),
        };
        let mut taken = taken.lock();
        let entries = std::mem::take(&mut *taken);
        drop(taken);
        if !frame_fits || (entries.is_empty() && !page.eof) {
            return Reply::Fail(Status::TooSmall, dir_attributes);
        }
        Reply::Ok(DirList {
            dir_attributes,
            cookie_verifier: [0; VERFSIZE],
            entries,
            eof: page.eof,
        })
    }
}
