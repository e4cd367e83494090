//! READDIR and READDIRPLUS: both layers merged, in the order of cookies made from names.
//!
//! A cookie is a keyed hash of the name, so it stays right while entries come and go, after its
//! own entry is gone, and over restarts. The pages of one listing share a sorted [`Snapshot`], so
//! that n entries cost O(n log n) together; a new listing always begins with a fresh one.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{BaseError, Entries};
use crate::vfs::{
    Attr, Caller, Cookie, DirPage, Entry, FileId, FileKind, Locator, Name, Outcome, Trail,
};

use super::access::Want;
use super::error::Result;
use super::limits::MAX_SNAPSHOT_AGE;
use super::node::{DirPlace, Node, is_linked};
use super::resolve::View;
use super::snapshot::{DirState, Snapshot};
use super::trail::{trail_below, trail_of};

/// The cookies of `.` and `..`; those of names are larger.
const DOT: Cookie = Cookie(1);
const DOT_DOT: Cookie = Cookie(2);

/// An entry of a directory as the layers tell it without a closer look.
pub(super) struct RawEntry {
    pub name: Name,
    pub fileid: FileId,
    /// The type, where it came with the entry.
    pub kind: Option<FileKind>,
}

impl View<'_> {
    /// READDIR and READDIRPLUS.
    pub fn readdir(
        &self,
        caller: &Caller,
        dir: &Locator,
        cookie: Cookie,
        with_attrs: bool,
        take: &mut dyn FnMut(&Entry) -> bool,
    ) -> Outcome<DirPage, Option<Attr>> {
        let found = self.dir(dir).and_then(|(node, place)| Ok((self.attr(&node)?, node, place)));
        let (attr, node, place) = match found {
            Ok(found) => found,
            Err(error) => return Outcome::err(error.into_fs(), self.attr_of(dir).ok()),
        };
        let page = Want::READ.check(caller, &attr).and_then(|()| {
            let (snapshot, fresh) = self.snapshot(&place, &node, cookie)?;
            let lookup = if with_attrs {
                Lookup::Attributes
            } else if fresh {
                Lookup::No
            } else {
                Lookup::Existence
            };
            let untouched = match lookup {
                Lookup::Attributes if fresh => self.untouched(&place)?,
                _ => None,
            };
            self.page(&place, &snapshot, untouched.as_ref(), (cookie, lookup), take)
        });
        Outcome { result: page.map_err(|error| error.into_fs()), context: Some(attr) }
    }

    /// The snapshot that a page is cut from, and whether it is the directory as it is now.
    fn snapshot(
        &self,
        place: &DirPlace,
        node: &Node,
        cookie: Cookie,
    ) -> Result<(Arc<Snapshot>, bool)> {
        let state = self.dir_state(place, node);
        if let Some((made, known)) = self.core.caches.snapshot(place.fileid) {
            let fresh = known.state() == state;
            if fresh || (cookie.0 != 0 && made.elapsed() < MAX_SNAPSHOT_AGE) {
                return Ok((known, fresh));
            }
        }
        let mut snapshot = Snapshot::new(state, self.core.cookie_key);
        self.each_entry(place, &mut |entry| snapshot.insert(entry.name, entry.fileid))?;
        let snapshot = Arc::new(snapshot);
        self.core.caches.add_snapshot(place.fileid, &snapshot);
        Ok((snapshot, true))
    }

    fn dir_state(&self, place: &DirPlace, node: &Node) -> DirState {
        let delta = match node {
            Node::Delta(row) => Some(row.ctime),
            Node::Base { .. } => None,
        };
        let base = place.base.as_ref().and_then(|base| self.core.base.stat(base).ok());
        DirState { delta, base: base.map(|attr| (attr.mtime, attr.ctime)) }
    }

    /// Hands the entries after `cookie` to `take` until it has enough.
    fn page(
        &self,
        place: &DirPlace,
        snapshot: &Snapshot,
        untouched: Option<&Untouched<'_>>,
        (cookie, lookup): (Cookie, Lookup),
        take: &mut dyn FnMut(&Entry) -> bool,
    ) -> Result<DirPage> {
        let mut taken = 0;
        for (dot, name) in [(DOT, &b"."[..]), (DOT_DOT, &b".."[..])] {
            if cookie < dot {
                if !take(&self.dot_entry(place, dot, name, lookup)?) {
                    return Ok(DirPage { taken, eof: false });
                }
                taken += 1;
            }
        }
        for (at, name, fileid) in snapshot.after(cookie) {
            let mut entry = Entry::named(name, fileid, at);
            let found = match (lookup, untouched) {
                (Lookup::No, _) => Ok(true),
                (_, Some(dir)) => self.look_at_untouched(place, dir, name, &mut entry),
                (_, None) => self.look_at_child(place, name, lookup, &mut entry),
            };
            match found {
                Ok(true) => {}
                Ok(false) => continue,
                // One object that cannot be read does not spoil the listing.
                Err(error) => tracing::debug!(?name, %error, "listed without attributes"),
            }
            if !take(&entry) {
                return Ok(DirPage { taken, eof: false });
            }
            taken += 1;
        }
        Ok(DirPage { taken, eof: true })
    }

    /// Fills in what there is to say of `name` by looking it up; whether it is there.
    fn look_at_child(
        &self,
        place: &DirPlace,
        name: &Name,
        lookup: Lookup,
        entry: &mut Entry,
    ) -> Result<bool> {
        let Some(child) = self.child(place, name)? else { return Ok(false) };
        entry.fileid = child.node.fileid();
        if lookup == Lookup::Attributes {
            entry.object = self.attr(&child.node).ok().map(|attr| (child.node.locator(), attr));
        }
        Ok(true)
    }

    /// The directory as one of which the delta says nothing, if it is.
    fn untouched(&self, place: &DirPlace) -> Result<Option<Untouched<'_>>> {
        let (None, Some(base)) = (place.ino, &place.base) else { return Ok(None) };
        self.core.caches.add_listed(trail_of(base), base);
        match self.core.base.entries(base) {
            Ok(entries) => Ok(Some(Untouched { entries, trail: trail_of(base) })),
            Err(BaseError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// [`View::look_at_child`] for an entry of a directory of which the delta says nothing, with
    /// attributes and without any row: what has no other name is as the base has it.
    fn look_at_untouched(
        &self,
        place: &DirPlace,
        dir: &Untouched<'_>,
        name: &Name,
        entry: &mut Entry,
    ) -> Result<bool> {
        let attr = match dir.entries.stat(name, entry.fileid) {
            Ok(attr) => attr,
            Err(BaseError::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_counted = attr.kind != FileKind::Directory || attr.nlink >= 2;
        if is_linked(attr.kind, attr.nlink) || !is_counted {
            return self.look_at_child(place, name, Lookup::Attributes, entry);
        }
        entry.fileid = attr.fileid;
        let object = Locator::Base(attr.fileid, trail_below(&dir.trail, name.as_bytes()));
        entry.object = Some((object, self.as_in_base(attr.fileid, &attr)));
        Ok(true)
    }

    fn dot_entry(
        &self,
        place: &DirPlace,
        cookie: Cookie,
        name: &'static [u8],
        lookup: Lookup,
    ) -> Result<Entry> {
        let node = if cookie == DOT { self.node_at(place)? } else { self.parent_of(place)? };
        let object = match lookup {
            Lookup::Attributes => Some((node.locator(), self.attr(&node)?)),
            Lookup::No | Lookup::Existence => None,
        };
        Ok(Entry { name: Bytes::from_static(name), fileid: node.fileid(), cookie, object })
    }

    /// Calls `each` for every visible entry of a directory, in no particular order.
    pub fn each_entry(&self, place: &DirPlace, each: &mut dyn FnMut(RawEntry)) -> Result<()> {
        let mut hidden: HashSet<Name> = HashSet::new();
        if let Some(ino) = place.ino {
            self.txn.dentries(ino, &mut |name, _, mode, fileid| {
                if place.base.is_some() {
                    hidden.insert(name.clone());
                }
                each(RawEntry { name, fileid, kind: FileKind::from_mode(mode) });
            })?;
        }
        let Some(base) = &place.base else { return Ok(()) };
        let listing = match self.core.base.list(base) {
            Ok(listing) => listing,
            Err(BaseError::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        hidden.extend(self.txn.whiteouts_in(&place.merged)?);
        for entry in listing.entries.iter().filter(|entry| !hidden.contains(&entry.name)) {
            let kind = entry.kind.or_else(|| {
                let attr = self.core.base.stat(&base.join(&entry.name)).ok();
                attr.map(|attr| attr.kind)
            });
            each(RawEntry { name: entry.name.clone(), fileid: entry.fileid, kind });
        }
        Ok(())
    }

    /// Whether a directory has a visible entry.
    pub fn has_entries(&self, place: &DirPlace) -> Result<bool> {
        if let Some(ino) = place.ino
            && self.txn.has_dentries(ino)?
        {
            return Ok(true);
        }
        let Some(base) = &place.base else { return Ok(false) };
        let listing = match self.core.base.list(base) {
            Ok(listing) => listing,
            Err(BaseError::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if listing.entries.is_empty() {
            return Ok(false);
        }
        let hidden: HashSet<Name> = self.txn.whiteouts_in(&place.merged)?.into_iter().collect();
        Ok(listing.entries.iter().any(|entry| !hidden.contains(&entry.name)))
    }
}

/// A base directory of which the delta says nothing, while it is listed.
struct Untouched<'a> {
    entries: Box<dyn Entries + 'a>,
    trail: Trail,
}

/// What a listing has to look up for each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    /// Nothing.
    No,
    /// Whether it is still there.
    Existence,
    /// Its handle and attributes.
    Attributes,
}
