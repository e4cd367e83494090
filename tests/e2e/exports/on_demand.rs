//! Exports that are closed when they are idle, and opened by the call that needs them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use acetate::delta::sqlite::{OpenMode, Session};
use acetate::inspect::opened::host;
use acetate::workspace::exports::OPEN_AT_START;
use nfs3_client::nfs3_types::nfs3::{COMMIT3args, createhow3, nfs_fh3, nfsstat3, stable_how};

use super::Site;
use crate::e2e::peer::{Peer, mode, plain};
use crate::support::check::assert_consistent;

pub(super) const BASE: &str = "base-file \"from the base\"";

/// The exports `/0`, `/1` and so on, each of a session of its own.
pub(super) fn exports(head: &str, count: usize) -> String {
    let mut text = format!("{head}\n");
    for number in 0..count {
        writeln!(
            text,
            "[[export]]\npath = \"/{number}\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
             [[export.mount]]\nat = \"/\"\nsession = \"{number}.db\"\nbase = \"base\""
        )
        .unwrap();
    }
    text
}

pub(super) const IDLE: &str = "idle_close = \"1s\"";

/// The verifier of a COMMIT.
async fn commit(peer: &mut Peer, file: &nfs_fh3) -> [u8; 8] {
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    plain(peer.nfs.commit(&args).await.unwrap()).unwrap().verf.0
}

/// The answer that is not a request to come again later.
async fn settled(peer: &mut Peer, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match peer.read(file, 0, 100).await {
            Err(nfsstat3::NFS3ERR_JUKEBOX) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer => return answer,
        }
    }
}

fn open_to_serve(session: &Path) -> Session {
    Session::open(session, OpenMode::Serve, &host().unwrap()).unwrap()
}

#[test]
fn a_session_that_is_only_read_stays_the_same_to_the_byte() {
    let mut site = Site::start(BASE, &exports(IDLE, 1));
    let before = fs::read(site.path("0.db")).unwrap();
    for _ in 0..2 {
        let mut peer = site.peer("/0");
        let root = peer.root.clone();
        assert_eq!(site.wait(peer.ls(&root)), ["base-file"]);
        site.wait_until_idle();
        assert!(before == fs::read(site.path("0.db")).unwrap());
    }
    site.stop();
}

#[test]
fn an_idle_export_is_closed_cleanly_and_opened_by_the_next_call() {
    let mut site = Site::start(BASE, &exports(IDLE, 1));
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    let (file, before) = site.wait(async {
        let file = peer.put(&root, "file", "kept").await;
        let before = commit(&mut peer, &file).await;
        (file, before)
    });
    site.wait_until_idle();
    assert_consistent(&site.path("0.db"));
    // Nothing holds it: another program can have it.
    drop(open_to_serve(&site.path("0.db")));
    assert!(!site.path("0.db-wal").exists(), "it was closed cleanly");
    site.wait(async {
        assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
        assert_eq!(commit(&mut peer, &file).await, before, "nothing was lost");
        assert_eq!(peer.getattr(&root).await.unwrap().nlink, 2);
    });
    assert_eq!(site.open_sessions(), ["0.db"]);
    site.stop();
}

#[test]
fn no_more_sessions_are_open_than_may_be() {
    let mut site = Site::start_lenient(BASE, &exports("max_open = 3", 10));
    assert!(site.open_sessions().len() <= 3);
    let mut peers: Vec<_> = (0..10).map(|n| site.peer(&format!("/{n}"))).collect();
    let mut files = Vec::new();
    for round in 0..3 {
        for peer in &mut peers {
            let root = peer.root.clone();
            let name = format!("{round}");
            files.push(site.wait(peer.put(&root, &name, &name)));
            assert!(site.open_sessions().len() <= 3, "{:?}", site.open_sessions());
        }
    }
    for (index, file) in files.iter().enumerate() {
        let content = site.wait(peers[index % 10].read(file, 0, 100));
        assert_eq!(content, Ok((index / 10).to_string().into_bytes()));
    }
    site.stop();
}

#[test]
fn the_first_exports_are_opened_at_the_start_and_the_others_when_they_are_needed() {
    let count = OPEN_AT_START + 2;
    let mut site = Site::start_lenient(BASE, &exports("", count));
    let last = format!("{}.db", count - 1);
    assert_eq!(site.open_sessions().len(), OPEN_AT_START);
    assert!(!site.path(&last).exists(), "a mount creates it");
    let path = format!("/{}", count - 1);
    let mut peer = site.peer(&path);
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    assert_eq!(site.open_sessions().len(), OPEN_AT_START + 1);
    site.stop();

    site.run();
    assert!(!site.open_sessions().contains(&last));
    let mut peer = site.peer("/0");
    // The handle is known, though the session was never open in this run.
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"kept".to_vec()));
    assert!(site.open_sessions().contains(&last));
    site.stop();
}

