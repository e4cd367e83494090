//! Removes an export of `exports.d`, and its sessions if that is wanted.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::change::{
    ChangeErrorKind, Result, ServerLink, check_name, find, lock, read, refused, reload, write,
};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{self, AddedChange, AddedFiles, Config, Missing, added_dir, real_path};
use crate::control::{ControlError, ExportsAnswer, ExportsRequest, SessionUseText};
use crate::delta::sqlite::{is_in_use, remove_session};

/// How a SQLite database begins (SQLite's file format, 1.3.1).
const SQLITE_HEADER: &[u8] = b"SQLite format 3\0";

/// An export that was removed.
#[derive(Debug)]
pub(in crate::cli) struct RemovedExport {
    /// The sessions that were removed.
    pub(in crate::cli) sessions: Vec<PathBuf>,
    /// Whether a server took the change.
    pub(in crate::cli) is_served: bool,
}

/// Removes the export `name`; with `deletes`, its sessions too.
pub(in crate::cli) fn remove(
    file: &Path,
    name: &str,
    deletes: bool,
    server: &mut dyn ServerLink,
) -> Result<RemovedExport> {
    check_name(name)?;
    let files = lock(file)?;
    let text = read(file, name, files.read(name))?;
    let is_there = text.is_some();
    let text = match text {
        Some(text) => text,
        // An earlier removal ended before its sessions were removed.
        None if deletes => {
            let removed = read(file, name, files.read_removed(name))?;
            removed.ok_or_else(|| missing(file, name))?
        }
        None => return Err(missing(file, name)),
    };
    let change = AddedChange::Remove { name };
    let rest = config::read_changed(file, &change);
    let rest = rest.map_err(|error| ChangeErrorKind::Invalid.of(error))?;
    let sessions = match deletes {
        true => {
            refuse_beside_others(file)?;
            own_sessions(file, (name, &text), &rest)?
        }
        false => Vec::new(),
    };
    refuse_used(&sessions, server)?;
    if is_there {
        write(file, files.remove(name))?;
    }
    let take_back = || match is_there {
        true => files.put(name, &text).and_then(|()| files.forget(name)),
        false => Ok(()),
    };
    let is_served = match reload(server) {
        Ok(reloaded) => reloaded.is_some(),
        Err(error) => return Err(refused(file, error, take_back)),
    };
    delete(&sessions, &files, name)?;
    Ok(RemovedExport { sessions, is_served })
}

/// The error of an export that no file of `exports.d` has.
fn missing(file: &Path, name: &str) -> super::change::ChangeError {
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

/// The real paths of an export's sessions that exist.
///
/// # Errors
/// Another export or a template may have one of them.
fn own_sessions(file: &Path, (name, text): (&str, &str), rest: &Config) -> Result<Vec<PathBuf>> {
    let whole = config::read_changed(file, &AddedChange::Put { name, text });
    let whole = whole.map_err(|error| ChangeErrorKind::Invalid.of(error))?;
    let export = find(&whole, name);
    let mounts = export.iter().flat_map(|export| &export.mounts);
    let own: BTreeSet<PathBuf> =
        mounts.filter_map(|mount| mount.session()).map(|session| real_path(session)).collect();
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
    let sessions: Vec<_> = there.collect();
    // A name that is wrong may be that of any file.
    if let Some(other) = sessions.iter().find(|session| !may_be_session(session)) {
        let other = text::name(other.as_os_str().as_encoded_bytes()).to_string();
        let error = CliError::new(format!("{other}: no session; nothing is changed"));
        let hint = "leave --delete out, and the file stays";
        return Err(ChangeErrorKind::Invalid.of(error.with_hint(hint)));
    }
    Ok(sessions)
}

/// Whether a file begins as a SQLite database, or is empty.
fn may_be_session(file: &Path) -> bool {
    let mut begin = Vec::new();
    let opened = std::fs::File::open(file).map(|file| file.take(SQLITE_HEADER.len() as u64));
    let is_read = opened.and_then(|mut file| file.read_to_end(&mut begin)).is_ok();
    is_read && (begin.is_empty() || begin == SQLITE_HEADER)
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

fn shared_error(session: &Path, other: &str) -> super::change::ChangeError {
    let session = text::name(session.as_os_str().as_encoded_bytes());
    let what =
        format!("{session}: not deleted, as {} may use it too", text::line(other.as_bytes()));
    let hint = "leave --delete out, and the session stays";
    ChangeErrorKind::InUse.of(CliError::new(what).with_hint(hint))
}

/// Refuses sessions that a command uses.
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
        let is_used = match uses.get(index) {
            Some(SessionUseText::InUse) => true,
            Some(SessionUseText::Open) => false,
            Some(SessionUseText::Closed) | None => is_in_use(session),
        };
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
