//! Hints that name commands and options, for errors of the layers below.

use std::borrow::Cow;

use super::apply;
use super::shell_words::quoted;
use crate::base::BaseError;
use crate::config::ConfigError;
use crate::context::{ContextError, NodeStatus};
use crate::control::{Refusal, RefusalAdvice};
use crate::delta::postgres::{DatabaseConnectError, HoldError, SessionError};
use crate::delta::sqlite::OpenError;
use crate::inspect::InspectError;
use crate::vfs::FsError;
use crate::workspace::Error as WorkspaceError;

/// What the user can do about a session whose recorded base is gone.
pub(super) const MOVED_BASE: &str = "the session names this directory; if the tree is at another \
    place now, name that with --base DIR; with changes, commands that change the session, `serve`, \
    `mount` and `run` need --base DIR --moved, which records it";

/// What the user can do about a session that cannot be opened.
pub(super) fn of_open(error: &OpenError) -> Option<&'static str> {
    match error {
        OpenError::Missing { .. } => Some("create it with `acetate init`, or check the path"),
        OpenError::OldSpec { .. } => {
            Some("`acetate migrate SESSION.db` brings it to version 0.4, and keeps a copy")
        }
        error => error.hint(),
    }
}

/// What the user can do about a session in a database that cannot be used.
pub(super) fn of_database(error: &HoldError) -> Option<&'static str> {
    match error {
        HoldError::Held { .. } => Some(
            "stop that server, or wait for its end with --standby; a server that is silent loses \
             the session by itself",
        ),
        HoldError::Connect(DatabaseConnectError::Password) => {
            Some("put the password in PGPASSWORD, or in ~/.pgpass with mode 600")
        }
        HoldError::Connect(DatabaseConnectError::Database(_) | DatabaseConnectError::Silent) => {
            Some("check the host, the port and the database in the URL, and whether it runs")
        }
        HoldError::Session(SessionError::Missing(_)) => {
            Some("check the name and `schema=`; without --existing, `serve` makes the session")
        }
        HoldError::Session(SessionError::Newer(_) | SessionError::NewerSchema(_)) => {
            Some("use a newer acetate")
        }
        HoldError::Session(error) if error.is_denied() => Some(
            "the role needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its \
             tables; to make the schema, CREATE in the database; docs/POSTGRES.md has the \
             statements under \"Roles\"",
        ),
        HoldError::Session(SessionError::Database(_)) => Some("the database's log may say more"),
        HoldError::Session(SessionError::InDoubt(_)) => Some("the same command again finds out"),
        HoldError::Connect(DatabaseConnectError::Passwords(_)) => {
            Some("make ~/.pgpass readable, or name another file with PGPASSFILE")
        }
        HoldError::Connect(DatabaseConnectError::Tls(_)) => {
            Some("install the certificates of this machine (ca-certificates)")
        }
        HoldError::Connect(DatabaseConnectError::Old(_)) | HoldError::Session(_) => None,
    }
}

/// What the user can do about an exports file that cannot be read.
pub(super) fn of_config(error: &ConfigError) -> Option<String> {
    let of_fault = error.hint().map(str::to_owned);
    let (Some(file), Some(name)) = (error.broken_of(), error.broken_exports().into_iter().next())
    else {
        return of_fault;
    };
    let (file, name) = (quoted(&file.to_string_lossy()), quoted(&name));
    let removal = format!("remove each that is broken: `acetate exports rm {file} {name}`");
    Some(match of_fault {
        Some(hint) => format!("{hint}; or {removal}"),
        None => removal,
    })
}

