//! Paths that the export does not show: the session file and the files beside it.

use parking_lot::{RwLock, RwLockReadGuard};

use crate::base::BasePath;

/// The hidden paths of a base; everything below them is hidden too.
#[derive(Debug)]
pub(super) struct HiddenPaths(RwLock<Vec<BasePath>>);

impl HiddenPaths {
    pub(super) fn new(paths: Vec<BasePath>) -> Self {
        Self(RwLock::new(paths))
    }

    /// Hides further paths.
    pub(super) fn add(&self, paths: Vec<BasePath>) {
        let mut hidden = self.0.write();
        hidden.extend(paths);
        hidden.sort_unstable();
        hidden.dedup();
    }

    /// The paths.
    fn paths(&self) -> RwLockReadGuard<'_, Vec<BasePath>> {
        self.0.read()
    }

    /// Whether `path` is hidden, or below a hidden path.
    pub(super) fn holds(&self, path: &BasePath) -> bool {
        self.paths().iter().any(|hidden| {
            let (path, hidden) = (path.as_bytes(), hidden.as_bytes());
            match path.get(..hidden.len()) {
                Some(start) if same_name(start, hidden) => {
                    matches!(path.get(hidden.len()), None | Some(b'/'))
                }
                _ => false,
            }
        })
    }

    /// The hidden names in the directory `dir`.
    pub(super) fn names_in(&self, dir: &BasePath) -> Vec<Vec<u8>> {
        let dir = dir.as_bytes();
        self.paths()
            .iter()
            .filter_map(|hidden| {
                let path = hidden.as_bytes();
                let at = path.iter().rposition(|&b| b == b'/');
                let (parent, name) = match at {
                    Some(at) => (&path[..at], &path[at + 1..]),
                    None => (&[][..], path),
                };
                same_name(parent, dir).then(|| name.to_vec())
            })
            .collect()
    }
}

/// Whether two names or paths can mean the same object: macOS filesystems may ignore case.
pub(super) fn same_name(a: &[u8], b: &[u8]) -> bool {
    if cfg!(target_os = "macos") { a.eq_ignore_ascii_case(b) } else { a == b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> BasePath {
        BasePath::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn hides_the_path_and_what_is_below_it_and_nothing_else() {
        let hidden = HiddenPaths::new(vec![path("a/s.db"), path("top")]);
        for shown in ["a", "a/s.db-wal", "a/s", "a/s.d", "s.db", "to", "topping", "a/top"] {
            assert!(!hidden.holds(&path(shown)), "{shown}");
        }
        for gone in ["a/s.db", "a/s.db/x", "top", "top/a/b"] {
            assert!(hidden.holds(&path(gone)), "{gone}");
        }
        assert!(!hidden.holds(&BasePath::root()));
        assert_eq!(hidden.names_in(&path("a")), [b"s.db"]);
        assert_eq!(hidden.names_in(&BasePath::root()), [b"top"]);
        hidden.add(vec![path("to"), path("top")]);
        assert!(hidden.holds(&path("to")));
        assert_eq!(hidden.names_in(&BasePath::root()).len(), 2);
    }
}
