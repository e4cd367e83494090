//! Usage of one session, against its own limits and those of its groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{DEFAULT_FILE_BYTES, Limits, Usage, UsageDelta};
use crate::vfs::{FsError, FsStat};

use super::super::limits::MAX_FILE_BYTES;
use super::group::{Group, GroupQuota};

/// The account of a session.
pub(in super::super) struct QuotaAccount {
    /// Whether there are limits but usage is not counted yet: changes must wait.
    wants_count: AtomicBool,
    /// The session's own limit on file size, in bytes; `u64::MAX` for none.
    file_bytes: AtomicU64,
    state: Mutex<AccountState>,
}

#[derive(Default)]
struct AccountState {
    limits: Limits,
    /// `None` before counting. Includes reservations that are not committed; excludes released
    /// space that is not committed.
    used: Option<UsageDelta>,
    /// Sorted by address.
    groups: Vec<Joined>,
}

/// A group that the session belongs to.
struct Joined {
    group: Arc<Group>,
    /// Number of memberships.
    times: usize,
}

/// Keeps a session in a group; the session leaves with the last membership.
pub(in super::super) struct Membership {
    quota: Arc<QuotaAccount>,
    group: Arc<Group>,
}

/// The charge of a change until its commit. A drop before that reverts the charge.
pub(in super::super) struct QuotaReservation {
    quota: Arc<QuotaAccount>,
    more: UsageDelta,
    less: UsageDelta,
    is_committed: bool,
}

impl QuotaAccount {
    /// The account of a session with these limits.
    pub fn new(limits: Limits) -> Self {
        let state = AccountState { limits, ..AccountState::default() };
        Self {
            wants_count: AtomicBool::new(limits.is_some()),
            file_bytes: AtomicU64::new(limits.file_bytes.unwrap_or(u64::MAX)),
            state: Mutex::new(state),
        }
    }

    /// Whether there are limits but usage is not counted yet.
    pub fn wants_count(&self) -> bool {
        self.wants_count.load(Ordering::Acquire)
    }

    /// Whether usage is counted.
    pub fn is_counted(&self) -> bool {
        self.state().used.is_some()
    }

    /// Whether the session or one of the `memberships` groups has a limit of bytes or files.
    pub fn is_limited(&self, memberships: &[Arc<Membership>]) -> bool {
        self.state().limits.is_some() || memberships.iter().any(|of| of.group.limits().is_some())
    }

    /// Sets the initial usage. Runs on the writer's thread, so no change is missed.
    pub fn begin(&self, used: UsageDelta) {
        self.state().used.get_or_insert(used);
        self.wants_count.store(false, Ordering::Release);
    }

