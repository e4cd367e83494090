//! Reports the events of mounting on stderr.

use std::path::Path;

use super::{choosing, hiding, output, text};
use crate::delta::PendingCopies;
use crate::mounting::detach::{ServerFate, ServerUse};
use crate::mounting::event::MountEvent;
use crate::mounting::mount_users::named;
use crate::system_error::words;

/// Prints a line for an event.
pub(super) fn tell(event: MountEvent) {
    match event {
        MountEvent::Created(session) => choosing::tell_created(&session),
        MountEvent::ServerNotStopped(error) => output::error(&error.into()),
        event => {
            if let Some(line) = line(&event) {
                output::line(format_args!("{line}"));
            }
        }
    }
}

/// The line for an event; `None` for those that need more than a line.
fn line(event: &MountEvent) -> Option<String> {
    Some(match event {
        MountEvent::Created(_) | MountEvent::ServerNotStopped(_) => return None,
        MountEvent::Hides { session, patterns } => {
            format!("{}{}", session.display(), hiding::suffix(patterns))
        }
        MountEvent::ServerSaid(line) => line.clone(),
        MountEvent::WaitsForLock { holder, session, left } => {
            let holder = match holder {
                Some(pid) => format!("process {pid}"),
                None => "another process".to_owned(),
            };
            let session = session.display();
            format!(
                "waiting for {holder}, which mounts or unmounts {session}{}",
                left_to_copy(*left)
            )
        }
        MountEvent::WaitsForServer { pid, left } => {
            format!("waiting for the server (process {pid}){}", left_to_copy(*left))
        }
        MountEvent::CopiesLeft { session, left } => {
            let session = session.display();
            format!("{session}{} (see {session}.log)", left_to_copy(*left))
        }
        MountEvent::EndsLeftovers(users) => {
            format!("ending what the command left behind: {}", named(users))
        }
        MountEvent::OtherReleased { dir, session } => {
            let (dir, session) = (dir.display(), session.display());
            format!("{dir}: {session} was mounted there; its server has ended")
        }
        MountEvent::DeadRunReleased { session, server } => {
            let server = match server {
                ServerFate::Stopped => "its server has ended".to_owned(),
                ServerFate::GoesOn { pid, used } => goes_on(*pid, *used),
                ServerFate::Unknown => "its server was gone, too".to_owned(),
            };
            format!("a run of {} was killed; {server}", session.display())
        }
        MountEvent::Syncs(dir) => {
            format!("waiting until {} has sent what programs wrote", mount_name(dir))
        }
        MountEvent::NotSynced { dir, error } => format!(
            "warning: {}: not synced: {}: what programs wrote there last may arrive later",
            mount_name(dir),
            words(error)
        ),
        MountEvent::BaseReachable { base, at, error } => {
            let at = text::name(at.as_os_str().as_encoded_bytes());
            format!("{} can still be reached at {at}: {}", base.display(), words(error))
        }
    })
}

fn mount_name(dir: &Path) -> String {
    text::name(dir.as_os_str().as_encoded_bytes())
}

/// Has the mounts of a session on this machine send what programs wrote. Elsewhere than on Linux,
/// the user does that.
pub(super) fn sync_mounts(session: &Path) {
    #[cfg(target_os = "linux")]
    crate::mounting::client_sync::sync_mounts(session, &tell);
    #[cfg(not(target_os = "linux"))]
    let _ = session;
}

/// The rest of pending copy-ups as a suffix: `: N files, BYTES left to copy`.
pub(super) fn left_to_copy(left: PendingCopies) -> String {
    match left {
        PendingCopies { files, bytes } if files > 0 => {
            format!(": {}, {} left to copy", text::count(files, "file"), text::bytes(bytes))
        }
        _ => String::new(),
    }
}

/// Says that a server continues, if it does.
pub(super) fn tell_goes_on(server: &ServerFate) {
    if let ServerFate::GoesOn { pid, used } = server {
        output::line(format_args!("{}", goes_on(*pid, *used)));
    }
}

/// Why a server continues.
pub(super) fn goes_on(pid: u32, used: ServerUse) -> String {
    let why = match used {
        ServerUse::NotForMounts => "it was there before the mount",
        ServerUse::OtherMount => "the session is mounted elsewhere, too",
        ServerUse::HiddenUsers => {
            "programs may still use the mount; once they have ended, unmount it again"
        }
    };
    format!("its server (process {pid}) continues: {why}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_is_left_to_copy_is_told_and_no_work_is_not() {
        let (session, left) = (PathBuf::from("/s.db"), PendingCopies { files: 2, bytes: 1536 });
        let waits = MountEvent::WaitsForLock { holder: None, session: session.clone(), left };
        assert_eq!(
            line(&waits).unwrap(),
            "waiting for another process, which mounts or unmounts /s.db: 2 files, 1.5 KiB left \
             to copy"
        );
        let waits = MountEvent::WaitsForServer { pid: 7, left: PendingCopies::default() };
        assert_eq!(line(&waits).unwrap(), "waiting for the server (process 7)");
        let done = MountEvent::CopiesLeft { session, left: PendingCopies { files: 1, bytes: 9 } };
        assert_eq!(line(&done).unwrap(), "/s.db: 1 file, 9 B left to copy (see /s.db.log)");
    }
}
