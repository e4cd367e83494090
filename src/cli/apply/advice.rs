//! The hints of a refused apply: what the user can do.

use crate::inspect::apply::ApplyAdvice;

/// The hint for a piece of advice.
pub(in crate::cli) fn words(advice: ApplyAdvice) -> &'static str {
    match advice {
        ApplyAdvice::PlanAgain => {
            "nothing was written; run the command again to see the plan as it is now"
        }
        ApplyAdvice::Wait => "wait until it has ended",
        ApplyAdvice::FinishFirst => "run `acetate apply SESSION.db` to finish it",
        ApplyAdvice::FinishOther => "run `acetate apply` with that session to finish it",
        ApplyAdvice::RedoOrGiveUp => {
            "`acetate apply --undo` applies them again; --no-keep gives them up"
        }
        ApplyAdvice::KeepNothing => "--no-keep keeps nothing, and then there is no --undo",
        ApplyAdvice::KeepNothingOrLeaveOut => {
            "--no-keep keeps nothing, and then there is no --undo; or apply the rest without it: \
             ':!PATH'"
        }
        ApplyAdvice::KeepMoreOrNothing => {
            "--keep-limit SIZE keeps more; --no-keep keeps nothing, and then there is no --undo"
        }
        ApplyAdvice::RepeatOrKeepNothing => {
            "run the same command again: it finishes that; with --no-keep, nothing is kept"
        }
        ApplyAdvice::Repeat => "run the same command again: it finishes that",
        ApplyAdvice::MendAndRepeat => {
            "the session would lose it; fix that, and run the same command again"
        }
        ApplyAdvice::MendAndStartOver => {
            "nothing was written; fix that, and run the same command again"
        }
        ApplyAdvice::NextApplyDeletes => "the next apply deletes it",
        ApplyAdvice::NameLastTarget => "name that directory with --to DIR",
        ApplyAdvice::NameLastTargetOrNone => {
            "name that directory with --to, or leave --to out if it is the base"
        }
        ApplyAdvice::KeptUntilNextApply => {
            "the copies that it kept stay beside the session until the next apply"
        }
        ApplyAdvice::CopyLacksMoved => "what the session moved is not in this copy of the base",
        ApplyAdvice::MakeCopy => "--to is a copy of the base: make it first, with cp -a",
        ApplyAdvice::NameNoCopy => "leave --to out to write to the base",
        ApplyAdvice::NameOtherCopy => "name a copy of the base that is elsewhere",
        ApplyAdvice::NameTarget => "name the directory to write to with --to DIR",
        ApplyAdvice::LeavePathOut => "name the paths to apply, without this one",
        ApplyAdvice::PermitOrLeaveOut => {
            "check its permissions, or name the paths to apply without it"
        }
        ApplyAdvice::MountReadWrite => {
            "nothing was changed; mount it read-write, or apply to a copy of the base: --to DIR"
        }
        ApplyAdvice::ApplyAsOther => {
            "nothing was changed; apply as a user who may write there, or to a copy of the base: \
             --to DIR"
        }
        ApplyAdvice::OpenTop => "run `chmod u+rwx` on it, and then the same command again",
        ApplyAdvice::NameMovedDir => "name the directory that was moved, to apply the move too",
        ApplyAdvice::NameMovedTo => {
            "name the path that it was moved to as well, to apply that move too"
        }
        ApplyAdvice::NameOtherEnd => "name that path with --take base too, or leave both out",
        ApplyAdvice::NameWholeDir => "name that directory itself with --take base",
        ApplyAdvice::NameGitDir => "name the git directory itself with --take base",
    }
}
