//! Checks a session against every invariant of docs/SCHEMA.md.

use std::path::Path;

use super::error::Result;
use super::opened::OpenSession;
use crate::base::{Base, BaseError, HostDir, HostDirOptions};
use crate::delta::MergedPath;
use crate::delta::sqlite::{
    Breach, Broken, CheckOptions, CheckReport, Pending, RedirectedDir, Session,
};
use crate::overlay::is_as_it_was;
use crate::vfs::FileKind;

/// The findings of a check.
#[derive(Debug)]
pub struct Soundness {
    /// The broken invariants, in the order of docs/SCHEMA.md.
    pub broken: Vec<Broken>,
    /// Another implementation created the file, or wrote to it since acetate last served it.
    pub is_foreign: bool,
}

impl Soundness {
    /// Whether every finding is a note: acetate works with the session as it is.
    pub fn is_sound(&self) -> bool {
        self.findings() == 0
    }

    /// Whether another program wrote to the session and left notes that `repair` would clear. Notes
    /// of C3 and R1 do not count: they are about the base.
    pub fn has_foreign_damage(&self) -> bool {
        let is_of_file = |broken: &Broken| broken.is_note && !matches!(broken.rule, "C3" | "R1");
        self.is_foreign && self.broken.iter().any(is_of_file)
    }

    /// The number of findings that are not notes.
    pub fn findings(&self) -> u64 {
        self.broken.iter().filter(|broken| !broken.is_note).map(|broken| broken.count).sum()
    }

    /// The number of notes.
    pub fn notes(&self) -> u64 {
        self.broken.iter().filter(|broken| broken.is_note).map(|broken| broken.count).sum()
    }
}

/// Checks the session `path`, also while a server has it open. The base is `base`, or the one that
/// the session records.
///
/// The base is read only for files with pending chunks and for redirected directories. Where the
/// base cannot be read, the check of the pending files becomes a note.
///
/// # Errors
/// `path` is not a session, or cannot be read.
pub fn check(path: &Path, base: Option<&Path>, options: &CheckOptions) -> Result<Soundness> {
    let report = Session::check(path, options)?;
    let CheckReport { mut broken, is_foreign, pending, redirected, base_path } = report;
    let base = base.or(base_path.as_deref());
    if !pending.is_empty() {
        let lost = check_pending(&pending, base, options.most);
        // Keeps the order of docs/SCHEMA.md.
        let at = broken.iter().position(|broken| matches!(broken.rule, "R1" | "L1"));
        let at = at.unwrap_or(broken.len());
        broken.splice(at..at, lost);
    }
    let at = broken.iter().position(|broken| broken.rule == "L1").unwrap_or(broken.len());
    broken.splice(at..at, check_redirect_targets(path, &redirected, base, options.most));
    Ok(Soundness { broken, is_foreign })
}

/// R1: a directory whose redirect target is missing shows nothing of the base. This is a note,
/// because the base directory may come back.
fn check_redirect_targets(
    session: &Path,
    dirs: &[RedirectedDir],
    base: Option<&Path>,
    most: usize,
) -> Option<Broken> {
    let dir = base;
    let base = HostDir::open(base.filter(|_| !dirs.is_empty())?, HostDirOptions::default()).ok()?;
    // An unfinished apply may still have to put the directory in place.
    if base.has_unfinished_apply().unwrap_or(true) {
        return None;
    }
    let is_gone = |dir: &&RedirectedDir| match base.stat(&dir.base) {
        Ok(attr) => attr.kind != FileKind::Directory,
        Err(error) => matches!(error, BaseError::NotFound),
    };
    let mut gone: Vec<_> = dirs.iter().filter(is_gone).collect();
    // The base may have moved the directory as the session did.
    if !gone.is_empty()
        && let Ok(lost) = OpenSession::open(session, dir).and_then(|opened| opened.lost_dirs())
    {
        let is_lost = |path: &[u8]| lost.iter().any(|lost| lost.path.as_bytes() == path);
        gone.retain(|dir| dir.path.as_ref().is_none_or(|path| is_lost(path)));
    }
    let breach = |dir: &&RedirectedDir| {
        let moved = MergedPath::of_base(&dir.base);
        let what = format!("the base has no directory at {} any more", moved.display());
        Breach { ino: Some(dir.ino), path: dir.path.clone(), what }
    };
    let first = gone.iter().take(most).map(breach).collect();
    let count = gone.len() as u64;
    (count > 0).then_some(Broken { rule: "R1", is_note: true, count, first })
}

/// C3: pending chunks are valid only while the base file is unchanged.
fn check_pending(pending: &[Pending], base: Option<&Path>, most: usize) -> Option<Broken> {
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
