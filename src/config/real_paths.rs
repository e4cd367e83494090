//! Real paths of session files, as symbolic links lead to them.
//!
//! Finding one waits for the filesystem. A program that must not wait asks the filesystems first
//! ([`crate::workspace::exports::base_probes`]), and reads exports files with what it
//! [knows](KnownPaths) then.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// The real path of a file. If the file does not exist, the symbolic links in those of its folders
/// that exist are resolved: it has the same path once it is made.
pub fn real_path(path: &Path) -> PathBuf {
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if let Ok(real) = fs::canonicalize(folder) {
            // Equal for the path itself, whose rest is empty.
            let rest = path.strip_prefix(folder).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

/// [`real_path`] for many files: each directory is resolved once. For a moment in which the
/// directories stay what they are.
#[derive(Default)]
pub struct RealPaths<'a> {
    dirs: HashMap<PathBuf, PathBuf>,
    unresolved: Unresolved<'a>,
}

/// The paths that [`RealPaths`] does not look up.
#[derive(Default)]
enum Unresolved<'a> {
    /// None: all are looked up.
    #[default]
    None,
    /// Those in directories that hang.
    Below(&'a BTreeSet<PathBuf>),
    /// All; some are known.
    All(&'a KnownPaths),
    /// All, as with parameters in them they lead nowhere.
    Written,
}

impl<'a> RealPaths<'a> {
    /// Leaves the paths in these directories as they are written.
    pub fn avoiding(hanging: &'a BTreeSet<PathBuf>) -> Self {
        Self { unresolved: Unresolved::Below(hanging), ..Self::default() }
    }

    /// Leaves all paths as they are written.
    pub(super) fn as_written() -> Self {
        Self { unresolved: Unresolved::Written, ..Self::default() }
    }

    /// The real path of a file; as it is written if it is not looked up.
    pub fn of(&mut self, path: &Path) -> PathBuf {
        match self.unresolved {
            Unresolved::Below(hanging) if hanging_dir(path, hanging).is_some() => {
                return path.to_owned();
            }
            Unresolved::All(known) => return known.of(path),
            Unresolved::Written => return path.to_owned(),
            Unresolved::Below(_) | Unresolved::None => {}
        }
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return real_path(path);
        };
        if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return real_path(path);
        }
        match self.dirs.get(dir) {
            Some(real) => real.join(name),
            None => {
                let real = real_path(dir);
                let path = real.join(name);
                self.dirs.insert(dir.to_owned(), real);
                path
            }
        }
    }

    /// Whether two paths lead to one directory; also if that is not known.
    pub(super) fn may_be_same(&self, one: &Path, other: &Path) -> bool {
        one == other
            || match self.unresolved {
                Unresolved::All(KnownPaths { real, .. }) => {
                    match (real.get(one), real.get(other)) {
                        (Some(one), Some(other)) => one == other,
                        _ => true,
                    }
                }
                Unresolved::None | Unresolved::Below(_) => real_path(one) == real_path(other),
                Unresolved::Written => false,
            }
    }
}

/// Paths that are to be looked up.
#[derive(Debug, Clone, Default)]
pub struct SoughtPaths {
    /// Session files.
    pub files: BTreeSet<PathBuf>,
    /// Directories.
    pub dirs: BTreeSet<PathBuf>,
}

impl SoughtPaths {
    /// Adds those of another one.
    pub fn extend(&mut self, other: &Self) {
        self.files.extend(other.files.iter().cloned());
        self.dirs.extend(other.dirs.iter().cloned());
    }

    /// Those that are not known.
    #[must_use]
    pub fn without(mut self, known: &KnownPaths) -> Self {
        self.files.retain(|path| !known.has(path));
        self.dirs.retain(|path| !known.has(path));
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.dirs.is_empty()
    }
}

/// Real paths that were looked up before.
#[derive(Debug, Clone, Default)]
pub struct KnownPaths {
    real: HashMap<PathBuf, PathBuf>,
    hanging: BTreeSet<PathBuf>,
}

impl KnownPaths {
    /// With these real paths, by the paths as they are written, and directories that hang.
    pub fn new(real: HashMap<PathBuf, PathBuf>, hanging: BTreeSet<PathBuf>) -> Self {
        Self { real, hanging }
    }

    /// Adds what else is known.
    pub fn extend(&mut self, other: Self) {
        self.real.extend(other.real);
        self.hanging.extend(other.hanging);
    }

    /// The directories that hang.
    pub fn hanging(&self) -> &BTreeSet<PathBuf> {
        &self.hanging
    }

    /// The innermost directory above a file, or the file itself, that hangs.
    pub fn hanging_dir<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        hanging_dir(path, &self.hanging)
    }

    /// Whether a path was looked up, or could not be.
    pub fn has(&self, path: &Path) -> bool {
        self.real.contains_key(path) || self.hanging_dir(path).is_some()
    }

    /// The real path of a file; as it is written if it is not known.
    pub fn of(&self, path: &Path) -> PathBuf {
        self.real.get(path).map_or_else(|| path.to_owned(), PathBuf::clone)
    }

    /// Looks up nothing else.
    pub fn only(&self) -> RealPaths<'_> {
        RealPaths { dirs: HashMap::new(), unresolved: Unresolved::All(self) }
    }
}

/// The innermost directory above a path, or the path itself, that hangs.
fn hanging_dir<'a>(path: &'a Path, hanging: &BTreeSet<PathBuf>) -> Option<&'a Path> {
    path.ancestors().find(|dir| hanging.contains(*dir))
}

#[cfg(test)]
mod tests {
    use super::{KnownPaths, RealPaths, real_path};
    use std::collections::{BTreeSet, HashMap};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn the_paths_of_many_are_those_of_each() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/file"), "").unwrap();
        symlink(at("real"), at("dir")).unwrap();
        symlink(at("real/file"), at("dir/link")).unwrap();
        symlink(at("nowhere"), at("dir/dangling")).unwrap();
        let mut real = RealPaths::default();
        let names = ["real/file", "dir/file", "dir/link", "dir/dangling", "dir/new", "none/new"];
        for name in names.into_iter().chain(["dir/..", "dir/../dir/file", "dir/file", ""]) {
            assert_eq!(real.of(&at(name)), real_path(&at(name)), "{name}");
        }
        assert_eq!(real.of("file".as_ref()), real_path("file".as_ref()));
        // Only those below the directory stay as they are written.
        let hanging = BTreeSet::from([at("dir")]);
        let mut real = RealPaths::avoiding(&hanging);
        assert_eq!(real.of(&at("dir/file")), at("dir/file"));
        assert_eq!(real.of(&at("dir/sub/file")), at("dir/sub/file"));
        assert_eq!(real.of(&at("real/file")), real_path(&at("real/file")));
    }

    #[test]
    fn what_is_known_is_not_looked_up() {
        let path = |name: &str| PathBuf::from(name);
        let real = HashMap::from([(path("/dir/file"), path("/real/file"))]);
        let known = KnownPaths::new(real, BTreeSet::from([path("/stuck")]));
        let found =
            ["/dir/file", "/dir/new", "/stuck/file", "/"].map(|it| known.only().of(it.as_ref()));
        assert_eq!(found, ["/real/file", "/dir/new", "/stuck/file", "/"].map(path));
        let has =
            ["/dir/file", "/dir/new", "/stuck/file", "/stuck"].map(|it| known.has(it.as_ref()));
        assert_eq!(has, [true, false, true, true]);
    }
}
