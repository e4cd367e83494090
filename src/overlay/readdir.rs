//! READDIR and READDIRPLUS: both layers merged, ordered by cookies that are hashes of names.
//!
//! A cookie is a keyed hash of the name. It stays valid while entries are added and removed, after
//! its own entry is removed, and across restarts. The pages of a listing share a sorted
//! [`DirSnapshot`], so n entries cost O(n log n) in total. A new listing never starts from an
//! outdated snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{BaseError, Entries, ListingLockGuard};
use crate::delta::Ino;
use crate::vfs::{
    Attr, Caller, Cookie, DirPage, Entry, FileId, FileKind, FsError, Locator, Name, Outcome,
    PathDigest,
};

use super::access::Want;
use super::attr::tick_after;
use super::error::Result;
use super::limits::{LARGE_DIR_BYTES, MAX_SNAPSHOT_AGE, SMALL_LISTING_ENTRIES};
use super::listings::{FoundListing, Page};
use super::node::{DirPlace, Node, is_linked};
use super::resolve::View;
use super::snapshot::{DirSnapshot, DirState, EntrySource, SnapshotEntry};
use super::trail::{child_digest, digest_of};

/// The cookies of `.` and `..`; those of names are larger.
const DOT: Cookie = Cookie(1);
const DOT_DOT: Cookie = Cookie(2);

/// A directory entry before its attributes are read.
pub(super) struct RawEntry {
    pub name: Name,
    pub fileid: FileId,
    /// The type, if the layer returns it with the entry.
    pub kind: Option<FileKind>,
    /// The inode of a delta entry.
    pub ino: Option<Ino>,
}

/// READDIR and READDIRPLUS.
pub(super) fn readdir(
    view: &View<'_>,
    caller: &Caller,
    dir: &Locator,
    listing: &Page,
    cookie: Cookie,
    with_attrs: bool,
    take: &mut dyn FnMut(&Entry) -> bool,
) -> Outcome<DirPage, Option<Attr>> {
    let found = view.dir(dir).and_then(|(node, place)| Ok((view.attr(&node)?, node, place)));
    let (attr, node, place) = match found {
        Ok(found) => found,
        Err(error) => return Outcome::err(error.into_fs(), view.attr_of(dir).ok()),
    };
    let page = Want::READ.check(caller, &attr).and_then(|()| {
        let (snapshot, age) = snapshot(view, &place, &node, listing, cookie)?;
        let lookup = match (with_attrs, age) {
            (true, Age::Known) => EntryLookup::Sources(shown_base(view, &place)?),
            (true, _) => EntryLookup::Attributes,
            (false, Age::Old) => EntryLookup::Existence,
            (false, _) => EntryLookup::No,
        };
        page(view, &place, &snapshot, cookie, &lookup, take)
    });
    Outcome { result: page.map_err(|error| error.into_fs()), context: Some(attr) }
}

/// The snapshot for a page.
fn snapshot(
    view: &View<'_>,
    place: &DirPlace,
    node: &Node,
    listing: &Page,
    cookie: Cookie,
) -> Result<(Arc<DirSnapshot>, Age)> {
    let state = dir_state(view, place, node);
    let is_settled = || view.memo.is_current();
    if let Some(FoundListing { snapshot, is_current, age }) = listing.find(&state) {
        // The first page of a listing must show the current entries.
        if is_current && (cookie.0 != 0 || snapshot.is_certain) {
            // A directory without an inode in the delta has no delta entries.
            let is_known = place.ino.is_none() || (snapshot.is_settled && is_settled());
            return Ok((snapshot, if is_known { Age::Known } else { Age::Fresh }));
        }
        if cookie.0 != 0 && age < MAX_SNAPSHOT_AGE {
            return Ok((snapshot, Age::Old));
        }
    }
    // A later change of the base within one timestamp tick would not change the times.
    let (now, last) = ((view.core.clock)(), state.base.map(|(_, mtime, ctime)| mtime.max(ctime)));
    let is_certain = last.is_none_or(|last| tick_after(last) <= now);
    let (entries, turn) = match collect(view, place, &state, listing)? {
        Collected::Made(entries, turn) => (entries, turn),
        // The previous holder of the turn listed the same directory.
        Collected::Found(snapshot) => {
            let is_known = place.ino.is_none() || (snapshot.is_settled && is_settled());
            return Ok((snapshot, if is_known { Age::Known } else { Age::Fresh }));
        }
    };
    let mut snapshot = Arc::new(DirSnapshot::new(state, view.core.cookie_key, entries));
    Arc::make_mut(&mut snapshot).is_certain = is_certain;
    listing.keep(&mut snapshot, is_settled);
    drop(turn);
    Ok((snapshot, Age::Known))
}

