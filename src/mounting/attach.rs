//! Serves a session, or finds its server, and mounts it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

use super::call::{self, MountCall, Unmounting};
use super::error::{MountError, PlaceAdvice, ServerAdvice, ServerSetting};
use super::event::{MountEvent, Observer};
use super::mount_lock::MountLock;
use super::namespace_processes;
use super::note::{Note, RunNote};
use super::point::MountPoint;
use super::privilege::MountMethod;
use super::served::{Served, served};
use super::server::{self, ANY_PORT, ServerSettings, Started};
use super::table::{self, Mounted};
use super::user::User;
use crate::delta::sqlite::Session;
use crate::escape;
use crate::inspect::opened::open_session;
use crate::pattern::PatternSet;

/// What to mount, and where; the paths are resolved.
#[derive(Debug)]
pub(crate) struct AttachOptions<'a> {
    /// The session file; of a session in a database, its replica.
    pub(crate) session: PathBuf,
    /// The URL of a session in a database.
    pub(crate) url: Option<&'a str>,
    pub(crate) base: Option<PathBuf>,
    pub(crate) point: &'a MountPoint,
    /// The address of a server that has to be started.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) read_only: bool,
    /// Patterns to hide, besides those that the session hides already.
    pub(crate) hide: PatternSet,
    /// The settings of a server that has to be started.
    pub(crate) settings: ServerSettings,
    /// Additional options, as for `mount -o`.
    pub(crate) options: Option<&'a str>,
    /// The user as which a server runs.
    pub(crate) user: Option<&'a User>,
    pub(crate) means: MountMethod,
}

/// A mounted session.
#[derive(Debug)]
pub(crate) struct MountedSession {
    pub(crate) note: Note,
    /// The server, if this process started it.
    pub(crate) child: Option<Child>,
}

/// The base of a session, as recorded or as given for a new one.
pub(crate) fn base_of(session: &Path, given: Option<&Path>) -> Result<Option<PathBuf>, MountError> {
    let recorded = match session.symlink_metadata() {
        Ok(_) => open_session(session)?.base_path().map(Path::to_owned),
        Err(_) => None,
    };
    let Some(base) = given.map(ToOwned::to_owned).or(recorded) else {
        return Ok(None);
    };
    let real = base.canonicalize().map_err(|error| MountError::base(&base, error))?;
    Ok(Some(real))
}

/// Serves and mounts; undoes both if either fails. The lock on the session keeps the server alive
/// until it is mounted.
pub(crate) fn attach(
    wanted: &AttachOptions<'_>,
    _lock: MountLock,
    tell: Observer<'_>,
) -> Result<MountedSession, MountError> {
    let (note, child) = find_or_start(wanted, None, tell)?;
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
            stop(wanted, child, tell);
            Err(error)
        }
    }
}

/// Serves for the `run` of this process, which mounts in its own mount namespace.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) fn serve_for_run(
    wanted: &AttachOptions<'_>,
    _lock: MountLock,
    tell: Observer<'_>,
) -> Result<MountedSession, MountError> {
    let pid = std::process::id();
    let start = namespace_processes::started(pid).unwrap_or_default();
    let run = RunNote { pid, start, namespace: None };
    let (note, child) = find_or_start(wanted, Some(run), tell)?;
    match note.write() {
        Ok(()) => Ok(MountedSession { note, child }),
        Err(error) => {
            stop(wanted, child, tell);
            Err(error)
        }
    }
}

/// Stops the server that was started for a failed mount.
fn stop(wanted: &AttachOptions<'_>, child: Option<Child>, tell: Observer<'_>) {
    if let Some(child) = child
        && let Err(error) = server::stop(child.id(), &wanted.session, Some(child), tell)
    {
        tell(MountEvent::ServerNotStopped(error));
    }
}

/// The note of a mount or of a `run`, and the server if it was started just now.
fn find_or_start(
    wanted: &AttachOptions<'_>,
    run: Option<RunNote>,
    tell: Observer<'_>,
) -> Result<(Note, Option<Child>), MountError> {
    let (address, started, child) = server_for(wanted, tell)?;
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
    tell: Observer<'_>,
) -> Result<(SocketAddr, Option<u32>, Option<Child>), MountError> {
    let Some(served) = served_on(&wanted.session, tell)? else {
        let listen = wanted.listen.or_else(|| awaited(&wanted.session)).unwrap_or(ANY_PORT);
        let is_new = wanted.session.symlink_metadata().is_err();
        let Started { child, address } = start(wanted, listen, wanted.read_only, tell)?;
        for mut note in live_runs(&wanted.session) {
            note.started = Some(child.id());
            note.write()?;
        }
        if is_new {
            tell(MountEvent::Created(wanted.session.clone()));
        }
        tell_hidden(&open_session(&wanted.session)?, tell);
        return Ok((address, Some(child.id()), Some(child)));
    };
    let address = check_served(wanted, &served, tell)?;
    // The last unmount will stop the server.
    let is_started = Note::all().iter().any(|note| note.started == Some(served.pid));
    Ok((address, is_started.then_some(served.pid), None))
}

