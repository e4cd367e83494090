//! What an exports file says, checked: plain data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::clients::ClientNetworks;
use super::error::Position;
use super::ids::IdMap;
use super::options::ExportOptions;
use super::path::TreePath;
use super::tokens::Token;
use crate::vfs::{Pattern, PatternSet};

/// An exports file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The exports, in the file's order: at least one.
    pub exports: Vec<ExportConfig>,
}

/// One `[[export]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// What the audit calls it; unique in the file.
    pub name: String,
    /// What a client mounts; unique in the file. `None` where the export's token is not made yet.
    pub path: Option<TreePath>,
    /// The secret part of the path, if it has one: such an export is not to be listed.
    pub token: Option<Token>,
    /// Whether the path has, or is to have, a secret part.
    pub is_secret: bool,
    /// The words of exports(5).
    pub options: ExportOptions,
    /// Who may come.
    pub clients: ClientNetworks,
    /// Users; `None` leaves them as they are.
    pub uids: Option<IdMap>,
    /// Groups; `None` leaves them as they are.
    pub gids: Option<IdMap>,
    /// What all mounts may hold together.
    pub quota: QuotaConfig,
    /// The largest size of a file, in bytes; `None` for that of the session.
    pub max_file_bytes: Option<u64>,
    /// Paths of every base that are never served.
    pub hide: Arc<PatternSet>,
    /// What it is composed of, in the file's order; exactly one is at `/`.
    pub mounts: Vec<MountConfig>,
    /// Files that take only some content, in the file's order.
    pub guards: Vec<GuardConfig>,
    /// Where it is in the file.
    pub position: Position,
}

/// One `[[export.mount]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountConfig {
    /// Where it shows in the export; unique in the export.
    pub at: TreePath,
    /// Where changes go.
    pub store: StoreConfig,
    /// The directory that shows through, absolute. All mounts of a session have the same, whichever
    /// of them names it; `None` is the one that the session names, or none.
    pub base: Option<PathBuf>,
    /// Paths of the base that are never served: what all exports that have this session hide.
    pub hide: Arc<PatternSet>,
    /// The largest base file whose original is kept, in bytes; `None` for the usual size. All
    /// mounts of a session have the same.
    pub keep_originals: Option<u64>,
    /// What stays of the audit log; `None` for what the session says. All mounts of a session have
    /// the same.
    pub keep_log: Option<KeepLogConfig>,
    /// The directory of the merged tree that is the mount's root.
    pub subtree: TreePath,
    /// Whether every change is refused, by the mount's own options or the export's.
    pub is_read_only: bool,
    /// Where it is in the file.
    pub position: Position,
}

/// Where the changes of a mount go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// Into a session.
    Session {
        /// The file, absolute; it is made where there is none.
        file: PathBuf,
        /// Bytes per chunk of a new session. All mounts of a session have the same.
        chunk_size: Option<u64>,
    },
    /// Into memory; they go with the export.
    Memory,
}

impl MountConfig {
    /// The session file, if there is one.
    pub fn session(&self) -> Option<&PathBuf> {
        match &self.store {
            StoreConfig::Session { file, .. } => Some(file),
            StoreConfig::Memory => None,
        }
    }
}

/// `keep_log`: where both are given, what either of them keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepLogConfig {
    /// The newest changes.
    pub changes: Option<u64>,
    /// Changes of the last days.
    pub days: Option<u64>,
}

/// `quota`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaConfig {
    /// Bytes of content; `None` for no limit.
    pub bytes: Option<u64>,
    /// Objects; `None` for no limit.
    pub files: Option<u64>,
}

/// One `[[export.guard]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// Which files of the export, by their paths in it.
    pub path: Pattern,
    /// What they have to pass.
    pub rule: GuardRule,
    /// Where it is in the file.
    pub position: Position,
}

/// What a guarded file has to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardRule {
    /// It is a JSON text, and fits the JSON Schema in this file, if there is one.
    Json(Option<PathBuf>),
    /// Each line is a JSON text, and fits the JSON Schema in this file, if there is one.
    JsonLines(Option<PathBuf>),
    /// A program takes it.
    Program {
        /// Program and arguments: at least the program.
        argv: Vec<String>,
        /// How long it may take.
        timeout: Duration,
    },
}

impl GuardRule {
    /// The file with the JSON Schema, absolute.
    pub fn schema(&self) -> Option<&PathBuf> {
        match self {
            Self::Json(schema) | Self::JsonLines(schema) => schema.as_ref(),
            Self::Program { .. } => None,
        }
    }
}
