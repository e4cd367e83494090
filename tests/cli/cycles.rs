//! Commands on a session whose directories form a cycle, which only other programs write: each
//! ends, and says so.

use std::process::Command;

use crate::support::world::World;

/// Ends a command that runs on, in seconds.
const PATIENCE: &str = "20";

#[test]
fn every_command_ends_at_a_directory_that_is_among_its_own_parents() {
    let mut world = World::new("");
    world.mkdir("a").unwrap();
    world.put("a/file", "content");
    world.close();
    // The world's own session has to be sound.
    let session = world.scratch().join("looped.db");
    std::fs::copy(world.session(), &session).unwrap();
    rusqlite::Connection::open(&session)
        .unwrap()
        .execute_batch(
            "INSERT INTO fs_dentry (name, parent_ino, ino)
             SELECT 'loop', ino, ino FROM fs_dentry WHERE name = 'a';",
        )
        .unwrap();
    let out = world.scratch().join("out");
    let out = out.to_str().unwrap();
    let tar = world.scratch().join("out.tar");
    let tar = tar.to_str().unwrap();
    for (code, command, args) in [
        (2, "tree", &[][..]),
        (2, "find", &[]),
        (2, "du", &[]),
        (2, "diff", &[]),
        (2, "diff", &["--patch"]),
        (2, "status", &[]),
        (2, "apply", &["--dry-run"]),
        (2, "apply", &["--yes"]),
        (2, "discard", &["/a/file"]),
        (2, "cp", &["-r", ":/a", out]),
        (2, "cp", &["-r", ":/a", ":/b"]),
        (2, "rm", &["-r", "/a"]),
        (2, "cat", &["/a/loop/file"]),
        (0, "ls", &["/a"]),
        (1, "export", &["--tar", tar]),
        (1, "export", &["--dir", &format!("{out}-dir")]),
        (1, "export", &["--delta-only", "--tar", tar, "--force"]),
        (1, "check", &[]),
    ] {
        let mut ask = Command::new("timeout");
        ask.args([PATIENCE, env!("CARGO_BIN_EXE_acetate"), command, session.to_str().unwrap()]);
        let output = ask.args(args).current_dir(world.scratch()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{command} {args:?}: {said}");
        let is_named = said.contains("among its own parents") || command == "check";
        assert!(is_named || code == 0, "{command} {args:?}: {said}");
        let hint = "hint: `acetate check` names it, `acetate check --repair` detaches it";
        assert!(command != "status" || said.contains(hint), "{said}");
    }
}
