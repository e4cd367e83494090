//! Parameters in the texts of a template, such as `{chat}`.

use std::path::{Path, PathBuf};

use regex::Regex;

use crate::vfs::Name;

/// A parameter of a template.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    /// The name, without braces.
    pub(super) name: String,
    /// The expression that its values match, as it is written.
    pub(super) written: String,
    /// The same for the whole value.
    pub(super) allow: Regex,
}

/// Which names the expression of a parameter matches, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedNames {
    /// No name of a path.
    None,
    /// Every name, also those with spaces and characters that are not printed.
    Every,
    /// Some names, or it is not known.
    Some,
}

/// Names that hardly any expression matches all of, unless it matches every name.
const UNLIKE_NAMES: [&str; 8] = ["a", "Z", "0", "-", "~", " ", "\u{e9}", "\u{202e}"];

impl Parameter {
    /// Which names it may have as its value.
    pub(super) fn allowed_names(&self) -> AllowedNames {
        if UNLIKE_NAMES.iter().all(|name| self.allow.is_match(name)) {
            return AllowedNames::Every;
        }
        let Ok(parsed) = regex_syntax::parse(&self.written) else { return AllowedNames::Some };
        let (least, most) = (parsed.properties().minimum_len(), parsed.properties().maximum_len());
        let is_name = least.is_some_and(|least| least <= Name::MAX_BYTES) && most != Some(0);
        if is_name { AllowedNames::Some } else { AllowedNames::None }
    }
}

/// The values of a template's parameters, in their order.
pub(super) type Values<'a> = Vec<&'a str>;

/// The text with the values of parameters in place of their names.
pub(super) fn fill(text: &str, parameters: &[Parameter], values: &Values<'_>) -> String {
    let mut filled = String::with_capacity(text.len());
    // One pass: a value that looks like a parameter stays as it is.
    for part in split(text) {
        let value = parameters.iter().position(|it| part.is_parameter(&it.name));
        filled.push_str(value.map_or(part.text(), |index| values[index]));
    }
    filled
}

/// A part of a text with parameters.
pub(super) enum Part<'a> {
    /// A text without parameters.
    Literal(&'a str),
    /// A parameter with its braces.
    Parameter(&'a str),
}

impl<'a> Part<'a> {
    /// The part as it is written.
    pub(super) fn text(&self) -> &'a str {
        match self {
            Self::Literal(text) | Self::Parameter(text) => text,
        }
    }

    /// The name of a parameter.
    pub(super) fn name(&self) -> Option<&'a str> {
        match self {
            Self::Literal(_) => None,
            Self::Parameter(text) => text.strip_prefix('{')?.strip_suffix('}'),
        }
    }

    fn is_parameter(&self, name: &str) -> bool {
        self.name() == Some(name)
    }
}

/// The parts of a text.
pub(super) fn split(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(begin) = rest.find('{') {
        let Some(length) = rest[begin..].find('}') else { break };
        let (before, from) = rest.split_at(begin);
        let (parameter, after) = from.split_at(length + 1);
        parts.extend([Part::Literal(before), Part::Parameter(parameter)]);
        rest = after;
    }
    parts.push(Part::Literal(rest));
    parts
}

/// The names of the parameters in a text.
pub(super) fn names(text: &str) -> Vec<&str> {
    split(text).iter().filter_map(Part::name).collect()
}

/// The directory above the first component with a parameter; its parent if no component has one.
pub(super) fn fixed_dir(path: &Path) -> PathBuf {
    let has_none = |part: &std::path::Component<'_>| {
        part.as_os_str().to_str().is_some_and(|text| names(text).is_empty())
    };
    let fixed: PathBuf = path.components().take_while(has_none).collect();
    match fixed == path {
        true => fixed.parent().map(Path::to_owned).unwrap_or(fixed),
        false => fixed,
    }
}

/// Whether a path has a component `..`.
pub(super) fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}

/// Two parameters that are in one component of a path.
pub(super) fn two_in_one_name(path: &str) -> Option<(&str, &str)> {
    path.split('/').find_map(|part| match names(part)[..] {
        [one, other, ..] => Some((one, other)),
        _ => None,
    })
}

/// Whether two paths with parameters, one in a component at most, may be the same path.
pub(super) fn may_be_same(one: &Path, other: &Path) -> bool {
    let same = |(one, other): (std::path::Component<'_>, std::path::Component<'_>)| {
        let (one, other) = (one.as_os_str().to_str(), other.as_os_str().to_str());
        one.zip(other).is_none_or(|(one, other)| may_be_same_name(one, other))
    };
    one.components().count() == other.components().count()
        && one.components().zip(other.components()).all(same)
}

fn may_be_same_name(one: &str, other: &str) -> bool {
    match (ends(one), ends(other)) {
        (None, None) => one == other,
        (Some((prefix, suffix)), None) => other.starts_with(prefix) && other.ends_with(suffix),
        (None, Some((prefix, suffix))) => one.starts_with(prefix) && one.ends_with(suffix),
        (Some((prefix, suffix)), Some((other_prefix, other_suffix))) => {
            (prefix.starts_with(other_prefix) || other_prefix.starts_with(prefix))
                && (suffix.ends_with(other_suffix) || other_suffix.ends_with(suffix))
        }
    }
}

/// What is before and after the parameter of a component; `None` if it has none.
fn ends(name: &str) -> Option<(&str, &str)> {
    match split(name)[..] {
        [Part::Literal(prefix), Part::Parameter(_), Part::Literal(suffix)] => {
            Some((prefix, suffix))
        }
        _ => None,
    }
}
