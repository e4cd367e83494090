//! Checkpoints: moments whose tree a session can still show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Ino, MergedPath};
use crate::base::BasePath;
use crate::vfs::{Name, Time};

/// The number of a checkpoint; later ones have larger numbers, and none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub i64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a checkpoint was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointKind {
    /// A person or program asked for it.
    Manual,
    /// A tool call or a command began.
    Tool,
    /// Nothing changed for a while.
    Idle,
    /// Something was about to replace the tree.
    Safety,
    /// A fork began here.
    Fork,
}

impl CheckpointKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Manual, Self::Tool, Self::Idle, Self::Safety, Self::Fork];

    /// The name in `acetate_checkpoint.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Tool => "tool",
            Self::Idle => "idle",
            Self::Safety => "safety",
            Self::Fork => "fork",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The label `before` of the checkpoint that `apply` makes.
pub const BEFORE_APPLY: &str = "apply";

/// Why a checkpoint does not have all of its tree: rows changed, and were not saved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incomplete {
    /// Another program changed them.
    OtherProgram,
    /// There was no room to save them while something was removed. Nothing is saved until the next
    /// checkpoint.
    NoRoom,
}

impl Incomplete {
    /// The word in `acetate_checkpoint.incomplete`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherProgram => "other-program",
            Self::NoRoom => "no-room",
        }
    }

    /// What a word means.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::OtherProgram, Self::NoRoom].into_iter().find(|one| one.as_str() == word)
    }
}

/// A checkpoint to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCheckpoint {
    /// A name that no other checkpoint of the session has.
    pub name: Option<String>,
    /// What it is made for.
    pub kind: CheckpointKind,
    /// Keys and values of the user.
    pub labels: BTreeMap<String, String>,
    /// The time, from the clock of the session's server.
    pub time: Time,
    /// If nothing changed since the newest checkpoint, that one is used instead.
    pub reuses: bool,
    /// A checkpoint that retention must not remove now.
    pub needed: Option<CheckpointId>,
}

impl NewCheckpoint {
    /// The checkpoint that keeps the tree before the restore of another.
    pub fn before_restore(to: CheckpointId, time: Time) -> Self {
        Self { time, needed: Some(to), ..Self::before(format!("restore {to}")) }
    }

    /// The checkpoint that keeps the tree before a step with this name, unless nothing changed
    /// since the newest.
    pub fn before(step: String) -> Self {
        let labels = BTreeMap::from([("before".to_owned(), step)]);
        let (kind, time) = (CheckpointKind::Safety, Time::default());
        Self { name: None, kind, labels, time, reuses: true, needed: None }
    }
}

/// What making a checkpoint came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MadeCheckpoint {
    /// It was made.
    Made(Checkpoint),
    /// Nothing changed since this one.
    Reused(Checkpoint),
    /// Another checkpoint has the name.
    NameTaken,
    /// The session's server makes none of this kind.
    Off,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number.
    pub id: CheckpointId,
    /// Its name.
    pub name: Option<String>,
    /// What it was made for.
    pub kind: CheckpointKind,
    /// When it was made.
    pub time: Time,
    /// Keys and values of the user.
    pub labels: BTreeMap<String, String>,
    /// The last row of the audit log at that moment; 0 if there was none.
    pub last_op: i64,
    /// Inode numbers from here on were given later.
    pub next_ino: Ino,
    /// How many rows are saved for it, and their size in bytes, as far as the session has counted
    /// them: those of the newest are not.
    pub saved: Option<(u64, u64)>,
    /// Why it does not have all of its tree, if so.
    pub incomplete: Option<Incomplete>,
}

/// Where a fork began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOrigin {
    /// The id of the session that was forked.
    pub session: String,
    /// Its checkpoint with the tree that the fork began with.
    pub checkpoint: CheckpointId,
}

/// Where rows of the tree changed after a checkpoint; more may be listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedRows {
    /// Objects whose rows or content changed, and those that were made.
    pub objects: BTreeSet<Ino>,
    /// Entries that changed, by directory and name. Those of directories that were made are not
    /// listed.
    pub entries: BTreeSet<(Ino, Name)>,
    /// Paths at which the base was hidden or shown again.
    pub paths: BTreeSet<MergedPath>,
}

