//! Checks the templates of an exports file for what is permitted and hardly meant.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::files::open_base;
use super::host_check::ConfigFinding;
use crate::config::{AllowedNames, Config, ExportConfig, Position, TemplateConfig};

/// Checks all templates, and exports that look like templates. Creates and changes nothing.
pub(super) fn look(config: &Config) -> Vec<ConfigFinding> {
    let mut findings = Vec::new();
    let mut find = |export: &ExportConfig, position: Position, what: String| {
        let file = Arc::clone(&export.file);
        findings.push(ConfigFinding { file, position, what, is_warning: true });
    };
    for export in &config.exports {
        let path = export.path.as_ref().map_or("", |path| path.as_str());
        if export.template.is_none() && path.contains(['{', '}']) {
            let what =
                "an [[export]] has this path as it is written; parameters are for [[template]]";
            find(export, export.position, format!("{path}: {what}"));
        }
    }
    for template in &config.templates {
        for (name, allowed) in template.allowed_names() {
            if let Some(what) = allow_problem(allowed) {
                find(
                    &template.export,
                    template.export.position,
                    format!("allow of {{{name}}}: {what}"),
                );
            }
        }
        for (position, what) in missing_dirs(template) {
            find(&template.export, position, what);
        }
    }
    findings
}

/// Why the values of a parameter are hardly what is meant, if so.
fn allow_problem(allowed: AllowedNames) -> Option<&'static str> {
    match allowed {
        AllowedNames::Some => None,
        AllowedNames::None => Some("no name matches it, so nothing can be mounted"),
        AllowedNames::Every => Some(
            "every name matches it, so clients can make exports of any name; \
             use a narrower one, such as [a-z0-9-]{1,64}",
        ),
    }
}

/// Base directories of a template, without their parameters, that cannot be opened.
fn missing_dirs(template: &TemplateConfig) -> Vec<(Position, String)> {
    let mut seen = BTreeSet::new();
    let new = template.fixed_base_dirs().filter(|(_, dir)| seen.insert(dir.clone()));
    new.filter_map(|(position, dir)| Some((position, open_base(&dir).err()?))).collect()
}
