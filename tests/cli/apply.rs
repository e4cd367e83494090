//! `acetate apply`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::program::{Serving, acetate, run, said};
use crate::support::applied::{assert_same, copy, merged, on_host};
use crate::support::skip::skip;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
"#;

pub fn changed() -> World {
    let mut world = World::new(TREE);
    world.change_base();
    world.write("dir/file", 0, b"CONTENT, and more").unwrap();
    world.remove("dir/other").unwrap();
    world.rename("dir/sub", "sub").unwrap();
    // Nobody serves it: this server has no control socket.
    world.close();
    world
}

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

#[test]
fn it_shows_and_applies() {
    let world = changed();
    let wanted = merged(&world.session(), Some(&world.base()));
    let before = on_host(&world.base());
    let (out, err) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(err.is_empty(), "{err}");
    let base = world.base().canonicalize().unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "M /dir/file",
            "D /dir/other",
            "R /dir/sub -> /sub/",
            &format!(
                "{}: 1 file to write (17 B), 1 to remove, 1 moved, times of 2 directories",
                base.display()
            ),
        ]
    );
    assert_same(&on_host(&world.base()), &before);
    // Nobody is there to be asked.
    let (_, err) = said(&apply(&world, &[]), 2);
    assert!(err.contains("cannot ask without a terminal") && err.contains("--yes"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    let (out, err) = said(&apply(&world, &["--yes"]), 0);
    assert!(out.ends_with(": applied\n"), "{out}{err}");
    let undo = format!("`acetate apply --undo {}` undoes it", world.session().display());
    assert!(err.contains(&undo) && err.lines().count() == 1, "{err}");
    assert_same(&on_host(&world.base()), &wanted);
    // The session has nothing left to tell.
    let session = world.session();
    let diff = run(world.scratch(), &["diff", "--all", session.to_str().unwrap()]);
    assert_eq!((diff.status.code(), &diff.stdout[..]), (Some(0), &b""[..]));
    assert_same(&merged(&session, Some(&world.base())), &wanted);
}

#[test]
fn paths_at_which_nothing_is_or_was_are_refused() {
    let world = changed();
    let before = on_host(&world.base());
    let session = world.session();
    for command in ["diff", "apply"] {
        for path in ["nope", "dir/nope", "dir/file/nope"] {
            let args = [command, session.to_str().unwrap(), path];
            let (out, err) = said(&run(world.scratch(), &args), 2);
            assert_eq!(out, "");
            assert!(err.contains(&format!("/{path}: no such file or directory")), "{err}");
        }
    }
    assert_same(&on_host(&world.base()), &before);
    // Where something was, or came from, and where nothing changed.
    for path in ["dir/other", "dir/sub", "sub", "/"] {
        let args = ["diff", session.to_str().unwrap(), path];
        said(&run(world.scratch(), &args), 1);
    }
}

#[test]
fn a_copy_that_is_not_there_is_named() {
    let (_, err) = said(&apply(&changed(), &["--to", "nope", "--yes"]), 2);
    assert!(err.contains("nope: No such file") && err.contains("--to is a copy"), "{err}");
}

#[test]
fn a_removed_directory_is_said_to_be_one() {
    let world = World::new("dir/file \"file\"\nother/file \"file\"\none \"one\"\n");
    world.rm_rf("dir");
    world.remove("one").unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.contains(": 2 to remove (1 directory with all that is in it)"), "{out}");
    world.rm_rf("other");
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.contains(": 3 to remove (2 directories with all that is in them)"), "{out}");
}

#[test]
fn a_server_forgets_what_was_applied() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    crate::support::fixture::build(&base, TREE);
    let server = Serving::start(dir.path(), 1, &["s.db", "--base", "base"]);
    let does = |args: &[&str]| assert!(run(dir.path(), args).status.success(), "{args:?}");
    does(&["rm", "s.db", "-r", "dir/sub"]);
    does(&["write", "s.db", "dir/file", "--from", "/dev/null"]);
    does(&["mkdir", "s.db", "-p", "new/dir"]);
    does(&["apply", "s.db", "--yes"]);
    does(&["diff", "s.db", "--all"]);
    assert!(base.join("new/dir").is_dir() && !base.join("dir/sub").exists());
    assert_eq!(fs::read(base.join("dir/file")).unwrap(), b"");
    // The base shows through by now.
    fs::write(base.join("dir/file"), "by its owner").unwrap();
    assert_eq!(run(dir.path(), &["cat", "s.db", "dir/file"]).stdout, b"by its owner");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn a_path_has_one_side() {
    let world = changed();
    for (session, base) in [("/dir/file", "dir/file"), ("/dir", "/dir/file")] {
        let take = ["--take", "base", base, "--take", "session", session];
        let (_, error) = said(&apply(&world, &take), 2);
        assert!(error.contains("--take names both sides for /dir/file"), "{error}");
    }
}

