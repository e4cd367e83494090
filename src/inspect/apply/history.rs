//! What the audit log tells: since when the session hides what the base has, and whether it set
//! attributes of the top.
//!
//! A session keeps when an object changed last, and when a name was whited out last. Who changed
//! it before has not seen since what the base has there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use super::drift::Drifted;
use crate::base::{BasePath, DELTA_IDS};
use crate::delta::sqlite::{AuditFilter, Order};
use crate::delta::{AuditRow, Dropped, MergedPath, Procedure};
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::log::{Log, Options};
use crate::inspect::opened::Opened;
use crate::vfs::{FileId, Time};

/// A base object that the session hides.
#[derive(Debug)]
pub(super) struct Hidden {
    /// Its place in the session.
    pub place: MergedPath,
    /// Where it would be if nothing had moved.
    pub home: MergedPath,
    /// It is a directory.
    pub is_dir: bool,
    /// When it last changed in the base.
    pub changed: Time,
    /// What it is if that was later than it was hidden.
    pub drifted: Drifted,
}

/// When the log began, with what is gone of it; `None` where there is none.
///
/// # Errors
/// The session cannot be read; so with all functions here.
pub(super) fn begun(opened: &Opened) -> Result<Option<Time>> {
    if let Some(dropped) = dropped(opened)? {
        return Ok(Some(dropped.since));
    }
    let mut begun = None;
    read(opened, Options::default(), &mut |row| {
        begun = Some(row.time);
        ControlFlow::Break(())
    })?;
    Ok(begun)
}

/// Whether the session set attributes of the top since it last had those of the base.
pub(super) fn set_top(opened: &Opened) -> Result<bool> {
    let procedures = vec![Procedure::Setattr, Procedure::Apply, Procedure::Discard];
    let filter = AuditFilter { procedures, ..AuditFilter::default() };
    let mut last = None;
    read(
        opened,
        Options { filter, order: Order::NewestFirst, ..Options::default() },
        &mut |row| {
            if row.path != MergedPath::root() {
                return ControlFlow::Continue(());
            }
            last = Some(row.procedure);
            ControlFlow::Break(())
        },
    )?;
    Ok(last == Some(Procedure::Setattr))
}

