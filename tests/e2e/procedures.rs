//! All 22 procedures, once as they should be used.

use nfs3_client::nfs3_types::nfs3::{
    ACCESS3args, COMMIT3args, CREATE3args, FSINFO3args, FSSTAT3args, LINK3args, LOOKUP3args,
    MKDIR3args, MKNOD3args, Nfs3Option, Nfs3Result, PATHCONF3args, READ3args, READDIR3args,
    READLINK3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args, SYMLINK3args, cookieverf3,
    createhow3, createverf3, devicedata3, ftype3, mknoddata3, nfsstat3, nfstime3, sattr3,
    specdata3, stable_how, symlinkdata3, wcc_data,
};

use super::Served;
use super::peer::{Peer, entry, mode, plain};

const TREE: &str = "dir/file \"content\"\ndir/sub/leaf \"leaf\"\nlink -> dir/file";

/// Asserts that wcc data shows a change.
#[track_caller]
fn assert_moved(wcc: &wcc_data) {
    let time = |time: nfstime3| (time.seconds, time.nseconds);
    let (before, after) = (wcc.before.unwrap(), wcc.after.clone().unwrap());
    assert!(time(after.ctime) > time(before.ctime), "{wcc:?}");
}

#[tokio::test]
async fn reading_procedures() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    peer.nfs.null().await.unwrap();
    let root = peer.root.clone();
    let dir = peer.at("dir").await;
    let found = peer.nfs.lookup(&LOOKUP3args { what: entry(&dir, "file") }).await.unwrap();
    let found = found.unwrap();
    let (attr, file) = (found.obj_attributes.unwrap(), found.object);
    assert_eq!(found.dir_attributes.unwrap().type_, ftype3::NF3DIR);
    assert_eq!((attr.type_, attr.mode, attr.size), (ftype3::NF3REG, 0o644, 7));
    let same = peer.getattr(&file).await.unwrap();
    assert_eq!((same.fileid, same.fsid, same.nlink), (attr.fileid, 7, 1));

    let access = ACCESS3args { object: file.clone(), access: 0x3f };
    let access = peer.nfs.access(&access).await.unwrap().unwrap();
    assert_eq!((access.access, access.obj_attributes.is_some()), (0x0d, true));
    let args = READ3args { file: file.clone(), offset: 3, count: 100 };
    let read = peer.nfs.read(&args).await.unwrap().unwrap();
    assert_eq!((read.count, read.eof, read.data.as_ref()), (4, true, &b"tent"[..]));
    assert_eq!(read.file_attributes.unwrap().fileid, attr.fileid);
    let link = peer.at("link").await;
    let target = peer.nfs.readlink(&READLINK3args { symlink: link }).await.unwrap().unwrap();
    assert_eq!(target.data.as_ref(), b"dir/file");
    let cookieverf = cookieverf3::default();
    let args = READDIR3args { dir: root.clone(), cookie: 0, cookieverf, count: 4096 };
    let listed = peer.nfs.readdir(&args).await.unwrap().unwrap();
    assert_eq!((listed.reply.entries.0.len(), listed.reply.eof), (4, true));
    assert_eq!(peer.ls(&dir).await, ["file", "sub"]);

    let stat = peer.nfs.fsstat(&FSSTAT3args { fsroot: root.clone() }).await.unwrap().unwrap();
    assert!(stat.tbytes >= stat.fbytes && stat.fbytes >= stat.abytes && stat.tbytes > 0);
    let info = peer.nfs.fsinfo(&FSINFO3args { fsroot: root.clone() }).await.unwrap().unwrap();
    assert_eq!(info.properties, 0x1b, "links, symlinks, homogeneous, settable times");
    assert_eq!((info.maxfilesize, info.time_delta.nseconds), ((16 << 40) - 4096, 1));
    let conf = peer.nfs.pathconf(&PATHCONF3args { object: root }).await.unwrap().unwrap();
    assert_eq!((conf.name_max, conf.no_trunc, conf.case_preserving), (255, true, true));
    assert!(conf.chown_restricted && !conf.case_insensitive);
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn procedures_that_change_a_file() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let file = peer.at("dir/file").await;
    let guard = Nfs3Option::None;
    let args = SETATTR3args { object: file.clone(), new_attributes: mode(0o600), guard };
    assert_moved(&peer.nfs.setattr(&args).await.unwrap().unwrap().obj_wcc);
    let written = peer.write(&file, 7, b"!", stable_how::FILE_SYNC).await.unwrap();
    assert_moved(&written.file_wcc);
    assert_eq!((written.count, written.committed), (1, stable_how::FILE_SYNC));
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    let commit = peer.nfs.commit(&args).await.unwrap().unwrap();
    assert_eq!(commit.verf, written.verf);
    assert!(commit.file_wcc.after.is_some());
    assert_eq!(peer.read(&file, 0, 100).await.unwrap(), b"content!");
    assert_eq!(peer.getattr(&file).await.unwrap().mode, 0o600);
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn procedures_that_change_a_directory() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let (root, dir) = (peer.root.clone(), peer.at("dir").await);
    let args = CREATE3args { where_: entry(&dir, "new"), how: createhow3::GUARDED(mode(0o640)) };
    let made = peer.nfs.create(&args).await.unwrap().unwrap();
    assert_moved(&made.dir_wcc);
    assert_eq!(made.obj_attributes.unwrap().mode, 0o640);
    let args = MKDIR3args { where_: entry(&dir, "made"), attributes: mode(0o711) };
    let made_dir = peer.nfs.mkdir(&args).await.unwrap().unwrap();
    assert_moved(&made_dir.dir_wcc);
    assert_eq!(made_dir.obj_attributes.unwrap().nlink, 2);
    let symlink_data = b"target"[..].into();
    let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data };
    let args = SYMLINK3args { where_: entry(&dir, "sym"), symlink };
    assert_moved(&peer.nfs.symlink(&args).await.unwrap().unwrap().dir_wcc);
    mknod(&mut peer).await;

    let args = LINK3args { file: made.obj.unwrap(), link: entry(&root, "linked") };
    let linked = peer.nfs.link(&args).await.unwrap().unwrap();
    assert_moved(&linked.linkdir_wcc);
    assert_eq!(linked.file_attributes.unwrap().nlink, 2);
    let args = RENAME3args { from: entry(&dir, "sub"), to: entry(&root, "moved") };
    let renamed = peer.nfs.rename(&args).await.unwrap().unwrap();
    assert_moved(&renamed.fromdir_wcc);
    assert_moved(&renamed.todir_wcc);
    let args = REMOVE3args { object: entry(&dir, "sym") };
    assert_moved(&peer.nfs.remove(&args).await.unwrap().unwrap().dir_wcc);
    let args = RMDIR3args { object: entry(&dir, "made") };
    assert_moved(&peer.nfs.rmdir(&args).await.unwrap().unwrap().dir_wcc);
    assert_eq!(peer.ls(&root).await, ["dir", "link", "linked", "moved"]);
    assert_eq!(peer.ls(&dir).await, ["device", "file", "new", "pipe", "sock"]);
    drop(peer);
    served.stop().await;
}

