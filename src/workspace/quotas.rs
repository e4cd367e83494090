//! Quota of a workspace's session.

use super::{Limits, QuotaReport, Result, Workspace};
use crate::control::{Answer, Bound, Request};
use crate::inspect::quota::quota;

impl Workspace {
    /// Usage and limits of the session.
    ///
    /// ```
    /// # use acetate::workspace::{Usage, Workspace};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let mut work = Workspace::create(&dir.path().join("work.db"), None)?;
    /// work.write("notes.txt", "five\n".as_bytes())?;
    /// assert_eq!(work.quota()?.usage, Usage { bytes: 5, files: 1 });
    /// assert_eq!(work.quota()?.limits.bytes, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn quota(&self) -> Result<QuotaReport> {
        Ok(quota(&self.layers.session)?)
    }

    /// Replaces the session's own limits. They are stored in the session, so later servers enforce
    /// them. Content above the limits stays, but cannot grow.
    ///
    /// ```
    /// # use acetate::workspace::{Limits, Workspace};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let mut work = Workspace::create(&dir.path().join("work.db"), None)?;
    /// work.set_limits(Limits { bytes: Some(1 << 20), ..Limits::default() })?;
    /// work.write("notes.txt", "small".as_bytes())?;
    /// assert!(work.write("notes.txt", &*vec![0; 2 << 20]).is_err());
    /// // The file is as it was.
    /// assert_eq!(work.read("notes.txt")?, b"small");
    /// work.set_limits(Limits::default())?;
    /// work.write("notes.txt", &*vec![0; 2 << 20])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The session accepts no changes; its limits are unchanged.
    pub fn set_limits(&mut self, limits: Limits) -> Result<QuotaReport> {
        let bound = |limit: Option<u64>| limit.map_or(Bound::None, Bound::AtMost);
        let (bytes, files) = (bound(limits.bytes), bound(limits.files));
        let file_bytes = bound(limits.file_bytes);
        match self.perform(Request::SetQuota { bytes, files, file_bytes })? {
            Answer::Quota(taken) => {
                Ok(QuotaReport { usage: taken.usage(), limits: taken.limits() })
            }
            _ => self.quota(),
        }
    }
}
