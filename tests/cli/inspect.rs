//! The tools that look into a session: ls, tree, cat, stat, find, du, diff.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::program::{acetate, failure, run};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/sub/deep "deep"
    large "0123456789"
    link -> dir/file
"#;

/// What the command prints about the world's session; it exits with `code`.
#[track_caller]
fn says(world: &World, code: i32, command: &str, args: &[&str]) -> String {
    let output = ask(world, command, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.is_empty(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ask(world: &World, command: &str, args: &[&str]) -> Output {
    let session = world.session();
    let all = [&[command, session.to_str().unwrap()], args].concat();
    run(world.scratch(), &all)
}

/// The objects that a command prints with `--json`, each of this type.
#[track_caller]
fn objects(world: &World, code: i32, command: &str, args: &[&str], what: &str) -> Vec<Value> {
    let text = says(world, code, command, &[args, &["--json"]].concat());
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for object in &objects {
        assert_eq!((&object["v"], &object["type"]), (&Value::from(1), &Value::from(what)));
    }
    objects
}

#[test]
fn ls_shows_both_layers() {
    let world = World::new(TREE);
    world.put("new", "new");
    world.write("large", 0, b"X").unwrap();
    assert_eq!(says(&world, 0, "ls", &[]), "dir\nlarge\nlink\nnew\n");
    assert_eq!(says(&world, 0, "ls", &["dir", "large"]), "/dir:\nfile\nsub\n/large\n");
    let long = says(&world, 0, "ls", &["-l"]);
    let layers: Vec<&str> = long.lines().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(layers, ["base", "copied", "base", "session"]);
    assert!(long.contains(" lrwxrwxrwx "), "{long}");
    let json = objects(&world, 0, "ls", &[], "object");
    assert_eq!(json[1]["path"], "/large");
    assert_eq!((&json[1]["layer"], &json[1]["size"]), (&"copied".into(), &10.into()));
}

#[test]
fn names_cannot_steer_the_terminal() {
    let world = World::plain();
    world.put("\x1b[2Jred\n", "x");
    world.create(b"\xff", acetate::vfs::CreateHow::Guarded(Default::default())).unwrap();
    assert_eq!(says(&world, 0, "ls", &[]), "\\u{1b}[2Jred\\n\n\\xff\n");
    let json = objects(&world, 0, "ls", &[], "object");
    assert_eq!(json[0]["path"], "/\x1b[2Jred\n");
    assert_eq!(json[1]["path_hex"], "2fff");
}

#[test]
fn names_that_turn_text_around_reach_neither_terminal_nor_json() {
    let world = World::plain();
    let name = "a\u{202e}b\u{9b}31m\u{2066}c\u{2028}d\u{200b}\u{feff}\u{e0041}";
    world.mkdir(name).unwrap();
    world.put(format!("{name}/x"), "x");
    let escaped = r"a\u{202e}b\u{9b}31m\u{2066}c\u{2028}d\u{200b}\u{feff}\u{e0041}";
    for (command, args) in [
        ("ls", &[][..]),
        ("tree", &[]),
        ("diff", &[]),
        ("find", &[]),
        ("du", &[]),
        ("log", &[]),
        ("ls", &["--json"]),
        ("diff", &["--json"]),
        ("find", &["--json"]),
        ("log", &["--json"]),
        // Fails, and says what is missing.
        ("cat", &[&format!("{name}/y")[..]]),
        ("ls", &[&format!("{name}/x/y")[..]]),
    ] {
        let output = ask(&world, command, args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        let is_raw =
            |c: &char| "\u{202e}\u{9b}\u{2066}\u{2028}\u{200b}\u{feff}\u{e0041}".contains(*c);
        assert_eq!(said.chars().find(is_raw), None, "{command} {args:?}: {said}");
        let shown = [escaped, r"a\u202eb\u009b31m\u2066c\u2028d\u200b\ufeff\udb40\udc41"];
        assert!(shown.iter().any(|name| said.contains(name)), "{command} {args:?}: {said}");
    }
    let json = objects(&world, 0, "ls", &[], "object");
    assert_eq!(json[0]["path"], format!("/{name}"));
}

#[test]
fn tree_marks_what_is_in_the_session() {
    let world = World::new(TREE);
    world.put("dir/sub/new", "new");
    let drawn = says(&world, 0, "tree", &[]);
    assert_eq!(
        drawn,
        "/\n├── dir *\n│   ├── file\n│   └── sub *\n│       ├── deep\n│       └── new +\n\
         ├── large\n└── link -> dir/file\n\n2 directories, 5 files\n"
    );
    assert_eq!(says(&world, 0, "tree", &["dir", "-L", "1"]).lines().count(), 5);
    let changed = says(&world, 0, "tree", &["--changed"]);
    assert_eq!(
        changed,
        "/\n└── dir *\n    └── sub *\n        └── new +\n\n2 directories, 1 file\n"
    );
}

#[test]
fn cat_prints_files_as_they_are_now() {
    let world = World::new(TREE);
    world.write("large", 3, b"abc").unwrap();
    assert_eq!(says(&world, 0, "cat", &["large", "/dir/file"]), "012abc6789content");
    let output = ask(&world, "cat", &["dir"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: /dir: is a directory\n");
}

#[test]
fn cat_and_cp_do_not_write_the_zeros_of_a_huge_hole() {
    use crate::support::client::size;
    use std::os::unix::fs::MetadataExt;
    let mut world = World::new(TREE);
    for (name, bytes) in [("sparse", 1 << 40), ("huge", 1 << 62)] {
        world.put(name, "begin");
        world.setattr(name, size(bytes)).unwrap();
    }
    let output = ask(&world, "cat", &["huge", "dir/file"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b"content"[..]), "{said}");
    assert!(said.contains("left out: /huge") && said.contains("--holes"), "{said}");
    std::fs::create_dir(world.scratch().join("out")).unwrap();
    let output = ask(&world, "cp", &[":huge", ":sparse", ":dir/file", "out"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let copied = world.scratch().join("out/sparse").metadata().unwrap();
    assert!(copied.len() == 1 << 40 && copied.blocks() < 2048, "{said}");
    assert_eq!(std::fs::read(world.scratch().join("out/file")).unwrap(), b"content");
    if !world.scratch().join("out/huge").exists() {
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(":/huge") && said.contains("4611686018427387904"), "{said}");
    }
    world.close();
    let output = ask(&world, "cp", &[":sparse", ":copy"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(":/sparse"), "{said}");
}

#[test]
fn stat_tells_where_an_object_comes_from() {
    let world = World::new(TREE);
    world.rename("dir/file", "moved").unwrap();
    let said = says(&world, 0, "stat", &["moved", "link"]);
    assert!(said.contains("/moved\n") && said.contains("  layer   copied\n"), "{said}");
    assert!(said.contains("  origin  dir/file\n"), "{said}");
    assert!(said.contains("/link -> dir/file\n"), "{said}");
    let json = objects(&world, 0, "stat", &["moved", "link"], "object");
    assert_eq!(json[0]["fileid"], world.stat("moved").fileid.0);
    assert_eq!(json[0]["origin"], "dir/file");
    assert_eq!(json[1]["target"], "dir/file");
}

#[test]
fn find_looks_for_all_that_is_asked() {
    let world = World::new(TREE);
    world.put("dir/sub/new.txt", "new");
    let find = |args: &[&str]| says(&world, 0, "find", args);
    assert_eq!(find(&["--name", "*.txt"]), "/dir/sub/new.txt\n");
    assert_eq!(find(&["dir", "--type", "directory"]), "/dir\n/dir/sub\n");
    assert_eq!(find(&["--path", "/dir/*"]), "/dir/file\n/dir/sub\n");
    assert_eq!(find(&["--path", "/dir/**", "--type", "f", "--changed"]), "/dir/sub/new.txt\n");
    assert_eq!(find(&["--larger", "9"]), "/large\n");
    assert_eq!(find(&["--newer", "2033-01-01", "--type", "f"]), "/dir/sub/new.txt\n");
    assert_eq!(says(&world, 1, "find", &["--name", "nothing"]), "");
    let output = ask(&world, "find", &["--name", "[", "--type", "f"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn du_counts_each_file_once() {
    let world = World::new(TREE);
    world.put("new", &"x".repeat(5000));
    world.link("new", "dir/again").unwrap();
    let rows = objects(&world, 0, "du", &["--depth", "0"], "usage");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["objects"], 9 - 1, "the second name is counted as no object");
    assert_eq!(row["session"], 5120);
    assert_eq!(row["size"], 7 + 4 + 10 + 8 + 5000);
    let said = says(&world, 0, "du", &[]);
    let paths: Vec<&str> = said.lines().map(|l| l.split_whitespace().last().unwrap()).collect();
    assert_eq!(paths, ["/dir", "/"]);
}

#[test]
fn diff_exits_with_1_where_there_is_one() {
    let world = World::new(TREE);
    assert_eq!(says(&world, 0, "diff", &[]), "");
    world.write("large", 0, b"X").unwrap();
    world.put("dir/new", "new");
    world.rename("dir/sub", "sub").unwrap();
    world.chmod("dir/file", 0o600).unwrap();
    let said = says(&world, 1, "diff", &[]);
    let mode = world.base_mode("dir/file");
    let lines: Vec<&str> = said.lines().collect();
    let chmod = format!("M /dir/file (mode {mode:04o} -> 0600)");
    assert_eq!(lines, [&chmod, "A /dir/new", "M /large", "R /dir/sub -> /sub/"]);
    assert_eq!(says(&world, 1, "diff", &["--name-only", "dir"]), "/dir/file\n/dir/new\n/sub/\n");
    assert_eq!(says(&world, 0, "diff", &["link"]), "");
    let stat = says(&world, 1, "diff", &["--stat"]);
    assert_eq!(
        stat,
        format!(
            "M /dir/file         | mode {mode:04o} -> 0600\nA /dir/new          | 1 +\n\
             M /large            | 2 +-\nR /dir/sub => /sub/ | 1 file\n\
             4 changes: 1 added, 2 modified, 1 renamed\n\
             (1 directory, 1 only in mode or owner)\n\
             besides: 1 file moved with its directory\n \
             3 files changed, 2 insertions(+), 1 deletion(-)\n"
        )
    );
    let json = objects(&world, 1, "diff", &[], "difference");
    assert_eq!((&json[3]["change"], &json[3]["from"]), (&"renamed".into(), &"/dir/sub".into()));
    assert_eq!(json[2]["content"], true);
    assert_eq!(json[0]["before"]["mode"], format!("{mode:04o}"));
    assert_eq!(json[0]["after"]["mode"], "0600");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let world = World::plain();
    for number in 0..3000 {
        world
            .create(
                format!("file-{number}-{}", "x".repeat(40)),
                acetate::vfs::CreateHow::Guarded(Default::default()),
            )
            .unwrap();
    }
    let program = env!("CARGO_BIN_EXE_acetate");
    let session = world.session();
    for command in ["ls", "find", "tree", "diff"] {
        let line = format!("{program} {command} {}; echo $? >&2", session.display());
        let piped = format!("({line}) | head -1");
        let output = Command::new("sh").args(["-c", &piped]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.trim(), "0", "{command}: {said}");
        assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1);
    }
}

#[test]
fn a_base_that_is_elsewhere_is_asked_for() {
    let mut world = World::new(TREE);
    world.put("new", "new");
    world.close();
    let moved = world.scratch().join("moved");
    std::fs::rename(world.change_base(), &moved).unwrap();
    let said = failure(world.scratch(), &["ls", "session.db"]);
    assert!(said.contains("/base: ") && said.contains("--base DIR"), "{said}");
    let output = run(world.scratch(), &["ls", "session.db", "--base", "moved"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "dir\nlarge\nlink\nnew\n");
    std::fs::rename(&moved, world.base()).unwrap();
    world.open_again();
}

#[test]
fn wrong_paths_and_sessions_are_errors() {
    let world = World::new(TREE);
    for (args, message) in [
        (&["nowhere"][..], "/nowhere: no such file or directory"),
        (&["dir/file/below"], "/dir/file/below: no such file or directory"),
        (&["../etc"], "../etc: not a path in the session's tree"),
    ] {
        let output = ask(&world, "ls", args);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {message}\n"));
    }
    let said = failure(world.scratch(), &["stat", "missing.db", "/"]);
    assert!(said.contains("missing.db: no such session"), "{said}");
    let mut without = acetate(Path::new("."), &["stat"]);
    assert_eq!(without.output().unwrap().status.code(), Some(2));
}
