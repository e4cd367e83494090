//! What a reload changed, for the log.

use std::collections::BTreeMap;

use crate::cli::text;
use crate::config::{Config, ExportConfig, TemplateConfig};

/// Exports that are named for each kind of change.
const MAX_NAMED: usize = 3;

/// An export or a template of a file.
#[derive(Clone, Copy)]
enum ReloadedItem<'a> {
    Export(&'a ExportConfig),
    Template(&'a TemplateConfig),
}

impl ReloadedItem<'_> {
    /// Its path; its name if the path is secret, as the log is not.
    fn shown(self) -> String {
        match self {
            Self::Export(ExportConfig { path: Some(path), is_secret: false, .. }) => {
                text::name(path.as_str().as_bytes())
            }
            Self::Export(export) => format!("{} (a secret path)", export.name),
            Self::Template(template) => {
                format!("template {}", text::name(template.to_string().as_bytes()))
            }
        }
    }

    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Export(one), Self::Export(other)) => one.is_same(other),
            (Self::Template(one), Self::Template(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// The counts and the first paths of what `after` has added, changed and removed, with a
/// semicolon before each; empty if nothing is different.
pub(super) fn summary(before: &Config, after: &Config) -> String {
    let (before, after) = (by_shown(before), by_shown(after));
    let added = after.keys().filter(|shown| !before.contains_key(*shown));
    let removed = before.keys().filter(|shown| !after.contains_key(*shown));
    let is_changed = |(shown, it): &(&String, &ReloadedItem<'_>)| {
        before.get(*shown).is_some_and(|before| !it.is_same(*before))
    };
    let changed = after.iter().filter(is_changed).map(|(shown, _)| shown);
    let parts = [
        part(added.collect(), "added"),
        part(changed.collect(), "changed"),
        part(removed.collect(), "removed"),
    ];
    parts.concat()
}

fn by_shown(config: &Config) -> BTreeMap<String, ReloadedItem<'_>> {
    let exports = config.exports.iter().map(ReloadedItem::Export);
    let all = exports.chain(config.templates.iter().map(ReloadedItem::Template));
    all.map(|it| (it.shown(), it)).collect()
}

fn part(shown: Vec<&String>, what: &str) -> String {
    if shown.is_empty() {
        return String::new();
    }
    let more = if shown.len() > MAX_NAMED { ", ..." } else { "" };
    let named: Vec<&str> = shown.iter().take(MAX_NAMED).map(|shown| shown.as_str()).collect();
    format!("; {} {what}: {}{more}", shown.len(), named.join(", "))
}