impl ChangedRows {
    /// Adds what `other` lists.
    pub fn extend(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.entries.extend(other.entries);
        self.paths.extend(other.paths);
    }
}

/// Content of a file that may have to be saved for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsavedContent {
    /// The file.
    pub ino: Ino,
    /// The first chunk of the content, which extends to the end of the file.
    pub first: u64,
}

/// A restore to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreRequest {
    /// The checkpoint whose tree is to come back.
    pub to: CheckpointId,
    /// The last row of the audit log that the user has seen; if there are later ones that changed
    /// anything, nothing is restored. `None` does not look.
    pub seen: Option<i64>,
    /// The time, from the clock of the session's server.
    pub time: Time,
}

/// The paths of a restore that is not of the whole tree.
///
/// They are closed: an object that differs has all its names at or below `paths`, of both moments.
/// The directory above a path that was there at the checkpoint is the same object at both moments,
/// or is one of `dirs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestorePaths {
    /// Each becomes what it was, with everything below; none is below another.
    pub paths: BTreeSet<MergedPath>,
    /// Directories above them that are missing now: they come back, with these paths alone.
    pub dirs: BTreeSet<MergedPath>,
    /// The `paths` at which nothing was at the checkpoint.
    pub absent: BTreeSet<MergedPath>,
    /// The base paths that show at `paths`.
    pub homes: BTreeSet<BasePath>,
}

impl RestorePaths {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.paths.len() + self.dirs.len()
    }
}

/// What a restore came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The tree is that of the checkpoint.
    Restored(RestoredTree),
    /// There is no such checkpoint.
    NoCheckpoint,
    /// Something changed since the user looked.
    ChangedSince,
}

/// A restore that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredTree {
    /// The checkpoint that was restored.
    pub to: Checkpoint,
    /// The checkpoint of the tree before.
    pub before: CheckpointId,
    /// What changed.
    pub rows: RestoredRows,
}

/// What a restore changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoredRows {
    /// How many objects of the session changed, came back or went.
    pub objects: u64,
    /// The directories of the session that changed or came back.
    pub dirs: Vec<Ino>,
}

/// The automatic checkpoints that a session keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointKeep {
    /// So many newest ones are kept.
    pub newest: u64,
    /// Of older ones up to this age, in seconds, the newest of each hour is kept.
    pub hourly_secs: u64,
    /// Of still older ones up to this age, in seconds, the newest of each day is kept; `None` for
    /// any age.
    pub daily_secs: Option<u64>,
    /// Most bytes that rows saved for checkpoints take; `None` for a share of the session's other
    /// content. The oldest automatic ones go first.
    pub max_bytes: Option<u64>,
}

/// What the checkpoints of a session take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSpace {
    /// How many there are.
    pub checkpoints: u64,
    /// The size of the rows that are saved for them, in bytes; without the content, it is an
    /// estimate.
    pub saved_bytes: u64,
    /// How much that may be.
    pub max_bytes: u64,
    /// How many of them are incomplete.
    pub incomplete: u64,
    /// Whether rows of a removed one are still to be handed over.
    pub has_removed: bool,
    /// The checkpoint that the bound takes next: too much is saved, and its removal frees some.
    pub removable: Option<CheckpointId>,
}

impl CheckpointSpace {
    /// Whether too much is saved, and no removal of an automatic checkpoint frees any.
    pub fn is_stuck(&self) -> bool {
        self.saved_bytes > self.max_bytes && !self.has_removed && self.removable.is_none()
    }
}

impl Default for CheckpointKeep {
    fn default() -> Self {
        let hourly_secs = DAY_SECS.unsigned_abs();
        Self { newest: KEPT_CHECKPOINTS as u64, hourly_secs, daily_secs: None, max_bytes: None }
    }
}

impl Checkpoint {
    /// Whether it was made without a user asking for it, has no name, and is no fork's: retention
    /// may remove it.
    pub fn is_automatic(&self) -> bool {
        let is_wanted = matches!(self.kind, CheckpointKind::Manual | CheckpointKind::Fork);
        self.name.is_none() && !is_wanted
    }
}

/// Automatic checkpoints that are always kept, unless the session says otherwise.
pub const KEPT_CHECKPOINTS: usize = 100;

const HOUR_SECS: i64 = 60 * 60;

const DAY_SECS: i64 = 24 * HOUR_SECS;

