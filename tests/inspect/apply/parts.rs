//! Applying hunks of a file: the session keeps the others.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use acetate::delta::{Ino, MergedPath};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, ApplyOptions, Consent, DroppedCopy, SessionUpdater, apply, resume,
};
use acetate::inspect::hunks::{ChosenHunks, DiffPieces, HunkId, Pick};
use acetate::overlay::CopyStep;
use proptest::prelude::*;

use super::{apply_served, check, open, path};
use crate::inspect::hunks::{all_pieces, file};
use crate::support::applied::{Book, all, planned};
use crate::support::skip::skip;
use crate::support::world::World;

pub fn lines(lines: impl IntoIterator<Item = u32>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// A text of twenty lines of which the session changed every fifth.
fn changed() -> World {
    let world = World::new(&format!("dir/text \"{}\"\n", lines(1..=20).escape_default()));
    world.put("dir/text", &lines((1..=20).map(|n| if n % 5 == 0 { n * 10 } else { n })));
    world
}

fn only(at: &str, ids: impl IntoIterator<Item = HunkId>) -> ApplyOptions {
    let chosen = ChosenHunks::from([(path(at), Pick::Hunks(ids.into_iter().collect()))]);
    ApplyOptions { chosen: Some(Arc::new(chosen)), ..all() }
}

fn ids(world: &World) -> Vec<HunkId> {
    file(world, "dir/text").ids().collect()
}

fn base_text(world: &World) -> String {
    fs::read_to_string(world.base().join("dir/text")).unwrap()
}

fn with(changed: &[u32]) -> String {
    lines((1..=20).map(|n| if changed.contains(&n) { n * 10 } else { n }))
}

#[test]
fn the_base_gets_the_chosen_hunks_and_the_session_keeps_the_others() {
    let mut world = changed();
    let (all_ids, whole) = (ids(&world), world.cat("dir/text"));
    world.change_base();
    let options = only("dir/text", [all_ids[1], all_ids[3]]);
    assert_eq!(apply_served(&world, &options).skipped, []);
    assert_eq!(base_text(&world), with(&[10, 20]));
    assert_eq!(world.cat("dir/text"), whole);
    assert_eq!(ids(&world), [all_ids[0], all_ids[2]]);
    // Nothing drifted, and what is left is a change as any other.
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.drifted.is_empty() && plan.merged.is_empty(), "{plan:?}");
    check(&world);
    world.reopen();
    assert_eq!(ids(&world), [all_ids[0], all_ids[2]]);
    assert_eq!(apply_served(&world, &only("dir/text", [all_ids[0]])).skipped, []);
    assert_eq!(base_text(&world), with(&[5, 10, 20]));
    // The last one: nothing of the file is left in the session.
    assert_eq!(apply_served(&world, &only("dir/text", [all_ids[2]])).skipped, []);
    assert_eq!((base_text(&world), world.cat("dir/text")), (whole.clone(), whole));
    assert!(planned(&open(&world), None, &all()).unwrap().changes.is_empty());
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 0);
}

/// As editors save.
#[test]
fn a_file_that_was_saved_by_a_rename_is_taken_in_parts() {
    let mut world = World::new(&format!("dir/text \"{}\"\n", lines(1..=20).escape_default()));
    world.put("saved", &with(&[5, 15]));
    world.rename("saved", "dir/text").unwrap();
    world.change_base();
    let all_ids = ids(&world);
    assert_eq!(apply_served(&world, &only("dir/text", [all_ids[1]])).skipped, []);
    assert_eq!((base_text(&world), world.cat("dir/text")), (with(&[15]), with(&[5, 15])));
    assert_eq!(ids(&world), [all_ids[0]]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), with(&[5, 15]));
}

#[test]
fn an_owner_that_the_base_got_stays_when_hunks_are_applied() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let mut world = changed();
    let all_ids = ids(&world);
    let file = world.change_base().join("dir/text");
    chown(&file, Some(1), Some(2)).unwrap();
    for options in [only("dir/text", [all_ids[2]]), all()] {
        assert_eq!(apply_served(&world, &options).skipped, []);
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1, 2));
    }
}

