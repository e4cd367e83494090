//! `acetate restore --tool-call`.

use std::fs;

use super::checkpoint::ask;
use super::restore::Place;

const BASE: &str = "d/a \"base a\"\nd/b \"base b\"\nc \"c\"\n";

/// Runs lines of shell as one tool call; `A` is the program, `S` the session.
#[track_caller]
fn call(place: &Place, lines: &str) {
    call_with(place, "", lines);
}

#[track_caller]
fn call_with(place: &Place, option: &str, lines: &str) {
    let (program, session) = (env!("CARGO_BIN_EXE_acetate"), place.world.session());
    let number = fs::read_dir(place.world.scratch()).unwrap().count();
    let script = place.world.scratch().join(format!("script{number}"));
    let begin = format!("set -e\nA={program}\nS={}\n", session.display());
    fs::write(&script, begin + lines).unwrap();
    let option = if option.is_empty() { String::new() } else { format!("{option} ") };
    place.does(&format!("tool run SESSION t {option}-- sh {}", script.display()));
}

/// The tree, in lines.
fn tree(place: &Place) -> String {
    let find = place.said(0, "find SESSION");
    find.lines().map(|line| format!("{line} ")).collect()
}

#[test]
fn what_changed_during_a_call_goes_back_and_the_rest_stays() {
    for is_served in [true, false] {
        let place = Place::new(BASE, is_served);
        place.does("mkdir SESSION before");
        call(
            &place,
            "$A rm $S d/a; echo new | $A write $S c; $A mkdir $S made; echo x | $A write $S made/x
             $A mv $S d/b moved; $A mkdir $S tmp; $A rmdir $S tmp",
        );
        call(&place, "echo later | $A write $S d/later; $A mkdir $S before/later");
        let after = "/ /before /before/later /c /d /d/later /made /made/x /moved ";
        assert_eq!(tree(&place), after);
        let plan = place.said(0, "restore SESSION --tool-call 1 --dry-run");
        assert_eq!(
            plan,
            "M /c\nA /d/a\nR /moved -> /d/b\nD /made/ (1 file, 2 B)\n\
             would take back tool call 1: 1 added, 2 deleted, 1 modified, 1 renamed\n"
        );
        let asks = place.said(2, "restore SESSION --tool-call 1");
        assert!(asks.contains("cannot ask without a terminal"), "{asks}");
        assert_eq!(tree(&place), after, "nothing changed");

        let done = place.said(0, "restore SESSION --tool-call 1 --yes");
        assert!(done.starts_with("took back tool call 1: 1 added, "), "{done}");
        let back = "/ /before /before/later /c /d /d/a /d/b /d/later ";
        assert_eq!(tree(&place), back);
        assert_eq!(place.said(0, "cat SESSION d/a"), "base a");
        assert_eq!(place.said(0, "cat SESSION c"), "c");
        assert_eq!(place.said(0, "cat SESSION d/later"), "later\n");
        let nothing = place.said(1, "restore SESSION --tool-call 1 --yes");
        assert_eq!(nothing, "tool call 1: nothing of what it changed is left\n");

        // An undo brings it back, and then it can go again.
        place.does("undo SESSION --yes");
        assert_eq!(tree(&place), after);
        place.does("restore SESSION --tool-call 1 --yes");
        assert_eq!(tree(&place), back);
        let listed = place.said(0, "tool ls SESSION --changes");
        let (first, second) = listed.split_once("\n2 ").unwrap();
        // `tmp` was gone before the restore.
        let is_marked = |line: &str| line.ends_with("  (taken back)") || line.contains("  /tmp");
        assert!(first.lines().skip(1).all(is_marked), "{first}");
        assert!(!second.contains("(taken back)"), "{second}");
        let shown = place.said(0, "tool show SESSION 1");
        assert_eq!(shown.matches("  (taken back)\n").count(), first.lines().count() - 3);
        let json = place.said(0, "tool show SESSION 1 --json");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["changes"][0]["is_taken_back"], true);
        place.does("restore SESSION --tool-call 2 --yes");
        assert_eq!(tree(&place), "/ /before /c /d /d/a /d/b ");
        place.end();
    }
}

