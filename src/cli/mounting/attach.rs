//! Serves a session, or finds its server, and mounts it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::call::{self, MountCall, Unmounting};
use super::mount_lock::MountLock;
use super::namespace_processes;
use super::note::{Note, RunNote};
use super::point::MountPoint;
use super::privilege::MountMethod;
use super::served::{Served, served};
use super::server::{self, ANY_PORT, Started};
use super::table::{self, Mounted};
use super::user::User;
use crate::cli::choosing::{self, SessionOptions};
use crate::cli::error::CliError;
use crate::cli::squash::RootSquash;
use crate::cli::{hiding, output, text};
use crate::delta::sqlite::Session;
use crate::inspect::opened::open_session;
use crate::vfs::PatternSet;

/// What to mount, and where; the paths are resolved.
#[derive(Debug)]
pub(in crate::cli) struct AttachOptions<'a> {
    pub(in crate::cli) session: PathBuf,
    pub(in crate::cli) base: Option<PathBuf>,
    pub(in crate::cli) point: &'a MountPoint,
    /// The address of a server that has to be started.
    pub(in crate::cli) listen: Option<SocketAddr>,
    /// Whether that server squashes the clients' root.
    pub(in crate::cli) squash: RootSquash,
    pub(in crate::cli) read_only: bool,
    /// Patterns to hide, besides those that the session hides already.
    pub(in crate::cli) hide: PatternSet,
    pub(in crate::cli) choosing: SessionOptions,
    /// Additional options, as for `mount -o`.
    pub(in crate::cli) options: Option<&'a str>,
    /// The user as which a server runs.
    pub(in crate::cli) user: Option<&'a User>,
    pub(in crate::cli) means: MountMethod,
}

/// A mounted session.
#[derive(Debug)]
pub(in crate::cli) struct MountedSession {
    pub(in crate::cli) note: Note,
    /// The server, if this process started it.
    pub(in crate::cli) child: Option<Child>,
}

/// The base of a session, as recorded or as given for a new one.
pub(in crate::cli) fn base_of(
    session: &Path,
    given: Option<&Path>,
) -> Result<Option<PathBuf>, CliError> {
    let recorded = match session.symlink_metadata() {
        Ok(_) => open_session(session)?.base_path().map(Path::to_owned),
        Err(_) => None,
    };
    let Some(base) = given.map(ToOwned::to_owned).or(recorded) else {
        return Ok(None);
    };
    let real = base.canonicalize().map_err(|error| CliError::base(&base, &error.into()))?;
    Ok(Some(real))
}

/// Serves and mounts; undoes both if either fails. The lock on the session keeps the server alive
/// until it is mounted.
pub(in crate::cli) fn attach(
    wanted: &AttachOptions<'_>,
    _turn: MountLock,
) -> Result<MountedSession, CliError> {
    let (note, child) = find_or_start(wanted, None)?;
    let started = note.started;
    // The server of an earlier mount at this directory, which was unmounted without acetate.
    let is_known =
        started.is_some() && Note::of(&note.dir).is_some_and(|before| before.started == started);
    // The note is written first, so that `umount` finds the server even if this process is killed.
    match note.write().and_then(|()| mount(wanted, &note)) {
        Ok(()) => Ok(MountedSession { note, child }),
        Err(error) => {
            if !is_known {
                note.forget();
            }
            stop(wanted, child);
            Err(error)
        }
    }
}

/// Serves for the `run` of this process, which mounts in its own mount namespace.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(in crate::cli) fn serve_for_run(
    wanted: &AttachOptions<'_>,
    _turn: MountLock,
) -> Result<MountedSession, CliError> {
    let pid = std::process::id();
    let start = namespace_processes::started(pid).unwrap_or_default();
    let (note, child) = find_or_start(wanted, Some(RunNote { pid, start, namespace: None }))?;
    match note.write() {
        Ok(()) => Ok(MountedSession { note, child }),
        Err(error) => {
            stop(wanted, child);
            Err(error)
        }
    }
}

/// Stops the server that was started for a failed mount.
fn stop(wanted: &AttachOptions<'_>, child: Option<Child>) {
    if let Some(child) = child
        && let Err(error) = server::stop(child.id(), &wanted.session, Some(child))
    {
        output::error(&error);
    }
}

/// The note of a mount or of a `run`, and the server if it was started just now.
fn find_or_start(
    wanted: &AttachOptions<'_>,
    run: Option<RunNote>,
) -> Result<(Note, Option<Child>), CliError> {
    let (address, started, child) = server_for(wanted)?;
    let note = Note {
        dir: wanted.point.path().to_owned(),
        session: wanted.session.clone(),
        address,
        started,
        is_read_only: wanted.read_only,
        is_hidden: false,
        run,
    };
    Ok((note, child))
}

