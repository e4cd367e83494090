//! What a merge must make of two sides, by file numbers: a number of the fork point is one object
//! on both sides.
//!
//! An object has a place (its directory's number, and a name), content and a mode. Each of these is
//! that of the side that changed it. What both changed differently, what one changed and the other
//! removed, a place in a directory that is gone, a place of two objects, and a circle of
//! directories are conflicts. This knows neither moves nor paths, and is so another way than the
//! merge's own.
//!
//! Not covered are files with several names whose names changed, which a merge decides name by
//! name: [`names`] looks at what is sure there.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use acetate::delta::MergedPath;
use acetate::inspect::opened::OpenSession;
use acetate::inspect::text_merge::{self, TextMerge};
use acetate::vfs::FileKind;

use super::looked::each_object;
use super::tree::{Object, Tree};

/// The number and the properties of each object, by path.
pub type SeenTree = BTreeMap<MergedPath, Seen>;

/// An object as a tree shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub number: u64,
    pub kind: FileKind,
    pub mode: u32,
    pub content: Vec<u8>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, mode, content } = self;
        let first = content.first().copied().unwrap_or(0);
        write!(f, "{number} {kind:?} {mode:o} {} {first}", content.len())
    }
}

impl Seen {
    /// All but the number, and the mode of a symbolic link, which is no property of it.
    fn what(&self) -> (FileKind, u32, Vec<u8>) {
        (self.kind, self.shown_mode(), self.content.clone())
    }

    fn shown_mode(&self) -> u32 {
        if self.kind == FileKind::Symlink { 0 } else { self.mode }
    }
}

/// Reads what a session shows.
#[track_caller]
pub fn tree(opened: &OpenSession) -> SeenTree {
    let mut tree = BTreeMap::new();
    each_object(opened, &mut |object, content| {
        let attr = object.attr();
        let (number, kind, mode) = (attr.fileid.0, attr.kind, attr.mode);
        tree.insert(object.path().clone(), Seen { number, kind, mode, content });
    });
    tree
}

/// The trees of a merge: at the fork point, and on both sides.
pub struct Sides {
    pub old: SeenTree,
    pub ours: SeenTree,
    pub theirs: SeenTree,
}

/// What a merge must come to. An object that the fork made has the number 0.
#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// Conflicts, among them those at these paths.
    Conflicts(BTreeSet<MergedPath>),
    /// This tree.
    Merged(SeenTree),
}

/// A number; those of objects that the fork made begin at [`THEIRS`].
type Number = u128;

const THEIRS: Number = 1 << 64;

/// A directory's number, and a name in it.
type Place = (Number, Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    places: BTreeSet<Place>,
    /// By one of its names.
    path: MergedPath,
    seen: Seen,
}

type Objects = BTreeMap<Number, Placed>;

/// A tree by the numbers that `number` gives.
fn objects(tree: &SeenTree, number: impl Fn(&Seen) -> Number) -> Objects {
    let mut objects = Objects::new();
    for (path, seen) in tree {
        let dir = path.parent();
        let place = path.name().map(|name| (number(&tree[&dir]), name.as_bytes().to_vec()));
        let object = objects.entry(number(seen)).or_insert_with(|| Placed {
            places: BTreeSet::new(),
            path: path.clone(),
            seen: seen.clone(),
        });
        object.places.extend(place);
    }
    objects
}

/// Whether two values, of the two sides, are one change of the first.
fn three_way<'a, T: PartialEq>(old: &T, ours: &'a T, theirs: &'a T) -> Option<&'a T> {
    match (ours == old, theirs == old) {
        (_, true) => Some(ours),
        (true, _) => Some(theirs),
        _ => (ours == theirs).then_some(ours),
    }
}

/// The content that both sides' changes make, or `None`.
fn merged_content(old: &Seen, ours: &Seen, theirs: &Seen) -> Option<Vec<u8>> {
    let (old, ours, theirs) = (&old.content, &ours.content, &theirs.content);
    if let Some(content) = three_way(old, ours, theirs) {
        return Some(content.clone());
    }
    if [old, ours, theirs].iter().any(|content| content.contains(&0)) {
        return None;
    }
    match text_merge::merge(old, ours, theirs) {
        TextMerge::Clean(text) => Some(text),
        TextMerge::Conflicts(_) => None,
    }
}