async fn mknod(peer: &mut Peer) {
    let dir = peer.at("dir").await;
    let spec = specdata3 { specdata1: 1, specdata2: 3 };
    let device = devicedata3 { dev_attributes: mode(0o600), spec: spec.clone() };
    let kinds = [
        ("device", mknoddata3::NF3CHR(device), ftype3::NF3CHR),
        ("pipe", mknoddata3::NF3FIFO(mode(0o644)), ftype3::NF3FIFO),
        ("sock", mknoddata3::NF3SOCK(mode(0o644)), ftype3::NF3SOCK),
    ];
    for (name, what, kind) in kinds {
        let args = MKNOD3args { where_: entry(&dir, name), what };
        let made = peer.nfs.mknod(&args).await.unwrap().unwrap();
        assert_moved(&made.dir_wcc);
        let attr = made.obj_attributes.unwrap();
        assert_eq!(attr.type_, kind);
        if kind == ftype3::NF3CHR {
            assert_eq!(attr.rdev, spec);
        }
    }
}

#[tokio::test]
async fn errors_carry_the_attributes_of_their_directory() {
    let served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let dir = peer.at("dir").await;
    let fileid = peer.getattr(&dir).await.unwrap().fileid;
    let missing = peer.nfs.lookup(&LOOKUP3args { what: entry(&dir, "missing") }).await.unwrap();
    let Nfs3Result::Err((status, fail)) = missing else { panic!("found what is not there") };
    assert_eq!(status, nfsstat3::NFS3ERR_NOENT);
    assert_eq!(fail.dir_attributes.unwrap().fileid, fileid);
    let args = REMOVE3args { object: entry(&dir, "sub") };
    let removed = peer.nfs.remove(&args).await.unwrap();
    let Nfs3Result::Err((status, fail)) = removed else { panic!("removed a directory") };
    assert_eq!(status, nfsstat3::NFS3ERR_ISDIR);
    let (before, after) = (fail.dir_wcc.before.unwrap(), fail.dir_wcc.after.unwrap());
    assert_eq!((before.ctime, before.size), (after.ctime, after.size));
}

#[tokio::test]
async fn an_exclusive_create_and_permissions_over_the_wire() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    let how = || createhow3::EXCLUSIVE(createverf3(*b"12345678"));
    let made = peer.create(&root, "new", how()).await.unwrap();
    assert_eq!(peer.create(&root, "new", how()).await.unwrap(), made);
    let other = createhow3::EXCLUSIVE(createverf3(*b"87654321"));
    assert_eq!(peer.create(&root, "new", other).await.err(), Some(nfsstat3::NFS3ERR_EXIST));
    let mut user = Peer::connect(served.address(), 54_321, 54_321).await;
    assert_eq!(user.read(&made, 0, 1).await.err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(user.mkdir(&root, "x").await.err(), Some(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(user.setattr(&made, mode(0)).await.err(), Some(nfsstat3::NFS3ERR_PERM));
    let args = MKNOD3args { where_: entry(&root, "x"), what: mknoddata3::NF3FIFO(mode(0)) };
    let refused = plain(user.nfs.mknod(&args).await.unwrap());
    assert_eq!(refused.err(), Some(nfsstat3::NFS3ERR_ACCES));
    drop((peer, user));
    served.stop().await;
}
