//! `serve --config` where one export cannot be opened: the others are served.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nfs3_client::nfs3_types::nfs3::nfsstat3;
use tempfile::{TempDir, tempdir};

use super::program::{Serving, failure, run};
use super::serve::mount_call;
use crate::e2e::peer::Peer;

/// `MNT3ERR_SERVERFAULT` (RFC 1813 appendix I).
const SERVER_FAULT: u32 = 10006;

fn exports() -> TempDir {
    let dir = tempdir().unwrap();
    let export = |name: &str, base: &str| {
        fs::create_dir(dir.path().join(base)).unwrap();
        format!(
            "[[export]]\npath = \"/{name}\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
             [[export.mount]]\nat = \"/\"\nsession = \"{name}.db\"\nbase = \"{base}\"\n"
        )
    };
    let both = export("a", "one") + &export("b", "two");
    fs::write(dir.path().join("exports.toml"), both).unwrap();
    dir
}

fn serve(dir: &Path) -> Serving {
    Serving::start(dir, 1, &["--config", "exports.toml"])
}

fn stop(server: Serving) {
    server.signal("TERM");
    assert!(server.end().0.success());
}

/// What MNT of `path`, of two bytes, answers.
fn mount_status(server: &Serving, path: &[u8; 2]) -> u32 {
    let args = [&2_u32.to_be_bytes()[..], path, &[0, 0]].concat();
    let reply = mount_call(server.addresses[0], 1, &args);
    u32::from_be_bytes(reply[20..24].try_into().unwrap())
}

#[test]
fn one_that_cannot_be_opened_leaves_the_others_served_and_is_tried_again() {
    let dir = exports();
    let dir = dir.path();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let peer_of = |server: &Serving, path: &str| {
        runtime.block_on(Peer::mount(server.addresses[0], path, 0, 0)).unwrap()
    };
    let server = serve(dir);
    let handle = peer_of(&server, "/b").root;
    stop(server);
    fs::rename(dir.join("two"), dir.join("away")).unwrap();
    let mut server = serve(dir);
    let told = server.said.iter().find(|line| line.starts_with("export b: ")).unwrap();
    assert!(told.starts_with("export b: not served, and tried again: base "), "{told}");
    let mut hints = server.said.iter().filter(|line| line.starts_with("hint: "));
    assert!(hints.any(|line| line.contains("`base` of the mount")), "{:?}", server.said);
    assert!(!server.said.iter().any(|line| line.contains("--base")), "{:?}", server.said);
    assert_eq!(server.said[0], "serving 1 export of exports.toml");
    let mut peer = peer_of(&server, "/a");
    assert_eq!((mount_status(&server, b"/a"), mount_status(&server, b"/b")), (0, SERVER_FAULT));
    assert_ne!(mount_status(&server, b"/c"), SERVER_FAULT);
    let later = runtime.block_on(peer.getattr(&handle)).map(drop);
    assert_eq!(later, Err(nfsstat3::NFS3ERR_JUKEBOX));
    fs::rename(dir.join("away"), dir.join("two")).unwrap();
    assert_eq!(server.line(), "export b: now served");
    assert_eq!(mount_status(&server, b"/b"), 0);
    runtime.block_on(peer.getattr(&handle)).unwrap();
    // What clients have goes on.
    let root = peer.root.clone();
    runtime.block_on(peer.getattr(&root)).unwrap();
    stop(server);
}

#[test]
fn a_corrupt_session_and_one_in_use_are_such() {
    let dir = exports();
    let dir = dir.path();
    fs::write(dir.join("b.db"), "no session ".repeat(100)).unwrap();
    let server = serve(dir);
    assert_eq!((mount_status(&server, b"/a"), mount_status(&server, b"/b")), (0, SERVER_FAULT));
    stop(server);
    fs::remove_file(dir.join("b.db")).unwrap();
    assert!(run(dir, &["init", "b.db", "--base", "two"]).status.success());
    let other = Serving::start(dir, 1, &["b.db"]);
    let mut server = serve(dir);
    assert_eq!(mount_status(&server, b"/b"), SERVER_FAULT);
    stop(other);
    assert_eq!(server.line(), "export b: now served");
    stop(server);
}

#[test]
fn strict_ends_instead_and_so_does_a_file_of_which_nothing_can_be_served() {
    let dir = exports();
    let dir = dir.path();
    fs::remove_dir(dir.join("two")).unwrap();
    let free = ["serve", "--config", "exports.toml", "--listen", "127.0.0.1:0"];
    let began = Instant::now();
    let said = failure(dir, &[&free[..], &["--strict"]].concat());
    assert!(said.contains("/two: "), "{said}");
    let hint = said.lines().find(|line| line.starts_with("hint: ")).unwrap();
    assert!(hint.contains("the key `base` of the mount") && !hint.contains("--base"), "{said}");
    fs::remove_dir(dir.join("one")).unwrap();
    failure(dir, &free);
    assert!(began.elapsed() < Duration::from_secs(20));
}
