//! What the user can do about a refused apply.

/// What the user can do about a refused apply or undo. Commands name their options for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyAdvice {
    /// Nothing was written: look at the plan as it is now, and decide again.
    PlanAgain,
    /// Wait until the other apply has ended.
    Wait,
    /// An apply of this session was interrupted: finish it first.
    FinishFirst,
    /// An apply of another session was interrupted: finish it first, with that session.
    FinishOther,
    /// Apply again what was undone, or give it up by keeping nothing.
    RedoOrGiveUp,
    /// Keep nothing of what is replaced and removed. Then the apply cannot be undone.
    KeepNothing,
    /// Keep nothing, or name the paths to apply without this one.
    KeepNothingOrLeaveOut,
    /// Keep more, or nothing.
    KeepMoreOrNothing,
    /// Repeat the command, which finishes what was begun, or keep nothing.
    RepeatOrKeepNothing,
    /// Repeat the command: it finishes what was begun.
    Repeat,
    /// Fix the cause, and repeat the command: without that, the session would lose content.
    MendAndRepeat,
    /// Nothing was written: fix the cause, and repeat the command.
    MendAndStartOver,
    /// The next apply deletes what another session of this name kept.
    NextApplyDeletes,
    /// Name the directory to which the last apply was.
    NameLastTarget,
    /// Name the directory to which the last apply was, or none if that is the base.
    NameLastTargetOrNone,
    /// The directory of the last apply is gone: the kept copies stay until the next apply.
    KeptUntilNextApply,
    /// The copy of the base lacks what the session moved.
    CopyLacksMoved,
    /// Make a copy of the base first.
    MakeCopy,
    /// The copy is the base: name no copy.
    NameNoCopy,
    /// Name a copy of the base that is elsewhere.
    NameOtherCopy,
    /// Name the directory to write to.
    NameTarget,
    /// Name the paths to apply, without this one.
    LeavePathOut,
    /// Check the permissions of the directory, or name the paths to apply without it.
    PermitOrLeaveOut,
    /// Mount the filesystem read-write, or apply to a copy.
    MountReadWrite,
    /// Apply as a user who may write there, or to a copy.
    ApplyAsOther,
    /// Give the owner of the directory all rights in it, and repeat the command.
    OpenTop,
    /// Also name the directory that was moved, to apply its move.
    NameMovedDir,
    /// Also name the path to which the object was moved, to apply its move.
    NameMovedTo,
    /// Name the whole directory that stays as the base has it.
    NameWholeDir,
    /// Also name the other end of a move, to take the base's side there too.
    NameOtherEnd,
    /// Name the whole git directory whose state in the base counts.
    NameGitDir,
}