/// Checks that the server of the session serves it as wanted; returns its address.
fn check_served(
    wanted: &AttachOptions<'_>,
    served: &Served,
    tell: Observer<'_>,
) -> Result<SocketAddr, MountError> {
    served.check_root(&wanted.session)?;
    let refused = |how: &str, advice: ServerAdvice| {
        let (session, pid) = (wanted.session.display(), served.pid);
        Err(MountError::new(format_args!("{session}: process {pid} serves it{how}"))
            .with_advice(advice))
    };
    let found = open_session(&wanted.session)?;
    if !found.hidden().has_all(&wanted.hide) {
        return refused(", and hides less of its base", ServerAdvice::StopToHideMore);
    }
    let ServerSettings { root_squash, keep_originals, checkpoints, keep_checkpoints, .. } =
        wanted.settings;
    if keep_originals.is_some() {
        let advice = ServerAdvice::LeaveOut(ServerSetting::KeepOriginals);
        return refused(", and decides what originals it keeps", advice);
    }
    if checkpoints.is_some() || keep_checkpoints.is_some() {
        let advice = ServerAdvice::LeaveOut(ServerSetting::Checkpoints);
        return refused(", and decides what checkpoints it makes and keeps", advice);
    }
    tell_hidden(&found, tell);
    let recorded = base_of(&wanted.session, None)?;
    if let Some(base) = wanted.base.as_ref().filter(|base| Some(*base) != recorded.as_ref()) {
        return refused(" over another base", ServerAdvice::StopForBase(base.clone()));
    }
    if wanted.listen.is_some() {
        return refused(" already", ServerAdvice::LeaveOut(ServerSetting::Listen));
    }
    if let Some(squashes) = root_squash {
        let setting = ServerSetting::RootSquash(squashes);
        return refused(" already", ServerAdvice::LeaveOut(setting));
    }
    if served.is_read_only && !wanted.read_only {
        return refused(" read-only", ServerAdvice::MountReadOnly);
    }
    match served.near() {
        Some(address) => Ok(address),
        None => refused(" already", ServerAdvice::MountAsItSays),
    }
}

/// Reports what a session hides of its base.
fn tell_hidden(session: &Session, tell: Observer<'_>) {
    let (session, patterns) = (session.path().to_owned(), Arc::clone(session.hidden()));
    if !patterns.is_empty() {
        tell(MountEvent::Hides { session, patterns });
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
fn served_on(session: &Path, tell: Observer<'_>) -> Result<Option<Served>, MountError> {
    match served(session)? {
        Some(ending) if ending.is_ending() => {
            server::wait(ending.pid, session, None, tell)?;
            served(session)
        }
        found => Ok(found),
    }
}

fn start(
    wanted: &AttachOptions<'_>,
    listen: SocketAddr,
    read_only: bool,
    tell: Observer<'_>,
) -> Result<Started, MountError> {
    let options = server::StartOptions {
        session: &wanted.session,
        url: wanted.url,
        base: wanted.base.as_deref(),
        listen,
        read_only,
        hide: &wanted.hide,
        settings: wanted.settings,
        user: wanted.user,
    };
    server::start(&options, tell)
}

/// Mounts, and checks that the mount is at the intended path: a user who can rename its parents may
/// have moved the directory.
fn mount(wanted: &AttachOptions<'_>, note: &Note) -> Result<(), MountError> {
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
    Err(MountError::new(what).with_advice(PlaceAdvice::StopMover { is_run: false }))
}

/// The state of an existing mount.
#[derive(Debug)]
pub(crate) enum MountState {
    /// The server is running.
    Serving(Note),
    /// The server was gone and has been started again.
    Restarted(Note),
}

/// Starts the server of an existing mount again if it was killed.
pub(crate) fn again(
    wanted: &AttachOptions<'_>,
    mounted: &Mounted,
    _lock: MountLock,
    tell: Observer<'_>,
) -> Result<MountState, MountError> {
    let note = Note::of(wanted.point.path());
    let Some(mut note) =
        note.filter(|note| note.session == wanted.session && mounted.is_from(note.reached()))
    else {
        let dir = wanted.point.path();
        let source = escape::line(mounted.source.as_bytes());
        let what = format!("{}: {source} ({}) is mounted there", dir.display(), mounted.kind);
        let advice = PlaceAdvice::ChooseOtherOrUnmount(dir.to_owned());
        return Err(MountError::new(what).with_advice(advice));
    };
    if let Some(served) = served_on(&wanted.session, tell)? {
        served.check_root(&wanted.session)?;
        return Ok(MountState::Serving(note));
    }
    let others = Note::all().into_iter();
    let mut others: Vec<Note> =
        others.filter(|other| other.session == note.session && other.dir != note.dir).collect();
    let read_only = note.is_read_only && others.iter().all(|other| other.is_read_only);
    let started = start(wanted, note.address, read_only, tell)?;
    for other in &mut others {
        other.started = Some(started.child.id());
        other.write()?;
    }
    note.started = Some(started.child.id());
    note.write()?;
    Ok(MountState::Restarted(note))
}