#[test]
fn what_others_changed_since_is_not_lost() {
    let place = Place::new(BASE, false);
    call(&place, "$A mkdir $S made; $A mkdir $S made/in; $A rm $S -r d; $A mv $S c moved");
    place.does("mkdir SESSION made/in/later");
    let after = tree(&place);
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes --force");
    assert!(
        refused.contains("tool call 1: a path was changed again after the call: /made/in/later\n")
            && refused.contains(" 1 PATH...` takes back what you name, together with these"),
        "{refused}"
    );
    assert_eq!(tree(&place), after);
    assert_eq!(place.said(0, "checkpoint ls SESSION").lines().count(), 1, "nothing was kept");
    place.does("restore SESSION 1 made d c --yes");
    place.said(1, "restore SESSION --tool-call 1 --yes");

    // A directory above that moved, and one that only got another mode.
    place.does("mkdir SESSION up");
    call(&place, "$A mkdir $S up/one");
    call(&place, "$A mkdir $S d/two");
    place.does("chmod SESSION 700 d");
    place.does("mv SESSION up away");
    let refused = place.said(2, "restore SESSION --tool-call 2 --yes");
    assert!(refused.contains("a path was changed again after the call: /up\n"), "{refused}");
    place.does("restore SESSION --tool-call 3 --yes");
    assert_eq!(tree(&place), "/ /away /away/one /c /d /d/a /d/b ");
    assert!(place.said(0, "stat SESSION d").contains("0700"));

    // A call that removed a directory, where another one is now.
    call(&place, "$A rm $S -r d");
    place.does("mkdir SESSION d");
    let refused = place.said(2, "restore SESSION --tool-call 4 --yes");
    assert!(refused.contains("a path was changed again after the call: /d\n"), "{refused}");
    place.end();
}

#[test]
fn a_file_comes_back_without_what_else_was_in_its_directory() {
    let place = Place::new(BASE, false);
    call(&place, "$A rm $S d/a");
    place.does("rm SESSION -r d");
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes");
    assert!(refused.contains("a path was changed again after the call: /d\n"), "{refused}");
    // A call that removed all of a directory, but for what others had removed before.
    place.does("undo SESSION --yes");
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b ");
    place.does("rm SESSION d/a");
    call(&place, "$A rm $S -r d");
    place.does("restore SESSION --tool-call 2 --yes");
    assert_eq!(tree(&place), "/ /c /d /d/b ");
    assert_eq!(place.said(0, "cat SESSION d/b"), "base b");
    place.end();
}

#[test]
fn all_names_of_a_file_go_back() {
    let place = Place::new(BASE, false);
    place.does("ln SESSION d/a d/hard");
    call(&place, "echo new | $A write $S d/a");
    place.does("ln SESSION d/hard elsewhere");
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes");
    assert!(
        refused.contains("2 paths were changed again after the call: /d/a, /elsewhere"),
        "{refused}"
    );
    place.does("rm SESSION elsewhere");
    call(&place, "$A ln $S c name");
    place.does("restore SESSION --tool-call 2 --yes");
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b /d/hard ");
    place.end();
}

#[test]
fn attributes_of_a_directory_go_back_alone() {
    let place = Place::new(BASE, false);
    let mode = |path: &str| place.said(0, &format!("stat SESSION {path}"));
    place.does("chmod SESSION 755 d");
    call(&place, "$A chmod $S 700 d; $A touch $S d; $A mkdir $S d/made");
    place.does("restore SESSION --tool-call 1 --yes");
    assert!(mode("d").contains("0755"));
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b ");
    place.does("undo SESSION --yes");
    place.does("mkdir SESSION d/later");
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes");
    let why = "the mode or owner of /d was set by the call, and other things changed in it since: \
               /d/later\n";
    assert!(refused.contains(why), "{refused}");
    // Its times follow what changes in it, and do not go back.
    call(&place, "$A touch $S d; $A touch $S /; $A mkdir $S d/two");
    place.does("mkdir SESSION d/last");
    place.does("restore SESSION --tool-call 2 --yes");
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b /d/last /d/later /d/made ");
    // Nothing else changed since: the attributes of the root are the whole tree.
    call(&place, "$A chmod $S 700 /; $A rm $S c");
    place.does("restore SESSION --tool-call 3 --yes");
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b /d/last /d/later /d/made ");
    assert!(!mode("/").contains("0700"));
    place.end();
}

