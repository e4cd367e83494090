//! What the commands say of checkpoints: counts, names, marks in the log, and those of forks.

use serde_json::Value;

use super::checkpoint::ask;
use super::restore::Place;

/// How many paths changed before each checkpoint.
fn changed(place: &Place) -> Vec<u64> {
    let listed = String::from_utf8(ask(&place.world, "checkpoint ls SESSION --json").stdout);
    let count = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        json["changed_paths"].as_u64().unwrap()
    };
    listed.unwrap().lines().map(count).collect()
}

#[test]
fn a_restore_counts_with_the_paths_that_it_changes() {
    let place = Place::new("a \"a\"\nb \"b\"\nc \"c\"\n", false);
    place.does("mkdir SESSION dir");
    place.does("checkpoint create SESSION");
    for name in ["a", "b", "c"] {
        place.does(&format!("rm SESSION {name}"));
    }
    place.does("checkpoint create SESSION");
    place.does("mkdir SESSION more");
    let restored = place.said(0, "restore SESSION 1 --yes");
    assert!(
        restored.contains(" of the session\n") && restored.contains(" --from 3`"),
        "{restored}"
    );
    place.does("checkpoint create SESSION");
    assert_eq!(changed(&place), [1, 3, 1, 4], "three removed, one made");
    place.does("restore SESSION 2 --yes");
    place.does("checkpoint create SESSION");
    assert_eq!(changed(&place), [1, 3, 1, 4, 3], "three removed again");
    place.does("mkdir SESSION more");
    place.does("restore SESSION 2 --yes");
    place.does("checkpoint create SESSION");
    assert_eq!(changed(&place), [1, 3, 1, 4, 3, 1, 1], "the one that was made");
    place.end();
}

#[test]
fn a_restore_of_paths_counts_with_the_paths_that_it_changes() {
    let place = Place::new("a \"a\"\nb \"b\"\nd/in/x \"x\"\n", false);
    place.does("checkpoint create SESSION");
    for words in ["rm SESSION a", "rm SESSION b", "rm SESSION -r d"] {
        place.does(words);
    }
    place.does("checkpoint create SESSION");
    place.does("restore SESSION 1 a d/in/x --yes");
    place.does("checkpoint create SESSION");
    // The file and its directories were removed, and came back.
    assert_eq!(changed(&place), [0, 5, 4]);
    place.does("restore SESSION 2 a --yes");
    place.does("checkpoint create SESSION");
    assert_eq!(changed(&place), [0, 5, 4, 1]);
    place.does("restore SESSION 1 --yes");
    place.does("checkpoint create SESSION");
    assert_eq!(changed(&place), [0, 5, 4, 1, 4], "a and b, and the directories that were alone");
    place.end();
}

#[test]
fn the_log_marks_what_a_restore_took_back() {
    let place = Place::new("a \"a\"\nb \"b\"\n", false);
    place.does("checkpoint create SESSION");
    place.does("rm SESSION a");
    place.does("restore SESSION 1 --yes");
    place.does("rm SESSION b");
    let marked = |place: &Place| {
        let log = place.said(0, "log SESSION");
        let json = String::from_utf8(ask(&place.world, "log SESSION --json").stdout).unwrap();
        let is_marked = |line: &str| {
            let json: Value = serde_json::from_str(line).unwrap();
            json.get("is_taken_back").is_some_and(|mark| mark == true)
        };
        let marks: Vec<_> = log.lines().map(|line| line.ends_with("  (taken back)")).collect();
        assert_eq!(json.lines().map(is_marked).collect::<Vec<_>>(), marks);
        marks
    };
    assert_eq!(marked(&place), [true, false, false]);
    // An undo of the restore: its row is taken back, and what it took back is not any more.
    place.does("restore SESSION 2 --yes");
    assert_eq!(marked(&place), [false, true, true, false]);
    place.end();
}

#[test]
fn a_misspelt_name_is_answered_with_the_nearest() {
    let place = Place::new("a \"a\"\n", false);
    for name in ["before-refactoring", "monday", "x"] {
        place.does(&format!("checkpoint create SESSION {name}"));
        place.does(&format!("mkdir SESSION dir-{name}"));
    }
    let new = place.world.scratch().join("new.db").display().to_string();
    for words in [
        "restore SESSION before-refactering --yes".to_owned(),
        "ls SESSION --at Before-refactoring".to_owned(),
        "cat SESSION a --at before-refactor".to_owned(),
        "diff SESSION --from befor-refactoring".to_owned(),
        "diff SESSION --from monday --to before-refacotring".to_owned(),
        "log SESSION --since-checkpoint before-refactorin".to_owned(),
        "checkpoint rm SESSION bfore-refactoring".to_owned(),
        format!("fork SESSION {new} --at before-refactoring2"),
    ] {
        let said = place.said(2, &words);
        assert!(said.contains("there are before-refactoring, "), "{words}: {said}");
        assert!(said.contains("did you mean before-refactoring? "), "{words}: {said}");
    }
    let said = place.said(2, "ls SESSION --at tomorow-evening");
    assert!(said.contains("there are x, monday, ") && !said.contains("did you mean"), "{said}");
    place.end();
}

/// Without its fork point, a fork can no longer be merged.
#[test]
fn a_fork_point_goes_only_by_force() {
    let place = Place::new("a \"a\"\n", false);
    let [one, two] = ["one.db", "two.db"].map(|name| place.world.scratch().join(name));
    let [one, two] = [one.display(), two.display()];
    place.does("checkpoint create SESSION named");
    place.does("mkdir SESSION dir");
    place.does(&format!("fork SESSION {one}"));
    place.does(&format!("fork SESSION {two} --at named"));
    for (point, began) in [("named", "a fork began"), ("2", "forks began (one.db)")] {
        let refused = place.said(2, &format!("checkpoint rm SESSION {point}"));
        assert!(refused.contains(began) && refused.contains("--force"), "{refused}");
    }
    let refused = place.said(2, &format!("checkpoint rm {one} 1"));
    assert!(refused.contains("this fork of "), "{refused}");
    assert_eq!(place.said(0, "checkpoint ls SESSION").lines().count(), 2);
    place.does(&format!("mkdir {two} new"));
    place.does(&format!("merge SESSION {two} --yes"));
    place.does("checkpoint rm SESSION named 2 --force");
    let refused = place.said(2, &format!("merge SESSION {two} --yes"));
    assert!(refused.contains("checkpoint"), "{refused}");
    place.end();
}

/// A checkpoint without a name, at which a fork began later, is not pruned.
#[test]
fn a_fork_point_without_a_name_stays() {
    let place = Place::new("a \"a\"\n", false);
    let fork = place.world.scratch().join("fork.db").display().to_string();
    place.does("checkpoint create SESSION");
    place.does("mkdir SESSION dir");
    place.does(&format!("fork SESSION {fork} --at 1"));
    assert!(place.said(1, "checkpoint prune SESSION --keep 0").contains("nothing to remove"));
    place.end();
}
