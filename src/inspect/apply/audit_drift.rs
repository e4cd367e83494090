//! Finds in the audit log since when the session hides a base object.
//!
//! The session's rows store only the last change of an object, and the last whiteout of a name.
//! After the first change, no client saw the base's object any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};

use super::drift::Drifted;
use crate::base::{BaseAttr, BasePath, DELTA_IDS};
use crate::delta::sqlite::Order;
use crate::delta::{AuditProcedure, AuditRow, Dropped, MergedPath, Original};
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::log::{AuditLog, LogOptions};
use crate::inspect::opened::OpenSession;
use crate::vfs::{FileId, Time};

/// A base object that the session hides.
#[derive(Debug)]
pub(super) struct HiddenObject {
    /// Its path in the session.
    pub place: MergedPath,
    /// Its path in the base, as a merged path.
    pub home: MergedPath,
    pub is_dir: bool,
    /// Its ctime in the base.
    pub changed: Time,
    /// The number of the change that hides it.
    pub change: usize,
    /// The drift to report if `changed` is later than the change that first hid it.
    pub drifted: Drifted,
}

/// When the log began, including its deleted rows; `None` if there is no log.
///
/// # Errors
/// The session cannot be read; also for all functions below.
pub(super) fn begun(opened: &OpenSession) -> Result<Option<Time>> {
    if let Some(dropped) = dropped(opened)? {
        return Ok(Some(dropped.since));
    }
    let mut begun = None;
    read(opened, LogOptions::default(), &mut |row| {
        begun = Some(row.time);
        ControlFlow::Break(())
    })?;
    Ok(begun)
}

