//! `cp`, `rm` and `discard` of many objects: in few transactions, and exact where they fail. Each
//! both where a server has the session and where none does.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::change::{Place, in_both};

/// Makes 600 files in three directories, links to some, a file that is not small, and one with a
/// hole.
fn fill(root: &Path) {
    for dir in ["x", "y", "z"] {
        let dir = root.join(dir);
        fs::create_dir_all(dir.join("empty")).unwrap();
        for at in 0..200 {
            fs::write(dir.join(format!("f{at:03}")), format!("{at}\n").repeat(at)).unwrap();
        }
        std::os::unix::fs::symlink("f000", dir.join("link")).unwrap();
    }
    fs::write(root.join("x/large"), vec![b'l'; 400 << 10]).unwrap();
    fs::File::create(root.join("y/hole")).unwrap().set_len(100 << 10).unwrap();
}

/// Transactions that made rows of this procedure.
fn transactions(place: &Place, procedure: &str) -> u64 {
    let sql = rusqlite::Connection::open(place.host("s.db")).unwrap();
    let query = "SELECT count(DISTINCT time || ' ' || time_nsec) FROM acetate_op
                 WHERE procedure = ?1";
    sql.query_row(query, [procedure], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

fn json(said: &str) -> Value {
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

#[test]
fn many_objects_take_few_transactions() {
    in_both(|place| {
        let inside = place.host("in");
        fill(&inside);
        let said = json(&place.says(0, "cp", &["-r", "in", ":/copied", "--json"]));
        // Besides the files: three links, the directories, and the two other files.
        assert_eq!(said["objects"], 600 + 3 + 7 + 2);
        assert!(transactions(place, "CREATE") < 12, "{}", transactions(place, "CREATE"));
        place.does("cp", &["-r", ":copied", "out"]);
        let diff = Command::new("diff").arg("-r").args([&inside, &place.host("out")]).output();
        let diff = diff.unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        let blocks = |dir: &str| place.host(dir).join("y/hole").metadata().unwrap().blocks();
        assert_eq!((blocks("in"), blocks("out")), (0, 0));
        // Again over what is there.
        place.does("cp", &["-r", "in/.", ":/copied"]);
        let removed = json(&place.says(0, "rm", &["-r", "/copied", "--json"]));
        assert_eq!(removed["removed"], 612);
        assert!(transactions(place, "REMOVE") < 12, "{}", transactions(place, "REMOVE"));
        assert_eq!(place.says(0, "diff", &["--all"]), "");
    });
}

#[test]
fn a_source_that_fails_in_the_middle_keeps_no_other_from_being_copied() {
    in_both(|place| {
        fill(&place.host("in"));
        place.does("mkdir", &["-p", "/dst/y/f100", "/dst/z/f010"]);
        fs::remove_dir_all(place.host("in/z")).unwrap();
        fs::write(place.host("single"), "single").unwrap();
        let args = ["-r", "in/y", "in/x", "single", ":/dst", "--json"];
        let said = place.says(1, "cp", &args);
        assert!(said.ends_with("error: /dst/y/f100: is a directory\n"), "{said}");
        assert_eq!(place.cat("dst/single"), "single");
        let there = |path| place.says(0, "find", &[path]).lines().count() as u64;
        assert_eq!(there("dst/x"), 1 + 1 + 200 + 1 + 1);
        // What it says is what there is, but for the directories that were there.
        let objects: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        let before = ["/dst", "/dst/y/f100", "/dst/z", "/dst/z/f010"].len() as u64;
        assert_eq!(objects["objects"], there("dst") - before);
    });
}

#[test]
fn a_quota_is_filled_to_the_last_file() {
    in_both(|place| {
        fill(&place.host("in"));
        place.says(0, "quota", &["--files", "321"]);
        let said = place.says(2, "cp", &["-r", "in", ":/copied"]);
        assert!(said.contains("hint: `acetate quota SESSION.db` shows what it takes"), "{said}");
        let status = json(&place.says(0, "status", &["--json"]));
        let held = |key: &str| status[key].as_u64().unwrap();
        assert_eq!(held("files") + held("directories") + held("symlinks"), 321);
    });
}

#[test]
fn what_a_host_file_has_is_copied_as_it_was_read() {
    in_both(|place| {
        fs::create_dir(place.host("a")).unwrap();
        fs::create_dir(place.host("b")).unwrap();
        fs::write(place.host("a/same"), "first").unwrap();
        fs::write(place.host("b/same"), "second").unwrap();
        // The later of two that have one target is what stays.
        place.does("cp", &["a/same", "b/same", ":/dir"]);
        assert_eq!(place.cat("dir/same"), "second");
        // A source within the tree may be what an earlier one was copied to.
        place.does("cp", &[":kept", ":/dir/file"]);
        place.does("cp", &[":dir/same", ":/dir/sub"]);
        place.does("cp", &[":kept", ":/dir/sub/deep"]);
        place.does("cp", &["-r", ":dir/sub", ":dir/sub/deep", ":/"]);
        assert_eq!((place.cat("sub/deep"), place.cat("deep")), ("kept".into(), "kept".into()));
    });
}
