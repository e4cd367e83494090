//! The arguments of every procedure: what decodes encodes to the same bytes.

use acetate::wire::mount3::DirPath;
use acetate::wire::nfs3::args::{
    AccessArgs, CommitArgs, CreateArgs, CreateHow3, DirOpArgs, LinkArgs, MkdirArgs, MknodArgs,
    MknodData, ReadArgs, ReaddirArgs, ReaddirplusArgs, RenameArgs, SetattrArgs, SymlinkArgs,
    WriteArgs,
};
use acetate::wire::nfs3::{FileHandle, Sattr, SetTime3, SpecData};
use acetate::wire::nlm4::{
    CancelArgs, FreeAllArgs, Lock, LockArgs, ShareArgs, TestArgs, UnlockArgs,
};
use acetate::wire::portmap::{Mapping, Rpcb};
use acetate::wire::xdr::{Decode, Encode, Encoder};
use bytes::Bytes;

/// A check of what the bytes are as arguments.
pub type Check = fn(Bytes);

/// Ways to read arguments, by the first byte: NFS's procedure numbers, then the other programs'.
pub const KINDS: [(&str, Check); 31] = [
    ("null", again::<()>),
    ("getattr", again::<FileHandle>),
    ("setattr", again::<SetattrArgs>),
    ("lookup", again::<DirOpArgs>),
    ("access", again::<AccessArgs>),
    ("readlink", again::<FileHandle>),
    ("read", again::<ReadArgs>),
    ("write", again::<WriteArgs>),
    ("create", again::<CreateArgs>),
    ("mkdir", again::<MkdirArgs>),
    ("symlink", again::<SymlinkArgs>),
    ("mknod", again::<MknodArgs>),
    ("remove", again::<DirOpArgs>),
    ("rmdir", again::<DirOpArgs>),
    ("rename", again::<RenameArgs>),
    ("link", again::<LinkArgs>),
    ("readdir", again::<ReaddirArgs>),
    ("readdirplus", again::<ReaddirplusArgs>),
    ("fsstat", again::<FileHandle>),
    ("fsinfo", again::<FileHandle>),
    ("pathconf", again::<FileHandle>),
    ("commit", again::<CommitArgs>),
    ("mnt", again::<DirPath>),
    ("test", again::<TestArgs>),
    ("lock", again::<LockArgs>),
    ("cancel", again::<CancelArgs>),
    ("unlock", again::<UnlockArgs>),
    ("free_all", again::<FreeAllArgs>),
    ("share", only_decode::<ShareArgs>),
    ("mapping", again::<Mapping>),
    ("rpcb", again::<Rpcb>),
];

/// The first byte says which procedure's arguments the others are.
pub fn check(data: &[u8]) {
    let Some((&kind, args)) = data.split_first() else { return };
    let (_, check) = KINDS[usize::from(kind) % KINDS.len()];
    check(Bytes::copy_from_slice(args));
}

/// Not all of it is kept.
fn only_decode<T: Decode>(args: Bytes) {
    let _any = T::decode_all(args);
}

fn again<T: Decode + Put + PartialEq + std::fmt::Debug>(args: Bytes) {
    let Ok(value) = T::decode_all(args.clone()) else { return };
    let mut encoder = Encoder::new();
    value.put(&mut encoder);
    let encoded = encoder.into_bytes();
    assert_eq!(encoded.len(), args.len());
    // Padding may be anything, and comes back as zeros: nothing else differs.
    let differ = encoded.iter().zip(&args).filter(|(ours, theirs)| ours != theirs);
    assert!(differ.clone().all(|(&ours, _)| ours == 0));
    assert_eq!(T::decode_all(encoded), Ok(value));
}

/// Arguments as a client writes them; the server only reads them.
trait Put {
    fn put(&self, to: &mut Encoder);
}

/// Implements [`Put`] for structs: field by field.
macro_rules! put_fields {
    ($($type:ty: $($field:ident)*;)*) => {$(
        impl Put for $type {
            fn put(&self, to: &mut Encoder) {
                $(self.$field.put(to);)*
            }
        }
    )*};
}

