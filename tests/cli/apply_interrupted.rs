//! What the commands say and refuse while an apply is to be finished.

use std::fs;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use std::thread::JoinHandle;

use acetate::control::RefusalAdvice;
use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, apply};
use acetate::inspect::opened::OpenSession;
use acetate::workspace::{self, Workspace};

use super::program::{Serving, run, said};
use crate::support::applied::{Book, all, planned};
use crate::support::world::World;

fn acetate(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    let (command, rest) = args.split_first().unwrap();
    run(world.scratch(), &[&[*command, session.to_str().unwrap()], rest].concat())
}

/// Applies a session, and stops after the first step.
fn break_off(world: &World, base: &Path, options: &ApplyOptions) {
    break_off_after(1, world, base, options);
}

/// Applies a session, and stops after some steps.
fn break_off_after(steps: usize, world: &World, base: &Path, options: &ApplyOptions) {
    let opened = OpenSession::open(&world.session(), Some(base)).unwrap();
    let plan = planned(&opened, None, options).unwrap();
    let mut stop = |event| match event {
        ApplyEvent::Step { done, .. } if done == steps => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let report = apply(&opened, None, options, Consent::Shown(&plan), None, &mut stop).unwrap();
    assert!(report.broken_off.is_some());
}

/// A session whose apply was broken off after it had written the first file to the base.
fn interrupted() -> World {
    let mut world = World::new("a \"1\"\nb \"2\"\n");
    for name in ["a", "b"] {
        world.write(name, 0, b"agent's").unwrap();
    }
    world.close();
    let base = world.change_base();
    break_off(&world, &base, &all());
    assert_eq!(fs::read(base.join("a")).unwrap(), b"agent's");
    world
}

#[test]
fn discard_waits_for_an_interrupted_apply_and_removes_nothing_from_the_base() {
    let mut world = interrupted();
    let (_, err) = said(&acetate(&world, &["discard", "--yes", "a"]), 2);
    assert!(err.contains("error: an apply of this session was interrupted"), "{err}");
    assert!(err.contains("hint: run `acetate apply SESSION.db` to finish it"), "{err}");
    said(&acetate(&world, &["apply", "--yes"]), 0);
    said(&acetate(&world, &["diff"]), 0);
    said(&acetate(&world, &["apply", "--yes"]), 0);
    assert_eq!(fs::read(world.change_base().join("a")).unwrap(), b"agent's");
}

#[test]
fn who_looks_is_warned_of_an_interrupted_apply_and_nothing_is_exported() {
    let world = interrupted();
    for args in [
        &["diff"][..],
        &["status"],
        &["ls"],
        &["check"],
        &["check", "--repair", "--dry-run"],
        &["snapshot", "copy.db"],
    ] {
        let output = acetate(&world, args);
        let err = String::from_utf8(output.stderr).unwrap();
        let warning = "warning: an apply of this session was interrupted";
        assert!(err.contains(warning), "{args:?}: {err}");
    }
    let (_, err) = said(&acetate(&world, &["export", "--dir", "out"]), 2);
    assert!(err.contains("error: an apply of this session was interrupted"), "{err}");
    assert!(!world.scratch().join("out").exists());
    said(&acetate(&world, &["apply", "--yes"]), 0);
    let (_, err) = said(&acetate(&world, &["diff"]), 0);
    assert_eq!(err, "");
}

/// What the apply of another session took out of the base is missing for this one too.
#[test]
fn an_interrupted_apply_of_another_session_over_the_base_keeps_each_from_losing_what_it_moves() {
    let mut world = World::new("big/f \"1\"\n");
    world.rename("big", "moved").unwrap();
    world.close();
    let (base, scratch) = (world.change_base(), world.scratch());
    let other = |args: &[&str]| {
        let (command, rest) = args.split_first().unwrap();
        run(scratch, &[&[*command, "other.db"], rest].concat())
    };
    said(&other(&["init", "--base", base.to_str().unwrap()]), 0);
    said(&other(&["mv", "/big", "/big2"]), 0);
    let (before, _) = said(&other(&["diff"]), 1);
    break_off(&world, &base, &all());
    let what = format!("an apply of {} to the same base was", world.session().display());
    for args in [
        &["export", "--dir", "out"][..],
        &["cp", "-r", ":/", "copied"],
        &["seal"],
        &["apply", "--yes", "--to", "copy"],
    ] {
        fs::create_dir_all(scratch.join("copy")).unwrap();
        let (_, err) = said(&other(args), 2);
        assert!(err.contains(&format!("error: {what}")), "{args:?}: {err}");
        assert!(err.contains("hint: run `acetate apply` with that session"), "{args:?}: {err}");
        assert!(!scratch.join("out").exists() && !scratch.join("copied").exists());
    }
    for args in [&["diff"][..], &["status"], &["ls"]] {
        let err = String::from_utf8(other(args).stderr).unwrap();
        assert!(err.contains(&format!("warning: {what}")), "{args:?}: {err}");
    }
    said(&acetate(&world, &["apply", "--yes"]), 0);
    fs::rename(base.join("moved"), base.join("big")).unwrap();
    assert_eq!(said(&other(&["diff"]), 1), (before, String::new()));
}

/// A person sets the mode of the moved file `b` while the apply is to be finished.
pub(super) fn with_mode_of_a_person() -> World {
    let mut world = World::new("a \"1\"\n");
    world.rename("a", "b").unwrap();
    world.chmod("b", 0o755).unwrap();
    world.close();
    let base = world.change_base();
    break_off_after(2, &world, &base, &all());
    fs::set_permissions(base.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
    world
}

#[test]
fn an_attribute_that_stays_as_a_person_set_it_is_named_beside_what_was_applied() {
    let world = with_mode_of_a_person();
    let base = world.base();
    let (out, err) = said(&acetate(&world, &["apply", "--yes"]), 1);
    let kept = "applied /b, but its mode changed after the plan was made, and stays\n";
    assert!(out.contains(kept), "{out}{err}");
    assert!(out.ends_with(": applied; an attribute of 1 path stays as it is\n"), "{out}{err}");
    assert_eq!(fs::metadata(base.join("b")).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(said(&acetate(&world, &["diff"]), 0).0, "");
}

/// What the interrupted apply took out of the base would be missing in the copy.
#[test]
fn no_copy_is_written_while_an_apply_to_the_base_is_interrupted() {
    let mut world = World::new("big/f \"1\"\n");
    world.rename("big", "moved").unwrap();
    world.close();
    let copy = world.scratch().join("copy");
    fs::create_dir_all(copy.join("big")).unwrap();
    fs::write(copy.join("big/f"), "1").unwrap();
    let base = world.change_base();
    break_off(&world, &base, &all());
    for how in ["--yes", "--dry-run"] {
        let (_, err) = said(&acetate(&world, &["apply", how, "--to", copy.to_str().unwrap()]), 2);
        assert!(err.contains("error: an apply of this session was interrupted"), "{how}: {err}");
    }
    assert_eq!(fs::read(copy.join("big/f")).unwrap(), b"1");
    assert!(!copy.join(".acetate-apply").exists());
    said(&acetate(&world, &["apply", "--yes"]), 0);
    said(&acetate(&world, &["apply", "--yes", "--to", copy.to_str().unwrap()]), 0);
}

#[test]
fn what_is_left_of_an_interrupted_apply_is_counted() {
    let world = interrupted();
    let (_, err) = said(&acetate(&world, &["apply", "--dry-run"]), 1);
    assert_eq!(err, "an apply was interrupted: 1 of 2 steps left\n");
}

#[test]
fn no_discard_of_the_library_removes_what_an_interrupted_apply_wrote_to_the_base() {
    let mut world = interrupted();
    let mut work = Workspace::open(&world.session(), None).unwrap();
    let refused = work.discard(&["a"]).unwrap_err();
    assert!(refused.to_string().contains("an apply to the base has not ended"), "{refused}");
    let workspace::Error::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.advice, Some(RefusalAdvice::FinishApply));
    work.close().unwrap();
    said(&acetate(&world, &["apply", "--yes"]), 0);
    let base = world.change_base();
    assert_eq!(fs::read(base.join("a")).unwrap(), b"agent's");
    let mut work = Workspace::open(&world.session(), None).unwrap();
    work.discard(&["a"]).unwrap();
    work.close().unwrap();
    assert_eq!(fs::read(base.join("a")).unwrap(), b"agent's");
}

/// As many as a run that is not interrupted counts.
#[test]
fn what_is_finished_is_counted_as_what_is_applied_at_once() {
    let tree =
        "dir/file \"1\"\nother \"other\"\ngone/a \"a\"\ngone/b \"b\"\ngone/c \"c\"\nset \"s\"";
    let mut world = World::new(tree);
    world.write("other", 0, b"mine!").unwrap();
    world.put("dir/new", "new");
    world.rm_rf("gone");
    world.chmod("set", 0o4755).unwrap();
    world.close();
    let base = world.change_base();
    fs::write(base.join("other"), "a\nperson's\n").unwrap();
    let options = ApplyOptions { skip_drifted: true, special: false, ..all() };
    break_off(&world, &base, &options);
    let (out, _) = said(&acetate(&world, &["apply", "--yes"]), 1);
    assert!(out.contains("\nskipped /set: a set-user-ID file: not made by default"), "{out}");
    assert!(out.ends_with(": 5 applied, 2 skipped: the session keeps those\n"), "{out}");
}

/// A directory that an interrupted apply has taken out of the base, and not put at its new place.
#[test]
fn a_moved_directory_is_not_copied_or_sealed_as_an_empty_one() {
    let mut world = World::new("big/f \"1\"\nother/g \"2\"\n");
    world.rename("big", "moved").unwrap();
    world.close();
    let base = world.change_base();
    break_off(&world, &base, &all());
    let refused = "error: an apply of this session was interrupted";
    for args in [
        &["cp", "-r", ":/moved", "out"][..],
        &["cp", "-r", ":/moved", ":/copy"],
        &["seal"],
        &["seal", "--dry-run"],
    ] {
        let (_, err) = said(&acetate(&world, args), 2);
        assert!(err.contains(refused), "{args:?}: {err}");
    }
    assert!(!world.scratch().join("out").exists());
    said(&acetate(&world, &["apply", "--yes"]), 0);
    said(&acetate(&world, &["cp", "-r", ":/moved", "out"]), 0);
    assert_eq!(fs::read(world.scratch().join("out/f")).unwrap(), b"1");
}

#[test]
fn an_interrupted_apply_is_not_taken_back_by_finishing_it() {
    let mut world = interrupted();
    let (_, err) = said(&acetate(&world, &["apply", "--yes", "--undo"]), 2);
    assert!(err.contains("an apply was interrupted: nothing was undone"), "{err}");
    assert_eq!(fs::read(world.change_base().join("b")).unwrap(), b"2");
    said(&acetate(&world, &["apply", "--yes"]), 0);
    assert_eq!(fs::read(world.change_base().join("b")).unwrap(), b"agent's");
}

#[test]
fn a_change_in_a_moved_directory_says_what_it_waits_for() {
    let mut world = World::new("big/f \"1\"\nbig/sub/g \"2\"\nother/h \"3\"\n");
    world.rename("big", "moved").unwrap();
    world.close();
    let base = world.change_base();
    break_off(&world, &base, &all());
    fs::write(world.scratch().join("from"), "from").unwrap();
    for args in [
        &["rm", "moved/f"][..],
        &["rm", "-r", "moved"],
        &["write", "moved/f", "--from", "from"],
        &["write", "moved/new", "--from", "from"],
        &["mv", "moved/f", "f"],
        &["mkdir", "moved/dir"],
        &["ln", "moved/f", "f"],
    ] {
        let (_, err) = said(&acetate(&world, args), 2);
        assert!(
            err.contains("hint: wait until it has ended; if it was interrupted"),
            "{args:?}: {err}"
        );
        assert!(err.contains("an apply to the base has not ended"), "{args:?}: {err}");
    }
    let (_, err) = said(&acetate(&world, &["chmod", "600", "moved/f"]), 2);
    assert!(err.contains("warning: an apply of this session was interrupted"), "{err}");
    // Where nothing of the apply is in the way, changes are made.
    said(&acetate(&world, &["rm", "other/h"]), 0);
    said(&acetate(&world, &["apply", "--yes"]), 0);
    said(&acetate(&world, &["rm", "moved/f"]), 0);
}

#[test]
fn status_says_what_was_killed() {
    let world = interrupted();
    let served = || {
        let out = String::from_utf8(acetate(&world, &["status"]).stdout).unwrap();
        out.lines().find_map(|line| line.strip_prefix("served       ")).unwrap().to_owned()
    };
    assert_eq!(served(), "no");
    let session = world.session();
    let kill = |dir: &str| {
        let server = Serving::start(world.scratch(), 1, &[session.to_str().unwrap()]);
        said(&acetate(&world, &["mkdir", dir]), 0);
        server.signal("KILL");
        server.end();
    };
    kill("one");
    assert_eq!(served(), "no; an apply was killed");
    said(&acetate(&world, &["apply", "--yes"]), 0);
    assert_eq!(served(), "no");
    kill("two");
    assert_eq!(served(), "no; its last server or command was killed");
}

#[test]
fn what_needs_the_session_names_a_running_apply() {
    let mut world = World::new("file \"1\"\n");
    let base = world.change_base();
    world.put("file", "2");
    let opened = OpenSession::open(&world.session(), Some(&base)).unwrap();
    let plan = planned(&opened, None, &all()).unwrap();
    let mut errors = Vec::new();
    let watch = &mut |event| {
        if matches!(event, ApplyEvent::Step { done: 0, .. }) {
            errors.push(said(&acetate(&world, &["seal"]), 2).1);
        }
        ControlFlow::Continue(())
    };
    let book = &mut Book(&world);
    apply(&opened, None, &all(), Consent::Shown(&plan), Some(book), watch).unwrap();
    let wanted = "error: an apply to the base is running\nhint: wait until it has ended\n";
    assert_eq!(errors, [wanted]);
}

const CHECKPOINT: &str = r#"{"Ok":{"Checkpoint":7}}"#;

/// A server of the session that ends, as if killed, at the request that follows these answers.
fn ends_after(session: &Path, answers: &'static [&'static str]) -> JoinHandle<()> {
    let listener = UnixListener::bind(format!("{}-control", session.display())).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = || {
            let mut header = [0; 5];
            stream.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes(header[..4].try_into().unwrap());
            stream.read_exact(&mut vec![0; length as usize]).unwrap();
            stream.try_clone().unwrap()
        };
        for answer in answers {
            let header = u32::try_from(answer.len()).unwrap().to_be_bytes();
            read().write_all(&[&header[..], b"J", answer.as_bytes()].concat()).unwrap();
        }
        read();
    })
}

