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
    /// Total number of objects.
    pub total_files: u64,
    /// Number of objects that can still be created.
    pub free_files: u64,
    /// Number of objects that the caller can still create.
    pub available_files: u64,
    /// Seconds for which the values are not expected to change.
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
    /// PATHCONF returns the same for every object.
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
    /// The preferred size of a READ, in bytes.
    pub read_preferred: u32,
    /// Preferred multiple of a READ's size, in bytes.
    pub read_multiple: u32,
    /// The largest WRITE, in bytes.
    pub write_max: u32,
    /// The preferred size of a WRITE, in bytes.
    pub write_preferred: u32,
    /// Preferred multiple of a WRITE's size, in bytes.
    pub write_multiple: u32,
    /// The preferred size of a READDIR, in bytes.
    pub dir_preferred: u32,
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The resolution of times.
    pub time_delta: NfsTime,
    /// Capabilities of the filesystem: bits of [`properties`].
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
    /// Upper bound of hard links to one object.
    pub max_links: u32,
    /// Upper bound of a name's bytes.
    pub max_name_bytes: u32,
    /// Whether a longer name is refused instead of truncated.
    pub no_trunc: bool,
    /// Whether only the superuser can change an owner.
    pub chown_restricted: bool,
    /// Whether lookups ignore case.
    pub case_insensitive: bool,
    /// Whether names keep their case.
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
