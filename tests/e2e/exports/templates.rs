//! Exports that templates make when a client mounts them.

use std::fs;
use std::os::unix::fs::symlink;

use nfs3_client::nfs3_types::nfs3::{createhow3, nfsstat3};

use super::Site;
use crate::e2e::peer::{Peer, mode};

const BASE: &str = "base-file \"from the base\"";

const TEMPLATE: &str = r#"
[[template]]
path = "/chat/{user}/{chat}"
allow = { user = "[a-z0-9-]+", chat = "[a-z0-9-]+" }
options = ["insecure", "no_root_squash"]

  [[template.mount]]
  at = "/"
  session = "chats/{user}/{chat}.db"
  base = "base"

  [[template.mount]]
  at = "/.user"
  session = "users/{user}.db"
  shared = true
"#;

#[test]
fn a_mount_makes_the_export_and_tenants_see_what_they_share_alone() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    assert_eq!(site.open_sessions(), [""; 0]);
    let (mut one, mut two) = (site.peer("/chat/u1/c1"), site.peer("/chat/u1/c2"));
    let mut other = site.peer("/chat/u2/c1");
    assert!(site.path("chats/u1/c1.db").exists() && site.path("users/u1.db").exists());
    site.wait(async {
        let root = one.root.clone();
        one.put(&root, "own", "of c1").await;
        let shared = one.at(".user").await;
        one.put(&shared, "memory", "of u1").await;
        let memory = two.at(".user/memory").await;
        assert_eq!(two.read(&memory, 0, 100).await, Ok(b"of u1".to_vec()));
        let (root, shared) = (two.root.clone(), other.at(".user").await);
        assert!(!two.ls(&root).await.contains(&"own".to_owned()));
        assert_eq!(other.ls(&shared).await, [""; 0]);
        let root = other.root.clone();
        assert!(other.ls(&root).await.contains(&"base-file".to_owned()));
    });
    assert_eq!(site.open_sessions(), ["c1.db", "c1.db", "c2.db", "u1.db", "u2.db"]);
    site.stop();
}

#[test]
fn what_no_template_matches_is_no_export_and_leaves_nothing() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let long = format!("/chat/u1/{}", "c".repeat(300));
    for path in ["/chat/u1", "/chat/U1/c1", "/chat/u1/..", "/chat/u1/c1/x", "/chat/../c1", &long] {
        assert!(site.mount(path, 0, 0).is_none(), "{path}");
    }
    assert!(!site.path("chats").exists());
    assert!(site.running.as_ref().unwrap().served.exports().all().is_empty());
    site.stop();
}

#[test]
fn handles_of_instances_outlive_the_server_and_a_lost_registry() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    let registry = site.path("exports.toml.instances");
    for is_lost in [false, true] {
        site.stop();
        if is_lost {
            for suffix in ["", "-wal", "-shm"] {
                let _gone = fs::remove_file(format!("{}{suffix}", registry.display()));
            }
        }
        site.run();
        assert_eq!(site.open_sessions(), [""; 0], "nothing is opened at the start");
        // Another export carries the connection.
        let mut peer = site.peer("/chat/u2/c9");
        assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"kept".to_vec()), "{is_lost}");
    }
    site.stop();
}

#[test]
fn a_mount_in_memory_is_empty_after_a_restart_and_the_others_stay() {
    let memory = "[[template.mount]]\nat = \"/skills\"\nbase = \"base\"\nephemeral = true\n";
    let mut site = Site::start_lenient(BASE, &format!("{TEMPLATE}{memory}"));
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    let (file, lost) = site.wait(async {
        let file = peer.put(&root, "file", "kept").await;
        let skills = peer.at("skills").await;
        (file, peer.put(&skills, "lost", "in memory").await)
    });
    site.stop();
    site.run();
    let mut peer = site.peer("/chat/u2/c9");
    site.wait(async {
        assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
        let skills = peer.lookup(&root, "skills").await.unwrap();
        assert_eq!(peer.ls(&skills).await, ["base-file"]);
        let stale = peer.read(&lost, 0, 100).await.unwrap_err();
        assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
        // New handles of the mount in memory are good.
        peer.put(&skills, "new", "again").await;
    });
    site.stop();
}

#[test]
fn a_session_that_is_gone_ends_its_instance_and_the_next_mount_begins_another() {
    let mut site = Site::start_lenient(BASE, &format!("idle_close = \"1s\"\n{TEMPLATE}"));
    let (mut peer, mut other) = (site.peer("/chat/u1/c1"), site.peer("/chat/u1/c2"));
    let (root, other_root) = (peer.root.clone(), other.root.clone());
    let file = site.wait(peer.put(&root, "file", "old"));
    site.wait_until_idle();
    fs::remove_file(site.path("chats/u1/c1.db")).unwrap();
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Err(nfsstat3::NFS3ERR_STALE));
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    site.wait(async {
        assert_eq!(peer.ls(&root).await, [".user", "base-file"]);
        let stale = peer.read(&file, 0, 100).await.unwrap_err();
        assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    });
    // Where all sessions are gone, their filesystem may not be mounted.
    site.wait_until_idle();
    fs::rename(site.path("chats"), site.path("away")).unwrap();
    assert_eq!(site.wait(other.getattr(&other_root)).err(), Some(nfsstat3::NFS3ERR_JUKEBOX));
    fs::rename(site.path("away"), site.path("chats")).unwrap();
    site.stop();
}