#[test]
fn what_nobody_could_note_is_not_written() {
    let mut world = changed();
    world.open_again();
    let before = on_host(&world.base());
    let (_, err) = said(&apply(&world, &["--yes"]), 2);
    assert!(err.contains("in use by another server"), "{err}");
    assert_same(&on_host(&world.base()), &before);
}

#[test]
fn it_prints_json() {
    let world = changed();
    let to = world.scratch().join("copy");
    copy(&world.base(), &to);
    let (out, _) = said(&apply(&world, &["--to", "copy", "--yes", "--json"]), 0);
    let objects: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(objects.iter().all(|object| object["v"] == 1));
    let of = |what: &str| objects.iter().filter(|o| o["type"] == what).collect::<Vec<_>>();
    assert!(of("difference").iter().any(|d| d["path"] == "/sub" && d["from"] == "/dir/sub"));
    let plan = of("plan")[0];
    assert_eq!((&plan["files"], &plan["deletions"]), (&1.into(), &1.into()));
    assert_eq!((&plan["bytes"], &plan["drifted"]), (&17.into(), &0.into()));
    let applied = of("applied")[0];
    assert_eq!((&applied["to"], &applied["skipped"]), (&"copy".into(), &0.into()));
    assert_eq!(applied["changes"], plan["changes"]);
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
    let (_, err) = said(&apply(&world, &["--json"]), 2);
    assert!(err.contains("cannot ask without a terminal"), "{err}");
}

#[test]
fn nothing_to_do_is_said() {
    let world = World::new(TREE);
    let (out, _) = said(&apply(&world, &["--yes"]), 0);
    assert!(out.starts_with("nothing to apply to "), "{out}");
}

#[test]
fn what_drifted_is_refused_and_listed() {
    let world = changed();
    fs::write(world.base().join("dir/file"), "theirs").unwrap();
    let before = on_host(&world.base());
    let (out, err) = said(&apply(&world, &["--yes"]), 1);
    let conflict = "! /dir/file: the base changed the same lines\n";
    assert!(out.contains(conflict), "{out}");
    assert!(out.contains("1 drifted"), "{out}");
    assert!(err.contains("because of 1 object marked") && err.contains("--skip-drifted"), "{err}");
    assert_same(&on_host(&world.base()), &before);
    said(&apply(&world, &["--yes", "--force"]), 0);
    assert_eq!(fs::read(world.base().join("dir/file")).unwrap(), b"CONTENT, and more");
}

#[test]
fn what_the_base_changed_too_is_merged_or_left_to_a_side() {
    let mut world = World::new("text \"one\\ntwo\\nthree\\n\"\nother \"other\\n\"\n");
    world.write("text", 0, b"ONE").unwrap();
    world.write("other", 0, b"mine!\n").unwrap();
    world.close();
    let base = world.change_base();
    fs::write(base.join("text"), "one\ntwo\nTHREE\n").unwrap();
    fs::write(base.join("other"), "their\n").unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run"]), 1);
    assert!(out.contains("& /text: merged with what the base changed\n"), "{out}");
    let (out, err) = said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    let conflict = "the base changed the same lines";
    let lines: Vec<_> = out.lines().filter(|line| line.contains("/other")).collect();
    let planned = format!("! /other: {conflict}; skipped (--skip-drifted)");
    assert_eq!(lines, [planned, format!("skipped /other: {conflict}")], "once in each place");
    assert!(err.contains("--take base PATH` keeps it as it is and gives up what"), "{err}");
    assert_eq!(fs::read(base.join("text")).unwrap(), b"ONE\ntwo\nTHREE\n");
    assert_eq!(fs::read(base.join("other")).unwrap(), b"their\n");
    let (_, err) = said(&apply(&world, &["--yes", "--take", "theirs", "other"]), 2);
    assert!(err.contains("the sides are `session` and `base`"), "{err}");
    let (out, err) = said(&apply(&world, &["--yes", "--take", "base", "other"]), 0);
    assert!(!out.contains("skipped") && out.ends_with(": nothing was written\n"), "{out}");
    let stays = "1 object stays as the base has it (--take base); the session gave up its own";
    assert!(err.contains(stays) && err.ends_with("\n/other\n"), "{err}");
    let (out, _) = said(&apply(&world, &["--yes"]), 0);
    assert!(out.starts_with("nothing to apply to "), "{out}");
}