put_fields! {
    DirOpArgs: dir name;
    SetattrArgs: object attributes guard;
    AccessArgs: object access;
    ReadArgs: file offset count;
    WriteArgs: file offset count stable data;
    CreateArgs: place how;
    MkdirArgs: place attributes;
    SymlinkArgs: place attributes target;
    MknodArgs: place what;
    RenameArgs: from to;
    LinkArgs: file link;
    ReaddirArgs: dir cookie cookie_verifier count;
    ReaddirplusArgs: dir cookie cookie_verifier dircount maxcount;
    CommitArgs: file offset count;
    Sattr: mode uid gid size atime mtime;
    SpecData: major minor;
    Lock: caller_name handle owner svid offset length;
    TestArgs: cookie exclusive lock;
    LockArgs: cookie block exclusive lock reclaim state;
    CancelArgs: cookie block exclusive lock;
    UnlockArgs: cookie lock;
    FreeAllArgs: caller_name state;
}

macro_rules! put_encoded {
    ($($type:ty)*) => {$(
        impl Put for $type {
            fn put(&self, to: &mut Encoder) {
                self.encode(to);
            }
        }
    )*};
}

put_encoded! { () FileHandle Mapping Rpcb acetate::wire::nfs3::NfsTime }

impl Put for u32 {
    fn put(&self, to: &mut Encoder) {
        to.put_u32(*self);
    }
}

impl Put for i32 {
    fn put(&self, to: &mut Encoder) {
        to.put_i32(*self);
    }
}

impl Put for u64 {
    fn put(&self, to: &mut Encoder) {
        to.put_u64(*self);
    }
}

impl Put for bool {
    fn put(&self, to: &mut Encoder) {
        to.put_bool(*self);
    }
}

impl Put for Bytes {
    fn put(&self, to: &mut Encoder) {
        to.put_opaque(self);
    }
}

impl Put for [u8; 8] {
    fn put(&self, to: &mut Encoder) {
        to.put_fixed(self);
    }
}

impl<T: Put> Put for Option<T> {
    fn put(&self, to: &mut Encoder) {
        to.put_bool(self.is_some());
        if let Some(value) = self {
            value.put(to);
        }
    }
}

impl Put for acetate::wire::nfs3::StableHow {
    fn put(&self, to: &mut Encoder) {
        to.put_u32(*self as u32);
    }
}

impl Put for DirPath {
    fn put(&self, to: &mut Encoder) {
        self.0.put(to);
    }
}

impl Put for SetTime3 {
    fn put(&self, to: &mut Encoder) {
        match self {
            Self::DontChange => to.put_u32(0),
            Self::ToServerTime => to.put_u32(1),
            Self::ToClientTime(time) => {
                to.put_u32(2);
                time.put(to);
            }
        }
    }
}

impl Put for CreateHow3 {
    fn put(&self, to: &mut Encoder) {
        match self {
            Self::Unchecked(sattr) => {
                to.put_u32(0);
                sattr.put(to);
            }
            Self::Guarded(sattr) => {
                to.put_u32(1);
                sattr.put(to);
            }
            Self::Exclusive(verifier) => {
                to.put_u32(2);
                verifier.put(to);
            }
        }
    }
}

impl Put for MknodData {
    fn put(&self, to: &mut Encoder) {
        let (kind, sattr, spec) = match self {
            Self::Character(sattr, spec) => (4, Some(sattr), Some(spec)),
            Self::Block(sattr, spec) => (3, Some(sattr), Some(spec)),
            Self::Socket(sattr) => (6, Some(sattr), None),
            Self::Fifo(sattr) => (7, Some(sattr), None),
            Self::Other(kind) => (*kind as u32, None, None),
        };
        to.put_u32(kind);
        if let Some(sattr) = sattr {
            sattr.put(to);
        }
        if let Some(spec) = spec {
            spec.put(to);
        }
    }
}