#[test]
fn a_link_below_the_fixed_directories_is_not_followed() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let outside = site.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(site.path("chats")).unwrap();
    symlink(&outside, site.path("chats/evil")).unwrap();
    assert!(site.mount("/chat/evil/c1", 0, 0).is_none());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::create_dir(site.path("chats/u1")).unwrap();
    symlink(outside.join("c1.db"), site.path("chats/u1/c1.db")).unwrap();
    assert!(site.mount("/chat/u1/c1", 0, 0).is_none());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    site.stop();
}

#[test]
fn without_create_only_sessions_that_exist_are_served() {
    let text = TEMPLATE.replace("options", "create = false\noptions");
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    site.wait(peer.put(&root, "file", "kept"));
    site.say(&text);
    site.reload().unwrap();
    assert!(site.mount("/chat/u1/c2", 0, 0).is_none());
    assert!(!site.path("chats/u1/c2.db").exists());
    let mut peer = site.peer("/chat/u1/c1");
    assert!(site.wait(peer.ls(&root)).contains(&"file".to_owned()));
    site.stop();
}

#[test]
fn a_reload_matches_instances_again() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let (mut kept, mut gone) = (site.peer("/chat/u1/c1"), site.peer("/chat/u-2/c1"));
    let (root, gone_root) = (kept.root.clone(), gone.root.clone());
    let file = site.wait(kept.put(&root, "file", "kept"));
    site.say(&TEMPLATE.replacen("[a-z0-9-]+", "[a-z0-9]+", 1));
    site.reload().unwrap();
    site.wait(async {
        assert_eq!(kept.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
        let stale = gone.getattr(&gone_root).await.unwrap_err();
        assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    });
    assert!(site.mount("/chat/u-2/c1", 0, 0).is_none());
    site.stop();
}

#[test]
fn no_base_shows_the_sessions_of_a_template() {
    let text = TEMPLATE.to_owned()
        + "[[export]]\npath = \"/all\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
           [[export.mount]]\nat = \"/\"\nsession = \"all.db\"\nbase = \".\"\n";
    let mut site = Site::start_lenient(BASE, &text);
    let _chat = site.peer("/chat/u1/c1");
    let mut peer = site.peer("/all");
    let root = peer.root.clone();
    let names = site.wait(peer.ls(&root));
    assert!(names.contains(&"base".to_owned()), "{names:?}");
    for hidden in ["chats", "users", "exports.toml", "exports.toml.instances", "all.db"] {
        assert!(!names.contains(&hidden.to_owned()), "{hidden} in {names:?}");
    }
    site.stop();
}

#[test]
fn a_quota_counts_what_is_the_instances_own() {
    let text = TEMPLATE.replace("options", "quota = { files = 1 }\noptions");
    let mut site = Site::start_lenient(BASE, &text);
    let (mut one, mut two) = (site.peer("/chat/u1/c1"), site.peer("/chat/u1/c2"));
    site.wait(async {
        let how = || createhow3::UNCHECKED(mode(0o644));
        let shared = one.at(".user").await;
        for name in ["a", "b", "c"] {
            one.create(&shared, name, how()).await.unwrap();
        }
        for peer in [&mut one, &mut two] {
            let root = peer.root.clone();
            peer.create(&root, "own", how()).await.unwrap();
            let full = peer.create(&root, "more", how()).await;
            assert_eq!(full, Err(nfsstat3::NFS3ERR_DQUOT));
        }
    });
    site.stop();
}

#[test]
fn many_wrong_tokens_leave_nothing_and_the_right_one_is_not_listed() {
    let text = TEMPLATE.replace("options", "token = \"derived\"\nname = \"chats\"\noptions");
    let mut site = Site::start_lenient(BASE, &text);
    for number in 0..200 {
        let path = format!("/chat/u1/c1/{number:032x}");
        assert!(site.mount(&path, 0, 0).is_none());
    }
    assert!(!site.path("chats").exists());
    let config = acetate::config::read(&site.path("exports.toml"), super::Missing::Leave).unwrap();
    let path = config.templates[0].mounted_path("/chat/u1/c1").unwrap();
    let mut peer = site.peer(&path);
    let root = peer.root.clone();
    site.wait(peer.put(&root, "file", "kept"));
    assert!(site.mount("/chat/u1/c1", 0, 0).is_none());
    let entries = site.running.as_ref().unwrap().served.exports().all();
    assert!(entries.len() == 1 && entries[0].is_secret());
    assert!(!format!("{entries:?}").contains(&path));
    site.stop();
    let named = |line: &String| line.ends_with(" chat/u1/c1");
    let log = site.log("chats/u1/c1.db");
    assert!(log.iter().all(named) && !log.is_empty(), "{log:?}");
}

