//! Removes an export of `exports.d`, and its sessions if that is wanted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    ChangeErrorKind, Result, ServerLink, check_name, find, lock, opened, read, refused, reload,
    write,
};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{self, AddedChange, AddedFiles, Config, Missing, added_dir, real_path};
use crate::control::{ControlError, ExportsAnswer, ExportsRequest, SessionUse};
use crate::delta::sqlite::{is_in_use, is_session, remove_session};

/// Longest name of a file that can be removed, in bytes: it is renamed to a longer one.
const MAX_REMOVED_NAME_BYTES: usize = 200;

/// An export that is to be removed.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct ExportRemoval<'a> {
    /// Its name, unchecked.
    pub(in crate::cli) name: &'a str,
    /// Whether its sessions are deleted too.
    pub(in crate::cli) deletes: bool,
}

/// An export that was removed.
#[derive(Debug)]
pub(in crate::cli) struct RemovedExport {
    /// The sessions that were deleted.
    pub(in crate::cli) sessions: Vec<PathBuf>,
    /// Whether a server took the change.
    pub(in crate::cli) applied: RemovalApplied,
}

/// Whether a server took a removal.
#[derive(Debug)]
pub(in crate::cli) enum RemovalApplied {
    /// It did.
    Yes,
    /// No server runs.
    NoServer,
    /// Other files are broken, for this reason: it serves what it did before.
    NotYet(String),
}

impl RemovedExport {
    /// The removal as JSON.
    pub(in crate::cli) fn json(&self, name: &str) -> Map<String, Value> {
        let mut object = text::json("export_removed");
        object.insert("name".to_owned(), name.into());
        let is_applied = matches!(self.applied, RemovalApplied::Yes);
        object.insert("is_applied".to_owned(), is_applied.into());
        let paths = self.sessions.iter().map(|session| session.to_string_lossy().into_owned());
        object.insert("deleted".to_owned(), paths.collect::<Vec<_>>().into());
        object
    }
}

/// Removes an export of `exports.d`.
///
/// One whose file is broken can be removed while others are broken too.
pub(in crate::cli) fn remove(
    file: &Path,
    ExportRemoval { name, deletes }: ExportRemoval<'_>,
    server: &mut dyn ServerLink,
) -> Result<RemovedExport> {
    if !is_file_name(name) {
        check_name(name)?;
    }
    let files = lock(file)?;
    let is_there = opened(file, files.has(name))?;
    if !is_there {
        check_name(name)?;
    }
    let text = match (is_there, deletes) {
        (true, true) => read(file, name, files.read(name))?,
        // An earlier removal ended before its sessions were removed.
        (false, true) => read(file, name, files.read_removed(name))?,
        (_, false) => None,
    };
    if !is_there && text.is_none() {
        return Err(missing(file, name));
    }
    let rest = config::read_changed(file, &AddedChange::Remove { name });
    let (sessions, broken) = match (text, rest) {
        (Some(text), rest) => (own_sessions(file, &RemovedText { name, text: &text }, rest)?, None),
        (None, Ok(_)) => (Vec::new(), None),
        (None, Err(error)) if is_broken(file, name) => (Vec::new(), Some(error)),
        (None, Err(error)) => return Err(ChangeErrorKind::Invalid.of(error)),
    };
    refuse_used(&sessions, server)?;
    if is_there {
        write(file, files.remove(name))?;
    }
    let applied = match (reload(server, None), broken) {
        (Ok(true), _) => RemovalApplied::Yes,
        (Ok(false), _) => RemovalApplied::NoServer,
        (Err(ControlError::Refused(_)), Some(error)) => RemovalApplied::NotYet(error.to_string()),
        (Err(error), _) => {
            let take_back = || if is_there { files.restore(name) } else { Ok(()) };
            return Err(refused(file, error, take_back));
        }
    };
    delete(&sessions, &files, name)?;
    Ok(RemovedExport { sessions, applied })
}

/// Whether a name may be that of a file that an administrator wrote.
fn is_file_name(name: &str) -> bool {
    let is_short = !name.is_empty() && name.len() <= MAX_REMOVED_NAME_BYTES;
    is_short && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Whether the file of an export is at fault.
fn is_broken(file: &Path, name: &str) -> bool {
    let fault = config::read(file, Missing::Leave).err();
    fault.is_some_and(|fault| fault.broken_exports().iter().any(|it| it == name))
}

/// The file of an export that is removed.
struct RemovedText<'a> {
    name: &'a str,
    text: &'a str,
}

/// The error of an export that no file of `exports.d` has.
fn missing(file: &Path, name: &str) -> super::ChangeError {
    let dir = added_dir(file);
    let dir = text::name(dir.as_os_str().as_encoded_bytes());
    let error = CliError::new(format!("there is no export {name} in {dir}"));
    let config = config::read(file, Missing::Leave).ok();
    let is_written = config.is_some_and(|config| find(&config, name).is_some());
    ChangeErrorKind::Missing.of(match is_written {
        true => {
            let file = text::name(file.as_os_str().as_encoded_bytes());
            error.with_hint(format!("{file} has it: remove it there, and send the server SIGHUP"))
        }
        false => error.with_hint("`acetate exports ls` shows all exports"),
    })
}

