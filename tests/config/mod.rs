//! The exports file: what is read from it, and what is said of what is wrong.

mod credentials;
mod databases;
mod example;
mod exports;
mod guards;
mod mounting;
mod mounts;
mod templates;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

use acetate::config::{Config, ConfigError, ExportConfig, Missing, read};
use tempfile::TempDir;

/// A folder with an exports file.
pub struct Folder(TempDir);

impl Folder {
    pub fn new(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write(text);
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self) -> PathBuf {
        self.path().join("exports.toml")
    }

    pub fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    pub fn read(&self, missing: Missing) -> Result<Config, ConfigError> {
        read(&self.file(), missing)
    }
}

/// An export at `/x` with `lines`, and a mount with `session = "s.db"`.
pub fn with(lines: &str) -> String {
    format!(
        "[[export]]\npath = \"/x\"\n{lines}\n[[export.mount]]\nat = \"/\"\nsession = \"s.db\"\n"
    )
}

/// The one export of a file that has nothing wrong.
pub fn export(text: &str) -> ExportConfig {
    let config = Folder::new(text).read(Missing::Leave).unwrap();
    assert_eq!(config.exports.len(), 1);
    config.exports[0].clone()
}

/// The place, the fault, and the hint of a file: `LINE:COLUMN: WHAT [HINT]`.
pub fn fault(text: &str) -> String {
    let folder = Folder::new(text);
    let error = folder.read(Missing::Leave).unwrap_err();
    let said = error.to_string();
    let said = said.strip_prefix(&format!("{}:", folder.file().display())).unwrap();
    match error.hint() {
        Some(hint) => format!("{} [{hint}]", said.trim_start()),
        None => said.trim_start().to_owned(),
    }
}

/// Each file has the fault that is said of it.
pub fn faults(cases: &[(&str, &str)]) {
    for (text, said) in cases {
        let found = fault(text);
        assert!(found.contains(said), "{text}\n  said: {found}\n  and not: {said}");
    }
}
