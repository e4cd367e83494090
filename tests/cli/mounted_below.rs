//! Filesystems that are mounted below the base, and `apply`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;

use crate::support::skip::skip;

/// Runs a script as root, with mounts of its own, in a directory with a base and `$1` as the
/// program; what it prints, `None` without root.
fn script(script: &str) -> Option<String> {
    script_in(tempfile::tempdir().unwrap().path(), script)
}

fn script_in(dir: &Path, script: &str) -> Option<String> {
    let is_root = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root.is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return None;
    }
    let begin = r#"cd "$0" && mkdir -p base/d/m other && A=$1 || exit 9
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &[begin, script].concat()]).arg(dir);
    let output = command.arg(env!("CARGO_BIN_EXE_acetate")).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

const LEFT_OUT: &str = "another filesystem is mounted below it, at /d/m";

#[test]
fn a_directory_above_a_mount_point_stays_where_it_is() {
    for change in [
        "$A rm -r s.db /d",
        "$A mv s.db /d /e",
        "$A rm -r s.db /d && echo file | $A write s.db /d",
        "$A mv s.db /d /e && echo new | $A write s.db /d",
    ] {
        let run = format!(
            r#"mount -t tmpfs none base/d/m && echo q >base/d/m/q || exit 9
            $A init s.db --base base >said && {change} >>said 2>&1 || exit 9
            $A apply s.db --yes </dev/null 2>&1; echo "exit $?"
            cat base/d/m/q; grep -c " $PWD/base/d/m " /proc/self/mountinfo; ls -A base"#
        );
        let Some(said) = script(&run) else { return };
        assert!(said.contains(LEFT_OUT), "{change}: {said}");
        assert!(said.ends_with("exit 1\nq\n1\nd\n"), "{change}: {said}");
    }
}

#[test]
fn a_bind_mount_counts_and_the_rest_is_applied() {
    let run = r#"mkdir base/d/a && mount --bind other base/d/m || exit 9
        $A init s.db --base base >said && $A rm -r s.db /d >>said || exit 9
        echo new | $A write s.db /new || exit 9
        $A apply s.db --yes </dev/null 2>&1; echo "exit $?"; ls -A base"#;
    let Some(said) = script(run) else { return };
    assert!(said.contains(LEFT_OUT), "{said}");
    assert!(said.ends_with("exit 1\nd\nnew\n"), "{said}");
}

#[test]
fn a_bind_mount_of_the_base_is_no_copy_of_it() {
    let run = r#"mount --bind base other || exit 9
        $A init s.db --base base >said && $A rm -r s.db /d >>said || exit 9
        $A apply s.db --yes --to other </dev/null 2>&1; echo "exit $?"; ls -A base"#;
    let Some(said) = script(run) else { return };
    assert!(said.contains("other: is the base"), "{said}");
    assert!(said.ends_with("exit 2\nd\n"), "{said}");
}

#[test]
fn a_copy_that_is_kept_where_less_can_be_stored_is_named_with_what_it_lacks() {
    // An inode of 128 bytes has no room for nanoseconds, and extended attributes have one block.
    let run = r#"truncate -s 32M img && mkfs.ext4 -q -b 1024 -I 128 img && mkdir disk || exit 9
        mount -o loop img disk || exit 9
        touch -d 2020-01-01T00:00:00.789 base/d/f || exit 9
        $A init disk/s.db --base base >said && echo y | $A write disk/s.db /d/f || exit 9
        $A apply disk/s.db --yes </dev/null 2>&1; echo "exit $?""#;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("base/d/f");
    fs::create_dir_all(dir.path().join("base/d")).unwrap();
    fs::write(&file, "f").unwrap();
    for n in 0..10 {
        let (name, value) = (format!("user.k{n}"), [b'v'; 350]);
        if rustix::fs::setxattr(&file, name, &value, XattrFlags::empty()).is_err() {
            skip("the filesystem has no room for extended attributes");
            return;
        }
    }
    let Some(said) = script_in(dir.path(), run) else { return };
    if said.is_empty() {
        skip("no loop device or no ext4");
        return;
    }
    let warned = said.lines().find(|line| line.starts_with("warning: /d/f loses user.k"));
    let warned = warned.expect(&said);
    let wanted = ", mtime: the copy kept for an undo is on a filesystem that cannot store it";
    assert!(warned.ends_with(wanted), "{said}");
    assert!(said.ends_with("exit 0\n"), "{said}");
}
