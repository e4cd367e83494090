//! Changed texts in hunks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;

use acetate::delta::MergedPath;
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::hunks::{
    ChosenHunks, DiffPieces, DiscardStep, FileHunks, HunkId, Pick, Sign, pieces, whole_id, without,
};
use acetate::inspect::opened::OpenSession;

use super::apply::{open, path};
use crate::support::world::World;

/// The pieces of all differences, by path.
pub fn all_pieces(opened: &OpenSession) -> Vec<(String, DiffPieces)> {
    let mut all = Vec::new();
    diff(opened, &DiffOptions::default(), &mut |view, difference| {
        let found = pieces(opened, view, &difference)?;
        all.push((difference.path.display().to_string(), found));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}

/// The hunks of the only text that changed.
#[track_caller]
pub fn file(world: &World, at: &str) -> FileHunks {
    let at = path(at).display().to_string();
    let found = all_pieces(&open(world)).into_iter().find(|(path, _)| *path == at);
    match found.expect("it changed").1 {
        DiffPieces::File(file) => *file,
        DiffPieces::Whole(id) => panic!("it is whole: {id}"),
    }
}

/// Each hunk with its header and lines.
fn shown(file: &FileHunks, context: usize) -> Vec<String> {
    let show = |at: usize| {
        let mut lines = String::new();
        let head = file.text.show(at..at + 1, context, &mut |sign, line| {
            let sign = match sign {
                Sign::Context => ' ',
                Sign::Old => '-',
                Sign::New => '+',
            };
            lines.push(sign);
            lines.push_str(&String::from_utf8_lossy(line));
        });
        format!("{head}\n{lines}")
    };
    (0..file.text.hunks.len()).map(show).collect()
}

fn ids(file: &FileHunks) -> Vec<HunkId> {
    file.ids().collect()
}

fn text(lines: impl IntoIterator<Item = u32>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

fn world(old: &str) -> World {
    let old = old.escape_default();
    World::new(&format!("file \"{old}\"\ngone \"gone\\n\"\nbinary \"a\\n\"\n"))
}

#[test]
fn runs_of_changed_lines_are_hunks() {
    let world = world(&text(1..=12));
    world.put("file", &text([1, 2, 30, 4, 50, 6, 7, 8, 9, 10, 11, 12, 13]));
    let file = file(&world, "file");
    assert_eq!(
        shown(&file, 3),
        [
            "@@ -1,4 +1,4 @@\n 1\n 2\n-3\n+30\n 4\n",
            "@@ -4,5 +4,5 @@\n 4\n-5\n+50\n 6\n 7\n 8\n",
            "@@ -10,3 +10,4 @@\n 10\n 11\n 12\n+13\n",
        ]
    );
    assert_eq!(shown(&file, 0)[2], "@@ -12,0 +13 @@\n+13\n");
    assert_eq!(file.text.groups(3), [0..2, 2..3]);
    assert_eq!(file.text.groups(0), [0..1, 1..2, 2..3]);
    let some: BTreeSet<_> = [ids(&file)[0], ids(&file)[2]].into();
    let with = String::from_utf8(file.text.with(&some)).unwrap();
    assert_eq!(with, text([1, 2, 30, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]));
    let all = ids(&file).into_iter().collect();
    assert_eq!(file.text.with(&all), world.cat("file").into_bytes());
    assert_eq!(file.text.with(&BTreeSet::new()), text(1..=12).into_bytes());
}

#[test]
fn an_id_does_not_tell_lines_by_their_numbers() {
    let world = world(&text(1..=20));
    world.put("file", &text((1..=20).map(|n| if n % 5 == 0 { n * 10 } else { n })));
    let before = ids(&file(&world, "file"));
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 4);
    // Another hunk above it, and one that is gone.
    let lines = (1..=20).map(|n| if [10, 20].contains(&n) { n * 10 } else { n });
    world.put("file", &text([77, 78].into_iter().chain(lines)));
    let now = ids(&file(&world, "file"));
    assert_eq!(now[1..], [before[1], before[3]]);
    assert_ne!(now[0], before[0]);
    // Of another file.
    world.put("gone", "gone\n5\n");
    assert!(ids(&file(&world, "gone")).iter().all(|id| !before.contains(id)));
}

#[test]
fn equal_hunks_are_told_apart() {
    let world = world(&text([1, 2, 3, 4, 1, 2, 3, 4, 1]));
    world.put("file", &text([1, 2, 9, 3, 4, 1, 2, 9, 3, 4, 1]));
    let two = ids(&file(&world, "file"));
    assert_eq!(two.len(), 2);
    assert_ne!(two[0], two[1]);
    // The one that stays is not taken for either of them.
    world.put("file", &text([1, 2, 9, 3, 4, 1, 2, 3, 4, 1]));
    let one = ids(&file(&world, "file"));
    assert!(!two.contains(&one[0]));
}

#[test]
fn ends_without_a_newline_and_any_bytes() {
    let mut world = world("");
    fs::write(world.change_base().join("file"), b"a\r\nb\r\nc").unwrap();
    world.truncate("file", 0).unwrap();
    world.write("file", 0, b"a\nb\r\nc\n\xff\xfe").unwrap();
    let file = file(&world, "file");
    assert_eq!(
        shown(&file, 0),
        ["@@ -1 +1 @@\n-a\r\n+a\n", "@@ -3 +3,2 @@\n-c+c\n+\u{fffd}\u{fffd}"]
    );
    let last = [ids(&file)[1]].into();
    assert_eq!(file.text.with(&last), b"a\r\nb\r\nc\n\xff\xfe");
}

#[test]
fn what_is_no_changed_text_is_whole() {
    let world = world("text\n");
    world.remove("gone").unwrap();
    world.write("binary", 0, b"\0").unwrap();
    world.put("new", "new\n");
    world.chmod("file", 0o755).unwrap();
    let found = all_pieces(&open(&world));
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/binary", "/file", "/new", "/gone"]);
    let mut seen = BTreeSet::new();
    for (path, pieces) in &found {
        let DiffPieces::Whole(id) = pieces else { panic!("{path}: {pieces:?}") };
        assert!(seen.insert(*id), "{path}");
    }
    // A mode beside lines is a piece of its own.
    world.put("file", "text!\n");
    let file = file(&world, "file");
    let attributes = file.attributes.unwrap();
    assert_eq!((attributes.old[0], attributes.new[0]), (0o644, 0o755));
    assert_eq!(file.text.hunks.len(), 1);
}

/// What giving these up takes, by what was seen.
fn undoings(
    world: &World,
    chosen: &ChosenHunks,
    seen: &BTreeMap<MergedPath, HunkId>,
) -> Vec<DiscardStep> {
    without(&open(world), (chosen, seen)).unwrap()
}

fn seen(world: &World) -> BTreeMap<MergedPath, HunkId> {
    let mut seen = BTreeMap::new();
    diff(&open(world), &DiffOptions::default(), &mut |_, difference| {
        seen.insert(difference.change.path.clone(), whole_id(&difference));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    seen
}

fn whole(paths: &[&str]) -> ChosenHunks {
    paths.iter().map(|at| (path(at), Pick::Whole)).collect()
}

#[test]
fn what_changed_since_it_was_chosen_is_not_given_up() {
    let world = world(&text(1..=9));
    world.put("file", &text([10, 2, 3, 4, 5, 6, 7, 8, 90]));
    world.put("new", "new\n");
    world.remove("gone").unwrap();
    let (before, first) = (seen(&world), ids(&file(&world, "file"))[0]);
    let mut chosen = whole(&["new", "gone"]);
    chosen.insert(path("file"), Pick::Hunks([first].into()));
    let stat = world.stat("file");
    let taken = undoings(&world, &chosen, &before);
    assert_eq!(
        taken,
        [
            DiscardStep::Hunks {
                path: path("file"),
                object: (stat.fileid, stat.ctime),
                content: text([1, 2, 3, 4, 5, 6, 7, 8, 90]).into_bytes(),
                attributes: None,
                hunks: (1, 2),
            },
            DiscardStep::Path(path("gone")),
            DiscardStep::Path(path("new")),
        ]
    );
    world.tick(1);
    world.put("file", &text([11, 2, 3, 4, 5, 6, 7, 8, 90]));
    world.put("new", "newer\n");
    let taken = undoings(&world, &chosen, &before);
    let why = "a client changed it since";
    let stays = |at| DiscardStep::Nothing(path(at), why);
    assert_eq!(taken, [stays("file"), stays("new"), DiscardStep::Path(path("gone"))]);
}

#[test]
fn directories_are_given_up_only_with_all_that_changed_in_them() {
    let world = World::new("moved/file \"one\\n\"\nmode/file \"one\\n\"\nout/file \"x\"\n");
    world.rename("moved", "there").unwrap();
    world.put("there/file", "two\n");
    world.mkdir("new").unwrap();
    world.put("new/file", "new\n");
    world.chmod("mode", 0o700).unwrap();
    world.put("mode/file", "two\n");
    world.rename("out/file", "file").unwrap();
    world.rm_rf("out");
    let seen = seen(&world);
    let taken = |paths: &[&str]| undoings(&world, &whole(paths), &seen);
    let stays = |at| {
        DiscardStep::Nothing(
            path(at),
            "holds changes that are not chosen, and comes back only whole",
        )
    };
    assert_eq!(taken(&["there"]), [stays("there")]);
    assert_eq!(taken(&["there", "there/file"]), [DiscardStep::Path(path("there"))]);
    assert_eq!(taken(&["new"]), [stays("new")]);
    assert_eq!(taken(&["new", "new/file"]), [DiscardStep::Path(path("new"))]);
    assert_eq!(taken(&["out"]), [stays("out")]);
    assert_eq!(
        taken(&["out/file"]),
        [DiscardStep::Nothing(
            path("out/file"),
            "is gone with its directory, and comes back only with that"
        )]
    );
    let [DiscardStep::Attributes(at, [mode, ..])] = &taken(&["mode"])[..] else { panic!() };
    assert_eq!((at, *mode), (&path("mode"), 0o755));
}

#[test]
fn a_move_is_given_up_only_with_what_is_in_its_place() {
    for is_lost in [false, true] {
        let mut world = World::new("out/file \"x\"\nto/kept \"y\"\n");
        world.rename("out/file", "to/file").unwrap();
        world.put("out/file", "new\n");
        if is_lost {
            fs::rename(world.change_base().join("out"), world.scratch().join("out")).unwrap();
        }
        let seen = seen(&world);
        let taken = |paths: &[&str]| undoings(&world, &whole(paths), &seen);
        let why = "holds changes that are not chosen, and comes back only whole";
        assert_eq!(taken(&["to/file"]), [DiscardStep::Nothing(path("to/file"), why)], "{is_lost}");
        let both = ["out/file", "to/file"];
        assert_eq!(taken(&both), both.map(|at| DiscardStep::Path(path(at))), "{is_lost}");
    }
}

#[test]
fn a_file_that_becomes_empty_or_was() {
    let world = World::new("empty \"\"\nfull \"one\\ntwo\\n\"\n");
    world.put("empty", "one\n");
    world.truncate("full", 0).unwrap();
    assert_eq!(shown(&file(&world, "empty"), 3), ["@@ -0,0 +1 @@\n+one\n"]);
    assert_eq!(shown(&file(&world, "full"), 3), ["@@ -1,2 +0,0 @@\n-one\n-two\n"]);
}
