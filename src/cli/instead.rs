//! What this program calls what other programs do.

/// Hints for names of commands that other programs have.
pub(super) const INSTEAD: &[(&[&str], &str)] = &[
    (
        &["revert", "reset", "rollback", "rewind", "redo", "checkout"],
        "`acetate restore SESSION.db CHECKPOINT` goes back to a checkpoint, `acetate undo \
         SESSION.db` takes back the last step, and a second one brings it back; `acetate discard \
         SESSION.db PATH` lets a path show the base again; `acetate apply --undo SESSION.db` \
         undoes the last apply",
    ),
    (&["rename", "move"], "`acetate mv SESSION.db FROM TO` renames in the tree"),
    (&["copy"], "`acetate cp SESSION.db FROM TO` copies into, out of and within the tree"),
    (&["delete", "del", "remove", "unlink"], "`acetate rm SESSION.db PATH` removes from the tree"),
    (
        &["link", "symlink"],
        "`acetate ln SESSION.db TARGET PATH` makes links, symbolic ones with -s",
    ),
    (&["commit", "push", "save"], "`acetate apply SESSION.db` writes changes to the base"),
    (&["patch", "changes", "show"], "`acetate diff SESSION.db --patch` prints changes as a patch"),
    (&["history", "audit", "blame"], "`acetate log SESSION.db [PATH]` shows who changed what"),
    (
        &["prune", "gc", "vacuum"],
        "`acetate log prune` shortens the log, `acetate compact` the file",
    ),
    (&["exec", "shell", "sandbox"], "`acetate run SESSION.db --base DIR -- CMD` runs a command"),
    (&["unmount"], "`acetate umount DIR` unmounts"),
    (&["start", "server", "export-nfs"], "`acetate serve SESSION.db` serves a session"),
    (&["stop"], "`acetate sessions` shows the servers; SIGTERM ends one, `acetate umount` another"),
    (&["new", "create"], "`acetate init SESSION.db --base DIR` creates a session"),
    (&["backup", "clone"], "`acetate snapshot SESSION.db NEW.db` copies a session"),
    (&["list", "ps"], "`acetate ls SESSION.db` lists the tree, `acetate sessions` what is served"),
    (&["repair", "fsck"], "`acetate check SESSION.db` checks, and mends with --repair"),
    (&["tar", "archive"], "`acetate export SESSION.db --tar FILE` writes an archive"),
];
