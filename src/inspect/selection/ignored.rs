//! git's ignore rules: of the `.gitignore` files in the merged tree, or in the base where that has
//! the directory and the merged tree does not, of `.git/info/exclude`, and of
//! core.excludesFile (gitignore(5)).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;

use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, Name};

/// The largest file of rules that is read, in bytes.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// The rules, which are read when a path needs them.
pub(super) struct Ignored {
    /// The user's own rules, which have the lowest precedence.
    user: Gitignore,
    /// The rules of each directory, highest precedence first.
    dirs: Mutex<HashMap<MergedPath, Rules>>,
}

type Rules = Arc<[Gitignore]>;

impl Ignored {
    /// `user` is the content of the user's core.excludesFile.
    pub fn new(user: &[u8]) -> Self {
        Self { user: rules(&MergedPath::root(), user), dirs: Mutex::default() }
    }

    /// Whether a path, or a directory above it, is ignored.
    pub fn covers(&self, view: &TreeView<'_>, path: &MergedPath, is_dir: bool) -> bool {
        let above: Vec<_> = path.above().collect();
        let dirs = above.iter().rev().skip(1).map(|dir| (dir, true));
        dirs.chain([(path, is_dir)]).any(|(path, is_dir)| self.has(view, path, is_dir))
    }

    /// Whether the path itself is ignored.
    fn has(&self, view: &TreeView<'_>, path: &MergedPath, is_dir: bool) -> bool {
        let relative = Path::new(OsStr::from_bytes(path.as_bytes()));
        for dir in path.above() {
            for rules in self.of_dir(view, &dir).iter() {
                match rules.matched(relative, is_dir) {
                    Match::None => {}
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                }
            }
        }
        self.user.matched(relative, is_dir).is_ignore()
    }

    fn of_dir(&self, view: &TreeView<'_>, dir: &MergedPath) -> Rules {
        let mut dirs = self.dirs.lock();
        if let Some(known) = dirs.get(dir) {
            return Arc::clone(known);
        }
        let files = [&[&b".gitignore"[..]][..], &[b".git", b"info", b"exclude"]];
        let read: Rules = files
            .iter()
            .filter_map(|names| content(view, dir, names))
            .map(|content| rules(dir, &content))
            .collect();
        dirs.insert(dir.clone(), Arc::clone(&read));
        read
    }
}

impl fmt::Debug for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ignored")
    }
}

/// The rules of a file in `dir`. Lines that are not valid rules are skipped, as in git.
fn rules(dir: &MergedPath, content: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(OsStr::from_bytes(dir.as_bytes()));
    for line in String::from_utf8_lossy(content).lines() {
        let _not_a_rule = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// The content of a file below `dir`; `None` if it cannot be read. Of a directory that moved or is
/// gone, what the base has: its old names are ignored as they were.
fn content(view: &TreeView<'_>, dir: &MergedPath, names: &[&[u8]]) -> Option<Vec<u8>> {
    let mut names = names.iter().map(|name| Name::new(name).ok());
    let path = names.try_fold(dir.clone(), |path, name| Some(path.join(&name?)))?;
    let is_dir = |found: &TreeObject| found.attr().kind == FileKind::Directory;
    let file = match view.find(dir).ok()?.filter(is_dir) {
        Some(_) => view.find(&path).ok()??,
        None => view.find_in_base(&BasePath::from_bytes(&path.as_bytes()[1..])?).ok()??,
    };
    let attr = file.attr();
    if attr.kind != FileKind::Regular || attr.size > MAX_RULES_BYTES {
        return None;
    }
    let mut content = vec![0; usize::try_from(attr.size).ok()?];
    let got = view.read(&file, 0, &mut content).ok()?;
    content.truncate(got);
    Some(content)
}
