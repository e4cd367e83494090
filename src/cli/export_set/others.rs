//! What other exports have of the sessions that are to be deleted: those of the exports file, and
//! those of the other exports files of its directory, which have the same `exports.d`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{ChangeErrorKind, Result};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{Config, KnownPaths, NamedSessions, SoughtPaths, named_sessions};
use crate::control::control_socket;
use crate::system_error::words;

/// What keeps the sessions of an export that cannot be deleted.
const LEAVE_OUT: &str = "leave --delete out, and the session stays";

/// Another exports file of the directory.
#[derive(Debug)]
pub(super) struct OtherExportsFile {
    path: PathBuf,
    named: NamedSessions,
}

impl OtherExportsFile {
    /// Adds the paths that it names.
    pub(super) fn add_to(&self, paths: &mut SoughtPaths) {
        paths.files.extend(self.named.files.iter().map(|(file, _)| file.clone()));
        paths.dirs.extend(self.named.dirs.iter().map(|(dir, _)| dir.clone()));
    }
}

/// The other exports files of the directory of `file`, also those that are at fault or links. Not
/// the file that an export was added from: it has the `text` of the export, and no server has it.
/// Links whose targets are not `known` are added to `paths`, and are left out.
///
/// # Errors
/// It is not known which sessions a file names.
pub(super) fn other_files(
    file: &Path,
    text: Option<&str>,
    known: &KnownPaths,
    paths: &mut SoughtPaths,
) -> Result<Vec<OtherExportsFile>> {
    let of_file = |error: io::Error| storage_error(file, &error);
    let absolute = std::path::absolute(file).map_err(of_file)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| storage_error(folder, &error);
    let mut others = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_toml = Path::new(&name).extension().is_some_and(|it| it == "toml");
        if !is_toml || Some(&*name) == file.file_name() {
            continue;
        }
        // As the exports file is named, for messages.
        let path = file.with_file_name(&name);
        let way = folder.join(&name);
        let mut read_as = way.clone();
        if entry.file_type().map_err(failed)?.is_symlink() {
            let target = folder.join(fs::read_link(&way).map_err(failed)?);
            if let Some(dir) = known.hanging_dir(&target) {
                return Err(unknown(&path, &format!("{} does not answer", dir.display())));
            }
            if !known.has(&target) {
                paths.files.insert(target);
                continue;
            }
            read_as = known.of(&target);
        }
        let found = match fs::metadata(&read_as) {
            Ok(found) if found.is_file() => found,
            Err(error) if !is_missing(&error) => return Err(unknown(&path, &words(&error))),
            // Also what was removed since.
            Ok(_) | Err(_) => continue,
        };
        let is_served = [&way, &read_as].iter().any(|it| control_socket(it).exists());
        let is_source = |text: &str| {
            !is_served
                && found.len() == text.len() as u64
                && fs::read(&read_as).is_ok_and(|its| its == text.as_bytes())
        };
        if text.is_some_and(is_source) {
            continue;
        }
        // A server may have it by either path.
        let mut ways = vec![&*way, &*read_as];
        ways.dedup_by(|one, other| one.parent() == other.parent());
        let named = named_sessions(&read_as, &ways).map_err(|error| unknown(&path, error.what()));
        others.extend(named?.map(|named| OtherExportsFile { path, named }));
    }
    Ok(others)
}

/// Whether there is no file, or it is a link to none.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn storage_error(path: &Path, error: &io::Error) -> super::ChangeError {
    ChangeErrorKind::Storage.caused(text::name(path.as_os_str().as_encoded_bytes()), error)
}

/// The error of a file whose sessions are not known.
fn unknown(file: &Path, why: &str) -> super::ChangeError {
    let file = text::name(file.as_os_str().as_encoded_bytes());
    let why = text::line(why.as_bytes());
    let what =
        format!("{file}: {why}; nothing is changed, as it is not known which sessions it has");
    let hint = "mend that file or move it away; or leave --delete out, and the sessions stay";
    ChangeErrorKind::InUse.of(CliError::new(what).with_hint(hint))
}

/// Sessions that are to be deleted.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnSessions<'a> {
    /// Their real paths.
    pub(super) real: &'a BTreeSet<PathBuf>,
    /// Where paths lead.
    pub(super) known: &'a KnownPaths,
}

impl OwnSessions<'_> {
    /// Refuses to delete sessions that another export or a template of the exports file may have.
    pub(super) fn refuse_shared(self, config: &Config) -> Result<()> {
        for other in &config.exports {
            for session in other.mounts.iter().filter_map(|mount| mount.session()) {
                self.refuse_file(session, || format!("the export {}", other.name))?;
            }
        }
        for template in &config.templates {
            for dir in template.session_dirs() {
                self.refuse_dir(&dir, || format!("the template {template}"))?;
            }
        }
        Ok(())
    }

    /// Refuses to delete sessions that another exports file may have.
    pub(super) fn refuse_shared_with(self, other: &OtherExportsFile) -> Result<()> {
        let file = text::name(other.path.as_os_str().as_encoded_bytes());
        for (session, name) in &other.named.files {
            let name = name.strip_prefix('/').filter(|it| !it.is_empty()).unwrap_or(name);
            self.refuse_file(session, || format!("the export {name} of {file}"))?;
        }
        for (dir, name) in &other.named.dirs {
            self.refuse_dir(dir, || format!("the template {name} of {file}"))?;
        }
        Ok(())
    }

    /// Refuses a session that another one has.
    fn refuse_file(self, session: &Path, other: impl Fn() -> String) -> Result<()> {
        // Where a link in a directory that hangs leads is not known.
        let hanging = self.known.hanging_dir(session);
        let is_it = |own: &&PathBuf| match hanging {
            Some(_) => session.file_name() == own.file_name(),
            None => self.known.of(session) == **own,
        };
        match self.real.iter().find(is_it) {
            Some(own) => Err(shared_error(own, &other(), hanging)),
            None => Ok(()),
        }
    }

    /// Refuses sessions in a directory of a template.
    fn refuse_dir(self, dir: &Path, other: impl Fn() -> String) -> Result<()> {
        let real = self.known.of(dir);
        match self.real.iter().find(|own| own.starts_with(&real)) {
            Some(own) => Err(shared_error(own, &other(), self.known.hanging_dir(dir))),
            None => Ok(()),
        }
    }
}

/// The error of a session that another export may have, in a directory that hangs if it is one.
fn shared_error(session: &Path, other: &str, hanging: Option<&Path>) -> super::ChangeError {
    let session = text::name(session.as_os_str().as_encoded_bytes());
    let other = text::line(other.as_bytes());
    let (what, hint) = match hanging {
        None => {
            (format!("{session}: not deleted, as {other} may use it too"), LEAVE_OUT.to_owned())
        }
        Some(dir) => {
            let dir = text::name(dir.as_os_str().as_encoded_bytes());
            let what = format!(
                "{session}: not deleted, as {dir} does not answer: whether {other} uses it there \
                 is not known"
            );
            let hint = "its filesystem hangs: try again when `ls` of the directory works";
            (what, format!("{hint}; or {LEAVE_OUT}"))
        }
    };
    ChangeErrorKind::InUse.of(CliError::new(what).with_hint(hint))
}