#[test]
fn what_the_disk_does_not_take_is_left_out() {
    let mut world = changed();
    world.open_again();
    // The session holds little of it.
    world.put("large", "");
    world.write("large", (5 << 20) - 5, b"large").unwrap();
    world.close();
    let mut wanted = merged(&world.session(), Some(&world.base()));
    // A limit on what a file may hold, in KiB or half of that, in place of a disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 2000; exec {} apply --yes {}",
        env!("CARGO_BIN_EXE_acetate"),
        world.session().display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let (out, _) = said(&output, 1);
    assert!(out.contains("skipped /large: File too large"), "{out}");
    wanted.remove(&b"large"[..]);
    let mut got = on_host(&world.base());
    // Its entries are others than the session's.
    got.insert(Vec::new(), wanted[&b""[..]].clone());
    assert_same(&got, &wanted);
    let session = world.session();
    let kept = run(world.scratch(), &["cat", session.to_str().unwrap(), "large"]);
    assert_eq!(kept.stdout.len(), 5 << 20);
}

#[test]
fn a_base_that_is_read_only_is_named_before_anything_is_made() {
    let world = changed();
    let (base, session) = (world.base(), world.session());
    let before = on_host(&base);
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
                  exec \"$1\" apply \"$2\" $3";
    let program = env!("CARGO_BIN_EXE_acetate");
    let apply = |option: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).args([&base]).arg(program).arg(&session);
        command.arg(option).output().unwrap()
    };
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let (_, err) = said(&apply("--yes"), 2);
    let shown = base.canonicalize().unwrap();
    let wanted = format!(
        "error: {}/: the filesystem is mounted read-only\n\
         hint: nothing was changed; mount it read-write, or apply to a copy of the base: \
         --to DIR\n",
        shown.display()
    );
    assert_eq!(err, wanted);
    assert_same(&on_host(&base), &before);
    said(&self::apply(&world, &["--yes"]), 0);
    let (_, err) = said(&apply("--undo --yes"), 2);
    assert!(!err.contains("os error"), "{err}");
}

