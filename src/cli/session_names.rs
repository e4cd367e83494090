//! How sessions in databases are shown: by their URLs, wherever a command prints the path of the
//! replica that it works on.
//!
//! A replica's file name has 126 random bits, so that no other text has its path by chance.

use std::borrow::Cow;
use std::path::Path;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::shell_words::quoted;

/// Paths of replicas, and the URLs that stand for them.
static NAMES: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// Keys of JSON objects whose values are sessions.
const SESSION_KEYS: [&str; 2] = ["session", "fork"];

/// From here on, the session in the file `replica` is shown as `url`.
pub(super) fn show_as(replica: &Path, url: &str) {
    let entry = (replica.to_string_lossy().into_owned(), url.to_owned());
    let mut names = NAMES.write();
    if !names.contains(&entry) {
        names.push(entry);
    }
}

/// The URL that stands for this path.
pub(super) fn url_of(replica: &Path) -> Option<String> {
    let named = replica.to_string_lossy();
    let names = NAMES.read();
    names.iter().find(|(path, _)| *path == named).map(|(_, url)| url.clone())
}

/// A session as it is shown: its URL, or its path.
pub(super) fn shown(session: &Path) -> String {
    url_of(session).unwrap_or_else(|| session.display().to_string())
}

/// A message with the names of sessions; in a command line, quoted for a shell.
pub(super) fn in_message(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for (path, url) in NAMES.read().iter().filter(|(path, _)| text.contains(path.as_str())) {
        shown = Cow::Owned(replaced(&shown, path, url));
    }
    shown
}

/// A line of data that begins with a session, with its name.
pub(super) fn in_data(line: &str) -> Cow<'_, str> {
    for (path, url) in NAMES.read().iter() {
        if let Some(rest) = line.strip_prefix(path.as_str()).filter(|rest| rest.starts_with(": ")) {
            return Cow::Owned(format!("{url}{rest}"));
        }
    }
    Cow::Borrowed(line)
}

/// Puts the names of sessions into an object that is printed.
pub(super) fn in_object(object: &mut Map<String, Value>) {
    let names = NAMES.read();
    for key in SESSION_KEYS {
        let Some(Value::String(text)) = object.get_mut(key) else { continue };
        if let Some((_, url)) = names.iter().find(|(path, _)| path == text) {
            text.clone_from(url);
        }
    }
}

/// `text` with `url` in place of `path`, but for files beside it: the log, the lock.
fn replaced(text: &str, path: &str, url: &str) -> String {
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(path) {
        let (before, found) = rest.split_at(at);
        let after = &found[path.len()..];
        done.push_str(before);
        let mut next = after.chars();
        let is_longer = next.next().is_some_and(|c| matches!(c, '.' | '-' | '/'))
            && next.next().is_some_and(char::is_alphanumeric);
        let is_quoted = done.ends_with('\'');
        match is_longer {
            true => done.push_str(path),
            false if done.contains("acetate ") && !is_quoted => done.push_str(&quoted(url)),
            false => done.push_str(url),
        }
        rest = after;
    }
    done.push_str(rest);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/home/ann/.cache/acetate/0123456789abcdef-fedcba9876543210.db";
    const URL: &str = "postgres://ann@h/db/chat?schema=s";

    #[test]
    fn a_message_names_the_session_and_a_command_can_be_copied() {
        let shown = |text: &str| replaced(&text.replace('@', PATH), PATH, URL);
        assert_eq!(shown("@: no space"), format!("{URL}: no space"));
        assert_eq!(shown("`acetate diff @` shows it"), format!("`acetate diff '{URL}'` shows it"));
        assert_eq!(shown("acetate diff '@'"), format!("acetate diff '{URL}'"));
        assert_eq!(shown("its log is @.log."), format!("its log is {PATH}.log."));
        assert_eq!(shown("@-lock is locked"), format!("{PATH}-lock is locked"));
        assert_eq!(shown("it is @."), format!("it is {URL}."));
    }

    #[test]
    fn data_is_left_alone_but_for_the_session_itself() {
        let (path, url) = ("/r/1111111111111111-2222222222222222.db", "postgres://h/db/data");
        show_as(Path::new(path), url);
        show_as(Path::new(path), url);
        assert_eq!(url_of(Path::new(path)).as_deref(), Some(url));
        assert_eq!(in_data(&format!("{path}: sound")), format!("{url}: sound"));
        assert_eq!(in_data(path), path, "a path in a tree");
        let mut object = Map::new();
        object.insert("session".to_owned(), path.into());
        object.insert("path".to_owned(), path.into());
        in_object(&mut object);
        assert_eq!((&object["session"], &object["path"]), (&url.into(), &path.into()));
    }
}
