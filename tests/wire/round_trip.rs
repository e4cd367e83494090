//! Arguments that an independent implementation wrote, and results that it reads.

use std::fmt::Debug;

use acetate::wire::nfs3::results::{CreateOk, DirEntry, DirEntryPlus, DirList, Reply};
use acetate::wire::nfs3::{
    Fattr, FileHandle, FileType, NfsTime, Sattr, SetTime3, SpecData, Status, WccAttr3, WccData,
    args,
};
use acetate::wire::xdr::{Decode, Encode, Encoder};
use bytes::Bytes;
use nfs3_client::nfs3_types::nfs3 as theirs;
use nfs3_client::nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use proptest::prelude::*;

fn decode<T: Decode + Debug>(packed: &impl Pack) -> T {
    let mut bytes = Vec::new();
    packed.pack(&mut bytes).unwrap();
    T::decode_all(bytes.into()).unwrap()
}

/// Lets them read what we wrote, write it again, and compares.
fn check_encoding<T: Pack + Unpack>(ours: &impl Encode) {
    let mut encoder = Encoder::new();
    ours.encode(&mut encoder);
    let bytes = encoder.into_bytes();
    let (value, used) = T::unpack(&mut &bytes[..]).unwrap();
    assert_eq!(used, bytes.len());
    let mut again = Vec::new();
    value.pack(&mut again).unwrap();
    assert_eq!(again, bytes);
}

fn their_handle(bytes: &[u8]) -> theirs::nfs_fh3 {
    theirs::nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

fn their_option<T: Pack + Unpack>(value: Option<T>) -> theirs::Nfs3Option<T> {
    value.map_or(theirs::Nfs3Option::None, theirs::Nfs3Option::Some)
}

fn their_time(time: NfsTime) -> theirs::nfstime3 {
    theirs::nfstime3 { seconds: time.seconds, nseconds: time.nseconds }
}

fn their_sattr(sattr: &Sattr) -> theirs::sattr3 {
    theirs::sattr3 {
        mode: their_option(sattr.mode),
        uid: their_option(sattr.uid),
        gid: their_option(sattr.gid),
        size: their_option(sattr.size),
        atime: match sattr.atime {
            SetTime3::DontChange => theirs::set_atime::DONT_CHANGE,
            SetTime3::ToServerTime => theirs::set_atime::SET_TO_SERVER_TIME,
            SetTime3::ToClientTime(t) => theirs::set_atime::SET_TO_CLIENT_TIME(their_time(t)),
        },
        mtime: match sattr.mtime {
            SetTime3::DontChange => theirs::set_mtime::DONT_CHANGE,
            SetTime3::ToServerTime => theirs::set_mtime::SET_TO_SERVER_TIME,
            SetTime3::ToClientTime(t) => theirs::set_mtime::SET_TO_CLIENT_TIME(their_time(t)),
        },
    }
}

fn their_place<'a>(place: &'a args::DirOpArgs) -> theirs::diropargs3<'a> {
    theirs::diropargs3 { dir: their_handle(&place.dir.0), name: (&place.name[..]).into() }
}

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

fn handle() -> impl Strategy<Value = FileHandle> {
    bytes(64).prop_map(FileHandle)
}

fn time() -> impl Strategy<Value = NfsTime> + Clone {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| NfsTime { seconds, nseconds })
}

fn place() -> impl Strategy<Value = args::DirOpArgs> {
    (handle(), bytes(300)).prop_map(|(dir, name)| args::DirOpArgs { dir, name })
}

fn sattr() -> impl Strategy<Value = Sattr> {
    let set_time = prop_oneof![
        Just(SetTime3::DontChange),
        Just(SetTime3::ToServerTime),
        time().prop_map(SetTime3::ToClientTime),
    ];
    (any::<[Option<u32>; 3]>(), any::<Option<u64>>(), set_time.clone(), set_time).prop_map(
        |([mode, uid, gid], size, atime, mtime)| Sattr { mode, uid, gid, size, atime, mtime },
    )
}

