//! What the session removed of the base has drifted if its content is another one, whatever the
//! times say.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use acetate::inspect::InspectError;
use acetate::inspect::apply::DriftReason;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::status::status;

use super::apply::drift::next_second;
use super::apply::open;
use super::original::{save_by_rename, told};
use crate::support::applied::{all, applied, assert_same, merged, on_host, planned};
use crate::support::git::git;
use crate::support::patched;
use crate::support::world::World;

const TREE: &str = r#"
    dir/over "over"
    dir/saved "saved"
    gone/a "a"
    gone/b/c "c"
    gone/link -> a
    again/x "x"
    again/y "y"
    keep/moved "moved"
    one "one"
    link -> one
"#;

/// A session that removes all but `keep`, in all ways. The host's clock is a second later then.
fn removing(prepare: impl FnOnce(&Path)) -> World {
    let mut world = World::new(TREE);
    prepare(&world.change_base());
    let last = next_second();
    world.tick(last + 1 - world.now());
    world.remove("one").unwrap();
    world.remove("link").unwrap();
    world.rm_rf("gone");
    world.rm_rf("again");
    world.mkdir("again").unwrap();
    world.put("again/new", "new");
    world.put("dir/tmp", "mine");
    world.rename("dir/tmp", "dir/saved").unwrap();
    world.rename("keep/moved", "dir/over").unwrap();
    world.keep_removed();
    next_second();
    world
}

fn drifted_objects(world: &World) -> u64 {
    let opened = OpenSession::open(&world.session(), Some(&world.base())).unwrap();
    status(&opened).unwrap().touched.drifted
}

fn run(program: &str, args: &[&str], dir: &Path) {
    assert!(Command::new(program).args(args).current_dir(dir).status().unwrap().success());
}

fn touch(base: &Path) {
    run("sh", &["-c", "find . -path ./.git -prune -o -exec touch -h {} +"], base);
}

fn copy_as_archive(base: &Path) {
    let copied = base.with_file_name("copied");
    run("cp", &["-a", base.to_str().unwrap(), copied.to_str().unwrap()], Path::new("/"));
    fs::remove_dir_all(base).unwrap();
    fs::rename(&copied, base).unwrap();
}

fn chmod_and_back(base: &Path) {
    run("chmod", &["-R", "g+w", "."], base);
    run("chmod", &["-R", "g-w", "."], base);
}

fn save_all(base: &Path) {
    for (file, content) in [("one", "one"), ("gone/a", "a"), ("gone/b/c", "c"), ("again/x", "x")] {
        save_by_rename(&base.join(file), content);
    }
    fs::remove_file(base.join("link")).unwrap();
    symlink("one", base.join("link")).unwrap();
}

/// Another branch has none of it, or all with another content.
fn check_out_and_back(base: &Path) {
    git(base, &["checkout", "--quiet", "other"]);
    assert!(!base.join("gone").exists());
    git(base, &["checkout", "--quiet", "-"]);
}

fn in_git(base: &Path) {
    run("chmod", &["-R", "u=rwX,go=rX", "."], base);
    git(base, &["init", "--quiet"]);
    git(base, &["add", "."]);
    git(base, &["commit", "--quiet", "--message=start"]);
    git(base, &["checkout", "--quiet", "-b", "other"]);
    git(base, &["rm", "-r", "--quiet", "gone", "again", "link"]);
    for file in ["one", "dir/over", "dir/saved"] {
        fs::write(base.join(file), "other").unwrap();
    }
    git(base, &["commit", "--quiet", "--all", "--message=other"]);
    git(base, &["checkout", "--quiet", "-"]);
}

