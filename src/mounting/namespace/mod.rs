//! The mount namespace of a `run`: the session is mounted over the base's own path, so that no path
//! in the namespace leads to the base ([decision 0047]).
//!
//! A separate process, `namespace-child`, enters the namespace and stays until the command has
//! ended. It ends processes that the command left behind and unmounts, even if `run` was killed.
//!
//! [decision 0047]: ../../../docs/decisions/0047-a-mount-namespace-for-run.md

mod aliases;
mod leaving;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::process::set_child_subreaper;
use rustix::thread::UnshareFlags;

use super::call::MountCall;
use super::error::{MountError, PlaceAdvice, SystemAdvice};
use super::event::Observer;
use super::note::{self, Note};
use super::point::MountPoint;
use super::privilege::MountMethod;
use super::sandbox::{Confinement, TMP, tree};
use super::{namespace_processes, table};

/// What to mount in the namespace, and where.
#[derive(Debug)]
pub(crate) struct NamespaceMount<'a> {
    /// Where the session is mounted: the base's path, or another directory.
    pub(crate) dir: &'a Path,
    /// Whether `dir` is the base.
    pub(crate) is_base: bool,
    pub(crate) session: &'a Path,
    /// Where the session's files are shown, if the mounts cover their own paths.
    pub(crate) show_session: Option<&'a Path>,
    /// The server's address.
    pub(crate) address: SocketAddr,
    /// The note of the `run` that this process is for.
    pub(crate) note: &'a Note,
    /// Additional options, as for `mount -o`.
    pub(crate) options: Option<&'a str>,
    pub(crate) means: MountMethod,
    /// A directory that is mounted instead of the export.
    pub(crate) stand_in: Option<&'a Path>,
    pub(crate) confinement: Option<&'a Confinement>,
}

/// A mount namespace that shows a session.
pub(crate) struct Namespace {
    /// The original namespace of this process.
    outside: OwnedFd,
    server: SocketAddr,
    /// The mount points of the session, in the order of mounting.
    mounts: Vec<PathBuf>,
    /// Mount points within these mounts, in the order of mounting.
    on_them: Vec<PathBuf>,
    /// The path of the session's file, if it is not the original one.
    session: Option<PathBuf>,
    base_owner: Option<u32>,
    note: Note,
}

/// Moves this process, which must have one thread, into a new mount namespace, and mounts the
/// session there.
pub(crate) fn enter(
    wanted: &NamespaceMount<'_>,
    tell: Observer<'_>,
) -> Result<Namespace, MountError> {
    let NamespaceMount { dir, session, confinement, .. } = *wanted;
    let mut note = wanted.note.clone();
    let outside = File::open("/proc/self/ns/mnt").map_err(|error| no_namespace(&error))?;
    unshare_mounts().map_err(|error| no_namespace(&error))?;
    let notes = note::folder().map_err(|error| no_namespace(&error))?;
    let open_notes = File::open(&notes).map_err(|error| no_namespace(&error))?;
    let base = if wanted.is_base { Some(aliases::CoveredBase::find(dir)?) } else { None };
    let base_owner = base.as_ref().map(aliases::CoveredBase::owner);
    let files = match wanted.show_session {
        Some(_) => tree::open_files(session).map_err(|error| no_namespace(&error))?,
        None => Vec::new(),
    };
    mount_at(wanted, &notes)?;
    if let Some(confinement) = confinement {
        tree::prepare(confinement, dir)?;
    }
    let mut mounts = vec![dir.to_owned()];
    if let Some(base) = base {
        base.check_covered(dir)?;
        mounts.extend(base.cover_aliases(dir, tell)?);
    }
    let mut shown = match wanted.show_session {
        Some(dir) => tree::show_files(&files, dir, confinement.is_some())?,
        None => vec![session.to_owned()],
    };
    if let Some(run) = &mut note.run {
        run.namespace = namespace_processes::namespace("self");
    }
    // Through a descriptor: the mounts of a sandbox may cover the directory of the notes.
    note.write_at(Path::new(&format!("/proc/self/fd/{}", open_notes.as_raw_fd())))?;
    let mut on_them = Vec::new();
    if let Some(confinement) = confinement {
        on_them = tree::empty_within(confinement, dir)?;
        // The server's control socket is beside the session.
        let sockets: Vec<PathBuf> = tree::open_files(session)
            .unwrap_or_default()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        shown.extend(sockets);
        tree::close(confinement, &mounts, &shown)?;
    }
    let name = session.file_name();
    let at = wanted.show_session.zip(name).map(|(dir, name)| dir.join(name));
    let server = note.reached();
    Ok(Namespace {
        outside: outside.into(),
        server,
        mounts,
        on_them,
        session: at,
        base_owner,
        note,
    })
}

