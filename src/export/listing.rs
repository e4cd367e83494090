//! Listings of directories that contain mount points or are the root of a mount.
//!
//! Mount points have cookies after `..` and before all names: the overlay leaves these free
//! ([`FIRST_NAME_COOKIE`](crate::overlay::FIRST_NAME_COOKIE)).

use bytes::Bytes;

use super::object::{MountedObject, OpenObject};
use super::service::Entered;
use crate::overlay::FIRST_NAME_COOKIE;
use crate::vfs::{Attr, Cookie, Entry, Locator, Vfs};

/// The cookie of `..`.
const DOT_DOT: u64 = 2;

/// Translates the entries of a mount's directory into entries of the export.
pub(super) struct Lister<F> {
    dir: OpenObject,
    /// The `..` entry of a mount's root.
    above: Option<(MountedObject, Attr)>,
    /// Mount points that are not listed yet, in reverse order.
    mounted: Vec<Entry<MountedObject>>,
    /// Names of all mount points in this directory.
    covered: Vec<Bytes>,
    take: F,
}

impl<F: FnMut(&Entry<MountedObject>) -> bool> Lister<F> {
    /// Begins a page after `cookie`.
    pub(super) async fn begin(
        entered: &Entered<'_>,
        cookie: Cookie,
        with_attrs: bool,
        take: F,
    ) -> Self {
        let (caller, dir) = (&entered.caller, &entered.object);
        let mut above = None;
        if let Some(place) = dir.above_mount()
            && let Ok(attr) = place.mount().overlay.getattr(caller, place.at()).await
        {
            above = Some((place.object(), place.show(attr)));
        }
        let mut mounted = Vec::new();
        let points = dir.mount().points_in(dir.at());
        for (point, at) in points.iter().zip(DOT_DOT + 1..FIRST_NAME_COOKIE) {
            let root = dir.root_of(point.mount);
            let attr = match with_attrs {
                true => root.mount().overlay.getattr(caller, root.at()).await.ok(),
                false => None,
            };
            if at > cookie.0 {
                mounted.push(Entry {
                    name: point.name.to_bytes(),
                    fileid: root.show_id(root.at().fileid()),
                    cookie: Cookie(at),
                    object: attr.map(|attr| (root.object(), root.show(attr))),
                });
            }
        }
        mounted.reverse();
        let covered = points.iter().map(|point| point.name.to_bytes()).collect();
        Self { dir: dir.clone(), above, mounted, covered, take }
    }

    /// Passes on an entry of the mount; `false` if it does not fit into the page.
    pub(super) fn take(&mut self, entry: &Entry) -> bool {
        if entry.cookie.0 >= FIRST_NAME_COOKIE {
            if !self.take_mounted() {
                return false;
            }
            if self.covered.contains(&entry.name) {
                return true;
            }
        }
        let is_above = entry.cookie.0 == DOT_DOT;
        let shown = match self.above.as_ref().filter(|_| is_above) {
            Some((place, attr)) => Entry {
                name: entry.name.clone(),
                fileid: attr.fileid,
                cookie: entry.cookie,
                object: entry.object.as_ref().map(|_| (place.clone(), attr.clone())),
            },
            None => self.shown(entry),
        };
        (self.take)(&shown)
    }

    /// Lists the remaining mount points; `false` if one does not fit into the page.
    pub(super) fn take_mounted(&mut self) -> bool {
        while let Some(entry) = self.mounted.last() {
            if !(self.take)(entry) {
                return false;
            }
            self.mounted.pop();
        }
        true
    }

    fn shown(&self, entry: &Entry) -> Entry<MountedObject> {
        let object = |(at, attr): &(Locator, Attr)| {
            (self.dir.sibling(at.clone()), self.dir.show(attr.clone()))
        };
        Entry {
            name: entry.name.clone(),
            fileid: self.dir.show_id(entry.fileid),
            cookie: entry.cookie,
            object: entry.object.as_ref().map(object),
        }
    }
}
