//! What fails changes nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Site, export};
use crate::cli::program::{Serving, acetate};
use crate::support::skip::skip;

/// Nothing was changed, and the server goes on.
#[track_caller]
fn assert_as_before(site: &Site) {
    assert_eq!((site.names(), site.added_files()), (vec!["a".to_owned()], Vec::new()));
    site.peer("/a");
}

#[test]
fn a_bad_export_is_refused_before_it_is_written() {
    let site = Site::start();
    let (good, base) = (export("path = \"/b\"", "b.db", ""), "base = \"base\"");
    for (toml, words) in [
        ("nonsense".to_owned(), "error: new.toml:1:9: "),
        ("[[export]]\npath = \"/b\"\n".to_owned(), "error: new.toml:1:1: this export has no mount"),
        (String::new(), "there is no [[export]]"),
        (good.clone() + &export("path = \"/c\"", "c.db", ""), "more than one export"),
        (format!("max_open = 7\n{good}"), "max_open is for the exports file"),
        (good.replace("[[export", "[[template"), "[[template]] is for the exports file"),
        (export("path = \"/b\"\nname = \"c\"", "b.db", ""), "is that of the export b"),
        (export("path = \"/a\"", "b.db", ""), "is that of the export in exports.toml, line 1"),
        (export("path = \"/b\"", "a.db", "base = \"b2\""), "different `base` in exports.toml"),
        (export("path = \"/b\"", "b.db", "base = \"none\""), "error: new.toml:4:1: base "),
        (export("path = \"/b\"", "no/b.db", ""), "no does not exist"),
        (export("path = \"/b\"", "base/file", base), "base/file"),
        (export("path = \"/b\"", "b.db", "base = \"exports.d\""), "is in exports.d"),
        (format!("# {}\n{good}", "x".repeat(256 << 10)), "at most 256 KiB"),
    ] {
        let output = site.add_text("b", &toml);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{toml}\n{said}");
        assert!(said.contains(words), "{words} is not said: {said}");
        assert!(!site.path("b.db").exists(), "{toml}");
    }
    assert_as_before(&site);
    // The name of an export of the exports file, and names that are no file names.
    let said = String::from_utf8(site.add_text("a", &good).stderr).unwrap();
    assert!(said.contains("the name a is that of the export in exports.toml, line 1"), "{said}");
    for name in ["", ".", "..", ".b", "../b", "a/b", "b\n", "é", &"x".repeat(65)] {
        let said = String::from_utf8(site.add_text(name, &good).stderr).unwrap();
        assert!(said.contains("a name has 1 to 64"), "{name}: {said}");
        assert!(site.fails("rm", &[name]).contains("a name has 1 to 64"), "{name}");
    }
    assert_as_before(&site);
}

#[test]
fn what_the_server_refuses_is_taken_back() {
    let mut site = Site::start();
    // The session is open, and what it hides is fixed.
    let hides = export("path = \"/b\"\nhide = [\"x\"]", "a.db", "base = \"base\"");
    let said = String::from_utf8(site.add_text("b", &hides).stderr).unwrap();
    assert!(said.starts_with("error: the server refused it, and nothing is changed: "), "{said}");
    assert!(said.contains("open with another `hide`"), "{said}");
    assert_as_before(&site);
    // Another server has the session.
    let other = Serving::start(site.dir.path(), 1, &["b.db"]);
    let said = site.fails("add", &["b", "--session", "b.db"]);
    assert!(said.contains("the server refused it, and nothing is changed: "), "{said}");
    drop(other);
    assert_as_before(&site);
    // An export that is replaced stays as it was.
    site.add("c");
    let before = fs::read_to_string(site.path("exports.d/c.toml")).unwrap();
    fs::write(site.path("new.toml"), hides.replace("/b", "/c")).unwrap();
    site.fails("add", &["c", "--from", "new.toml", "--replace"]);
    assert_eq!(fs::read_to_string(site.path("exports.d/c.toml")).unwrap(), before);
    site.peer("/c");
    site.stop();
}

#[test]
fn a_full_disk_leaves_all_as_it_was() {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let site = Site::start();
    fs::create_dir(site.path("exports.d")).unwrap();
    // The command sees a full disk there, and then one that is read-only.
    for (options, fill) in [("size=4k", "head -c 4k /dev/zero >exports.d/f;"), ("ro", "")] {
        let script = format!(
            "mount -t tmpfs -o {options} none exports.d || exit 9; {fill} \
             exec \"$0\" exports add exports.toml b --session b.db"
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_acetate")]);
        let output = command.current_dir(site.dir.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("exports.d: nothing is changed: "), "{said}");
    }
    assert_as_before(&site);
}

#[test]
fn a_directory_that_may_not_be_written_leaves_all_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        skip("only root runs a program as another user");
        return;
    }
    let site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let mut command = acetate(site.dir.path(), &["exports", "add", "exports.toml", "b"]);
    let command = command.args(["--session", "b.db"]).uid(65_534).gid(65_534);
    fs::set_permissions(site.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("nothing is changed: "), "{said}");
            assert_eq!(site.added_files(), [""; 0]);
        }
        Err(error) => skip(&format!("another user cannot run the program: {error}")),
    }
}