/// The real paths of an export's sessions that exist and that it may change; `rest` are the other
/// exports.
///
/// # Errors
/// Another export or a template may have one of them.
fn own_sessions(
    file: &Path,
    removed: &RemovedText<'_>,
    rest: config::Result<Config>,
) -> Result<Vec<PathBuf>> {
    // Alone: another export may have its path since.
    let export = config::read_added_text(file, removed.name, removed.text).map_err(|error| {
        let hint = "leave --delete out: the sessions of a broken file are not known";
        ChangeErrorKind::Invalid.of(CliError::new(error).with_hint(hint))
    })?;
    let rest = rest.map_err(|error| ChangeErrorKind::Invalid.of(error))?;
    refuse_beside_others(file)?;
    // What it could only read is not its own.
    let changed = export.mounts.iter().filter(|mount| !mount.is_read_only);
    let sessions = changed.filter_map(|mount| mount.session());
    let own: BTreeSet<PathBuf> = sessions.map(|session| real_path(session)).collect();
    for other in &rest.exports {
        let sessions = other.mounts.iter().filter_map(|mount| mount.session());
        let mut sessions = sessions.map(|session| real_path(session));
        if let Some(shared) = sessions.find(|session| own.contains(session)) {
            return Err(shared_error(&shared, &format!("the export {}", other.name)));
        }
    }
    for template in &rest.templates {
        for dir in template.session_dirs().map(|dir| real_path(&dir)) {
            if let Some(shared) = own.iter().find(|session| session.starts_with(&dir)) {
                return Err(shared_error(shared, &format!("the template {template}")));
            }
        }
    }
    let there = own.into_iter().filter(|session| session.symlink_metadata().is_ok());
    Ok(there.collect())
}

/// Refuses to delete sessions if the directory has another exports file: its exports may have them.
fn refuse_beside_others(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let own = file.file_name();
    let is_other = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let name = Path::new(&name);
        let is_toml =
            name.extension().is_some_and(|it| it == "toml") && Some(name.as_os_str()) != own;
        is_toml && entry.path().is_file() && config::read(&entry.path(), Missing::Leave).is_ok()
    };
    let Some(other) = entries.into_iter().flatten().flatten().find(is_other) else { return Ok(()) };
    let other = text::name(other.path().as_os_str().as_encoded_bytes()).to_string();
    let what = format!("sessions are not deleted, as the exports of {other} may use them too");
    let hint = "leave --delete out, and remove the files of sessions by hand";
    Err(ChangeErrorKind::InUse.of(CliError::new(what).with_hint(hint)))
}

fn shared_error(session: &Path, other: &str) -> super::ChangeError {
    let session = text::name(session.as_os_str().as_encoded_bytes());
    let what =
        format!("{session}: not deleted, as {} may use it too", text::line(other.as_bytes()));
    let hint = "leave --delete out, and the session stays";
    ChangeErrorKind::InUse.of(CliError::new(what).with_hint(hint))
}

/// Refuses sessions that a command uses, and files that are no sessions: a name that is wrong may
/// be that of any file.
fn refuse_used(sessions: &[PathBuf], server: &mut dyn ServerLink) -> Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let request = ExportsRequest::Uses { sessions: sessions.to_vec() };
    let uses = match server.ask(&request) {
        Ok(Some(ExportsAnswer::Uses(uses))) => uses,
        Ok(None) => Vec::new(),
        Ok(Some(_)) | Err(ControlError::Broken(_)) => {
            let error = CliError::new("the server did not answer; nothing is changed");
            return Err(ChangeErrorKind::Unknown.of(error));
        }
        Err(ControlError::Refused(refusal)) => {
            return Err(ChangeErrorKind::Refused.of(CliError::from(refusal)));
        }
    };
    for (index, session) in sessions.iter().enumerate() {
        let (is_open, is_used) = match uses.get(index) {
            Some(SessionUse::InUse) => (true, true),
            Some(SessionUse::Open) => (true, false),
            Some(SessionUse::Closed) | None => (false, is_in_use(session)),
        };
        if !is_open && !is_used && !is_session(session) {
            let other = text::name(session.as_os_str().as_encoded_bytes());
            let error = CliError::new(format!("{other}: no session; nothing is changed"));
            let hint = "leave --delete out, and the file stays";
            return Err(ChangeErrorKind::Invalid.of(error.with_hint(hint)));
        }
        if is_used {
            let session = text::name(session.as_os_str().as_encoded_bytes());
            let error = CliError::new(format!("{session}: in use; nothing is changed"));
            let hint = "wait until the command or server that uses it has ended";
            return Err(ChangeErrorKind::InUse.of(error.with_hint(hint)));
        }
    }
    Ok(())
}

/// Deletes closed sessions, and forgets the export.
fn delete(sessions: &[PathBuf], files: &AddedFiles, name: &str) -> Result<()> {
    for session in sessions {
        remove_session(session).map_err(|error| {
            let error = CliError::from(error).after("the export is removed");
            let hint = "repeat `exports rm --delete` to remove the sessions that are left";
            ChangeErrorKind::InUse.of(error.with_hint(hint))
        })?;
    }
    files.forget(name).map_err(|error| {
        ChangeErrorKind::Storage.caused("the export is removed, but its old text is not", &error)
    })
}
