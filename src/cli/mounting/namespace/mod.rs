//! The mount namespace of a `run`: the session is mounted over its base's own path, so that no
//! path of the namespace leads to the base ([decision 0047]).
//!
//! A process of its own enters it, `namespace-child`, and stays until the command has ended: it
//! ends what the command left behind and unmounts, whatever has become of `run`.
//!
//! [decision 0047]: ../../../../docs/decisions/0047-a-mount-namespace-for-run.md

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
use super::note::{self, Note};
use super::point::MountPoint;
use super::privilege::Means;
use super::sandbox::{TMP, tree};
use super::{inside, table};
use crate::cli::confinement::Confinement;
use crate::cli::error::CliError;

/// What is to be mounted where.
#[derive(Debug)]
pub(in crate::cli) struct NamespaceMount<'a> {
    /// Where the session is to show: the base's path, or a directory of its own.
    pub(in crate::cli) dir: &'a Path,
    /// Whether `dir` is the base.
    pub(in crate::cli) is_base: bool,
    pub(in crate::cli) session: &'a Path,
    /// Where the session's files are to show, which cannot be seen at their own paths.
    pub(in crate::cli) show_session: Option<&'a Path>,
    /// The server's address.
    pub(in crate::cli) address: SocketAddr,
    /// The process of `run`, whose note this is.
    pub(in crate::cli) runner: u32,
    /// As for `mount -o`.
    pub(in crate::cli) options: Option<&'a str>,
    pub(in crate::cli) means: Means,
    /// A directory to be mounted in place of what the server has.
    pub(in crate::cli) stand_in: Option<&'a Path>,
    pub(in crate::cli) confinement: Option<&'a Confinement>,
}

/// A mount namespace that shows a session.
pub(in crate::cli) struct Namespace {
    /// The namespace that this process came from.
    outside: OwnedFd,
    server: SocketAddr,
    /// Where the session is mounted, in the order of mounting.
    mounts: Vec<PathBuf>,
    /// What is mounted on these, in that order.
    on_them: Vec<PathBuf>,
    /// The session's file, where it shows at another path.
    session: Option<PathBuf>,
    base_owner: Option<u32>,
    note: Note,
}

/// Takes this process, which has one thread, into a namespace of its own, and mounts the session
/// there.
pub(in crate::cli) fn enter(wanted: &NamespaceMount<'_>) -> Result<Namespace, CliError> {
    let NamespaceMount { dir, session, confinement, .. } = *wanted;
    let mut note = Note::of_run(dir, wanted.runner)
        .ok_or_else(|| CliError::new("the `run` that this process is for is gone"))?;
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
        mounts.extend(base.cover_aliases(dir)?);
    }
    let mut shown = match wanted.show_session {
        Some(dir) => tree::show_files(&files, dir, confinement.is_some())?,
        None => vec![session.to_owned()],
    };
    if let Some(run) = &mut note.run {
        run.namespace = inside::namespace("self");
    }
    // The mounts of a sandbox may cover the directory of the notes.
    note.write_at(Path::new(&format!("/proc/self/fd/{}", open_notes.as_raw_fd())))?;
    let mut on_them = Vec::new();
    if let Some(confinement) = confinement {
        on_them = tree::empty_within(confinement, dir)?;
        // The server's own socket lies beside the session.
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
    /// Where the session's file shows, whose own path is `session`.
    pub(in crate::cli) fn session<'a>(&'a self, session: &'a Path) -> &'a Path {
        self.session.as_deref().unwrap_or(session)
    }

    /// The owner of the base, where there is one.
    pub(in crate::cli) fn base_owner(&self) -> Option<u32> {
        self.base_owner
    }

    /// The directories that a sandboxed command can write to.
    pub(in crate::cli) fn writable(&self, confinement: &Confinement) -> Vec<PathBuf> {
        let own = ["/dev", "/proc", TMP].map(PathBuf::from);
        let mounts = self.mounts.iter().filter(|mount| mount.is_dir());
        let all = own.iter().chain(mounts).chain(&confinement.allow_write);
        all.cloned().collect()
    }
}

/// Gives the processes that this one will start process and IPC namespaces of their own.
pub(in crate::cli) fn leave_processes() -> Result<(), CliError> {
    // It is unsafe only to take the table of descriptors away from other threads.
    #[allow(deprecated)]
    let left = rustix::thread::unshare(UnshareFlags::NEWPID | UnshareFlags::NEWIPC);
    left.map_err(|errno| CliError::caused("no sandbox: no process namespace", &errno))
}

/// The paths that lead to the directory `base`, or to something in it: its own first.
///
/// # Errors
/// It cannot be looked at.
pub(in crate::cli) fn paths_to(base: &Path) -> Result<Vec<PathBuf>, CliError> {
    aliases::CoveredBase::find(base)?.paths()
}

fn no_namespace(error: &io::Error) -> CliError {
    CliError::caused("cannot have a mount namespace", error).with_hint(
        "a container may forbid it; --at DIR mounts at a directory without one, and the base \
         stays reachable by its own path",
    )
}

/// Unshares the mount namespace and makes all mounts private.
fn unshare_mounts() -> io::Result<()> {
    // It is unsafe only to take the table of descriptors away from other threads.
    #[allow(deprecated)]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    // Whatever a command leaves behind comes to this process, and is found.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    // Our own way to the base.
    std::env::set_current_dir("/")
}

/// Mounts the session at its directory. A tmpfs covers the directory for staging in this namespace
/// alone, so that runs at the same time do not share it.
fn mount_at(wanted: &NamespaceMount<'_>, notes: &Path) -> Result<(), CliError> {
    let NamespaceMount { dir, address, options, means, .. } = *wanted;
    let point = &MountPoint::find(dir)?;
    let failed = |error: io::Error| {
        CliError::caused(format_args!("cannot mount at {}", dir.display()), &error)
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
    Err(CliError::new(what).with_hint("stop the process that moves it, then run again"))
}
