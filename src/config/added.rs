//! `exports.d`: a directory beside the exports file, with one export in each file.
//!
//! A file `NAME.toml` has one `[[export]]`, as the exports file would have it: relative paths begin
//! at the exports file's directory too. Its name is NAME.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::added_dir::{AddedDir, AddedLinks, too_long};
use super::error::{ConfigError, Position, Result};
use super::exports;
use super::limits::{MAX_ADDED_BYTES, MAX_EXPORTS, MAX_NAME_BYTES};
use super::model::ExportConfig;
use super::parameters::fixed_dir;
use super::template::TemplateConfig;
use super::written::SourceText;

use crate::system_error::words;

/// Name of the directory.
const DIR: &str = "exports.d";

/// Suffix of its files that have an export.
const SUFFIX: &str = ".toml";

/// A change of `exports.d`.
#[derive(Debug, Clone, Copy)]
pub enum AddedChange<'a> {
    /// The file of this export has this text.
    Put {
        /// Name of the export.
        name: &'a str,
        /// TOML.
        text: &'a str,
    },
    /// The export of this name has no file.
    Remove {
        /// Name of the export.
        name: &'a str,
    },
}

impl AddedChange<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Remove { name } => name,
        }
    }

    /// The file that it writes in the `exports.d` of the exports file `main`.
    pub(super) fn new_file(&self, main: &Path) -> Option<PathBuf> {
        match self {
            Self::Put { name, .. } => Some(added_file(main, name)),
            Self::Remove { .. } => None,
        }
    }
}

/// The directory `exports.d` of the exports file `file`.
pub fn added_dir(file: &Path) -> PathBuf {
    file.with_file_name(DIR)
}

/// The name of the export of a file in an `exports.d`; `None` for another file.
pub(super) fn added_name(file: &Path) -> Option<String> {
    let is_added = file.parent().and_then(Path::file_name).is_some_and(|dir| dir == DIR);
    let name = file.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    is_added.then(|| name.to_owned())
}

/// The file in `exports.d` of the export `name`, which [`check_added_name`] accepts.
pub fn added_file(file: &Path, name: &str) -> PathBuf {
    added_dir(file).join(format!("{name}{SUFFIX}"))
}

/// Checks the name of an export for a file in `exports.d`.
///
/// # Errors
/// A description of what a name is.
pub fn check_added_name(name: &str) -> std::result::Result<(), String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_long = name.is_empty() || name.len() > MAX_NAME_BYTES;
    if is_long || name.starts_with('.') || !name.chars().all(is_fit) {
        return Err(format!(
            "a name has 1 to {MAX_NAME_BYTES} ASCII letters, digits, '.', '_' and '-', and does \
             not begin with '.'"
        ));
    }
    if name.ends_with(SUFFIX) {
        return Err(format!("the name of an export is without {SUFFIX}"));
    }
    Ok(())
}

/// What `exports.d` has.
pub(super) struct AddedExports {
    /// The exports that can be read, by name; that of a change is the last one, so that a conflict
    /// with another export is reported as its fault.
    pub(super) exports: Vec<ExportConfig>,
    /// The faults of the other files.
    pub(super) faults: Vec<ConfigError>,
}

/// The exports of `exports.d` beside the exports file `main`, after `change`; `None` if there is no
/// such directory.
///
/// # Errors
/// The directory cannot be read, or the text of `change` has a fault.
pub(super) fn read(
    main: &SourceText<'_>,
    change: Option<&AddedChange<'_>>,
) -> Result<Option<AddedExports>> {
    let path = added_dir(main.file);
    let dir = AddedDir::open(&path).map_err(|error| ConfigError::of_file(&path, words(&error)))?;
    let new = match change {
        None if dir.is_none() => return Ok(None),
        Some(AddedChange::Put { name, text }) => {
            let path = added_file(main.file, name);
            check_added_name(name).map_err(|what| ConfigError::of_file(&path, what))?;
            Some(check_text(&path, main.folder.clone(), name, text)?)
        }
        None | Some(AddedChange::Remove { .. }) => None,
    };
    let mut added = AddedExports { exports: Vec::new(), faults: Vec::new() };
    if let Some(dir) = &dir {
        let mut names = names(&path, dir)?;
        change.map(|change| names.remove(change.name()));
        for name in names {
            match read_one(main, dir, &name) {
                Ok(export) => added.exports.extend(export),
                Err(fault) => added.faults.push(fault),
            }
        }
    }
    added.exports.extend(new);
    Ok(Some(added))
}

