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

/// The time ranges in which tools ran, in seconds.
#[derive(Debug, Default)]
pub struct ToolWindows {
    /// Ended calls sorted by start: start, end, the latest end up to this call, and name.
    ended: Vec<(i64, i64, i64, Vec<u8>)>,
    /// The first start of each tool's calls that have not ended.
    pending: BTreeMap<Vec<u8>, i64>,
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

    fn of(mut calls: Vec<CallRow>) -> Self {
        calls.sort_by_key(|call| call.started_at);
        let mut windows = Self::default();
        let mut latest = i64::MIN;
        for call in calls {
            match call.completed_at {
                Some(end) => {
                    latest = latest.max(end);
                    windows.ended.push((call.started_at, end, latest, call.name));
                }
                None => {
                    windows.pending.entry(call.name).or_insert(call.started_at);
                }
            }
        }
        windows
    }

    /// The tools that ran in this second. The first and the last second of a call count in full.
    pub fn at(&self, second: i64) -> BTreeSet<&[u8]> {
        let pending = self.pending.iter().filter(|(_, since)| **since <= second);
        let mut names: BTreeSet<&[u8]> = pending.map(|(name, _)| name.as_slice()).collect();
        let begun = self.ended.partition_point(|(start, ..)| *start <= second);
        for (_, end, latest, name) in self.ended[..begun].iter().rev() {
            if *latest < second {
                break;
            }
            if *end >= second {
                names.insert(name);
            }
        }
        names
    }
}
