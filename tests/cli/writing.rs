//! `write` and `cp` into the tree: all of the content is there in the end, or none of it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use acetate::workspace::Workspace;

use super::program::{Serving, acetate, run};
use crate::support::check::assert_consistent;

const MIB: usize = 1 << 20;

/// More than is held to be written at once.
const LARGE: usize = 9 * MIB;

fn write(dir: &Path, args: &[&str], content: &[u8]) -> Output {
    let mut command = acetate(dir, &[&["write", "s.db"], args].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Whoever refuses the content may not read all of it.
    let _written = child.stdin.take().unwrap().write_all(content);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("quota exceeded\nhint: "), "{said}");
    said
}

#[track_caller]
fn says(dir: &Path, args: &[&str]) -> Vec<u8> {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A session over a base with a file that has two names, served or not, for each.
fn in_both(test: impl Fn(&Path)) {
    for is_served in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::create_dir(path.join("base")).unwrap();
        fs::write(path.join("base/one"), "base").unwrap();
        fs::hard_link(path.join("base/one"), path.join("base/two")).unwrap();
        says(path, &["init", "s.db", "--base", "base"]);
        let server = is_served.then(|| Serving::start(path, 1, &["s.db"]));
        test(path);
        if let Some(server) = server {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert_eq!(fs::read(path.join("base/one")).unwrap(), b"base");
        assert_consistent(&path.join("s.db"));
    }
}

#[test]
fn what_does_not_fit_leaves_all_as_it_was() {
    in_both(|dir| {
        let old = vec![b'o'; 3 * MIB];
        assert!(write(dir, &["old", "--mode", "640"], &old).status.success());
        says(dir, &["quota", "s.db", "--bytes", "6MiB"]);
        let new = vec![b'n'; 7 * MIB];
        for args in [&["new"][..], &["old", "--mode", "600"], &["old", "-a"]] {
            refused(&write(dir, args, &new));
        }
        fs::write(dir.join("copied"), &new).unwrap();
        refused(&run(dir, &["cp", "s.db", "copied", ":copied"]));
        let large = vec![b'l'; LARGE];
        assert!(refused(&write(dir, &["old"], &large)).contains("the old content is kept until"));
        assert_eq!(says(dir, &["ls", "s.db"]), b"old\none\ntwo\n");
        assert!(says(dir, &["cat", "s.db", "old"]) == old);
        let long = String::from_utf8(says(dir, &["ls", "s.db", "-l"])).unwrap();
        assert!(long.contains(" -rw-r----- "), "{long}");
        let quota = String::from_utf8(says(dir, &["quota", "s.db"])).unwrap();
        assert_eq!(quota, "bytes  3.0 MiB of 6.0 MiB\nfiles  1 of 65536\n");
        // What is replaced makes room for what replaces it.
        assert!(write(dir, &["old"], &new[..5 * MIB]).status.success());
        assert!(says(dir, &["cat", "s.db", "old"]) == new[..5 * MIB]);
    });
}

#[test]
fn a_file_stays_the_same_one_with_all_its_names() {
    in_both(|dir| {
        assert!(write(dir, &["one"], b"small").status.success());
        assert_eq!(says(dir, &["cat", "s.db", "two"]), b"small");
        let log = String::from_utf8(says(dir, &["log", "s.db"])).unwrap();
        assert!(log.contains("SETATTR  /one  size 0\n") && log.contains("offset 0, 5 bytes\n"));
        let large = vec![b'l'; LARGE];
        assert!(write(dir, &["two"], &large).status.success());
        assert!(says(dir, &["cat", "s.db", "one"]) == large);
        assert!(write(dir, &["one"], b"").status.success());
        assert_eq!(says(dir, &["cat", "s.db", "two"]), b"");
    });
}

#[test]
fn a_large_file_takes_the_place_of_the_one_that_is_there() {
    in_both(|dir| {
        assert!(write(dir, &["file", "--mode", "750"], b"small").status.success());
        let large: Vec<u8> = (0..LARGE).map(|at| (at / 1000) as u8).collect();
        fs::write(dir.join("large"), &large).unwrap();
        assert!(write(dir, &["file"], &large).status.success());
        let long = String::from_utf8(says(dir, &["ls", "s.db", "-l"])).unwrap();
        assert!(long.contains(" -rwxr-x--- "), "{long}");
        assert!(says(dir, &["cat", "s.db", "file"]) == large);
        says(dir, &["cp", "s.db", "large", ":file"]);
        assert!(says(dir, &["cat", "s.db", "file"]) == large);
        assert_eq!(says(dir, &["ls", "s.db"]), b"file\none\ntwo\n");
    });
}

/// The quota stops whatever writes holes as zeros.
#[test]
fn a_sparse_file_of_the_host_keeps_its_holes() {
    const SIZE: u64 = 1 << 42;
    const DATA_AT: u64 = SIZE / 2;
    in_both(|dir| {
        let data: Vec<u8> = (0..64 << 10).map(|at: usize| (at % 251) as u8 + 1).collect();
        let sparse = File::create(dir.join("sparse")).unwrap();
        sparse.write_all_at(&data, DATA_AT).unwrap();
        sparse.set_len(SIZE).unwrap();
        says(dir, &["quota", "s.db", "--bytes", "32MiB"]);
        says(dir, &["cp", "s.db", "sparse", ":copied"]);
        // In place of a file that is there.
        assert!(write(dir, &["replaced"], b"small").status.success());
        says(dir, &["write", "s.db", "replaced", "--from", "sparse"]);
        // From where stdin is, and after what is there.
        assert!(write(dir, &["added"], b"begin").status.success());
        let mut stdin = File::open(dir.join("sparse")).unwrap();
        stdin.seek(SeekFrom::Start(5)).unwrap();
        let mut adding = acetate(dir, &["write", "s.db", "added", "-a", "--json"]);
        let added = adding.stdin(stdin).output().unwrap();
        assert!(added.status.success(), "{added:?}");
        let said = String::from_utf8(added.stdout).unwrap();
        assert!(said.contains(&format!("\"bytes\":{}", SIZE - 5)), "{said}");
        for (name, begin) in [("copied", [0; 5]), ("replaced", [0; 5]), ("added", *b"begin")] {
            says(dir, &["cp", "s.db", &format!(":{name}"), "out"]);
            let out = File::open(dir.join("out")).unwrap();
            let meta = out.metadata().unwrap();
            assert!(meta.len() == SIZE && meta.blocks() < 4096, "{name}: {meta:?}");
            let mut got = vec![0; data.len() + 2];
            out.read_exact_at(&mut got, DATA_AT - 1).unwrap();
            assert!(got == [&[0], &data[..], &[0]].concat(), "{name}");
            out.read_exact_at(&mut got[..5], 0).unwrap();
            assert_eq!(got[..5], begin, "{name}");
        }
        assert!(fs::metadata(dir.join("s.db")).unwrap().len() < 8 * MIB as u64);
    });
}

/// Gives so many bytes, and fails.
struct Breaking(usize);

impl Read for Breaking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = buffer.len().min(self.0);
        self.0 -= bytes;
        if bytes == 0 { Err(io::Error::other("torn")) } else { Ok(bytes) }
    }
}

