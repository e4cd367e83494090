//! Finds a session with a name similar to a given one, which may be a typing error.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::inspect::similar_names::similar_edits;

/// The most directory entries that are compared.
const MAX_ENTRIES: usize = 4096;

/// A similar name has more than this many letters for each edit.
const LETTERS_PER_EDIT: usize = 2;

/// The file extension of sessions.
const EXTENSION: &str = "db";

/// The `.db` file beside `path` with the most similar name, if one is similar without `.db`.
pub(super) fn similar(path: &Path) -> Option<PathBuf> {
    let wanted = stem(path)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names = entries.take(MAX_ENTRIES).filter_map(|entry| Some(entry.ok()?.file_name()));
    let alike = names.filter_map(|name| {
        let file = Path::new(&name);
        if Some(file.as_os_str()) == path.file_name()
            || file.extension() != Some(EXTENSION.as_ref())
        {
            return None;
        }
        let edits = similar_edits(&wanted, &stem(file)?, LETTERS_PER_EDIT)?;
        Some((edits, name))
    });
    let (_, name) = alike.min()?;
    let found = path.with_file_name(name);
    found.is_file().then_some(found)
}

/// The hint that names a similar session.
pub(super) fn did_you_mean(similar: &Path) -> String {
    format!("did you mean {}?", similar.display())
}

/// The name without `.db`.
fn stem(path: &Path) -> Option<String> {
    let name = match path.extension() {
        Some(extension) if extension == EXTENSION => path.file_stem(),
        _ => path.file_name(),
    };
    name.and_then(OsStr::to_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_found() {
        let dir = std::env::temp_dir().join(format!("acetate-similar-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["work.db", "notes.txt", "a.db", "agent-12.db"] {
            fs::write(dir.join(name), "").unwrap();
        }
        let found = |name: &str| {
            let found = similar(&dir.join(name))?;
            Some(found.file_name().unwrap().to_str().unwrap().to_owned())
        };
        for (name, expected) in [
            ("wrok.db", Some("work.db")),
            ("work", Some("work.db")),
            ("Work.db", Some("work.db")),
            ("wor.db", Some("work.db")),
            ("agent-13.db", Some("agent-12.db")),
            ("b.db", None),
            ("play.db", None),
            ("notes.db", None),
        ] {
            assert_eq!(found(name).as_deref(), expected, "{name}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
