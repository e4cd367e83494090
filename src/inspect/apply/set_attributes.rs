//! The steps that set attributes of objects in the target.
//!
//! Each attribute is compared by itself with what the plan saw. One that the plan does not change
//! is not set, and one that something else changed stays as it is, and is reported. The time of a
//! directory is not reported: it follows from its entries.

use super::locked_dirs::{is_opened, open_attrs};
use super::step_failure::StepFailure;
use super::step_runner::StepRunner;
use super::steps::Set;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::writeback::{Attrs, ChangedByOther};

/// The end of why an attribute is left as it is.
const CHANGED: &str = "changed after the plan was made";

impl StepRunner<'_> {
    pub(super) fn set(&mut self, set: &Set) -> std::result::Result<(), StepFailure> {
        let Some(now) = self.target.dir.look(&set.path)? else {
            return Err(StepFailure::Skip("it was removed after the plan was made".to_owned()));
        };
        if now.kind != set.attrs.kind || set.seen.as_ref().is_some_and(|seen| !seen.is(&now)) {
            return Err(StepFailure::Skip(
                "another object took its place after the plan was made".to_owned(),
            ));
        }
        let Some(from) = &set.from else {
            // The journal of an older version does not say what the plan saw.
            self.not_set.add(self.target.dir.set(&set.path, &open_attrs(&set.attrs))?);
            return Ok(());
        };
        let (mut from, mut to) = (from.clone(), set.attrs.clone());
        // A directory that the owner may not enter is closed after all steps.
        if is_opened(self.journal, now.ino) {
            (from, to) = (open_attrs(&from), open_attrs(&to));
        } else if from.mode != to.mode {
            to = open_attrs(&to);
        }
        self.dir_times.adjust(&now, &mut from, &mut to);
        let (unset, changed) = self.target.dir.change(&set.path, &from, &to)?;
        self.not_set.add(unset);
        let Some(what) = words(changed, now.is_dir()) else { return Ok(()) };
        match set.change.filter(|change| !self.placed.contains(change)) {
            Some(_) => Err(StepFailure::Skip(format!("{what} {CHANGED}"))),
            None => {
                let why = format!("{what} {CHANGED}, and stays");
                self.keep_attribute(MergedPath::of_base(&set.path), why).map_err(StepFailure::Stop)
            }
        }
    }

    /// Sets the attributes of the top, and notes in `top` those that it is to have without the
    /// staging.
    pub(super) fn set_top(&mut self) -> Result<()> {
        let root = BasePath::root();
        let Some(now) = self.checked(self.target.dir.object(&root))? else { return Ok(()) };
        let Some(to) = &self.journal.top else {
            self.top = Some(now.attrs);
            return Ok(());
        };
        let Some(from) = &self.journal.top_from else {
            self.not_set.add(self.checked(self.target.dir.set(&root, &open_attrs(to)))?);
            self.top = Some(to.clone());
            return Ok(());
        };
        let (mut from, mut to) = (from.clone(), to.clone());
        let is_closed_later = from.mode != to.mode;
        self.dir_times.adjust(&now.seen, &mut from, &mut to);
        let open = if is_closed_later { open_attrs(&to) } else { to.clone() };
        let (unset, changed) = self.checked(self.target.dir.change(&root, &from, &open))?;
        self.not_set.add(unset);
        let now = self.checked(self.target.dir.object(&root))?.map_or(now.attrs, |now| now.attrs);
        let is_open = is_closed_later && now.mode == open.mode;
        let mode = if is_open { to.mode } else { now.mode };
        self.top = Some(Attrs { mode, ..now });
        let Some(what) = words(changed, true) else { return Ok(()) };
        let why = format!("{what} {CHANGED}, and stays");
        let number = self.journal.changes.iter().position(|c| c.path == MergedPath::root());
        match number {
            Some(number) => self.skip(number, why),
            None => self.keep_attribute(MergedPath::root(), why),
        }
    }
}

/// The attributes that something else changed, as the subject of a sentence.
fn words(changed: ChangedByOther, is_dir: bool) -> Option<&'static str> {
    match (changed.mode, changed.owner, changed.time && !is_dir) {
        (true, true, _) => Some("its mode and owner"),
        (true, false, _) => Some("its mode"),
        (false, true, _) => Some("its owner"),
        (false, false, true) => Some("its time"),
        (false, false, false) => None,
    }
}