#[test]
fn a_base_that_changed_meanwhile_keeps_its_change() {
    let mut world = changed();
    let (all_ids, whole) = (ids(&world), world.cat("dir/text"));
    let theirs = |text: String| text.replace("8\n", "eight\n").replace("1eight", "18");
    fs::write(world.change_base().join("dir/text"), theirs(with(&[]))).unwrap();
    assert_eq!(ids(&world), all_ids);
    assert_eq!(apply_served(&world, &only("dir/text", [all_ids[2]])).skipped, []);
    assert_eq!(base_text(&world), theirs(with(&[15])));
    // What the person changed is no change of the session's.
    assert_eq!(world.cat("dir/text"), whole);
    assert_eq!(ids(&world), [all_ids[0], all_ids[1], all_ids[3]]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), theirs(whole));
}

#[test]
fn conflicts_are_those_of_the_chosen_hunks() {
    let mut world = changed();
    let all_ids = ids(&world);
    fs::write(world.change_base().join("dir/text"), with(&[]).replace("20\n", "twenty\n")).unwrap();
    let plan = planned(&open(&world), None, &only("dir/text", [all_ids[3]])).unwrap();
    assert_eq!(plan.drifted.len(), 1);
    let plan = planned(&open(&world), None, &only("dir/text", [all_ids[0]])).unwrap();
    assert_eq!((plan.drifted.len(), plan.merged.len()), (0, 1));
    // What is overwritten gets the chosen hunk alone.
    let options = ApplyOptions { force: true, ..only("dir/text", [all_ids[3]]) };
    assert_eq!(apply_served(&world, &options).skipped, []);
    assert_eq!(base_text(&world), with(&[20]));
    assert_eq!(ids(&world), all_ids[..3]);
}

#[test]
fn a_mode_is_chosen_by_itself() {
    let mut world = changed();
    world.chmod("dir/text", 0o755).unwrap();
    let file = file(&world, "dir/text");
    let mode = file.attributes.unwrap().id;
    let hunk = file.text.hunks[0].id;
    let base = world.change_base().join("dir/text");
    let base_mode = || fs::metadata(&base).unwrap().permissions().mode() & 0o777;
    assert_eq!(apply_served(&world, &only("dir/text", [hunk])).skipped, []);
    assert_eq!((base_text(&world), base_mode()), (with(&[5]), 0o644));
    assert_eq!(world.stat("dir/text").mode, 0o755);
    assert_eq!(apply_served(&world, &only("dir/text", [mode])).skipped, []);
    assert_eq!((base_text(&world), base_mode()), (with(&[5]), 0o755));
    assert_eq!(ids(&world).len(), 3);
    assert!(planned(&open(&world), None, &all()).unwrap().drifted.is_empty());
}

#[test]
fn a_copy_of_the_base_gets_the_chosen_hunks() {
    let world = changed();
    let to = super::copy(&world, "copy");
    let (all_ids, options) = (ids(&world), only("dir/text", [ids(&world)[0]]));
    let plan = planned(&open(&world), Some(&to), &options).unwrap();
    let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
    apply(&open(&world), Some(&to), &options, Consent::Shown(&plan), None, watch).unwrap();
    assert_eq!(fs::read_to_string(to.join("dir/text")).unwrap(), with(&[5]));
    assert_eq!((base_text(&world), ids(&world)), (with(&[]), all_ids));
}

#[test]
fn a_hunk_that_is_gone_leaves_its_file_out() {
    let mut world = changed();
    let all_ids = ids(&world);
    world.put("dir/text", &with(&[10, 15, 20]));
    world.change_base();
    let options = only("dir/text", [all_ids[0], all_ids[1]]);
    let plan = planned(&open(&world), None, &options).unwrap();
    assert!(plan.changes.is_empty());
    assert_eq!(plan.left_out.len(), 1);
    assert!(plan.left_out[0].why.contains("after its hunks were chosen"), "{plan:?}");
}

