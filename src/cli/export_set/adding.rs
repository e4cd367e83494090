//! Adds an export: a file of `exports.d`, which the server then reads.
//!
//! What may wait for a filesystem is done before the lock of all changes is taken: a base or a
//! directory of sessions that hangs delays no other change.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{
    ChangeErrorKind, MAX_ATTEMPTS, Result, ServerLink, busy_error, check_name, export_error, find,
    hanging_error, lock, refused, reload, write_error,
};
use crate::cli::config::host_check::{ConfigFinding, look_at};
use crate::cli::error::CliError;
use crate::cli::text;
use crate::config::{
    self, AddedChange, AddedFiles, Config, ConfigError, ExportConfig, KnownPaths, Missing,
    Position, SoughtPaths, added_file,
};
use crate::inspect::opened::open_session;
use crate::workspace::exports::base_probes::BaseProbes;

/// An export that is to be added.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct ExportAddition<'a> {
    /// Its name, unchecked.
    pub(in crate::cli) name: &'a str,
    /// The text of its file.
    pub(in crate::cli) text: &'a str,
    /// Whether it may take the place of the export in `exports.d` that has its name.
    pub(in crate::cli) replaces: bool,
    /// Where the text is from.
    pub(in crate::cli) origin: AdditionOrigin<'a>,
}

/// Where the text of a new export is from: faults are shown there, as its file is not written yet.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum AdditionOrigin<'a> {
    /// The options of a command.
    Options,
    /// A file.
    File(&'a Path),
    /// Standard input, or a request.
    Text,
}

/// What was found of an addition that fits on this machine.
#[derive(Debug)]
pub(in crate::cli) struct CheckedAddition {
    warnings: Vec<String>,
    /// Its sessions.
    sessions: SoughtPaths,
    /// The real paths of all sessions, which were looked up without the lock of changes.
    known: KnownPaths,
    probes: BaseProbes,
}

/// A change that was made.
#[derive(Debug)]
pub(in crate::cli) struct AddedExport {
    /// What was found that does not prevent serving.
    pub(in crate::cli) warnings: Vec<String>,
    /// What clients mount; `None` if its token does not exist yet.
    pub(in crate::cli) path: Option<String>,
    /// Whether an export of this name was replaced.
    pub(in crate::cli) is_replaced: bool,
    /// Whether a server took the change.
    pub(in crate::cli) is_served: bool,
}

impl AddedExport {
    /// The change as JSON.
    pub(in crate::cli) fn json(&self, name: &str) -> Map<String, Value> {
        let Self { path, is_replaced, is_served, warnings: _ } = self;
        let mut object = text::json("export_added");
        object.insert("name".to_owned(), name.into());
        object.insert("path".to_owned(), path.as_deref().into());
        object.insert("is_replaced".to_owned(), (*is_replaced).into());
        object.insert("is_served".to_owned(), (*is_served).into());
        object
    }
}

impl ExportAddition<'_> {
    /// A fault at a position of the text.
    fn fault(&self, position: Option<Position>, what: &str) -> CliError {
        CliError::new(match (self.origin, position) {
            (AdditionOrigin::Options, _) | (AdditionOrigin::Text, None) => {
                format!("in the new export: {what}")
            }
            (AdditionOrigin::Text, Some(Position { line, column })) => {
                format!("in the new export, line {line}, column {column}: {what}")
            }
            (AdditionOrigin::File(file), position) => {
                let file = text::name(file.as_os_str().as_encoded_bytes());
                match position {
                    Some(position) => format!("{file}:{position}: {what}"),
                    None => format!("{file}: {what}"),
                }
            }
        })
    }

    /// A fault that was found in the whole configuration of the exports file `file`.
    fn config_error(&self, file: &Path, error: ConfigError) -> super::ChangeError {
        if error.file() != added_file(file, self.name) {
            return ChangeErrorKind::Invalid.of(error);
        }
        let fault = self.fault(error.position(), error.what());
        ChangeErrorKind::Invalid.of(match error.hint() {
            Some(hint) => fault.with_hint(hint),
            None => fault,
        })
    }

    fn finding(&self, finding: &ConfigFinding) -> CliError {
        self.fault(Some(finding.position), &finding.what)
    }

    /// The whole configuration with the export, and its paths; `find` looks these up.
    fn read_config(
        &self,
        file: &Path,
        find: impl FnOnce(&SoughtPaths) -> KnownPaths,
    ) -> Result<(Config, SoughtPaths)> {
        let change = AddedChange::Put { name: self.name, text: self.text };
        let mut paths = SoughtPaths::default();
        let found = |sought: &SoughtPaths| {
            paths = sought.clone();
            find(sought)
        };
        let config = config::read_known(file, Missing::Leave, Some(&change), found)
            .map_err(|error| self.config_error(file, error))?;
        Ok((config, paths))
    }
}

/// Checks an addition to the exports file `file`, and whether it fits on this machine. Changes
/// nothing, and takes no lock.
pub(in crate::cli) fn check(
    file: &Path,
    addition: ExportAddition<'_>,
    probes: &BaseProbes,
) -> Result<CheckedAddition> {
    check_name(addition.name)?;
    let export = config::read_added_text(file, addition.name, addition.text);
    let export = export.map_err(|error| addition.config_error(file, error))?;
    if let Some(dir) = hanging_session(&export, probes) {
        return Err(hanging_error("directory of sessions", &dir));
    }
    if let Some(base) = probes.hanging(&bases_of(&export)).first() {
        return Err(hanging_error("base", base));
    }
    let mut known = KnownPaths::default();
    let (config, paths) = addition.read_config(file, |paths| {
        known = probes.real_paths(paths);
        known.clone()
    })?;
    let sessions = sessions_of(&export);
    refuse_hanging(&sessions, &paths, &known)?;
    let found = find(&config, addition.name).map(look_at).unwrap_or_default();
    let (warnings, faults): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_warning);
    if let Some(fault) = faults.first() {
        return Err(ChangeErrorKind::Invalid.of(addition.finding(fault)));
    }
    let warnings = warnings.iter().map(|it| addition.finding(it).to_string()).collect();
    Ok(CheckedAddition { warnings, sessions, known, probes: probes.clone() })
}

