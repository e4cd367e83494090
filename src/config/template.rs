//! `[[template]]`: exports that are made from the path that a client mounts.
//!
//! A template is an export whose texts have parameters, such as `{chat}`. It is checked like an
//! export, with the parameters as they are written; an instance has their values in place of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::RegexBuilder;
use toml::Spanned;

use super::error::{ConfigError, Position, Result};
use super::limits::{MAX_ALLOW_BYTES, MAX_TEMPLATES};
use super::model::{ExportConfig, StoreConfig};
use super::parameters::{
    AllowedNames, Parameter, Values, fill, fixed_dir, has_parents, may_be_same, names,
    two_in_one_name,
};
use super::path::TreePath;
use super::real_paths::RealPaths;
use super::tokens::{Token, Tokens};
use super::written::{ExportToml, FileToml, SourceText};
use super::{exports, open_bounds, shared};

/// One `[[template]]`.
#[derive(Debug, Clone)]
pub struct TemplateConfig {
    /// The export, with parameters in `path`, in sessions, bases and subtrees.
    pub export: ExportConfig,
    pub(super) components: Vec<TemplatePart>,
    pub(super) parameters: Vec<Parameter>,
    /// Whether a mount creates the sessions that do not exist.
    pub creates: bool,
    /// Time without a use after which an instance is removed; `None` if it stays.
    pub expire: Option<Duration>,
    /// Whether the path ends with a token that is derived from a key.
    pub has_token: bool,
    /// The key of the tokens, once it exists.
    key: Option<Token>,
}

/// A component of a template's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplatePart {
    /// This name.
    Literal(String),
    /// Index of the parameter.
    Parameter(usize),
}

impl TemplateConfig {
    /// The export that a path gets; `None` if the template does not match it. The path is the one
    /// that clients mount, with the token.
    pub fn instance(&self, path: &[u8]) -> Option<ExportConfig> {
        let path = std::str::from_utf8(path).ok()?;
        let (own, given) = match self.has_token {
            true => path.rsplit_once('/').map(|(own, token)| (own, Some(token)))?,
            false => (path, None),
        };
        let values = self.values(own)?;
        if let Some(given) = given
            && !self.key.as_ref()?.derived(own).is_equal(given)
        {
            return None;
        }
        self.with_values(&values, path)
    }

    /// Whether its paths have tokens, and their key does not exist yet.
    pub fn lacks_key(&self) -> bool {
        self.has_token && self.key.is_none()
    }

    /// Whether it matches a path without its token.
    pub fn matches(&self, path: &str) -> bool {
        self.values(path).is_some()
    }

    /// The path that clients mount for a path without its token; `None` if the template does not
    /// match it, or if its key does not exist yet.
    pub fn mounted_path(&self, path: &str) -> Option<String> {
        self.values(path)?;
        match self.has_token {
            true => Some(format!("{path}/{}", self.key.as_ref()?.derived(path).secret())),
            false => Some(path.to_owned()),
        }
    }

    /// The names of the parameters, and the expressions that their values match.
    pub fn allowed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|it| (it.name.as_str(), it.written.as_str()))
    }

    /// The names of the parameters, and which names of a path their values may be.
    pub fn allowed_names(&self) -> impl Iterator<Item = (&str, AllowedNames)> {
        self.parameters.iter().map(|it| (it.name.as_str(), it.allowed_names()))
    }

    /// The directories above the parameters of its bases, with the position of each mount.
    pub fn fixed_base_dirs(&self) -> impl Iterator<Item = (Position, PathBuf)> + '_ {
        let mounts = self.export.mounts.iter();
        mounts.filter_map(|mount| {
            let base = mount.base.as_ref()?;
            let has_none = names(base.to_str()?).is_empty();
            Some((mount.position, if has_none { base.clone() } else { fixed_dir(base) }))
        })
    }

    /// The directories that hold sessions of instances: no base may show them.
    pub fn session_dirs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.export.mounts.iter().filter_map(|mount| mount.session()).map(|file| fixed_dir(file))
    }

    /// The values of the parameters in a path without its token; `None` if it does not match.
    pub(super) fn values<'a>(&self, path: &'a str) -> Option<Values<'a>> {
        let path = TreePath::new(path).is_ok().then_some(path)?;
        let mut given = path.strip_prefix('/')?.split('/');
        let mut values = vec![""; self.parameters.len()];
        for component in &self.components {
            let name = given.next()?;
            match component {
                TemplatePart::Literal(literal) if literal == name => {}
                TemplatePart::Literal(_) => return None,
                TemplatePart::Parameter(index) => {
                    self.parameters[*index].allow.is_match(name).then_some(())?;
                    values[*index] = name;
                }
            }
        }
        given.next().is_none().then_some(values)
    }

    /// The export with these values, which clients mount at `path`.
    fn with_values(&self, values: &Values<'_>, path: &str) -> Option<ExportConfig> {
        let fill = |text: &str| fill(text, &self.parameters, values);
        let fill_path = |path: &Path| Some(PathBuf::from(fill(path.to_str()?)));
        let mut export = self.export.clone();
        let own = if self.has_token { path.rsplit_once('/')?.0 } else { path };
        export.name = own.trim_start_matches('/').to_owned();
        export.path = Some(TreePath::new(path).ok()?);
        export.template = Some(self.to_string());
        for mount in &mut export.mounts {
            if let Some(base) = &mount.base {
                mount.base = Some(fill_path(base)?);
            }
            mount.subtree = TreePath::new(&fill(mount.subtree.as_str())).ok()?;
            if let StoreConfig::Session { file, .. } = &mut mount.store {
                *file = fill_path(file)?;
            }
        }
        Some(export)
    }
}

