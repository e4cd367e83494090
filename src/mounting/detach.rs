//! Unmounts, and stops a server that was started for the mount.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub(crate) use super::call::Unmounting;
use super::call::unmount;
use super::error::{MountError, PlaceAdvice, ServerAdvice};
use super::event::{MountEvent, Observer};
use super::mount_lock::MountLock;
use super::mount_users;
use super::namespace_processes;
use super::note::Note;
use super::point::MountPoint;
use super::served::served;
#[cfg(target_os = "linux")]
use super::stage;
use super::{server, table};

/// The time for processes of a command to end: by themselves, and after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// The time between two attempts to unmount.
const TRY_INTERVAL: Duration = Duration::from_millis(50);

/// What happened to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerFate {
    /// The server was started for the mount and is stopped.
    Stopped,
    /// The server continues, because it is used.
    GoesOn { pid: u32, used: ServerUse },
    /// No server was found.
    Unknown,
}

/// The use of a server that continues after an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerUse {
    /// It was not started for a mount.
    NotForMounts,
    /// The session is mounted elsewhere, too.
    OtherMount,
    /// Processes may still use the lazily unmounted mount.
    HiddenUsers,
}

/// Unmounts the mount at `point`; if it is in use, the error lists the processes.
pub(crate) fn unmount_dir(point: &MountPoint, how: Unmounting) -> Result<(), MountError> {
    let dir = point.path();
    let shown = dir.display();
    unmount(point, how).map_err(|error| {
        if error.kind() != ErrorKind::ResourceBusy {
            return MountError::caused(format_args!("cannot unmount {shown}"), &error);
        }
        let holders = mount_users::mount_users(dir);
        let by = if holders.is_empty() {
            String::new()
        } else {
            format!(" by {}", mount_users::named(&holders))
        };
        MountError::new(format_args!("{shown}: in use{by}"))
            .with_advice(PlaceAdvice::EndUsers(dir.to_owned()))
    })
}

/// Unmounts the mount at `point` that was private to a command that has ended. Ends processes that
/// the command left behind.
pub(crate) fn unmount_private(point: &MountPoint, tell: Observer<'_>) -> Result<(), MountError> {
    let dir = point.path();
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        if let Some(signal) = signal {
            let holders = mount_users::mount_users(dir);
            if signal == Signal::TERM && !holders.is_empty() {
                tell(MountEvent::EndsLeftovers(holders.clone()));
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
                    return Err(MountError::caused(what, &error));
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
pub(crate) fn release(
    note: &Note,
    child: Option<Child>,
    in_use: bool,
    tell: Observer<'_>,
) -> Result<ServerFate, MountError> {
    let _lock = MountLock::take(&note.session, tell)?;
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
        return Ok(ServerFate::GoesOn { pid, used: ServerUse::NotForMounts });
    }
    if is_used {
        note.forget();
        return Ok(ServerFate::GoesOn { pid, used: ServerUse::OtherMount });
    }
    if in_use {
        Note { is_hidden: true, ..note.clone() }.write()?;
        return Ok(ServerFate::GoesOn { pid, used: ServerUse::HiddenUsers });
    }
    // The note is deleted last, so that an interrupted unmount can be repeated.
    server::stop(pid, &note.session, child, tell)?;
    note.forget();
    // A read-only server leaves the WAL of a killed server as it was.
    if !note.is_read_only {
        server::check_closed(&note.session, tell)?;
    }
    Ok(ServerFate::Stopped)
}

/// Releases the session mounted at `dir` earlier, if it is not `session` and was unmounted without
/// acetate. Its server would be lost when the note of `dir` is replaced. The caller must not hold a
/// [`MountLock`].
///
/// # Errors
/// Processes may still use the earlier mount.
pub(crate) fn release_other(
    dir: &Path,
    session: &Path,
    tell: Observer<'_>,
) -> Result<(), MountError> {
    let Some(note) = Note::of(dir).filter(|note| note.session != session) else {
        return Ok(());
    };
    if table::at(dir)?.is_some() {
        return Ok(());
    }
    if note.is_hidden && served(&note.session)?.map(|served| served.pid) == note.started {
        let (shown, other) = (dir.display(), note.session.display());
        let what = format!("{shown}: {other} was hidden there, and programs may still use it");
        let advice = ServerAdvice::StopHiddenLater(dir.to_owned());
        return Err(MountError::new(what).with_advice(advice));
    }
    match release(&note, None, false, tell)? {
        ServerFate::Stopped => {
            tell(MountEvent::OtherReleased { dir: dir.to_owned(), session: note.session });
        }
        ServerFate::GoesOn { .. } | ServerFate::Unknown => {}
    }
    Ok(())
}

/// Stops the servers of killed runs, of `session` or of all, that have no process left in their
/// namespaces. Reports each and returns their number. The caller must not hold a [`MountLock`].
pub(crate) fn release_dead(
    session: Option<&Path>,
    tell: Observer<'_>,
) -> Result<usize, MountError> {
    let notes = Note::all().into_iter();
    let asked_for = notes.filter(|note| session.is_none_or(|session| note.session == session));
    let is_dead = |note: &Note| note.run.is_some_and(|run| !run.is_live(note.reached()));
    let dead: Vec<Note> = asked_for.filter(is_dead).collect();
    for note in &dead {
        let server = release(note, None, false, tell)?;
        tell(MountEvent::DeadRunReleased { session: note.session.clone(), server });
    }
    Ok(dead.len())
}

/// Ends the processes left in the namespace of this `run`, after its process there was killed.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn end_left(note: &Note, tell: Observer<'_>) {
    let Some(number) = note.run.and_then(|run| run.namespace) else {
        return;
    };
    let server = note.reached();
    mount_users::end_all(&|| namespace_processes::processes(number, server), tell);
}

/// Whether a server has the session.
pub(crate) fn is_served(session: &Path) -> Result<bool, MountError> {
    Ok(served(session)?.is_some())
}
