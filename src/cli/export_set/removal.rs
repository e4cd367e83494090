//! Removes an export of `exports.d`, and its sessions if that is wanted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::others::{OwnSessions, other_files};
use super::{
    ChangeErrorKind, MAX_ATTEMPTS, Result, ServerLink, busy_error, check_name, dir_error,
    export_error, find, hanging_error, lock_existing, refused, reload, write_error,
};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{
    self, AddedChange, AddedFiles, Config, ConfigError, KnownPaths, Missing, SoughtPaths, added_dir,
};
use crate::control::{ControlError, ExportsAnswer, ExportsRequest, SessionUse};
use crate::delta::sqlite::{is_in_use, is_session, remove_session};
use crate::workspace::exports::base_probes::BaseProbes;

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
/// One whose file is broken can be removed while others are broken too. With the lock of changes,
/// only the filesystem of the exports file is waited for, and that of the sessions that are
/// deleted: it has answered just before.
pub(in crate::cli) fn remove(
    file: &Path,
    ExportRemoval { name, deletes }: ExportRemoval<'_>,
    probes: &BaseProbes,
    server: &mut dyn ServerLink,
) -> Result<RemovedExport> {
    if !is_file_name(name) {
        check_name(name)?;
    }
    let mut known = probes.real_paths(&first_paths(file, deletes));
    for _ in 0..MAX_ATTEMPTS {
        let Some(files) = lock_existing(file)? else {
            check_name(name)?;
            return Err(missing(file, name));
        };
        let begun = begin(file, &files, ExportRemoval { name, deletes }, &known)?;
        if begun.unknown.is_empty() {
            return finish(file, &files, name, begun, server);
        }
        drop(files);
        known.extend(probes.real_paths(&begun.unknown));
    }
    Err(busy_error())
}

/// The paths that a removal has to know, as far as they are known without the lock of changes: it
/// reads all exports once more with the lock, and not twice.
fn first_paths(file: &Path, deletes: bool) -> SoughtPaths {
    let (none, mut paths) = (KnownPaths::default(), SoughtPaths::default());
    // What is at fault is found with the lock.
    let _read = read_known(file, None, &none, &mut paths);
    if deletes {
        let others = other_files(file, None, &none, &mut paths).unwrap_or_default();
        others.iter().for_each(|other| other.add_to(&mut paths));
    }
    paths
}

/// A removal that was checked.
struct BegunRemoval {
    /// Paths that have to be looked up first, without the lock of changes.
    unknown: SoughtPaths,
    /// Whether its file is there still.
    is_there: bool,
    /// The sessions that are to be deleted.
    sessions: Vec<PathBuf>,
    /// Why other files are at fault.
    broken: Option<ConfigError>,
}

fn begin(
    file: &Path,
    files: &AddedFiles,
    ExportRemoval { name, deletes }: ExportRemoval<'_>,
    known: &KnownPaths,
) -> Result<BegunRemoval> {
    let is_there = files.has(name).map_err(|error| dir_error(file, &error))?;
    if !is_there {
        check_name(name)?;
    }
    let text = match (is_there, deletes) {
        (true, true) => files.read(name),
        // An earlier removal ended before its sessions were removed.
        (false, true) => files.read_removed(name),
        (_, false) => Ok(None),
    };
    let text = text.map_err(|error| export_error(file, name, &error))?;
    if !is_there && text.is_none() {
        return Err(missing(file, name));
    }
    let mut begun = BegunRemoval {
        unknown: SoughtPaths::default(),
        is_there,
        sessions: Vec::new(),
        broken: None,
    };
    let mut paths = SoughtPaths::default();
    let rest = read_known(file, Some(&AddedChange::Remove { name }), known, &mut paths);
    match (text, rest) {
        (Some(text), rest) => {
            let removed = RemovedText { name, text: &text };
            begun.sessions = own_sessions(file, &removed, rest, known, &mut paths)?;
        }
        (None, Ok(_)) => {}
        (None, Err(error)) if is_broken(file, name) => begun.broken = Some(error),
        (None, Err(error)) => return Err(ChangeErrorKind::Invalid.of(error)),
    }
    begun.unknown = paths.without(known);
    Ok(begun)
}

