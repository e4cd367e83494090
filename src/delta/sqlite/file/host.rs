//! Inputs from the machine, so that tests can inject them: clock, randomness, boot id.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::vfs::Time;

/// The machine's clock, randomness and boot id, when a session is created or opened.
#[derive(Debug, Clone)]
pub struct Host {
    /// The time now.
    pub now: Time,
    /// Random bytes, for a new session's id (the first half) and handle key (the second).
    pub seed: [u8; 32],
    /// Identifies this boot of the machine; `None` if the system has no such id. `None` never
    /// matches an earlier boot.
    pub boot_id: Option<String>,
}

impl Host {
    /// Reads them from the system.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn current() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let secs = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        Ok(Self { now: Time { secs, nanos: now.subsec_nanos() }, seed, boot_id: boot_id() })
    }
}

#[cfg(target_os = "linux")]
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(target_os = "macos")]
fn boot_id() -> Option<String> {
    let mut sysctl = std::process::Command::new("/usr/sbin/sysctl");
    let output = sysctl.args(["-n", "kern.bootsessionuuid"]).output().ok()?;
    let id = String::from_utf8(output.stdout).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot_id() -> Option<String> {
    None
}
