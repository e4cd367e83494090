//! Instances of templates that nothing uses are removed, and nothing else.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use acetate::delta::sqlite::{
    InstanceRegistry, OpenMode, RemovalStart, RemovedSessions, Session, delete_renamed,
    keep_instance, rename_away,
};
use acetate::inspect::opened::host;
use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};

use super::Site;

const BASE: &str = "base-file \"from the base\"";

/// An instance has a session of its own and a shared one. Its `expire` is `{EXPIRE}`.
const TEMPLATE: &str = r#"
idle_close = "1s"

[[template]]
path = "/chat/{user}/{chat}"
allow = { user = "[a-z0-9-]+", chat = "[a-z0-9-]+" }
expire = "{EXPIRE}"
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

const OWN: &str = "chats/u1/c1.db";

fn template(expire: &str) -> String {
    TEMPLATE.replace("{EXPIRE}", expire)
}

/// Mounts `/chat/u1/c1`, writes a file in each session, and disconnects; returns the root and the
/// first file.
fn used(site: &Site) -> (nfs_fh3, nfs_fh3) {
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    let file = site.wait(async {
        let shared = peer.at(".user").await;
        peer.put(&shared, "memory", "of u1").await;
        peer.put(&root, "file", "of c1").await
    });
    (root, file)
}

