//! The session's patch, put to the test by git: applied to a copy of the base, it makes the
//! files and links of the merged tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use acetate::inspect::diff::DiffOptions;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::patch::{PatchOmissions, patch};
use acetate::vfs::FileKind;

use super::tree::Tree;

/// A file or link as git knows it: whether it may be executed, or is a link; and its content.
type Files = BTreeMap<Vec<u8>, (char, Vec<u8>)>;

/// The patch of a session.
pub fn text(session: &Path, base: &Path) -> (Vec<u8>, PatchOmissions) {
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let mut text = Vec::new();
    let options = DiffOptions { client_temp_files: true, ..DiffOptions::default() };
    let left_out = patch(&opened, &options, &mut text).unwrap().unwrap();
    (text, left_out)
}

/// Asserts that git makes the files of `merged` of the base and the session's patch.
#[track_caller]
pub fn assert_applies(session: &Path, base: &Path, merged: &Tree) {
    let (text, _) = text(session, base);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let copied = Command::new("cp").arg("-a").args([base, &copy]).status().unwrap();
    assert!(copied.success());
    if !text.is_empty() {
        fs::write(dir.path().join("patch"), &text).unwrap();
        git_apply(&copy, &["--check"], &text);
        git_apply(&copy, &[], &text);
    }
    let wanted: Files = merged
        .iter()
        .filter_map(|(path, object)| {
            let kind = match object.kind {
                FileKind::Regular if object.mode & 0o100 != 0 => 'x',
                FileKind::Regular => '-',
                FileKind::Symlink => 'l',
                _ => return None,
            };
            Some((path.clone(), (kind, object.content.clone())))
        })
        .collect();
    let mut got = Files::new();
    read(&copy, b"", &mut got);
    let differs: Vec<String> = wanted
        .keys()
        .chain(got.keys())
        .filter(|path| wanted.get(*path) != got.get(*path))
        .map(|path| {
            let brief = |files: &Files| {
                files.get(path).map(|(kind, content)| format!("{kind} {}", content.escape_ascii()))
            };
            format!("{}: {:?}, not {:?}", path.escape_ascii(), brief(&got), brief(&wanted))
        })
        .collect();
    assert!(differs.is_empty(), "{differs:?}\n{}", String::from_utf8_lossy(&text));
}

/// Asserts that git makes the base's files again of those that it made with the session's patch.
/// It does not where a file became a link, or a link a file: not with its own patches either.
#[track_caller]
pub fn assert_taken_back(session: &Path, base: &Path) {
    let (text, _) = text(session, base);
    if text.is_empty() || String::from_utf8_lossy(&text).contains("file mode 120000") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let copied = Command::new("cp").arg("-a").args([base, &copy]).status().unwrap();
    assert!(copied.success());
    fs::write(dir.path().join("patch"), &text).unwrap();
    git_apply(&copy, &[], &text);
    git_apply(&copy, &["-R"], &text);
    let (mut before, mut back) = (Files::new(), Files::new());
    read(base, b"", &mut before);
    read(&copy, b"", &mut back);
    assert_eq!(back, before, "taken back\n{}", String::from_utf8_lossy(&text));
}

/// Runs `git apply` on the patch beside a directory.
#[track_caller]
fn git_apply(dir: &Path, args: &[&str], text: &[u8]) {
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn", "-p1"]).args(args).arg("../patch");
    // No repository, whatever is above the place for temporary files.
    git.env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap()).stderr(Stdio::piped());
    let output = git.current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(text);
    assert!(output.status.success(), "{args:?}: {said}\n{text}");
}

fn read(dir: &Path, path: &[u8], files: &mut Files) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let below = [path, slash, name.as_bytes()].concat();
        let meta = entry.path().symlink_metadata().unwrap();
        if meta.is_dir() {
            read(&entry.path(), &below, files);
        } else if meta.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec();
            files.insert(below, ('l', target));
        } else if meta.is_file() {
            let kind = if meta.permissions().mode() & 0o100 != 0 { 'x' } else { '-' };
            files.insert(below, (kind, fs::read(entry.path()).unwrap()));
        }
    }
}
