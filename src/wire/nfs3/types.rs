//! Data types that several procedures share (RFC 1813 §2.5, §2.6).

use bytes::Bytes;

use super::limits::{FHSIZE, VERFSIZE};
use crate::wire::xdr::{Decode, Decoder, Encode, Encoder, Result, UNIT_BYTES, XdrError};

/// An encoded file handle (`nfs_fh3`): at most [`FHSIZE`] opaque bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHandle(pub Bytes);

impl Decode for FileHandle {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self(from.opaque(FHSIZE)?))
    }
}

impl Encode for FileHandle {
    fn encode(&self, to: &mut Encoder) {
        to.put_opaque(&self.0);
    }
}

/// A cookie, create or write verifier (`cookieverf3`, `createverf3`, `writeverf3`).
pub type Verifier = [u8; VERFSIZE];

/// A point in time (`nfstime3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NfsTime {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: u32,
    /// Nanoseconds; the value from a client may exceed 999,999,999.
    pub nseconds: u32,
}

impl Decode for NfsTime {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { seconds: from.u32()?, nseconds: from.u32()? })
    }
}

impl Encode for NfsTime {
    fn encode(&self, to: &mut Encoder) {
        to.put_u32(self.seconds);
        to.put_u32(self.nseconds);
    }
}

/// The type of an object (`ftype3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Block device.
    Block = 3,
    /// Character device.
    Character = 4,
    /// Symbolic link.
    Symlink = 5,
    /// Socket.
    Socket = 6,
    /// Named pipe.
    Fifo = 7,
}

impl Decode for FileType {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(match from.u32()? {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return Err(XdrError::BadValue),
        })
    }
}

/// A device number (`specdata3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecData {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Decode for SpecData {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self { major: from.u32()?, minor: from.u32()? })
    }
}

/// An object's attributes (`fattr3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fattr {
    /// Type.
    pub kind: FileType,
    /// Permission bits (12 bits).
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub used: u64,
    /// Device number of a special file.
    pub rdev: SpecData,
    /// Identifies the filesystem.
    pub fsid: u64,
    /// Identifies the object in the filesystem.
    pub fileid: u64,
    /// Time of the last read.
    pub atime: NfsTime,
    /// Time of the last change of content.
    pub mtime: NfsTime,
    /// Time of the last change of content or attributes.
    pub ctime: NfsTime,
}

impl Fattr {
    /// Encoded size, in bytes.
    pub const ENCODED_BYTES: usize = 84;
}

impl Encode for Fattr {
    fn encode(&self, to: &mut Encoder) {
        let [size, used, fsid, fileid] =
            [self.size, self.used, self.fsid, self.fileid].map(|n| [(n >> 32) as u32, n as u32]);
        let words = [
            self.kind as u32,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            size[0],
            size[1],
            used[0],
            used[1],
            self.rdev.major,
            self.rdev.minor,
            fsid[0],
            fsid[1],
            fileid[0],
            fileid[1],
            self.atime.seconds,
            self.atime.nseconds,
            self.mtime.seconds,
            self.mtime.nseconds,
            self.ctime.seconds,
            self.ctime.nseconds,
        ];
        to.put_fixed(in_words(words).as_flattened());
    }
}

/// The words as bytes, to write at once: almost every reply has attributes.
fn in_words<const N: usize>(words: [u32; N]) -> [[u8; UNIT_BYTES]; N] {
    words.map(u32::to_be_bytes)
}

/// Attributes after an operation, if known (`post_op_attr`).
pub type PostOpAttr = Option<Fattr>;

/// Attributes by which a client detects changes (`wcc_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WccAttr3 {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: NfsTime,
    /// Time of the last change of content or attributes.
    pub ctime: NfsTime,
}

impl Encode for WccAttr3 {
    fn encode(&self, to: &mut Encoder) {
        let Self { size, mtime, ctime } = self;
        let words = [
            (size >> 32) as u32,
            *size as u32,
            mtime.seconds,
            mtime.nseconds,
            ctime.seconds,
            ctime.nseconds,
        ];
        to.put_fixed(in_words(words).as_flattened());
    }
}

/// Attributes before and after an operation (`wcc_data`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WccData {
    /// Before (`pre_op_attr`).
    pub before: Option<WccAttr3>,
    /// After.
    pub after: PostOpAttr,
}

impl Encode for WccData {
    fn encode(&self, to: &mut Encoder) {
        self.before.encode(to);
        self.after.encode(to);
    }
}

/// How to set a time (`set_atime`, `set_mtime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime3 {
    /// `DONT_CHANGE`.
    #[default]
    DontChange,
    /// `SET_TO_SERVER_TIME`.
    ToServerTime,
    /// `SET_TO_CLIENT_TIME`.
    ToClientTime(NfsTime),
}

impl Decode for SetTime3 {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(match from.u32()? {
            0 => Self::DontChange,
            1 => Self::ToServerTime,
            2 => Self::ToClientTime(NfsTime::decode(from)?),
            _ => return Err(XdrError::BadValue),
        })
    }
}

/// Attributes to set (`sattr3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sattr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime3,
    /// Modification time.
    pub mtime: SetTime3,
}

impl Decode for Sattr {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(Self {
            mode: Option::decode(from)?,
            uid: Option::decode(from)?,
            gid: Option::decode(from)?,
            size: Option::decode(from)?,
            atime: SetTime3::decode(from)?,
            mtime: SetTime3::decode(from)?,
        })
    }
}

/// Required or actual stability of written data (`stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StableHow {
    /// May be lost until COMMIT.
    Unstable = 0,
    /// The data is on stable storage, with the metadata needed to retrieve it.
    DataSync = 1,
    /// Data and attributes are on stable storage.
    FileSync = 2,
}

impl Decode for StableHow {
    fn decode(from: &mut Decoder) -> Result<Self> {
        Ok(match from.u32()? {
            0 => Self::Unstable,
            1 => Self::DataSync,
            2 => Self::FileSync,
            _ => return Err(XdrError::BadValue),
        })
    }
}
