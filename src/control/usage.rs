//! What exports and their sessions take of their quotas.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::delta::{Limits, Usage};

/// What a session or an export takes, and may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageReport {
    /// Bytes that contents take.
    pub used_bytes: u64,
    /// Objects.
    pub used_files: u64,
    /// Bytes that contents may take.
    pub max_bytes: Option<u64>,
    /// Objects that there may be.
    pub max_files: Option<u64>,
    /// Bytes that each file may have, where that is limited otherwise than usual.
    #[serde(default)]
    pub max_file_bytes: Option<u64>,
}

impl UsageReport {
    /// Of a usage and its limits.
    pub fn new(usage: Usage, limits: Limits) -> Self {
        Self {
            used_bytes: usage.bytes,
            used_files: usage.files,
            max_bytes: limits.bytes,
            max_files: limits.files,
            max_file_bytes: limits.file_bytes,
        }
    }

    /// What is taken.
    pub fn usage(&self) -> Usage {
        Usage { bytes: self.used_bytes, files: self.used_files }
    }

    /// What may be.
    pub fn limits(&self) -> Limits {
        Limits { bytes: self.max_bytes, files: self.max_files, file_bytes: self.max_file_bytes }
    }
}

/// The exports of an exports file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExportsUsage {
    /// The file, absolute; `None` of a server that has none.
    pub file: Option<PathBuf>,
    /// Its exports, in the order of the file.
    pub exports: Vec<ExportUsage>,
}

/// What an export takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportUsage {
    /// Its name, as the audit log has it.
    pub name: String,
    /// What its sessions take together, and the export's limits.
    pub taken: UsageReport,
    /// Its sessions, in the order of its mounts.
    pub sessions: Vec<SessionUsage>,
}

/// What a session of an export takes: all of it, also where the export shows a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// The file; `None` where changes are in memory.
    pub session: Option<PathBuf>,
    /// Where it is mounted in the export.
    pub at: Vec<String>,
    /// Whether the export's usage has it: not where the export only reads it.
    pub is_counted: bool,
    /// What it takes, and its own limits.
    pub taken: UsageReport,
}