/// Collects the entries of a directory. Only one large directory is collected at a time.
fn collect(
    view: &View<'_>,
    place: &DirPlace,
    state: &DirState,
    listing: &Page,
) -> Result<Collected> {
    let current = || listing.find(state).filter(|f| f.is_current && f.snapshot.is_certain);
    let (mut entries, mut turn, mut found) = (Vec::new(), None, None);
    if is_large(view, place) {
        turn = Some(listing.lock_listing().ok_or(FsError::TryLater)?);
        found = current();
    }
    let mut is_late = false;
    if found.is_none() {
        each_entry(view, place, &mut |RawEntry { name, fileid, ino, .. }| {
            if found.is_some() || is_late {
                return;
            }
            let source = ino.map_or(EntrySource::Base, EntrySource::Delta);
            entries.push(SnapshotEntry { name, fileid, source });
            if entries.len() > SMALL_LISTING_ENTRIES && turn.is_none() {
                turn = listing.lock_listing();
                is_late = turn.is_none();
                found = current();
            }
        })?;
    }
    match found {
        Some(found) => Ok(Collected::Found(found.snapshot)),
        None if is_late => Err(FsError::TryLater.into()),
        None => Ok(Collected::Made(entries, turn)),
    }
}

/// Whether the size of the base directory makes its listing a large one.
fn is_large(view: &View<'_>, place: &DirPlace) -> bool {
    let attr = place.base.as_ref().and_then(|base| view.core.base.stat(base).ok());
    attr.is_some_and(|attr| attr.size >= LARGE_DIR_BYTES)
}

fn dir_state(view: &View<'_>, place: &DirPlace, node: &Node) -> DirState {
    let delta = match node {
        Node::Delta(row) => Some(row.ctime),
        Node::Base { .. } => None,
    };
    let base = place.base.as_ref().and_then(|base| view.core.base.stat(base).ok());
    DirState { delta, base: base.map(|attr| (attr.fileid, attr.mtime, attr.ctime)) }
}

/// Passes the entries after `cookie` to `take` until it returns `false`.
fn page(
    view: &View<'_>,
    place: &DirPlace,
    snapshot: &DirSnapshot,
    cookie: Cookie,
    lookup: &EntryLookup<'_>,
    take: &mut dyn FnMut(&Entry) -> bool,
) -> Result<DirPage> {
    let mut taken = 0;
    for (dot, name) in [(DOT, &b"."[..]), (DOT_DOT, &b".."[..])] {
        if cookie < dot {
            if !take(&dot_entry(view, place, dot, name, lookup)?) {
                return Ok(DirPage { taken, eof: false });
            }
            taken += 1;
        }
    }
    for (at, listed) in snapshot.after(cookie) {
        let SnapshotEntry { name, fileid, source } = listed;
        let mut entry = Entry::named(name, *fileid, at);
        let found = match (lookup, source) {
            (EntryLookup::No, _) => Ok(true),
            (EntryLookup::Sources(_), EntrySource::Delta(ino)) => {
                look_at_inode(view, place, *ino, name, &mut entry)
            }
            (EntryLookup::Sources(Some(dir)), EntrySource::Base) => {
                look_in_base(view, place, dir, name, &mut entry)
            }
            _ => look_at_child(view, place, name, lookup.wants_attributes(), &mut entry),
        };
        match found {
            Ok(true) => {}
            Ok(false) => continue,
            // An object that cannot be read does not fail the whole listing.
            Err(error) => tracing::debug!(?name, %error, "listed without attributes"),
        }
        if !take(&entry) {
            return Ok(DirPage { taken, eof: false });
        }
        taken += 1;
    }
    Ok(DirPage { taken, eof: true })
}

/// Looks `name` up and fills in `entry`; returns whether the name exists.
fn look_at_child(
    view: &View<'_>,
    place: &DirPlace,
    name: &Name,
    with_attrs: bool,
    entry: &mut Entry,
) -> Result<bool> {
    let Some(child) = view.child(place, name)? else { return Ok(false) };
    entry.fileid = child.node.fileid();
    if with_attrs {
        entry.object = view.attr(&child.node).ok().map(|attr| (child.node.locator(), attr));
    }
    Ok(true)
}

/// As [`View<'_>::look_at_child`], for an entry that is known to be the delta inode `ino`.
fn look_at_inode(
    view: &View<'_>,
    place: &DirPlace,
    ino: Ino,
    name: &Name,
    entry: &mut Entry,
) -> Result<bool> {
    let Some(row) = view.txn.inode(ino)? else {
        return look_at_child(view, place, name, true, entry);
    };
    let node = Node::Delta(Box::new(row));
    entry.fileid = node.fileid();
    entry.object = view.attr(&node).ok().map(|attr| (node.locator(), attr));
    Ok(true)
}

