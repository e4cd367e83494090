//! The text of an export that is given by options of a command.

use std::path::{Path, PathBuf};

/// An export with one mount, at `/`. Everything that is left out has its default.
#[derive(Debug, Clone, Default)]
pub struct NewExport {
    /// What clients mount; `None` with a token.
    pub path: Option<String>,
    /// Words of exports(5).
    pub options: Vec<String>,
    /// Addresses and networks; empty for this machine.
    pub clients: Vec<String>,
    /// The session file; `None` for changes in memory.
    pub session: Option<PathBuf>,
    /// The base directory.
    pub base: Option<PathBuf>,
    /// Quota of content, with a unit or none.
    pub bytes: Option<String>,
    /// Quota of files.
    pub files: Option<u64>,
}

impl NewExport {
    /// The TOML of its file in `exports.d`; `Err` with a path that is no UTF-8 text.
    pub fn to_toml(&self) -> std::result::Result<String, PathBuf> {
        let Self { path, options, clients, session, base, bytes, files } = self;
        let mut lines = vec!["[[export]]".to_owned()];
        lines.push(match path {
            Some(path) => format!("path = {}", quoted(path)),
            None => "token = true".to_owned(),
        });
        for (key, words) in [("options", options), ("clients", clients)] {
            if !words.is_empty() {
                let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                lines.push(format!("{key} = [{}]", words.join(", ")));
            }
        }
        let bytes = bytes.as_deref().map(|bytes| format!("bytes = {}", quoted(bytes)));
        let files = files.map(|files| format!("files = {files}"));
        let quota: Vec<String> = bytes.into_iter().chain(files).collect();
        if !quota.is_empty() {
            lines.push(format!("quota = {{ {} }}", quota.join(", ")));
        }
        lines.extend(["", "[[export.mount]]", "at = \"/\""].map(str::to_owned));
        lines.push(match session {
            Some(session) => format!("session = {}", quoted(text(session)?)),
            None => "ephemeral = true".to_owned(),
        });
        if let Some(base) = base {
            lines.push(format!("base = {}", quoted(text(base)?)));
        }
        Ok(lines.join("\n") + "\n")
    }
}

fn text(path: &Path) -> std::result::Result<&str, PathBuf> {
    path.to_str().ok_or_else(|| path.to_owned())
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_text_is_the_same_after_it_is_read() {
        let texts = ["", "plain", "a \"b\" \\ c", "line\nend\t\u{7f}\u{0}\u{85}", "\u{1f600}"];
        for text in texts {
            let read: toml::Table = toml::from_str(&format!("x = {}", quoted(text))).unwrap();
            assert_eq!(read["x"].as_str(), Some(text));
        }
    }
}