/// The server's address, its pid if started for a mount, and the child if started just now.
fn server_for(
    wanted: &AttachOptions<'_>,
) -> Result<(SocketAddr, Option<u32>, Option<Child>), CliError> {
    let session = wanted.session.display();
    let Some(served) = served_on(&wanted.session)? else {
        let listen = wanted.listen.or_else(|| awaited(&wanted.session)).unwrap_or(ANY_PORT);
        let is_new = wanted.session.symlink_metadata().is_err();
        let Started { child, address } = start(wanted, listen, wanted.read_only)?;
        for mut note in live_runs(&wanted.session) {
            note.started = Some(child.id());
            note.write()?;
        }
        if is_new {
            choosing::tell_created(&wanted.session);
        }
        tell_hidden(&open_session(&wanted.session)?);
        return Ok((address, Some(child.id()), Some(child)));
    };
    served.check_root(&wanted.session)?;
    let pid = served.pid;
    let found = open_session(&wanted.session)?;
    if !found.hidden().has_all(&wanted.hide) {
        let what = format!("{session}: process {pid} serves it, and hides less of its base");
        return Err(CliError::new(what).with_hint("stop that server first, to hide more"));
    }
    if wanted.choosing.keep_originals.is_some() {
        let what =
            format!("{session}: process {pid} serves it, and decides what originals it keeps");
        return Err(
            CliError::new(what).with_hint("leave --keep-originals out, or stop that server")
        );
    }
    tell_hidden(&found);
    let recorded = base_of(&wanted.session, None)?;
    if let Some(base) = wanted.base.as_ref().filter(|base| Some(*base) != recorded.as_ref()) {
        let what = format!("{session}: process {pid} serves it over another base");
        let hint = format!("stop that server first, to have it over {}", base.display());
        return Err(CliError::new(what).with_hint(hint));
    }
    if wanted.listen.is_some() {
        let what = CliError::new(format_args!("{session}: process {pid} serves it already"));
        return Err(what.with_hint("leave --listen out to mount from that server"));
    }
    if let Some(option) = wanted.squash.option() {
        let what = CliError::new(format_args!("{session}: process {pid} serves it already"));
        let hint = format!("leave {option} out to mount from that server");
        return Err(what.with_hint(hint));
    }
    if served.is_read_only && !wanted.read_only {
        let what = CliError::new(format_args!("{session}: process {pid} serves it read-only"));
        return Err(what.with_hint("mount it with --read-only, or unmount it elsewhere first"));
    }
    let Some(address) = served.near() else {
        let what = CliError::new(format_args!("{session}: process {pid} serves it already"));
        return Err(what.with_hint("mount it as that server said, or stop the server first"));
    };
    // The last unmount will stop the server.
    let is_started = Note::all().iter().any(|note| note.started == Some(pid));
    Ok((address, is_started.then_some(pid), None))
}

/// Reports what a session hides of its base.
fn tell_hidden(session: &Session) {
    if !session.hidden().is_empty() {
        let path = session.path().display();
        output::line(format_args!("{path}{}", hiding::suffix(session.hidden())));
    }
}

/// The address at which a live `run` of `session` expects the server to come back.
fn awaited(session: &Path) -> Option<SocketAddr> {
    live_runs(session).first().map(|note| note.address)
}

/// The notes of live runs of `session`.
fn live_runs(session: &Path) -> Vec<Note> {
    let mut notes = Note::all();
    notes.retain(|note| {
        note.session == session && note.run.is_some_and(|run| run.is_live(note.reached()))
    });
    notes
}

/// The server that has the session. Waits for the end of a server that is ending, which an
/// interrupted `umount` can leave.
fn served_on(session: &Path) -> Result<Option<Served>, CliError> {
    match served(session)? {
        Some(ending) if ending.is_ending() => {
            server::wait(ending.pid, session, None)?;
            served(session)
        }
        found => Ok(found),
    }
}

fn start(
    wanted: &AttachOptions<'_>,
    listen: SocketAddr,
    read_only: bool,
) -> Result<Started, CliError> {
    server::start(&server::StartOptions {
        session: &wanted.session,
        base: wanted.base.as_deref(),
        listen,
        squash: wanted.squash,
        read_only,
        hide: &wanted.hide,
        choosing: wanted.choosing,
        user: wanted.user,
    })
}

/// Mounts, and checks that the mount is at the intended path: a user who can rename its parents may
/// have moved the directory.
fn mount(wanted: &AttachOptions<'_>, note: &Note) -> Result<(), CliError> {
    let address = note.reached();
    let AttachOptions { point, read_only, options, means, .. } = wanted;
    let call =
        MountCall { address, point, read_only: *read_only, options: *options, means: *means };
    call.mount()?;
    let dir = point.path();
    if table::at(dir)?.is_some_and(|mounted| mounted.is_from(address)) {
        return Ok(());
    }
    let _undone = call::unmount(point, Unmounting::default());
    let what = format!("{}: was moved or replaced while it was being mounted", dir.display());
    Err(CliError::new(what).with_hint("stop the process that moves it, then mount again"))
}

/// The state of an existing mount.
#[derive(Debug)]
pub(in crate::cli) enum MountState {
    /// The server is running.
    Serving(Note),
    /// The server was gone and has been started again.
    Restarted(Note),
}

/// Starts the server of an existing mount again if it was killed.
pub(in crate::cli) fn again(
    wanted: &AttachOptions<'_>,
    mounted: &Mounted,
    _turn: MountLock,
) -> Result<MountState, CliError> {
    let note = Note::of(wanted.point.path());
    let Some(mut note) =
        note.filter(|note| note.session == wanted.session && mounted.is_from(note.reached()))
    else {
        let dir = wanted.point.path().display();
        let source = text::line(mounted.source.as_bytes());
        let what = format!("{dir}: {source} ({}) is mounted there", mounted.kind);
        let hint = format!("choose another directory, or unmount it first: acetate umount {dir}");
        return Err(CliError::new(what).with_hint(hint));
    };
    if let Some(served) = served_on(&wanted.session)? {
        served.check_root(&wanted.session)?;
        return Ok(MountState::Serving(note));
    }
    let others = Note::all().into_iter();
    let mut others: Vec<Note> =
        others.filter(|other| other.session == note.session && other.dir != note.dir).collect();
    let read_only = note.is_read_only && others.iter().all(|other| other.is_read_only);
    let started = start(wanted, note.address, read_only)?;
    for other in &mut others {
        other.started = Some(started.child.id());
        other.write()?;
    }
    note.started = Some(started.child.id());
    note.write()?;
    Ok(MountState::Restarted(note))
}
