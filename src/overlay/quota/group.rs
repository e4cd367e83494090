//! Limits that several sessions share.

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{Limits, Usage, UsageDelta};

/// Limits that several sessions share: those of an export, say.
#[derive(Debug)]
pub struct Group(Mutex<GroupQuota>);

/// What a group has and may have.
#[derive(Debug, Default)]
pub(super) struct GroupQuota {
    pub limits: Limits,
    /// The sum of what its sessions take.
    pub used: UsageDelta,
}

impl Group {
    /// A group without sessions.
    pub fn new(limits: Limits) -> Self {
        Self(Mutex::new(GroupQuota { limits, used: UsageDelta::default() }))
    }

    /// What its sessions take in all.
    pub fn usage(&self) -> Usage {
        self.account().used.usage()
    }

    /// How much they may take.
    pub fn limits(&self) -> Limits {
        self.account().limits
    }

    /// Gives it other limits; sessions that take more keep what they have.
    pub fn set_limits(&self, limits: Limits) {
        self.account().limits = limits;
    }

    /// Whoever waits for several takes them in the order of their addresses. Each step of a
    /// holder leaves whole figures.
    pub(super) fn account(&self) -> MutexGuard<'_, GroupQuota> {
        self.0.lock()
    }
}