/// Checks all templates. Those with tokens have no key yet.
pub(super) fn check(source: &SourceText<'_>, file: &FileToml) -> Result<Vec<TemplateConfig>> {
    source.at_most("templates", &file.template, MAX_TEMPLATES)?;
    let checked = file.template.iter().map(|template| check_one(source, template));
    let templates = checked.collect::<Result<Vec<_>>>()?;
    for (index, template) in templates.iter().enumerate() {
        if let Some(other) = templates[..index].iter().find(|other| may_meet(other, template)) {
            let line = other.export.position.line;
            let what = format!("the template in line {line} may match the same path");
            let hint = "give each a fixed name of its own in the path, such as /chat/{chat}";
            let fault = ConfigError::of_file(source.file, what).with_hint(hint);
            return Err(fault.at(template.export.position));
        }
        check_other_sessions(source, template, &templates[..index])?;
    }
    Ok(templates)
}

/// Rejects a session that another template may have too, unless both share it.
fn check_other_sessions(
    source: &SourceText<'_>,
    template: &TemplateConfig,
    others: &[TemplateConfig],
) -> Result<()> {
    let others = others.iter().flat_map(|other| &other.export.mounts);
    for other in others {
        for mount in &template.export.mounts {
            let (Some(file), Some(of_other)) = (mount.session(), other.session()) else { continue };
            if may_be_same(file, of_other) && !(mount.is_shared && other.is_shared) {
                let line = other.position.line;
                let what = format!("the mount in line {line} may have the same session");
                let hint = "give its sessions another directory, or both mounts shared = true";
                let fault = ConfigError::of_file(source.file, what).with_hint(hint);
                return Err(fault.at(mount.position));
            }
        }
    }
    Ok(())
}

/// Whether a path may match both.
fn may_meet(one: &TemplateConfig, other: &TemplateConfig) -> bool {
    let length = |it: &TemplateConfig| it.components.len() + usize::from(it.has_token);
    let fits = |template: &TemplateConfig, index: usize, literal: &str| {
        template.parameters[index].allow.is_match(literal)
    };
    let meets = |(a, b): (&TemplatePart, &TemplatePart)| match (a, b) {
        (TemplatePart::Literal(a), TemplatePart::Literal(b)) => a == b,
        (TemplatePart::Literal(a), TemplatePart::Parameter(b)) => fits(other, *b, a),
        (TemplatePart::Parameter(a), TemplatePart::Literal(b)) => fits(one, *a, b),
        (TemplatePart::Parameter(_), TemplatePart::Parameter(_)) => true,
    };
    // With tokens, and without: the rest of a path with a token is the name of its export.
    let is_as_long = length(one) == length(other) || one.components.len() == other.components.len();
    is_as_long && one.components.iter().zip(&other.components).all(meets)
}

