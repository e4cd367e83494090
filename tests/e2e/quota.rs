//! A quota over the wire: DQUOT, room that comes back, and what FSSTAT says.

use acetate::delta::{Limits, Usage};
use nfs3_client::nfs3_types::nfs3::{
    FSSTAT3args, Nfs3Option, Nfs3Result, WRITE3args, createhow3, nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use super::Served;
use super::peer::{Peer, mode, plain};

const TREE: &str = "dir/file \"content\"";

async fn limit(served: &Served, bytes: Option<u64>, files: Option<u64>) {
    let overlay = &served.running.as_ref().unwrap().overlay;
    overlay.set_limits(move |limits| Limits { bytes, files, ..limits }).await.unwrap();
}

/// Bytes and files: all of them, and those that are free.
async fn figures(peer: &mut Peer) -> ([u64; 2], [u64; 2]) {
    let args = FSSTAT3args { fsroot: peer.root.clone() };
    let stat = plain(peer.nfs.fsstat(&args).await.unwrap()).unwrap();
    assert_eq!((stat.fbytes, stat.ffiles), (stat.abytes, stat.afiles));
    ([stat.tbytes, stat.tfiles], [stat.fbytes, stat.ffiles])
}

#[tokio::test]
async fn a_full_quota_is_dquot_until_something_goes() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    limit(&served, Some(1000), Some(2)).await;
    let one = peer.create(&root, "one", createhow3::GUARDED(mode(0o644))).await.unwrap();
    let written = peer.write(&one, 0, &[1; 900], stable_how::UNSTABLE).await;
    assert_eq!(written.unwrap().count, 900);
    assert_eq!(figures(&mut peer).await, ([1000, 2], [100, 1]));
    let before = peer.getattr(&one).await.unwrap();

    let data = [2; 101];
    let args = WRITE3args {
        file: one.clone(),
        offset: 900,
        count: 101,
        stable: stable_how::FILE_SYNC,
        data: Opaque::borrowed(&data),
    };
    match peer.nfs.write(&args).await.unwrap() {
        Nfs3Result::Err((nfsstat3::NFS3ERR_DQUOT, failed)) => {
            let (was, is) = (failed.file_wcc.before.unwrap(), failed.file_wcc.after.unwrap());
            assert_eq!((was.size, is.size, is.used), (900, 900, before.used));
            assert_eq!(is.ctime, before.ctime);
        }
        other => panic!("{other:?}"),
    }
    let dir = peer.at("dir").await;
    assert_eq!(peer.mkdir(&dir, "new").await.err(), Some(nfsstat3::NFS3ERR_DQUOT));
    assert!(peer.ls(&dir).await == ["file"], "nothing of it shows");
    let file = peer.at("dir/file").await;
    let copied_up = peer.setattr(&file, mode(0o600)).await;
    assert_eq!(copied_up.err(), Some(nfsstat3::NFS3ERR_DQUOT), "it takes its directory along");

    // The whole is counted anew after a kill.
    served.kill().await;
    let mut peer = served.connect().await;
    assert_eq!(figures(&mut peer).await, ([1000, 2], [100, 1]));
    let again = peer.write(&one, 900, &[2; 101], stable_how::UNSTABLE).await;
    assert_eq!(again.err(), Some(nfsstat3::NFS3ERR_DQUOT));
    peer.write(&one, 900, &[2; 100], stable_how::UNSTABLE).await.unwrap();
    let cut = sattr3 { size: Nfs3Option::Some(10), ..sattr3::default() };
    peer.setattr(&one, cut).await.unwrap();
    peer.write(&one, 10, &[3; 990], stable_how::UNSTABLE).await.unwrap();
    peer.remove(&root, "one").await.unwrap();
    peer.setattr(&file, mode(0o600)).await.unwrap();
    assert_eq!(figures(&mut peer).await, ([1000, 2], [993, 0]));
    let overlay = served.running.as_ref().unwrap().overlay.clone();
    assert_eq!(overlay.quota().await.unwrap().0, Usage { bytes: 7, files: 2 });
    drop(overlay);
    served.stop().await;
}