#[test]
fn a_session_that_a_command_has_is_asked_for_again_later() {
    let mut site = Site::start(BASE, &exports(IDLE, 2));
    let (mut peer, mut other) = (site.peer("/0"), site.peer("/1"));
    let (root, other_root) = (peer.root.clone(), other.root.clone());
    let file = site.wait(peer.put(&root, "file", "kept"));
    site.wait_until_idle();
    let held = open_to_serve(&site.path("0.db"));
    site.wait(async {
        assert_eq!(peer.read(&file, 0, 100).await, Err(nfsstat3::NFS3ERR_JUKEBOX));
        other.put(&other_root, "file", "of another session").await;
    });
    assert!(site.mount("/0", 0, 0).is_none(), "MOUNT knows no later");
    drop(held);
    assert_eq!(site.wait(settled(&mut peer, &file)), Ok(b"kept".to_vec()));
    site.stop();
}

#[test]
fn a_call_creates_no_session_and_a_replaced_one_is_not_taken_for_the_old() {
    let mut site = Site::start(BASE, &exports(IDLE, 1));
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    site.wait_until_idle();
    let (session, away) = (site.path("0.db"), site.path("away"));
    fs::rename(&session, &away).unwrap();
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Err(nfsstat3::NFS3ERR_JUKEBOX));
    assert!(site.mount("/0", 0, 0).is_none(), "its handles are of another session");
    assert!(!session.exists(), "nothing was created");
    drop(Session::create(&session, &Default::default(), &host().unwrap()).unwrap());
    assert!(site.mount("/0", 0, 0).is_none());
    assert_eq!(site.open_sessions(), [""; 0]);
    // The owner says that it is the right one.
    site.reload().unwrap();
    let mut peer = site.peer("/0");
    let stale = site.wait(peer.read(&file, 0, 100)).unwrap_err();
    assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    site.stop();
}

#[test]
fn a_closed_export_stays_what_it_is_over_a_reload() {
    let mut site = Site::start_lenient(BASE, &exports(IDLE, 2));
    let (mut peer, mut gone) = (site.peer("/0"), site.peer("/1"));
    let (root, gone_root) = (peer.root.clone(), gone.root.clone());
    let file = site.wait(peer.put(&root, "file", "kept"));
    site.wait_until_idle();
    site.say(&exports(IDLE, 1));
    site.reload().unwrap();
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"kept".to_vec()));
    let stale = site.wait(gone.getattr(&gone_root)).unwrap_err();
    assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    site.stop();
}

#[test]
fn exports_that_share_a_session_close_it_with_the_last_of_them() {
    let shared = exports(IDLE, 2).replace("1.db", "0.db");
    let mut site = Site::start(BASE, &shared);
    let (mut one, mut two) = (site.peer("/0"), site.peer("/1"));
    let (root, other_root) = (one.root.clone(), two.root.clone());
    let file = site.wait(one.put(&root, "file", "kept"));
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        site.wait(two.getattr(&other_root)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(site.open_sessions(), ["0.db"], "the other one uses it");
    }
    site.wait_until_idle();
    assert_eq!(site.wait(one.read(&file, 0, 100)), Ok(b"kept".to_vec()));
    site.stop();
}

#[test]
fn an_export_with_a_draft_stays_open() {
    let guard = "[[export.guard]]\npath = \"*.json\"\njson = true\n";
    let mut site = Site::start(BASE, &(exports(IDLE, 1) + guard));
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    let file = site.wait(async {
        let how = createhow3::UNCHECKED(mode(0o644));
        let file = peer.create(&root, "a.json", how).await.unwrap();
        peer.write(&file, 0, b"{\"half\":", stable_how::UNSTABLE).await.unwrap();
        file
    });
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(site.open_sessions(), ["0.db"]);
    site.wait(async {
        peer.write(&file, 8, b" true}", stable_how::UNSTABLE).await.unwrap();
        commit(&mut peer, &file).await;
    });
    site.wait_until_idle();
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"{\"half\": true}".to_vec()));
    site.stop();
}

#[test]
fn calls_that_come_while_an_export_is_closed_and_opened_are_all_answered() {
    let mut site = Site::start(BASE, &exports("max_open = 1", 2));
    let mut peers = [site.peer("/0"), site.peer("/1")];
    let roots = peers.each_ref().map(|peer| peer.root.clone());
    let [one, two] = &mut peers;
    site.wait(async {
        let work = async |peer: &mut Peer, root: &nfs_fh3| {
            let (mut made, mut later) = (0, 0);
            while made < 40 {
                let how = createhow3::UNCHECKED(mode(0o644));
                match peer.create(root, &format!("file-{made}"), how).await {
                    Ok(_) => made += 1,
                    Err(nfsstat3::NFS3ERR_JUKEBOX) => later += 1,
                    Err(status) => panic!("{status:?}"),
                }
                assert!(later < 10_000, "never open");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::join!(work(one, &roots[0]), work(two, &roots[1]));
        for (peer, root) in [(one, &roots[0]), (two, &roots[1])] {
            let mut names = peer.ls(root).await;
            names.retain(|name| name.starts_with("file-"));
            assert_eq!(names.len(), 40);
        }
    });
    site.stop();
}
