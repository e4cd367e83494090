//! What is mounted on, where a user for whom root mounts swaps the directory for a symbolic link.
//! With a kernel's client: integration/kernel.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Output;

use super::mounting::Place;

/// A user that is not root, for whom `sudo` has called.
const USER: u32 = 65534;

/// Runs the command in a mount namespace of its own, called by `sudo`, and keeps what is mounted
/// afterwards in the file `mounts`.
fn run_for_user(place: &Place, args: &[&str]) -> Output {
    let line = "\"$@\"; status=$?; cat /proc/self/mountinfo >mounts; exit $status";
    let words = ["unshare", "--mount", "sh", "-c", line, "sh"];
    let mut command = place.command_by(&words, args);
    let user = USER.to_string();
    command.envs([("SUDO_UID", &user), ("SUDO_GID", &user)]).env("SUDO_USER", "nobody");
    command.output().unwrap()
}

/// A place that the user may write to, where `mount` is a script with these lines: `$at` is the
/// directory that it gets, `as_user` runs words as the user, and `mounts` mounts something there.
fn place(lines: &str) -> Option<Place> {
    let script = format!(
        r#"for at; do :; done
as_user() {{ setpriv --reuid {USER} --regid {USER} --clear-groups "$@"; }}
mounts() {{ /usr/bin/mount -t tmpfs -o mode=755 acetate-test "$at"; }}
cd "${{TMPDIR%/tmp}}"
{lines}"#
    );
    let place = Place::new(&script)?;
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(place.path("tmp"), Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(place.path("outside")).unwrap();
    fs::create_dir(place.path("outside/base")).unwrap();
    Some(place)
}

/// How many directories that `run` made are left.
fn private_dirs(place: &Place) -> usize {
    let names = fs::read_dir(place.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    // The other one is where the user's servers make themselves known.
    names.filter(|name| name.as_encoded_bytes() != b"acetate-65534").count()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_nothing_was_mounted(place: &Place, output: &Output) {
    let mounts = fs::read_to_string(place.path("mounts")).unwrap();
    let left: Vec<_> = mounts.lines().filter(|line| line.contains("acetate-test")).collect();
    assert!(left.is_empty(), "{left:?}: {}", said(output));
    assert_eq!(output.status.code(), Some(2), "{}", said(output));
}

#[test]
fn the_private_directory_of_run_is_out_of_the_users_reach_while_it_is_mounted() {
    let swap = "for dir in tmp/acetate-*/s; do
    as_user mv $dir $dir.gone && as_user ln -s $PWD/outside $dir && echo swapped >&2
    as_user mv ${dir%/s} tmp/gone && as_user ln -s $PWD/outside ${dir%/s} && echo swapped >&2
done
mounts";
    let Some(place) = place(swap) else { return };
    let output = run_for_user(&place, &["run", "s.db", "--no-base", "--", "true"]);
    assert!(!said(&output).contains("swapped"), "{}", said(&output));
    assert_nothing_was_mounted(&place, &output);
    assert_eq!(private_dirs(&place), 0, "directories are left");
    assert!(place.path("outside/base").exists(), "what lies outside was removed");
}

#[test]
fn a_directory_that_is_swapped_for_a_link_is_mounted_on_nowhere() {
    let swap = "as_user mv mine/at mine/gone; as_user ln -s $PWD/outside mine/at; mounts";
    for args in [
        &["mount", "s.db", "mine/at", "--base", "base"][..],
        &["run", "s.db", "--at", "mine/at", "--base", "base", "--", "true"],
    ] {
        let Some(place) = place(swap) else { return };
        for dir in ["mine", "mine/at"] {
            fs::create_dir(place.path(dir)).unwrap();
            chown(place.path(dir), Some(USER), Some(USER)).unwrap();
        }
        let output = run_for_user(&place, args);
        assert!(place.path("mine/at").is_symlink(), "{}", said(&output));
        assert!(said(&output).contains("mine/at: was moved or replaced"), "{}", said(&output));
        assert_nothing_was_mounted(&place, &output);
    }
}

#[test]
fn a_users_link_leads_to_no_directory_of_another_user() {
    let Some(place) = place("mounts") else { return };
    fs::create_dir(place.path("mine")).unwrap();
    fs::create_dir(place.path("mine/real")).unwrap();
    symlink(place.path("outside"), place.path("mine/out")).unwrap();
    symlink(place.dir.path().canonicalize().unwrap(), place.path("mine/up")).unwrap();
    symlink("real", place.path("mine/in")).unwrap();
    for name in ["mine", "mine/real"] {
        chown(place.path(name), Some(USER), Some(USER)).unwrap();
    }
    for name in ["mine/out", "mine/up", "mine/in"] {
        std::os::unix::fs::lchown(place.path(name), Some(USER), Some(USER)).unwrap();
    }
    for dir in ["mine/out", "mine/up/outside", "mine/out/../outside"] {
        let output = run_for_user(&place, &["mount", "s.db", dir]);
        assert!(said(&output).contains("a symbolic link of user 65534 leads"), "{}", said(&output));
        assert_nothing_was_mounted(&place, &output);
    }
    // To one of the user's own it may: there the mounting itself goes wrong, as it is none of NFS.
    let output = run_for_user(&place, &["mount", "s.db", "mine/in"]);
    assert!(said(&output).contains("mine/real: was moved or replaced"), "{}", said(&output));
    fs::create_dir(place.path("other")).unwrap();
    chown(place.path("other"), Some(USER - 1), None).unwrap();
    let output = run_for_user(&place, &["mount", "s.db", "other"]);
    assert!(said(&output).contains("other: belongs to user 65533, not to nobody"), "{output:?}");
}

#[test]
fn mount_gets_a_directory_that_root_alone_can_reach() {
    let look = "stat -c '%u %a' \"${at%/*}\" >stage; echo \"$at\" >at-path; exit 32";
    let Some(place) = place(look) else { return };
    let output = run_for_user(&place, &["mount", "s.db", "at"]);
    assert_eq!(fs::read_to_string(place.path("stage")).unwrap(), "0 700\n", "{}", said(&output));
    let at = fs::read_to_string(place.path("at-path")).unwrap();
    assert!(at.starts_with(place.path("run").to_str().unwrap()), "{at}");
    assert_eq!(fs::metadata(place.path("run")).unwrap().uid(), 0);
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0, "a directory is left");
}