/// What the user can do about an export that cannot be served: the keys of the exports file take
/// the place of options.
pub(super) fn of_export(error: &WorkspaceError) -> Option<&'static str> {
    match error {
        WorkspaceError::Base { source: BaseError::Denied, .. } => None,
        WorkspaceError::Base { is_recorded: true, .. } => Some(
            "the session names this directory; if the tree is at another place now, name that \
             with the key `base` of the mount in the exports file",
        ),
        WorkspaceError::Base { .. } => {
            Some("name an existing directory with the key `base` of the mount in the exports file")
        }
        WorkspaceError::ChunkSize { .. } => {
            Some("remove the key `chunk_size` of the mount; it is for new sessions")
        }
        WorkspaceError::NotMoved { .. } => Some(
            "name the tree that the session was made over with the key `base` of the mount: at \
             least half of the files that it copied up have to be there, with their type and size",
        ),
        WorkspaceError::CopiedBase { .. } => Some(
            "each server needs the same filesystem, as file handles name its inodes: mount it \
             there; to take a copy for good, serve the session once with `acetate serve URL \
             --base DIR --moved`",
        ),
        WorkspaceError::Database { source, .. } if matches!(**source, HoldError::Held { .. }) => {
            Some(
                "the other server gives it back when its export is idle, or when it stops; if it \
                 is silent, a mount or call here takes the session after the term",
            )
        }
        _ => None,
    }
}

/// What the user can do about the failure of a tool.
pub(super) fn of_inspect(error: &InspectError) -> Option<&str> {
    match error {
        InspectError::Open(error) => of_open(error),
        InspectError::Database { source, .. } => of_database(source),
        InspectError::Refused { advice, .. } => Some(apply::advice::words(*advice)),
        InspectError::Base { is_recorded: true, .. } => Some(MOVED_BASE),
        InspectError::NoAudit { .. } => Some(
            "only acetate keeps one, from its first change on; `acetate diff` shows what \
             the session changed",
        ),
        InspectError::NoRoom { .. } => {
            Some("`acetate seal --dry-run` shows what uses the space; make room on that disk")
        }
        InspectError::Path { source: FsError::Loop, .. } => {
            Some("`acetate check` names it, `acetate check --repair` detaches it")
        }
        InspectError::Unknown { is_from_root: true, .. } => {
            Some("paths are those in the mount; `acetate diff` lists what changed")
        }
        error => error.hint(),
    }
}

/// What the user can do about a failed operation on context nodes.
pub(super) fn of_context(error: &ContextError) -> Option<&str> {
    match error {
        ContextError::NoNode { is_changing: true, .. } => Some(
            "a change of it is under way, or was broken off; `acetate ctx repair SESSION.db` \
             finishes what was broken off",
        ),
        ContextError::NoNode { status: Some(NodeStatus::Pending), .. } => {
            Some("`acetate ctx repair SESSION.db` completes it if all of it is there")
        }
        ContextError::NoAbstract => Some("give one with --abstract TEXT"),
        ContextError::Unacknowledged { .. } => {
            Some("`acetate ctx outbox ls SESSION.db URI` shows them")
        }
        error => error.hint(),
    }
}

/// What the user can do about a refused request.
pub(super) fn of_refusal(refusal: &Refusal) -> Option<Cow<'_, str>> {
    let advice = refusal.advice.map(|advice| match advice {
        RefusalAdvice::Recurse => "use -r for a directory",
        RefusalAdvice::MakeParents => "-p makes the directories above, too",
        RefusalAdvice::FinishApply => {
            "wait until it has ended; if it was interrupted, run `acetate apply` with its session"
        }
        RefusalAdvice::ShowQuota => {
            "`acetate quota SESSION.db` shows what it takes, and sets other limits; removing \
             something makes room"
        }
    });
    match (advice, refusal.hint.as_deref()) {
        (Some(advice), Some(hint)) => Some(format!("{advice}; {hint}").into()),
        (advice, hint) => advice.or(hint).map(Cow::Borrowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::MergedPath;

    #[test]
    fn advice_stands_before_the_hint() {
        let at = |error| Refusal::at(&MergedPath::root(), error);
        assert_eq!(of_refusal(&at(FsError::NotFound)), None);
        assert_eq!(of_refusal(&at(FsError::IsDirectory)).unwrap(), "use -r for a directory");
        let more = Refusal { hint: Some("and more".to_owned()), ..at(FsError::Quota) };
        assert!(of_refusal(&more).unwrap().ends_with("makes room; and more"));
    }

    #[test]
    fn a_directory_among_its_own_parents_is_for_check() {
        let error = InspectError::at(&MergedPath::root(), FsError::Loop);
        assert!(of_inspect(&error).unwrap().contains("`acetate check --repair`"));
        assert!(!error.hint().unwrap().contains('`'));
    }
}
