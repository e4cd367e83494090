//! Listings of directories that something is mounted in, or that are mounted themselves.
//!
//! What is mounted has the cookies behind those of `.` and `..`, before all others: the overlay
//! leaves them free ([`FIRST_NAME_COOKIE`](crate::overlay::FIRST_NAME_COOKIE)).

use bytes::Bytes;

use super::tree::MountedObject;
use crate::overlay::FIRST_NAME_COOKIE;
use crate::vfs::{Attr, Caller, Cookie, Entry, Locator, Vfs};

/// The cookie of `..`.
const DOT_DOT: u64 = 2;

/// Turns the entries of a mount's directory into those of the export.
pub(super) struct Lister<F> {
    dir: MountedObject,
    /// What `..` is, where the mount does not know.
    above: Option<(MountedObject, Attr)>,
    /// What is mounted here and not listed yet, the last one first.
    mounted: Vec<Entry<MountedObject>>,
    /// The names of all that is mounted here.
    covered: Vec<Bytes>,
    take: F,
}

impl<F: FnMut(&Entry<MountedObject>) -> bool> Lister<F> {
    /// Begins a page behind `cookie`.
    pub(super) async fn begin(
        caller: &Caller,
        dir: &MountedObject,
        cookie: Cookie,
        with_attrs: bool,
        take: F,
    ) -> Self {
        let mut above = None;
        if let Some(place) = dir.above_mount()
            && let Ok(attr) = place.mount().overlay.getattr(caller, &place.at).await
        {
            let attr = place.show(attr);
            above = Some((place, attr));
        }
        let mut mounted = Vec::new();
        let points = dir.mount().points_in(&dir.at);
        for (point, at) in points.iter().zip(DOT_DOT + 1..FIRST_NAME_COOKIE) {
            let root = dir.export().root_of(point.mount);
            let attr = match with_attrs {
                true => root.mount().overlay.getattr(caller, &root.at).await.ok(),
                false => None,
            };
            if at > cookie.0 {
                mounted.push(Entry {
                    name: point.name.to_bytes(),
                    fileid: root.show_id(root.at.fileid()),
                    cookie: Cookie(at),
                    object: attr.map(|attr| (root.clone(), root.show(attr))),
                });
            }
        }
        mounted.reverse();
        let covered = points.iter().map(|point| point.name.to_bytes()).collect();
        Self { dir: dir.clone(), above, mounted, covered, take }
    }

    /// Takes an entry of the mount's; `false` if it does not fit.
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

    /// Lists what is mounted here and was not listed yet; `false` if it does not fit.
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
            (self.dir.beside(at.clone()), self.dir.show(attr.clone()))
        };
        Entry {
            name: entry.name.clone(),
            fileid: self.dir.show_id(entry.fileid),
            cookie: entry.cookie,
            object: entry.object.as_ref().map(object),
        }
    }
}