/// The export of a file; `None` if it was removed since the directory was listed.
fn read_one(main: &SourceText<'_>, dir: &AddedDir, name: &str) -> Result<Option<ExportConfig>> {
    let path = added_file(main.file, name);
    check_added_name(name).map_err(|what| ConfigError::of_file(&path, what))?;
    let entry = format!("{name}{SUFFIX}");
    let of_file = |error: std::io::Error| ConfigError::of_file(&path, words(&error));
    match dir.read(&entry, AddedLinks::Follow).map_err(of_file)? {
        Some(text) => check_text(&path, main.folder.clone(), name, &text).map(Some),
        None if dir.has(&entry) => {
            Err(ConfigError::of_file(&path, "a link to a file that does not exist"))
        }
        None => Ok(None),
    }
}

/// The export of a text, which a file of the export `name` in the `exports.d` beside `main` had.
/// Other exports are not looked at.
///
/// # Errors
/// The text has a fault.
pub fn read_added_text(main: &Path, name: &str, text: &str) -> Result<ExportConfig> {
    check_text(&added_file(main, name), super::folder_of(main)?, name, text)
}

/// The names of the files, without their suffix. Other files and those whose names begin with a dot
/// are not read.
fn names(path: &Path, dir: &AddedDir) -> Result<BTreeSet<String>> {
    let failed = |error: std::io::Error| ConfigError::of_file(path, words(&error));
    let mut names = BTreeSet::new();
    for name in dir.names().map_err(failed)? {
        let name = name.map_err(failed)?;
        if let Some(name) = name.strip_suffix(SUFFIX).filter(|_| !name.starts_with('.')) {
            names.insert(name.to_owned());
        }
        if names.len() > MAX_EXPORTS {
            return Err(ConfigError::of_file(path, format!("at most {MAX_EXPORTS} exports")));
        }
    }
    Ok(names)
}

fn check_text(path: &Path, folder: PathBuf, name: &str, text: &str) -> Result<ExportConfig> {
    if text.len() as u64 > MAX_ADDED_BYTES {
        return Err(ConfigError::of_file(path, too_long()));
    }
    let source = SourceText::new(path, folder, text);
    let parsed = source.parse()?;
    let server_keys = [
        ("[[template]]", parsed.template.first().map(|it| it.span())),
        ("max_open", parsed.max_open.as_ref().map(|it| it.span())),
        ("idle_close", parsed.idle_close.as_ref().map(|it| it.span())),
        ("ephemeral_expire", parsed.ephemeral_expire.as_ref().map(|it| it.span())),
    ];
    if let Some((key, Some(span))) = server_keys.into_iter().find(|(_, span)| span.is_some()) {
        return Err(source.wrong(&span, format_args!("{key} is for the exports file itself")));
    }
    match &parsed.export[..] {
        [export] => exports::check_one(&source, export, Some(name)),
        [] => Err(ConfigError::of_file(path, "there is no [[export]]")),
        [_, second, ..] => {
            let hint = "give each export a file of its own";
            Err(source.wrong(&second.span(), "there is more than one export").with_hint(hint))
        }
    }
}

/// Rejects bases in the `exports.d` of the exports file `file`, an absolute path: clients must not
/// see it.
pub(super) fn check_bases(
    file: &Path,
    exports: &[ExportConfig],
    templates: &[TemplateConfig],
) -> Result<()> {
    // As it is written: a base that hangs would be waited for. By other ways to it, the directory
    // is hidden.
    let dir = added_dir(file);
    let written = exports.iter().flat_map(|export| with_bases(export, Path::to_owned));
    // Above the first component with a parameter.
    let fixed = |base: &Path| fixed_dir(&base.join("x"));
    let fixed = templates.iter().flat_map(|template| with_bases(&template.export, fixed));
    let mut seen = BTreeSet::new();
    for (export, position, base) in written.chain(fixed) {
        if seen.insert(base.clone()) && base.starts_with(&dir) {
            let what = "the base is in exports.d, which no client may see";
            return Err(ConfigError::of_file(&export.file, what).at(position));
        }
    }
    Ok(())
}

/// The bases of an export, as `of` makes them, with the positions of their mounts.
fn with_bases(
    export: &ExportConfig,
    of: impl Fn(&Path) -> PathBuf,
) -> impl Iterator<Item = (&ExportConfig, Position, PathBuf)> {
    let mounts = export.mounts.iter();
    mounts.filter_map(move |mount| Some((export, mount.position, of(mount.base.as_deref()?))))
}