#[test]
fn an_apply_whose_server_is_killed_says_how_far_it_came() {
    const COPIED: &str =
        r#"{"Ok":{"Copied":{"next":null,"has_copied":false,"files":0,"bytes":0}}}"#;
    let ended = "the session's server: ended before it answered";
    let before = format!(
        "error: {ended}\n\
         hint: nothing was written; run the command again to see the plan as it is now\n"
    );
    let begun = format!(
        "error: the apply is not finished: {ended}\n\
         hint: run the same command again: it finishes that\n"
    );
    let after = format!(
        "error: the base is updated, but the session could not drop the changes: {ended}\n\
         hint: run the same command again: it finishes that\n"
    );
    let cases: [(&'static [&str], _, _); 4] = [
        (&[], before.clone(), "1"),
        (&[CHECKPOINT], before, "1"),
        (&[CHECKPOINT, COPIED], begun, "1"),
        (&[CHECKPOINT, COPIED, COPIED], after, "agent's"),
    ];
    for (answers, wanted, content) in cases {
        let mut world = World::new("a \"1\"\n");
        world.write("a", 0, b"agent's").unwrap();
        world.close();
        let base = world.change_base();
        let server = ends_after(&world.session(), answers);
        let (_, err) = said(&acetate(&world, &["apply", "--yes"]), 2);
        server.join().unwrap();
        assert_eq!(err, wanted);
        assert_eq!(fs::read_to_string(base.join("a")).unwrap(), content);
        said(&acetate(&world, &["apply", "--yes"]), 0);
        assert_eq!(fs::read(base.join("a")).unwrap(), b"agent's");
        assert_eq!(said(&acetate(&world, &["diff"]), 0).0, "");
    }
}

#[test]
fn an_apply_whose_server_is_killed_when_all_is_done_is_complete() {
    const COPIED: &str =
        r#"{"Ok":{"Copied":{"next":null,"has_copied":false,"files":0,"bytes":0}}}"#;
    const REBASED: &str = r#"{"Ok":{"Rebased":{"kept":[]}}}"#;
    let mut world = World::new("a \"1\"\n");
    world.write("a", 0, b"agent's").unwrap();
    world.close();
    let base = world.change_base();
    let server = ends_after(&world.session(), &[CHECKPOINT, COPIED, COPIED, REBASED]);
    let (out, err) = said(&acetate(&world, &["apply", "--yes"]), 0);
    server.join().unwrap();
    assert!(out.ends_with(": applied\n"), "{out}");
    let wanted = "warning: the session's server: ended before it answered: the session is not \
                  synced, and a crash of the machine may bring back what it dropped\n";
    assert!(err.ends_with(wanted), "{err}");
    assert_eq!(fs::read(base.join("a")).unwrap(), b"agent's");
    // What a crash brings back is dropped again.
    said(&acetate(&world, &["apply", "--yes"]), 0);
    assert_eq!(said(&acetate(&world, &["diff"]), 0).0, "");
}

/// A session over a base in which a person changed a file too. The session's files have other sizes
/// than the base's.
fn to_merge() -> World {
    let mut world = World::new("a \"1\\n2\\n3\\n\"\nb \"2\\n\"\nc \"3\\n\"\nd/e \"4\\n\"\n");
    for (path, content) in [("a", "one\n2\n3\n"), ("b", "two\n"), ("c", "three\n")] {
        world.put(path, content);
    }
    world.rename("d", "moved").unwrap();
    world.close();
    fs::write(world.change_base().join("a"), "1\n2\nperson\n").unwrap();
    world
}

/// The journal knows the session's files by their numbers, and the base has other files in their
/// places already.
#[test]
fn an_apply_to_a_base_that_is_renamed_before_it_is_finished_loses_nothing() {
    for steps in 0.. {
        let world = to_merge();
        let (base, opened) = (world.base(), OpenSession::open(&world.session(), None).unwrap());
        let plan = planned(&opened, None, &all()).unwrap();
        let mut is_past = true;
        let mut stop = |event| match event {
            ApplyEvent::Step { done, .. } if done == steps => {
                is_past = false;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        };
        let consent = Consent::Shown(&plan);
        apply(&opened, None, &all(), consent, None, &mut stop).unwrap();
        drop(opened);
        if is_past {
            assert!(steps > 4, "{steps}");
            break;
        }
        let renamed = world.scratch().join("renamed");
        fs::rename(&base, &renamed).unwrap();
        let args = ["apply", "--yes", "--base", renamed.to_str().unwrap(), "--moved"];
        let (out, err) = said(&acetate(&world, &args), 0);
        assert!(!out.contains("skipped"), "{steps}: {out}{err}");
        assert_eq!(said(&acetate(&world, &["diff"]), 0).0, "", "{steps}");
        said(&acetate(&world, &["apply", "--yes"]), 0);
        let text = |path| fs::read_to_string(renamed.join(path)).unwrap();
        let texts = ["a", "b", "c", "moved/e"].map(text);
        assert_eq!(texts, ["one\n2\nperson\n", "two\n", "three\n", "4\n"], "{steps}");
    }
}
