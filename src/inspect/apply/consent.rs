//! Checks a plan against the user's consent: drift, and merges that were not shown.

use std::ops::ControlFlow;

use super::advice::ApplyAdvice;
use super::drift::{DriftReason, Drifted};
use super::plan::{ApplyOptions, ApplyPlan};
use crate::inspect::InspectError;
use crate::inspect::diff::Difference;
use crate::inspect::error::Result;

/// The changes that the user agreed to.
pub enum Consent<'a> {
    /// Those of this plan, which was shown before; a change that differs from it is left out.
    Shown(&'a ApplyPlan),
    /// All changes of a plan that is made now, and shown.
    All(&'a mut dyn ShowPlan),
}

/// Shows a plan while it is made.
pub trait ShowPlan {
    /// Shows the next difference of the plan.
    fn difference(&mut self, difference: &Difference);

    /// Shows the whole plan before any object is made; `Break` stops the apply.
    fn plan(&mut self, plan: &ApplyPlan) -> ControlFlow<()>;
}

/// Refuses drift for which no option decides, and drift and merges that were not shown.
pub(super) fn check_consent(
    plan: &ApplyPlan,
    shown: Option<&ApplyPlan>,
    options: &ApplyOptions,
) -> Result<()> {
    let is_unseen = |drifted: &Drifted| shown.is_some_and(|s| !s.drifted.contains(drifted));
    let may_stay = options.force || options.skip_drifted;
    let is_left = |drifted: &Drifted| options.skip_drifted || plan.is_taken_from_base(drifted);
    let stops = plan
        .drifted
        .iter()
        .filter(|drifted| !is_left(drifted) && (!may_stay || is_unseen(drifted)));
    let mut stops: Vec<_> = stops.map(|drifted| (&drifted.path, drifted.reason.as_str())).collect();
    let merged = plan.merged.iter().filter(|m| shown.is_some_and(|s| !s.merged.contains(m)));
    stops.extend(merged.map(|merged| (&merged.path, DriftReason::Changed.as_str())));
    let Some((path, why)) = stops.first() else { return Ok(()) };
    let others = match stops.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    Err(InspectError::Refused {
        what: format!("{}: {why}{others}", path.display()),
        advice: ApplyAdvice::PlanAgain,
    })
}
