//! What `acetate export` writes, put to the test by GNU tar: extracted, or laid over the base as a
//! layer, it is the merged tree with modes, owners, times and hard links.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use acetate::delta::MergedPath;
use acetate::inspect::InspectError;
use acetate::inspect::export::{
    CopyOutOptions, ExportWatch, Exported, Keep, OutputDir, Tar, export,
};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::selection::Selection;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::{TreeObject, TreeView};
use acetate::vfs::{FileKind, Time};

/// All that an export has to keep of an object.
#[derive(Clone, PartialEq, Eq)]
pub struct Kept {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    device: (u32, u32),
    /// The first path of the same object, where it has several.
    first: Vec<u8>,
    content: Vec<u8>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, owner, mtime, device, first, content } = self;
        write!(f, "{mode:o} {owner:?} {mtime:?} {device:?} ")?;
        let shown = &content[..content.len().min(100)];
        write!(f, "{} {}", first.escape_ascii(), shown.escape_ascii())
    }
}

/// Objects by path; the root's is empty.
pub type Objects = BTreeMap<Vec<u8>, Kept>;

/// Collects what is left out.
#[derive(Default)]
pub struct LeftOut(pub std::cell::RefCell<Vec<String>>);

impl ExportWatch for LeftOut {
    fn progress(&self, _: u64, _: u64) {}

    fn left_out(&self, path: &MergedPath, why: &str) {
        self.0.borrow_mut().push(format!("{}: {why}", path.display()));
    }
}

pub fn options(path: &str, delta_only: bool) -> CopyOutOptions {
    let path = MergedPath::from_user(path.as_bytes()).unwrap();
    CopyOutOptions { path, selection: Selection::default(), delta_only }
}

/// The archive of a session.
pub fn tar_of(
    opened: &OpenSession,
    options: &CopyOutOptions,
) -> Result<(Vec<u8>, Vec<String>), InspectError> {
    let mut tar = Tar::new(Vec::new(), PathBuf::from("memory")).with_exact_times(true);
    let (left_out, mut done) = (LeftOut::default(), Exported::default());
    export(opened, options, &mut tar, &left_out, &mut done)?;
    Ok((tar.finish()?, left_out.0.into_inner()))
}

/// Fills a directory with a session's tree.
pub fn dir_of(
    opened: &OpenSession,
    options: &CopyOutOptions,
    path: &Path,
) -> Result<Exported, InspectError> {
    let mut done = Exported::default();
    let mut dir = OutputDir::create(path, Keep { set_id: true, devices: true })?;
    export(opened, options, &mut dir, &LeftOut::default(), &mut done)?;
    Ok(done)
}

/// Extracts an archive with GNU tar.
#[track_caller]
pub fn extract(archive: &[u8], to: &Path) {
    fs::create_dir_all(to).unwrap();
    let file = to.with_extension("tar");
    fs::write(&file, archive).unwrap();
    let mut tar = Command::new("tar");
    // The tests' clock is ahead.
    tar.args(["--warning=no-timestamp", "-xpf"])
        .arg(&file)
        .arg("-C")
        .arg(to)
        .args(["--same-owner", "--numeric-owner"]);
    let output = tar.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let odd = said.lines().filter(|line| !line.contains("hdrcharset"));
    assert_eq!(odd.collect::<Vec<_>>(), [""; 0]);
}

/// What a host directory holds.
pub fn on_host(root: &Path) -> Objects {
    let (mut objects, mut firsts) = (Objects::new(), BTreeMap::new());
    read_host(root, b"", &mut firsts, &mut objects);
    objects
}

fn read_host(root: &Path, path: &[u8], firsts: &mut BTreeMap<u64, Vec<u8>>, objects: &mut Objects) {
    let file = if path.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(path)) };
    let meta = file.symlink_metadata().unwrap();
    let is_dir = meta.is_dir();
    let mut first = path.to_vec();
    if !is_dir && meta.nlink() > 1 {
        first.clone_from(firsts.entry(meta.ino()).or_insert_with(|| path.to_vec()));
    }
    let kind = meta.file_type();
    let content = if meta.is_file() {
        fs::read(&file).unwrap()
    } else if meta.is_symlink() {
        fs::read_link(&file).unwrap().as_os_str().as_bytes().to_vec()
    } else {
        Vec::new()
    };
    let is_device = kind.is_block_device() || kind.is_char_device();
    let rdev = if is_device { meta.rdev() } else { 0 };
    objects.insert(
        path.to_vec(),
        Kept {
            mode: mode_of(meta.mode()),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            device: (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
            first,
            content,
        },
    );
    if is_dir {
        let mut names: Vec<_> =
            fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            read_host(root, &[path, slash, name.as_bytes()].concat(), firsts, objects);
        }
    }
}

