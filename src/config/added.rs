//! `exports.d`: a directory beside the exports file, with one export in each file.
//!
//! A file `NAME.toml` has one `[[export]]`, as the exports file would have it: relative paths begin
//! at the exports file's directory too. Its name is NAME.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Position, Result};
use super::limits::{MAX_ADDED_BYTES, MAX_EXPORTS, MAX_NAME_BYTES};
use super::model::ExportConfig;
use super::parameters::fixed_dir;
use super::template::TemplateConfig;
use super::written::SourceText;
use super::{exports, read_text};

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
}

/// The directory `exports.d` of the exports file `file`.
pub fn added_dir(file: &Path) -> PathBuf {
    file.with_file_name(DIR)
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

/// The exports of `exports.d` beside the exports file `main`, by name, after `change`; `None` if
/// there is no such directory.
pub(super) fn read(
    main: &SourceText<'_>,
    change: Option<&AddedChange<'_>>,
) -> Result<Option<Vec<ExportConfig>>> {
    let found = names(main.file)?;
    if found.is_none() && change.is_none() {
        return Ok(None);
    }
    let mut names = found.unwrap_or_default();
    if let Some(change) = change {
        names.remove(change.name());
        if let AddedChange::Put { name, .. } = change {
            names.insert((*name).to_owned());
        }
    }
    let text = |name: &str, path: &Path| match change {
        Some(AddedChange::Put { name: new, text }) if *new == name => Ok((*text).to_owned()),
        _ => read_regular(path),
    };
    let exports = names.iter().map(|name| {
        let path = added_file(main.file, name);
        let checked = check_added_name(name);
        checked.map_err(|what| ConfigError::of_file(&path, what))?;
        let text = text(name, &path)?;
        check_text(&path, main.folder.clone(), name, &text)
    });
    exports.collect::<Result<Vec<_>>>().map(Some)
}

/// The names of the files, without their suffix; `None` if there is no directory. Other files and
/// those whose names begin with a dot are not read.
fn names(file: &Path) -> Result<Option<BTreeSet<String>>> {
    let dir = added_dir(file);
    let failed = |error: &std::io::Error| ConfigError::of_file(&dir, words(error));
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|error| failed(&error))?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let name = name.to_string_lossy();
        if let Some(name) = name.strip_suffix(SUFFIX).filter(|_| !name.starts_with('.')) {
            names.insert(name.to_owned());
        }
        if names.len() > MAX_EXPORTS {
            return Err(ConfigError::of_file(&dir, format!("at most {MAX_EXPORTS} exports")));
        }
    }
    Ok(Some(names))
}

/// The text of a file that is no pipe or device, which could block.
fn read_regular(path: &Path) -> Result<String> {
    let found = fs::metadata(path).map_err(|e| ConfigError::of_file(path, words(&e)))?;
    match found.is_file() {
        true => read_text(path, MAX_ADDED_BYTES, &too_long()),
        false => Err(ConfigError::of_file(path, "not a regular file")),
    }
}

fn too_long() -> String {
    format!("a file of exports.d has at most {} KiB", MAX_ADDED_BYTES >> 10)
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
