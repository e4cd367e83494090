//! The objects that the steps put, in the state in which the steps left them.
//!
//! Until the record is written, and also after a kill, another program may change an object that is
//! put already. Such a change is no part of the apply: the record has the object as it was put, so
//! that an undo notices the change.

use std::collections::HashMap;

use super::keep::{Keeping, digest};
use super::record::{Placed, PlacedState, Record};
use super::steps::{PutStep, Take};
use crate::inspect::error::Result;
use crate::vfs::Time;
use crate::writeback::{Attrs, SeenObject, StagingDir, TargetObject};

/// The largest unit in which a filesystem stores times, in nanoseconds (FAT). It rounds down.
const TIME_UNIT_NANOS: i128 = 2_000_000_000;

impl Keeping<'_> {
    /// Adds the puts that were done to the record.
    pub(super) fn find_placed(&self, record: &mut Record) -> Result<()> {
        let steps = &self.journal.steps;
        let takes: HashMap<_, _> = steps.takes.iter().map(|take| (take.slot, take)).collect();
        let sets: HashMap<_, _> = steps.sets.iter().map(|set| (&set.path, &set.attrs)).collect();
        for put in &steps.puts {
            let now = self.target.dir.object(&put.to)?;
            let take = takes.get(&put.slot).filter(|_| put.dir == StagingDir::Taken).copied();
            let is_there = |take: &Take| now.as_ref().is_some_and(|now| take.seen.is(&now.seen));
            // A change that is skipped later may have some of its objects in place.
            let is_done = take.is_some_and(is_there)
                || !self.skipped.contains(&put.change)
                    && self.staging.look(put.dir, put.slot)?.is_none();
            if !is_done {
                continue;
            }
            record.placed.push(Placed {
                path: put.to.clone(),
                from: take.filter(|take| !take.stays).map(|take| take.from.clone()),
                over: put.over.as_ref().map(|_| put.slot),
                left: self.left(put, take, sets.get(&put.to).copied(), now)?,
                change: put.change,
            });
        }
        Ok(())
    }

    /// The state in which the steps left an object that is `now`; `set` has the attributes that it
    /// got after its put.
    fn left(
        &self,
        put: &PutStep,
        take: Option<&Take>,
        set: Option<&Attrs>,
        now: Option<TargetObject>,
    ) -> Result<Option<PlacedState>> {
        let made = put.made.as_ref();
        let seen = take.map(|take| &take.seen).or(made.map(|made| &made.seen));
        if let Some(now) = &now
            && seen.is_none_or(|seen| is_as_put(seen, set, &now.seen))
        {
            let mut attrs = self.with_closed_mode(&put.to, now.attrs.clone());
            // Of a directory, and of an object that moved, an undo keeps the attributes that
            // something else set.
            if let Some(made) = made.filter(|_| !now.is_dir()) {
                attrs = only_ours(&made.attrs, set, attrs);
            }
            let digest = match made {
                Some(made) => made.digest.clone(),
                None => digest(&self.target.dir, &put.to, now)?,
            };
            return Ok(Some(PlacedState { seen: now.seen.clone(), attrs, digest }));
        }
        let attrs = set.or(made.map(|made| &made.attrs)).cloned().or(now.map(|now| now.attrs));
        Ok(seen.zip(attrs).map(|(seen, attrs)| {
            let seen = SeenObject { ctime: None, ..seen.clone() };
            PlacedState { seen, attrs, digest: made.and_then(|made| made.digest.clone()) }
        }))
    }
}

/// Whether an object is the one that was put, with the same content.
fn is_as_put(put: &SeenObject, set: Option<&Attrs>, now: &SeenObject) -> bool {
    let is_set = set.is_some_and(|set| {
        let unit = nanos(set.mtime) - nanos(now.mtime);
        (0..TIME_UNIT_NANOS).contains(&unit)
    });
    let mtime = if is_set { now.mtime } else { put.mtime };
    // The renames changed the ctime. Device numbers may differ after a reboot.
    SeenObject { dev: now.dev, mtime, ctime: None, ..put.clone() }.is_as_seen(now)
}

fn nanos(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Mode and owner as the object was made or as they were set after its put; what it has `now` may
/// be another program's.
fn only_ours(made: &Attrs, set: Option<&Attrs>, now: Attrs) -> Attrs {
    let set = set.unwrap_or(made);
    let number = |made, set, now| if now == made { made } else { set };
    Attrs {
        mode: number(made.mode, set.mode, now.mode),
        uid: number(made.uid, set.uid, now.uid),
        gid: number(made.gid, set.gid, now.gid),
        ..now
    }
}