/// Waits until a file is gone.
fn wait_until_gone(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while file.exists() {
        assert!(Instant::now() < deadline, "{} is still there", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until no file is left beside the session, or of it.
fn wait_until_empty(dir: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left: Vec<_> = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name()).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The time in which what expires after 2 s would be gone.
fn wait_in_vain(site: &Site) {
    site.wait_until_idle();
    std::thread::sleep(Duration::from_secs(5));
}

fn set_changed(file: &Path, at: SystemTime) {
    File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
}

/// Changes the registry of a server that does not run.
fn with_registry(site: &Site, sql: &str) {
    let conn = rusqlite::Connection::open(site.path("exports.toml.instances")).unwrap();
    conn.execute_batch(sql).unwrap();
}

fn used_ms(site: &Site) -> i64 {
    let conn = rusqlite::Connection::open(site.path("exports.toml.instances")).unwrap();
    let sql = "SELECT used FROM instance WHERE path = '/chat/u1/c1'";
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn an_instance_that_nothing_uses_is_removed_and_the_next_mount_makes_another() {
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let (root, file) = used(&site);
    fs::create_dir(site.path("chats/u1/c1.db-undo")).unwrap();
    fs::write(site.path("chats/u1/c1.db.log"), "of a server").unwrap();
    wait_until_empty(&site.path("chats/u1"));
    assert!(site.running.as_ref().unwrap().served.exports().all().is_empty());
    // What is shared stays.
    assert!(site.path("users/u1.db").exists());
    let mut peer = site.peer("/chat/u1/c1");
    let new_root = peer.root.clone();
    site.wait(async {
        for gone in [&root, &file] {
            let stale = peer.getattr(gone).await.unwrap_err();
            assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
        }
        assert_eq!(peer.ls(&new_root).await, [".user", "base-file"]);
        let memory = peer.at(".user/memory").await;
        assert_eq!(peer.read(&memory, 0, 100).await, Ok(b"of u1".to_vec()));
    });
    site.stop();
    let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
    assert_eq!(
        (registry.all().unwrap().len(), registry.pending_deletions().unwrap()),
        (1, Vec::new())
    );
}

#[test]
fn without_expire_everything_stays() {
    let mut site = Site::start_lenient(BASE, &template("2s").replace("expire = \"2s\"\n", ""));
    let (root, _) = used(&site);
    wait_in_vain(&site);
    let mut peer = site.peer("/chat/u1/c1");
    assert!(site.wait(peer.getattr(&root)).is_ok());
    site.stop();
}

#[test]
fn an_instance_stays_while_it_is_kept() {
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let (root, _) = used(&site);
    let registry = site.path("exports.toml.instances");
    assert_eq!(keep_instance(&registry, "/chat/u1/c1", true).unwrap(), Some(false));
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    let mut peer = site.peer("/chat/u1/c1");
    assert!(site.wait(peer.getattr(&root)).is_ok());
    drop(peer);
    // After a restart too.
    site.stop();
    site.run();
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    assert_eq!(keep_instance(&registry, "/chat/u1/c1", false).unwrap(), Some(true));
    wait_until_gone(&site.path(OWN));
    site.stop();
}

#[test]
fn an_instance_stays_while_a_client_that_used_it_is_connected() {
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let mut peer = site.peer("/chat/u1/c1");
    let root = peer.root.clone();
    site.wait(peer.put(&root, "file", "kept"));
    wait_in_vain(&site);
    assert_eq!(site.open_sessions(), [""; 0]);
    assert!(site.path(OWN).exists());
    // Also over a reload, which makes the table again.
    site.reload().unwrap();
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    assert!(site.wait(peer.getattr(&root)).is_ok());
    // Unmounted, with a connection that stays open.
    let again = site.peer("/chat/u1/c1");
    site.wait(again.nfs.unmount()).unwrap();
    wait_until_gone(&site.path(OWN));
    site.stop();
}

#[test]
fn a_session_that_another_export_has_stays() {
    let other = "[[export]]\npath = \"/all\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
                 [[export.mount]]\nat = \"/\"\nsession = \"chats/u1/c1.db\"\nbase = \"base\"\n";
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let _instance = used(&site);
    site.say(&(template("2s") + other));
    site.reload().unwrap();
    let (root, file) = {
        let mut peer = site.peer("/all");
        let root = peer.root.clone();
        let file = site.wait(peer.lookup(&root, "file")).unwrap();
        (root, file)
    };
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    let mut peer = site.peer("/all");
    assert!(site.wait(peer.getattr(&root)).is_ok());
    assert_eq!(site.wait(peer.read(&file, 0, 100)), Ok(b"of c1".to_vec()));
    site.stop();
}

#[test]
fn a_session_that_a_command_has_stays_until_it_ends() {
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let _instance = used(&site);
    site.wait_until_idle();
    let held = Session::open(&site.path(OWN), OpenMode::Serve, &host().unwrap()).unwrap();
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    drop(held);
    wait_until_gone(&site.path(OWN));
    site.stop();
}

#[test]
fn a_session_that_was_changed_in_the_future_stays_until_the_clock_is_right() {
    let mut site = Site::start_lenient(BASE, &template("2s"));
    let _instance = used(&site);
    // Set back: the session was changed in the future.
    site.wait_until_idle();
    let hour = Duration::from_secs(3600);
    set_changed(&site.path(OWN), SystemTime::now() + hour);
    wait_in_vain(&site);
    assert!(site.path(OWN).exists());
    // Set far forward: it was changed long ago.
    set_changed(&site.path(OWN), SystemTime::UNIX_EPOCH + hour);
    wait_until_gone(&site.path(OWN));
    site.stop();
}

#[test]
fn a_session_that_is_changed_while_it_is_closed_stays() {
    let mut site = Site::start_lenient(BASE, &template("5s"));
    let _instance = used(&site);
    site.wait_until_idle();
    let (begin, mut last, mut is_late) = (Instant::now(), Instant::now(), false);
    while begin.elapsed() < Duration::from_secs(9) {
        if !site.path(OWN).exists() {
            assert!(is_late, "it was changed a moment ago");
            break;
        }
        set_changed(&site.path(OWN), SystemTime::now());
        // On a machine that stood still, it may have expired in between.
        is_late |= last.elapsed() > Duration::from_secs(3);
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until_gone(&site.path(OWN));
    site.stop();
}

#[test]
fn instances_that_are_kept_do_not_hold_up_the_others() {
    // More than are checked at once, all used before the one that expires.
    const KEPT: usize = 80;
    let mut site = Site::start_lenient(BASE, &template("2s"));
    site.stop();
    let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
    fs::create_dir_all(site.path("chats/kept")).unwrap();
    for index in 0..KEPT {
        registry.record(&format!("/chat/kept/c{index}"), &[([1; 16], 1), ([2; 16], 2)]).unwrap();
        let session = site.path(&format!("chats/kept/c{index}.db"));
        fs::write(&session, "").unwrap();
        set_changed(&session, SystemTime::UNIX_EPOCH);
    }
    drop(registry);
    with_registry(&site, "UPDATE instance SET used = 0, kept = 1; UPDATE clock SET ms = 9999999;");
    site.run();
    let _instance = used(&site);
    wait_until_gone(&site.path(OWN));
    assert_eq!(fs::read_dir(site.path("chats/kept")).unwrap().count(), KEPT);
    site.stop();
}

/// A command may change a session before the server that began to remove it starts again.
#[test]
fn a_session_that_was_changed_since_its_removal_began_stays() {
    for is_changed in [true, false] {
        let mut site = Site::start_lenient(BASE, &template("1h"));
        let _instance = used(&site);
        site.stop();
        let sessions = [site.path(OWN)];
        let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
        // Its time, in seconds, and a number.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let tag = format!("{:010x}{:016x}", now - 100, 1);
        let removed = RemovedSessions { tag: &tag, sessions: &sessions };
        registry.begin_removal("/chat/u1/c1", u64::MAX, removed).unwrap();
        drop(registry);
        let seconds_ago = if is_changed { 50 } else { 150 };
        let changed = SystemTime::now() - Duration::from_secs(seconds_ago);
        for entry in fs::read_dir(site.path("chats/u1")).unwrap() {
            set_changed(&entry.unwrap().path(), changed);
        }
        site.run();
        let mut peer = site.peer("/chat/u1/c1");
        let root = peer.root.clone();
        let shown = site.wait(peer.ls(&root));
        assert_eq!(shown.contains(&"file".to_owned()), is_changed, "{shown:?}");
        drop(peer);
        site.stop();
        let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
        let pending = registry.pending_deletions().unwrap();
        assert_eq!(pending.iter().filter(|it| !it.is_renamed).count(), 0, "{pending:?}");
    }
}

#[test]
fn a_use_is_recorded_before_the_call_is_answered() {
    let mut site = Site::start_lenient(BASE, &template("1h"));
    let (root, _) = used(&site);
    site.stop();
    with_registry(&site, "UPDATE clock SET ms = 7200000; UPDATE instance SET used = 1;");
    site.run();
    let mut peer = site.peer("/chat/u2/c9");
    assert_eq!(used_ms(&site), 1);
    site.wait(peer.getattr(&root)).unwrap();
    assert!(used_ms(&site) >= 7_200_000, "a kill now would make it look two hours old");
    drop(peer);
    // The clock goes on after the stop, and only as long as a server runs.
    site.stop();
    let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
    assert!((7_200_000..7_800_000).contains(&registry.now_ms()), "{}", registry.now_ms());
}

#[test]
fn a_removal_that_a_kill_ended_is_finished_and_blocks_no_creation() {
    for point in 0..5 {
        let mut site = Site::start_lenient(BASE, &template("1h"));
        let (root, _) = used(&site);
        site.stop();
        let own = site.path(OWN);
        fs::write(site.path("chats/u1/c1.db.log"), "of a server").unwrap();
        let (registry, _) = InstanceRegistry::open(&site.path("exports.toml.instances")).unwrap();
        let sessions = [own.clone()];
        let removed = RemovedSessions { tag: "t", sessions: &sessions };
        let begun = registry.begin_removal("/chat/u1/c1", u64::MAX, removed).unwrap();
        assert!(matches!(begun, RemovalStart::Begun(_)), "{begun:?}");
        let pending = registry.pending_deletions().unwrap();
        let log = site.path("chats/u1/c1.db.log");
        match point {
            0 => {}
            // Half of the files.
            1 => fs::remove_file(&log).unwrap(),
            _ => rename_away(&pending[0]).unwrap(),
        }
        if point >= 3 {
            registry.renamed(&pending).unwrap();
        }
        if point == 4 {
            delete_renamed(&pending[0]).unwrap();
        }
        drop(registry);
        site.run();
        let mut peer = site.peer("/chat/u1/c1");
        let new_root = peer.root.clone();
        site.wait(async {
            assert_eq!(peer.ls(&new_root).await, [".user", "base-file"], "{point}");
            let stale = peer.getattr(&root).await.unwrap_err();
            assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
            peer.put(&new_root, "new", "kept").await;
        });
        let left = || {
            let conn = rusqlite::Connection::open(site.path("exports.toml.instances")).unwrap();
            conn.query_row("SELECT count(*) FROM going", [], |row| row.get::<_, i64>(0)).unwrap()
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while left() > 0 {
            assert!(Instant::now() < deadline, "{point}: the removal does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(peer);
        site.wait_until_idle();
        let names = fs::read_dir(site.path("chats/u1")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["c1.db"], "{point}");
        let mut peer = site.peer("/chat/u1/c1");
        assert!(site.wait(peer.ls(&new_root)).contains(&"new".to_owned()), "{point}");
        site.stop();
    }
}

#[test]
fn changes_in_memory_are_gone_some_time_after_the_last_call() {
    let text = "idle_close = \"1s\"\nephemeral_expire = \"2s\"\n[[export]]\npath = \"/0\"\n\
                options = [\"insecure\", \"no_root_squash\"]\n\
                [[export.mount]]\nat = \"/\"\nsession = \"0.db\"\nbase = \"base\"\n\
                [[export.mount]]\nat = \"/tmp\"\nephemeral = true\n";
    let mut site = Site::start_lenient(BASE, text);
    let mut peer = site.peer("/0");
    let root = peer.root.clone();
    let (file, dir, lost) = site.wait(async {
        let memory = peer.at("tmp").await;
        let lost = peer.put(&memory, "lost", "in memory").await;
        (peer.put(&root, "file", "kept").await, memory, lost)
    });
    // Longer than `idle_close`, with calls.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(site.wait(peer.read(&lost, 0, 100)), Ok(b"in memory".to_vec()));
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_in_vain(&site);
    site.wait(async {
        // The first call, which finds the export closed.
        let stale = peer.getattr(&dir).await.unwrap_err();
        assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
        assert_eq!(peer.read(&file, 0, 100).await, Ok(b"kept".to_vec()));
        let memory = peer.at("tmp").await;
        assert_eq!(peer.ls(&memory).await, [""; 0]);
        peer.put(&memory, "new", "again").await;
        let stale = peer.read(&lost, 0, 100).await.unwrap_err();
        assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    });
    site.stop();
}
