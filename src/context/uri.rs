//! `ctx://` URIs and their directories: `ctx://ACCOUNT/…` is `/accounts/ACCOUNT/…`.
//!
//! A node's URI has one of three forms:
//!
//! ```text
//! ctx://{account}/users/{user}/memories/{category}/{slug}
//! ctx://{account}/agents/{agent}/memories/{category}/{slug}
//! ctx://{account}/agents/{agent}/skills/{skill_name}
//! ```
//!
//! The category `profile` may have no slug. Parts consist of unreserved characters (RFC 3986 §2.3)
//! and do not begin with `.`, `-` or `~`. So no part needs escaping in a URI, is `..`, or equals
//! the name of a node's own file.

use std::fmt;
use std::str::FromStr;

use super::limits::{PART_BYTES, URI_BYTES};
use super::node::CONTENT;

/// The scheme of a URI.
const SCHEME: &str = "ctx://";

/// The directory of all accounts.
pub(super) const ACCOUNTS: &str = "/accounts";

/// Categories of memories.
const CATEGORIES: [&str; 7] =
    ["profile", "preferences", "entities", "events", "cases", "patterns", "skills"];

/// The category that may have no slug.
const ALONE: &str = "profile";

/// The URI of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uri(String);

/// A prefix of URIs that ends at a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriPrefix(Vec<String>);

/// The name of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountName(String);

/// Why a text is not the URI of a node, or not a prefix of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .text.escape_debug())]
pub struct UriError {
    text: String,
    what: String,
}

/// What a sequence of parts identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A level above nodes.
    Above,
    /// A node.
    Node,
}

impl Uri {
    /// The URI as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node's directory.
    pub fn path(&self) -> String {
        format!("{ACCOUNTS}/{}", self.parts().collect::<Vec<_>>().join("/"))
    }

    /// The account of the node.
    pub fn account(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }

    /// The category of a memory, or `skills`.
    pub fn category(&self) -> &str {
        let mut parts = self.parts().skip(3);
        match parts.next() {
            Some("memories") => parts.next().unwrap_or_default(),
            _ => "skills",
        }
    }

    /// `MEMORY` or `SKILL`.
    pub fn context_type(&self) -> &'static str {
        match self.parts().nth(3) {
            Some("memories") => "MEMORY",
            _ => "SKILL",
        }
    }

    /// The owner: `user:NAME` or `agent:NAME`.
    pub fn owner_space(&self) -> String {
        let mut parts = self.parts().skip(1);
        let kind = if parts.next() == Some("users") { "user" } else { "agent" };
        format!("{kind}:{}", parts.next().unwrap_or_default())
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.strip_prefix(SCHEME).unwrap_or_default().split('/')
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let refused = |what: String| UriError { text: text.to_owned(), what };
        match reach(&parts(text)?).map_err(refused)? {
            Reach::Node => Ok(Self(text.to_owned())),
            Reach::Above => Err(refused(
                "names no node: ctx://ACCOUNT/users/USER/memories/CATEGORY/SLUG, \
                 ctx://ACCOUNT/agents/AGENT/memories/CATEGORY/SLUG or \
                 ctx://ACCOUNT/agents/AGENT/skills/NAME"
                    .to_owned(),
            )),
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl UriPrefix {
    /// The prefix of all URIs.
    pub fn all() -> Self {
        Self(Vec::new())
    }

    /// The prefix of all URIs of an account.
    pub fn of(account: &AccountName) -> Self {
        Self(vec![account.0.clone()])
    }

    /// The account; `None` for the prefix of all URIs.
    pub fn account(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// The directory of the prefix.
    pub(super) fn path(&self) -> String {
        [ACCOUNTS]
            .into_iter()
            .chain(self.0.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join("/")
    }

    /// The node with exactly these parts, if they form a node's URI.
    pub(super) fn node(&self) -> Option<Uri> {
        let parts: Vec<&str> = self.0.iter().map(String::as_str).collect();
        (reach(&parts) == Ok(Reach::Node)).then(|| Uri(self.to_string()))
    }

    /// Appends a part; `None` if no URI has such a prefix.
    pub(super) fn join(&self, part: &str) -> Option<Self> {
        let parts: Vec<&str> = self.0.iter().map(String::as_str).chain([part]).collect();
        reach(&parts).ok()?;
        Some(Self(parts.into_iter().map(str::to_owned).collect()))
    }
}

impl FromStr for UriPrefix {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let mut parts = parts(text)?;
        // Allows `ctx://` alone, and a trailing slash.
        if parts.last() == Some(&"") {
            parts.pop();
        }
        reach(&parts).map_err(|what| UriError { text: text.to_owned(), what })?;
        Ok(Self(parts.into_iter().map(str::to_owned).collect()))
    }
}

impl fmt::Display for UriPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0.join("/"))
    }
}

impl AccountName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountName {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        free("the account", text).map_err(|what| UriError { text: text.to_owned(), what })?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parts after the scheme.
fn parts(text: &str) -> Result<Vec<&str>, UriError> {
    let refused = |what: String| UriError { text: text.to_owned(), what };
    if text.len() > URI_BYTES {
        // The error shows only the beginning.
        let text = text.chars().take(PART_BYTES).chain(['…']).collect();
        return Err(UriError { text, what: format!("longer than {URI_BYTES} bytes") });
    }
    let rest = text.strip_prefix(SCHEME);
    let rest = rest.ok_or_else(|| refused(format!("a context URI begins with {SCHEME}")))?;
    Ok(rest.split('/').collect())
}

/// What the parts identify, or why no node's URI begins with them.
fn reach(parts: &[&str]) -> Result<Reach, String> {
    let is_agent = parts.get(1) == Some(&"agents");
    let is_skill = is_agent && parts.get(3) == Some(&"skills");
    for (at, part) in parts.iter().enumerate() {
        match at {
            0 => free("the account", part)?,
            1 => word(part, &["users", "agents"])?,
            2 if is_agent => free("the agent", part)?,
            2 => free("the user", part)?,
            3 if is_agent => word(part, &["memories", "skills"])?,
            3 => word(part, &["memories"])?,
            4 if is_skill => free("the skill's name", part)?,
            4 => word(part, &CATEGORIES)?,
            5 if !is_skill => free("the slug", part)?,
            _ => return Err("a node has nothing below it".to_owned()),
        }
    }
    let is_node = match parts.len() {
        5 => is_skill || parts[4] == ALONE,
        6 => true,
        _ => false,
    };
    Ok(if is_node { Reach::Node } else { Reach::Above })
}

/// Checks a part with fixed values.
fn word(part: &str, words: &[&str]) -> Result<(), String> {
    match words.contains(&part) {
        true => Ok(()),
        false => Err(format!("`{}` where {} is expected", part.escape_debug(), words.join(", "))),
    }
}

/// Checks a freely chosen part.
fn free(what: &str, part: &str) -> Result<(), String> {
    let is_first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_unreserved = |c: char| is_first(c) || matches!(c, '-' | '.' | '~');
    if part.is_empty() || part.len() > PART_BYTES {
        return Err(format!("{what} has {} bytes, and must have 1 to {PART_BYTES}", part.len()));
    }
    if !part.starts_with(is_first) || !part.chars().all(is_unreserved) {
        return Err(format!(
            "{what} must be of A-Z a-z 0-9 - . _ ~ and begin with a letter, a digit or _"
        ));
    }
    // Otherwise a node below `profile` would collide with the content of `profile`.
    if part == CONTENT {
        return Err(format!("{what} cannot be {CONTENT}: a node has a file of that name"));
    }
    Ok(())
}
