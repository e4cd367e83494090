//! `acetate restore` of paths.

use std::fs;

use super::checkpoint::ask;
use super::restore::{Place, forget_originals, pause};

const BASE: &str = "src/a \"base a\"\nsrc/b \"base b\"\nc \"c\"\n";

#[test]
fn some_paths_go_back() {
    for is_served in [true, false] {
        let place = Place::new(BASE, is_served);
        place.does("checkpoint create SESSION before");
        for words in ["rm SESSION -r src", "mv SESSION c d", "mkdir SESSION new"] {
            place.does(words);
        }
        let asks = place.said(2, "restore SESSION before src/a");
        assert!(asks.contains("cannot ask without a terminal"), "{asks}");
        let plan = place.said(0, "restore SESSION before src/a c --dry-run");
        assert_eq!(
            plan,
            "R /d -> /c\nA /src/a\nA /src/ (goes along)\n\
             would restore checkpoint 1 (before): 2 added, 1 renamed\n"
        );
        assert_eq!(place.said(0, "ls SESSION"), "d\nnew\n", "a dry run changes nothing");
        let done = place.said(0, "restore SESSION before src/a c --yes");
        assert_eq!(
            done,
            "restored checkpoint 1 (before): 2 added, 1 renamed\n\
             the tree before is checkpoint 2: `acetate undo SESSION` brings it back\n"
                .replace("SESSION", place.world.session().to_str().unwrap())
        );
        assert_eq!(place.said(0, "ls SESSION"), "c\nnew\nsrc\n");
        assert_eq!(place.said(0, "ls SESSION src"), "a\n");
        assert_eq!(place.said(0, "cat SESSION src/a"), "base a");
        let nothing = place.said(1, "restore SESSION before src/a --yes");
        assert_eq!(nothing, "nothing differs from checkpoint 1 (before) there\n");
        let never = place.said(2, "restore SESSION before src/bb --yes");
        assert!(never.contains("/src/bb: neither there now nor at the checkpoint"), "{never}");
        assert!(never.contains("similar paths: /src/b\n"), "{never}");

        let log = place.said(0, "log SESSION --op restore");
        let paths: Vec<_> =
            log.lines().map(|line| line.split_whitespace().nth(4).unwrap()).collect();
        assert_eq!(paths, ["/c", "/d", "/src", "/src/a"], "{log}");
        let log = place.said(0, "log SESSION src/a --op restore");
        assert_eq!(log.lines().count(), 2, "{log}");
        for expected in ["d\nnew\n", "c\nnew\nsrc\n"] {
            place.does("undo SESSION --yes");
            assert_eq!(place.said(0, "ls SESSION"), expected);
        }
        assert_eq!(place.said(0, "ls SESSION src"), "a\n");
        place.does("restore SESSION before / --yes");
        assert_eq!(place.said(0, "ls SESSION"), "c\nsrc\n", "the root is the whole tree");
        place.end();
    }
}