#[test]
fn a_call_of_which_nothing_goes_back_is_told_with_the_reason() {
    let mut place = Place::new(BASE, false);
    place.world.change_base();
    let restore = |call: i64| format!("restore SESSION --tool-call {call} --yes");
    call(&place, "true");
    assert_eq!(place.said(1, &restore(1)), "tool call 1 changed nothing\n");
    place.does("touch SESSION --date 2001-02-03T04:05:06Z d");
    call(&place, "$A touch $S d");
    let touched = place.said(0, "stat SESSION d");
    assert_eq!(
        place.said(1, &restore(2)),
        "tool call 2: of what it changed, only the times of directories are left, and a restore \
         does not take these back: /d\n"
    );
    assert_eq!(place.said(0, "stat SESSION d"), touched);
    call(&place, "$A rm $S c");
    place.does("apply SESSION --yes");
    let applied = place.said(1, &format!("{} --force", restore(3)));
    assert!(
        applied.starts_with(
            "tool call 3: nothing of what it changed is left in the session; changes were applied \
             to the base since\nhint: `acetate apply --undo "
        ),
        "{applied}"
    );
    place.end();
}

#[test]
fn later_calls_that_are_in_the_way_are_named() {
    let place = Place::new(BASE, false);
    call(&place, "$A rm $S c; $A mkdir $S one");
    call(&place, "echo two | $A write $S c");
    call(&place, "echo three | $A write $S c");
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes");
    assert!(
        refused.contains(
            "tool call 1: a path was changed again after the call, by tool call 3 (t), tool call 2 \
             (t): /c\nhint: `acetate restore "
        ) && refused.contains(" --tool-call 3` takes that call back first; "),
        "{refused}"
    );
    for number in [3, 2] {
        place.does(&format!("restore SESSION --tool-call {number} --yes"));
    }
    place.does("mkdir SESSION one/by-others");
    call(&place, "$A mkdir $S one/by-four");
    let refused = place.said(2, "restore SESSION --tool-call 1 --yes");
    assert!(
        refused.contains(
            "2 paths were changed again after the call, among others by tool call 4 (t): \
             /one/by-four, /one/by-others\n"
        ) && !refused.contains("takes that call back first"),
        "{refused}"
    );
    place.end();
}

#[test]
fn a_path_beside_a_call_is_refused_with_the_way_to_restore_it() {
    let place = Place::new(BASE, false);
    call(&place, "$A rm $S c");
    let refused = place.said(2, "restore SESSION --tool-call 1 d/a --yes");
    assert!(
        refused.contains("--tool-call takes back all of the call: leave out `d/a`\nhint: some "),
        "{refused}"
    );
    place.end();
}

#[test]
fn what_cannot_be_taken_back_is_refused_with_the_reason() {
    let place = Place::new(BASE, false);
    let none = place.said(2, "restore SESSION --tool-call 7 --yes");
    assert!(none.contains("tool call 7: no such tool call; the session has none\n"), "{none}");
    place.does("tool record SESSION other --result 1 --started 2h --completed 1h");
    call_with(&place, "--no-checkpoint", "$A mkdir $S two");
    call(&place, "$A mkdir $S three");
    call(&place, "$A mkdir $S four");
    let none = place.said(2, "restore SESSION --tool-call 7 --yes");
    assert!(
        none.contains("no such tool call; the last are 1, 2, 3, 4\nhint: `acetate tool ls "),
        "{none}"
    );
    for (id, why) in [(1, "only its time is known"), (2, "no checkpoint was made before it")] {
        let refused = place.said(2, &format!("restore SESSION --tool-call {id} --yes"));
        assert!(refused.contains(why), "{refused}");
        assert!(refused.contains("hint: `acetate restore "), "{refused}");
    }
    place.does("checkpoint rm SESSION 1");
    let refused = place.said(2, "restore SESSION --tool-call 3 --yes");
    assert!(
        refused.contains("tool call 3: the checkpoint before it, 1, was removed\n"),
        "{refused}"
    );
    place.said(2, "restore SESSION 1 --tool-call 4 --yes");
    place.said(2, "restore SESSION --yes");
    place.does("mkdir SESSION five");
    cut_log(&place);
    let refused = place.said(2, "restore SESSION --tool-call 4 --yes --force");
    assert!(refused.contains("tool call 4: the log has lost changes since then\n"), "{refused}");
    let incomplete = "UPDATE acetate_checkpoint SET incomplete = 'no-room'";
    call(&place, "$A mkdir $S six");
    rusqlite::Connection::open(place.world.session()).unwrap().execute_batch(incomplete).unwrap();
    let refused = place.said(2, "restore SESSION --tool-call 5 --yes");
    assert!(refused.contains(" is incomplete"), "{refused}");
    place.end();
}

