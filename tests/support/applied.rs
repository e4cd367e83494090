//! A session's changes, applied to a copy of its base: that must be the merged tree then, with
//! owners, modes, times and hard links.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use acetate::delta::{Ino, MergedPath};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, ApplyOptions, ApplyPlan, Consent, DroppedCopy, Report,
    SessionUpdater, apply, plan,
};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::{AppliedPart, CopyStep, RebaseItem};
use acetate::vfs::FileKind;

use super::world::World;

/// All that a copy of an object has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: FileKind,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, u32),
    pub content: Vec<u8>,
    /// The first of its names.
    pub first: Vec<u8>,
}

/// Objects by path; the top's is empty.
pub type Exact = BTreeMap<Vec<u8>, Object>;

/// The merged tree.
pub fn merged(session: &Path, base: Option<&Path>) -> Exact {
    let opened = OpenSession::open(session, base).unwrap();
    let (mut tree, mut first) = (Exact::new(), HashMap::new());
    opened
        .with_tree(|view| {
            walk(view, &view.root().unwrap(), &mut |_, object, _| {
                let attr = object.attr();
                let path = object.path().as_bytes()[1..].to_vec();
                let content = match attr.kind {
                    FileKind::Regular => {
                        let mut content = vec![0; attr.size as usize];
                        assert_eq!(view.read(object, 0, &mut content).unwrap(), content.len());
                        content
                    }
                    FileKind::Symlink => view.target(object).unwrap().to_vec(),
                    _ => Vec::new(),
                };
                let first = first.entry(object.locator()).or_insert(path.clone()).clone();
                let mode = if attr.kind == FileKind::Symlink { 0o777 } else { attr.mode };
                let mtime = (attr.mtime.secs, attr.mtime.nanos);
                let owner = (attr.uid, attr.gid);
                let object = Object { kind: attr.kind, mode, owner, mtime, content, first };
                tree.insert(path, object);
                Ok(WalkControl::Deeper)
            })
        })
        .unwrap();
    tree
}

/// A directory of the host.
pub fn on_host(top: &Path) -> Exact {
    let mut tree = Exact::new();
    read(top, Vec::new(), &mut tree);
    let mut first = BTreeMap::new();
    for (path, object) in &mut tree {
        let ino = fs::symlink_metadata(join(top, path)).unwrap().ino();
        object.first = first.entry(ino).or_insert(path.clone()).clone();
    }
    tree
}

fn join(top: &Path, path: &[u8]) -> PathBuf {
    top.join(std::ffi::OsStr::from_bytes(path))
}

