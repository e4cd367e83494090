//! Decides what is exported: the merged tree, or a layer over the base.
//!
//! In a layer, a directory is *whole* if the base shows nothing through it at its path: it is new
//! or was moved there. All entries of a whole directory are written. Elsewhere only differences are
//! written, and a whiteout for each base name that the merged tree lacks. Directories without a row
//! in the session are walked only if something below them may differ.

use std::collections::{HashMap, HashSet};
use std::vec::IntoIter;

use super::super::error::{InspectError, Result};
use super::super::opened::find;
use super::super::walk::children;
use super::{
    CopyOutOptions, ExportItem, ExportSink, ExportWatch, Exported, Flow, ItemOutcome, OPAQUE,
    WHITEOUT,
};
use crate::delta::MergedPath;
use crate::inspect::selection::Selection;
use crate::overlay::{LostDir, TreeObject, TreeView};
use crate::vfs::{FileId, FileKind, FsError, Locator, Name};

/// Runs the export.
pub(super) fn export(
    view: &TreeView<'_>,
    options: &CopyOutOptions,
    sink: &mut dyn ExportSink,
    watch: &dyn ExportWatch,
    done: &mut Exported,
) -> Result<()> {
    let start = find(view, &options.path)?;
    let failed = |source| InspectError::Path { path: options.path.clone(), source };
    let mut moved_links = HashSet::new();
    let mut is_deep = false;
    // The trial run detects names that a layer cannot represent before anything is written.
    if options.delta_only {
        let mut search = TrialRun(&mut moved_links);
        let (mut counted, flow) = (Exported::default(), flow(&Quiet, true));
        let mut trial = ExportWalk::new(view, options, &mut search, &flow, &mut counted);
        trial.is_deep = view.has_strays().map_err(failed)?;
        is_deep = trial.is_deep;
        trial.run(start.clone())?;
        is_deep |= !moved_links.is_empty();
    }
    let flow = flow(watch, options.delta_only);
    let lost = view.lost_dirs().map_err(failed)?;
    let mut export = ExportWalk::new(view, options, sink, &flow, done);
    (export.is_deep, export.moved_links) = (is_deep, moved_links);
    export.lost = lost.into_iter().map(|lost| (lost.path.clone(), lost)).collect();
    export.run(start)
}

fn flow(watch: &dyn ExportWatch, is_layer: bool) -> Flow<'_> {
    Flow { watch, is_layer, objects: Default::default(), bytes: Default::default() }
}

struct ExportWalk<'a> {
    view: &'a TreeView<'a>,
    sink: &'a mut dyn ExportSink,
    flow: &'a Flow<'a>,
    done: &'a mut Exported,
    selection: &'a Selection,
    delta_only: bool,
    /// Whether to walk directories without a row in the session.
    is_deep: bool,
    /// Hard-linked base files with a name in a moved directory. All their names are written, so
    /// that they are links of one file again.
    moved_links: HashSet<FileId>,
    /// Files with names still to come: the path of the first, and the most names left.
    seen: HashMap<Locator, (Vec<u8>, u32)>,
    /// Moved directories whose base directories are gone.
    lost: HashMap<MergedPath, LostDir>,
    levels: Vec<LeadingDir>,
    /// The path of the current object, relative to the start of the export.
    path: Vec<u8>,
}

/// A directory on the path to the current object.
struct LeadingDir {
    dir: TreeObject,
    path_bytes: usize,
    is_whole: bool,
    is_opaque: bool,
    is_written: bool,
    children: IntoIter<(Name, TreeObject)>,
    whiteouts: IntoIter<Name>,
}