fn finish(
    file: &Path,
    files: &AddedFiles,
    name: &str,
    BegunRemoval { is_there, mut sessions, broken, .. }: BegunRemoval,
    server: &mut dyn ServerLink,
) -> Result<RemovedExport> {
    sessions.retain(|session| session.symlink_metadata().is_ok());
    refuse_used(&sessions, server)?;
    if is_there {
        files.remove(name).map_err(|error| write_error(file, &error))?;
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
    delete(&sessions, files, name)?;
    Ok(RemovedExport { sessions, applied })
}

/// Reads an exports file with the paths that are known; adds all that it has to `paths`.
fn read_known(
    file: &Path,
    change: Option<&AddedChange<'_>>,
    known: &KnownPaths,
    paths: &mut SoughtPaths,
) -> config::Result<Config> {
    config::read_known(file, Missing::Leave, change, |of_file| {
        paths.extend(of_file);
        known.clone()
    })
}

/// Reads the exports file without its sessions.
fn read_alone(file: &Path) -> config::Result<Config> {
    read_known(file, None, &KnownPaths::default(), &mut SoughtPaths::default())
}

/// Whether a name may be that of a file that an administrator wrote.
fn is_file_name(name: &str) -> bool {
    let is_short = !name.is_empty() && name.len() <= MAX_REMOVED_NAME_BYTES;
    is_short && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Whether the file of an export is at fault.
fn is_broken(file: &Path, name: &str) -> bool {
    let fault = read_alone(file).err();
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
    let config = read_alone(file).ok();
    let is_written = config.is_some_and(|config| find(&config, name).is_some());
    ChangeErrorKind::Missing.of(match is_written {
        true => {
            let file = text::name(file.as_os_str().as_encoded_bytes());
            error.with_hint(format!("{file} has it: remove it there, and send the server SIGHUP"))
        }
        false => error.with_hint("`acetate exports ls` shows all exports"),
    })
}

/// The real paths of an export's sessions that it may change; `rest` are the other exports. Adds
/// the paths that have to be known to `paths`.
///
/// # Errors
/// Another export or a template may have one of them, of this exports file or of another one in its
/// directory; or their directory hangs.
fn own_sessions(
    file: &Path,
    removed: &RemovedText<'_>,
    rest: config::Result<Config>,
    known: &KnownPaths,
    paths: &mut SoughtPaths,
) -> Result<Vec<PathBuf>> {
    // Alone: another export may have its path since.
    let export = config::read_added_text(file, removed.name, removed.text).map_err(|error| {
        let hint = "leave --delete out: the sessions of a broken file are not known";
        ChangeErrorKind::Invalid.of(CliError::new(error).with_hint(hint))
    })?;
    let rest = rest.map_err(|error| ChangeErrorKind::Invalid.of(error))?;
    // What it could only read is not its own.
    let changed = export.mounts.iter().filter(|mount| !mount.is_read_only);
    if let Some(url) = changed.clone().find_map(|mount| mount.url()) {
        let error = CliError::new(format!("{url}: a session in a database; nothing is changed"));
        let hint = "leave --delete out: the session stays in the database";
        return Err(ChangeErrorKind::Invalid.of(error.with_hint(hint)));
    }
    let sessions: BTreeSet<&PathBuf> = changed.filter_map(|mount| mount.session()).collect();
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let others = other_files(file, Some(removed.text), known, paths)?;
    others.iter().for_each(|other| other.add_to(paths));
    paths.files.extend(sessions.iter().copied().cloned());
    if !paths.clone().without(known).is_empty() {
        // They are looked up first.
        return Ok(Vec::new());
    }
    if let Some(dir) = sessions.iter().find_map(|session| known.hanging_dir(session)) {
        return Err(hanging_error("directory of sessions", dir));
    }
    let real = sessions.into_iter().map(|session| known.of(session)).collect();
    let own = OwnSessions { real: &real, known };
    own.refuse_shared(&rest)?;
    others.iter().try_for_each(|other| own.refuse_shared_with(other))?;
    Ok(real.into_iter().collect())
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
            return Err(ChangeErrorKind::NoAnswer.of(error));
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