/// A client writes after the plan was shown, and while it is applied.
#[test]
fn what_a_client_changes_meanwhile_stays_in_the_session() {
    let mut world = changed();
    let all_ids = ids(&world);
    world.change_base();
    let opened = open(&world);
    let options = only("dir/text", [all_ids[0]]);
    let plan = planned(&opened, None, &options).unwrap();
    world.tick(1);
    world.put("dir/text", &with(&[5, 10, 15, 20, 1]));
    let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
    let report =
        apply(&opened, None, &options, Consent::Shown(&plan), Some(&mut Book(&world)), watch);
    assert_eq!(report.unwrap().skipped.len(), 1);
    assert_eq!(base_text(&world), with(&[]));

    // After its last step, before the session is told.
    let plan = planned(&opened, None, &options).unwrap();
    world.tick(1);
    let client = &world;
    let watch = &mut |event: ApplyEvent| {
        if matches!(event, ApplyEvent::Step { done, all } if done == all) {
            client.put("dir/text", &with(&[1, 2, 5, 10]));
        }
        ControlFlow::Continue(())
    };
    apply(&opened, None, &options, Consent::Shown(&plan), Some(&mut Book(&world)), watch).unwrap();
    assert_eq!((base_text(&world), world.cat("dir/text")), (with(&[5]), with(&[1, 2, 5, 10])));
    assert!(planned(&open(&world), None, &all()).unwrap().drifted.is_empty());
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), with(&[1, 2, 5, 10]));
}

/// Killed after any step, before the session was told, or while it was.
#[test]
fn an_apply_that_ended_in_the_middle_is_finished() {
    struct Twice<'a>(Book<'a>);
    impl SessionUpdater for Twice<'_> {
        fn copy(&mut self, from: Ino) -> Result<CopyStep> {
            self.0.copy(from)
        }

        fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
            let kept = self.0.forget(applied, is_first)?;
            self.0.forget(applied, false)?;
            Ok(kept)
        }

        fn settle_moves(&mut self) -> Result<()> {
            self.0.settle_moves()
        }

        fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
            self.0.drop_unchanged(copies);
        }
    }
    for at in 0.. {
        let mut world = changed();
        let (all_ids, whole) = (ids(&world), world.cat("dir/text"));
        let theirs = |text: String| text.replace("8\n", "eight\n").replace("1eight", "18");
        fs::write(world.change_base().join("dir/text"), theirs(with(&[]))).unwrap();
        let (opened, options) = (open(&world), only("dir/text", [all_ids[0], all_ids[3]]));
        let plan = planned(&opened, None, &options).unwrap();
        let watch = &mut |event: ApplyEvent| match event {
            ApplyEvent::Step { done, .. } if done == at => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let book = &mut Twice(Book(&world));
        let report =
            apply(&opened, None, &options, Consent::Shown(&plan), Some(book), watch).unwrap();
        let is_over = report.broken_off.is_none();
        if !is_over {
            let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
            let book = &mut Twice(Book(&world));
            let report = resume(&opened, None, Some(book), watch).unwrap().unwrap();
            assert_eq!(report.skipped, []);
        }
        assert_eq!(base_text(&world), theirs(with(&[5, 20])), "after {at} steps");
        assert_eq!(world.cat("dir/text"), whole);
        assert_eq!(ids(&world), all_ids[1..3]);
        if is_over {
            assert!(at > 1);
            break;
        }
    }
}

