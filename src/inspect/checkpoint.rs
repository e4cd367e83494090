//! Lists a session's checkpoints, and finds one by what a user calls it.

use std::collections::BTreeMap;

use super::error::{InspectError, Result};
use super::opened::host;
use crate::delta::sqlite::{ListedCheckpoint, Session, StepsBack};
use crate::delta::{
    Checkpoint, CheckpointId, CheckpointKeep, CheckpointSpace, StoreError, surplus,
};
use crate::vfs::Time;

/// The longest name of a checkpoint, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The most labels of a checkpoint.
pub const MAX_LABELS: usize = 64;

/// The most bytes of all labels of a checkpoint.
pub const MAX_LABEL_BYTES: usize = 16 << 10;

/// How many names an error offers.
const MAX_OFFERED: usize = 5;

/// The most edits between names that are alike.
const MAX_EDITS: usize = 3;

/// The longest name that is compared letter by letter, in bytes.
const MAX_COMPARED_BYTES: usize = 64;

/// The session's checkpoints, the oldest first.
///
/// # Errors
/// The session cannot be read.
pub fn checkpoints(session: &Session) -> Result<Vec<Checkpoint>> {
    session.checkpoints().map_err(|source| failed(session, source))
}

/// The same, with what is known of each.
///
/// # Errors
/// As [`checkpoints`].
pub fn list_checkpoints(session: &Session) -> Result<Vec<ListedCheckpoint>> {
    session.list_checkpoints().map_err(|source| failed(session, source))
}

/// What the session's checkpoints take; `None` without any.
///
/// # Errors
/// As [`checkpoints`].
pub fn checkpoint_space(session: &Session) -> Result<Option<CheckpointSpace>> {
    session.checkpoint_space().map_err(|source| failed(session, source))
}

/// Which automatic checkpoints the session keeps.
///
/// # Errors
/// As [`checkpoints`].
pub fn kept_checkpoints(session: &Session) -> Result<CheckpointKeep> {
    session.checkpoint_keep().map_err(|source| failed(session, source))
}

/// The checkpoints that the session does not keep; `all` has the oldest first.
///
/// # Errors
/// As [`checkpoints`].
pub fn surplus_checkpoints(
    session: &Session,
    all: &[ListedCheckpoint],
) -> Result<Vec<CheckpointId>> {
    let all: Vec<_> = all.iter().map(|one| one.checkpoint.clone()).collect();
    Ok(surplus(&all, host()?.now, kept_checkpoints(session)?))
}

/// What a restore of this checkpoint takes back, by the audit log.
///
/// # Errors
/// As [`checkpoints`].
pub fn steps_back(session: &Session, to: &Checkpoint) -> Result<StepsBack> {
    session.steps_back(to).map_err(|source| failed(session, source))
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}

/// The checkpoint that a user means: an id, a name, `@-1` for the newest, `@-2` for the one before
/// it, or the newest one that was made by a moment, which `moment` parses.
///
/// # Errors
/// There is no such checkpoint, or the session cannot be read.
pub fn find_checkpoint(
    session: &Session,
    text: &str,
    moment: &dyn Fn(&str) -> Option<Time>,
) -> Result<Checkpoint> {
    let all = checkpoints(session)?;
    let found = match (text.strip_prefix("@-"), text.parse::<i64>()) {
        _ if all.iter().any(|one| one.name.as_deref() == Some(text)) => {
            all.iter().find(|one| one.name.as_deref() == Some(text))
        }
        (Some(back), _) => {
            let back: Option<usize> = back.parse().ok().filter(|back| *back > 0);
            back.and_then(|back| all.iter().rev().nth(back - 1))
        }
        (None, Ok(id)) => all.iter().find(|one| one.id == CheckpointId(id)),
        (None, Err(_)) => {
            let until = moment(text);
            until.and_then(|until| all.iter().rev().find(|one| one.time <= until))
        }
    };
    found.cloned().ok_or_else(|| InspectError::NoCheckpoint {
        text: text.to_owned(),
        others: offered(text, &all),
    })
}

/// The names and ids of other checkpoints: those with similar names first, then the newest.
fn offered(text: &str, all: &[Checkpoint]) -> Vec<String> {
    let shown = |one: &Checkpoint| one.name.clone().unwrap_or_else(|| one.id.to_string());
    let mut names: Vec<_> = all.iter().rev().map(shown).collect();
    names.sort_by_cached_key(|name| edits(name, text).unwrap_or(usize::MAX));
    names.truncate(MAX_OFFERED);
    names
}

/// The name that a user may have meant, of those that an error offers.
pub fn nearest<'n>(text: &str, offered: &'n [String]) -> Option<&'n str> {
    offered.first().filter(|name| edits(name, text).is_some()).map(String::as_str)
}

/// How many letters are to be inserted, deleted, replaced or swapped to make one name of another,
/// up to case; 0 if one has the other in it. `None` if the names are not alike.
fn edits(name: &str, text: &str) -> Option<usize> {
    let (name, text) = (name.to_lowercase(), text.to_lowercase());
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(&name) || is_number(&text) {
        return None;
    }
    let [longer, shorter] = if name.len() < text.len() { [&text, &name] } else { [&name, &text] };
    if shorter.len() > MAX_COMPARED_BYTES {
        return None;
    }
    if longer.contains(shorter.as_str()) {
        return Some(0);
    }
    let most = MAX_EDITS.min(shorter.chars().count() / 2);
    let is_alike = longer.len() - shorter.len() <= 4 * most;
    let edits = is_alike.then(|| strsim::damerau_levenshtein(&name, &text));
    edits.filter(|edits| *edits <= most)
}

/// Checks a name for a new checkpoint.
///
/// # Errors
/// It is empty, too long, or looks like an id, a position or a moment.
pub fn check_name(name: &str, is_moment: &dyn Fn(&str) -> bool) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it is longer than 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else if name.starts_with('@') {
        "it looks like a position (`@-1`)"
    } else if name.bytes().all(|byte| byte.is_ascii_digit()) {
        "it looks like an id"
    } else if is_moment(name) {
        "it looks like a moment"
    } else {
        return Ok(());
    };
    Err(InspectError::Invalid { what: format!("{name}: not a name for a checkpoint: {why}") })
}

/// Parses labels of the form `KEY=VALUE`.
///
/// # Errors
/// One has no `=` or no key, a key comes twice, or they are too many or too long.
pub fn labels(texts: &[String]) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    let bytes: usize = texts.iter().map(String::len).sum();
    if texts.len() > MAX_LABELS || bytes > MAX_LABEL_BYTES {
        let what = format!("a checkpoint has at most {MAX_LABELS} labels, of 16 KiB together");
        return Err(InspectError::Invalid { what });
    }
    for text in texts {
        let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.ok_or_else(|| InspectError::Invalid {
            what: format!("{text}: not a label: expected KEY=VALUE"),
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            let what = format!("{key}: two labels with this key");
            return Err(InspectError::Invalid { what });
        }
    }
    Ok(labels)
}
