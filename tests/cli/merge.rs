//! `acetate merge`.

use std::fs;

use super::checkpoint::ask;
use super::program::Serving;
use super::restore::Place;

/// A fork of the place's session, beside it.
fn fork(place: &Place) -> String {
    let fork = place.world.scratch().join("fork.db").display().to_string();
    place.does(&format!("fork SESSION {fork}"));
    fork
}

/// Writes a file of a session.
fn write(place: &Place, session: &str, path: &str, text: &str) {
    let from = place.world.scratch().join("text");
    fs::write(&from, text).unwrap();
    place.does(&format!("cp {session} {} :{path}", from.display()));
}

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";

#[test]
fn both_sides_come_together() {
    for is_served in [true, false] {
        let place = Place::new("dir/gone \"gone\"\ndir/a \"a\"\nmode \"m\"\n", is_served);
        write(&place, "SESSION", "/text", TEXT);
        let fork = fork(&place);
        let other = is_served.then(|| Serving::start(place.world.scratch(), 1, &["fork.db"]));
        write(&place, "SESSION", "/text", &TEXT.replace("one", "ONE"));
        write(&place, &fork, "/text", &TEXT.replace("seven", "SEVEN"));
        place.does("mv SESSION dir moved");
        place.does(&format!("mkdir {fork} dir/new"));
        write(&place, &fork, "/dir/new/file", "new");
        place.does(&format!("rm {fork} dir/gone"));
        place.does(&format!("mv {fork} dir/a dir/new/b"));
        place.does(&format!("chmod {fork} 600 mode"));
        place.does("mkdir SESSION mine");

        let plan = place.said(0, &format!("merge SESSION {fork} --dry-run"));
        assert_eq!(
            plan,
            "D /dir/gone\nA /dir/new/\nR /dir/a -> /dir/new/b\nA /dir/new/file\nM /mode\n\
             M /text (both sides merged)\nwould merge 6 changes\n"
        );
        let asks = place.said(2, &format!("merge SESSION {fork}"));
        assert!(asks.contains("cannot ask without a terminal"), "{asks}");
        let done = place.said(0, &format!("merge SESSION {fork} --yes"));
        assert!(done.starts_with(&format!("merged {fork}: 6 changes\n")), "{done}");
        assert_eq!(
            place.said(0, "find SESSION moved"),
            "/moved\n/moved/new\n/moved/new/b\n/moved/new/file\n"
        );
        assert_eq!(place.said(0, "cat SESSION moved/new/b"), "a");
        let merged = TEXT.replace("one", "ONE").replace("seven", "SEVEN");
        assert_eq!(place.said(0, "cat SESSION text"), merged);
        assert!(place.said(0, "stat SESSION mode").contains("600"));
        let again = place.said(1, &format!("merge SESSION {fork} --yes"));
        assert!(again.contains("nothing to merge"), "{again}");
        assert!(place.said(0, "undo SESSION --yes").contains("back to checkpoint"));
        assert_eq!(place.said(0, "ls SESSION moved"), "a\ngone\n");
        assert_eq!(place.said(0, &format!("ls {fork} dir")), "new\n", "the fork does not change");
        if let Some(other) = other {
            other.signal("TERM");
            assert!(other.end().0.success());
        }
        place.end();
    }
}

#[test]
fn conflicts_change_nothing_until_they_are_decided() {
    let place = Place::new("a \"a\"\nb \"b\"\ndir/x \"x\"\n", true);
    let fork = fork(&place);
    write(&place, "SESSION", "/a", "ours");
    write(&place, &fork, "/a", "theirs");
    place.does("rm SESSION b");
    place.does(&format!("chmod {fork} 600 b"));
    place.does(&format!("rm {fork} -r dir"));
    write(&place, "SESSION", "/dir/y", "ours");
    write(&place, "SESSION", "/new", "ours");
    place.does(&format!("mkdir {fork} new"));
    let said = place.said(1, &format!("merge SESSION {fork} --yes"));
    assert_eq!(
        said,
        "C /a: here: content changed; in the fork: content changed\n\
         C /b: here: deleted; in the fork: mode changed\n\
         C /dir/y: here: added; in the fork: deleted /dir\n\
         C /new: here: added; in the fork: added\n\
         4 conflicts: nothing was merged\n\
         hint: --take ours PATH keeps what is here, --take theirs PATH takes the fork's\n"
    );
    assert_eq!(place.said(0, "ls SESSION"), "a\ndir\nnew\n");
    let json = ask(&place.world, &format!("merge SESSION {fork} --yes --json"));
    assert_eq!(json.status.code(), Some(1));
    let json = String::from_utf8(json.stdout).unwrap();
    assert_eq!(json.matches("\"merge_conflict\"").count(), 4, "{json}");

    let takes = "--take theirs a --take theirs b --take ours dir --take theirs new";
    let done = place.said(0, &format!("merge SESSION {fork} --yes {takes}"));
    assert!(done.contains("3 changes"), "{done}");
    assert_eq!(place.said(0, "cat SESSION a"), "theirs");
    assert_eq!(place.said(0, "ls SESSION dir"), "x\ny\n");
    assert!(place.said(0, "stat SESSION new").contains("directory"));
    assert!(place.said(0, "stat SESSION b").contains("600"));
    place.end();
}