#[test]
fn an_instance_that_is_mounted_during_a_reload_stays() {
    let mut site = Site::start_lenient(BASE, &format!("idle_close = \"1s\"\n{TEMPLATE}"));
    let address = site.running.as_ref().unwrap().address;
    let mounted: Vec<_> = std::thread::scope(|scope| {
        let mounts = (0..4).map(|lane| {
            scope.spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let path = |number| format!("/chat/u{lane}/c{number}");
                let mount = |number| {
                    // A mount during a reload may be refused: the client repeats it.
                    let mut peers = std::iter::repeat_with(|| {
                        runtime.block_on(Peer::mount(address, &path(number), 0, 0))
                    });
                    peers.by_ref().take(100).flatten().next().expect("it mounts").root.clone()
                };
                (0..12).map(mount).collect::<Vec<_>>()
            })
        });
        let mounts: Vec<_> = mounts.collect();
        while !mounts.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            site.reload().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        mounts.into_iter().flat_map(|mounts| mounts.join().unwrap()).collect()
    });
    let mut peer = site.peer("/chat/u0/c0");
    for root in &mounted {
        assert!(site.wait(peer.getattr(root)).is_ok(), "its handle is stale");
    }
    site.wait_until_idle();
    site.stop();
    let left = |user: usize| fs::read_dir(site.path(&format!("chats/u{user}"))).unwrap().flatten();
    let names = (0..4).flat_map(left).map(|entry| entry.file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| !name.ends_with(".db")).collect();
    assert_eq!(left, [""; 0], "they were closed cleanly");
}

#[test]
fn one_session_that_is_none_loses_no_other_when_the_registry_is_made_again() {
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    let file = site.wait(peer.put(&root, "file", "kept"));
    site.stop();
    fs::remove_file(site.path("exports.toml.instances")).unwrap();
    fs::write(site.path("chats/u1/c0.db"), "no session").unwrap();
    site.run();
    let mut peer = site.peer("/chat/u2/c9");
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"kept".to_vec()));
    fs::remove_file(site.path("chats/u1/c0.db")).unwrap();
    site.stop();
}

#[test]
fn mounts_written_in_another_order_are_the_same_and_memory_outlives_a_reload_alone() {
    let memory = "[[template.mount]]\nat = \"/tmp\"\nephemeral = true\n";
    let head = format!("idle_close = \"1s\"\n{TEMPLATE}{memory}");
    let mut site = Site::start_lenient(BASE, &head);
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    let (file, secret) = site.wait(async {
        let file = peer.put(&root, "file", "kept").await;
        let memory = peer.at("tmp").await;
        (file, peer.put(&memory, "secret", "of this instance").await)
    });
    site.wait_until_idle();
    // The mount in memory first, and the shared one last.
    let (before, mounts) = head
        .split_once("[[template.mount]]\nat = \"/\"")
        .unwrap_or_else(|| head.split_once("  [[template.mount]]\n  at = \"/\"").unwrap());
    let turned = format!("{before}{memory}[[template.mount]]\nat = \"/\"{mounts}");
    let turned = turned.strip_suffix(memory).unwrap();
    site.say(turned);
    site.reload().unwrap();
    site.wait(async {
        assert_eq!(peer.read(&secret, 0, 100).await, Ok(b"of this instance".to_vec()));
        assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
    });
    site.wait_until_idle();
    fs::remove_file(site.path("chats/u1/c1.db")).unwrap();
    let mut peer = site.peer("/chat/u1/c1");
    site.wait(async {
        let memory = peer.at("tmp").await;
        assert_eq!(peer.ls(&memory).await, [""; 0], "another instance has it");
    });
    site.stop();
}

#[test]
fn mounts_succeed_while_the_file_is_read_again_and_again() {
    const MOUNTS: usize = 60;
    let mut site = Site::start_lenient(BASE, TEMPLATE);
    let address = site.running.as_ref().unwrap().address;
    let mounting = site.runtime.spawn(async move {
        let mut failed = Vec::new();
        for number in 0..MOUNTS {
            let path = format!("/chat/u{}/c{number}", number % 7);
            if Peer::mount(address, &path, 0, 0).await.is_none() {
                failed.push(path);
            }
        }
        failed
    });
    while !mounting.is_finished() {
        site.reload().unwrap();
    }
    assert_eq!(site.wait(mounting).unwrap(), [""; 0]);
    site.stop();
}
