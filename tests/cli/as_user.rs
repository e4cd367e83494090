//! `acetate` run by an ordinary user, whom modes and owners keep out.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use super::program::{acetate, said};
use crate::support::skip::skip;

/// An ordinary user.
const USER: u32 = 65_534;

/// A directory of the user with the files `base/d/f` and `base/k`; `None` without root.
fn place() -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip("only root runs a program as another user");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/d")).unwrap();
    for (file, content) in [("base/d/f", "f"), ("base/k", "k")] {
        fs::write(dir.path().join(file), content).unwrap();
    }
    for path in ["", "base", "base/d", "base/d/f", "base/k"] {
        chown(dir.path().join(path), Some(USER), Some(USER)).unwrap();
    }
    match acetate(dir.path(), &["--version"]).uid(USER).gid(USER).output() {
        Ok(_) => Some(dir),
        Err(error) => {
            skip(&format!("another user cannot run the program: {error}"));
            None
        }
    }
}

fn run(place: &Path, args: &[&str]) -> Output {
    acetate(place, args).uid(USER).gid(USER).output().unwrap()
}

/// Runs a line of words, which is to end with this exit code; what it prints.
#[track_caller]
fn ends(place: &Path, code: i32, line: &str) -> (String, String) {
    let args: Vec<_> = line.split(' ').collect();
    said(&run(place, &args), code)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory that is closed by an apply, what comes before, and the options of the apply.
struct Closing {
    /// The changes, one command each.
    changes: &'static [&'static str],
    /// The base's file is changed too, so that this is drift.
    drifts: bool,
    apply: &'static str,
    code: i32,
    /// The directories in the base afterwards, with their modes.
    modes: &'static [(&'static str, u32)],
    /// What the session still has.
    left: &'static str,
}

#[test]
fn an_apply_that_closes_a_directory_to_its_owner_ends() {
    let cases = [
        Closing {
            changes: &["mkdir s.db /d/n", "chmod -R s.db 644 /d"],
            drifts: false,
            apply: "apply s.db --yes",
            code: 0,
            modes: &[("d", 0o644)],
            left: "",
        },
        Closing {
            changes: &["chmod s.db 600 /d/f", "chmod s.db 644 /d"],
            drifts: false,
            apply: "apply s.db --yes --exclude f",
            code: 0,
            modes: &[("d", 0o644)],
            left: "M /d/f (mode 0644 -> 0600)\n",
        },
        Closing {
            changes: &["mv s.db /d/f /d/g", "rm s.db /d/g", "chmod s.db 0 /d"],
            drifts: true,
            apply: "apply s.db --yes --skip-drifted",
            code: 1,
            modes: &[("d", 0)],
            left: "D /d/f (changed in the base too)\n",
        },
        Closing {
            changes: &[
                "mv s.db /d /e",
                "mkdir s.db /e/n",
                "chmod s.db 0 /e/n",
                "chmod s.db 644 /e",
            ],
            drifts: false,
            apply: "apply s.db --yes",
            code: 0,
            modes: &[("e", 0o644)],
            left: "",
        },
    ];
    for Closing { changes, drifts, apply, code, modes, left } in cases {
        let Some(dir) = place() else { return };
        let dir = dir.path();
        ends(dir, 0, "init s.db --base base");
        for change in changes {
            ends(dir, 0, change);
        }
        if drifts {
            fs::write(dir.join("base/d/f"), "of the base").unwrap();
        }
        ends(dir, code, apply);
        for (path, wanted) in modes {
            assert_eq!(mode(&dir.join("base").join(path)), *wanted, "{changes:?}");
        }
        assert!(!dir.join("base/.acetate-apply").exists(), "{changes:?}");
        // As root, who may look into the directories.
        let diff = acetate(dir, &["diff", "s.db"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&diff.stdout), left, "{changes:?}: {diff:?}");
        ends(dir, 0, "apply --undo s.db --yes");
        assert_eq!(mode(&dir.join("base/d")), 0o755, "{changes:?}");
    }
}

#[test]
fn what_an_undo_could_not_put_back_is_not_removed() {
    let Some(dir) = place() else { return };
    let dir = dir.path();
    let of_root = dir.join("base/d/x");
    fs::write(&of_root, "of root").unwrap();
    set_mode(&of_root, 0o600);
    ends(dir, 0, "init s.db --base base");
    ends(dir, 0, "rm -r s.db /d");
    let (_, err) = ends(dir, 2, "apply s.db --yes");
    assert!(err.contains("base/d/x: cannot be kept for undo"), "{err}");
    assert!(err.contains("--no-keep"), "{err}");
    assert_eq!(fs::read(&of_root).unwrap(), b"of root");
    // A file that the user may read comes back as a copy, and the plan says whose it is then.
    set_mode(&of_root, 0o644);
    let (out, _) = ends(dir, 0, "apply s.db --yes --force");
    assert!(out.contains("~ /d: loses owners: an undo can put back only copies"), "{out}");
    ends(dir, 0, "apply --undo s.db --yes");
    assert_eq!(fs::metadata(&of_root).unwrap().uid(), USER);
    let (out, _) = ends(dir, 0, "apply s.db --dry-run");
    assert!(!out.contains("loses"), "{out}");
}

