//! Finds the instances of a template by the session files that exist.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::parameters::{fixed_dir, split};
use super::template::{TemplateConfig, TemplatePart};

/// A directory that cannot be read.
type Unread = (PathBuf, io::Error);

impl TemplateConfig {
    /// The paths without tokens of the instances whose session at `/` exists. Empty if that
    /// session is in memory or shared.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn existing_paths(&self) -> Result<Vec<String>, Unread> {
        let root = self.export.mounts.iter().find(|mount| mount.at.is_root());
        let Some(file) = root.filter(|root| !root.is_shared).and_then(|root| root.session()) else {
            return Ok(Vec::new());
        };
        let dir = fixed_dir(file);
        let below: Vec<&str> = file
            .strip_prefix(&dir)
            .map(|below| below.components().filter_map(|it| it.as_os_str().to_str()).collect())
            .unwrap_or_default();
        let mut found = Vec::new();
        self.find_below(&dir, &below, &mut BTreeMap::new(), &mut found)?;
        Ok(found)
    }

    /// Adds the paths of the sessions in a directory; `values` are those of the parameters that the
    /// names above it have.
    fn find_below(
        &self,
        dir: &Path,
        below: &[&str],
        values: &mut BTreeMap<String, String>,
        found: &mut Vec<String>,
    ) -> Result<(), Unread> {
        let Some((written, rest)) = below.split_first() else { return Ok(()) };
        let failed = |error| (dir.to_owned(), error);
        let Some(names) = FilledName::of(written, values) else { return Ok(()) };
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some(new) = names.unfill(&name) else { continue };
            let mut values = values.clone();
            values.extend(new);
            match rest {
                [] => found.extend(self.path_of(&values)),
                _ if entry.path().is_dir() => {
                    self.find_below(&entry.path(), rest, &mut values, found)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The path without its token that has these values.
    fn path_of(&self, values: &BTreeMap<String, String>) -> Option<String> {
        let mut path = String::new();
        for component in &self.components {
            path.push('/');
            path.push_str(match component {
                TemplatePart::Literal(literal) => literal,
                TemplatePart::Parameter(index) => values.get(&self.parameters[*index].name)?,
            });
        }
        self.values(&path).is_some().then_some(path)
    }
}

/// The names that a written name may have in a directory.
struct FilledName<'a> {
    expression: Regex,
    /// The parameters of its groups.
    order: Vec<&'a str>,
}

impl<'a> FilledName<'a> {
    /// With the values of `known` filled in. `None` if a parameter occurs twice.
    fn of(written: &'a str, known: &BTreeMap<String, String>) -> Option<Self> {
        let mut expression = String::from("^");
        let mut order = Vec::new();
        for part in split(written) {
            match part.name() {
                Some(name) if known.contains_key(name) => {
                    expression.push_str(&regex::escape(&known[name]));
                }
                Some(name) if !order.contains(&name) => {
                    expression.push_str("(.+)");
                    order.push(name);
                }
                Some(_) => return None,
                None => expression.push_str(&regex::escape(part.text())),
            }
        }
        expression.push('$');
        Some(Self { expression: Regex::new(&expression).ok()?, order })
    }

    /// The values of the parameters with which it is `name`.
    fn unfill(&self, name: &str) -> Option<Vec<(String, String)>> {
        let found = self.expression.captures(name)?;
        let value = |(index, name): (usize, &&str)| {
            Some(((*name).to_owned(), found.get(index + 1)?.as_str().to_owned()))
        };
        self.order.iter().enumerate().map(value).collect()
    }
}
