//! What a session changed.

use std::ops::ControlFlow;

use acetate::inspect::diff::{DiffOptions, Difference, DifferenceKind, diff};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::selection::Selection;
use acetate::vfs::{CreateHow, FileKind, SetAttr, SetTime, Time};

use crate::support::client::{mode, size};
use crate::support::predicted;
use crate::support::tree::read_tree;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
    dir/sub/deeper "deeper"
    gone/a "a"
    gone/b "b"
    hard/one "linked"
    hard/two = hard/one
    link -> dir/file
"#;

/// The differences with these options.
fn differences(world: &World, options: &DiffOptions) -> Vec<Difference> {
    let base = world.base();
    let opened = OpenSession::open(&world.session(), base.exists().then_some(&*base)).unwrap();
    let mut all = Vec::new();
    diff(&opened, options, &mut |_, difference| {
        all.push(difference);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

/// The differences in words, each the kind's letter and the path, of RENAME both.
#[track_caller]
fn words(world: &World) -> Vec<String> {
    let words = differences(world, &DiffOptions::default()).into_iter().map(|difference| {
        let path = String::from_utf8_lossy(difference.path.as_bytes()).into_owned();
        let before = difference.change.before.as_ref();
        match (difference.kind, before) {
            (DifferenceKind::Renamed, Some(before)) => {
                format!("R {} {path}", String::from_utf8_lossy(before.path.as_bytes()))
            }
            (kind, _) => format!("{} {path}", &format!("{kind:?}")[..1]),
        }
    });
    let words: Vec<String> = words.collect();
    predicted::assert_told(&world.session(), &world.base(), &read_tree(world));
    words
}

#[test]
fn what_was_only_read_does_not_show() {
    let world = World::new(TREE);
    assert_eq!(world.cat("dir/file"), "content");
    world.ls("dir");
    world.tick(100_000);
    assert_eq!(world.cat("dir/file"), "content");
    assert_eq!(words(&world), [""; 0]);
}

#[test]
fn what_was_written_as_it_was_does_not_show() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"content").unwrap();
    world.chmod("dir/other", 0o600).unwrap();
    world.chmod("dir/other", world.base_mode("dir/other")).unwrap();
    assert_eq!(words(&world), [""; 0]);
    world.write("dir/file", 0, b"C").unwrap();
    assert_eq!(words(&world), ["M /dir/file"]);
}

#[test]
fn times_show_where_they_are_asked_for() {
    let world = World::new(TREE);
    world.utimes("dir/file", Time { secs: 5, nanos: 6 }).unwrap();
    assert_eq!(words(&world), [""; 0]);
    let options = DiffOptions { times: true, ..DiffOptions::default() };
    let found = differences(&world, &options);
    assert_eq!(found.len(), 1);
    assert!(found[0].differs.mtime && !found[0].differs.content);
}

#[test]
fn additions_and_deletions() {
    let world = World::new(TREE);
    world.put("new", "new");
    world.mkdir("made").unwrap();
    world.put("made/file", "in it");
    world.remove("dir/other").unwrap();
    world.rm_rf("gone");
    assert_eq!(words(&world), ["A /made", "A /new", "D /gone", "D /dir/other", "A /made/file"]);
}

#[test]
fn a_file_that_was_saved_by_rename_is_modified() {
    let world = World::new(TREE);
    world.put("dir/.file.swp", "edited");
    world.rename("dir/.file.swp", "dir/file").unwrap();
    assert_eq!(words(&world), ["M /dir/file"]);
    world.put("dir/.file.swp", "content");
    world.rename("dir/.file.swp", "dir/file").unwrap();
    world.chmod("dir/file", world.base_mode("dir/file")).unwrap();
    assert_eq!(words(&world), [""; 0], "as it was");
}

#[test]
fn renames_of_files_and_directories() {
    let mut world = World::new(TREE);
    world.rename("dir/file", "moved").unwrap();
    world.write("moved", 0, b"C").unwrap();
    assert_eq!(words(&world), ["R dir/file /moved"]);
    assert!(differences(&world, &DiffOptions::default())[0].differs.content);
    world.rename("dir/sub", "sub").unwrap();
    assert_eq!(words(&world), ["R dir/file /moved", "R dir/sub /sub"]);
    world.remove("sub/deep").unwrap();
    world.write("sub/deeper", 0, b"D").unwrap();
    world.put("sub/new", "new");
    world.reopen();
    let all = words(&world);
    assert_eq!(
        all,
        [
            "R dir/file /moved",
            "R dir/sub /sub",
            "R dir/sub/deeper /sub/deeper",
            "A /sub/new",
            "D /dir/sub/deep"
        ]
    );
}

#[test]
fn a_directory_made_anew_shows_what_it_lacks() {
    let world = World::new(TREE);
    world.rm_rf("gone");
    world.mkdir("gone").unwrap();
    world.chmod("gone", world.base_mode("gone")).unwrap();
    world.put("gone/a", "another a");
    assert_eq!(words(&world), ["M /gone/a", "D /gone/b"]);
}

#[test]
fn a_directory_made_where_one_moved_away_is_new() {
    let world = World::new(TREE);
    world.rename("gone", "elsewhere").unwrap();
    world.mkdir("gone").unwrap();
    world.put("gone/a", "another a");
    assert_eq!(words(&world), ["R gone /elsewhere", "A /gone", "A /gone/a"]);
}

#[test]
fn what_is_of_another_type() {
    let world = World::new(TREE);
    world.rm_rf("gone");
    world.put("gone", "a file");
    world.remove("link").unwrap();
    world.mkdir("link").unwrap();
    assert_eq!(words(&world), ["R /gone", "R /link"]);
    assert!(
        differences(&world, &DiffOptions::default())
            .iter()
            .all(|d| d.kind == DifferenceKind::Retyped)
    );
}

#[test]
fn names_of_one_file_in_the_base() {
    let world = World::new(TREE);
    world.write("hard/one", 0, b"L").unwrap();
    assert_eq!(words(&world), ["M /hard/one", "M /hard/two"], "each shows the change");
    world.remove("hard/one").unwrap();
    assert_eq!(words(&world), ["M /hard/two", "D /hard/one"]);
}

#[test]
fn a_further_name_is_new() {
    let world = World::new(TREE);
    world.link("dir/file", "again").unwrap();
    let found = differences(&world, &DiffOptions::default());
    assert_eq!(words(&world), ["A /again"]);
    assert!(found[0].change.is_link);
}

#[test]
fn droppings_show_where_they_are_asked_for() {
    let world = World::new(TREE);
    let half_written = ".acetate-write-0123456789abcdef";
    for name in [".nfs000123", "._file", ".DS_Store", half_written, ".gitignore"] {
        world.put(name, "x");
    }
    let found = differences(&world, &DiffOptions::default());
    assert_eq!(found.len(), 1);
    let options = DiffOptions { client_temp_files: true, ..DiffOptions::default() };
    assert_eq!(differences(&world, &options).len(), 5);
}

#[test]
fn only_what_was_asked_for() {
    let world = World::new(TREE);
    world.put("dir/new", "new");
    world.put("director", "not below dir");
    world.rename("dir/file", "moved").unwrap();
    let path = |text: &str| acetate::delta::MergedPath::from_user(text.as_bytes()).unwrap();
    let options =
        DiffOptions { selection: Selection::of([path("dir/")]), ..DiffOptions::default() };
    let found: Vec<_> = differences(&world, &options).into_iter().map(|d| d.path).collect();
    assert_eq!(found, [path("moved"), path("dir/new")], "came from there, or is there");
}

#[test]
fn a_base_that_changed_meanwhile_is_told_of() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"C").unwrap();
    assert!(!differences(&world, &DiffOptions::default())[0].change.is_drifted);
    std::fs::write(world.change_base().join("dir/file"), "by somebody else").unwrap();
    let found = differences(&world, &DiffOptions::default());
    assert!(found[0].change.is_drifted);
}

#[test]
fn a_session_without_a_base_has_only_additions() {
    let world = World::plain();
    world.put("file", "new");
    world.set(&world.at("file"), SetAttr { atime: SetTime::ServerNow, ..size(2) }, None);
    world.create("empty", CreateHow::Guarded(mode(0o600))).unwrap();
    let found = differences(&world, &DiffOptions::default());
    assert!(found.iter().all(|difference| difference.kind == DifferenceKind::Added));
    let after = |d: &Difference| d.change.after.as_ref().unwrap().attr().kind;
    assert_eq!(found.iter().map(after).collect::<Vec<_>>(), [FileKind::Regular; 2]);
}

#[test]
fn what_is_back_at_its_path_in_another_directory_is_renamed() {
    let world = World::new(TREE);
    world.rename("dir", "moved").unwrap();
    world.mkdir("dir").unwrap();
    world.rename("moved/file", "dir/file").unwrap();
    assert_eq!(words(&world), ["A /dir", "R dir /moved", "R dir/file /dir/file"]);
}
