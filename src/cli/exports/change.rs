//! Changes `exports.d` and has the server read it: all or nothing.
//!
//! The file is checked with the whole configuration and with this machine before it is written. If
//! the server refuses it, it is taken back.

use std::io;
use std::path::Path;

use crate::cli::config::host_check::{ConfigFinding, look_at};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{
    self, AddedChange, AddedFiles, Config, ExportConfig, Missing, added_dir, added_file,
    check_added_name,
};
use crate::control::{
    ControlError, ExportsAnswer, ExportsConnection, ExportsRequest, FailureText, Refusal,
};

/// Why a change was not made.
#[derive(Debug)]
pub(in crate::cli) struct ChangeError {
    /// What a program decides by.
    pub(in crate::cli) kind: ChangeErrorKind,
    /// The error.
    pub(in crate::cli) error: CliError,
}

/// What a program decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum ChangeErrorKind {
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
    /// The connection to the server broke.
    Unknown,
}

/// Result type of changes.
pub(in crate::cli) type Result<T> = std::result::Result<T, ChangeError>;

impl ChangeErrorKind {
    /// An error of this kind.
    pub(in crate::cli) fn of(self, error: impl Into<CliError>) -> ChangeError {
        ChangeError { kind: self, error: error.into() }
    }

    /// An error of this kind with a cause.
    pub(super) fn caused(self, what: impl std::fmt::Display, cause: &io::Error) -> ChangeError {
        self.of(CliError::caused(what, cause))
    }
}

/// The way to the server of an exports file.
pub(in crate::cli) trait ServerLink {
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

/// A change that was made.
#[derive(Debug)]
pub(in crate::cli) struct AddedExport {
    /// What was found that does not prevent serving.
    pub(in crate::cli) warnings: Vec<ConfigFinding>,
    /// What clients mount; `None` if its token does not exist yet.
    pub(in crate::cli) path: Option<String>,
    /// Whether an export of this name was replaced.
    pub(in crate::cli) is_replaced: bool,
    /// Whether a server took the change.
    pub(in crate::cli) is_served: bool,
}

/// Adds the export `name`, whose file has this text; with `replaces`, in place of the one that has
/// this name.
pub(in crate::cli) fn add(
    file: &Path,
    (name, text): (&str, &str),
    replaces: bool,
    server: &mut dyn ServerLink,
) -> Result<AddedExport> {
    check_name(name)?;
    let files = lock(file)?;
    let before = read(file, name, files.read(name))?;
    if before.is_some() && !replaces {
        let what = format!("there is an export {name} in exports.d");
        let hint = "remove it first, or replace it with --replace";
        return Err(ChangeErrorKind::Exists.of(CliError::new(what).with_hint(hint)));
    }
    let config = config::read_changed(file, &AddedChange::Put { name, text });
    let config = config.map_err(|error| ChangeErrorKind::Invalid.of(error))?;
    let warnings = check_here(&config, name)?;
    write(file, files.put(name, text))?;
    let take_back = || match &before {
        Some(before) => files.put(name, before),
        None => files.remove(name).and_then(|()| files.forget(name)),
    };
    let reloaded = match reload(server) {
        Ok(reloaded) => reloaded,
        Err(error) => return Err(refused(file, error, take_back)),
    };
    if let Some(failure) = reloaded.iter().flatten().find(|failure| failure.name == name) {
        let refusal = Refusal { hint: failure.hint.clone(), ..Refusal::new(failure.what.clone()) };
        let error = refused(file, ControlError::Refused(refusal), take_back);
        // The server has what was there before, or an error that it reports itself.
        let _again = reload(server);
        return Err(error);
    }
    // What an earlier removal left.
    let _forgotten = files.forget(name);
    let is_replaced = before.is_some();
    let path = path_of(file, name);
    Ok(AddedExport { warnings, path, is_replaced, is_served: reloaded.is_some() })
}

/// The path of an export, with its token if that exists.
fn path_of(file: &Path, name: &str) -> Option<String> {
    let config = config::read(file, Missing::Leave).ok()?;
    find(&config, name)?.path.as_ref().map(ToString::to_string)
}

/// The export of this name.
pub(super) fn find<'a>(config: &'a Config, name: &str) -> Option<&'a ExportConfig> {
    config.exports.iter().find(|export| export.name == name)
}

/// Checks an export on this machine; returns what does not prevent serving.
fn check_here(config: &Config, name: &str) -> Result<Vec<ConfigFinding>> {
    let export = find(config, name);
    let found = export.map(look_at).unwrap_or_default();
    let (warnings, faults): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_warning);
    match faults.into_iter().next() {
        None => Ok(warnings),
        Some(fault) => Err(ChangeErrorKind::Invalid.of(CliError::new(words(&fault)))),
    }
}

/// A finding with its position.
pub(in crate::cli) fn words(finding: &ConfigFinding) -> String {
    let ConfigFinding { file, position, what, .. } = finding;
    format!("{}:{position}: {what}", text::name(file.as_os_str().as_encoded_bytes()))
}

/// Checks the name of an export for a file of `exports.d`.
pub(super) fn check_name(name: &str) -> Result<()> {
    check_added_name(name).map_err(|what| {
        let given = text::name(name.as_bytes());
        ChangeErrorKind::Invalid.of(CliError::new(format!("{given}: {what}")))
    })
}

/// Waits until no other command changes the exports of `file`.
pub(super) fn lock(file: &Path) -> Result<AddedFiles> {
    AddedFiles::lock(file).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            let error = CliError::new("another command is changing the exports");
            ChangeErrorKind::InUse.of(error.with_hint("try again when it has ended"))
        }
        _ => {
            let file = text::name(file.as_os_str().as_encoded_bytes());
            ChangeErrorKind::Storage.caused(file, &error)
        }
    })
}

/// The result of reading the file of an export.
pub(super) fn read(
    file: &Path,
    name: &str,
    read: io::Result<Option<String>>,
) -> Result<Option<String>> {
    let path = added_file(file, name);
    read.map_err(|error| {
        ChangeErrorKind::Storage.caused(text::name(path.as_os_str().as_encoded_bytes()), &error)
    })
}

/// The result of writing in `exports.d`.
pub(super) fn write(file: &Path, written: io::Result<()>) -> Result<()> {
    let dir = added_dir(file);
    written.map_err(|error| {
        let dir = text::name(dir.as_os_str().as_encoded_bytes());
        ChangeErrorKind::Storage.caused(format!("{dir}: nothing is changed"), &error)
    })
}

/// Has the server read the files; returns the exports that it cannot serve, or `None` if no server
/// runs.
pub(super) fn reload(
    server: &mut dyn ServerLink,
) -> std::result::Result<Option<Vec<FailureText>>, ControlError> {
    match server.ask(&ExportsRequest::Reload)? {
        None => Ok(None),
        Some(ExportsAnswer::Reloaded { failures, .. }) => Ok(Some(failures)),
        Some(_) => Err(ControlError::Broken(io::ErrorKind::InvalidData.into())),
    }
}

/// The error of a server that did not take a change; takes the change back if the server refused
/// it.
pub(super) fn refused(
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
            return ChangeErrorKind::Unknown.of(error);
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