/// What git makes of a text with some hunks, which are told by their lines.
fn by_git(dir: &Path, old: &[u8], hunks: &[(usize, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let git = |args: &[&str], input: &[u8]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir).args(["-c", "core.autocrlf=false"]).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(input));
        output.stdout
    };
    git(&["init", "-q"], b"");
    fs::write(dir.join("text"), old).unwrap();
    git(&["add", "text"], b"");
    let mut patch = b"--- a/text\n+++ b/text\n".to_vec();
    let mut moved = 0;
    for (start, old, new) in hunks {
        let count = |text: &[u8]| text.split_inclusive(|b| *b == b'\n').count();
        let (olds, news) = (count(old), count(new));
        let first = |lines: usize, at: usize| if lines == 0 { at } else { at + 1 };
        let to = (*start as isize + moved) as usize;
        patch.extend(
            format!("@@ -{},{olds} +{},{news} @@\n", first(olds, *start), first(news, to)).bytes(),
        );
        for (sign, text) in [(b'-', old), (b'+', new)] {
            for line in text.split_inclusive(|b| *b == b'\n') {
                patch.push(sign);
                patch.extend(line);
                if !line.ends_with(b"\n") {
                    patch.extend(b"\n\\ No newline at end of file\n");
                }
            }
        }
        moved += news as isize - olds as isize;
    }
    if !hunks.is_empty() {
        git(&["apply", "--cached", "--unidiff-zero", "--whitespace=nowarn"], &patch);
    }
    git(&["cat-file", "blob", ":text"], b"")
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![&b"a\n"[..], b"b\n", b"c\r\n", b"\xff\n", b"\n", b"dd\n"]);
    let end = prop::sample::select(vec![&b""[..], b"end", b"\xfe"]);
    (prop::collection::vec(line, 0..14), end)
        .prop_map(|(lines, end)| [&lines.concat(), end].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The base has what git makes of the same hunks; the hunks that were not chosen keep their
    /// ids; applied one after the other, all make the session's text.
    #[test]
    fn random_hunks_are_applied_as_git_does_it(
        old in text(), new in text(), picks in prop::collection::vec(any::<bool>(), 30),
    ) {
        prop_assume!(old != new);
        let mut world = World::new("dir/text \"\"\n");
        fs::write(world.change_base().join("dir/text"), &old).unwrap();
        world.truncate("dir/text", 0).unwrap();
        world.write("dir/text", 0, &new).unwrap();
        let before = file(&world, "dir/text");
        let hunks = &before.text.hunks;
        let mut pick = picks.into_iter();
        let (chosen, left): (Vec<_>, Vec<_>) = hunks.iter().partition(|_| pick.next().unwrap());
        let ids: BTreeSet<_> = chosen.iter().map(|hunk| hunk.id).collect();
        prop_assume!(!ids.is_empty());
        let by_lines: HashMap<_, _> = chosen.iter().map(|hunk| {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            let at = hunks.iter().position(|other| other.id == hunk.id).unwrap();
            before.text.show(at..at + 1, 0, &mut |sign, line| match sign {
                acetate::inspect::hunks::Sign::Old => old.extend(line),
                _ => new.extend(line),
            });
            (hunk.id, (hunk.old.start, old, new))
        }).collect();
        let in_order: Vec<_> = chosen.iter().map(|hunk| by_lines[&hunk.id].clone()).collect();
        let dir = tempfile::tempdir().unwrap();
        let wanted = by_git(dir.path(), &old, &in_order);

        prop_assert_eq!(&apply_served(&world, &only("dir/text", ids)).skipped, &[]);
        let text = world.base().join("dir/text");
        prop_assert_eq!(&fs::read(&text).unwrap(), &wanted);
        prop_assert_eq!(&world.read("dir/text").unwrap(), &new);
        prop_assert!(planned(&open(&world), None, &all()).unwrap().drifted.is_empty());
        let rest = all_pieces(&open(&world));
        if left.is_empty() {
            prop_assert!(rest.is_empty());
            return Ok(());
        }
        // One after the other; git may draw the lines between the rest otherwise than before.
        for _ in 0..30 {
            let rest = all_pieces(&open(&world));
            let Some((_, DiffPieces::File(file))) = rest.first() else { break };
            let id = file.ids().last().unwrap();
            prop_assert_eq!(&apply_served(&world, &only("dir/text", [id])).skipped, &[]);
        }
        prop_assert_eq!(&fs::read(&text).unwrap(), &new);
        prop_assert!(planned(&open(&world), None, &all()).unwrap().changes.is_empty());
    }
}