/// Removes all rows of the log but the last.
fn cut_log(place: &Place) {
    let conn = rusqlite::Connection::open(place.world.session()).unwrap();
    conn.execute_batch(
        "DELETE FROM acetate_op WHERE id < (SELECT max(id) FROM acetate_op);
         INSERT INTO acetate_meta (key, value) VALUES ('audit_dropped', 3), ('audit_since', 7)",
    )
    .unwrap();
}

#[test]
fn calls_that_overlap_are_refused() {
    let place = Place::new(BASE, true);
    let program = env!("CARGO_BIN_EXE_acetate");
    let inner = format!("$A mkdir $S one; $A tool run $S inner -- {program} mkdir $S two");
    call(&place, &inner);
    for (id, other) in [(1, "2 (t)"), (2, "1 (inner)")] {
        let refused = place.said(2, &format!("restore SESSION --tool-call {id} --yes"));
        let why = format!("tool call {id}: tool call {other} ran at the same time\n");
        assert!(refused.contains(&why), "{refused}");
    }
    // One that changed nothing overlaps no other.
    call(&place, "$A mkdir $S three; $A tool run $S inner -- true; $A mkdir $S four");
    place.does("restore SESSION --tool-call 4 --yes");
    assert_eq!(tree(&place), "/ /c /d /d/a /d/b /one /two ");
    // Of one of another program, only the seconds are known.
    call(&place, "$A mkdir $S five; $A tool record $S other --result 1; sleep 2");
    place.does("tool record SESSION later --result 1");
    let refused = place.said(2, "restore SESSION --tool-call 6 --yes");
    assert!(refused.contains("tool call 5 (other) ran at the same time\n"), "{refused}");
    place.end();
}

#[test]
fn a_restore_within_a_call_is_taken_back() {
    let place = Place::new(BASE, false);
    place.does("checkpoint create SESSION first");
    place.does("mkdir SESSION before");
    call(&place, "$A mkdir $S made; $A restore $S first --yes; $A mkdir $S after");
    assert_eq!(tree(&place), "/ /after /c /d /d/a /d/b ");
    place.does("restore SESSION --tool-call 1 --yes");
    assert_eq!(tree(&place), "/ /before /c /d /d/a /d/b ");
    // An undo of what only the call did leaves nothing.
    call(&place, "$A mkdir $S made; $A undo $S --yes");
    place.said(1, "restore SESSION --tool-call 2 --yes");
    place.end();
}

#[test]
fn a_copy_has_the_calls_and_a_fork_has_none() {
    let place = Place::new(BASE, false);
    call(&place, "$A rm $S c");
    place.does("compact SESSION");
    place.does("snapshot SESSION copy.db");
    place.does("fork SESSION fork.db");
    place.does("restore SESSION --tool-call 1 --yes");
    place.does("restore copy.db --tool-call 1 --yes");
    assert_eq!(place.said(0, "ls copy.db"), "c\nd\n");
    let none = place.said(2, "restore fork.db --tool-call 1 --yes");
    assert!(none.contains("no such tool call; the session has none"), "{none}");
    for copy in ["copy.db", "fork.db"] {
        assert!(place.said(0, &format!("check {copy}")).ends_with(": sound\n"));
    }
    place.end();
}

#[test]
fn json_names_the_call() {
    let place = Place::new(BASE, false);
    call(&place, "$A rm $S c");
    for (options, is_dry_run) in [("--dry-run", true), ("--yes", false)] {
        let json = ask(&place.world, &format!("restore SESSION --tool-call 1 --json {options}"));
        let json = String::from_utf8(json.stdout).unwrap();
        let lines: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["path"], &lines[0]["goes_along"]), (&"/c".into(), &false.into()));
        assert_eq!((&lines[1]["tool_call"], &lines[1]["checkpoint"]), (&1.into(), &1.into()));
        assert_eq!(lines[1]["dry_run"], is_dry_run);
    }
    place.end();
}