    /// Sets the session's own limits, after its usage was counted.
    pub fn set(&self, limits: Limits) {
        self.file_bytes.store(limits.file_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.state().limits = limits;
    }

    /// Largest size of a file, in bytes: the lower of the session's limit and `shared`; the default
    /// if there is neither.
    pub fn file_bytes(&self, shared: Option<u64>) -> u64 {
        match self.file_bytes.load(Ordering::Relaxed).min(shared.unwrap_or(u64::MAX)) {
            u64::MAX => DEFAULT_FILE_BYTES,
            most => most.min(MAX_FILE_BYTES),
        }
    }

    /// Usage, if counted, and the session's own limits.
    pub fn counted(&self) -> (Option<Usage>, Limits) {
        let state = self.state();
        (state.used.map(UsageDelta::usage), state.limits)
    }

    /// Usage and the session's own limits.
    pub fn quota(&self) -> (Usage, Limits) {
        let state = self.state();
        (state.used.unwrap_or_default().usage(), state.limits)
    }

    /// Joins a group; `None` if usage is not counted yet.
    pub fn join(self: &Arc<Self>, group: &Arc<Group>) -> Option<Membership> {
        let mut state = self.state();
        let used = state.used?;
        let address = |group: &Arc<Group>| Arc::as_ptr(group).addr();
        match state.groups.binary_search_by_key(&address(group), |joined| address(&joined.group)) {
            Ok(at) => state.groups[at].times += 1,
            Err(at) => {
                group.account().used += used;
                state.groups.insert(at, Joined { group: Arc::clone(group), times: 1 });
            }
        }
        Some(Membership { quota: Arc::clone(self), group: Arc::clone(group) })
    }

    /// Charges a change, if the limits of the session and of the groups of `memberships` allow it.
    /// With `None`, limits are not checked.
    ///
    /// # Errors
    /// [`FsError::Quota`]: a limit would be exceeded, and nothing is charged.
    pub fn charge(
        self: &Arc<Self>,
        growth: UsageDelta,
        memberships: Option<&[Arc<Membership>]>,
    ) -> Result<Option<QuotaReservation>, FsError> {
        // Growth is also zero if usage is not counted.
        if growth.is_zero() {
            return Ok(None);
        }
        let (more, less) = growth.split();
        let mut state = self.state();
        let used = state.used.unwrap_or_default();
        let is_asked = |group: &Arc<Group>| {
            memberships
                .is_some_and(|memberships| memberships.iter().any(|m| Arc::ptr_eq(&m.group, group)))
        };
        // Holds the locks of all groups from the check to the charge.
        let is_charged = (memberships.is_none() || state.limits.allow(used, growth))
            && state.with_accounts(more, |group, account| {
                !is_asked(group) || account.limits.allow(account.used, growth)
            });
        if !is_charged {
            return Err(FsError::Quota);
        }
        if let Some(used) = &mut state.used {
            *used += more;
        }
        Ok(Some(QuotaReservation { quota: Arc::clone(self), more, less, is_committed: false }))
    }

    /// Adds to the session's usage.
    fn add(&self, growth: UsageDelta) {
        if growth.is_zero() {
            return;
        }
        let mut state = self.state();
        if let Some(used) = &mut state.used {
            *used += growth;
        }
        state.with_accounts(growth, |_, _| true);
    }

    /// FSSTAT's figures: those of the disk, or of the tightest limit if that is lower.
    pub fn shown(&self, disk: FsStat, memberships: &[Arc<Membership>]) -> FsStat {
        let state = self.state();
        let own = state.used.map(|used| (state.limits, used));
        drop(state);
        let shared = memberships.iter().map(|membership| {
            let account = membership.group.account();
            (account.limits, account.used)
        });
        let all: Vec<_> = own.into_iter().chain(shared).collect();
        let tightest = |of: fn(&Limits) -> Option<u64>, used: fn(Usage) -> u64| {
            let limits = all.iter().filter_map(|(limits, sum)| Some((of(limits)?, sum.usage())));
            limits.map(|(limit, sum)| (limit.saturating_sub(used(sum)), limit)).min()
        };
        let mut shown = disk;
        if let Some((left, limit)) = tightest(|limits| limits.bytes, |used| used.bytes) {
            shown.total_bytes = shown.total_bytes.min(limit);
            shown.free_bytes = shown.free_bytes.min(left);
            shown.available_bytes = shown.available_bytes.min(left);
        }
        if let Some((left, limit)) = tightest(Limits::files, |used| used.files) {
            shown.total_files = shown.total_files.min(limit);
            shown.free_files = shown.free_files.min(left);
            shown.available_files = shown.available_files.min(left);
        }
        shown
    }

    fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock()
    }
}

impl AccountState {
    /// Adds to the usage of all groups, if `is_fit` accepts each of them; returns whether it did.
    fn with_accounts(
        &self,
        growth: UsageDelta,
        is_fit: impl Fn(&Arc<Group>, &GroupQuota) -> bool,
    ) -> bool {
        let groups = self.groups.iter().map(|joined| &joined.group);
        let mut accounts: Vec<_> = groups.clone().map(|group| group.account()).collect();
        let fit = groups.zip(&accounts).all(|(group, account)| is_fit(group, account));
        if fit {
            accounts.iter_mut().for_each(|account| account.used += growth);
        }
        fit
    }
}

impl QuotaReservation {
    /// Keeps the charge: the change is committed.
    pub fn commit(charge: Option<Self>) {
        if let Some(mut charge) = charge {
            charge.is_committed = true;
        }
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        self.quota.add(if self.is_committed { self.less } else { -self.more });
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.quota.state();
        let used = state.used.unwrap_or_default();
        let at = state.groups.iter().position(|joined| Arc::ptr_eq(&joined.group, &self.group));
        let Some(at) = at else { return };
        state.groups[at].times -= 1;
        if state.groups[at].times == 0 {
            state.groups.remove(at);
            self.group.account().used += -used;
        }
    }
}
