//! The checked contents of an exports file, as plain data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::checkpoints::CheckpointsConfig;
use super::clients::ClientNetworks;
use super::error::Position;
use super::ids::IdMap;
use super::keep_checkpoints::KeepCheckpointsConfig;
use super::options::ExportOptions;
use super::path::TreePath;
use super::template::TemplateConfig;
use super::tokens::Token;
use crate::delta::postgres::SessionUrl;
use crate::pattern::{Pattern, PatternSet};

/// An exports file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The exports, in the file's order, and then those of `exports.d`, by name.
    pub exports: Vec<ExportConfig>,
    /// The templates, in the file's order; at least one if there are no exports, unless there is a
    /// directory `exports.d`.
    pub templates: Vec<TemplateConfig>,
    /// Sessions that may be open at once.
    pub max_open: usize,
    /// Time without calls after which an export is closed.
    pub idle_close: Duration,
    /// Time without calls after which the changes of an ephemeral mount are gone.
    pub ephemeral_expire: Duration,
}

/// One `[[export]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// Name in the audit log; unique in the file.
    pub name: String,
    /// The path that clients mount; unique in the file. `None` if the export's token does not exist
    /// yet.
    pub path: Option<TreePath>,
    /// The secret part of the path; an export with a token is not listed.
    pub token: Option<Token>,
    /// Whether the path contains a token, once that exists.
    pub is_secret: bool,
    /// Options of exports(5).
    pub options: ExportOptions,
    /// Which clients may mount.
    pub clients: ClientNetworks,
    /// Map of uids; `None` leaves them unchanged.
    pub uids: Option<IdMap>,
    /// Map of gids; `None` leaves them unchanged.
    pub gids: Option<IdMap>,
    /// Limits of all mounts together.
    pub quota: QuotaConfig,
    /// Largest size of a file, in bytes; `None` if only the session's limit applies.
    pub max_file_bytes: Option<u64>,
    /// Base paths that are never served.
    pub hide: Arc<PatternSet>,
    /// The mounts, in the file's order; exactly one is at `/`.
    pub mounts: Vec<MountConfig>,
    /// The guards, in the file's order.
    pub guards: Vec<GuardConfig>,
    /// The path of the template that made it, with its parameters.
    pub template: Option<String>,
    /// The file that has it: the exports file, or one of `exports.d`.
    pub file: Arc<Path>,
    /// Position in the file.
    pub position: Position,
}

impl ExportConfig {
    /// The sessions in databases of its mounts.
    pub fn urls(&self) -> impl Iterator<Item = &Arc<SessionUrl>> {
        self.mounts.iter().filter_map(MountConfig::url)
    }

    /// Whether `other` exports the same in the same way, wherever it is written.
    pub fn is_same(&self, other: &Self) -> bool {
        self.without_positions()
            == Self { file: Arc::clone(&self.file), ..other.without_positions() }
    }

    fn without_positions(&self) -> Self {
        let none = Position { line: 0, column: 0 };
        let mut export = Self { position: none, ..self.clone() };
        export.mounts.iter_mut().for_each(|mount| mount.position = none);
        export.guards.iter_mut().for_each(|guard| guard.position = none);
        export
    }
}

/// One `[[export.mount]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountConfig {
    /// Mount point; unique in the export.
    pub at: TreePath,
    /// Where changes are stored.
    pub store: StoreConfig,
    /// The base directory, absolute; equal for all mounts of a session, even if only one names it.
    /// `None` means the base recorded in the session, or none.
    pub base: Option<PathBuf>,
    /// Base paths that are never served: the union of all exports of this session.
    pub hide: Arc<PatternSet>,
    /// Largest base file whose original is kept, in bytes; `None` for the default. Equal for all
    /// mounts of a session.
    pub keep_originals: Option<u64>,
    /// Bound of the audit log; `None` for the session's own. Equal for all mounts of a session.
    pub keep_log: Option<KeepLogConfig>,
    /// Which checkpoints the server makes; `None` for the default. Equal for all mounts of a
    /// session.
    pub checkpoints: Option<CheckpointsConfig>,
    /// Which automatic checkpoints are kept; `None` for the session's own. Equal for all mounts of
    /// a session.
    pub keep_checkpoints: Option<KeepCheckpointsConfig>,
    /// The directory of the merged tree that is the mount's root.
    pub subtree: TreePath,
    /// Whether the mount or its export is read-only.
    pub is_read_only: bool,
    /// Whether several instances of a template have the session; its content does not count against
    /// their quotas.
    pub is_shared: bool,
    /// Position in the file.
    pub position: Position,
}

