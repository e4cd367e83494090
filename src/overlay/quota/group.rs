//! Limits that several sessions share.

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{Limits, Usage, UsageDelta};

/// A group of sessions with common limits, for example those of an export.
#[derive(Debug)]
pub struct Group(Mutex<GroupQuota>);

/// Limits and usage of a group.
#[derive(Debug, Default)]
pub(super) struct GroupQuota {
    pub limits: Limits,
    /// Total usage of its sessions.
    pub used: UsageDelta,
}

impl Group {
    /// A group without sessions.
    pub fn new(limits: Limits) -> Self {
        Self(Mutex::new(GroupQuota { limits, used: UsageDelta::default() }))
    }

    /// Total usage of its sessions.
    pub fn usage(&self) -> Usage {
        self.account().used.usage()
    }

    /// The group's limits.
    pub fn limits(&self) -> Limits {
        self.account().limits
    }

    /// Changes the limits. Existing content above the new limits stays.
    #[cfg(feature = "internals")]
    pub fn set_limits(&self, limits: Limits) {
        self.account().limits = limits;
    }

    /// Locks the group. Callers that lock several groups must do so in ascending order of address.
    pub(super) fn account(&self) -> MutexGuard<'_, GroupQuota> {
        self.0.lock()
    }
}
