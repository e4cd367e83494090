//! Quota usage of exports and sessions, as messages.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::delta::{Limits, Usage};

/// Usage and limits of a session or an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageReport {
    /// Bytes of content.
    pub used_bytes: u64,
    /// Number of objects.
    pub used_files: u64,
    /// Limit of bytes.
    pub max_bytes: Option<u64>,
    /// Limit of objects.
    pub max_files: Option<u64>,
    /// Limit of the size of each file, in bytes, if it is not the default.
    #[serde(default)]
    pub max_file_bytes: Option<u64>,
}

impl UsageReport {
    /// From usage and limits.
    pub fn new(usage: Usage, limits: Limits) -> Self {
        Self {
            used_bytes: usage.bytes,
            used_files: usage.files,
            max_bytes: limits.bytes,
            max_files: limits.files,
            max_file_bytes: limits.file_bytes,
        }
    }

    /// The usage.
    pub fn usage(&self) -> Usage {
        Usage { bytes: self.used_bytes, files: self.used_files }
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits { bytes: self.max_bytes, files: self.max_files, file_bytes: self.max_file_bytes }
    }
}

/// Usage of the exports of an exports file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExportsUsage {
    /// The file, absolute; `None` if the server has none.
    pub file: Option<PathBuf>,
    /// The exports, in the order of the file.
    pub exports: Vec<ExportUsage>,
}

/// Usage of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportUsage {
    /// Name, as in the audit log.
    pub name: String,
    /// Total usage of its sessions, and the export's limits.
    pub taken: UsageReport,
    /// Its sessions, in the order of its mounts.
    pub sessions: Vec<SessionUsage>,
}

/// Usage of a session of an export: of the whole session, even if the export shows a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// The session file; `None` for a session in memory.
    pub session: Option<PathBuf>,
    /// Its mount points in the export.
    pub at: Vec<String>,
    /// Whether it counts towards the export's usage: not if the export mounts it read-only.
    pub is_counted: bool,
    /// Usage and own limits.
    pub taken: UsageReport,
}
