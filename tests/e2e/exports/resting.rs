//! What open sessions take while they are idle.

use std::fs;
use std::time::{Duration, Instant};

use acetate::workspace::exports::MAX_AWAKE;
use nfs3_client::nfs3_types::nfs3::nfs_fh3;

use super::Site;
use super::on_demand::{BASE, IDLE, exports};
use crate::e2e::peer::Peer;

/// The open files of one session: the writer's database and WAL, the WAL's index, the lock file,
/// and the locks of our own on database and index.
const WITHOUT_READS: usize = 6;

/// Database and WAL of one connection for reads.
const OF_A_CONNECTION: usize = 2;

/// The database of a closed connection: SQLite closes it with the writer's, and uses it again.
const LEFT: usize = 1;

/// The number of open files of a session in this process.
fn open_files(site: &Site, session: &str) -> usize {
    let prefix = site.path(session);
    let prefix = prefix.to_str().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_str().is_some_and(|it| it.starts_with(prefix))).count()
}

/// Waits until a session has so many open files.
fn wait_for_files(site: &Site, session: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while open_files(site, session) != count {
        assert!(Instant::now() < deadline, "{session} has {}", open_files(site, session));
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn use_it(peer: &mut Peer, root: &nfs_fh3) -> nfs_fh3 {
    let file = peer.put(root, "file", "kept").await;
    peer.ls(root).await;
    assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
    file
}

#[test]
fn a_session_that_one_client_uses_has_one_connection_for_reads() {
    let mut site = Site::start(BASE, &exports("", 1));
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    site.wait(async {
        for _ in 0..3 {
            peer.getattr(&root).await.unwrap();
        }
        use_it(&mut peer, &root).await;
    });
    assert_eq!(open_files(&site, "0.db"), WITHOUT_READS + OF_A_CONNECTION);
    site.stop();
}

#[test]
fn a_session_that_is_only_read_is_not_written() {
    let mut site = Site::start(BASE, &exports(IDLE, 1));
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    site.wait_until_idle();
    let wal = site.path("0.db-wal");
    site.wait(async {
        let deadline = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < deadline {
            assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
            let written = fs::metadata(&wal).map_or(0, |wal| wal.len());
            assert_eq!(written, 0, "something was committed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    site.stop();
}

#[test]
fn of_many_open_sessions_those_that_are_idle_have_no_connection_for_reads() {
    let more = 3;
    let text = exports("idle_close = \"1h\"", MAX_AWAKE + more);
    let mut site = Site::start_lenient(BASE, &text);
    let mut peers: Vec<_> =
        (0..MAX_AWAKE + more).map(|number| site.peer(&format!("/{number}"))).collect();
    let mut files = Vec::new();
    for peer in &mut peers {
        let root = peer.root.clone();
        files.push(site.wait(use_it(peer, &root)));
    }
    assert_eq!(site.open_sessions().len(), MAX_AWAKE + more, "all stay open");
    for number in 0..more {
        wait_for_files(&site, &format!("{number}.db"), WITHOUT_READS + LEFT);
    }
    // Work that is no call opens a connection again, for a moment.
    let layers = site.layers("0.db");
    assert_eq!(site.wait(layers.overlay.pending_copies()).unwrap().files, 0);
    drop(layers);
    wait_for_files(&site, "0.db", WITHOUT_READS + LEFT);
    // The ones that were used last keep theirs, and the others get one again with the next call.
    let last = format!("{}.db", MAX_AWAKE + more - 1);
    assert_eq!(open_files(&site, &last), WITHOUT_READS + OF_A_CONNECTION);
    for (peer, file) in peers.iter_mut().zip(&files).take(more) {
        let root = peer.root.clone();
        site.wait(async {
            assert_eq!(peer.read(file, 0, 100).await, Ok(b"kept".to_vec()));
            peer.put(&root, "another", "new").await;
        });
    }
    assert_eq!(open_files(&site, "0.db"), WITHOUT_READS + OF_A_CONNECTION);
    site.stop();
}
