//! A session and a fork of it, both served, and merges of the fork.

use std::io;
use std::path::Path;

use acetate::delta::{Checkpoint, NewCheckpoint};
use acetate::inspect::Result;
use acetate::inspect::merge::{MergeChoice, MergePlan, fork_points, plan_merge};
use acetate::overlay::{ChangeStep, ChangeSteps, StepsOutcome, TreeChangeError};
use acetate::vfs::FsError;

use super::client::Client;
use super::looked::look;
use super::world::World;

/// A session and a fork of it.
pub struct Forked {
    pub world: World,
    pub fork: World,
    pub point: Checkpoint,
}

/// Steps in memory, and the number of those that were taken.
struct ListedSteps {
    steps: Vec<ChangeStep>,
    taken: usize,
}

impl ListedSteps {
    fn new(steps: Vec<ChangeStep>) -> Self {
        Self { steps, taken: 0 }
    }
}

impl ChangeSteps for ListedSteps {
    fn restart(&mut self) -> io::Result<()> {
        self.taken = 0;
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<ChangeStep>> {
        self.taken += 1;
        Ok(self.steps.get(self.taken - 1).cloned())
    }
}

/// Plans the merge of a fork: the plan and its steps.
pub fn plan(
    session: &Path,
    fork: &Path,
    takes: &[MergeChoice],
) -> Result<(MergePlan, Vec<ChangeStep>)> {
    let (ours, theirs) = (look(session, None), look(fork, None));
    let (point, first) = fork_points(&ours, &theirs)?;
    let mut steps = Vec::new();
    let plan = plan_merge((&ours, &theirs), None, (&point, &first), takes, &mut |step| {
        steps.push(step);
        Ok(())
    })?;
    assert!(plan.conflicts.is_empty() || steps.is_empty(), "{plan:?}");
    Ok((plan, steps))
}

/// Takes the steps of a plan that has seen the log up to the row `seen`.
pub fn take_steps(
    client: &Client,
    seen: i64,
    steps: Vec<ChangeStep>,
) -> std::result::Result<StepsOutcome, FsError> {
    let safety = NewCheckpoint::before("merge fork.db".to_owned());
    let listed = Box::new(ListedSteps::new(steps));
    let done = client.wait(client.overlay.take_steps(&client.caller, (seen, safety), listed));
    done.map_err(of_filesystem)
}

/// The error of a change of the whole tree, which no export refuses.
#[track_caller]
pub fn of_filesystem(error: TreeChangeError) -> FsError {
    match error {
        TreeChangeError::Fs(error) => error,
        needed => panic!("{needed}"),
    }
}

/// Merges a fork, unless there are conflicts.
#[track_caller]
pub fn merge(world: &World, fork: &World, takes: &[MergeChoice]) -> MergePlan {
    let (plan, steps) = plan(&world.session(), &fork.session(), takes).unwrap();
    if !plan.conflicts.is_empty() {
        return plan;
    }
    let taken = take_steps(world, plan.seen, steps.clone());
    let is_done = matches!(taken, Ok(StepsOutcome::Done { .. }));
    assert!(is_done, "{taken:?}: {plan:#?} {steps:#?}");
    plan
}

impl Forked {
    /// Forks the session of a world.
    #[track_caller]
    pub fn new(world: World) -> Self {
        let point = world.checkpoint();
        let fork = world.fork(&point, "fork.db");
        Self { world, fork, point }
    }

    /// Merges, unless there are conflicts.
    #[track_caller]
    pub fn merge(&self, takes: &[MergeChoice]) -> MergePlan {
        merge(&self.world, &self.fork, takes)
    }
}