impl<'a> ExportWalk<'a> {
    fn new(
        view: &'a TreeView<'a>,
        options: &'a CopyOutOptions,
        sink: &'a mut dyn ExportSink,
        flow: &'a Flow<'a>,
        done: &'a mut Exported,
    ) -> Self {
        Self {
            view,
            sink,
            flow,
            done,
            selection: &options.selection,
            delta_only: options.delta_only,
            is_deep: false,
            moved_links: HashSet::new(),
            seen: HashMap::new(),
            lost: HashMap::new(),
            levels: Vec::new(),
            path: Vec::new(),
        }
    }

    fn run(&mut self, start: TreeObject) -> Result<()> {
        if start.attr().kind != FileKind::Directory {
            let name = start.path().name();
            self.path = name.map_or_else(Vec::new, |name| name.as_bytes().to_vec());
            let is_chosen = self.selection.has(self.view, start.path(), false);
            return if is_chosen && self.is_needed(&start, !self.delta_only) {
                self.put(&start)
            } else {
                Ok(())
            };
        }
        let needed = self.is_needed(&start, !self.delta_only);
        self.open(start, false)?;
        if needed {
            self.write_dirs()?;
        }
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_bytes);
            let is_whole = level.is_whole;
            if let Some(name) = level.whiteouts.next() {
                self.whiteout(&name)?;
            } else if let Some((name, child)) = level.children.next() {
                self.child(&name, child, is_whole)?;
            } else if self.levels.pop().is_some_and(|level| level.is_written) {
                self.sink.leave()?;
            }
        }
        Ok(())
    }

    fn is_needed(&self, object: &TreeObject, is_whole: bool) -> bool {
        is_whole || object.differs_from_base() || self.moved_links.contains(&object.attr().fileid)
    }

    fn child(&mut self, name: &Name, child: TreeObject, is_whole: bool) -> Result<()> {
        let is_dir = child.attr().kind == FileKind::Directory;
        let is_chosen = self.selection.has(self.view, child.path(), is_dir);
        let needed = is_chosen && self.is_needed(&child, is_whole);
        match needed {
            true if self.delta_only => check_name(name, child.path())?,
            true => {}
            // Something below the directory may be needed.
            false if is_dir && self.is_deep && is_chosen => {}
            false if is_dir && !is_chosen && self.selection.may_hold(child.path()) => {}
            false => return Ok(()),
        }
        self.push_name(name.as_bytes());
        if !is_dir {
            return self.put(&child);
        }
        self.open(child, is_whole)?;
        if needed { self.write_dirs() } else { Ok(()) }
    }

    /// Enters a directory; it is written when the first object in it is.
    fn open(&mut self, dir: TreeObject, in_whole: bool) -> Result<()> {
        let failed = |source| InspectError::Path { path: dir.path().clone(), source };
        let (mut is_whole, mut base) = (true, None);
        if self.delta_only && !in_whole {
            is_whole = !self.view.is_in_place(&dir).map_err(failed)?;
            base = self.view.base_names(dir.path()).map_err(failed)?;
        }
        if let Some(lost) = self.lost.get(dir.path()) {
            self.leave_out(dir.path(), &format!("its entries that do not show: {lost}"));
        }
        let is_opaque = is_whole && base.is_some();
        let children = match children(self.view, &dir) {
            Ok(children) => children,
            // The entries of an unreadable base directory are unknown.
            Err(InspectError::Path { source: FsError::Access, path }) => {
                base = None;
                self.leave_out(&path, "its entries cannot be listed: permission denied");
                Vec::new()
            }
            Err(InspectError::Path { source: source @ FsError::Loop, path }) => {
                base = None;
                self.leave_out(&path, &format!("its entries cannot be listed: {source}"));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let mut whiteouts = if is_whole { Vec::new() } else { base.unwrap_or_default() };
        let known = |name: &Name| children.binary_search_by(|(n, _)| n.cmp(name)).is_ok();
        let chosen = |name: &Name| self.selection.has(self.view, &dir.path().join(name), false);
        whiteouts.retain(|name| !known(name) && chosen(name));
        whiteouts.sort_unstable();
        self.levels.push(LeadingDir {
            dir,
            path_bytes: self.path.len(),
            is_whole,
            is_opaque,
            is_written: false,
            children: children.into_iter(),
            whiteouts: whiteouts.into_iter(),
        });
        Ok(())
    }

    /// Writes the directories on the path to the current object that are not written yet.
    fn write_dirs(&mut self) -> Result<()> {
        for level in self.levels.iter_mut().filter(|level| !level.is_written) {
            let path = &self.path[..level.path_bytes];
            let item = ExportItem { view: self.view, object: &level.dir, path, flow: self.flow };
            self.sink.enter(&item)?;
            level.is_written = true;
            self.done.directories += 1;
            self.flow.add(1, 0);
            if level.is_opaque {
                self.sink.whiteout(&joined(path, OPAQUE))?;
                self.done.whiteouts += 1;
            }
        }
        Ok(())
    }

    fn whiteout(&mut self, name: &Name) -> Result<()> {
        self.write_dirs()?;
        if let Some(level) = self.levels.last() {
            check_name(name, &level.dir.path().join(name))?;
        }
        self.sink.whiteout(&joined(&self.path, &[WHITEOUT, name.as_bytes()].concat()))?;
        self.done.whiteouts += 1;
        Ok(())
    }

    /// Writes an object that is not a directory, at the current path.
    fn put(&mut self, object: &TreeObject) -> Result<()> {
        self.write_dirs()?;
        let attr = object.attr();
        let item = ExportItem { view: self.view, object, path: &self.path, flow: self.flow };
        let id = object.locator();
        if let Some((first, left)) = self.seen.get_mut(&id) {
            self.sink.link(&item, first)?;
            self.done.links += 1;
            self.flow.add(1, 0);
            *left -= 1;
            if *left == 0 {
                self.seen.remove(&id);
            }
            return Ok(());
        }
        if let ItemOutcome::LeftOut(why) = self.sink.put(&item)? {
            self.leave_out(object.path(), &why);
            return Ok(());
        }
        let failed = |source| InspectError::Path { path: object.path().clone(), source };
        let names = self.view.most_names(object).map_err(failed)?;
        if names > 1 {
            self.seen.insert(id, (self.path.clone(), names - 1));
        }
        self.flow.add(1, 0);
        match attr.kind {
            FileKind::Regular => {
                self.done.files += 1;
                self.done.bytes = self.done.bytes.saturating_add(attr.size);
            }
            _ => self.done.others += 1,
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &MergedPath, why: &str) {
        self.done.left_out += 1;
        self.flow.watch.left_out(path, why);
    }

    fn push_name(&mut self, name: &[u8]) {
        self.path = joined(&self.path, name);
    }
}

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Refuses a name that is a whiteout in a layer.
fn check_name(name: &Name, path: &MergedPath) -> Result<()> {
    if !name.as_bytes().starts_with(WHITEOUT) {
        return Ok(());
    }
    let what = format!(
        "{}: in a layer, names that begin with .wh. say what is gone, so this one cannot be told",
        path.display()
    );
    Err(InspectError::Invalid { what })
}

/// A sink that writes nothing and collects the hard-linked base files in moved directories.
struct TrialRun<'a>(&'a mut HashSet<FileId>);

impl ExportSink for TrialRun<'_> {
    fn enter(&mut self, _: &ExportItem<'_>) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, item: &ExportItem<'_>) -> Result<ItemOutcome> {
        if item.object.row().is_none() && item.object.attr().nlink > 1 {
            self.0.insert(item.object.attr().fileid);
        }
        Ok(ItemOutcome::Written)
    }

    fn link(&mut self, _: &ExportItem<'_>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn whiteout(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// The callbacks of the trial run.
struct Quiet;

impl ExportWatch for Quiet {
    fn progress(&self, _: u64, _: u64) {}

    fn left_out(&self, _: &MergedPath, _: &str) {}
}
