//! What a client still holds after the server came back.

use nfs3_client::nfs3_types::nfs3::{COMMIT3args, nfsstat3, stable_how};

use super::Served;
use super::peer::plain;

const TREE: &str = r#"
    a/b/c/leaf "leaf"
    a/other "other"
    z/file "file"
    z/hard = z/file
"#;

#[tokio::test]
async fn handles_outlive_the_server_whatever_is_looked_up_first() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    let mut before = Vec::new();
    for path in ["a", "a/b", "a/b/c", "a/b/c/leaf", "a/other", "z", "z/file"] {
        let handle = peer.at(path).await;
        before.push((path, peer.getattr(&handle).await.unwrap().fileid, handle));
    }
    let born = peer.put(&root, "born", "born").await;
    peer.write(&before[4].2, 0, b"O", stable_how::UNSTABLE).await.unwrap();
    peer.rename((&root, "a"), (&root, "moved")).await.unwrap();
    drop(peer);
    served.restart().await;

    let mut peer = served.connect().await;
    assert_eq!(peer.root, root);
    // The other way round, and by handle first.
    for (path, fileid, handle) in before.iter().rev() {
        let attr = peer.getattr(handle).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(attr.fileid, *fileid, "{path}");
    }
    for (path, _, handle) in &before {
        let path = path.replacen('a', "moved", usize::from(path.starts_with('a')));
        assert_eq!(peer.at(&path).await, *handle, "{path}");
    }
    assert_eq!(peer.read(&before[3].2, 0, 9).await.unwrap(), b"leaf");
    assert_eq!(peer.read(&before[4].2, 0, 9).await.unwrap(), b"Other");
    assert_eq!(peer.read(&born, 0, 9).await.unwrap(), b"born");
    assert_eq!(peer.at("z/hard").await, before[6].2);
    drop(peer);
    served.stop().await;
}

#[tokio::test]
async fn the_write_verifier_stays_over_a_clean_restart() {
    let mut served = Served::start(TREE).await;
    let mut verifiers = Vec::new();
    for round in 0..3 {
        let mut peer = served.connect().await;
        let root = peer.root.clone();
        let file = peer.put(&root, "file", "").await;
        let data = format!("round {round}");
        let written = peer.write(&file, 0, data.as_bytes(), stable_how::UNSTABLE).await.unwrap();
        assert_eq!(written.committed, stable_how::UNSTABLE);
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let commit = plain(peer.nfs.commit(&args).await.unwrap()).unwrap();
        let synced = peer.write(&file, 0, b"R", stable_how::DATA_SYNC).await.unwrap();
        assert_ne!(synced.committed, stable_how::UNSTABLE);
        verifiers.extend([written.verf, commit.verf, synced.verf]);
        drop(peer);
        served.restart().await;
    }
    verifiers.dedup();
    assert_eq!(verifiers.len(), 1, "nothing was lost");
    let mut peer = served.connect().await;
    let file = peer.at("file").await;
    assert_eq!(peer.read(&file, 0, 99).await.unwrap(), b"Round 2");
}

#[tokio::test]
async fn deletions_stay_deleted() {
    let mut served = Served::start(TREE).await;
    let mut peer = served.connect().await;
    let (root, z, leaf) = (peer.root.clone(), peer.at("z").await, peer.at("a/b/c/leaf").await);
    let c = peer.at("a/b/c").await;
    peer.remove(&c, "leaf").await.unwrap();
    peer.remove(&z, "file").await.unwrap();
    peer.remove(&z, "hard").await.unwrap();
    peer.rmdir(&root, "z").await.unwrap();
    drop(peer);
    served.restart().await;
    let mut peer = served.connect().await;
    assert_eq!(peer.ls(&root).await, ["a"]);
    for gone in [&z, &leaf] {
        assert_eq!(peer.getattr(gone).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    }
    assert_eq!(peer.ls(&c).await, Vec::<String>::new());
    drop(peer);
    served.stop().await;
}
