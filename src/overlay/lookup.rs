//! Name lookup: delta entry, then whiteout, then base (specification 0.4, "Overlay Lookup
//! Semantics").

use crate::base::BaseError;
use crate::delta::{InodeRow, Origin};
use crate::vfs::{Attr, Caller, FsError, Locator, LookedUp, Name, Outcome};

use super::access::Want;
use super::cache::DeltaChild;
use super::error::Result;
use super::node::{Child, DirPlace, Node, is_linked};
use super::resolve::View;

impl View<'_> {
    /// The object that `name` in `dir` refers to.
    pub fn child(&self, dir: &DirPlace, name: &Name) -> Result<Option<Child>> {
        match self.delta_child(dir, name)? {
            DeltaChild::Entry(ino) => {
                let node = Node::Delta(Box::new(self.inode(ino)?));
                Ok(Some(Child { node, has_dentry: true }))
            }
            DeltaChild::WhitedOut => Ok(None),
            DeltaChild::Through => self.base_child(dir, name),
        }
    }

    /// The base object at a name without dentry or whiteout.
    fn base_child(&self, dir: &DirPlace, name: &Name) -> Result<Option<Child>> {
        let Some(base) = &dir.base else { return Ok(None) };
        let path = base.join(name);
        let attr = match self.core.base.stat(&path) {
            Ok(attr) => attr,
            Err(BaseError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if is_linked(attr.kind, attr.nlink)
            && let Some(row) = self.copy_of(attr.fileid, |row, origin| self.is_it(row, origin))?
        {
            let node = Node::Delta(Box::new(row));
            return Ok(Some(Child { node, has_dentry: false }));
        }
        self.core.caches.add_location(attr.fileid, &path);
        let node = Node::Base { path, attr: Box::new(attr) };
        Ok(Some(Child { node, has_dentry: false }))
    }

    /// Whether the hard-linked base file is the one that `row` was copied up from. If the file had
    /// a single name at copy-up, its number is not proof: the host may have reused it. Then the
    /// file is the same only if its origin path still has this number.
    fn is_it(&self, row: &InodeRow, origin: &Origin) -> bool {
        is_linked(row.kind, origin.nlink)
            || self.core.base.stat(&origin.path).is_ok_and(|attr| attr.fileid == origin.fileid)
    }

    /// LOOKUP.
    pub fn lookup(
        &self,
        caller: &Caller,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<LookedUp, Option<Attr>> {
        let found = self.dir(dir).and_then(|(node, place)| Ok((self.attr(&node)?, place)));
        let (dir_attr, place) = match found {
            Ok(found) => found,
            Err(error) => return Outcome::err(error.into_fs(), self.attr_of(dir).ok()),
        };
        let result = self.lookup_in(caller, &dir_attr, &place, name);
        Outcome { result: result.map_err(|e| e.into_fs()), context: Some(dir_attr) }
    }

    fn lookup_in(
        &self,
        caller: &Caller,
        dir_attr: &Attr,
        place: &DirPlace,
        name: &[u8],
    ) -> Result<LookedUp> {
        Want::SEARCH.check(caller, dir_attr)?;
        let node = match name {
            b"." => self.node_at(place)?,
            b".." => self.parent_of(place)?,
            _ => {
                let child = self.child(place, &Name::new(name)?)?;
                child.ok_or(FsError::NotFound)?.node
            }
        };
        Ok(LookedUp { object: node.locator(), attr: self.attr(&node)? })
    }
}
