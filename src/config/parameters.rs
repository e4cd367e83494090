//! Parameters in the texts of a template, such as `{chat}`.

use std::path::{Path, PathBuf};

use regex::Regex;

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

/// The directory above the first component with a parameter.
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
