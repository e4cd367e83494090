//! What is sure of a merge where names of a file with several changed: each object with one name in
//! all trees is checked.

use acetate::delta::MergedPath;

use super::{Seen, SeenTree, Sides};

type Place<'a> = (&'a MergedPath, &'a Seen);

/// The only name of an object of the fork point.
fn only(tree: &SeenTree, number: u64) -> Option<Place<'_>> {
    let mut names = tree.iter().filter(|(_, seen)| seen.number == number);
    names.next().filter(|_| names.next().is_none())
}

/// A merge, and what came of it.
pub(super) struct Trees<'a> {
    pub sides: &'a Sides,
    pub merged: &'a SeenTree,
}

impl Trees<'_> {
    fn is_old(&self, number: u64) -> bool {
        self.sides.old.values().any(|seen| seen.number == number)
    }

    /// Whether a side has another object where the fork point had this one.
    fn is_replaced(&self, (path, seen): Place<'_>) -> bool {
        let other = |tree: &SeenTree| {
            tree.get(path).is_some_and(|now| now.number != seen.number && !self.is_old(now.number))
        };
        other(&self.sides.ours) || other(&self.sides.theirs)
    }

    /// Checks an object of the fork point that has one name in each tree.
    fn check_old(&self, (path, old): Place<'_>) {
        if self.is_replaced((path, old)) || only(&self.sides.old, old.number).is_none() {
            return;
        }
        let [ours, theirs, merged] =
            [&self.sides.ours, &self.sides.theirs, self.merged].map(|tree| only(tree, old.number));
        let names =
            |tree: &SeenTree| tree.values().filter(|seen| seen.number == old.number).count();
        if names(&self.sides.ours) > 1 || names(&self.sides.theirs) > 1 {
            return;
        }
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            assert!(merged.is_none(), "{} is still there", path.display());
            return;
        };
        let merged = merged.unwrap_or_else(|| panic!("{} is lost", path.display()));
        let is_theirs = theirs.1.content != old.content;
        match (is_theirs, ours.1.content != old.content) {
            (true, false) => assert_eq!(merged.1.content, theirs.1.content, "{}", path.display()),
            (false, _) => assert_eq!(merged.1.content, ours.1.content, "{}", path.display()),
            (true, true) => {}
        }
        let [before, here, there, mode] =
            [old, ours.1, theirs.1, merged.1].map(|seen| seen.shown_mode());
        assert_eq!(mode, if there == before { here } else { there }, "{}", path.display());
        let place = |tree: &SeenTree, path: &MergedPath| {
            let dir = tree.get(&path.parent()).map(|dir| dir.number);
            (dir.filter(|dir| self.is_old(*dir)), path.name())
        };
        let has_moved = place(&self.sides.theirs, theirs.0) != place(&self.sides.old, path);
        let (tree, at) =
            if has_moved { (&self.sides.theirs, theirs.0) } else { (&self.sides.ours, ours.0) };
        assert_eq!(place(self.merged, merged.0), place(tree, at), "{}", path.display());
    }

    /// Where the merged tree has an object of a side.
    fn expected(&self, side: &SeenTree, path: &MergedPath) -> Option<MergedPath> {
        let Some(name) = path.name() else { return Some(path.clone()) };
        let seen = &side[path];
        if self.is_old(seen.number) {
            return only(self.merged, seen.number).map(|(path, _)| path.clone());
        }
        self.expected(side, &path.parent()).map(|dir| dir.join(&name))
    }

    /// Checks what a side made.
    fn check_new(&self, side: &SeenTree) {
        for (path, seen) in side.iter().filter(|(_, seen)| !self.is_old(seen.number)) {
            if self.sides.old.contains_key(path) {
                continue;
            }
            let Some(expected) = self.expected(side, path) else { continue };
            let merged = self.merged.get(&expected);
            let same = |merged: &Seen| merged.what() == seen.what();
            assert!(
                merged.is_some_and(same),
                "{} is not at {}: {:#?}",
                path.display(),
                expected.display(),
                self.merged
            );
        }
    }

    pub fn check(&self) {
        self.sides.old.iter().for_each(|place| self.check_old(place));
        self.check_new(&self.sides.ours);
        self.check_new(&self.sides.theirs);
    }
}
