//! Whether a session is sound: every invariant of docs/SCHEMA.md.

use std::path::Path;

use super::error::Result;
use crate::base::{Base, BaseError, HostDir, HostDirOptions};
use crate::delta::MergedPath;
use crate::delta::sqlite::{
    Breach, Broken, CheckOptions, CheckReport, Pending, RedirectedDir, Session,
};
use crate::overlay::is_as_it_was;
use crate::vfs::FileKind;

/// What checking a session came to.
#[derive(Debug)]
pub struct Soundness {
    /// The broken rules, in the order of docs/SCHEMA.md.
    pub broken: Vec<Broken>,
    /// Whether another implementation made the file, or wrote to it since it was last served.
    pub is_foreign: bool,
}

impl Soundness {
    /// Whether nothing is broken but what acetate can live with.
    pub fn is_sound(&self) -> bool {
        self.findings() == 0
    }

    /// Whether another program wrote to it, and broke what acetate can live with: `repair` would
    /// mend that.
    pub fn is_odd(&self) -> bool {
        let is_of_file = |broken: &Broken| broken.is_note && !matches!(broken.rule, "C3" | "R1");
        self.is_foreign && self.broken.iter().any(is_of_file)
    }

    /// How much is broken that acetate cannot live with.
    pub fn findings(&self) -> u64 {
        self.broken.iter().filter(|broken| !broken.is_note).map(|broken| broken.count).sum()
    }

    /// How much is worth a note only.
    pub fn notes(&self) -> u64 {
        self.broken.iter().filter(|broken| broken.is_note).map(|broken| broken.count).sum()
    }
}

/// Checks the session `path`; a server may have it. The base is `base`, or the one that the session
/// names. Only the files whose content is partly still there, and the directories that moved, are
/// looked up in it; where the base cannot be read, the files get a note.
///
/// # Errors
/// It is no session, or cannot be read.
pub fn check(path: &Path, base: Option<&Path>, options: &CheckOptions) -> Result<Soundness> {
    let report = Session::check(path, options)?;
    let CheckReport { mut broken, is_foreign, pending, redirected, base_path } = report;
    let base = base.or(base_path.as_deref());
    if !pending.is_empty() {
        let lost = believed(&pending, base, options.most);
        // Behind its neighbours, where docs/SCHEMA.md has it.
        let at = broken.iter().position(|broken| matches!(broken.rule, "R1" | "L1"));
        let at = at.unwrap_or(broken.len());
        broken.splice(at..at, lost);
    }
    let at = broken.iter().position(|broken| broken.rule == "L1").unwrap_or(broken.len());
    broken.splice(at..at, led_nowhere(&redirected, base, options.most));
    Ok(Soundness { broken, is_foreign })
}

/// R1: nothing of the base shows through a directory whose base directory is gone. It may come
/// back, so that is a note.
fn led_nowhere(dirs: &[RedirectedDir], base: Option<&Path>, most: usize) -> Option<Broken> {
    let base = HostDir::open(base.filter(|_| !dirs.is_empty())?, HostDirOptions::default()).ok()?;
    // A directory may be on its way.
    if base.has_unfinished_apply().unwrap_or(true) {
        return None;
    }
    let is_gone = |dir: &&RedirectedDir| match base.stat(&dir.base) {
        Ok(attr) => attr.kind != FileKind::Directory,
        Err(error) => matches!(error, BaseError::NotFound),
    };
    let gone: Vec<_> = dirs.iter().filter(is_gone).collect();
    let breach = |dir: &&RedirectedDir| {
        let moved = MergedPath::of_base(&dir.base);
        let what = format!("the base has no directory at {} any more", moved.display());
        Breach { ino: Some(dir.ino), path: dir.path.clone(), what }
    };
    let first = gone.iter().take(most).map(breach).collect();
    let count = gone.len() as u64;
    (count > 0).then_some(Broken { rule: "R1", is_note: true, count, first })
}

/// C3: what is pending of a file is believed while its base file is as it was.
fn believed(pending: &[Pending], base: Option<&Path>, most: usize) -> Option<Broken> {
    let not_asked = |what: String| {
        let first = vec![Breach { ino: None, path: None, what }];
        Some(Broken { rule: "C3", is_note: true, count: 1, first })
    };
    let Some(base) = base else { return not_asked("not checked: there is no base".to_owned()) };
    let dir = match HostDir::open(base, HostDirOptions::default()) {
        Ok(dir) => dir,
        Err(error) => {
            return not_asked(format!("not checked: base {}: {error}", base.display()));
        }
    };
    let mut broken = Broken { rule: "C3", is_note: false, count: 0, first: Vec::new() };
    for file in pending {
        let what = match dir.stat(&file.origin.path) {
            Ok(attr) if is_as_it_was(&file.origin, &attr) => continue,
            Ok(_) => "its base file changed before it was copied".to_owned(),
            Err(error) => format!("its base file cannot be read: {error}"),
        };
        broken.count += 1;
        if broken.first.len() < most {
            broken.first.push(Breach { ino: Some(file.ino), path: file.path.clone(), what });
        }
    }
    (broken.count > 0).then_some(broken)
}
