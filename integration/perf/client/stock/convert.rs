//! nfsserve's types ↔ those of the filesystem.

use acetate::vfs::{Attr, FileKind, FsError, SetAttr, SetTime, Time};
use nfsserve::nfs::{
    fattr3, ftype3, nfsstat3, nfstime3, sattr3, set_atime, set_gid3, set_mode3, set_mtime,
    set_size3, set_uid3, specdata3,
};

/// Attributes for the wire.
pub fn attr(from: &Attr) -> fattr3 {
    fattr3 {
        ftype: match from.kind {
            FileKind::Regular => ftype3::NF3REG,
            FileKind::Directory => ftype3::NF3DIR,
            FileKind::Symlink => ftype3::NF3LNK,
            FileKind::Block => ftype3::NF3BLK,
            FileKind::Character => ftype3::NF3CHR,
            FileKind::Fifo => ftype3::NF3FIFO,
            FileKind::Socket => ftype3::NF3SOCK,
        },
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        used: from.used,
        rdev: specdata3 { specdata1: from.rdev.major, specdata2: from.rdev.minor },
        fsid: from.fsid,
        fileid: from.fileid.0,
        atime: time(from.atime),
        mtime: time(from.mtime),
        ctime: time(from.ctime),
    }
}

fn time(from: Time) -> nfstime3 {
    nfstime3 { seconds: from.secs as u32, nseconds: from.nanos }
}

fn time_from(from: nfstime3) -> SetTime {
    SetTime::To(Time { secs: i64::from(from.seconds), nanos: from.nseconds })
}

/// Attributes to set, from the wire.
pub fn set(from: &sattr3) -> SetAttr {
    SetAttr {
        mode: match from.mode {
            set_mode3::mode(mode) => Some(mode),
            set_mode3::Void => None,
        },
        uid: match from.uid {
            set_uid3::uid(uid) => Some(uid),
            set_uid3::Void => None,
        },
        gid: match from.gid {
            set_gid3::gid(gid) => Some(gid),
            set_gid3::Void => None,
        },
        size: match from.size {
            set_size3::size(size) => Some(size),
            set_size3::Void => None,
        },
        atime: match from.atime {
            set_atime::DONT_CHANGE => SetTime::Keep,
            set_atime::SET_TO_SERVER_TIME => SetTime::ServerNow,
            set_atime::SET_TO_CLIENT_TIME(time) => time_from(time),
        },
        mtime: match from.mtime {
            set_mtime::DONT_CHANGE => SetTime::Keep,
            set_mtime::SET_TO_SERVER_TIME => SetTime::ServerNow,
            set_mtime::SET_TO_CLIENT_TIME(time) => time_from(time),
        },
    }
}

/// What the benchmark tells apart; anything else fails it anyway.
pub fn status(from: FsError) -> nfsstat3 {
    match from {
        FsError::NotFound => nfsstat3::NFS3ERR_NOENT,
        FsError::Exists => nfsstat3::NFS3ERR_EXIST,
        FsError::Stale => nfsstat3::NFS3ERR_STALE,
        _ => nfsstat3::NFS3ERR_IO,
    }
}
