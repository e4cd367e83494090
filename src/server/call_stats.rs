//! Counts calls by procedure and status, and their times.
//!
//! Each thread counts in the cell that [`counters::cell`] gives it. Counting a call takes three
//! atomic additions and two looks at the clock.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::call_names::CallNames;
use crate::counters::{self, CELLS, Counter, DURATIONS, HistogramCell, HistogramValue, nanos};
use crate::wire::rpc::RpcStatus;

/// The label of results without a status code.
const OK: &str = "ok";

/// Labels of calls that have no results.
const REFUSALS: [&str; 4] = ["garbage_args", "procedure_unavailable", "auth_error", "system_error"];

/// The label of a status code without a name, and of a procedure without one.
const UNKNOWN: &str = "unknown";

/// Counts of all programs of a server.
#[derive(Debug)]
pub(super) struct RpcStats {
    programs: Vec<ProgramStats>,
    /// Retransmissions that were answered from the reply cache.
    pub(super) retransmissions: Counter,
}

/// Counts of one program.
#[derive(Debug)]
struct ProgramStats {
    names: CallNames,
    /// What the counts of a procedure are of, in this order.
    labels: Vec<&'static str>,
    /// By cell and then by procedure; the last one is of all procedures without a name.
    cells: Vec<Vec<ProcedureCell>>,
}

/// The counts of one procedure in one cell.
#[derive(Debug)]
struct ProcedureCell {
    statuses: Box<[AtomicU64]>,
    times: HistogramCell,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// It was executed: results follow the header.
    Results,
    /// It has no results.
    Refused(RpcStatus),
    /// It is a retransmission, with the reply of the first transmission.
    Repeated,
}

/// The calls of one procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcedureFigures {
    /// Name of the program.
    pub program: &'static str,
    /// Name of the procedure.
    pub procedure: &'static str,
    /// Calls by the name of their status; only those that occurred.
    pub statuses: Vec<(&'static str, u64)>,
    /// Times from the complete request to the reply, in nanoseconds.
    pub times: HistogramValue,
}

impl RpcStats {
    /// Counts for programs with these names.
    pub(super) fn new(programs: impl Iterator<Item = CallNames>) -> Self {
        let programs = programs.map(ProgramStats::new).collect();
        Self { programs, retransmissions: Counter::new() }
    }

    /// Counts a call of the program at index `program`, whose results begin with `results`.
    pub(super) fn count(
        &self,
        program: usize,
        procedure: u32,
        kind: ReplyKind,
        results: &[u8],
        took: Duration,
    ) {
        if kind == ReplyKind::Repeated {
            return self.retransmissions.add(1);
        }
        if let Some(program) = self.programs.get(program) {
            program.count(procedure, kind, results, took);
        }
    }

    /// The procedures that were called.
    pub(super) fn figures(&self) -> Vec<ProcedureFigures> {
        self.programs.iter().flat_map(ProgramStats::figures).collect()
    }
}

impl ProgramStats {
    fn new(names: CallNames) -> Self {
        let others = names.statuses.iter().map(|(_, name)| *name).filter(|name| *name != OK);
        let labels: Vec<_> = [OK].into_iter().chain(others).chain(REFUSALS).collect();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let cell = || ProcedureCell {
            // One more for codes without a name.
            statuses: (0..=labels.len()).map(|_| AtomicU64::new(0)).collect(),
            times: HistogramCell::new(),
        };
        let procedures = || (0..=names.procedures.len()).map(|_| cell()).collect();
        let cells = (0..processors.min(CELLS)).map(|_| procedures()).collect();
        Self { names, labels, cells }
    }

    fn count(&self, procedure: u32, kind: ReplyKind, results: &[u8], took: Duration) {
        let at = usize::try_from(procedure).unwrap_or(usize::MAX);
        let at = match self.names.procedures.get(at) {
            Some(name) if !name.is_empty() => at,
            _ => self.names.procedures.len(),
        };
        let cell = &self.cells[counters::cell() % self.cells.len()][at];
        let status = self.status(procedure, kind, results);
        cell.statuses[status].fetch_add(1, Ordering::Relaxed);
        cell.times.observe(DURATIONS, nanos(took));
    }

