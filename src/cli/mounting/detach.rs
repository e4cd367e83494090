//! Unmounts, and stops a server that was started for the mount.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub(in crate::cli) use super::call::Unmounting;
use super::call::unmount;
use super::mount_lock::MountLock;
use super::mount_users;
use super::namespace_processes;
use super::note::Note;
use super::point::MountPoint;
use super::served::served;
#[cfg(target_os = "linux")]
use super::stage;
use super::{server, table};
use crate::cli::error::CliError;
use crate::cli::output;

/// The time for processes of a command to end: by themselves, and after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// The time between two attempts to unmount.
const TRY_INTERVAL: Duration = Duration::from_millis(50);

/// What happened to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum ServerFate {
    /// The server was started for the mount and is stopped.
    Stopped,
    /// The server continues, for this reason.
    GoesOn { pid: u32, why: &'static str },
    /// No server was found.
    Unknown,
}

/// Unmounts the mount at `point`; if it is in use, the error lists the processes.
pub(in crate::cli) fn unmount_dir(point: &MountPoint, how: Unmounting) -> Result<(), CliError> {
    let dir = point.path();
    let shown = dir.display();
    unmount(point, how).map_err(|error| {
        if error.kind() != ErrorKind::ResourceBusy {
            return CliError::caused(format_args!("cannot unmount {shown}"), &error);
        }
        let holders = mount_users::mount_users(dir);
        let by = if holders.is_empty() {
            String::new()
        } else {
            format!(" by {}", mount_users::named(&holders))
        };
        CliError::new(format_args!("{shown}: in use{by}")).with_hint(format_args!(
            "end that, or leave the directory, then: acetate umount {shown} (with \
             --lazy the mount is hidden at once, and they may finish)"
        ))
    })
}

/// Unmounts the mount at `point` that was private to a command that has ended. Ends processes that
/// the command left behind.
pub(in crate::cli) fn unmount_private(point: &MountPoint) -> Result<(), CliError> {
    let dir = point.path();
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        if let Some(signal) = signal {
            let holders = mount_users::mount_users(dir);
            if signal == Signal::TERM && !holders.is_empty() {
                let named = mount_users::named(&holders);
                output::line(format_args!("ending what the command left behind: {named}"));
            }
            mount_users::end(&holders, signal);
        }
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            match unmount(point, Unmounting::default()) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    thread::sleep(TRY_INTERVAL)
                }
                Err(error) => {
                    let what = format!("cannot unmount {}", dir.display());
                    return Err(CliError::caused(what, &error));
                }
                Ok(()) => return Ok(()),
            }
        }
    }
    unmount_dir(point, Unmounting { lazy: true, force: false })
}

/// Deletes the note of a mount that is gone, and stops its server if that was started for mounts
/// and this was the last one. The lock on the session keeps new mounts away. With `in_use`, for a
/// lazy unmount that processes may still use, both stay.
pub(in crate::cli) fn release(
    note: &Note,
    child: Option<Child>,
    in_use: bool,
) -> Result<ServerFate, CliError> {
    let _turn = MountLock::take(&note.session)?;
    #[cfg(target_os = "linux")]
    stage::clear(&note.dir);
    let pid = match &child {
        Some(child) => Some(child.id()),
        None => served(&note.session)?.map(|served| served.pid),
    };
    let mounted = table::mounted()?;
    let mut others = Note::all()
        .into_iter()
        .filter(|other| other.session == note.session && !other.is_of_same_mount(note));
    let is_mounted = |other: &Note| match other.run {
        Some(run) => run.is_live(other.reached()),
        None => mounted.iter().any(|at| at.dir == other.dir && at.is_nfs()),
    };
    let is_hidden = |other: &Note| other.is_hidden && other.started == note.started;
    let by_hand = mounted.iter().any(|at| at.server == Some(note.reached()));
    let is_used = by_hand || others.any(|other| is_hidden(&other) || is_mounted(&other));
    let Some(pid) = pid else {
        note.forget();
        return Ok(ServerFate::Unknown);
    };
    if note.started != Some(pid) {
        note.forget();
        return Ok(ServerFate::GoesOn { pid, why: "it was there before the mount" });
    }
    if is_used {
        note.forget();
        return Ok(ServerFate::GoesOn { pid, why: "the session is mounted elsewhere, too" });
    }
    if in_use {
        Note { is_hidden: true, ..note.clone() }.write()?;
        let why = "programs may still use the mount; once they have ended, unmount it again";
        return Ok(ServerFate::GoesOn { pid, why });
    }
    // The note is deleted last, so that an interrupted unmount can be repeated.
    server::stop(pid, &note.session, child)?;
    note.forget();
    // A read-only server leaves the WAL of a killed server as it was.
    if !note.is_read_only {
        server::check_closed(&note.session)?;
    }
    Ok(ServerFate::Stopped)
}

/// Releases the session mounted at `dir` earlier, if it is not `session` and was unmounted without
/// acetate. Its server would be lost when the note of `dir` is replaced. The caller must not hold a
/// [`MountLock`].
///
/// # Errors
/// Processes may still use the earlier mount.
pub(in crate::cli) fn release_other(dir: &Path, session: &Path) -> Result<(), CliError> {
    let Some(note) = Note::of(dir).filter(|note| note.session != session) else {
        return Ok(());
    };
    if table::at(dir)?.is_some() {
        return Ok(());
    }
    let (shown, other) = (dir.display(), note.session.display());
    if note.is_hidden && served(&note.session)?.map(|served| served.pid) == note.started {
        let what = format!("{shown}: {other} was hidden there, and programs may still use it");
        let hint = format!("once they have ended, stop its server: acetate umount {shown}");
        return Err(CliError::new(what).with_hint(hint));
    }
    match release(&note, None, false)? {
        ServerFate::Stopped => {
            output::line(format_args!("{shown}: {other} was mounted there; its server has ended"))
        }
        ServerFate::GoesOn { .. } | ServerFate::Unknown => {}
    }
    Ok(())
}

/// Stops the servers of killed runs, of `session` or of all, that have no process left in their
/// namespaces. Reports each and returns their number. The caller must not hold a [`MountLock`].
pub(in crate::cli) fn release_dead(session: Option<&Path>) -> Result<usize, CliError> {
    let notes = Note::all().into_iter();
    let asked_for = notes.filter(|note| session.is_none_or(|session| note.session == session));
    let is_dead = |note: &Note| note.run.is_some_and(|run| !run.is_live(note.reached()));
    let dead: Vec<Note> = asked_for.filter(is_dead).collect();
    for note in &dead {
        let session = note.session.display();
        let server = match release(note, None, false)? {
            ServerFate::Stopped => "its server has ended".to_owned(),
            ServerFate::GoesOn { pid, why } => format!("its server (process {pid}) goes on: {why}"),
            ServerFate::Unknown => "its server was gone, too".to_owned(),
        };
        output::line(format_args!("a run of {session} was killed; {server}"));
    }
    Ok(dead.len())
}

/// Ends the processes left in the namespace of this `run`, after its process there was killed.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(in crate::cli) fn end_left(note: &Note) {
    let Some(number) = note.run.and_then(|run| run.namespace) else {
        return;
    };
    let server = note.reached();
    mount_users::end_all(&|| namespace_processes::processes(number, server));
}

/// Whether a server has the session.
pub(in crate::cli) fn is_served(session: &Path) -> Result<bool, CliError> {
    Ok(served(session)?.is_some())
}
