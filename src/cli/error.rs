//! The error type of the commands: `error:` says what failed and where, `hint:` what to do.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use super::hints;
use super::similar::{did_you_mean, similar};
use crate::base::BaseError;
use crate::config::ConfigError;
use crate::delta::postgres::HoldError;
use crate::delta::sqlite::OpenError;
use crate::delta::{StoreError, StoreErrorKind};
use crate::inspect::InspectError;
use crate::mounting::error::with_causes;
use crate::server::BindError;
use crate::server::rpcbind::RpcbindError;
use crate::system_error::words;
use crate::worker::WorkError;
use crate::workspace::Error as WorkspaceError;

/// A failure, ready to be printed.
#[derive(Debug)]
pub(super) struct CliError {
    what: String,
    hint: Option<String>,
    kind: CliErrorKind,
}

/// What a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CliErrorKind {
    /// The reader of stdout closed the pipe, which is not reported.
    Closed,
    /// A server has the session.
    InUse,
    /// The failure concerns one path; other paths may still succeed.
    Path,
    /// The connection to the session's server broke.
    Disconnected,
    /// Any other failure.
    Other,
}

impl CliError {
    /// A failure without a hint.
    pub(super) fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), hint: None, kind: CliErrorKind::Other }
    }

    /// A failed write to stdout.
    pub(super) fn stdout(error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::BrokenPipe => CliErrorKind::Closed,
            _ => CliErrorKind::Other,
        };
        Self { kind, ..Self::new(format_args!("cannot print: {}", words(error))) }
    }

    /// What the caller decides by.
    pub(super) fn kind(&self) -> CliErrorKind {
        self.kind
    }

    /// Marks a failure that concerns one path, unless it is of another kind: the command continues
    /// with its other paths.
    pub(super) fn about_path(mut self) -> Self {
        if self.kind == CliErrorKind::Other {
            self.kind = CliErrorKind::Path;
        }
        self
    }

    /// Marks a failure of the connection to the session's server.
    pub(super) fn disconnected(self) -> Self {
        Self { kind: CliErrorKind::Disconnected, ..self }
    }

    /// A failure with the chain of its causes.
    pub(super) fn caused(
        what: impl fmt::Display,
        cause: &(dyn std::error::Error + 'static),
    ) -> Self {
        Self::new(with_causes(what, cause))
    }

    /// Puts what was already done before the message.
    pub(super) fn after(self, done: &str) -> Self {
        Self { what: format!("{done}, but {}", self.what), ..self }
    }

    /// Adds a hint.
    pub(super) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// What the user can do about the failure.
    pub(super) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// A base directory that cannot be opened.
    pub(super) fn base(path: &Path, error: &BaseError) -> Self {
        let path = path.display();
        let (what, kind) = match error {
            BaseError::Io(source) => {
                (format!("base {path}: {}", words(source)), Some(source.kind()))
            }
            BaseError::NotFound => (format!("base {path}: {error}"), Some(ErrorKind::NotFound)),
            BaseError::Denied => {
                (format!("base {path}: {error}"), Some(ErrorKind::PermissionDenied))
            }
            BaseError::WrongKind => {
                (format!("base {path}: not a directory"), Some(ErrorKind::NotADirectory))
            }
            BaseError::Changed | BaseError::Busy | BaseError::Unresponsive => {
                (format!("base {path}: {error}"), None)
            }
        };
        let hint = match kind {
            Some(ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "give an existing directory with --base DIR"
            }
            Some(ErrorKind::PermissionDenied) => "serve as a user who may read the directory",
            _ => return Self::new(what),
        };
        Self::new(what).with_hint(hint)
    }

    /// An export of an exports file that cannot be served.
    pub(super) fn export(error: WorkspaceError) -> Self {
        let hint = hints::of_export(&error);
        let printed = Self::from(error);
        match hint {
            Some(hint) => printed.with_hint(hint),
            None => printed,
        }
    }

    /// A session in a database that cannot be used, for this reason.
    fn database(error: &WorkspaceError, reason: &HoldError) -> Self {
        match hints::of_database(reason) {
            Some(hint) => Self::new(error).with_hint(hint),
            None => Self::new(error),
        }
    }

    /// `--admin` cannot listen at `address`.
    pub(super) fn bind_admin(address: std::net::SocketAddr, error: &std::io::Error) -> Self {
        Self::caused(format!("cannot listen at {address} for --admin"), error)
            .with_hint("choose another address or port: --admin 127.0.0.1:9469")
    }

    /// The file of `--admin-token-file` cannot be used.
    pub(super) fn admin_token(file: &Path, error: &std::io::Error) -> Self {
        let file = file.display();
        Self::caused(format!("--admin-token-file {file}"), error).with_hint(format!(
            "make one: rm -f {file}; (umask 077; head -c 32 /dev/urandom | base64 -w0 >{file})"
        ))
    }

    /// An address that the server cannot bind.
    pub(super) fn bind(error: &BindError) -> Self {
        let address = error.address;
        let hint = match error.source.kind() {
            ErrorKind::AddrInUse => format!(
                "another server listens there; stop it, or choose another port: \
                 --listen {}",
                std::net::SocketAddr::new(address.ip(), alternative(address.port()))
            ),
            ErrorKind::PermissionDenied => {
                format!("ports below 1024 need root; choose another one: --listen {}:2049", {
                    std::net::SocketAddr::new(address.ip(), 0).ip()
                })
            }
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; 0.0.0.0 stands for all it has".to_owned()
            }
            _ => return Self::caused(error, &error.source),
        };
        Self::caused(error, &error.source).with_hint(hint)
    }

    /// A failure to register with rpcbind, through which clients find the ports.
    pub(super) fn rpcbind(error: &RpcbindError) -> Self {
        let (what, hint) = match error {
            RpcbindError::Bind(bind) => (
                Self::caused(format_args!("--rpcbind: {bind}"), &bind.source),
                match bind.source.kind() {
                    ErrorKind::PermissionDenied => {
                        "no rpcbind runs here, and port 111 needs root; serve as root, \
                         or start rpcbind, or mount with port= and mountport= instead"
                    }
                    _ => {
                        "another program has the port; stop it, or mount with port= and \
                          mountport= instead of --rpcbind"
                    }
                },
            ),
            RpcbindError::Talk { source, .. } => (
                Self::caused(format_args!("--rpcbind: {error}"), source),
                "registering needs root, or rpcbind's socket /run/rpcbind.sock; \
                 or mount with port= and mountport= instead",
            ),
            RpcbindError::Taken { .. } => (
                Self::new(format_args!("--rpcbind: {error}")),
                "stop that server, or mount with port= and mountport= instead of --rpcbind",
            ),
            RpcbindError::Refused { .. } => (
                Self::new(format_args!("--rpcbind: {error}")),
                "another program registered it; `rpcinfo` shows which, `rpcinfo -d PROGRAM 3` as \
                 root removes it",
            ),
        };
        what.with_hint(hint)
    }
}

