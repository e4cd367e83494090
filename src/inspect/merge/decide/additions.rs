//! Objects that the fork made: new ones, and further names of files.

use super::{Addition, Decider};
use crate::inspect::diff::{Difference, at};
use crate::inspect::error::Result;
use crate::inspect::merge::MergeSide;
use crate::inspect::merge::content::is_equal;
use crate::inspect::merge::side::{ObjectId, describe};
use crate::overlay::TreeObject;
use crate::vfs::FileKind;

impl Decider<'_> {
    /// Decides on an object that the fork made.
    pub(super) fn addition(&mut self, theirs: &Difference) -> Result<()> {
        let Some(object) = theirs.change.after.clone() else { return Ok(()) };
        let path = &theirs.path;
        if self.taken(&[path]) == Some(MergeSide::Ours)
            || !self.ensure_dir(path, &describe(theirs))?
        {
            return Ok(());
        }
        let place = self.place_now(path);
        let link = self.link_of(&object)?;
        if let Some(place) = &place
            && let Some(here) = self.ours.find(place)?
            && !self.is_vacated(place)
        {
            if matches!(self.ours.id_of(place), ObjectId::New(_)) {
                let is_dir = |object: &TreeObject| object.attr().kind == FileKind::Directory;
                let is_joined = is_dir(&here) && is_dir(&object);
                let is_joined = is_joined || self.is_name_of(&here, &object, link.as_ref())?;
                if is_joined || is_equal((self.ours, &here), (self.theirs, &object))? {
                    self.made.joined.insert(path.clone(), place.clone());
                    return Ok(());
                }
            }
            let ours = self.ours.added(place).map(describe);
            let ours = ours.unwrap_or_else(|| "another object is there".to_owned());
            if !self.takes_theirs((place, Some(path)), (ours, describe(theirs))) {
                return Ok(());
            }
            self.clear_place(place.clone());
        }
        let link = link.map(Addition::Link);
        let addition = link.unwrap_or_else(|| Addition::Object(Box::new(object)));
        self.made.added.insert(path.clone(), addition);
        Ok(())
    }

    /// Whether an object of the session is the one of the fork point that the fork gave a name.
    fn is_name_of(
        &self,
        here: &TreeObject,
        object: &TreeObject,
        link: Option<&ObjectId>,
    ) -> Result<bool> {
        let is_older = self.theirs.lost_name(object).is_some();
        if is_older && here.attr().fileid == object.attr().fileid {
            return Ok(true);
        }
        let Some(ObjectId::Old(old)) = link else { return Ok(false) };
        let linked = self.ours.new_path(old).map(|path| self.ours.find(&path)).transpose()?;
        let number = |object: &TreeObject| object.attr().fileid;
        Ok(linked.flatten().is_some_and(|linked| number(&linked) == number(here)))
    }

    /// The object that a name in the fork is a further name of, if the session has it or gets it
    /// under another name.
    fn link_of(&self, object: &TreeObject) -> Result<Option<ObjectId>> {
        let Some(row) = object.row().filter(|_| object.attr().nlink > 1) else { return Ok(None) };
        let is_dir = object.attr().kind == FileKind::Directory;
        let names = self.theirs.new.paths_of(row.ino);
        let names = names.map_err(|source| at(object.path(), source))?;
        for name in names.iter().filter(|name| !is_dir && *name != object.path()) {
            match self.theirs.id_of(name) {
                ObjectId::Old(old) if !self.made.removed.contains(&old) => {
                    let here = self.ours.new_path(&old).map(|path| self.ours.find(&path));
                    if here.transpose()?.flatten().is_some() {
                        return Ok(Some(ObjectId::Old(old)));
                    }
                }
                ObjectId::New(new)
                    if matches!(self.made.added.get(&new), Some(Addition::Object(_))) =>
                {
                    return Ok(Some(ObjectId::New(new)));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