#[test]
fn a_directory_closed_in_the_base_does_not_hold_up_the_rest_of_the_session() {
    let Some(dir) = place() else { return };
    let dir = dir.path();
    ends(dir, 0, "init s.db --base base");
    ends(dir, 0, "chmod s.db 600 /d/f /k");
    set_mode(&dir.join("base/d"), 0);
    let (out, err) = ends(dir, 2, "diff s.db");
    assert_eq!(out, "M /k (mode 0644 -> 0600)\n", "{err}");
    assert!(err.contains("not shown: /d/f: the base denies access to it"), "{err}");
    for form in ["--stat", "-p", "-M"] {
        let (_, err) = ends(dir, 2, &format!("diff s.db {form}"));
        assert!(err.contains("/d/f: the base denies access to it"), "{form}: {err}");
    }
    ends(dir, 2, "apply s.db --dry-run");
    ends(dir, 0, "apply s.db --yes k");
    assert_eq!(mode(&dir.join("base/k")), 0o600);
    ends(dir, 0, "discard s.db --yes /d/f");
    set_mode(&dir.join("base/d"), 0o755);
    assert_eq!(ends(dir, 0, "diff s.db").0, "");
    ends(dir, 0, "chmod s.db 600 /d/f /k");
    set_mode(&dir.join("base/d"), 0);
    ends(dir, 0, "discard s.db --yes /");
    set_mode(&dir.join("base/d"), 0o755);
    assert_eq!(ends(dir, 0, "diff s.db").0, "");
}

#[test]
fn a_changed_file_that_its_owner_may_not_read_in_the_base_counts_as_different() {
    let Some(dir) = place() else { return };
    let dir = dir.path();
    set_mode(&dir.join("base/d/f"), 0);
    ends(dir, 0, "init s.db --base base");
    ends(dir, 0, "rm s.db /d/f");
    fs::write(dir.join("new"), "g").unwrap();
    ends(dir, 0, "cp s.db new :/d/f");
    let (out, _) = ends(dir, 1, "diff s.db");
    assert!(out.starts_with("M /d/f (mode 0000 -> 0644"), "{out}");
    ends(dir, 0, "apply s.db --yes");
    assert_eq!(fs::read(dir.join("base/d/f")).unwrap(), b"g");
    ends(dir, 0, "apply --undo s.db --yes");
    assert_eq!(fs::read(dir.join("base/d/f")).unwrap(), b"f");
    assert_eq!(mode(&dir.join("base/d/f")), 0);
}

/// A closed directory of the base keeps nothing else from being looked at.
#[test]
fn commands_that_look_pass_by_what_the_base_denies() {
    let Some(dir) = place() else { return };
    let place = dir.path();
    ends(place, 0, "init s.db --base base");
    ends(place, 0, "chmod s.db 640 /k");
    ends(place, 0, "chmod s.db 640 /d/f");
    let closed = place.join("base/d");
    chown(&closed, Some(0), Some(0)).unwrap();
    set_mode(&closed, 0o700);
    let warned = "/d: the base denies access to it";
    for (line, shown) in [
        ("find s.db", "/\n/d\n/k\n"),
        ("tree s.db", "├── d *\n└── k *\n"),
        ("du s.db -d 0", " /\n"),
        ("find s.db --json", "\"/k\""),
        ("discard s.db --hunk 1 -n", ""),
        ("status s.db", "1 modified"),
        ("status s.db --json", "\"denied\":1"),
    ] {
        let output = run(place, &line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(out.contains(shown), "{line}: {out}{said}");
        assert!(line.contains("status") || said.contains("/d"), "{line}: {said}");
        assert!(!said.contains("error: /d"), "{line}: {said}");
        let is_whole = line.contains("status") || said.contains("the base denies access to it");
        assert!(is_whole, "{line}: {said}");
    }
    let (out, said) = ends(place, 2, "find s.db");
    assert!(!out.contains("/d/f") && said.contains(warned), "{said}");
    let (out, _) = ends(place, 0, "status s.db");
    assert!(out.contains("denied       1 change is not counted"), "{out}");
    let (_, said) = ends(place, 2, "apply s.db --yes");
    assert!(said.contains("/d/f: permission denied"), "{said}");
    assert!(said.contains("hint: check its permissions"), "{said}");
}

/// Removed or moved, a closed directory keeps nothing else from being shown.
#[test]
fn diff_passes_by_what_is_in_a_closed_directory() {
    for change in ["rm -r s.db /d", "mv s.db /d /e"] {
        let Some(dir) = place() else { return };
        let place = dir.path();
        ends(place, 0, "init s.db --base base");
        ends(place, 0, change);
        ends(place, 0, "chmod s.db 640 /k");
        ends(place, 0, "touch s.db /new");
        let closed = place.join("base/d");
        chown(&closed, Some(0), Some(0)).unwrap();
        set_mode(&closed, 0o700);
        for (line, shown) in [
            ("diff s.db", "/new"),
            ("diff s.db --name-only", "/new"),
            ("diff s.db --stat", "/new"),
            ("diff s.db -p", "b/new"),
            ("status s.db", "1 added"),
        ] {
            let output = run(place, &line.split(' ').collect::<Vec<_>>());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(out.contains(shown), "{change}, {line}: {out}{said}");
            assert!(!said.contains("error"), "{change}, {line}: {said}");
        }
        // An apply of something else ends.
        ends(place, 0, "apply s.db --yes /new");
        ends(place, 0, "apply s.db --yes /k");
    }
}