/// The directory of a session of an export that does not answer.
fn hanging_session(export: &ExportConfig, probes: &BaseProbes) -> Option<PathBuf> {
    probes.real_paths(&sessions_of(export)).hanging().first().cloned()
}

fn sessions_of(export: &ExportConfig) -> SoughtPaths {
    let files = export.mounts.iter().filter_map(|mount| mount.session()).cloned().collect();
    SoughtPaths { files, dirs: BTreeSet::new() }
}

/// Refuses an export whose sessions are in a directory that does not answer, or may be those of
/// another export there: links between them are not seen, so the next start could refuse both.
fn refuse_hanging(own: &SoughtPaths, all: &SoughtPaths, known: &KnownPaths) -> Result<()> {
    let names: BTreeSet<_> =
        own.files.iter().flat_map(|file| [name_of(file), name_of(&known.of(file))]).collect();
    let may_be_own = |file: &&PathBuf| own.files.contains(*file) || names.contains(&name_of(file));
    let mut files = all.files.iter().filter(may_be_own);
    match files.find_map(|file| known.hanging_dir(file)) {
        Some(dir) => Err(hanging_error("directory of sessions", dir)),
        None => Ok(()),
    }
}

fn name_of(file: &Path) -> Option<OsString> {
    file.file_name().map(OsStr::to_owned)
}

/// The bases of an export: those that it names, and those that its sessions record. Opens these.
fn bases_of(export: &ExportConfig) -> BTreeSet<PathBuf> {
    let bases = export.mounts.iter().filter_map(|mount| match (&mount.base, mount.session()) {
        (Some(base), _) => Some(base.clone()),
        (None, Some(session)) if session.symlink_metadata().is_ok() => {
            open_session(session).ok()?.base_path().map(Path::to_owned)
        }
        (None, _) => None,
    });
    bases.collect()
}

/// Adds an export to the exports file `file`, for which it was checked.
pub(in crate::cli) fn add(
    file: &Path,
    addition: ExportAddition<'_>,
    mut checked: CheckedAddition,
    server: &mut dyn ServerLink,
) -> Result<AddedExport> {
    let ExportAddition { name, replaces, .. } = addition;
    for _ in 0..MAX_ATTEMPTS {
        let files = lock(file)?;
        let before = files.read(name).map_err(|error| export_error(file, name, &error))?;
        if before.is_some() && !replaces {
            let what = format!("there is an export {name} in exports.d");
            let hint = "remove it first, or replace it with --replace";
            return Err(ChangeErrorKind::Exists.of(CliError::new(what).with_hint(hint)));
        }
        // Others may have changed since it was checked.
        let known = &checked.known;
        let (_, paths) = addition.read_config(file, |_| known.clone())?;
        refuse_hanging(&checked.sessions, &paths, known)?;
        let unknown = paths.without(known);
        if unknown.is_empty() {
            return put(file, files, addition, (checked, before), server);
        }
        // Without the lock.
        drop(files);
        checked.known.extend(checked.probes.real_paths(&unknown));
    }
    Err(busy_error())
}

/// Writes the file of an export that was `checked`, and had the text `before`; and has the server
/// read it.
fn put(
    file: &Path,
    files: AddedFiles,
    ExportAddition { name, text, .. }: ExportAddition<'_>,
    (checked, before): (CheckedAddition, Option<String>),
    server: &mut dyn ServerLink,
) -> Result<AddedExport> {
    let CheckedAddition { mut warnings, probes, .. } = checked;
    files.put(name, text).map_err(|error| write_error(file, &error))?;
    let take_back = || match &before {
        Some(before) => files.put(name, before),
        None => files.remove(name).and_then(|()| files.forget(name)),
    };
    let is_served = match reload(server, Some(name)) {
        Ok(is_served) => is_served,
        Err(error) => return Err(refused(file, error, take_back)),
    };
    let removed = files.read_removed(name);
    let _forgotten = files.forget(name);
    // The sessions may be in a directory that hangs.
    drop(files);
    if let Ok(Some(removed)) = removed {
        warnings.extend(left_sessions(file, name, &removed, &probes));
    }
    let (path, is_replaced) = (path_of(file, name), before.is_some());
    Ok(AddedExport { warnings, path, is_replaced, is_served })
}

/// The sessions that an interrupted deletion of the export `name` left, whose file had this text.
fn left_sessions(file: &Path, name: &str, removed: &str, probes: &BaseProbes) -> Vec<String> {
    let Ok(export) = config::read_added_text(file, name, removed) else { return Vec::new() };
    let sessions = sessions_of(&export);
    let known = probes.real_paths(&sessions);
    let is_left = |session: &&PathBuf| {
        known.hanging_dir(session).is_some() || session.symlink_metadata().is_ok()
    };
    let words = sessions.files.iter().filter(is_left).map(|session| {
        let session = text::name(session.as_os_str().as_encoded_bytes());
        format!("{session} stays: an earlier `exports rm --delete` of {name} was interrupted")
    });
    words.collect()
}

/// The path of an export, with its token if that exists.
fn path_of(file: &Path, name: &str) -> Option<String> {
    let none_known = |_: &SoughtPaths| KnownPaths::default();
    let config = config::read_known(file, Missing::Leave, None, none_known).ok()?;
    find(&config, name)?.path.as_ref().map(ToString::to_string)
}