/// The checkpoints that retention removes at the time `now`, the oldest first: automatic ones that
/// `keep` does not keep. `all` has the oldest first.
pub fn surplus(all: &[Checkpoint], now: Time, keep: CheckpointKeep) -> Vec<CheckpointId> {
    let newest = usize::try_from(keep.newest).unwrap_or(usize::MAX);
    let mut kept = BTreeSet::new();
    let mut unneeded = Vec::new();
    for one in all.iter().rev().filter(|one| one.is_automatic()).skip(newest) {
        let seconds = one.time.secs;
        // The clock may have been set back.
        let age = u64::try_from(now.secs.saturating_sub(seconds)).unwrap_or(0);
        let is_recent = age < keep.hourly_secs;
        let is_old = !is_recent && keep.daily_secs.is_some_and(|most| age >= most);
        let span = if is_recent { HOUR_SECS } else { DAY_SECS };
        if is_old || !kept.insert((is_recent, seconds.div_euclid(span))) {
            unneeded.push(one.id);
        }
    }
    unneeded.reverse();
    unneeded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(id: i64, secs: i64, kind: CheckpointKind, name: Option<&str>) -> Checkpoint {
        Checkpoint {
            id: CheckpointId(id),
            name: name.map(str::to_owned),
            kind,
            time: Time { secs, nanos: 0 },
            labels: BTreeMap::new(),
            last_op: 0,
            next_ino: Ino(2),
            saved: None,
            incomplete: None,
        }
    }

    #[test]
    fn old_automatic_checkpoints_become_fewer() {
        let (day, usual) = (DAY_SECS, CheckpointKeep::default());
        let now = 10 * day - 300;
        // One each ten minutes for ten days, as many as 1,440.
        let tool = |id: i64| at(id, id * 600, CheckpointKind::Tool, None);
        let mut all: Vec<_> = (0..1440).map(tool).collect();
        all[3].name = Some("named".to_owned());
        all[4].kind = CheckpointKind::Manual;
        let gone = surplus(&all, Time { secs: now, nanos: 0 }, usual);
        let is_kept = |one: &&Checkpoint| !gone.contains(&one.id);
        let kept: Vec<_> = all.iter().filter(is_kept).collect();
        let newest = &kept[kept.len() - KEPT_CHECKPOINTS..];
        assert_eq!(newest[0].id, CheckpointId(1440 - 100));
        let older = &kept[..kept.len() - KEPT_CHECKPOINTS];
        let daily = older.iter().filter(|one| now - one.time.secs >= day).count();
        // The newest hundred take 17 of the last 24 hours.
        assert_eq!(older.len() - daily, 8);
        assert_eq!(daily, 9 + 2, "one a day, the named one, and the one that was asked for");
        assert!(kept.iter().any(|one| one.id.0 == 3) && kept.iter().any(|one| one.id.0 == 4));
        assert!(gone.is_sorted());
        assert_eq!(surplus(&all[..100], Time { secs: now, nanos: 0 }, usual), []);
    }

    #[test]
    fn a_session_says_what_is_kept() {
        let now = 100 * DAY_SECS - 1;
        let fork = CheckpointKind::Fork;
        let mut all: Vec<_> =
            (0..2400).map(|hour| at(hour, hour * HOUR_SECS, CheckpointKind::Idle, None)).collect();
        all[0].kind = fork;
        let kept = |newest: u64, hours: u64, days: Option<u64>| {
            let (hourly_secs, daily_secs) = (hours * 3600, days.map(|days| days * 86_400));
            let keep =
                CheckpointKeep { newest, hourly_secs, daily_secs, ..CheckpointKeep::default() };
            let gone = surplus(&all, Time { secs: now, nanos: 0 }, keep);
            all.len() - gone.len()
        };
        assert_eq!(kept(7, 0, Some(0)), 1 + 7, "a fork's stays");
        assert_eq!(kept(0, 0, Some(0)), 1);
        assert_eq!(kept(0, 10, Some(0)), 1 + 10);
        assert_eq!(kept(0, 0, Some(5)), 1 + 5);
        assert_eq!(kept(3, 10, Some(5)), 1 + 10 + 5, "the day of the last hours has one too");
        assert_eq!(kept(0, 0, None), 1 + 100);
        assert_eq!(kept(5000, 0, Some(0)), all.len());
    }
}
