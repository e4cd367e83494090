//! The exports file changes while clients have mounted.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};

use super::Site;

fn export(path: &str, session: &str) -> String {
    format!(
        "[[export]]\npath = \"{path}\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
         [[export.mount]]\nat = \"/\"\nsession = \"{session}\"\nbase = \"base\"\n"
    )
}

/// An export whose changes are in memory.
fn in_memory(path: &str) -> String {
    format!(
        "[[export]]\npath = \"{path}\"\noptions = [\"insecure\", \"no_root_squash\"]\n\
         [[export.mount]]\nat = \"/\"\nbase = \"base\"\nephemeral = true\n"
    )
}

/// The files in a directory, in order.
fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

/// The export shows its base alone, and what was its root before is no more.
#[track_caller]
fn assert_begins_anew(site: &Site, before: &nfs_fh3) {
    let mut peer = site.peer("/skill");
    let root = peer.root.clone();
    site.wait(async {
        assert_eq!(peer.ls(&root).await, ["references"]);
        let stale = peer.getattr(before).await.err();
        assert_eq!(stale, Some(nfsstat3::NFS3ERR_STALE));
    });
}

#[test]
fn what_stays_goes_on_and_what_goes_is_stale() {
    let both = [export("/a", "a.db"), export("/b", "b.db")].concat();
    let mut site = Site::start("base-file \"x\"", &both);
    let (mut a, mut b) = (site.peer("/a"), site.peer("/b"));
    let (roots, held) = site.wait(async {
        let roots = (a.root.clone(), b.root.clone());
        let held = a.put(&roots.0, "held", "content").await;
        b.put(&roots.1, "file", "content").await;
        (roots, held)
    });
    site.say(&[export("/a", "a.db"), export("/c", "c.db")].concat());
    site.reload().unwrap();
    site.wait(async {
        assert_eq!(a.read(&held, 0, 100).await, Ok(b"content".to_vec()));
        a.put(&roots.0, "more", "content").await;
        assert_eq!(b.getattr(&roots.1).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    });
    assert!(site.mount("/b", 0, 0).is_none());
    site.peer("/c");
    // Its session is closed, and can be served again: then its handles are good again.
    site.say(&both);
    site.reload().unwrap();
    site.wait(async {
        let found = b.lookup(&roots.1, "file").await.unwrap();
        assert_eq!(b.read(&found, 0, 100).await, Ok(b"content".to_vec()));
    });
    site.stop();
    site.run();
    let mut a = site.peer("/a");
    assert_eq!(site.wait(a.read(&held, 0, 100)), Ok(b"content".to_vec()), "over a restart");
    site.stop();
}

#[test]
fn what_shows_a_session_is_told_by_the_file_as_it_is() {
    let more = "[[export.mount]]\nat = \"/b\"\nsession = \"b.db\"\n";
    let both = export("/a", "a.db") + more + &export("/b", "b.db");
    let mut site = Site::start("b/ file \"x\"", &both);
    let (a, b) = (site.path("a.db"), site.path("b.db"));
    let (a, b) = (a.canonicalize().unwrap(), b.canonicalize().unwrap());
    let accounts = site.running.as_ref().unwrap().served.accounts();
    assert_eq!(accounts.paths_of(&a), ["/a"]);
    assert_eq!(accounts.paths_of(&b), ["/a", "/b"]);
    site.say(&export("/c", "a.db"));
    site.reload().unwrap();
    assert_eq!(accounts.paths_of(&a), ["/c"]);
    assert!(accounts.paths_of(&b).is_empty());
    site.stop();
}

#[test]
fn a_bad_file_changes_nothing() {
    let mut site = Site::start("base-file \"x\"", &export("/a", "a.db"));
    let mut a = site.peer("/a");
    let root = a.root.clone();
    let no_base = export("/b", "b.db").replace("\"base\"", "\"nowhere\"");
    for bad in ["[[export]]\n", &[export("/c", "c.db"), no_base].concat(), "nonsense"] {
        site.say(bad);
        let error = site.reload().unwrap_err();
        assert!(!error.is_empty());
        site.wait(async { a.put(&root, "file", "content").await });
        assert!(site.mount("/c", 0, 0).is_none(), "{bad}");
    }
    site.stop();
}

#[test]
fn changes_in_memory_go_with_the_export() {
    let mut site = Site::start("references/one \"text\"", &in_memory("/skill"));
    let mut peer = site.peer("/skill");
    let root = peer.root.clone();
    site.wait(async {
        peer.put(&root, "scratch", "content").await;
        assert_eq!(peer.ls(&root).await, ["references", "scratch"]);
    });
    site.reload().unwrap();
    site.wait(async { assert_eq!(peer.ls(&root).await, ["references", "scratch"]) });
    site.stop();
    site.run();
    assert_begins_anew(&site, &root);
    site.stop();
}

#[test]
fn an_export_of_the_same_name_begins_anew_in_memory() {
    let memory = in_memory("/skill");
    let mut site = Site::start("references/one \"text\"", &memory);
    let mut peer = site.peer("/skill");
    let root = peer.root.clone();
    site.wait(async { peer.put(&root, "scratch", "content").await });
    let served = &site.running.as_ref().unwrap().served;
    let dir = served.sessions()[0].session.parent().unwrap().to_owned();
    let before = names(&dir);
    let no_base = export("/b", "b.db").replace("\"base\"", "\"nowhere\"");
    site.say(&[memory.as_str(), &in_memory("/other"), &no_base].concat());
    site.reload().unwrap_err();
    assert_eq!(names(&dir), before, "what was opened for nothing is gone");
    site.say(&export("/a", "a.db"));
    site.reload().unwrap();
    assert_eq!(names(&dir), ["lock"]);
    site.say(&memory);
    site.reload().unwrap();
    assert_begins_anew(&site, &root);
    site.stop();
}

#[test]
fn no_base_shows_what_the_server_keeps() {
    let other = r#"
        [[export]]
        name = "other"
        token = true
        options = ["insecure"]
          [[export.mount]]
          at = "/"
          session = "base/hidden.db"
    "#;
    let mut site = Site::start("file \"x\"", &[export("/a", "a.db"), other.to_owned()].concat());
    let mut a = site.peer("/a");
    let root = a.root.clone();
    site.wait(async { assert_eq!(a.ls(&root).await, ["file"]) });
    let more = export("/b", "base/later.db");
    site.say(&[export("/a", "a.db"), other.to_owned(), more].concat());
    site.reload().unwrap();
    site.wait(async {
        assert_eq!(a.ls(&root).await, ["file"]);
        for name in ["hidden.db", "hidden.db-wal", "later.db", "later.db-lock"] {
            assert_eq!(a.lookup(&root, name).await.err(), Some(nfsstat3::NFS3ERR_NOENT), "{name}");
        }
    });
    let mut running = site.running.take().unwrap();
    drop(a);
    running.stop.send(()).unwrap();
    site.wait(running.task).unwrap();
    super::close_all(&mut running.served);
    assert!(fs::exists(site.path("base/later.db")).unwrap());
}

#[test]
fn a_session_that_is_open_keeps_its_base_and_what_it_hides() {
    let mut site = Site::start("base-file \"x\"", &export("/a", "a.db"));
    let hiding = |text: &str| text.replace("path =", "hide = [\"base-file\"]\npath =");
    let at_base = |text: &str| text.replace("\nbase = \"base\"", "");
    let (a, b) = (export("/a", "a.db"), export("/b", "a.db"));
    let cases = [
        (hiding(&a), "hide"),
        (at_base(&a) + &hiding(&at_base(&b)), "hide"),
        (a.replace("\"base\"", "\".\""), "base"),
    ];
    for (changed, key) in cases {
        site.say(&changed);
        let error = site.reload().unwrap_err();
        assert!(error.contains(&format!("is open with another `{key}`")), "{error}");
        let mut peer = site.peer("/a");
        let root = peer.root.clone();
        site.wait(async { peer.lookup(&root, "base-file").await.unwrap() });
    }
    site.say(&(at_base(&a) + &b));
    site.reload().unwrap();
    site.stop();
}

#[test]
fn who_changes_a_session_may_come_and_go() {
    let only_read = export("/r", "a.db").replace("[\"insecure\"", "[\"ro\", \"insecure\"");
    let both = export("/w", "a.db") + &only_read;
    let mut site = Site::start("base-file \"x\"", &both);
    let mut reader = site.peer("/r");
    let mut writer = site.peer("/w");
    let (read_root, root) = (reader.root.clone(), writer.root.clone());
    site.wait(async { writer.put(&root, "file", "content").await });
    // Nobody writes any more, and the reader goes on.
    site.say(&only_read);
    site.reload().unwrap();
    site.wait(async { reader.lookup(&read_root, "file").await.unwrap() });
    site.say(&both);
    site.reload().unwrap();
    site.wait(async { writer.put(&root, "more", "content").await });
    site.stop();
    // What was opened to be read alone shares the file with other servers, and stays so.
    site.say(&only_read);
    site.run();
    site.say(&both);
    let error = site.reload().unwrap_err();
    assert!(error.contains("is open with another `options`"), "{error}");
    site.peer("/r");
    site.stop();
}