/// Those that changed in the base after the session had hidden them.
pub(super) fn changed_since(opened: &Opened, hidden: Vec<Hidden>) -> Result<Vec<Drifted>> {
    if hidden.is_empty() {
        return Ok(Vec::new());
    }
    let mut past = Past::of(hidden);
    read(opened, Options { order: Order::NewestFirst, ..Options::default() }, &mut |row| {
        past.undo_row(row);
        match past.open.is_empty() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    // When the session hid these, only rows told that are gone from the log: they may be late.
    if dropped(opened)?.is_some() {
        past.late.append(&mut past.open);
    }
    let all = past.hidden.into_iter().enumerate();
    let late = all.filter(|(number, _)| past.late.contains(number));
    Ok(late.map(|(_, hidden)| hidden.drifted).collect())
}

/// What is gone of the log.
fn dropped(opened: &Opened) -> Result<Option<Dropped>> {
    match Log::open(opened.session(), Options::default()) {
        Err(InspectError::NoAudit { .. }) => Ok(None),
        log => log?.dropped(),
    }
}

/// Base objects whose removal or replacement by a client is not in the audit log, of those in
/// `inside`, each with the number of a change; with the place where the log has them in the merged
/// tree. None where there is no log.
pub(super) fn never_removed(
    opened: &Opened,
    inside: Vec<(BasePath, usize)>,
) -> Result<Vec<(BasePath, usize, MergedPath)>> {
    if inside.is_empty() || begun(opened)?.is_none() {
        return Ok(Vec::new());
    }
    let mut homes = Homes::of(inside.iter().map(|(path, _)| MergedPath::of_base(path)));
    read(opened, Options { order: Order::NewestFirst, ..Options::default() }, &mut |row| {
        homes.undo_row(row);
        ControlFlow::Continue(())
    })?;
    let mut seen = Removals { shown: homes.first(), ..Removals::default() };
    read(opened, Options::default(), &mut |row| {
        seen.do_row(row);
        ControlFlow::Continue(())
    })?;
    let places: BTreeMap<_, _> = seen.shown.iter().map(|(place, home)| (home, place)).collect();
    let left = |(path, change): (BasePath, usize)| {
        let place = places.get(&MergedPath::of_base(&path).as_bytes().to_vec())?;
        Some((path, change, MergedPath::from_bytes(place)?))
    };
    Ok(inside.into_iter().filter_map(left).collect())
}

/// Reads the log, but for rows without a meaning.
fn read(
    opened: &Opened,
    options: Options,
    each: &mut dyn FnMut(&AuditRow) -> ControlFlow<()>,
) -> Result<()> {
    let mut log = match Log::open(opened.session(), options) {
        Err(InspectError::NoAudit { .. }) => return Ok(()),
        log => log?,
    };
    log.read(&mut |_, row| row.as_ref().map_or(ControlFlow::Continue(()), &mut *each))
}

/// Reads the log backwards.
struct Past {
    hidden: Vec<Hidden>,
    /// What the places of those that nothing is known of were called then.
    names: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    open: BTreeSet<usize>,
    /// What changed after it was hidden.
    late: BTreeSet<usize>,
}

impl Past {
    fn of(hidden: Vec<Hidden>) -> Self {
        let mut names: BTreeMap<Vec<u8>, BTreeSet<usize>> = BTreeMap::new();
        for (number, hidden) in hidden.iter().enumerate() {
            names.entry(hidden.place.as_bytes().to_vec()).or_default().insert(number);
        }
        let open = (0..hidden.len()).collect();
        Self { hidden, names, open, late: BTreeSet::new() }
    }

    /// Takes back what a row did; rows come newest first.
    fn undo_row(&mut self, row: &AuditRow) {
        match row.procedure {
            Procedure::Refuse => {}
            // The path that showed the base again is unknown: it is below this one.
            Procedure::Discard | Procedure::Apply if row.is_shortened() => {}
            Procedure::Discard => self.shows(&row.path, true),
            Procedure::Apply => {
                // It changed again before the session could let go of it.
                if row.fileid.0 >= DELTA_IDS {
                    self.hides(&row.path, row);
                }
                self.shows(&row.path, row.fileid == FileId(0));
            }
            // Its first change hides the base's, whatever it is.
            _ => {
                for path in [Some(&row.path), row.path2.as_ref()].into_iter().flatten() {
                    self.hides(path, row);
                }
                if let (Procedure::Rename, Some(to)) = (row.procedure, &row.path2) {
                    self.rename_back(&row.path, to);
                }
            }
        }
    }

    /// The session had something of its own there, or nothing, from this change on.
    fn hides(&mut self, path: &MergedPath, row: &AuditRow) {
        // The base's entries show in a directory that has other attributes.
        let is_of_files = row.procedure == Procedure::Setattr;
        let is_late =
            |hidden: &Hidden| hidden.changed > row.time && !(hidden.is_dir && is_of_files);
        for &number in self.names.get(path.as_bytes()).into_iter().flatten() {
            if self.hidden.get(number).is_some_and(is_late) && self.open.remove(&number) {
                self.late.insert(number);
            }
        }
    }

    /// The base showed there at this moment, and below it too if so.
    fn shows(&mut self, path: &MergedPath, with_below: bool) {
        let here = self.names.contains_key(path.as_bytes()).then(|| path.as_bytes().to_vec());
        let below = if with_below { below(&self.names, path.as_bytes()) } else { Vec::new() };
        for name in here.into_iter().chain(below) {
            for number in self.names.remove(&name).into_iter().flatten() {
                self.open.remove(&number);
            }
        }
    }

    /// A directory came from another place, with what is in it. What the base has where it came
    /// was hidden before.
    fn rename_back(&mut self, from: &MergedPath, to: &MergedPath) {
        for name in below(&self.names, to.as_bytes()) {
            let mut numbers = self.names.remove(&name).unwrap_or_default();
            numbers.retain(|number| self.open.contains(number));
            let is_home = |hidden: &Hidden| hidden.home.as_bytes() == name;
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

/// Reads the log backwards: what the names that the base has now were called in the merged tree
/// when the log began. What `apply` moved was called as clients called it before.
struct Homes {
    /// Those that no applied directory read so far holds, each with its path in the base.
    in_place: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The others: what each was called then, with its path in the base now.
    moved: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Homes {
    fn of(paths: impl Iterator<Item = MergedPath>) -> Self {
        let paths = paths.map(|path| path.as_bytes().to_vec());
        let in_place = paths.map(|path| (path.clone(), path)).collect();
        Self { in_place, moved: BTreeMap::new() }
    }

    /// Takes back what a row did; rows come newest first.
    fn undo_row(&mut self, row: &AuditRow) {
        let is_known = !row.is_shortened();
        match row.procedure {
            // The top does not move, and holds all.
            Procedure::Apply
                if is_known && row.fileid != FileId(0) && row.path != MergedPath::root() =>
            {
                let path = row.path.as_bytes();
                let mut held = below(&self.in_place, path);
                held.extend(self.in_place.contains_key(path).then(|| path.to_vec()));
                for path in held {
                    self.moved.extend(self.in_place.remove_entry(&path));
                }
            }
            Procedure::Rename if is_known => {
                let Some(to) = &row.path2 else { return };
                follow(&mut self.moved, to.as_bytes(), row.path.as_bytes());
            }
            _ => {}
        }
    }

    /// What each was called when the log began, with its path in the base now.
    fn first(self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.moved.into_iter().chain(self.in_place).collect()
    }
}

/// Reads the log forwards: what becomes of names that the base has.
#[derive(Default)]
struct Removals {
    /// Where each is in the merged tree, with its path in the base.
    shown: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Those that were removed: what each was called then, with its path in the base.
    removed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Removals {
    /// Does what a row did; rows come oldest first.
    fn do_row(&mut self, row: &AuditRow) {
        match row.procedure {
            // It tells a directory above what went, and not what went.
            Procedure::Remove | Procedure::Rmdir | Procedure::Rename if row.is_shortened() => {}
            Procedure::Remove | Procedure::Rmdir => self.remove(row.path.as_bytes()),
            Procedure::Rename => {
                let Some(to) = &row.path2 else { return };
                self.remove(to.as_bytes());
                self.rename(row.path.as_bytes(), to.as_bytes());
            }
            // What was gone stayed hidden, or went from the base.
            Procedure::Apply if row.fileid == FileId(0) => {}
            // The base shows there again: of an applied directory not all that is in it.
            Procedure::Apply => {
                self.shown.extend(self.removed.remove_entry(row.path.as_bytes()));
            }
            Procedure::Discard => self.show_again(row.path.as_bytes()),
            _ => {}
        }
    }

    fn remove(&mut self, path: &[u8]) {
        self.removed.extend(self.shown.remove_entry(path));
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        // A file that moved out of the directory does not go with it.
        follow(&mut self.shown, from, to);
    }

    fn show_again(&mut self, path: &[u8]) {
        let dir = MergedPath::from_bytes(path);
        let is_below = |home: &Vec<u8>| {
            let home = MergedPath::from_bytes(home);
            home.zip(dir.as_ref()).is_some_and(|(home, dir)| home.is_within(dir))
        };
        let homes = std::mem::take(&mut self.removed);
        let (back, removed) = homes.into_iter().partition(|(_, home)| is_below(home));
        self.removed = removed;
        let back: BTreeMap<_, _> = back;
        self.shown.extend(back.into_values().map(|home| (home.clone(), home)));
    }
}

/// Lets names follow the rename of an object, or of a directory that they are in.
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