#[test]
fn a_base_that_we_may_not_write_is_named_too() {
    if rustix::process::geteuid().is_root() {
        skip("root may write everywhere");
        return;
    }
    let world = changed();
    fs::set_permissions(world.base(), fs::Permissions::from_mode(0o555)).unwrap();
    let (_, err) = said(&apply(&world, &["--yes"]), 2);
    fs::set_permissions(world.base(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(err.contains("cannot be written: Permission denied"), "{err}");
    assert!(err.contains("hint: nothing was changed; apply as a user who may write"), "{err}");
}

#[test]
fn a_huge_file_shows_its_size_and_its_data() {
    let mut world = changed();
    world.open_again();
    world.put("huge", "data");
    world.truncate("huge", 1 << 62).unwrap();
    world.close();
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.contains("2 files to write (4.0 EiB, "), "{out}");
    assert!(out.contains(" of that data)"), "{out}");
    let (out, _) = said(&apply(&world, &["--dry-run", "--json"]), 0);
    let plan: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(plan["bytes"], (1_u64 << 62) + 17);
    assert!(plan["data_bytes"].as_u64().unwrap() < 1 << 20, "{plan}");
    said(&apply(&world, &["--yes"]), 1);
    assert!(!world.base().join("sub/huge").exists());
}

/// With a program that would run as the user who applies.
fn with_program() -> World {
    let mut world = changed();
    world.open_again();
    world.put("evil", "#!/bin/sh");
    world.chmod("evil", 0o6755).unwrap();
    world.close();
    world
}

#[test]
fn set_user_id_files_are_named_and_made_only_if_that_is_asked_for() {
    let world = with_program();
    let line = "- /evil: a set-user-ID file: not made by default\n";
    let (out, err) = said(&apply(&world, &["--dry-run"]), 1);
    assert!(out.contains(line) && out.contains(", 1 left out\n"), "{out}");
    assert!(err.contains("--allow-special makes set-user-ID files"), "{err}");
    let (out, _) = said(&apply(&world, &["--dry-run", "--json"]), 1);
    assert!(out.contains(r#""type":"left_out""#) && out.contains("set-user-ID"), "{out}");
    said(&apply(&world, &["--yes"]), 1);
    assert!(!world.base().join("evil").exists() && world.base().join("sub").exists());
    let (out, _) = said(&apply(&world, &["--yes", "--allow-special"]), 0);
    assert!(out.contains("* /evil: a set-user-ID file\n"), "{out}");
    assert!(world.base().join("evil").exists());
}

/// Who may not give it to the owner that it is of in the session.
#[test]
fn a_program_of_somebody_else_is_not_made_set_user_id() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let world = with_program();
    let session = world.session();
    // The host's files change their owner here.
    let args = ["apply", session.to_str().unwrap(), "--yes", "--force", "--allow-special"];
    let mut command = acetate(world.scratch(), &args);
    if rustix::process::geteuid().is_root() {
        let mut open = vec![world.scratch().to_owned()];
        while let Some(path) = open.pop() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    // The session says root.
    let output = match command.output() {
        Err(error) => {
            skip(&format!("cannot run the program as another user: {error}"));
            return;
        }
        output => output.unwrap(),
    };
    let err = String::from_utf8_lossy(&output.stderr);
    let meta = fs::metadata(world.base().join("evil")).expect(&err);
    assert_ne!(meta.uid(), 0);
    assert_eq!(meta.permissions().mode() & 0o7777, 0o755, "{err}");
    assert!(err.contains("the owner of"), "{err}");
}

const KILLS: u32 = 24;

/// Killed at moments all over its run: what is there then is finished, or begun again.
#[test]
fn a_kill_costs_nothing() {
    let world = World::new(TREE);
    for i in 0..300 {
        world.put(format!("dir/sub/{i}"), "some content");
    }
    world.rename("dir", "moved").unwrap();
    let wanted = merged(&world.session(), Some(&world.base()));
    let session = world.session();
    let begin = |number: u32| {
        let to = world.scratch().join(format!("copy-{number}"));
        copy(&world.base(), &to);
        let args = ["apply", session.to_str().unwrap(), "--yes", "--to", to.to_str().unwrap()];
        let mut command = acetate(world.scratch(), &args);
        (command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), to)
    };
    let begun = Instant::now();
    assert!(begin(KILLS).0.wait().unwrap().success());
    let mut whole = begun.elapsed();
    let mut kills = 0;
    for number in 0..KILLS {
        let (mut child, to) = begin(number);
        std::thread::sleep(whole * number / KILLS);
        child.kill().unwrap();
        let killed = !child.wait().unwrap().success();
        if killed {
            kills += 1;
            finish(&world, &to);
        } else {
            // The machine was busier when the time was taken.
            whole = whole * 3 / 4;
        }
        let mut got = on_host(&to);
        if killed && let Some(top) = got.get_mut(&b""[..]) {
            // Its time is set after the staging is gone, and what that was to be with it.
            top.mtime = wanted[&b""[..]].mtime;
        }
        assert_same(&got, &wanted);
    }
    assert!(kills > KILLS / 2, "only {kills} of {KILLS} were killed");
}

/// Runs it again. Where all was done, what is there is not as the base any more.
fn finish(world: &World, to: &Path) {
    let output = apply(world, &["--yes", "--to", to.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
}

#[test]
fn a_signal_ends_it_at_a_good_moment() {
    let world = World::new(TREE);
    for i in 0..2000 {
        world.put(format!("dir/sub/{i}"), "some content");
    }
    let wanted = merged(&world.session(), Some(&world.base()));
    let to = world.scratch().join("copy");
    copy(&world.base(), &to);
    let session = world.session();
    let args = ["apply", session.to_str().unwrap(), "--yes", "--to", to.to_str().unwrap()];
    let mut command = acetate(world.scratch(), &args);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // From here on it changes the tree.
    while !to.join(".acetate-apply/journal").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    let (_, err) = said(&child.wait_with_output().unwrap(), 2);
    assert!(
        err.contains("error: interrupted: stopped after ") && err.contains(" of 2002 steps"),
        "{err}"
    );
    assert!(err.contains("hint: run the same command again"), "{err}");
    let (_, err) = said(&apply(&world, &["--dry-run", "--to", to.to_str().unwrap()]), 1);
    assert!(err.contains("an apply was interrupted"), "{err}");
    finish(&world, &to);
    assert_same(&on_host(&to), &wanted);
}

/// A large file that was written to, and has another name, with most of it still in the base.
fn half_copied() -> (World, Vec<u8>) {
    let mut world = World::new("big \"\"");
    let mut content = "some content\n".repeat(1 << 18).into_bytes();
    fs::write(world.change_base().join("big"), &content).unwrap();
    world.link("big", "other").unwrap();
    world.write("big", 0, b"SOME").unwrap();
    content[..4].copy_from_slice(b"SOME");
    world.close();
    let pending = world.sql_value::<i64>("SELECT count(*) FROM acetate_copy_up");
    assert_eq!(pending, 1);
    (world, content)
}

#[test]
fn content_that_is_still_in_the_base_is_copied_first() {
    for is_served in [false, true] {
        let (world, content) = half_copied();
        let server = is_served
            .then(|| Serving::start(world.scratch(), 1, &[world.session().to_str().unwrap()]));
        said(&apply(&world, &["--yes", "big"]), 0);
        assert!(fs::read(world.base().join("big")).unwrap() == content);
        let session = world.session();
        let got = run(world.scratch(), &["cat", session.to_str().unwrap(), "other"]);
        assert!(got.stdout == content, "{}", String::from_utf8_lossy(&got.stderr));
        if let Some(server) = server {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
    }
}