#[test]
fn what_is_no_fork_is_refused_with_the_reason() {
    let place = Place::new("a \"a\"\n", false);
    let dir = place.world.scratch();
    let file = |name: &str| dir.join(name).display().to_string();
    let (copy, other) = (file("copy.db"), file("other.db"));
    place.does(&format!("snapshot SESSION {copy}"));
    let said = place.said(2, &format!("merge SESSION {copy} --yes"));
    assert!(said.contains("copy.db: not a fork"), "{said}");
    place.does(&format!("fork {copy} {other}"));
    let said = place.said(2, &format!("merge SESSION {other} --yes"));
    assert!(said.contains("a fork of another session"), "{said}");
    let fork = fork(&place);
    let said = place.said(2, &format!("merge SESSION {fork} --yes --take mine a"));
    assert!(said.contains("the sides are `ours` and `theirs`"), "{said}");
    place.does("checkpoint rm SESSION @-1 --force");
    let said = place.said(2, &format!("merge SESSION {fork} --yes"));
    assert!(said.contains("checkpoint 1, at which the fork began, was removed"), "{said}");
    place.end();
}

#[test]
fn an_apply_since_the_fork_is_a_boundary() {
    let mut place = Place::new("a \"a\"\n", false);
    place.world.change_base();
    let fork = fork(&place);
    place.does("mkdir SESSION ours");
    place.does(&format!("mkdir {fork} theirs"));
    place.does("apply SESSION --yes");
    let said = place.said(2, &format!("merge SESSION {fork} --yes"));
    assert!(said.contains("were applied to the base since the checkpoint"), "{said}");
    place.does(&format!("merge SESSION {fork} --yes --force"));
    assert_eq!(place.said(0, "ls SESSION"), "a\nours\ntheirs\n");
    place.end();
}

/// Over quota nothing of a merge stays.
#[test]
fn a_merge_over_quota_changes_nothing() {
    let place = Place::new("a \"a\"\n", true);
    let fork = fork(&place);
    write(&place, &fork, "/large", &"x".repeat(300_000));
    place.does(&format!("mkdir {fork} dir"));
    place.does("quota SESSION --bytes 100KiB");
    let said = place.said(2, &format!("merge SESSION {fork} --yes"));
    assert!(said.contains("quota"), "{said}");
    assert_eq!(place.said(0, "ls SESSION"), "a\n");
    place.end();
}

/// What has several names loses one when a new file takes its place: the others keep the content.
#[test]
fn a_name_that_was_replaced_is_parted_from_the_others() {
    let place = Place::new("a \"one\"\nlink = a\n", false);
    write(&place, "SESSION", "/p", "old");
    place.does("ln SESSION p q");
    let fork = fork(&place);
    for (name, other) in [("p", "q"), ("a", "link")] {
        place.does(&format!("rm {fork} {name}"));
        write(&place, &fork, &format!("/{name}"), "new");
        assert_ne!(place.said(0, &format!("cat {fork} {other}")), "new");
    }
    place.does(&format!("merge SESSION {fork} --yes"));
    assert_eq!(place.said(0, "cat SESSION p"), "new");
    assert_eq!(place.said(0, "cat SESSION a"), "new");
    assert_eq!(place.said(0, "cat SESSION q"), "old");
    assert_eq!(place.said(0, "cat SESSION link"), "one");
    assert!(place.said(1, &format!("merge SESSION {fork} --yes")).contains("nothing to merge"));
    place.end();
}

/// Moves into each other are a conflict that can be decided.
#[test]
fn moves_into_each_other_are_decided_by_either_side() {
    for side in ["ours", "theirs"] {
        let place = Place::new("a/x \"x\"\nb/y \"y\"\n", false);
        let fork = fork(&place);
        place.does("mv SESSION a b/a");
        place.does(&format!("mv {fork} b a/b"));
        let said = place.said(1, &format!("merge SESSION {fork} --yes"));
        assert!(said.contains("what would hold it was moved into it"), "{said}");
        let code = if side == "ours" { 1 } else { 0 };
        place.said(code, &format!("merge SESSION {fork} --yes --take {side} /"));
        let expected = if side == "ours" { "b\n" } else { "a\n" };
        assert_eq!(place.said(0, "ls SESSION"), expected);
        place.end();
    }
}

/// Equal content is no conflict, whatever else one side changed.
#[test]
fn equal_content_with_another_mode_is_merged() {
    let place = Place::new("bin \"old\"\n", false);
    let fork = fork(&place);
    for session in ["SESSION", &fork] {
        write(&place, session, "/bin", "\0same");
    }
    place.does(&format!("chmod {fork} 755 bin"));
    place.does(&format!("merge SESSION {fork} --yes"));
    assert!(place.said(0, "stat SESSION bin").contains("755"));
    place.end();
}

/// The plan tells of the session: what comes in place of something, and what it moved too.
#[test]
fn a_plan_tells_what_becomes_of_the_session() {
    let place = Place::new("src/a \"a\"\n", false);
    let fork = fork(&place);
    place.does("mv SESSION src ours");
    place.does(&format!("mv {fork} src theirs"));
    write(&place, "SESSION", "/new", "ours");
    write(&place, &fork, "/new", "theirs");
    let merge = format!("merge SESSION {fork} --take theirs /");
    let plan = place.said(0, &format!("{merge} --dry-run"));
    assert_eq!(plan, "M /new\nR /src/ -> /theirs/ (here /ours/)\nwould merge 2 changes\n");
    let json = place.said(0, &format!("{merge} --dry-run --json"));
    assert!(json.contains("\"here\":\"/ours\""), "{json}");
    place.does(&format!("{merge} --yes"));
    assert_eq!(place.said(0, "find SESSION"), "/\n/new\n/theirs\n/theirs/a\n");
    place.end();
}