/// The objects that changed in the base after the session hid them, with the numbers of the changes
/// that hide them.
pub(super) fn changed_since(
    opened: &OpenSession,
    hidden: Vec<HiddenObject>,
) -> Result<Vec<(usize, Drifted)>> {
    if hidden.is_empty() {
        return Ok(Vec::new());
    }
    let mut past = ChangeHistory::of(hidden);
    read(opened, LogOptions { order: Order::NewestFirst, ..LogOptions::default() }, &mut |row| {
        past.undo_row(row);
        match past.open.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    // The deleted rows may have hidden these objects earlier, so they may have drifted.
    if dropped(opened)?.is_some_and(|dropped| !dropped.is_kept) {
        past.late.append(&mut past.open);
    }
    let all = past.hidden.into_iter().enumerate();
    let late = all.filter(|(number, _)| past.late.contains(number));
    Ok(late.map(|(_, hidden)| (hidden.change, hidden.drifted)).collect())
}

/// The rows that were deleted from the log.
fn dropped(opened: &OpenSession) -> Result<Option<Dropped>> {
    match AuditLog::open(opened.session(), LogOptions::default()) {
        Err(InspectError::NoAudit { .. }) => Ok(None),
        log => log?.dropped(),
    }
}

/// A base object in a directory that is to be removed.
#[derive(Debug)]
pub(super) struct RemovedBaseObject {
    /// Its path in the base.
    pub path: BasePath,
    /// The fileid that clients saw.
    pub id: FileId,
    /// Its ctime: an earlier removal by a client was not of this state.
    pub ctime: Time,
    /// The number of the change that removes the directory.
    pub change: usize,
}

impl RemovedBaseObject {
    /// The object at a path, in a directory that `change` removes.
    pub fn of(path: &BasePath, attr: &BaseAttr, change: usize) -> Self {
        Self { path: path.clone(), id: attr.fileid, ctime: attr.ctime, change }
    }

    /// An object that equals its original. It gets the original's fileid and ctime, because the
    /// host may have changed both since.
    pub fn as_hidden(original: &Original, attr: &BaseAttr, change: usize) -> Self {
        // The original of a partly applied file has no fileid.
        let is_known = original.fileid != FileId(0);
        let (id, ctime) = match is_known {
            true => (original.fileid, original.ctime),
            false => (attr.fileid, attr.ctime),
        };
        Self { path: original.path.clone(), id, ctime, change }
    }
}

/// The objects whose removal or replacement by a client is not in the audit log, with their paths
/// in the merged tree. Empty if there is no log.
pub(super) fn never_removed(
    opened: &OpenSession,
    inside: Vec<RemovedBaseObject>,
) -> Result<Vec<(RemovedBaseObject, MergedPath)>> {
    if inside.is_empty() || begun(opened)?.is_none() {
        return Ok(Vec::new());
    }
    not_removed(opened, inside)
}

/// As [`never_removed`], but returns all of `inside` if there is no log.
pub(super) fn not_removed(
    opened: &OpenSession,
    inside: Vec<RemovedBaseObject>,
) -> Result<Vec<(RemovedBaseObject, MergedPath)>> {
    if inside.is_empty() {
        return Ok(Vec::new());
    }
    let mut removals = Removals::of(inside);
    read(opened, LogOptions::default(), &mut |row| {
        removals.do_row(row);
        ControlFlow::Continue(())
    })?;
    Ok(removals.left())
}

/// Reads the log, without unreadable rows.
fn read(
    opened: &OpenSession,
    options: LogOptions,
    each: &mut dyn FnMut(&AuditRow) -> ControlFlow<()>,
) -> Result<()> {
    let log = match AuditLog::open(opened.session(), options) {
        Err(InspectError::NoAudit { .. }) => return Ok(()),
        log => log?,
    };
    log.read_for_tree(each)
}

/// The state of a search of the log from its end.
struct ChangeHistory {
    hidden: Vec<HiddenObject>,
    /// The objects by the path that their place had before the rows read so far.
    names: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    open: BTreeSet<usize>,
    /// Objects that changed in the base after the session hid them.
    late: BTreeSet<usize>,
}

impl ChangeHistory {
    fn of(hidden: Vec<HiddenObject>) -> Self {
        let mut names: BTreeMap<Vec<u8>, BTreeSet<usize>> = BTreeMap::new();
        for (number, hidden) in hidden.iter().enumerate() {
            names.entry(hidden.place.as_bytes().to_vec()).or_default().insert(number);
        }
        let open = (0..hidden.len()).collect();
        Self { hidden, names, open, late: BTreeSet::new() }
    }

    /// Undoes a row; rows come newest first.
    fn undo_row(&mut self, row: &AuditRow) {
        match row.procedure {
            AuditProcedure::Refuse | AuditProcedure::Restore => {}
            // The path that shows the base again is not known, but is below this one.
            AuditProcedure::Discard | AuditProcedure::Apply if row.is_shortened() => {}
            AuditProcedure::Discard => self.shows(&row.path, true),
            AuditProcedure::Apply => {
                // It changed again before the session could drop it.
                if row.fileid.0 >= DELTA_IDS {
                    self.hides(&row.path, row);
                }
                self.shows(&row.path, row.fileid == FileId(0));
            }
            // The first change of a path hides the base's object, whatever the procedure.
            _ => {
                for path in [Some(&row.path), row.path2.as_ref()].into_iter().flatten() {
                    self.hides(path, row);
                }
                if let (AuditProcedure::Rename, Some(to)) = (row.procedure, &row.path2) {
                    self.rename_back(&row.path, to);
                }
            }
        }
    }

    /// From this row on, the session had an object of its own at the path, or none.
    fn hides(&mut self, path: &MergedPath, row: &AuditRow) {
        // After a SETATTR of a directory, the base's entries still show.
        let is_of_files = row.procedure == AuditProcedure::Setattr;
        let is_late =
            |hidden: &HiddenObject| hidden.changed > row.time && !(hidden.is_dir && is_of_files);
        for &number in self.names.get(path.as_bytes()).into_iter().flatten() {
            if self.hidden.get(number).is_some_and(is_late) && self.open.remove(&number) {
                self.late.insert(number);
            }
        }
    }

    /// At this row, the base showed at the path, and also below it if `with_below`.
    fn shows(&mut self, path: &MergedPath, with_below: bool) {
        let here = self.names.contains_key(path.as_bytes()).then(|| path.as_bytes().to_vec());
        let below = if with_below { below(&self.names, path.as_bytes()) } else { Vec::new() };
        for name in here.into_iter().chain(below) {
            for number in self.names.remove(&name).into_iter().flatten() {
                self.open.remove(&number);
            }
        }
    }

    /// Undoes the rename of a directory with its entries. A base object with its own path below
    /// `to` was hidden before the rename.
    fn rename_back(&mut self, from: &MergedPath, to: &MergedPath) {
        for name in below(&self.names, to.as_bytes()) {
            let mut numbers = self.names.remove(&name).unwrap_or_default();
            numbers.retain(|number| self.open.contains(number));
            let is_home = |hidden: &HiddenObject| hidden.home.as_bytes() == name;
            let home = numbers.iter().filter(|at| self.hidden.get(**at).is_some_and(is_home));
            let home: BTreeSet<_> = home.copied().collect();
            let earlier = [from.as_bytes(), &name[to.as_bytes().len()..]].concat();
            if !home.is_empty() {
                self.names.insert(name, home);
            }
            self.names.entry(earlier).or_default().extend(numbers);
        }
    }
}

/// The state of a search of the log from its start, for base objects that clients removed.
///
/// REMOVE and RMDIR rows have the object's fileid. A name alone does not show whether a client
/// removed the base's object, or its own that lay over a hidden one. Names identify only objects
/// that a rename replaced, and those removed after `apply` replaced them in the base.
struct Removals {
    inside: Vec<RemovedBaseObject>,
    by_id: HashMap<FileId, Vec<usize>>,
    by_home: HashMap<Vec<u8>, usize>,
    /// The objects by their path in the merged tree, after the rows read so far.
    shown: BTreeMap<Vec<u8>, usize>,
    removed: BTreeSet<usize>,
}

impl Removals {
    fn of(inside: Vec<RemovedBaseObject>) -> Self {
        let mut by_id: HashMap<FileId, Vec<usize>> = HashMap::new();
        for (number, object) in inside.iter().enumerate() {
            by_id.entry(object.id).or_default().push(number);
        }
        let all = inside.iter().enumerate();
        let by_home: HashMap<_, _> = all.map(|(number, object)| (home(object), number)).collect();
        let shown = by_home.clone().into_iter().collect();
        Self { inside, by_id, by_home, shown, removed: BTreeSet::new() }
    }

    /// Repeats a row; rows come oldest first.
    fn do_row(&mut self, row: &AuditRow) {
        let named = (!row.is_shortened()).then(|| row.path.as_bytes());
        match row.procedure {
            AuditProcedure::Remove | AuditProcedure::Rmdir => {
                let by_name = named.and_then(|name| self.shown.get(name)).copied();
                // An object of the session's own may have hidden the base's.
                let by_name = by_name.filter(|_| row.fileid.0 < DELTA_IDS);
                let by_id = self.by_id.get(&row.fileid).into_iter().flatten().copied();
                for number in by_id.chain(by_name).collect::<Vec<_>>() {
                    self.remove(number, row.time);
                }
            }
            // A client creates only a name that it does not see: the base object of this name was
            // hidden.
            AuditProcedure::Create
            | AuditProcedure::Mkdir
            | AuditProcedure::Symlink
            | AuditProcedure::Mknod => {
                self.comes(named, row.fileid);
            }
            AuditProcedure::Link => {
                let name = row.path2.as_ref().filter(|_| named.is_some());
                self.comes(name.map(MergedPath::as_bytes), row.fileid);
            }
            AuditProcedure::Rename => {
                let (Some(from), Some(to)) = (named, row.path2.as_ref()) else { return };
                if let Some(&replaced) = self.shown.get(to.as_bytes()) {
                    self.remove(replaced, row.time);
                    self.shown.remove(to.as_bytes());
                }
                // A file that moved out of the directory is not removed with it.
                follow(&mut self.shown, from, to.as_bytes());
            }
            AuditProcedure::Apply => {
                let number = named.and_then(|name| {
                    self.by_home.get(name).or_else(|| self.shown.get(name)).copied()
                });
                match number {
                    // A client removed it after it was applied to the base.
                    Some(number) if row.fileid == FileId(0) => self.remove(number, row.time),
                    // The base shows there from this row on, but not all entries of a directory.
                    Some(number) => self.show(number),
                    None => {}
                }
            }
            AuditProcedure::Discard => {
                let is_below = |number: &usize| {
                    let object = self.inside.get(*number).map(home);
                    let object = object.and_then(|home| MergedPath::from_bytes(&home));
                    object.is_some_and(|home| home.is_within(&row.path))
                };
                let back: Vec<_> = self.removed.iter().copied().filter(is_below).collect();
                for number in back {
                    self.removed.remove(&number);
                    self.show(number);
                }
            }
            _ => {}
        }
    }

    /// Another object appeared at a name.
    fn comes(&mut self, name: Option<&[u8]>, id: FileId) {
        let Some(name) = name else { return };
        let shown = self.shown.get(name).and_then(|number| self.inside.get(*number));
        if shown.is_some_and(|object| object.id != id) {
            self.shown.remove(name);
        }
    }

    fn remove(&mut self, number: usize, when: Time) {
        if self.inside.get(number).is_some_and(|object| object.ctime <= when) {
            self.removed.insert(number);
        }
    }

    fn show(&mut self, number: usize) {
        if let Some(object) = self.inside.get(number) {
            self.shown.insert(home(object), number);
        }
    }

    fn left(self) -> Vec<(RemovedBaseObject, MergedPath)> {
        let places: HashMap<usize, Vec<u8>> =
            self.shown.into_iter().map(|(name, number)| (number, name)).collect();
        let all = self.inside.into_iter().enumerate();
        all.filter(|(number, _)| !self.removed.contains(number))
            .map(|(number, object)| {
                let place = places.get(&number).and_then(|name| MergedPath::from_bytes(name));
                let place = place.unwrap_or_else(|| MergedPath::of_base(&object.path));
                (object, place)
            })
            .collect()
    }
}

/// The path of an object if nothing moved.
fn home(object: &RemovedBaseObject) -> Vec<u8> {
    MergedPath::of_base(&object.path).as_bytes().to_vec()
}

/// Renames an object, or a directory with the names below it.
fn follow<T>(names: &mut BTreeMap<Vec<u8>, T>, from: &[u8], to: &[u8]) {
    let mut moved = below(names, from);
    moved.extend(names.contains_key(from).then(|| from.to_vec()));
    for path in moved {
        if let Some(name) = names.remove(&path) {
            names.insert([to, &path[from.len()..]].concat(), name);
        }
    }
}

/// The names below a directory.
fn below<T>(names: &BTreeMap<Vec<u8>, T>, dir: &[u8]) -> Vec<Vec<u8>> {
    let mut start = dir.to_vec();
    if start != b"/" {
        start.push(b'/');
    }
    let from = (Bound::Excluded(&start[..]), Bound::Unbounded);
    let names = names.range::<[u8], _>(from).map(|(name, _)| name);
    names.take_while(|name| name.starts_with(&start)).cloned().collect()
}