fn check_one(source: &SourceText<'_>, template: &Spanned<ExportToml>) -> Result<TemplateConfig> {
    let written = template.get_ref();
    let wrong = |what: String| source.wrong(&template.span(), what);
    let (mut export, has_token) = exports::check_template(source, template)?;
    shared::unify_shared_settings(std::slice::from_mut(&mut export), &mut RealPaths::as_written())?;
    let path = export.path.clone().ok_or_else(|| wrong("a template needs a path".to_owned()))?;
    let mut parameters = Vec::new();
    let mut components = Vec::new();
    for name in path.as_str().trim_start_matches('/').split('/') {
        components.push(match whole_parameter(name) {
            Some(parameter) => {
                if parameters.iter().any(|known: &Parameter| known.name == parameter) {
                    return Err(wrong(format!("{{{parameter}}} occurs twice in the path")));
                }
                parameters.push(check_allow(source, template, parameter)?);
                TemplatePart::Parameter(parameters.len() - 1)
            }
            None if name.contains(['{', '}']) => {
                let what = format!("'{name}': a parameter is a whole name of the path");
                return Err(wrong(what).with_hint("such as /chat/{user}/{chat}"));
            }
            None => TemplatePart::Literal(name.to_owned()),
        });
    }
    if parameters.is_empty() {
        let hint = "write [[export]] for a single path";
        return Err(wrong("the path has no parameter".to_owned()).with_hint(hint));
    }
    let known = |name: &str| parameters.iter().any(|parameter| parameter.name == name);
    if let Some(other) = written.allow.keys().find(|name| !known(name.get_ref())) {
        let what = format!("the path has no parameter {{{}}}", other.get_ref());
        return Err(source.wrong(&other.span(), what));
    }
    check_mounts(source, &export, &parameters)?;
    let creates = written.create.as_ref().is_none_or(|create| *create.get_ref());
    let expire = open_bounds::check_expire(source, written.expire.as_ref())?;
    Ok(TemplateConfig { export, components, parameters, creates, expire, has_token, key: None })
}

/// The name of the parameter that a component consists of.
fn whole_parameter(component: &str) -> Option<&str> {
    let name = component.strip_prefix('{')?.strip_suffix('}')?;
    let is_fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(is_fit)).then_some(name)
}

/// Checks `allow` of a parameter.
fn check_allow(
    source: &SourceText<'_>,
    template: &Spanned<ExportToml>,
    name: &str,
) -> Result<Parameter> {
    let Some(written) = template.get_ref().allow.iter().find(|(key, _)| key.get_ref() == name)
    else {
        let what = format!("nothing says which values {{{name}}} may have");
        let hint = format!("add allow = {{ {name} = \"[a-z0-9-]{{1,64}}\" }}");
        return Err(source.wrong(&template.span(), what).with_hint(hint));
    };
    let text = written.1.get_ref();
    // Alone first: with a parenthesis too many it would not be anchored.
    let alone = RegexBuilder::new(text).size_limit(MAX_ALLOW_BYTES).build();
    let anchored = || {
        RegexBuilder::new(&format!("^(?:{text})$"))
            .size_limit(MAX_ALLOW_BYTES)
            .dfa_size_limit(MAX_ALLOW_BYTES)
            .build()
    };
    let built = alone.and_then(|_| anchored());
    let allow = built.map_err(|error| {
        let what = format!("not a regular expression: {}", last_line(&error.to_string()));
        source.wrong(&written.1.span(), what)
    })?;
    Ok(Parameter { name: name.to_owned(), written: text.clone(), allow })
}

/// The line of a message of `regex` that has the reason.
fn last_line(message: &str) -> &str {
    let last = message.lines().last().unwrap_or(message);
    last.strip_prefix("error: ").unwrap_or(last)
}

