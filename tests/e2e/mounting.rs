//! The MOUNT program, and versions that there are not.

use nfs3_client::MountClient;
use nfs3_client::nfs3_types::mount::dirpath;
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::TokioIo;
use tokio::net::TcpStream;

use super::Served;
use super::raw::{NFS, Raw, words};

const MOUNT: u32 = 100_005;

fn path(path: &str) -> dirpath<'_> {
    dirpath(Opaque::borrowed(path.as_bytes()))
}

#[tokio::test]
async fn the_export_mounts_and_nothing_else_does() {
    let mut served = Served::start("dir/file").await;
    let io = TokioIo::new(TcpStream::connect(served.address()).await.unwrap());
    let mut client = MountClient::new(io);
    client.null().await.unwrap();
    let mounted = client.mnt(path("/")).await.unwrap();
    assert_eq!(mounted.fhandle.0.as_ref(), served.connect().await.root.data.as_ref());
    assert!(mounted.fhandle.0.len() <= 64);
    for wrong in ["/dir", "/..", "/dir/..", "", "dir", "/etc", "/./"] {
        assert!(client.mnt(path(wrong)).await.is_err(), "{wrong}");
    }
    assert!(client.mnt(path(&"/x".repeat(1000))).await.is_err());
    assert_eq!(client.export().await.unwrap().into_inner().len(), 1);
    assert_eq!(client.dump().await.unwrap().into_inner().len(), 1);
    client.umnt(path("/")).await.unwrap();
    assert_eq!(client.dump().await.unwrap().into_inner().len(), 0);
    client.umntall().await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn other_versions_are_told_which_there_are() {
    let served = Served::start("").await;
    let mut raw = Raw::connect(served.address()).await;
    for (program, version) in [(NFS, 2), (NFS, 4), (MOUNT, 1), (MOUNT, 2)] {
        raw.send_call(9, [program, version, 0], &[]).await;
        // xid, REPLY, MSG_ACCEPTED, verifier, PROG_MISMATCH, lowest, highest
        assert_eq!(raw.reply_words().await.unwrap(), [9, 1, 0, 0, 0, 2, 3, 3], "{program}");
    }
    raw.send_call(10, [100_099, 1, 0], &[]).await;
    assert_eq!(raw.reply_words().await.unwrap(), [10, 1, 0, 0, 0, 1], "PROG_UNAVAIL");
    raw.send_call(11, [NFS, 3, 22], &[]).await;
    assert_eq!(raw.reply_words().await.unwrap(), [11, 1, 0, 0, 0, 3], "PROC_UNAVAIL");
    raw.send_call(12, [NFS, 3, 0], &words(&[1])).await;
    assert_eq!(raw.reply_words().await.unwrap(), [12, 1, 0, 0, 0, 4], "GARBAGE_ARGS");
}