#[test]
fn content_that_cannot_be_read_to_its_end_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut work = Workspace::create(&dir.path().join("s.db"), None).unwrap();
    work.write("old", "content".as_bytes()).unwrap();
    for bytes in [0, 2 * MIB, LARGE] {
        for path in ["old", "new"] {
            let error = work.write(path, Breaking(bytes)).unwrap_err().to_string();
            assert!(error.contains("cannot be read: torn"), "{error}");
        }
        assert_eq!(work.list("/").unwrap(), ["old"], "{bytes}");
        assert_eq!(work.read("old").unwrap(), b"content", "{bytes}");
    }
    work.close().unwrap();
}

#[test]
fn a_copy_that_does_not_fit_on_the_host_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    says(dir, &["init", "s.db"]);
    assert!(write(dir, &["file"], &vec![b'x'; 4 * MIB]).status.success());
    let program = env!("CARGO_BIN_EXE_acetate");
    // In blocks of 512 bytes, or of 1024.
    let line = format!("ulimit -f 2048; trap '' XFSZ; exec {program} cp s.db :file out");
    let copied = Command::new("sh").args(["-c", &line]).current_dir(dir).output().unwrap();
    assert_eq!(copied.status.code(), Some(1), "{copied:?}");
    let said = String::from_utf8_lossy(&copied.stderr);
    assert_eq!(said, "left out: :/file: out cannot have 4194304 bytes\n");
    assert!(!dir.join("out").exists());
    says(dir, &["cp", "s.db", ":file", "out"]);
    assert_eq!(fs::metadata(dir.join("out")).unwrap().len(), 4 * MIB as u64);
}