#[test]
fn what_goes_along_is_marked_in_json() {
    let place = Place::new(BASE, false);
    place.does("checkpoint create SESSION");
    place.does("mv SESSION src gone");
    place.does("rm SESSION c");
    let json = ask(&place.world, "restore SESSION 1 gone/a c --yes --json");
    let json = String::from_utf8(json.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let marks: Vec<_> = lines.iter().map(|line| (&line["path"], &line["goes_along"])).collect();
    let (yes, no, none) = (&true.into(), &false.into(), &serde_json::Value::Null);
    assert_eq!(marks, [(&"/c".into(), no), (&"/src".into(), yes), (none, none)], "{json}");
    assert_eq!(lines[2]["changes"], 2);
    assert_eq!(place.said(0, "ls SESSION src"), "a\nb\n");
    place.end();
}

/// As a restore of the whole tree, one of paths says nothing of when the session hid a base object
/// there; and rows of other paths stay.
#[test]
fn what_the_base_changed_is_noticed_across_a_restore_of_paths() {
    let mut place = Place::new("a \"a\"\nb \"b\"\nc \"c\"\nd \"d\"\n", false);
    let base = place.world.change_base();
    // The session hides /a before the checkpoint, and shows it afterwards.
    place.does("rm SESSION a");
    place.does("checkpoint create SESSION");
    pause();
    fs::write(base.join("a"), "edited by hand").unwrap();
    place.does("discard SESSION a");
    // The session hides the others only after the checkpoint.
    place.does("rm SESSION b");
    place.does("rm SESSION c");
    place.does("mv SESSION d e");
    pause();
    for name in ["b", "c", "d"] {
        fs::write(base.join(name), "edited too").unwrap();
    }
    // What is kept of originals would tell as well.
    forget_originals(&place);
    place.does("restore SESSION 1 a b d --yes");
    place.does("rm SESSION b");
    place.does("rm SESSION d");
    forget_originals(&place);
    let refused = place.said(1, "apply SESSION --yes");
    assert!(refused.contains("! /a: ") && refused.contains("! /c"), "{refused}");
    assert!(!refused.contains("! /b") && !refused.contains("! /d"), "{refused}");
    assert_eq!(fs::read_to_string(base.join("a")).unwrap(), "edited by hand");
    place.end();
}

/// The rows of the log at a path, without their times and users; `!` for those that were taken
/// back.
fn rows(place: &Place) -> Vec<String> {
    let log = place.said(0, "log SESSION");
    let row = |line: &str| {
        let words: Vec<_> = line.split_whitespace().skip(3).collect();
        let row = words.join(" ");
        row.strip_suffix(" (taken back)").map_or(row.clone(), |row| format!("! {row}"))
    };
    log.lines().map(row).collect()
}

#[test]
fn the_log_marks_what_was_taken_back_at_the_paths() {
    let place = Place::new(BASE, false);
    place.does("checkpoint create SESSION");
    for words in ["rm SESSION src/a", "rm SESSION src/b", "mv SESSION c d"] {
        place.does(words);
    }
    place.does("restore SESSION 1 src/a d --yes");
    place.does("rm SESSION src/a");
    let restored = |path| format!("RESTORE {path} checkpoint 1");
    let of_paths = [
        "! REMOVE /src/a".to_owned(),
        "REMOVE /src/b".to_owned(),
        "! RENAME /c -> /d".to_owned(),
        restored("/c"),
        restored("/d"),
        restored("/src/a"),
        "REMOVE /src/a".to_owned(),
    ];
    assert_eq!(rows(&place), of_paths);
    // Undone in two steps: what came after the restore, and the restore.
    let undone = place.said(0, "undo SESSION --yes");
    assert!(
        undone
            .contains("takes back the restore of 3 paths from checkpoint 1, and changes of /src/a"),
        "{undone}"
    );
    assert_eq!(place.said(0, "ls SESSION"), "d\nsrc\n");
    assert_eq!(place.said(0, "ls SESSION src"), "");
    let of_all = rows(&place);
    assert_eq!(of_all[..3], ["REMOVE /src/a", "REMOVE /src/b", "RENAME /c -> /d"]);
    assert!(of_all[3..7].iter().all(|row| row.starts_with("! ")), "{of_all:?}");
    assert_eq!(of_all[7..], ["RESTORE / checkpoint 2"]);
    // And the undo of that.
    place.does("undo SESSION --yes");
    assert_eq!(rows(&place)[..7], of_paths);
    assert_eq!(place.said(0, "ls SESSION"), "c\nsrc\n");
    place.end();
}

#[test]
fn an_undo_takes_back_a_restore_of_one_path() {
    for is_served in [true, false] {
        let place = Place::new(BASE, is_served);
        place.does("checkpoint create SESSION");
        place.does("rm SESSION src/a");
        place.does("rm SESSION c");
        place.does("restore SESSION 1 src/a --yes");
        let undone = place.said(0, "undo SESSION --yes");
        assert!(
            undone.contains("takes back the restore of /src/a from checkpoint 1\n"),
            "{undone}"
        );
        assert_eq!(place.said(0, "ls SESSION src"), "b\n");
        assert_eq!(place.said(0, "ls SESSION"), "src\n");
        // A restore of all takes back what one of paths left, and that one.
        place.does("undo SESSION --yes");
        place.does("restore SESSION 1 --yes");
        assert_eq!(place.said(0, "ls SESSION src"), "a\nb\n");
        assert_eq!(place.said(0, "ls SESSION"), "c\nsrc\n");
        let rows = rows(&place);
        let (last, all) = rows.split_last().unwrap();
        assert!(all.iter().all(|row| row.starts_with("! ")), "{rows:?}");
        assert_eq!(last, "RESTORE / checkpoint 1");
        place.end();
    }
}

#[test]
fn an_incomplete_checkpoint_needs_force_for_paths_too() {
    let place = Place::new(BASE, false);
    place.does("checkpoint create SESSION before");
    place.does("rm SESSION src/a");
    let conn = rusqlite::Connection::open(place.world.session()).unwrap();
    conn.execute_batch("UPDATE acetate_checkpoint SET incomplete = 'no-room'").unwrap();
    drop(conn);
    let refused = place.said(2, "restore SESSION before src/a --yes");
    assert!(refused.contains("checkpoint 1 (before) is incomplete"), "{refused}");
    assert_eq!(place.said(0, "ls SESSION src"), "b\n");
    let warned = place.said(0, "restore SESSION before src/a --yes --force");
    assert!(warned.contains("warning: checkpoint 1 (before) is incomplete"), "{warned}");
    assert_eq!(place.said(0, "ls SESSION src"), "a\nb\n");
    place.end();
}

/// A discard of one name of a file makes another file of the rest, in one row of the session.
#[test]
fn a_file_that_a_discard_parted_goes_back_with_all_its_names() {
    let place = Place::new("d/a \"a\"\n", false);
    place.does("ln SESSION d/a e");
    place.does("checkpoint create SESSION before");
    place.does("discard SESSION d/a --no-checkpoint");
    place.does("mv SESSION e f");
    let precious = place.world.scratch().join("precious");
    fs::write(&precious, "precious").unwrap();
    place.does(&format!("cp SESSION {} :/f", precious.display()));
    let plan = place.said(0, "restore SESSION before e --dry-run");
    assert!(plan.contains("D /f (goes along)\n"), "{plan}");
    place.does("restore SESSION before e --yes");
    assert_eq!(place.said(0, "find SESSION"), "/\n/d\n/d/a\n/e\n");
    place.does("undo SESSION --yes");
    assert_eq!(place.said(0, "cat SESSION f"), "precious");
    place.end();
}

#[test]
fn names_that_a_discard_parted_come_together_only_if_that_is_told() {
    let place = Place::new("d/a \"a\"\n", false);
    place.does("ln SESSION d/a e");
    place.does("checkpoint create SESSION before");
    place.does("discard SESSION d/a --no-checkpoint");
    place.does("mkdir SESSION d/new");
    place.does("restore SESSION before d --yes");
    let log = place.said(0, "log SESSION --op restore");
    assert!(log.contains(" /e ") && log.contains(" /d "), "{log}");
    place.end();
}