/// What is removed, with all that is in it, or replaced by another object.
fn check_same(prepare: fn(&Path), change: fn(&Path)) {
    let mut world = removing(prepare);
    let before = told(&world);
    assert!(!before.concat().contains("drifted"), "{before:?}");
    let (patch, _) = patched::text(&world.session(), &world.base());
    let base = world.change_base();
    let wanted = merged(&world.session(), Some(&base));
    change(&base);
    assert_eq!(told(&world), before);
    assert_eq!(drifted_objects(&world), 0);
    let (text, left_out) = patched::text(&world.session(), &base);
    assert_eq!(left_out.unknown, []);
    assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&patch));
    // What the log no longer says, what was kept of it does.
    world.prune_log();
    let opened = open(&world);
    assert_eq!(planned(&opened, None, &all()).unwrap().drifted, []);
    let report = applied(&opened, None, &all()).unwrap();
    assert_eq!(report.skipped, []);
    let names = |tree: &crate::support::applied::Exact| tree.keys().cloned().collect::<Vec<_>>();
    let outside_git = |path: &Vec<u8>| !path.starts_with(b".git/");
    let [got, wanted] = [on_host(&base), wanted]
        .map(|tree| names(&tree).into_iter().filter(outside_git).collect::<Vec<_>>());
    assert_eq!(got, wanted);
}

#[test]
fn what_was_touched_has_not_drifted() {
    check_same(|_| {}, touch);
}

#[test]
fn a_copy_with_cp_has_not_drifted() {
    check_same(|_| {}, copy_as_archive);
}

#[test]
fn another_mode_there_and_back_is_no_drift() {
    check_same(|_| {}, chmod_and_back);
}

#[test]
fn what_was_saved_by_a_rename_has_not_drifted() {
    check_same(|_| {}, save_all);
}

#[test]
fn another_branch_there_and_back_is_no_drift() {
    check_same(in_git, check_out_and_back);
}

/// Changes a file and leaves its size and mtime as they were.
fn edit(file: &Path) {
    let before = fs::metadata(file).unwrap();
    let content = fs::read(file).unwrap().to_ascii_uppercase();
    fs::write(file, content).unwrap();
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}

/// Each change alone is seen by all who look.
#[test]
fn what_has_another_content_has_drifted() {
    type Way = fn(&Path);
    let ways: [(Way, &str, DriftReason); 10] = [
        (|base| edit(&base.join("one")), "/one", DriftReason::ChangedSinceDeleted),
        (|base| edit(&base.join("gone/a")), "/gone/a", DriftReason::ChangedSinceDeleted),
        (|base| edit(&base.join("gone/b/c")), "/gone/b/c", DriftReason::ChangedSinceDeleted),
        (|base| edit(&base.join("again/x")), "/again/x", DriftReason::ChangedSinceDeleted),
        (|base| edit(&base.join("dir/saved")), "/dir/saved", DriftReason::Conflict),
        (|base| edit(&base.join("dir/over")), "/dir/over", DriftReason::Came),
        (
            |base| {
                fs::set_permissions(base.join("one"), fs::Permissions::from_mode(0o777)).unwrap();
            },
            "/one",
            DriftReason::ChangedSinceDeleted,
        ),
        (
            |base| {
                fs::remove_file(base.join("link")).unwrap();
                symlink("two", base.join("link")).unwrap();
            },
            "/link",
            DriftReason::ChangedSinceDeleted,
        ),
        (
            |base| fs::write(base.join("gone/b/new"), "theirs").unwrap(),
            "/gone/b/new",
            DriftReason::ChangedSinceDeleted,
        ),
        (
            |base| fs::write(base.join("again/theirs"), "theirs").unwrap(),
            "/again/theirs",
            DriftReason::ChangedSinceDeleted,
        ),
    ];
    for (way, path, why) in ways {
        let mut world = removing(|_| {});
        let base = world.change_base();
        way(&base);
        let opened = open(&world);
        let plan = planned(&opened, None, &all()).unwrap();
        let drifted: Vec<_> =
            plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect();
        assert_eq!(drifted, [(path.to_owned(), why)]);
        let before = on_host(&base);
        let refused = applied(&opened, None, &all());
        assert!(matches!(refused, Err(InspectError::Refused { .. })), "{path}: {refused:?}");
        assert_same(&on_host(&base), &before);
        assert_eq!(drifted_objects(&world), 1, "{path}");
        assert!(told(&world).concat().contains("drifted"), "{path}: {:?}", told(&world));
        let (_, left_out) = patched::text(&world.session(), &base);
        let unknown: Vec<_> =
            left_out.unknown.iter().map(|path| path.display().to_string()).collect();
        // What something else took the place of is kept with its content.
        let is_kept = path.starts_with("/dir/");
        assert_eq!(unknown, if is_kept { vec![] } else { vec![path] }, "{path}");
    }
}