impl Namespace {
    /// The path in the namespace of the session file `session`.
    pub(crate) fn session<'a>(&'a self, session: &'a Path) -> &'a Path {
        self.session.as_deref().unwrap_or(session)
    }

    /// The owner of the base, if there is one.
    pub(crate) fn base_owner(&self) -> Option<u32> {
        self.base_owner
    }

    /// The directories that a sandboxed command can write to.
    pub(crate) fn writable(&self, confinement: &Confinement) -> Vec<PathBuf> {
        let own = ["/dev", "/proc", TMP].map(PathBuf::from);
        let mounts = self.mounts.iter().filter(|mount| mount.is_dir());
        let all = own.iter().chain(mounts).chain(&confinement.allow_write);
        all.cloned().collect()
    }
}

/// New children of this process get their own process and IPC namespaces.
pub(crate) fn leave_processes() -> Result<(), MountError> {
    // Unsafe only with CLONE_FILES, which detaches the descriptor table from other threads.
    #[allow(deprecated)]
    let left = rustix::thread::unshare(UnshareFlags::NEWPID | UnshareFlags::NEWIPC);
    left.map_err(|errno| MountError::caused("no sandbox: no process namespace", &errno))
}

/// The paths that lead to the directory `base` or into it, its own path first.
///
/// # Errors
/// The directory cannot be opened.
pub(crate) fn paths_to(base: &Path) -> Result<Vec<PathBuf>, MountError> {
    aliases::CoveredBase::find(base)?.paths()
}

fn no_namespace(error: &io::Error) -> MountError {
    MountError::caused("cannot create a mount namespace", error)
        .with_advice(SystemAdvice::MountWithoutNamespace)
}

/// Unshares the mount namespace and makes all mounts private.
fn unshare_mounts() -> io::Result<()> {
    // Unsafe only with CLONE_FILES, which detaches the descriptor table from other threads.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    // Orphans of the command become children of this process, which can then find them.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    // The current directory would still lead to the base.
    std::env::set_current_dir("/")
}

/// Mounts the session at its directory. During that, a tmpfs in this namespace covers the staging
/// directory, so that concurrent runs do not share it.
fn mount_at(wanted: &NamespaceMount<'_>, notes: &Path) -> Result<(), MountError> {
    let NamespaceMount { dir, address, options, means, .. } = *wanted;
    let point = &MountPoint::find(dir)?;
    let failed = |error: io::Error| {
        MountError::caused(format_args!("cannot mount at {}", dir.display()), &error)
    };
    if let Some(stand_in) = wanted.stand_in {
        return mount_bind(stand_in, dir).map_err(|errno| failed(errno.into()));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("acetate", notes, "tmpfs", flags, c"size=64k,mode=0700")
        .map_err(|errno| failed(errno.into()))?;
    let call = MountCall { address, point, read_only: false, options, means };
    let mounted = call.mount();
    unmount(notes, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        .map_err(|errno| failed(errno.into()))?;
    mounted?;
    if table::at(dir)?.is_some_and(|mounted| mounted.is_from(address)) {
        return Ok(());
    }
    let what = format!("{}: was moved or replaced while it was being mounted", dir.display());
    Err(MountError::new(what).with_advice(PlaceAdvice::StopMover { is_run: true }))
}
