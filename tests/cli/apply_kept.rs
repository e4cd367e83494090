//! What an apply replaces and removes where that cannot be kept, mostly as an ordinary user.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::support::skip::skip;

/// An ordinary user.
const USER: u32 = 65_534;

/// A directory of the user.
pub struct Place(TempDir);

impl Place {
    /// Runs the lines with `base` before; `None` without root. In them, `a` runs the program as the
    /// user, and `give` gives the user an object, but not what is in it.
    pub fn new(lines: &str) -> Option<Self> {
        if !geteuid().is_root() {
            skip("only root makes files that a user may not read");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        chown(place.path(), Some(USER), Some(USER)).unwrap();
        let (status, said) = place.run(&format!("mkdir base\n{lines}"));
        assert_eq!(status, Some(0), "{said}");
        Some(place)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs lines of a shell; the exit status and all that was said.
    fn run(&self, lines: &str) -> (Option<i32>, String) {
        let script = format!(
            "exec 2>&1
give() {{ chown {USER}:{USER} \"$@\"; }}
a() {{ setpriv --reuid={USER} --regid={USER} --clear-groups \"$ACETATE\" \"$@\"; }}
{lines}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &script]).current_dir(self.path());
        shell.env("ACETATE", env!("CARGO_BIN_EXE_acetate")).env("HOME", self.path());
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    #[track_caller]
    pub fn says(&self, lines: &str, status: i32) -> String {
        let (ended, said) = self.run(lines);
        assert_eq!(ended, Some(status), "{said}");
        said
    }

    /// An apply that cannot keep `/f` changes nothing, and says so; without that path, or with
    /// --no-keep, it works.
    #[track_caller]
    fn check_refused(&self, base: &str) {
        let said = self.says("a apply s.db --yes", 2);
        assert!(said.contains("/f: cannot be kept for undo: "), "{said}");
        assert!(said.contains("hint: --no-keep") && said.contains("without it"), "{said}");
        self.says(&format!("test -e {base}/f; test ! -e {base}/.acetate-apply"), 0);
        self.says(&format!("a apply s.db --yes ':!f'; test -e {base}/new"), 0);
        self.says(&format!("a apply s.db --yes --no-keep; test ! -e {base}/f"), 0);
    }
}

/// Prepares a change of the base, as a session of the user.
const CHANGE: &str = "a rm s.db f; echo new | a write s.db new";

#[test]
fn an_unreadable_file_with_another_name_is_refused_before_it_is_removed() {
    let Some(place) = Place::new(&format!(
        "echo x >base/f; ln base/f base/g; chmod 600 base/f; give base
a init s.db --base base; {CHANGE}"
    )) else {
        return;
    };
    place.check_refused("base");
}

#[test]
fn an_unreadable_file_whose_names_are_all_removed_is_moved_only_if_an_undo_may_link_it() {
    let Some(place) = Place::new(&format!(
        "echo x >base/f; ln base/f base/g; chmod 600 base/f; give base
a init s.db --base base; {CHANGE}; a rm s.db g"
    )) else {
        return;
    };
    let setting = fs::read("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    if setting.starts_with(b"0") {
        place.says("a apply s.db --yes; test ! -e base/f; test ! -e base/g", 0);
        place.says("(cd s.db-undo/*/; test *-f -ef *-g; test $(stat -c %u *-f) = 0)", 0);
        place.says("a apply --undo s.db --yes; test base/f -ef base/g", 0);
        return;
    }
    let said = place.says("a apply s.db --yes", 2);
    assert!(said.contains("/f: cannot be kept for undo: "), "{said}");
    place.says("test base/f -ef base/g; test ! -e base/new", 0);
    place.says("a apply s.db --yes ':!f' ':!g'; test -e base/new", 0);
    place.says("a apply s.db --yes --no-keep; test ! -e base/f; test ! -e base/g", 0);
}

#[test]
fn what_cannot_be_copied_to_another_filesystem_is_refused_before_it_is_removed() {
    for make in ["echo x >$b/f; chmod 600 $b/f", "mknod $b/f c 1 3; chmod 666 $b/f"] {
        let other = tempfile::tempdir_in("/dev/shm").ok();
        let dev = |path: &Path| fs::metadata(path).unwrap().dev();
        let Some(other) = other.filter(|other| dev(other.path()) != dev(&std::env::temp_dir()))
        else {
            skip("/dev/shm is no other filesystem");
            return;
        };
        let base = other.path().display();
        let prepare = format!(
            "b={base}; {make}; give $b
a init s.db --base $b; {CHANGE}"
        );
        let Some(place) = Place::new(&prepare) else { return };
        place.check_refused(&base.to_string());
    }
}

#[test]
fn what_an_earlier_apply_kept_and_cannot_be_removed_stops_no_apply() {
    let Some(place) = Place::new(
        "mkdir base/d; echo 1 >base/d/f; echo 2 >base/g
chattr +i base/d/f 2>/dev/null || exit 0
a() { \"$ACETATE\" \"$@\"; }
a init s.db --base base; a rm -r s.db d; a apply s.db --yes",
    ) else {
        return;
    };
    if !place.path().join("s.db-undo").exists() {
        skip("the filesystem has no immutable files");
        return;
    }
    let root = "a() { \"$ACETATE\" \"$@\"; }\n";
    let (status, said) = place.run(&format!(
        "{root}a rm s.db g; a apply s.db --yes; a apply --undo s.db --yes; cat base/g"
    ));
    let (left, _) = place.run("chattr -R -i s.db-undo; ls s.db-undo | wc -l");
    assert_eq!((status, left), (Some(0), Some(0)), "{said}");
    assert!(said.contains("what an earlier apply kept is not removed") && said.ends_with("2\n"));
    // The next one tries that again.
    place.says(&format!("{root}a apply --undo s.db --yes; test ! -e base/g"), 0);
    let (_, left) = place.run("ls s.db-undo");
    assert_eq!(left.lines().count(), 2, "the record and one round: {left}");
}

#[test]
fn a_directory_under_a_reserved_name_that_a_person_made_is_left_alone() {
    let Some(place) = Place::new(
        "give base; a init s.db --base base; echo new | a write s.db new
mkdir -m 700 base/.acetate-apply; echo precious >base/.acetate-apply/x; give -R base",
    ) else {
        return;
    };
    for args in ["", "--undo", "--dry-run"] {
        let said = place.says(&format!("a apply s.db --yes {args} || true"), 0);
        let said = said + &place.says("cat base/.acetate-apply/x", 0);
        assert!(said.ends_with("precious\n"), "{said}");
    }
    let said = place.says("a apply s.db --yes", 2);
    assert!(said.contains(".acetate-apply: holds `x`, which acetate did not make"), "{said}");
    place.says("mv base/.acetate-apply mine; mkdir -m 700 s.db-undo; mv mine/x s.db-undo", 0);
    place.says("give -R s.db-undo", 0);
    let said = place.says("a apply s.db --yes", 2);
    assert!(said.contains("s.db-undo: holds `x`, which acetate did not make"), "{said}");
    place.says("a apply s.db --yes --no-keep; cat base/new s.db-undo/x", 0);
}

#[test]
fn the_mode_of_a_directory_that_closes_it_to_its_owner_is_applied_once() {
    let Some(place) = Place::new(
        "mkdir -p base/h/sub base/k; echo 1 >base/h/x; give -R base
a init s.db --base base; a chmod s.db 555 /h; a chmod s.db 500 /h/sub
a chmod s.db 600 /k; echo 2 | a write s.db /k/y",
    ) else {
        return;
    };
    place.says("a apply s.db --yes", 0);
    place.says("test $(stat -c %a base/h base/h/sub base/k | tr -d '\\n') = 555500600", 0);
    assert_eq!(place.says("a diff s.db", 0), "");
    let said = place.says("a apply s.db --yes", 0);
    assert!(said.starts_with("nothing to apply"), "{said}");
}

#[test]
fn times_alone_are_no_change_that_was_applied() {
    let Some(place) = Place::new(
        "mkdir base/d; echo 1 >base/x; echo 2 >base/d/y; give -R base
a init s.db --base base; echo 11 | a write s.db /x; a apply s.db --yes
a apply --undo s.db --yes; a rm -r s.db /d; echo 3 >>base/d/y",
    ) else {
        return;
    };
    let said = place.says("a apply s.db --yes --skip-drifted", 1);
    assert!(said.contains("nothing was written, 1 skipped"), "{said}");
    assert!(!said.contains("applied,") && !said.contains("--undo"), "{said}");
}

#[test]
fn an_apply_to_a_base_that_was_moved_since_is_taken_back_there() {
    let Some(place) = Place::new(
        "echo 1 >base/x; give -R base; a init s.db --base base; echo 11 | a write s.db /x
a apply s.db --yes; echo more | a write s.db /y; mv base moved",
    ) else {
        return;
    };
    let said = place.says("a apply s.db --base moved --yes", 2);
    assert!(said.contains("its changes are over the base"), "{said}");
    place.says("a apply --undo s.db --base moved --yes; cat moved/x | grep -x 1", 0);
    place.says("mkdir other; give other; test ! -e base", 0);
    let said = place.says("a apply --undo s.db --base other --yes", 2);
    assert!(said.contains("the last apply was to"), "{said}");
    // It is repeated there, too.
    place.says("a apply --undo s.db --base moved --yes; cat moved/x | grep -x 11", 0);
}

#[test]
fn what_is_no_longer_kept_is_skipped_and_the_rest_comes_back() {
    let Some(place) = Place::new(
        "echo 1 >base/x; echo 2 >base/y; give -R base; a init s.db --base base
a rm s.db x y; a apply s.db --yes; rm s.db-undo/*/*-x",
    ) else {
        return;
    };
    let said = place.says("a apply --undo s.db --yes", 1);
    assert!(said.contains("! /x: the copy that was kept is gone"), "{said}");
    place.says("test ! -e base/y", 0);
    place.says("a apply --undo s.db --yes --skip-drifted", 1);
    place.says("cat base/y; test ! -e base/x", 0);
}

#[test]
fn an_empty_journal_is_named_as_damaged() {
    let Some(place) = Place::new(
        "give base; a init s.db --base base; echo new | a write s.db new
mkdir -m 700 base/.acetate-apply; : >base/.acetate-apply/journal; give -R base",
    ) else {
        return;
    };
    let said = place.says("a apply s.db --yes", 2);
    assert!(said.contains("the journal is empty"), "{said}");
}

#[test]
fn an_apply_of_a_directory_that_is_closed_to_its_owner_is_one_row_of_the_log() {
    let Some(place) = Place::new(
        "mkdir base/h; give -R base
a init s.db --base base; a chmod s.db 0 /h; echo 1 | a write s.db /x
a mkdir s.db /new; a chmod s.db 0 /new",
    ) else {
        return;
    };
    place.says("a apply s.db --yes", 0);
    let log = place.says("a log s.db --json", 0);
    let rows = |path: &str| {
        let path = format!(r#""path":"{path}""#);
        log.lines().filter(|row| row.contains("APPLY") && row.contains(&path)).count()
    };
    assert_eq!(["/h", "/new", "/x"].map(rows), [1, 1, 1], "{log}");
}
