//! Counts rows of the audit log in groups: by path, client, export or tool.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use super::error::Result;
use super::tool::ToolCalls;
use crate::delta::sqlite::{AgentAccess, CallFilter, CallRow};
use crate::delta::{AuditProcedure, AuditRow};
use crate::vfs::Time;

/// The counts of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The time of the first row.
    pub first: Time,
    /// The time of the last row.
    pub last: Time,
    /// Bytes of WRITEs and of published drafts.
    pub written_bytes: u64,
    ops: [u64; AuditProcedure::ALL.len()],
    paths: HashSet<Vec<u8>>,
}

impl Tally {
    /// The number of rows of each operation, without zeros.
    pub fn ops(&self) -> impl Iterator<Item = (AuditProcedure, u64)> {
        AuditProcedure::ALL.into_iter().zip(self.ops).filter(|(_, count)| *count > 0)
    }

    /// The number of different paths.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    fn merge(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.ops.iter_mut().zip(other.ops).for_each(|(sum, count)| *sum += count);
        self.paths.extend(other.paths.iter().cloned());
    }

    fn add(&mut self, row: &AuditRow) {
        self.first = self.first.min(row.time);
        self.last = self.last.max(row.time);
        self.written_bytes = self.written_bytes.saturating_add(row.length.unwrap_or(0));
        if let Some(at) = AuditProcedure::ALL.iter().position(|op| *op == row.procedure) {
            self.ops[at] += 1;
        }
        for path in [Some(&row.path), row.path2.as_ref()].into_iter().flatten() {
            if !self.paths.contains(path.as_bytes()) {
                self.paths.insert(path.as_bytes().to_vec());
            }
        }
    }
}

/// Groups by name; rows without a group are under `None`.
#[derive(Debug, Default)]
pub struct Tallies(BTreeMap<Option<Vec<u8>>, Tally>);

impl Tallies {
    /// Counts a row in a group.
    pub fn add(&mut self, name: Option<&[u8]>, row: &AuditRow) {
        let name = name.map(<[u8]>::to_vec);
        let tally = self.0.entry(name).or_insert_with(|| Tally {
            first: row.time,
            last: row.time,
            written_bytes: 0,
            ops: [0; AuditProcedure::ALL.len()],
            paths: HashSet::new(),
        });
        tally.add(row);
    }

    /// Merges the groups for which `fold` returns a common name. A merged group counts the names of
    /// its groups as its paths.
    pub fn folded(&self, fold: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let mut sum = Self::default();
        for (name, tally) in &self.0 {
            let into = name.as_deref().and_then(&fold);
            let paths = match (&into, name) {
                (Some(_), Some(name)) => HashSet::from([name.clone()]),
                _ => tally.paths.clone(),
            };
            let tally = Tally { paths, ..tally.clone() };
            match sum.0.entry(into.or_else(|| name.clone())) {
                Entry::Occupied(mut other) => other.get_mut().merge(&tally),
                Entry::Vacant(place) => drop(place.insert(tally)),
            }
        }
        sum
    }

    /// The groups, sorted by name; `None` is first.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&[u8]>, &Tally)> {
        self.0.iter().map(|(name, tally)| (name.as_deref(), tally))
    }
}

/// The name of a client's group: its address without the port, which differs between connections.
/// Port 0 is kept: it marks commands on this machine.
pub fn client_name(client: SocketAddr) -> String {
    match client.port() {
        0 => client.to_string(),
        _ => client.ip().to_canonical().to_string(),
    }
}

/// When tools ran: which rows of the log their calls are, where that is known, and otherwise in
/// which seconds.
#[derive(Debug, Default)]
pub struct ToolWindows {
    /// Ids of rows, of the calls that have them.
    rows: Windows,
    /// Seconds, of the other calls that ended.
    seconds: Windows,
    /// The first start of each tool's calls that have not ended, in seconds.
    pending: BTreeMap<Vec<u8>, i64>,
}

/// Ranges of numbers with names.
#[derive(Debug, Default)]
struct Windows {
    /// Sorted by first number: first, last, the greatest last one up to this range, and name.
    sorted: Vec<(i64, i64, i64, Vec<u8>)>,
}

impl Windows {
    fn of(mut ranges: Vec<(i64, i64, Vec<u8>)>) -> Self {
        ranges.sort_by_key(|(first, ..)| *first);
        let mut greatest = i64::MIN;
        let sorted = ranges.into_iter().map(|(first, last, name)| {
            greatest = greatest.max(last);
            (first, last, greatest, name)
        });
        Self { sorted: sorted.collect() }
    }

    /// The names of the ranges that have this number.
    fn at(&self, number: i64) -> impl Iterator<Item = &[u8]> {
        let begun = self.sorted.partition_point(|(first, ..)| *first <= number);
        let near = self.sorted[..begun].iter().rev();
        let near = near.take_while(move |(_, _, greatest, _)| *greatest >= number);
        near.filter(move |(_, last, ..)| *last >= number).map(|(.., name)| name.as_slice())
    }
}

impl ToolWindows {
    /// Reads the tool calls of the session file `session`.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn open(session: &Path) -> Result<Self> {
        let calls = ToolCalls::open(session, AgentAccess::Read)?.list(&CallFilter::default())?;
        Ok(Self::of(calls))
    }

    fn of(calls: Vec<CallRow>) -> Self {
        let (mut rows, mut seconds) = (Vec::new(), Vec::new());
        let mut pending: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for call in calls {
            match (call.bounds, call.completed_at) {
                (Some(bounds), _) => {
                    rows.push((bounds.begin_op.saturating_add(1), bounds.end_op, call.name));
                }
                (None, Some(end)) => seconds.push((call.started_at, end, call.name)),
                (None, None) => {
                    let since = pending.entry(call.name).or_insert(call.started_at);
                    *since = call.started_at.min(*since);
                }
            }
        }
        Self { rows: Windows::of(rows), seconds: Windows::of(seconds), pending }
    }

    /// The tools whose calls a row of the log may be of. Of a call without known rows, the first
    /// and the last second count in full.
    pub fn at(&self, row: i64, second: i64) -> BTreeSet<&[u8]> {
        let pending = self.pending.iter().filter(|(_, since)| **since <= second);
        let pending = pending.map(|(name, _)| name.as_slice());
        pending.chain(self.rows.at(row)).chain(self.seconds.at(second)).collect()
    }
}
