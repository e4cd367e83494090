//! Servers and mounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::Seen;
use super::looks::changed;
use crate::cli::program::acetate;
use crate::cli::unmounting::feigned;

/// `serve` prints its object when it listens.
pub(super) fn run(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    let exports = "[[export]]\npath = \"/x\"\n[[export.mount]]\nat = \"/\"\nsession = \"x.db\"\n";
    fs::write(dir.join("exports.toml"), exports).unwrap();
    for what in [&["s.db"][..], &["--config", "exports.toml"]] {
        let options = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let args = [&options[..], what].concat();
        let mut command = acetate(dir, &seen.with_json(&args));
        command.env("XDG_RUNTIME_DIR", dir);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap();
        seen.check_object(&serving);
        assert_eq!(serving["pid"], server.id(), "{serving}");
        for address in [&serving["addresses"][0], &serving["admin"]] {
            assert!(address.as_str().unwrap().starts_with("127.0.0.1:"), "{serving}");
        }
        if what == ["s.db"] {
            let args = ["sessions"];
            let mut command = acetate(dir, &seen.with_json(&args));
            let output = command.env("XDG_RUNTIME_DIR", dir).output().unwrap();
            seen.check(0, &args, output);
            seen.run(dir, 0, &["status", "s.db"]);
        }
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

/// A command that is mounted, and one that is unmounted, where mounting can be feigned.
pub(super) fn run_mounts(seen: &mut Seen) {
    let unmount = "umount -l $PWD; umount /proc/$PPID/mountinfo";
    let args = ["run", "s.db", "--no-base", "--report", "report", "--", "sh", "-c", unmount];
    let Some((place, mut command)) = feigned(&args) else {
        for name in ["run", "mount", "umount"] {
            seen.skip(name, "this process may not mount");
        }
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = fs::read_to_string(place.path("report")).unwrap();
    seen.check_object(&serde_json::from_str(&report).unwrap());

    // The table of mounts is that of the program alone.
    let args = ["mount", "s.db", "at"];
    let mount = seen.with_json(&args);
    let output = place.command_by(&["unshare", "--mount"], &mount).output().unwrap();
    seen.check(0, &args, output);
    let args = ["umount", "at"];
    let output = place.run(&seen.with_json(&args));
    seen.check(0, &args, output);
}
