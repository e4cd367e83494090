//! What the session changed and what the base changed since are told apart by the original.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use acetate::inspect::diff::{DiffOptions, Difference, diff};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::status::status;

use super::apply::open;
use crate::support::applied::{all, applied, assert_same, merged, on_host};
use crate::support::git::git;
use crate::support::patched;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "one\ntwo\nthree\n"
    dir/other "other"
    dir/link -> file
    gone "gone"
"#;

/// The differences, each with its letter, whether content and mode differ, and whether it drifted.
pub fn told(world: &World) -> Vec<String> {
    let opened = OpenSession::open(&world.session(), Some(&world.base())).unwrap();
    let mut all = Vec::new();
    diff(&opened, &DiffOptions::default(), &mut |_, difference: Difference| {
        let mut line = format!("{:?} {}", difference.kind, difference.path.display());
        for (is_so, word) in [
            (difference.differs.content, "content"),
            (difference.differs.mode, "mode"),
            (difference.change.is_link, "link"),
            (difference.change.replaced.is_some(), "replaced"),
            (difference.change.has_drifted(), "drifted"),
        ] {
            if is_so {
                line.push(' ');
                line.push_str(word);
            }
        }
        all.push(line);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

/// Gives a file of the host another inode, with this content and the mode that it had.
pub fn save_by_rename(file: &Path, content: &str) {
    let mode = fs::metadata(file).unwrap().permissions();
    let new = file.with_extension("tmp");
    fs::write(&new, content).unwrap();
    fs::set_permissions(&new, mode).unwrap();
    fs::rename(&new, file).unwrap();
}

#[test]
fn a_base_with_the_same_content_has_not_drifted() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"ONE").unwrap();
    world.put("dir/new", "mine");
    world.rename("dir/new", "dir/other").unwrap();
    world.chmod("dir/link", 0o700).unwrap();
    let before = told(&world);
    let base = world.change_base();
    let drifted = |world: &World| {
        status(&OpenSession::open(&world.session(), Some(&world.base())).unwrap())
            .unwrap()
            .touched
            .drifted
    };
    assert!(Command::new("touch").args([base.join("dir/file")]).status().unwrap().success());
    save_by_rename(&base.join("dir/other"), "other");
    fs::remove_file(base.join("dir/link")).unwrap();
    symlink("file", base.join("dir/link")).unwrap();
    assert_eq!(told(&world), before);
    assert_eq!(drifted(&world), 0);
    let copied = base.with_file_name("copied");
    assert!(Command::new("cp").arg("-a").args([&base, &copied]).status().unwrap().success());
    fs::remove_dir_all(&base).unwrap();
    fs::rename(&copied, &base).unwrap();
    assert_eq!(told(&world), before);
    assert_eq!(drifted(&world), 0);
    let mut wanted = merged(&world.session(), Some(&base));
    // The session did not set the time of the link, so that it stays the person's.
    let link = &b"dir/link"[..];
    wanted.get_mut(link).unwrap().mtime = on_host(&base)[link].mtime;
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    assert_same(&on_host(&base), &wanted);
}

#[test]
fn a_base_file_that_was_saved_by_a_rename_is_matched_by_its_path() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"ONE").unwrap();
    let base = world.change_base();
    save_by_rename(&base.join("dir/file"), "one\ntwo\nTHREE\n");
    assert_eq!(told(&world), ["Modified /dir/file content drifted"]);
    fs::remove_file(base.join("dir/file")).unwrap();
    assert_eq!(told(&world), ["Modified /dir/file content drifted"]);
}

/// One name of a hard-linked file that goes is one drifted change, not the end of the listing. A
/// single name that is left shows the base's file, in the tree as in the listing.
#[test]
fn a_hard_linked_file_of_which_a_name_is_gone_or_another_file_in_the_base() {
    let tree = "dir/file \"one\"\nother/name = dir/file\nplain \"plain\"\n";
    let drifted = ["Modified /plain content", "Modified /dir/file content drifted"];
    let two = ["Modified /plain content", "Modified /dir/file content"];
    let without_dir =
        ["Added /dir drifted", "Modified /plain content", "Modified /dir/file content drifted"];
    type Way = fn(&Path);
    let ways: [(Way, &[&str]); 4] = [
        (|base| fs::remove_file(base.join("dir/file")).unwrap(), &drifted),
        (|base| fs::remove_dir_all(base.join("dir")).unwrap(), &without_dir),
        (|base| save_by_rename(&base.join("dir/file"), "ONE"), &drifted),
        (|base| fs::remove_file(base.join("other/name")).unwrap(), &two),
    ];
    for (number, (way, lines)) in ways.iter().enumerate() {
        let mut world = World::new(tree);
        world.write("dir/file", 0, b"O").unwrap();
        world.write("plain", 0, b"P").unwrap();
        let base = world.change_base();
        way(&base);
        if base.join("other/name").exists() {
            assert_eq!(world.cat("other/name"), "one", "way {number}");
        }
        assert_eq!(told(&world), *lines, "way {number}");
        let opened = OpenSession::open(&world.session(), Some(&base)).unwrap();
        let drifted = lines.iter().filter(|line| line.ends_with("drifted")).count();
        assert_eq!(status(&opened).unwrap().touched.drifted, drifted as u64, "way {number}");
        let report = applied(&opened, None, &super::apply::only(&["plain"])).unwrap();
        assert_eq!(report.skipped, []);
        assert_eq!(fs::read(base.join("plain")).unwrap(), b"Plain");
    }
}