/// A symbolic link's mode says nothing.
fn mode_of(mode: u32) -> u32 {
    if mode & 0o170_000 == 0o120_000 { 0o120_777 } else { mode }
}

/// What the merged tree holds.
pub fn merged(opened: &OpenSession) -> Objects {
    let (mut objects, mut firsts) = (Objects::new(), BTreeMap::new());
    opened
        .with_tree(|view| {
            walk(view, &view.root().unwrap(), &mut |_, object, _| {
                let path = object.path().as_bytes()[1..].to_vec();
                let attr = object.attr();
                let mut first = path.clone();
                if attr.kind != FileKind::Directory {
                    first.clone_from(firsts.entry(attr.fileid).or_insert(path.clone()));
                }
                let Time { secs, nanos } = attr.mtime;
                let is_device = matches!(attr.kind, FileKind::Block | FileKind::Character);
                let rdev = if is_device { attr.rdev } else { Default::default() };
                let kept = Kept {
                    mode: mode_of(attr.kind.mode_bits() | attr.mode),
                    owner: (attr.uid, attr.gid),
                    mtime: (secs, nanos.into()),
                    device: (rdev.major, rdev.minor),
                    first,
                    content: content(view, object),
                };
                objects.insert(path, kept);
                Ok(WalkControl::Deeper)
            })
            .map(drop)
        })
        .unwrap();
    objects
}

fn content(view: &TreeView<'_>, object: &TreeObject) -> Vec<u8> {
    match object.attr().kind {
        FileKind::Regular => {
            let mut content = vec![0; object.attr().size as usize];
            assert_eq!(view.read(object, 0, &mut content).unwrap(), content.len());
            content
        }
        FileKind::Symlink => view.target(object).unwrap().to_vec(),
        _ => Vec::new(),
    }
}

/// Lays the layer that was extracted to `layer` over `target`, as image-spec's layer.md says.
pub fn apply_layer(layer: &Path, target: &Path) {
    hide(layer, target);
    let script = "tar -C \"$1\" --format=pax --exclude='.wh.*' -cf - . |
        tar -C \"$2\" --warning=no-timestamp -xpf - --same-owner --numeric-owner";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).args([layer, target]);
    assert!(shell.status().unwrap().success());
}

/// Takes away what the layer hides or replaces.
fn hide(layer: &Path, target: &Path) {
    let mut names: Vec<_> =
        fs::read_dir(layer).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_by_key(|name| name != ".wh..wh..opq");
    for name in names {
        let below = target.join(&name);
        if name == ".wh..wh..opq" {
            for entry in fs::read_dir(target).unwrap() {
                remove(&entry.unwrap().path());
            }
        } else if let Some(gone) = name.as_bytes().strip_prefix(b".wh.") {
            remove(&target.join(OsStr::from_bytes(gone)));
        } else if layer.join(&name).symlink_metadata().unwrap().is_dir() {
            if !below.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                remove(&below);
                fs::create_dir(&below).unwrap();
            }
            hide(&layer.join(&name), &below);
        } else {
            remove(&below);
        }
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Asserts that two trees are the same; names only what differs.
#[track_caller]
pub fn assert_same(found: &Objects, expected: &Objects, what: &str) {
    let is_root = rustix::process::geteuid().is_root();
    let comparable = |object: &Kept| match is_root {
        true => object.clone(),
        false => Kept { owner: (0, 0), ..object.clone() },
    };
    let paths: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ: Vec<String> = paths
        .into_iter()
        .map(|path| (path, found.get(path).map(comparable), expected.get(path).map(comparable)))
        .filter(|(_, found, expected)| found != expected)
        .map(|(path, found, expected)| {
            format!("{}: {found:?}, not {expected:?}", path.escape_ascii())
        })
        .collect();
    assert!(differ.is_empty(), "{what}: {differ:#?}");
}

/// Asserts that each kind of export makes the merged tree.
#[track_caller]
pub fn assert_exports(session: &Path, base: &Path) {
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let expected = merged(&opened);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (archive, left_out) = tar_of(&opened, &options("/", false)).unwrap();
    assert_eq!(left_out, [""; 0]);
    extract(&archive, &at("whole"));
    assert_same(&on_host(&at("whole")), &expected, "the archive");
    dir_of(&opened, &options("/", false), &at("filled")).unwrap();
    assert_same(&on_host(&at("filled")), &expected, "the directory");
    let (layer, _) = tar_of(&opened, &options("/", true)).unwrap();
    extract(&layer, &at("layer"));
    dir_of(&opened, &options("/", true), &at("filled-layer")).unwrap();
    for layer in ["layer", "filled-layer"] {
        let target = at(&format!("over-{layer}"));
        let copied = Command::new("cp").arg("-a").args([base, &target]).status().unwrap();
        assert!(copied.success());
        apply_layer(&at(layer), &target);
        assert_same(&on_host(&target), &expected, layer);
    }
}