/// Where the changes of a mount are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// In a session file.
    Session {
        /// The file, absolute; created if it does not exist.
        file: PathBuf,
        /// Chunk size of a new session, in bytes. Equal for all mounts of a session.
        chunk_size: Option<u64>,
    },
    /// In a database.
    Database {
        /// The session's name; created if it does not exist.
        url: Arc<SessionUrl>,
        /// Chunk size of a new session, in bytes. Equal for all mounts of a session.
        chunk_size: Option<u64>,
    },
    /// In memory, until the export is removed or the server ends.
    Memory,
}

impl StoreConfig {
    /// Chunk size of a new session, in bytes.
    pub fn chunk_size(&self) -> Option<u64> {
        match self {
            Self::Session { chunk_size, .. } | Self::Database { chunk_size, .. } => *chunk_size,
            Self::Memory => None,
        }
    }
}

impl MountConfig {
    /// The session file, if there is one.
    pub fn session(&self) -> Option<&PathBuf> {
        match &self.store {
            StoreConfig::Session { file, .. } => Some(file),
            StoreConfig::Database { .. } | StoreConfig::Memory => None,
        }
    }

    /// The session in a database, if there is one.
    pub fn url(&self) -> Option<&Arc<SessionUrl>> {
        match &self.store {
            StoreConfig::Database { url, .. } => Some(url),
            StoreConfig::Session { .. } | StoreConfig::Memory => None,
        }
    }

    /// What two mounts of one session have in common: the real path of its file, or a text that no
    /// file has as its path; `None` in memory.
    pub fn session_key(&self, real: impl FnOnce(&Path) -> PathBuf) -> Option<PathBuf> {
        match &self.store {
            StoreConfig::Session { file, .. } => Some(real(file)),
            StoreConfig::Database { url, .. } => Some(url.key().into()),
            StoreConfig::Memory => None,
        }
    }

    /// The session, for people.
    pub fn shown_session(&self) -> Option<String> {
        match &self.store {
            StoreConfig::Session { file, .. } => Some(file.display().to_string()),
            StoreConfig::Database { url, .. } => Some(url.to_string()),
            StoreConfig::Memory => None,
        }
    }
}

/// `keep_log`: with both values, changes that either of them covers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepLogConfig {
    /// Number of newest changes.
    pub changes: Option<u64>,
    /// Age of changes, in days.
    pub days: Option<u64>,
}

/// `quota`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaConfig {
    /// Bytes of content; `None` for no limit.
    pub bytes: Option<u64>,
    /// Number of files; `None` for no limit.
    pub files: Option<u64>,
}

/// One `[[export.guard]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// Which files, by their paths in the export.
    pub path: Pattern,
    /// How they are validated.
    pub rule: GuardRule,
    /// Position in the file.
    pub position: Position,
}

/// How a guarded file is validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardRule {
    /// One JSON text, which matches the JSON Schema in this file, if given.
    Json(Option<PathBuf>),
    /// JSON Lines that each match the JSON Schema in this file, if given.
    JsonLines(Option<PathBuf>),
    /// A program accepts the content.
    Program {
        /// Program and arguments; not empty.
        argv: Vec<String>,
        /// Wall-clock limit.
        timeout: Duration,
    },
}
