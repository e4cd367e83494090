//! `[[export]]`: checks the values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use toml::{Spanned, Value};

use super::clients::{self, ClientNetworks};
use super::error::{ConfigError, FilePosition, Result};
use super::limits::{MAX_EXPORTS, MAX_HIDES, MAX_NAME_BYTES};
use super::model::ExportConfig;
use super::options::{self, SquashMode};
use super::path::TreePath;
use super::real_paths::RealPaths;
use super::tokens::Tokens;
use super::written::{ExportToml, FileToml, SourceText};
use super::{guards, ids, mounts, quota, shared};
use crate::pattern::{Pattern, PatternSet};

/// Checks each export of the exports file. Exports with a token have no path yet.
pub(super) fn check(source: &SourceText<'_>, file: &FileToml) -> Result<Vec<ExportConfig>> {
    source.at_most("exports", &file.export, MAX_EXPORTS)?;
    reject_misplaced_parts(source, file)?;
    file.export.iter().map(|export| check_one(source, export, None)).collect()
}

/// Checks what concerns several exports, of all files.
pub(super) fn check_together(exports: &mut [ExportConfig], real: &mut RealPaths<'_>) -> Result<()> {
    check_names(exports)?;
    shared::unify_shared_settings(exports, real)
}

/// Rejects two exports with one name or path; the second one is at fault.
pub(super) fn check_names(exports: &[ExportConfig]) -> Result<()> {
    unique(exports, "name", |export| Some(export.name.clone()))?;
    unique(exports, "path", |export| Some(export.path.as_ref()?.to_string()))
}

/// Rejects a mount or guard of an export that comes after a template: TOML adds it to the export.
fn reject_misplaced_parts(source: &SourceText<'_>, file: &FileToml) -> Result<()> {
    let begins: Vec<usize> = file.template.iter().map(|template| template.span().start).collect();
    for export in &file.export {
        let written = export.get_ref();
        let mounts = written.mount.iter().map(|mount| (mount.span(), "mount"));
        let guards = written.guard.iter().map(|guard| (guard.span(), "guard"));
        let is_misplaced =
            |part: &usize, begin: &usize| *begin > export.span().start && *part > *begin;
        for (span, part) in mounts.chain(guards) {
            if begins.iter().any(|begin| is_misplaced(&span.start, begin)) {
                let line = source.position(&export.span()).line;
                let what = format!("[[export.{part}]] is a part of the [[export]] in line {line}");
                let hint = format!("the parts of a template are [[template.{part}]]");
                return Err(source.wrong(&span, what).with_hint(hint));
            }
        }
    }
    Ok(())
}

/// Checks an export, which has this name if its file gives it one.
pub(super) fn check_one(
    source: &SourceText<'_>,
    export: &Spanned<ExportToml>,
    name_of_file: Option<&str>,
) -> Result<ExportConfig> {
    let written = export.get_ref();
    reject_template_keys(source, written)?;
    let is_secret = match written.token.as_ref().map(|token| (token.span(), token.get_ref())) {
        None => false,
        Some((_, Value::Boolean(is_secret))) => *is_secret,
        Some((span, _)) => {
            let hint = "\"derived\" is for [[template]]";
            return Err(source.wrong(&span, "token is true or false").with_hint(hint));
        }
    };
    let place = place(source, export, is_secret, name_of_file)?;
    check_rest(source, export, place, is_secret)
}

/// Checks a template as an export with its parameters as they are written; also returns whether its
/// paths end with tokens.
pub(super) fn check_template(
    source: &SourceText<'_>,
    template: &Spanned<ExportToml>,
) -> Result<(ExportConfig, bool)> {
    let written = template.get_ref();
    let has_token = match written.token.as_ref().map(|token| (token.span(), token.get_ref())) {
        None | Some((_, Value::Boolean(false))) => false,
        Some((_, Value::String(text))) if text == "derived" => true,
        Some((span, _)) => {
            let what = "the token of a template is \"derived\": each path has its own";
            return Err(source.wrong(&span, what));
        }
    };
    let Some(path) = &written.path else {
        return Err(source.wrong(&template.span(), "a template needs a path"));
    };
    let path = mounts::tree_path(source, path)?;
    let name = match &written.name {
        Some(name) => check_name(source, name)?,
        None if has_token => {
            let hint = "the key of its tokens is stored under that name";
            let what = "a template with tokens needs a name";
            return Err(source.wrong(&template.span(), what).with_hint(hint));
        }
        None => path.as_str().trim_start_matches('/').to_owned(),
    };
    Ok((check_rest(source, template, (name, Some(path)), has_token)?, has_token))
}

/// Rejects what only a template may have.
fn reject_template_keys(source: &SourceText<'_>, written: &ExportToml) -> Result<()> {
    let shared = written.mount.iter().find_map(|mount| mount.get_ref().shared.as_ref());
    let allow = written.allow.keys().next().map(|it| ("allow", it.span()));
    let create = written.create.as_ref().map(|it| ("create", it.span()));
    let expire = written.expire.as_ref().map(|it| ("expire", it.span()));
    let shared = shared.map(|it| ("shared", it.span()));
    let Some((key, span)) = allow.or(create).or(expire).or(shared) else { return Ok(()) };
    Err(source.wrong(&span, format_args!("`{key}` is for [[template]]")))
}