/// A port that is likely free if `port` is not.
fn alternative(port: u16) -> u16 {
    port.checked_add(1).unwrap_or(2049)
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        if let OpenError::Missing { path } = &error
            && let Some(similar) = similar(path)
        {
            return Self::new(&error).with_hint(did_you_mean(&similar));
        }
        let kind = match error {
            OpenError::InUse { .. } => CliErrorKind::InUse,
            _ => CliErrorKind::Other,
        };
        let printed = Self { kind, ..Self::new(&error) };
        match hints::of_open(&error) {
            Some(hint) => printed.with_hint(hint),
            None => printed,
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let printed = Self::new(&error);
        match hints::of_config(&error) {
            Some(hint) => printed.with_hint(hint),
            None => printed,
        }
    }
}

impl From<InspectError> for CliError {
    fn from(error: InspectError) -> Self {
        let error = match error {
            InspectError::Open(error) => return error.into(),
            error => error,
        };
        let printed = Self::new(&error);
        let printed = match error {
            InspectError::Path { .. } => printed.about_path(),
            _ => printed,
        };
        match hints::of_inspect(&error) {
            Some(hint) => printed.with_hint(hint),
            None => printed,
        }
    }
}

impl From<WorkspaceError> for CliError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Open(error) => error.into(),
            WorkspaceError::Inspect(error) => error.into(),
            WorkspaceError::Refused(refusal) => refusal.into(),
            WorkspaceError::Bind(error) => Self::bind(&error),
            WorkspaceError::Base { path, is_recorded, source } => {
                let error = Self::base(&path, &source);
                if is_recorded { error.with_hint(hints::MOVED_BASE) } else { error }
            }
            WorkspaceError::ChunkSize { .. } => {
                Self::new(&error).with_hint("leave --chunk-size out; it is for new sessions")
            }
            WorkspaceError::OtherBase { .. } => Self::new(&error).with_hint(
                "if it is the same tree at another place, take it with --moved, which records it; \
                 otherwise leave --base out, or use another session",
            ),
            WorkspaceError::NotMoved { .. } => Self::new(&error).with_hint(
                "give the place of the tree that the session was made over: at least half of \
                 the files that it copied up have to be there, with their type and size",
            ),
            WorkspaceError::Differs { .. } => Self::new(&error).with_hint(
                "an open session keeps its base, what it hides, and whether anybody changes it, \
                 for all its mounts: to change that, stop the server and start it again",
            ),
            WorkspaceError::Replaced { .. } => Self::new(&error).with_hint(
                "if the new file is the right one, let the server read its exports again (SIGHUP): \
                 file handles of the old one are stale then",
            ),
            WorkspaceError::TooManyOpen { .. } => {
                Self::new(&error).with_hint("raise max_open in the exports file")
            }
            WorkspaceError::Registry(ref source) if source.kind == StoreErrorKind::Corrupt => {
                Self::new(&error).with_hint(
                    "remove the file that is named as the exports file with .instances, and start \
                     the server again; paths whose session at / is shared or in memory have to be \
                     mounted again",
                )
            }
            WorkspaceError::NewerReplica { .. } => Self::new(&error).with_hint(
                "bring back the database's newest state; or move the replica to another directory, \
                 to serve the older state of the database",
            ),
            WorkspaceError::Database { ref source, .. }
            | WorkspaceError::Hydration { ref source, .. } => Self::database(&error, source),
            WorkspaceError::CopiedBase { .. } => Self::new(&error).with_hint(
                "each server needs the same filesystem, as file handles name its inodes: mount it \
                 there, or take a copy for good with --moved",
            ),
            WorkspaceError::LocalDir { .. } | WorkspaceError::NoLocalDir => {
                Self::new(&error).with_hint("name another directory with --local DIR")
            }
            WorkspaceError::Store { .. }
            | WorkspaceError::Place { .. }
            | WorkspaceError::Registry(_)
            | WorkspaceError::Gone { .. }
            | WorkspaceError::SessionLost { .. }
            | WorkspaceError::Reloaded { .. }
            | WorkspaceError::Close { .. }
            | WorkspaceError::Memory(_)
            | WorkspaceError::Quota { .. }
            | WorkspaceError::Export { .. }
            | WorkspaceError::Guard { .. }
            | WorkspaceError::Random(_)
            | WorkspaceError::BaseHangs { .. }
            | WorkspaceError::NoExport
            | WorkspaceError::Hidden(_)
            | WorkspaceError::Work(_)
            | WorkspaceError::Threads(_) => Self::new(&error),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}

impl From<WorkError> for CliError {
    fn from(error: WorkError) -> Self {
        Self::new(error)
    }
}
