//! Results of FSSTAT, FSINFO and PATHCONF.

use crate::wire::nfs3::types::{NfsTime, PostOpAttr};
use crate::wire::xdr::{Encode, Encoder};

/// Success of FSSTAT (`FSSTAT3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsstatOk {
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// Size, in bytes.
    pub total_bytes: u64,
    /// Free, in bytes.
    pub free_bytes: u64,
    /// Free to the caller, in bytes.
    pub available_bytes: u64,
    /// Objects that fit.
    pub total_files: u64,
    /// Objects that still fit.
    pub free_files: u64,
    /// The same for the caller.
    pub available_files: u64,
    /// For how many seconds this is not expected to change.
    pub invariant_secs: u32,
}

impl Encode for FsstatOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_u64(self.total_bytes);
        to.put_u64(self.free_bytes);
        to.put_u64(self.available_bytes);
        to.put_u64(self.total_files);
        to.put_u64(self.free_files);
        to.put_u64(self.available_files);
        to.put_u32(self.invariant_secs);
    }
}

/// Bits of [`FsinfoOk::properties`].
pub mod properties {
    /// Hard links.
    pub const LINK: u32 = 0x01;
    /// Symbolic links.
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF says the same of every object.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// SETATTR can set times.
    pub const CANSETTIME: u32 = 0x10;
}

/// Success of FSINFO (`FSINFO3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsinfoOk {
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// The largest READ, in bytes.
    pub read_max: u32,
    /// The best READ, in bytes.
    pub read_preferred: u32,
    /// A READ should be a multiple of this, in bytes.
    pub read_multiple: u32,
    /// The largest WRITE, in bytes.
    pub write_max: u32,
    /// The best WRITE, in bytes.
    pub write_preferred: u32,
    /// A WRITE should be a multiple of this, in bytes.
    pub write_multiple: u32,
    /// The best READDIR, in bytes.
    pub dir_preferred: u32,
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The granularity of times.
    pub time_delta: NfsTime,
    /// What the filesystem can do (see [`properties`]).
    pub properties: u32,
}

impl Encode for FsinfoOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_u32(self.read_max);
        to.put_u32(self.read_preferred);
        to.put_u32(self.read_multiple);
        to.put_u32(self.write_max);
        to.put_u32(self.write_preferred);
        to.put_u32(self.write_multiple);
        to.put_u32(self.dir_preferred);
        to.put_u64(self.max_file_bytes);
        self.time_delta.encode(to);
        to.put_u32(self.properties);
    }
}

/// Success of PATHCONF (`PATHCONF3resok`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathconfOk {
    /// The object's attributes.
    pub attributes: PostOpAttr,
    /// Hard links of one object.
    pub max_links: u32,
    /// Bytes of a name.
    pub max_name_bytes: u32,
    /// Whether a longer name is refused, not cut.
    pub no_trunc: bool,
    /// Whether only the superuser changes an owner.
    pub chown_restricted: bool,
    /// Whether names that differ in case are the same.
    pub case_insensitive: bool,
    /// Whether the case of a name is kept.
    pub case_preserving: bool,
}

impl Encode for PathconfOk {
    fn encode(&self, to: &mut Encoder) {
        self.attributes.encode(to);
        to.put_u32(self.max_links);
        to.put_u32(self.max_name_bytes);
        to.put_bool(self.no_trunc);
        to.put_bool(self.chown_restricted);
        to.put_bool(self.case_insensitive);
        to.put_bool(self.case_preserving);
    }
}