/// Another mode, type or target is drift too.
#[test]
fn what_differs_from_the_original_has_drifted() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"ONE").unwrap();
    world.write("dir/other", 0, b"O").unwrap();
    world.chmod("dir/link", 0o700).unwrap();
    world.remove("dir/link").unwrap();
    world.symlink("other", "dir/link").unwrap();
    let base = world.change_base();
    fs::set_permissions(base.join("dir/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(base.join("dir/other")).unwrap();
    fs::create_dir(base.join("dir/other")).unwrap();
    fs::remove_file(base.join("dir/link")).unwrap();
    symlink("elsewhere", base.join("dir/link")).unwrap();
    let lines = [
        "Modified /dir/file content drifted",
        "Modified /dir/link content drifted",
        "Modified /dir/other content drifted",
    ];
    assert_eq!(told(&world), lines);
}

/// The session changed nothing of it, whatever the base has now.
#[test]
fn what_the_session_has_as_it_was_is_no_difference() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"one").unwrap();
    fs::write(world.change_base().join("dir/file"), "theirs").unwrap();
    assert_eq!(told(&world), [""; 0]);
    world.write("dir/file", 0, b"ONE").unwrap();
    assert_eq!(told(&world), ["Modified /dir/file content drifted"]);
}

/// Of a file over the limit the times tell.
#[test]
fn a_large_file_has_drifted_by_its_times() {
    let mut world = World::new("dir/");
    let base = world.change_base();
    fs::write(base.join("dir/large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    world.write("dir/large", 0, b"mine").unwrap();
    world.finish_copies();
    let mtime = fs::metadata(base.join("dir/large")).unwrap().modified().unwrap();
    save_by_rename(&base.join("dir/large"), &"x".repeat((1 << 20) + 1));
    let file = fs::File::options().write(true).open(base.join("dir/large")).unwrap();
    file.set_modified(mtime).unwrap();
    assert_eq!(told(&world), ["Modified /dir/large content"]);
    file.set_modified(mtime + std::time::Duration::from_secs(1)).unwrap();
    assert_eq!(told(&world), ["Modified /dir/large content drifted"]);
}

/// The patch holds what the session changed, and nothing of what the base changed since.
#[test]
fn a_patch_is_against_the_original() {
    let mut world = World::new(TREE);
    let base = world.change_base();
    git(&base, &["init", "--quiet"]);
    git(&base, &["add", "."]);
    git(&base, &["commit", "--quiet", "--message=start"]);
    world.write("dir/file", 0, b"ONE").unwrap();
    world.put("saved", "OTHER\n");
    world.rename("saved", "dir/other").unwrap();
    world.write("gone", 0, b"GONE").unwrap();
    world.remove("gone").unwrap();
    let (before, _) = patched::text(&world.session(), &base);
    save_by_rename(&base.join("dir/file"), "one\ntwo\nTHREE\n");
    fs::write(base.join("dir/other"), "theirs\n").unwrap();
    git(&base, &["commit", "--quiet", "--all", "--message=theirs"]);
    let (text, left_out) = patched::text(&world.session(), &base);
    assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&before));
    assert_eq!(left_out.unknown, []);
    let patch = world.scratch().join("patch");
    fs::write(&patch, &text).unwrap();
    let mut apply = Command::new("git");
    apply.args(["apply", "-3"]).arg(&patch).current_dir(&base);
    assert!(!apply.output().unwrap().status.success(), "a file conflicts");
    assert_eq!(fs::read_to_string(base.join("dir/file")).unwrap(), "ONE\ntwo\nTHREE\n");
    let conflicts = git(&base, &["diff", "--name-only", "--diff-filter=U"]);
    assert_eq!(conflicts, "dir/other\n");
}

/// At each of its names, of which only one was changed.
#[test]
fn a_patch_of_a_file_with_two_names_is_against_its_original() {
    let mut world = World::new("");
    let base = world.change_base();
    fs::write(base.join("one"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    fs::hard_link(base.join("one"), base.join("two")).unwrap();
    world.write("one", 0, b"S").unwrap();
    let (before, _) = patched::text(&world.session(), &base);
    fs::write(base.join("two"), "1\n2\n3\n4\n5\n6\n7\nP\n9\n").unwrap();
    let (text, left_out) = patched::text(&world.session(), &base);
    assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&before));
    assert_eq!(left_out.unknown, []);
}

#[test]
fn what_the_base_had_before_its_change_may_not_be_known() {
    let mut world = World::new("dir/\none \"one\"\ntwo \"two\"");
    let base = world.change_base();
    fs::write(base.join("dir/large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    world.write("dir/large", 0, b"mine").unwrap();
    world.finish_copies();
    world.write("one", 0, b"mine").unwrap();
    world.tick(-1_000_000_000);
    world.remove("two").unwrap();
    fs::write(base.join("dir/large"), "theirs").unwrap();
    let (text, left_out) = patched::text(&world.session(), &base);
    let unknown: Vec<_> = left_out.unknown.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(unknown, ["/dir/large", "/two"]);
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("diff --git a/one b/one\n"), "{text}");
    assert!(!text.contains("large") && !text.contains("two"), "{text}");
}