/// As [`View<'_>::look_at_child`], for an entry that is known to be the base's. No row affects an
/// object with a single name, so its base attributes are correct.
fn look_in_base(
    view: &View<'_>,
    place: &DirPlace,
    dir: &ShownBase<'_>,
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
        return look_at_child(view, place, name, true, entry);
    }
    entry.fileid = attr.fileid;
    let object = Locator::Base(attr.fileid, child_digest(&dir.trail, name.as_bytes()));
    entry.object = Some((object, view.as_in_base(attr.fileid, &attr)));
    Ok(true)
}

/// Opens the base directory that shows through, to stat its entries.
fn shown_base<'a>(view: &View<'a>, place: &DirPlace) -> Result<Option<ShownBase<'a>>> {
    let Some(base) = &place.base else { return Ok(None) };
    let trail = digest_of(base);
    view.core.caches.add_listed(trail, base);
    match view.core.base.entries(base) {
        Ok(entries) => Ok(Some(ShownBase { entries, trail })),
        Err(BaseError::NotFound | BaseError::WrongKind) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn dot_entry(
    view: &View<'_>,
    place: &DirPlace,
    cookie: Cookie,
    name: &'static [u8],
    lookup: &EntryLookup<'_>,
) -> Result<Entry> {
    let node = if cookie == DOT { view.node_at(place)? } else { view.parent_of(place)? };
    let object = match lookup.wants_attributes() {
        true => Some((node.locator(), view.attr(&node)?)),
        false => None,
    };
    Ok(Entry { name: Bytes::from_static(name), fileid: node.fileid(), cookie, object })
}

/// Calls `each` for every visible entry, in no particular order.
pub(super) fn each_entry(
    view: &View<'_>,
    place: &DirPlace,
    each: &mut dyn FnMut(RawEntry),
) -> Result<()> {
    let mut hidden: HashSet<Name> = HashSet::new();
    if let Some(ino) = place.ino {
        view.txn.dentries(ino, &mut |name, ino, mode, fileid| {
            if place.base.is_some() {
                hidden.insert(name.clone());
            }
            let kind = FileKind::from_mode(mode);
            each(RawEntry { name, fileid, kind, ino: Some(ino) });
        })?;
    }
    let Some(base) = &place.base else { return Ok(()) };
    let listing = match view.core.base.list(base) {
        Ok(listing) => listing,
        // The base directory was removed: only delta entries are left.
        Err(BaseError::NotFound | BaseError::WrongKind) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    hidden.extend(view.txn.whiteouts_in(&place.merged)?);
    for entry in listing.entries.iter().filter(|entry| !hidden.contains(&entry.name)) {
        let kind = entry.kind.or_else(|| {
            let attr = view.core.base.stat(&base.join(&entry.name)).ok();
            attr.map(|attr| attr.kind)
        });
        each(RawEntry { name: entry.name.clone(), fileid: entry.fileid, kind, ino: None });
    }
    Ok(())
}

/// Whether a directory has any visible entry.
pub(super) fn has_entries(view: &View<'_>, place: &DirPlace) -> Result<bool> {
    view.refuse_during_apply(place)?;
    if let Some(ino) = place.ino
        && view.txn.has_dentries(ino)?
    {
        return Ok(true);
    }
    let Some(base) = &place.base else { return Ok(false) };
    let listing = match view.core.base.list(base) {
        Ok(listing) => listing,
        Err(BaseError::NotFound | BaseError::WrongKind) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // A whiteout hides at most one name: fewer whiteouts than names leave a name visible.
    let names = listing.entries.len();
    if view.txn.count_whiteouts(&place.merged, names)? < names {
        return Ok(true);
    }
    let hidden: HashSet<Name> = view.txn.whiteouts_in(&place.merged)?.into_iter().collect();
    Ok(listing.entries.iter().any(|entry| !hidden.contains(&entry.name)))
}

/// Result of collecting a directory's entries.
enum Collected {
    /// The entries, and the permit to collect a large listing.
    Made(Vec<SnapshotEntry>, Option<ListingLockGuard>),
    /// Another thread cached the same listing while this one waited for its permit.
    Found(Arc<DirSnapshot>),
}

/// A base directory whose entries are being looked at.
struct ShownBase<'a> {
    entries: Box<dyn Entries + 'a>,
    trail: PathDigest,
}

/// How current a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Of an earlier state of the directory.
    Old,
    /// The names are current.
    Fresh,
    /// The names and the sources of the entries are current.
    Known,
}

/// What a listing looks up for each entry.
enum EntryLookup<'a> {
    /// Nothing.
    No,
    /// Whether the name still exists.
    Existence,
    /// Handle and attributes.
    Attributes,
    /// Handle and attributes, by the source that the snapshot recorded.
    Sources(Option<ShownBase<'a>>),
}

impl EntryLookup<'_> {
    fn wants_attributes(&self) -> bool {
        matches!(self, Self::Attributes | Self::Sources(_))
    }
}