fn check_rest(
    source: &SourceText<'_>,
    export: &Spanned<ExportToml>,
    (name, path): (String, Option<TreePath>),
    is_secret: bool,
) -> Result<ExportConfig> {
    let written = export.get_ref();
    let options = options::check(source, &written.options)?;
    let is_squashed = options.squash == SquashMode::Root;
    let clients = match &written.clients {
        Some(written) => clients::check(source, written)?,
        None => ClientNetworks::loopback(),
    };
    Ok(ExportConfig {
        name,
        path,
        token: None,
        is_secret,
        options,
        clients,
        uids: ids::check(source, &written.map_uids, is_squashed)?,
        gids: ids::check(source, &written.map_gids, is_squashed)?,
        quota: quota::check(source, written.quota.as_ref())?,
        max_file_bytes: quota::check_bytes(source, written.max_file_bytes.as_ref())?,
        hide: Arc::new(hide(source, &written.hide)?),
        mounts: mounts::check(source, export, options.is_read_only)?,
        guards: guards::check(source, &written.guard)?,
        template: None,
        file: Arc::clone(&source.shared_file),
        position: source.position(&export.span()),
    })
}

/// Name and path of an export; an export with a token gets its path later.
fn place(
    source: &SourceText<'_>,
    export: &Spanned<ExportToml>,
    is_secret: bool,
    name_of_file: Option<&str>,
) -> Result<(String, Option<TreePath>)> {
    let written = export.get_ref();
    let given = written.name.as_ref().map(|name| check_name(source, name)).transpose()?;
    if let (Some(own), Some(given), Some(written)) = (name_of_file, &given, &written.name)
        && own != given
    {
        let what = format!("the file is that of the export {own}");
        let hint = "leave `name` out, or give the file that name";
        return Err(source.wrong(&written.span(), what).with_hint(hint));
    }
    let given = given.or_else(|| name_of_file.map(str::to_owned));
    match &written.path {
        Some(path) if is_secret => {
            let hint = "with a token the path is /NAME-TOKEN: leave `path` out, and give a `name`";
            let what = "an export has a path or a token, not both";
            Err(source.wrong(&path.span(), what).with_hint(hint))
        }
        Some(path) => {
            let path = mounts::tree_path(source, path)?;
            let own = path.as_str().trim_start_matches('/');
            let own = if own.is_empty() { "/" } else { own };
            Ok((given.unwrap_or_else(|| own.to_owned()), Some(path)))
        }
        None if is_secret => match given {
            Some(name) => Ok((name, None)),
            None => {
                let hint = "its token is stored under that name, and its path is /NAME-TOKEN";
                let what = "an export with a token needs a name";
                Err(source.wrong(&export.span(), what).with_hint(hint))
            }
        },
        None => {
            let hint = "add path = \"/NAME\"; or name = \"NAME\" and token = true, for a path that \
                cannot be guessed";
            Err(source.wrong(&export.span(), "this export has no path").with_hint(hint))
        }
    }
}

fn check_name(source: &SourceText<'_>, name: &Spanned<String>) -> Result<String> {
    let text = name.get_ref();
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.chars().all(is_fit) {
        let what =
            format!("a name has 1 to {MAX_NAME_BYTES} ASCII letters, digits, '.', '_' and '-'");
        return Err(source.wrong(&name.span(), what));
    }
    Ok(text.clone())
}

fn hide(source: &SourceText<'_>, patterns: &[Spanned<String>]) -> Result<PatternSet> {
    source.at_most("patterns in `hide`", patterns, MAX_HIDES)?;
    let read = |written: &Spanned<String>| {
        Pattern::new(written.get_ref()).map_err(|error| source.wrong(&written.span(), error))
    };
    let patterns = patterns.iter().map(read).collect::<Result<Vec<_>>>()?;
    PatternSet::new(patterns)
        .map_err(|error| ConfigError::of_file(source.file, format_args!("`hide`: {error}")))
}

/// Rejects two exports with an equal value of `of`.
pub(super) fn unique(
    exports: &[ExportConfig],
    what: &str,
    of: impl Fn(&ExportConfig) -> Option<String>,
) -> Result<()> {
    let mut known = BTreeMap::new();
    for export in exports {
        let Some(value) = of(export) else { continue };
        let at = FilePosition { file: Arc::clone(&export.file), position: export.position };
        if let Some(other) = known.insert(value.clone(), at) {
            let other = other.line_words(&export.file);
            let what = format!("the {what} {value} is that of the export in {other}");
            return Err(ConfigError::of_file(&export.file, what).at(export.position));
        }
    }
    Ok(())
}

/// Rejects a name under which two tokens or keys would be stored.
pub(super) fn check_token_names(file: &Path, names: &[&str]) -> Result<()> {
    let mut known = BTreeSet::new();
    match names.iter().find(|name| !known.insert(**name)) {
        Some(name) => {
            let what = format!("two tokens would be stored under the name {name}");
            Err(ConfigError::of_file(file, what).with_hint("give each another `name`"))
        }
        None => Ok(()),
    }
}

/// Sets the tokens of exports, and the paths that contain them.
pub(super) fn put_tokens(exports: &mut [ExportConfig], tokens: &Tokens) {
    for export in exports.iter_mut().filter(|export| export.is_secret) {
        export.token = tokens.get(&export.name).cloned();
        let path = |secret: &str| TreePath::new(&format!("/{}-{secret}", export.name)).ok();
        export.path = export.token.as_ref().and_then(|token| path(token.secret()));
    }
}