fn fattr() -> impl Strategy<Value = Fattr> {
    let kinds = prop::sample::select(vec![
        FileType::Regular,
        FileType::Directory,
        FileType::Block,
        FileType::Character,
        FileType::Symlink,
        FileType::Socket,
        FileType::Fifo,
    ]);
    (kinds, any::<[u32; 6]>(), any::<[u64; 4]>(), [time(), time(), time()]).prop_map(
        |(kind, [mode, nlink, uid, gid, major, minor], [size, used, fsid, fileid], times)| {
            let [atime, mtime, ctime] = times;
            let rdev = SpecData { major, minor };
            Fattr {
                kind,
                mode,
                nlink,
                uid,
                gid,
                size,
                used,
                rdev,
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
            }
        },
    )
}

fn wcc() -> impl Strategy<Value = WccData> {
    let before = (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr3 {
        size,
        mtime,
        ctime,
    });
    (prop::option::of(before), prop::option::of(fattr()))
        .prop_map(|(before, after)| WccData { before, after })
}

proptest! {
    #[test]
    fn setattr(object in handle(), attributes in sattr(), guard in prop::option::of(time())) {
        let packed = theirs::SETATTR3args {
            object: their_handle(&object.0),
            new_attributes: their_sattr(&attributes),
            guard: their_option(guard.map(their_time)),
        };
        let expected = args::SetattrArgs { object, attributes, guard };
        prop_assert_eq!(decode::<args::SetattrArgs>(&packed), expected);
    }

    #[test]
    fn create(place in place(), sattr in sattr(), verifier: [u8; 8], how in 0..3) {
        let (packed, how) = match how {
            0 => (
                theirs::createhow3::UNCHECKED(their_sattr(&sattr)),
                args::CreateHow3::Unchecked(sattr),
            ),
            1 => (
                theirs::createhow3::GUARDED(their_sattr(&sattr)),
                args::CreateHow3::Guarded(sattr),
            ),
            _ => (
                theirs::createhow3::EXCLUSIVE(theirs::createverf3(verifier)),
                args::CreateHow3::Exclusive(verifier),
            ),
        };
        let packed = theirs::CREATE3args { where_: their_place(&place), how: packed };
        prop_assert_eq!(decode::<args::CreateArgs>(&packed), args::CreateArgs { place, how });
    }

    #[test]
    fn mknod(place in place(), sattr in sattr(), major: u32, minor: u32, what in 0..4) {
        let device = || theirs::devicedata3 {
            dev_attributes: their_sattr(&sattr),
            spec: theirs::specdata3 { specdata1: major, specdata2: minor },
        };
        let spec = SpecData { major, minor };
        let (packed, what) = match what {
            0 => (theirs::mknoddata3::NF3CHR(device()), args::MknodData::Character(sattr, spec)),
            1 => (theirs::mknoddata3::NF3BLK(device()), args::MknodData::Block(sattr, spec)),
            2 => (theirs::mknoddata3::NF3SOCK(their_sattr(&sattr)), args::MknodData::Socket(sattr)),
            _ => (theirs::mknoddata3::NF3FIFO(their_sattr(&sattr)), args::MknodData::Fifo(sattr)),
        };
        let packed = theirs::MKNOD3args { where_: their_place(&place), what: packed };
        prop_assert_eq!(decode::<args::MknodArgs>(&packed), args::MknodArgs { place, what });
    }

    #[test]
    fn symlink(place in place(), attributes in sattr(), target in bytes(500)) {
        let packed = theirs::SYMLINK3args {
            where_: their_place(&place),
            symlink: theirs::symlinkdata3 {
                symlink_attributes: their_sattr(&attributes),
                symlink_data: (&target[..]).into(),
            },
        };
        let expected =
            args::SymlinkArgs { place: place.clone(), attributes, target: target.clone() };
        prop_assert_eq!(decode::<args::SymlinkArgs>(&packed), expected);
    }

    #[test]
    fn rename_and_link(from in place(), to in place()) {
        let packed = theirs::RENAME3args { from: their_place(&from), to: their_place(&to) };
        let expected = args::RenameArgs { from: from.clone(), to: to.clone() };
        prop_assert_eq!(decode::<args::RenameArgs>(&packed), expected);
        let packed =
            theirs::LINK3args { file: their_handle(&from.dir.0), link: their_place(&to) };
        let expected = args::LinkArgs { file: from.dir.clone(), link: to.clone() };
        prop_assert_eq!(decode::<args::LinkArgs>(&packed), expected);
    }

    #[test]
    fn write(file in handle(), offset: u64, count: u32, data in bytes(2000)) {
        let packed = theirs::WRITE3args {
            file: their_handle(&file.0),
            offset,
            count,
            stable: theirs::stable_how::DATA_SYNC,
            data: Opaque::owned(data.to_vec()),
        };
        let stable = acetate::wire::nfs3::StableHow::DataSync;
        let expected = args::WriteArgs { file, offset, count, stable, data };
        prop_assert_eq!(decode::<args::WriteArgs>(&packed), expected);
    }

    #[test]
    fn readdirplus_args(dir in handle(), cookie: u64, verifier: [u8; 8], counts: [u32; 2]) {
        let packed = theirs::READDIRPLUS3args {
            dir: their_handle(&dir.0),
            cookie,
            cookieverf: theirs::cookieverf3(verifier),
            dircount: counts[0],
            maxcount: counts[1],
        };
        let [dircount, maxcount] = counts;
        let expected =
            args::ReaddirplusArgs { dir, cookie, cookie_verifier: verifier, dircount, maxcount };
        prop_assert_eq!(decode::<args::ReaddirplusArgs>(&packed), expected);
    }

    #[test]
    fn created(
        object in prop::option::of(handle()),
        attributes in prop::option::of(fattr()),
        dir_wcc in wcc(),
    ) {
        let failed: Reply<CreateOk, WccData> = Reply::Fail(Status::Exist, dir_wcc.clone());
        check_encoding::<theirs::CREATE3res>(&failed);
        let made: Reply<_, WccData> = Reply::Ok(CreateOk { object, attributes, dir_wcc });
        check_encoding::<theirs::CREATE3res>(&made);
    }

    #[test]
    fn listings(
        dir_attributes in prop::option::of(fattr()),
        cookie_verifier: [u8; 8],
        entries in prop::collection::vec(
            (
                any::<(u64, u64)>(),
                bytes(255),
                prop::option::of(fattr()),
                prop::option::of(handle()),
            ),
            0..6,
        ),
        eof: bool,
    ) {
        let plain = |(ids, name, ..): &((u64, u64), Bytes, _, _)| {
            let (fileid, cookie) = *ids;
            DirEntry { fileid, name: name.clone(), cookie }
        };
        let plain_entries: Vec<_> = entries.iter().map(plain).collect();
        let list = DirList {
            dir_attributes: dir_attributes.clone(),
            cookie_verifier,
            entries: plain_entries.iter().collect(),
            eof,
        };
        check_size(&list, plain_entries.iter().map(DirEntry::encoded_bytes).sum());
        check_encoding::<theirs::READDIR3res>(&Reply::<_, ()>::Ok(list));
        let plus = |whole: &((u64, u64), Bytes, Option<Fattr>, Option<FileHandle>)| {
            DirEntryPlus {
                entry: plain(&(whole.0, whole.1.clone(), None, None)),
                attributes: whole.2.clone(),
                handle: whole.3.clone(),
            }
        };
        let plus_entries: Vec<_> = entries.iter().map(plus).collect();
        let entries = plus_entries.iter().collect();
        let list = DirList { dir_attributes, cookie_verifier, entries, eof };
        check_size(&list, plus_entries.iter().map(DirEntryPlus::encoded_bytes).sum());
        check_encoding::<theirs::READDIRPLUS3res>(&Reply::<_, ()>::Ok(list));
    }
}

/// The sizes that limits are reckoned with are those that are written.
fn check_size<E: Encode>(list: &DirList<E>, entries: usize) {
    let mut encoder = Encoder::new();
    list.encode(&mut encoder);
    let missing = if list.dir_attributes.is_some() { 0 } else { Fattr::ENCODED_BYTES };
    assert_eq!(encoder.len() + missing, DirList::<E>::FRAME_BYTES + entries);
}
