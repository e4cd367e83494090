//! Conversion of attributes and times between the filesystem and the protocol.

use crate::vfs::{Attr, FileKind, FsError, SetAttr, SetTime, Time, Wcc, WccAttr};
use crate::wire::nfs3;

/// The mode bits that a client can set: permissions, setuid, setgid, sticky.
const PERMISSION_BITS: u32 = 0o7777;

const NANOS_PER_SEC: u32 = 1_000_000_000;

pub(super) fn fattr(attr: &Attr) -> nfs3::Fattr {
    nfs3::Fattr {
        kind: file_type(attr.kind),
        mode: attr.mode & PERMISSION_BITS,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: nfs3::SpecData { major: attr.rdev.major, minor: attr.rdev.minor },
        fsid: attr.fsid,
        fileid: attr.fileid.0,
        atime: nfs_time(attr.atime),
        mtime: nfs_time(attr.mtime),
        ctime: nfs_time(attr.ctime),
    }
}

pub(super) fn post_op(attr: Option<Attr>) -> nfs3::PostOpAttr {
    attr.as_ref().map(fattr)
}

pub(super) fn wcc(wcc: Wcc) -> nfs3::WccData {
    nfs3::WccData { before: wcc.before.map(wcc_attr), after: post_op(wcc.after) }
}

fn wcc_attr(attr: WccAttr) -> nfs3::WccAttr3 {
    nfs3::WccAttr3 { size: attr.size, mtime: nfs_time(attr.mtime), ctime: nfs_time(attr.ctime) }
}

fn file_type(kind: FileKind) -> nfs3::FileType {
    match kind {
        FileKind::Regular => nfs3::FileType::Regular,
        FileKind::Directory => nfs3::FileType::Directory,
        FileKind::Symlink => nfs3::FileType::Symlink,
        FileKind::Block => nfs3::FileType::Block,
        FileKind::Character => nfs3::FileType::Character,
        FileKind::Fifo => nfs3::FileType::Fifo,
        FileKind::Socket => nfs3::FileType::Socket,
    }
}

/// Clamps to the range of `nfstime3`: 1970 to 2106 (RFC 1813 §2.6).
pub(super) fn nfs_time(time: Time) -> nfs3::NfsTime {
    let Time { secs, nanos } = time.as_clients_see_it();
    nfs3::NfsTime { seconds: u32::try_from(secs).unwrap_or(u32::MAX), nseconds: nanos }
}

/// Decodes a client's time; [`FsError::Invalid`] if the nanoseconds exceed 999,999,999.
fn time(time: nfs3::NfsTime) -> Result<Time, FsError> {
    if time.nseconds >= NANOS_PER_SEC {
        return Err(FsError::Invalid);
    }
    Ok(Time { secs: i64::from(time.seconds), nanos: time.nseconds })
}

/// Decodes the guard of SETATTR. It is only compared and never stored, so no value is invalid.
pub(super) fn guard_time(time: nfs3::NfsTime) -> Time {
    Time { secs: i64::from(time.seconds), nanos: time.nseconds }
}

/// Decodes attributes to set; a malformed time is [`FsError::Invalid`].
pub(super) fn set_attr(sattr: nfs3::Sattr) -> Result<SetAttr, FsError> {
    Ok(SetAttr {
        mode: sattr.mode.map(|mode| mode & PERMISSION_BITS),
        uid: sattr.uid,
        gid: sattr.gid,
        size: sattr.size,
        atime: set_time(sattr.atime)?,
        mtime: set_time(sattr.mtime)?,
    })
}

fn set_time(set: nfs3::SetTime3) -> Result<SetTime, FsError> {
    Ok(match set {
        nfs3::SetTime3::DontChange => SetTime::Keep,
        nfs3::SetTime3::ToServerTime => SetTime::ServerNow,
        nfs3::SetTime3::ToClientTime(at) => SetTime::To(time(at)?),
    })
}
