//! Results of READDIR and READDIRPLUS, and the sizes that their arguments limit.

use std::marker::PhantomData;

use bytes::Bytes;

use crate::wire::nfs3::VERFSIZE;
use crate::wire::nfs3::types::{Fattr, FileHandle, PostOpAttr, Verifier};
use crate::wire::xdr::{Encode, Encoder, UNIT_BYTES, opaque_len};

/// An entry of READDIR (`entry3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The object's number.
    pub fileid: u64,
    /// The name.
    pub name: Bytes,
    /// The cookie with which the listing continues after this entry.
    pub cookie: u64,
}

impl DirEntry {
    /// The size of fileid, name and cookie, in bytes, which the `dircount` of READDIRPLUS limits.
    pub fn info_bytes(&self) -> usize {
        8 + opaque_len(self.name.len()) + 8
    }

    /// The size in a list, in bytes: [`DirEntry::info_bytes`] and the boolean before it.
    pub fn encoded_bytes(&self) -> usize {
        UNIT_BYTES + self.info_bytes()
    }
}

impl Encode for DirEntry {
    fn encode(&self, to: &mut Encoder) {
        to.put_u64(self.fileid);
        to.put_opaque(&self.name);
        to.put_u64(self.cookie);
    }
}

/// An entry of READDIRPLUS (`entryplus3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntryPlus {
    /// The part that READDIR returns too.
    pub entry: DirEntry,
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// The object's handle.
    pub handle: Option<FileHandle>,
}

impl DirEntryPlus {
    /// The size in a list, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        let attributes = self.attributes.as_ref().map_or(0, |_| Fattr::ENCODED_BYTES);
        let handle = self.handle.as_ref().map_or(0, |handle| opaque_len(handle.0.len()));
        self.entry.encoded_bytes() + UNIT_BYTES + attributes + UNIT_BYTES + handle
    }
}

impl Encode for DirEntryPlus {
    fn encode(&self, to: &mut Encoder) {
        self.entry.encode(to);
        self.attributes.encode(to);
        self.handle.encode(to);
    }
}

/// The entries of a list, encoded as they arrive, because a page may have thousands.
#[derive(Debug)]
pub struct EncodedEntries<E>(Encoder, PhantomData<fn(E)>);

impl<E: Encode> EncodedEntries<E> {
    /// Appends an entry.
    pub fn push(&mut self, entry: &E) {
        self.0.put_bool(true);
        entry.encode(&mut self.0);
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<E> Default for EncodedEntries<E> {
    fn default() -> Self {
        Self(Encoder::new(), PhantomData)
    }
}

impl<'e, E: Encode + 'e> FromIterator<&'e E> for EncodedEntries<E> {
    fn from_iter<I: IntoIterator<Item = &'e E>>(entries: I) -> Self {
        let mut list = Self::default();
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

/// Success of READDIR and READDIRPLUS (`READDIR3resok`, `READDIRPLUS3resok`).
#[derive(Debug)]
pub struct DirList<E> {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// To be sent back with the next cookie.
    pub cookie_verifier: Verifier,
    /// The entries.
    pub entries: EncodedEntries<E>,
    /// Whether the list reaches the end of the directory.
    pub eof: bool,
}

impl<E> DirList<E> {
    /// The size of all but the entries, in bytes: the directory's attributes, the verifier, the
    /// final boolean of the list, and `eof`.
    pub const FRAME_BYTES: usize =
        UNIT_BYTES + Fattr::ENCODED_BYTES + VERFSIZE + UNIT_BYTES + UNIT_BYTES;
}

impl<E: Encode> Encode for DirList<E> {
    fn encode(&self, to: &mut Encoder) {
        self.dir_attributes.encode(to);
        to.put_fixed(&self.cookie_verifier);
        self.entries.0.copy_to(to);
        to.put_bool(false);
        to.put_bool(self.eof);
    }
}
