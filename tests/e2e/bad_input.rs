//! Handles that are not ours, names that are none, sizes that are too large.

use nfs3_client::nfs3_types::nfs3::{
    ACCESS3args, COMMIT3args, FSINFO3args, FSSTAT3args, Nfs3Option, PATHCONF3args, READLINK3args,
    SETATTR3args, createhow3, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use super::Served;
use super::peer::{Peer, mode, plain};
use super::raw::{GETATTR, NFS, Raw, opaque, words};

const TREE: &str = "dir/sub/file \"content\"\nfile \"x\"\nlink -> file";

fn handle(bytes: Vec<u8>) -> nfs_fh3 {
    nfs_fh3 { data: Opaque::owned(bytes) }
}

/// What every procedure that takes a handle answers to this one.
async fn statuses(peer: &mut Peer, bad: &nfs_fh3, good: &nfs_fh3) -> Vec<nfsstat3> {
    let mut all = Vec::new();
    let fh = || bad.clone();
    all.push(peer.getattr(bad).await.map(drop));
    all.push(peer.setattr(bad, mode(0)).await);
    all.push(peer.lookup(bad, "x").await.map(drop));
    let access = ACCESS3args { object: fh(), access: 63 };
    all.push(plain(peer.nfs.access(&access).await.unwrap()).map(drop));
    let readlink = READLINK3args { symlink: fh() };
    all.push(plain(peer.nfs.readlink(&readlink).await.unwrap()).map(drop));
    all.push(peer.read(bad, 0, 1).await.map(drop));
    all.push(peer.write(bad, 0, b"x", stable_how::UNSTABLE).await.map(drop));
    all.push(peer.create(bad, "x", createhow3::GUARDED(mode(0))).await.map(drop));
    all.push(peer.mkdir(bad, "x").await.map(drop));
    all.push(peer.symlink(bad, "x", "y").await.map(drop));
    all.push(peer.remove(bad, "x").await);
    all.push(peer.rmdir(bad, "x").await);
    all.push(peer.rename((bad, "x"), (good, "y")).await);
    all.push(peer.rename((good, "sub"), (bad, "y")).await);
    all.push(peer.link(bad, good, "y").await);
    all.push(peer.readdirplus(bad, 0, 4096, 4096).await.map(drop));
    all.push(plain(peer.nfs.fsstat(&FSSTAT3args { fsroot: fh() }).await.unwrap()).map(drop));
    all.push(plain(peer.nfs.fsinfo(&FSINFO3args { fsroot: fh() }).await.unwrap()).map(drop));
    all.push(plain(peer.nfs.pathconf(&PATHCONF3args { object: fh() }).await.unwrap()).map(drop));
    let commit = COMMIT3args { file: fh(), offset: 0, count: 0 };
    all.push(plain(peer.nfs.commit(&commit).await.unwrap()).map(drop));
    all.into_iter().map(|result| result.expect_err("an error")).collect()
}

#[tokio::test]
async fn handles_that_are_not_ours_are_bad() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let dir = peer.at("dir").await;
    let real: Vec<u8> = peer.at("dir/sub").await.data.as_ref().to_vec();
    assert!(real.len() <= 64);
    for at in 0..real.len() {
        let mut forged = real.clone();
        forged[at] ^= 1;
        let answer = peer.getattr(&handle(forged)).await;
        assert_eq!(answer.err(), Some(nfsstat3::NFS3ERR_BADHANDLE), "byte {at}");
    }
    for len in 0..real.len() {
        let answer = peer.getattr(&handle(real[..len].to_vec())).await;
        assert_eq!(answer.err(), Some(nfsstat3::NFS3ERR_BADHANDLE), "{len} bytes");
    }
    let mut longer = real.clone();
    longer.push(0);
    for forged in [longer, vec![0; 64], vec![0xff; 32]] {
        let forged = handle(forged);
        for (n, status) in statuses(&mut peer, &forged, &dir).await.into_iter().enumerate() {
            assert_eq!(status, nfsstat3::NFS3ERR_BADHANDLE, "{n}");
        }
    }
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn handles_of_another_session_are_bad() {
    let served = Served::start(TREE).await;
    let other = Served::start(TREE).await;
    let root = served.connect().await.root;
    let answer = other.connect().await.getattr(&root).await;
    assert_eq!(answer.err(), Some(nfsstat3::NFS3ERR_BADHANDLE));
}

#[tokio::test]
async fn handles_of_the_deleted_are_stale() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let (root, dir) = (peer.root.clone(), peer.at("dir").await);
    let file = peer.at("file").await;
    peer.remove(&root, "file").await.unwrap();
    let born = peer.mkdir(&dir, "born").await.unwrap();
    peer.rmdir(&dir, "born").await.unwrap();
    for gone in [file, born] {
        for (n, status) in statuses(&mut peer, &gone, &dir).await.into_iter().enumerate() {
            assert_eq!(status, nfsstat3::NFS3ERR_STALE, "{n}");
        }
    }
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn bad_names_are_refused_everywhere() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let (dir, file) = (peer.at("dir").await, peer.at("file").await);
    let (long, longer) = ("n".repeat(256), "n".repeat(100_000));
    let names = [
        ("", nfsstat3::NFS3ERR_INVAL),
        ("a/b", nfsstat3::NFS3ERR_INVAL),
        ("nul\0", nfsstat3::NFS3ERR_INVAL),
        (&long, nfsstat3::NFS3ERR_NAMETOOLONG),
        (&longer, nfsstat3::NFS3ERR_NAMETOOLONG),
    ];
    for (name, status) in names {
        let results = [
            peer.lookup(&dir, name).await.map(drop),
            peer.create(&dir, name, createhow3::UNCHECKED(mode(0))).await.map(drop),
            peer.mkdir(&dir, name).await.map(drop),
            peer.symlink(&dir, name, "x").await.map(drop),
            peer.remove(&dir, name).await,
            peer.rmdir(&dir, name).await,
            peer.rename((&dir, name), (&dir, "x")).await,
            peer.rename((&dir, "sub"), (&dir, name)).await,
            peer.link(&file, &dir, name).await,
        ];
        for (n, result) in results.into_iter().enumerate() {
            assert_eq!(result.err(), Some(status), "{n}: {} bytes", name.len());
        }
    }
    assert_eq!(peer.ls(&dir).await, ["sub"]);
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn a_read_of_4_gib_gives_what_one_read_can() {
    let served = Served::start("").await;
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    let info = peer.nfs.fsinfo(&FSINFO3args { fsroot: root.clone() }).await.unwrap();
    let rtmax = plain(info).unwrap().rtmax;
    let file = peer.put(&root, "big", "start").await;
    let size = sattr3 { size: Nfs3Option::Some(5 << 30), ..sattr3::default() };
    peer.setattr(&file, size).await.unwrap();
    let data = peer.read(&file, 0, u32::MAX).await.unwrap();
    assert_eq!((data.len(), &data[..5]), (rtmax as usize, &b"start"[..]));
    assert_eq!(peer.read(&file, (5 << 30) - 3, u32::MAX).await.unwrap(), [0; 3]);
    assert_eq!(peer.read(&file, u64::MAX, u32::MAX).await.unwrap(), b"");
}

#[tokio::test]
async fn a_guard_that_does_not_fit_changes_nothing() {
    let served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let object = peer.at("file").await;
    let ctime = peer.getattr(&object).await.unwrap().ctime;
    let guarded = |guard| {
        let object = object.clone();
        SETATTR3args { object, new_attributes: mode(0o600), guard: Nfs3Option::Some(guard) }
    };
    let mut other = ctime;
    other.nseconds ^= 1;
    let refused = plain(peer.nfs.setattr(&guarded(other)).await.unwrap());
    assert_eq!(refused.err(), Some(nfsstat3::NFS3ERR_NOT_SYNC));
    assert_eq!(peer.getattr(&object).await.unwrap().mode, 0o644);
    plain(peer.nfs.setattr(&guarded(ctime)).await.unwrap()).unwrap();
    assert_eq!(peer.getattr(&object).await.unwrap().mode, 0o600);
}

#[tokio::test]
async fn broken_arguments_are_garbage_and_the_connection_goes_on() {
    let served = Served::start(TREE).await;
    let root = served.connect().await.root.data.as_ref().to_vec();
    let mut raw = Raw::connect(served.address()).await;
    let good = opaque(&root);
    let broken: [Vec<u8>; 5] = [
        Vec::new(),
        good[..good.len() - 4].to_vec(),
        [&good[..], &words(&[0])].concat(),
        words(&[65]),
        words(&[u32::MAX]),
    ];
    for (n, args) in broken.iter().enumerate() {
        raw.send_call(5, [NFS, 3, GETATTR], args).await;
        assert_eq!(raw.reply_words().await.unwrap(), [5, 1, 0, 0, 0, 4], "{n}");
    }
    raw.send_call(6, [NFS, 3, GETATTR], &good).await;
    assert_eq!(raw.reply_words().await.unwrap()[..7], [6, 1, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_record_that_is_too_long_ends_the_connection_only() {
    let mut served = Served::start(TREE).await;
    for mark in [u32::MAX, 1 << 31 | 64 << 20, 0x7fff_ffff] {
        let mut raw = Raw::connect(served.address()).await;
        raw.send(&mark.to_be_bytes()).await;
        assert_eq!(raw.reply().await, None, "{mark:x}");
    }
    let mut peer = served.connect().await;
    let file = peer.at("file").await;
    assert_eq!(peer.read(&file, 0, 9).await.unwrap(), b"x");
    drop(peer);
    served.stop().await;
}