/// Checks where the mounts have parameters.
fn check_mounts(
    source: &SourceText<'_>,
    export: &ExportConfig,
    parameters: &[Parameter],
) -> Result<()> {
    let position_of =
        |position: Position, what: String| ConfigError::of_file(source.file, what).at(position);
    let is_known = |name: &&str| parameters.iter().any(|parameter| parameter.name == **name);
    for mount in &export.mounts {
        let wrong = |what: String| position_of(mount.position, what);
        if mount.url().is_some() {
            let what = "the sessions of a template are files".to_owned();
            let hint = "add exports with sessions in a database by `acetate exports add`";
            return Err(wrong(what).with_hint(hint));
        }
        let session = mount.session().map(|file| text_of(file)).transpose();
        let base = mount.base.as_deref().map(text_of).transpose();
        let not_text = |_| wrong("paths of a template are UTF-8 text".to_owned());
        let (session, base) = (session.map_err(not_text)?, base.map_err(not_text)?);
        let subtree = Some(mount.subtree.as_str());
        for text in [session, base, subtree].into_iter().flatten() {
            if let Some(name) = names(text).into_iter().find(|name| !is_known(name)) {
                return Err(wrong(format!("the path has no parameter {{{name}}}")));
            }
        }
        if !names(mount.at.as_str()).is_empty() {
            return Err(wrong("`at` has no parameters".to_owned()));
        }
        let paths = [mount.session(), mount.base.as_ref()];
        if paths.into_iter().flatten().any(|path| has_parents(path)) {
            let what = "a path of a template has no '..'";
            return Err(wrong(what.to_owned()));
        }
        if let Some(session) = session {
            check_session_name(session).map_err(|(what, hint)| wrong(what).with_hint(hint))?;
        }
        let of_session = session.map(names).unwrap_or_default();
        if let Some(name) = base
            .map(names)
            .unwrap_or_default()
            .iter()
            .find(|name| mount.session().is_some() && !of_session.contains(name))
        {
            let what = format!("the base has {{{name}}}, and its session has not");
            let hint = "one session cannot have the changes of several bases";
            return Err(wrong(what).with_hint(hint));
        }
        let missing = parameters.iter().find(|it| !of_session.contains(&it.name.as_str()));
        match missing {
            Some(missing) if mount.session().is_some() && !mount.is_shared => {
                let what = format!(
                    "several paths would share the session, as it has no {{{}}}",
                    missing.name
                );
                let hint = "add shared = true if they are to see each other's changes there";
                return Err(wrong(what).with_hint(hint));
            }
            None if mount.is_shared => {
                return Err(wrong(
                    "each path has its own session here, so it is not shared".to_owned(),
                ));
            }
            _ => {}
        }
        if let (Some(file), Some(dir)) = (mount.session(), &mount.base)
            && fixed_dir(dir).starts_with(fixed_dir(file))
        {
            let what =
                format!("bases are in the directory of sessions {}", fixed_dir(file).display());
            let hint = "give the sessions a directory of their own, which no base shows";
            return Err(wrong(what).with_hint(hint));
        }
    }
    Ok(())
}

/// What is wrong with a session's path, and a hint.
fn check_session_name(session: &str) -> std::result::Result<(), (String, &'static str)> {
    if let Some((one, other)) = two_in_one_name(session) {
        let what = format!("{{{one}}} and {{{other}}} are in one name of the session");
        let hint = "two paths could get the same session: write chats/{user}/{chat}.db";
        return Err((what, hint));
    }
    if session.ends_with('}') {
        let what = "the name of a session does not end with a parameter".to_owned();
        return Err((what, "end it with .db: SQLite has files of its own beside a session"));
    }
    Ok(())
}

fn text_of(path: &Path) -> std::result::Result<&str, ()> {
    path.to_str().ok_or(())
}

/// Sets the keys of templates with tokens.
pub(super) fn put_keys(templates: &mut [TemplateConfig], tokens: &Tokens) {
    for template in templates.iter_mut().filter(|template| template.has_token) {
        template.key = tokens.get(&template.export.name).cloned();
    }
}

/// The names of the templates with tokens: their keys are stored under these.
pub(super) fn names_with_token(templates: &[TemplateConfig]) -> Vec<&str> {
    let with_token = templates.iter().filter(|template| template.has_token);
    with_token.map(|template| template.export.name.as_str()).collect()
}

impl TemplateConfig {
    /// Whether `other` makes the same exports, wherever it is written.
    pub fn is_same(&self, other: &Self) -> bool {
        let export = if self.export.is_same(&other.export) { &other.export } else { &self.export };
        Self { export: export.clone(), ..self.clone() } == *other
    }
}

impl PartialEq for TemplateConfig {
    fn eq(&self, other: &Self) -> bool {
        let allow = |it: &Self| -> BTreeMap<String, String> {
            let texts = it.parameters.iter().map(|p| (p.name.clone(), p.allow.to_string()));
            texts.collect()
        };
        self.export == other.export
            && self.components == other.components
            && allow(self) == allow(other)
            && (self.creates, self.expire) == (other.creates, other.expire)
            && self.has_token == other.has_token
            && self.key == other.key
    }
}

impl Eq for TemplateConfig {}

impl fmt::Display for TemplateConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.export.path.as_ref().map_or("", TreePath::as_str))
    }
}
