//! Changes the exports of an exports file, and has its server take the change: for `acetate
//! exports` and for `serve --admin`.
//!
//! All or nothing: a change is checked before a file is written, and taken back if the server
//! refuses it.

pub(super) mod adding;
pub(super) mod listing;
mod others;
pub(super) mod removal;

use std::io;
use std::path::Path;

use super::error::CliError;
use super::text;
use crate::config::{AddedFiles, Config, ExportConfig, added_dir, added_file, check_added_name};
use crate::control::{ControlError, ExportsAnswer, ExportsConnection, ExportsRequest};

/// Attempts to look up the paths of all sessions while other commands change the exports.
const MAX_ATTEMPTS: usize = 8;

/// Why a change was not made.
#[derive(Debug)]
pub(super) struct ChangeError {
    /// Its kind.
    pub(super) kind: ChangeErrorKind,
    /// The error.
    pub(super) error: CliError,
}

/// What a program decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeErrorKind {
    /// The export is wrong, or does not fit on this machine.
    Invalid,
    /// There is an export of this name.
    Exists,
    /// There is no such export.
    Missing,
    /// A session is used by others.
    InUse,
    /// The files cannot be read or written.
    Storage,
    /// The server cannot serve it.
    Refused,
    /// The server did not answer.
    NoAnswer,
}

/// Result type of changes.
pub(super) type Result<T> = std::result::Result<T, ChangeError>;

impl ChangeErrorKind {
    /// An error of this kind.
    fn of(self, error: impl Into<CliError>) -> ChangeError {
        ChangeError { kind: self, error: error.into() }
    }

    /// An error of this kind with a cause.
    fn caused(self, what: impl std::fmt::Display, cause: &io::Error) -> ChangeError {
        self.of(CliError::caused(what, cause))
    }
}

/// The way to the server of an exports file.
pub(super) trait ServerLink {
    /// Performs a request; `None` if no server runs.
    fn ask(
        &mut self,
        request: &ExportsRequest,
    ) -> std::result::Result<Option<ExportsAnswer>, ControlError>;
}

impl ServerLink for Option<ExportsConnection> {
    fn ask(
        &mut self,
        request: &ExportsRequest,
    ) -> std::result::Result<Option<ExportsAnswer>, ControlError> {
        self.as_mut().map(|server| server.ask(request)).transpose()
    }
}

/// That no server took a change, with what the next start does.
pub(super) fn not_served(file: &Path, next: &str) -> String {
    let file = text::name(file.as_os_str().as_encoded_bytes());
    format!("no server of {file} answers: the next start {next}")
}

/// The export of this name.
fn find<'a>(config: &'a Config, name: &str) -> Option<&'a ExportConfig> {
    config.exports.iter().find(|export| export.name == name)
}

/// Checks the name of an export for a file of `exports.d`.
fn check_name(name: &str) -> Result<()> {
    check_added_name(name).map_err(|what| {
        let given = text::name(name.as_bytes());
        ChangeErrorKind::Invalid.of(CliError::new(format!("{given}: {what}")))
    })
}

/// Waits until no other command changes the exports of `file`.
fn lock(file: &Path) -> Result<AddedFiles> {
    AddedFiles::lock(file).map_err(|error| lock_error(file, &error))
}

/// The same; `None` if there is no `exports.d`.
fn lock_existing(file: &Path) -> Result<Option<AddedFiles>> {
    AddedFiles::lock_existing(file).map_err(|error| lock_error(file, &error))
}

fn lock_error(file: &Path, error: &io::Error) -> ChangeError {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            let error = CliError::new("another command is changing the exports");
            ChangeErrorKind::InUse.of(error.with_hint("try again when it has ended"))
        }
        _ => write_error(file, error),
    }
}

/// The error of `exports.d` that cannot be opened.
fn dir_error(file: &Path, error: &io::Error) -> ChangeError {
    let dir = added_dir(file);
    ChangeErrorKind::Storage.caused(text::name(dir.as_os_str().as_encoded_bytes()), error)
}

/// The error of a file of an export that cannot be read.
fn export_error(file: &Path, name: &str, error: &io::Error) -> ChangeError {
    let path = added_file(file, name);
    ChangeErrorKind::Storage.caused(text::name(path.as_os_str().as_encoded_bytes()), error)
}

/// The error of `exports.d` that cannot be written.
fn write_error(file: &Path, error: &io::Error) -> ChangeError {
    let dir = added_dir(file);
    let dir = text::name(dir.as_os_str().as_encoded_bytes());
    ChangeErrorKind::Storage.caused(format!("{dir}: nothing is changed"), error)
}

/// The error of a directory that does not answer.
fn hanging_error(which: &str, dir: &Path) -> ChangeError {
    let dir = text::name(dir.as_os_str().as_encoded_bytes());
    let error = CliError::new(format!("{which} {dir} does not answer; nothing is changed"));
    let hint = "its filesystem hangs: try again when `ls` of the directory works";
    ChangeErrorKind::Invalid.of(error.with_hint(hint))
}

/// The error of a change whose paths were never known.
fn busy_error() -> ChangeError {
    let error = CliError::new("other commands change the exports all the time");
    ChangeErrorKind::InUse.of(error.with_hint("try again"))
}

/// Has the server read the files, and open the export `added`; returns whether a server runs.
fn reload(
    server: &mut dyn ServerLink,
    added: Option<&str>,
) -> std::result::Result<bool, ControlError> {
    let added = added.map(str::to_owned);
    match server.ask(&ExportsRequest::Reload { added })? {
        None => Ok(false),
        Some(ExportsAnswer::Reloaded { .. }) => Ok(true),
        Some(_) => Err(ControlError::Broken(io::ErrorKind::InvalidData.into())),
    }
}

/// The error of a server that did not take a change; takes the change back if the server refused
/// it.
fn refused(
    file: &Path,
    error: ControlError,
    take_back: impl FnOnce() -> io::Result<()>,
) -> ChangeError {
    let refusal = match error {
        ControlError::Refused(refusal) => refusal,
        ControlError::Broken(error) => {
            let error = CliError::caused("the server did not answer", &error).with_hint(
                "the change stays in exports.d: the server takes it at its next start or SIGHUP",
            );
            return ChangeErrorKind::NoAnswer.of(error);
        }
    };
    if let Err(error) = take_back() {
        let dir = added_dir(file);
        let dir = text::name(dir.as_os_str().as_encoded_bytes());
        let what = format!("the server refused it: {refusal}; it is still in {dir}");
        return ChangeErrorKind::Storage.caused(what, &error);
    }
    let error = CliError::new(format!("the server refused it, and nothing is changed: {refusal}"));
    ChangeErrorKind::Refused.of(match refusal.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}
