//! Many requests at a time, on one connection and on many.

use std::collections::BTreeSet;

use nfs3_client::nfs3_types::nfs3::stable_how;

use super::Served;
use super::peer::Peer;
use super::raw::{GETATTR, LOOKUP, MKDIR, NFS, Raw, opaque, words};

/// A name as an argument after a directory's handle.
fn dirop(dir: &[u8], name: &str) -> Vec<u8> {
    [opaque(dir), opaque(name.as_bytes())].concat()
}

#[tokio::test]
async fn a_connection_takes_many_calls_before_it_reads_a_reply() {
    let mut served = Served::start("dir/file \"x\"").await;
    let root = served.connect().await.root.data.as_ref().to_vec();
    let mut raw = Raw::connect(served.address()).await;
    // Reads and changes mixed: sattr3 with a mode and nothing else.
    let attributes = words(&[1, 0o755, 0, 0, 0, 0, 0]);
    for n in 0..200 {
        match n % 3 {
            0 => raw.send_call(n, [NFS, 3, GETATTR], &opaque(&root)).await,
            1 => raw.send_call(n, [NFS, 3, LOOKUP], &dirop(&root, "dir")).await,
            _ => {
                let args = [dirop(&root, &format!("made{n}")), attributes.clone()].concat();
                raw.send_call(n, [NFS, 3, MKDIR], &args).await;
            }
        }
    }
    let mut answered = BTreeSet::new();
    for _ in 0..200 {
        let reply = raw.reply_words().await.unwrap();
        assert_eq!(reply[1..7], [1, 0, 0, 0, 0, 0], "{reply:?}");
        assert!(answered.insert(reply[0]), "answered twice");
    }
    let mut peer = served.connect().await;
    let root = peer.root.clone();
    assert_eq!(peer.ls(&root).await.len(), 1 + 66);
    assert_eq!(peer.getattr(&root).await.unwrap().nlink, 2 + 67);
    drop((peer, raw));
    served.stop().await;
}

#[tokio::test]
async fn a_retransmission_gets_the_first_reply() {
    let served = Served::start("dir/file \"x\"").await;
    let root = served.connect().await.root.data.as_ref().to_vec();
    let args = [dirop(&root, "made"), words(&[1, 0o755, 0, 0, 0, 0, 0])].concat();
    let mut raw = Raw::connect(served.address()).await;
    raw.send_call(77, [NFS, 3, MKDIR], &args).await;
    let first = raw.reply().await.unwrap();
    raw.send_call(77, [NFS, 3, MKDIR], &args).await;
    assert_eq!(raw.reply().await.unwrap(), first, "not NFS3ERR_EXIST");
    raw.send_call(78, [NFS, 3, MKDIR], &args).await;
    assert_eq!(raw.reply_words().await.unwrap()[6], 17, "NFS3ERR_EXIST");
}

#[tokio::test]
async fn a_retransmission_over_a_kill_changes_nothing_twice() {
    let mut served = Served::start("dir/file \"x\"").await;
    let root = served.connect().await.root.data.as_ref().to_vec();
    let args = [dirop(&root, "made"), words(&[1, 0o755, 0, 0, 0, 0, 0])].concat();
    let mut raw = Raw::connect(served.address()).await;
    raw.send_call(77, [NFS, 3, MKDIR], &args).await;
    // Status, a handle follows, its length, the handle.
    let made = |reply: Vec<u32>| reply[6..9 + reply[8] as usize / 4].to_vec();
    let first = made(raw.reply_words().await.unwrap());
    assert_eq!(first[..2], [0, 1]);
    drop(raw);
    served.kill().await;
    let mut raw = Raw::connect(served.address()).await;
    raw.send_call(77, [NFS, 3, MKDIR], &args).await;
    assert_eq!(made(raw.reply_words().await.unwrap()), first, "not NFS3ERR_EXIST");
    raw.send_call(78, [NFS, 3, MKDIR], &args).await;
    assert_eq!(raw.reply_words().await.unwrap()[6], 17, "NFS3ERR_EXIST");
    drop(raw);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_connections_work_in_one_directory() {
    let mut served = Served::start("dir/file \"x\"").await;
    let mut tasks = Vec::new();
    for client in 0..8 {
        let address = served.address();
        tasks.push(tokio::spawn(async move {
            let mut peer = Peer::connect(address, 0, 0).await;
            let dir = peer.at("dir").await;
            for n in 0..25 {
                let name = format!("c{client}-{n}");
                let file = peer.put(&dir, &name, &name).await;
                assert_eq!(peer.lookup(&dir, &name).await.unwrap(), file);
                assert_eq!(peer.read(&file, 0, 99).await.unwrap(), name.as_bytes());
                let moved = format!("m{client}-{n}");
                peer.rename((&dir, &name), (&dir, &moved)).await.unwrap();
                assert!(peer.lookup(&dir, &name).await.is_err(), "its own change is seen");
                let listed = peer.ls(&dir).await;
                assert!(listed.contains(&moved) && listed.contains(&"file".to_owned()));
                if n % 2 == 0 {
                    peer.remove(&dir, &moved).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut peer = served.connect().await;
    let dir = peer.at("dir").await;
    assert_eq!(peer.ls(&dir).await.len(), 1 + 8 * 12);
    drop(peer);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_of_one_file_lose_nothing() {
    let mut served = Served::start("file \"\"").await;
    let mut tasks = Vec::new();
    for client in 0..8u8 {
        let address = served.address();
        tasks.push(tokio::spawn(async move {
            let mut peer = Peer::connect(address, 0, 0).await;
            let file = peer.at("file").await;
            for n in 0..20u64 {
                let offset = (n * 8 + u64::from(client)) * 1000;
                let data = vec![client + 1; 1000];
                peer.write(&file, offset, &data, stable_how::UNSTABLE).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut peer = served.connect().await;
    let file = peer.at("file").await;
    let content = peer.read(&file, 0, 1 << 20).await.unwrap();
    assert_eq!(content.len(), 160_000);
    for (n, block) in content.chunks(1000).enumerate() {
        assert!(block.iter().all(|&byte| usize::from(byte) == n % 8 + 1), "block {n}");
    }
    drop(peer);
    served.stop().await;
}