impl Sides {
    /// A side by numbers. A new object in place of an old one of its type has the number of that
    /// one: it is taken for new content. Others are numbered from `first` on.
    fn side(&self, side: &SeenTree, first: Number) -> Objects {
        let old: BTreeSet<_> = self.old.values().map(|seen| seen.number).collect();
        let kept: BTreeSet<_> = side.values().map(|seen| seen.number).collect();
        let mut numbers = BTreeMap::new();
        for (path, seen) in side.iter().filter(|(_, seen)| !old.contains(&seen.number)) {
            let is_same =
                |before: &&Seen| before.kind == seen.kind && !kept.contains(&before.number);
            let before = self.old.get(path).filter(is_same);
            let number = before.map_or(first + Number::from(seen.number), |old| old.number.into());
            numbers.entry(seen.number).or_insert(number);
        }
        objects(side, |seen| numbers.get(&seen.number).copied().unwrap_or(seen.number.into()))
    }

    /// Whether a file has several names on any side.
    pub fn have_links(&self) -> bool {
        [&self.old, &self.ours, &self.theirs].into_iter().any(|tree| {
            let mut numbers = BTreeSet::new();
            !tree.values().all(|seen| numbers.insert(seen.number))
        })
    }

    /// The tree of the fork point, without the root.
    pub fn old_tree(&self) -> Tree {
        let named = self.old.iter().filter(|(path, _)| path.name().is_some());
        let object = |seen: &Seen| {
            let Seen { kind, mode, content, .. } = seen.clone();
            Object { kind, mode, content }
        };
        named.map(|(path, seen)| (path.as_bytes()[1..].to_vec(), object(seen))).collect()
    }

    /// Checks the tree that a merge without conflicts made, and whether it may have none.
    #[track_caller]
    pub fn check_merged(&self, merged: &SeenTree) {
        match self.expected() {
            None => names::Trees { sides: self, merged }.check(),
            Some(Expected::Conflicts(at)) => panic!("no conflicts, and not at {at:?}\n{self}"),
            Some(Expected::Merged(expected)) => {
                for path in expected.keys().chain(merged.keys()) {
                    let (must, is) = (expected.get(path), merged.get(path));
                    let is_same = match (must, is) {
                        (Some(must), Some(is)) => {
                            must.what() == is.what() && [0, is.number].contains(&must.number)
                        }
                        _ => false,
                    };
                    assert!(is_same, "{}: {is:?}, and not {must:?}\n{self}", path.display());
                }
            }
        }
    }

    /// Checks that there may be these conflicts, and that none is missing.
    #[track_caller]
    pub fn check_conflicts(&self, found: &BTreeSet<MergedPath>) {
        match self.expected() {
            None => {}
            Some(Expected::Conflicts(at)) => {
                let missing: Vec<_> = at.difference(found).collect();
                assert!(missing.is_empty(), "no conflicts at {missing:?}: {found:?}\n{self}");
            }
            Some(Expected::Merged(_)) => panic!("conflicts at {found:?}\n{self}"),
        }
    }

    /// What the merge must come to; `None` if that depends on names of a file with several.
    pub fn expected(&self) -> Option<Expected> {
        let old = objects(&self.old, |seen| seen.number.into());
        let sides = [self.side(&self.ours, 0), self.side(&self.theirs, THEIRS)];
        if names_changed(&old, &sides) || is_place_reused(self) {
            return None;
        }
        let [ours, theirs] = sides;
        let mut merge = ThreeWay { old, ours, theirs, merged: Objects::new(), at: BTreeSet::new() };
        // First: what both moved into such a directory is at one place.
        merge.join_new();
        merge.merge_objects();
        let has_conflict = !merge.at.is_empty() || merge.has_lost_places();
        Some(match has_conflict {
            true => Expected::Conflicts(merge.at),
            false => Expected::Merged(merge.tree()),
        })
    }
}

/// Whether a side put an object of another type where the fork point had one with several names,
/// or where both sides have new ones.
fn is_place_reused(sides: &Sides) -> bool {
    let several =
        |seen: &Seen| sides.old.values().filter(|other| other.number == seen.number).count() > 1;
    let is_reused = |side: &SeenTree| {
        side.iter().any(|(path, seen)| {
            sides
                .old
                .get(path)
                .is_some_and(|old| old.number != seen.number && (several(old) || several(seen)))
        })
    };
    is_reused(&sides.ours) || is_reused(&sides.theirs)
}