fn read(top: &Path, path: Vec<u8>, tree: &mut Exact) {
    let host = join(top, &path);
    let meta = host.symlink_metadata().unwrap();
    let kind = FileKind::from_mode(meta.mode()).unwrap();
    let content = match kind {
        FileKind::Regular => fs::read(&host).unwrap(),
        FileKind::Symlink => fs::read_link(&host).unwrap().as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    let object = Object {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        mtime: (meta.mtime(), meta.mtime_nsec() as u32),
        content,
        first: Vec::new(),
    };
    tree.insert(path.clone(), object);
    if kind == FileKind::Directory {
        for entry in fs::read_dir(&host).unwrap() {
            let name = entry.unwrap().file_name();
            let below = match path.is_empty() {
                true => name.as_bytes().to_vec(),
                false => [&path[..], b"/", name.as_bytes()].concat(),
            };
            read(top, below, tree);
        }
    }
}

/// Asserts that two trees are the same; names only what differs.
#[track_caller]
pub fn assert_same(got: &Exact, wanted: &Exact) {
    let paths = got.keys().chain(wanted.keys());
    let differ = paths.filter(|path| got.get(*path) != wanted.get(*path));
    let lines: std::collections::BTreeSet<String> = differ
        .map(|path| {
            let brief = |tree: &Exact| {
                tree.get(path).map(|o| {
                    let (content, first) = (o.content.escape_ascii(), o.first.escape_ascii());
                    let (kind, mode) = (o.kind, o.mode);
                    format!("{kind:?} {mode:o} {:?} {:?} ={first} {content}", o.owner, o.mtime)
                })
            };
            format!("{}: {:?}, not {:?}", path.escape_ascii(), brief(got), brief(wanted))
        })
        .collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

/// A copy of a directory, with all that it has.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Everything is chosen.
pub fn all() -> ApplyOptions {
    ApplyOptions { client_temp_files: true, special: true, ..ApplyOptions::default() }
}

/// What would be done.
pub fn planned(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
) -> Result<ApplyPlan> {
    plan(opened, to, options, &mut |_| {})
}

/// Applies the changes to a directory.
pub fn applied(opened: &OpenSession, to: Option<&Path>, options: &ApplyOptions) -> Result<Report> {
    let plan = planned(opened, to, options)?;
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    apply(opened, to, options, Consent::Shown(&plan), None, &mut watch)
}

/// Asserts that the session's changes make the merged tree of a copy of the base.
#[track_caller]
pub fn assert_makes_merged(session: &Path, base: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    copy(base, &to);
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let report = applied(&opened, Some(&to), &all()).unwrap();
    assert_eq!(report.skipped, []);
    assert_same(&on_host(&to), &merged(session, Some(base)));
}

/// The session of a world that is served, which forgets what was applied.
pub struct Book<'a>(pub &'a World);

impl SessionUpdater for Book<'_> {
    /// A piece at a time.
    fn copy(&mut self, from: Ino) -> Result<CopyStep> {
        Ok(self.0.wait(self.0.overlay.copy_for(from, Duration::ZERO)).unwrap())
    }

    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        let let_go = |applied: &AppliedChange| RebaseItem {
            path: applied.path.clone(),
            from: applied.from.clone(),
            object: applied.object,
            was_entry: is_first && applied.was_entry(),
            base_ctime: applied.base_ctime,
            was_linked: applied.was_linked,
            not_given: applied.not_given,
            merged: applied.merged,
        };
        let (parts, whole): (Vec<_>, Vec<_>) = applied.iter().partition(|a| a.part.is_some());
        let whole = whole.into_iter().map(let_go).collect();
        let kept = self.0.wait(self.0.overlay.rebase(&self.0.caller, whole)).unwrap();
        for applied in parts {
            let part = applied.part.as_ref().unwrap();
            let content = part.content.to_vec().into();
            let part = AppliedPart { content, attributes: part.attributes };
            let kept = self.0.overlay.rebase_part(&self.0.caller, let_go(applied), part);
            self.0.wait(kept).unwrap();
        }
        Ok(kept)
    }

    fn settle_moves(&mut self) -> Result<()> {
        self.0.wait(self.0.overlay.settle_moves(&self.0.caller)).unwrap();
        Ok(())
    }

    fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        let copies = copies.iter().map(|dropped| dropped.copy.clone()).collect();
        self.0.wait(self.0.overlay.drop_unchanged(&self.0.caller, copies)).unwrap();
    }
}

/// Applies the world's changes to its base, and asserts that the merged tree is what it was, and
/// that the session has nothing left.
#[track_caller]
pub fn assert_is_let_go(world: &mut World) {
    let base = world.change_base();
    let before = merged(&world.session(), Some(&base));
    let opened = OpenSession::open(&world.session(), Some(&base)).unwrap();
    let plan = planned(&opened, None, &all()).unwrap();
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    let mut book = Book(world);
    let report =
        apply(&opened, None, &all(), Consent::Shown(&plan), Some(&mut book), &mut watch).unwrap();
    assert_eq!(report.skipped, []);
    assert_same(&on_host(&base), &before);
    drop(opened);
    // Whoever looks again does so with another program, and not within a moment.
    let opened = OpenSession::open(&world.session(), Some(&base)).unwrap();
    let plan = planned(&opened, None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.drifted.is_empty(), "{plan:#?}");
    drop(opened);
    world.reopen();
    assert_same(&merged(&world.session(), Some(&base)), &before);
    assert_eq!(world.whiteouts(), [""; 0]);
}