    /// The index of the label of a call's status.
    fn status(&self, procedure: u32, kind: ReplyKind, results: &[u8]) -> usize {
        let label = match kind {
            ReplyKind::Results => match (self.names.status_of)(procedure, results) {
                // The first label is of this code in all programs.
                None | Some(0) => return 0,
                Some(code) => {
                    let named = self.names.statuses.iter().find(|(known, _)| *known == code);
                    named.map(|(_, name)| *name)
                }
            },
            ReplyKind::Refused(status) => Some(match status {
                RpcStatus::GarbageArgs => REFUSALS[0],
                RpcStatus::ProcedureUnavailable => REFUSALS[1],
                RpcStatus::AuthError(_) => REFUSALS[2],
                _ => REFUSALS[3],
            }),
            ReplyKind::Repeated => None,
        };
        let at = label.and_then(|label| self.labels.iter().position(|known| *known == label));
        at.unwrap_or(self.labels.len())
    }

    fn figures(&self) -> impl Iterator<Item = ProcedureFigures> {
        let names = self.names.procedures.iter().copied().chain([UNKNOWN]);
        let all = names.enumerate().map(|(at, procedure)| {
            let cells = || self.cells.iter().map(move |cell| &cell[at]);
            let count = |status: usize| {
                cells().map(|cell| cell.statuses[status].load(Ordering::Relaxed)).sum()
            };
            let labels = self.labels.iter().copied().chain([UNKNOWN]);
            let statuses = labels.enumerate().map(|(at, label)| (label, count(at)));
            ProcedureFigures {
                program: self.names.program,
                procedure,
                statuses: statuses.filter(|(_, count)| *count > 0).collect(),
                times: HistogramValue::of(DURATIONS, cells().map(|cell| &cell.times)),
            }
        });
        all.filter(|figures| !figures.statuses.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc::AuthStatus;

    fn counted(calls: &[(u32, ReplyKind, [u8; 4])]) -> Vec<ProcedureFigures> {
        let stats = RpcStats::new([CallNames::OTHER, CallNames::NFS].into_iter());
        for (procedure, kind, results) in calls {
            stats.count(1, *procedure, *kind, results, Duration::from_micros(60));
        }
        stats.figures()
    }

    #[test]
    fn calls_are_counted_by_procedure_and_status() {
        use ReplyKind::{Refused, Results};
        let figures = counted(&[
            (1, Results, [0; 4]),
            (1, Results, [0; 4]),
            (1, Results, [0, 0, 0, 70]),
            (1, Results, [0, 0, 0, 99]),
            (1, Refused(RpcStatus::GarbageArgs), [0; 4]),
            (2, Refused(RpcStatus::AuthError(AuthStatus::TooWeak)), [0; 4]),
            (22, Refused(RpcStatus::ProcedureUnavailable), [0; 4]),
            (u32::MAX, Refused(RpcStatus::SystemError), [0; 4]),
        ]);
        let seen: Vec<_> = figures.iter().map(|f| (f.procedure, f.statuses.as_slice())).collect();
        let of_getattr = [("ok", 2), ("stale", 1), ("garbage_args", 1), ("unknown", 1)];
        let of_unknown = [("procedure_unavailable", 1), ("system_error", 1)];
        let expected: [(&str, &[(&str, u64)]); 3] =
            [("getattr", &of_getattr), ("setattr", &[("auth_error", 1)]), ("unknown", &of_unknown)];
        assert_eq!(seen, expected);
        assert!(figures.iter().all(|figures| figures.program == "nfs"));
        assert_eq!(figures[0].times.counts, [0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(figures[0].times.sum, 5 * 60_000);
    }

    #[test]
    fn a_repeated_reply_is_no_call() {
        counters::turn_on();
        let stats = RpcStats::new([CallNames::NFS].into_iter());
        stats.count(0, 1, ReplyKind::Repeated, &[0; 4], Duration::ZERO);
        assert_eq!((stats.figures(), stats.retransmissions.value()), (Vec::new(), 1));
    }
}