#[test]
fn a_command_that_is_killed_leaves_a_whole_file() {
    let mut site = Site::start();
    // The server does not answer.
    site.server.as_ref().unwrap().signal("STOP");
    let args = ["exports", "add", "exports.toml", "b", "--session", "b.db", "--option", "insecure"];
    let mut child = acetate(site.dir.path(), &args).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while site.added_files() != ["b.toml"] {
        assert!(Instant::now() < deadline, "{:?}", site.added_files());
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    site.server.as_ref().unwrap().signal("CONT");
    // The next change takes it along, whether the server saw the request or not.
    site.add("c");
    assert_eq!(site.names(), ["a", "b", "c"]);
    site.peer("/b");
    site.stop();
    site.serve(&[]);
    site.peer("/b");
}

#[test]
fn other_users_cannot_lock_changes_out() {
    let site = Site::start();
    // Any user who may read the directory and the exports file can lock them.
    let held = [site.dir.path().to_owned(), site.path("exports.toml")].map(|it| {
        let opened = fs::File::open(it).unwrap();
        opened.lock().unwrap();
        opened
    });
    site.add("b");
    drop(held);
    let lock = site.path("exports.d/.lock");
    let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
    let set_mode =
        |at: &Path, mode| fs::set_permissions(at, PermissionsExt::from_mode(mode)).unwrap();
    assert_eq!((mode(), site.path(".exports.d.lock").exists()), (0o600, false));
    // As a backup may restore it.
    set_mode(&lock, 0o644);
    site.done("rm", &["b"]);
    assert_eq!(mode(), 0o600);
    // All who may change exports may lock them.
    set_mode(&site.path("exports.d"), 0o775);
    site.add("b");
    assert_eq!(mode(), 0o660);
    // It is not taken for a lock file, nor given away.
    let secret = || {
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "secret").unwrap();
        set_mode(&lock, 0o600);
    };
    let link = || {
        fs::remove_file(&lock).unwrap();
        symlink("../exports.toml", &lock).unwrap();
    };
    let many = || {
        fs::remove_file(&lock).unwrap();
        fs::write(site.path("many"), "").unwrap();
        fs::hard_link(site.path("many"), &lock).unwrap();
    };
    let pipe = || {
        fs::remove_file(&lock).unwrap();
        assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    };
    let makes: [(&dyn Fn(), &str); 4] = [
        (&secret, "with mode 0600: not an empty file of one name; move it away"),
        (&link, "with mode 0777: a symbolic link, which is not followed; move it away"),
        (&many, "not an empty file of one name; move it away"),
        (&pipe, "not an empty file of one name; move it away"),
    ];
    for (make, words) in makes {
        make();
        let said = site.fails("rm", &["b"]);
        let which = "nothing is changed: the lock file exports.d/.lock, of user ";
        assert!(said.contains(which) && said.contains(words), "{said}");
    }
    fs::remove_file(&lock).unwrap();
    site.done("rm", &["b"]);
    assert_eq!(site.names(), ["a"]);
}

/// Root, the owner of the directory, and one of its group.
#[test]
fn all_who_may_change_exports_can_lock_them_after_each_other() {
    if !rustix::process::geteuid().is_root() {
        skip("only root runs a program as another user");
        return;
    }
    let site = Site::new(&export("path = \"/a\"", "a.db", ""));
    let at = |name: &str| site.path(name);
    fs::set_permissions(site.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(at("exports.d")).unwrap();
    let of = |uid: u32, mode: u32| {
        chown(at("exports.d"), Some(uid), Some(uid)).unwrap();
        fs::set_permissions(at("exports.d"), PermissionsExt::from_mode(mode)).unwrap();
    };
    let add = |name: &str, uid: u32, gid: u32| {
        let args = ["exports", "add", "exports.toml", name, "--session", "x.db"];
        let mut command = acetate(site.dir.path(), &args);
        let output = command.arg("--path").arg(format!("/{name}")).uid(uid).gid(gid).output();
        output.map(|it| (it.status.code(), String::from_utf8(it.stderr).unwrap()))
    };
    let lock = || fs::metadata(at("exports.d/.lock")).unwrap();
    of(65_534, 0o755);
    let Ok((code, said)) = add("b", 65_534, 65_534) else {
        skip("another user cannot run the program");
        return;
    };
    assert_eq!(code, Some(0), "{said}");
    for (name, uid) in [("c", 0), ("d", 65_534)] {
        let (code, said) = add(name, uid, uid).unwrap();
        assert_eq!((code, lock().uid(), lock().mode() & 0o777), (Some(0), 65_534, 0o600), "{said}");
    }
    // Root made it first, and a user of the group before; one has the directory.
    fs::remove_file(at("exports.d/.lock")).unwrap();
    of(65_533, 0o775);
    for (name, uid, gid) in [("e", 0, 0), ("f", 65_533, 65_533), ("g", 65_531, 65_533)] {
        let (code, said) = add(name, uid, gid).unwrap();
        assert_eq!((code, lock().uid(), lock().mode() & 0o777), (Some(0), 65_533, 0o660), "{said}");
    }
    fs::remove_file(at("exports.d/.lock")).unwrap();
    for (name, uid, gid) in [("h", 65_531, 65_533), ("i", 65_530, 65_533), ("j", 0, 0)] {
        let (code, said) = add(name, uid, gid).unwrap();
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(lock().uid(), 65_533);
    // A user who may write nothing there any more has it: only root mends that.
    of(65_533, 0o755);
    chown(at("exports.d/.lock"), Some(65_531), Some(65_531)).unwrap();
    fs::set_permissions(at("exports.d/.lock"), PermissionsExt::from_mode(0o666)).unwrap();
    let (code, said) = add("k", 65_533, 65_533).unwrap();
    let words = "exports.d/.lock, of user 65531 with mode 0666: other users may lock it; let root \
        or its owner run `chown 65533:65533 exports.d/.lock` and `chmod 600 exports.d/.lock`";
    assert!(code == Some(2) && said.contains(words), "{said}");
    assert_eq!(add("k", 0, 0).unwrap().0, Some(0));
    let (code, said) = add("l", 65_533, 65_533).unwrap();
    assert_eq!(code, Some(0), "{said}");
}