/// Whether any file with several names has other ones on a side.
fn names_changed(old: &Objects, sides: &[Objects; 2]) -> bool {
    sides.iter().flatten().any(|(number, object)| {
        let before = old.get(number).map(|before| &before.places);
        let is_linked = object.places.len() > 1 || before.is_some_and(|places| places.len() > 1);
        is_linked && before != Some(&object.places)
    }) || old.iter().any(|(number, object)| {
        object.places.len() > 1 && sides.iter().any(|side| !side.contains_key(number))
    })
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old, ours, theirs } = self;
        for (what, tree) in [("old", old), ("ours", ours), ("theirs", theirs)] {
            for (path, seen) in tree {
                writeln!(f, "{what} {} {seen:?}", path.display())?;
            }
        }
        Ok(())
    }
}

/// A merge by numbers.
struct ThreeWay {
    old: Objects,
    ours: Objects,
    theirs: Objects,
    merged: Objects,
    /// Conflicts of one object.
    at: BTreeSet<MergedPath>,
}

impl ThreeWay {
    fn merge_objects(&mut self) {
        for (number, old) in &self.old {
            let what = |object: &Placed| (object.places.clone(), object.seen.what());
            let is_changed = |now: &Placed| what(now) != what(old);
            match (self.ours.get(number), self.theirs.get(number)) {
                (None, None) => {}
                (Some(now), None) => {
                    if is_changed(now) {
                        self.at.insert(now.path.clone());
                    }
                }
                (None, Some(now)) => {
                    if is_changed(now) {
                        self.at.insert(old.path.clone());
                    }
                }
                (Some(ours), Some(theirs)) => {
                    let places = three_way(&old.places, &ours.places, &theirs.places);
                    let mode = [old, ours, theirs].map(|object| object.seen.shown_mode());
                    let mode = three_way(&mode[0], &mode[1], &mode[2]);
                    let content = merged_content(&old.seen, &ours.seen, &theirs.seen);
                    let (Some(places), Some(&mode), Some(content)) = (places, mode, content) else {
                        self.at.insert(ours.path.clone());
                        continue;
                    };
                    let seen = Seen { mode, content, ..ours.seen.clone() };
                    let (path, places) = (ours.path.clone(), places.clone());
                    self.merged.insert(*number, Placed { places, path, seen });
                }
            }
        }
        for side in [&self.ours, &self.theirs] {
            let new = side.iter().filter(|(number, _)| !self.old.contains_key(number));
            self.merged.extend(new.map(|(number, object)| (*number, object.clone())));
        }
    }

    /// Gives new directories of the fork, and equal new objects, the number of the session's at the
    /// same place: both are one.
    fn join_new(&mut self) {
        loop {
            let mut joined = None;
            for (number, theirs) in self.theirs.range(THEIRS..) {
                let other = self.ours.iter().find(|(other, ours)| {
                    !self.old.contains_key(other) && ours.places == theirs.places
                });
                if let Some((other, ours)) = other
                    && (ours.seen.kind == theirs.seen.kind)
                    && (ours.seen.kind == FileKind::Directory
                        || (ours.seen.mode, &ours.seen.content)
                            == (theirs.seen.mode, &theirs.seen.content))
                {
                    joined = Some((*number, *other));
                    break;
                }
            }
            let Some((number, other)) = joined else { return };
            self.theirs.remove(&number);
            for object in self.theirs.values_mut() {
                let places = std::mem::take(&mut object.places).into_iter();
                object.places = places
                    .map(|(dir, name)| (if dir == number { other } else { dir }, name))
                    .collect();
            }
        }
    }

    /// Whether places are in directories that are gone or in circles, or of two objects.
    fn has_lost_places(&self) -> bool {
        let mut taken = BTreeSet::new();
        self.merged.values().any(|object| {
            object.places.iter().any(|place| {
                !taken.insert(place) || self.path(place, &mut BTreeSet::new()).is_none()
            })
        })
    }

    fn path(&self, (dir, name): &Place, above: &mut BTreeSet<Number>) -> Option<Vec<u8>> {
        let mut path = match self.merged.get(dir)?.places.first() {
            _ if !above.insert(*dir) => return None,
            Some(place) => self.path(place, above)?,
            None => Vec::new(),
        };
        path.push(b'/');
        path.extend(name);
        Some(path)
    }

    fn tree(&self) -> SeenTree {
        let mut tree = SeenTree::new();
        for (number, object) in &self.merged {
            let number = if *number >= THEIRS { 0 } else { object.seen.number };
            let seen = Seen { number, ..object.seen.clone() };
            if object.places.is_empty() {
                tree.insert(MergedPath::root(), seen.clone());
            }
            for place in &object.places {
                let path = self.path(place, &mut BTreeSet::new()).unwrap();
                tree.insert(MergedPath::from_bytes(&path).unwrap(), seen.clone());
            }
        }
        tree
    }
}
