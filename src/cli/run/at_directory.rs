//! `run` at a mount point that every process sees: a directory of the user, or a private one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::{Args, RunPlan, environment};
use crate::cli::child::Runner;
use crate::cli::error::CliError;
use crate::cli::mount_events::{tell, tell_goes_on};
use crate::cli::output;
use crate::mounting::attach::{MountedSession, attach};
use crate::mounting::detach::{Unmounting, release, release_other, unmount_dir, unmount_private};
use crate::mounting::mount_lock::MountLock;
use crate::mounting::note::Note;
use crate::mounting::point::MountPoint;
use crate::mounting::private::PrivateDir;
use crate::mounting::user::User;
use crate::mounting::{place, table};

/// The mount point of the session.
enum RunMount {
    /// A directory that the user named.
    Given(MountPoint),
    /// A directory created for the run.
    Private(PrivateDir),
}

/// Serves, mounts, runs the command and unmounts; returns the command's exit code.
pub(super) fn run(run: &RunPlan<'_>) -> Result<u8, CliError> {
    let RunPlan { args, session, base, user, .. } = run;
    let (base, user) = (base.as_deref(), user.as_ref());
    if let Some(at) = &args.at {
        let named = MountPoint::find(at)?;
        named.check_owner(user)?;
        release_other(named.path(), session, &tell)?;
    }
    // Waits for other mounts of this session. Until here, a signal ends this process.
    let turn = MountLock::take(session, &tell)?;
    // From here on, signals are passed on to the command, so that the cleanup runs.
    let mut runner = Runner::new()?;
    let place = match &args.at {
        Some(at) => RunMount::given(at, base, session, user)?,
        None => RunMount::private(base, (session, &run.dir_name), user)?,
    };
    let MountedSession { note, child } = match attach(&run.wanted(place.point()), turn, &tell) {
        Ok(attached) => attached,
        Err(error) => {
            place.remove();
            return Err(error.into());
        }
    };
    if let (Some(base), true) = (base, cfg!(target_os = "linux")) {
        let (base, dir) = (base.display(), note.dir.display());
        output::line(format_args!(
            "the session is at {dir}; the base stays reachable by its own path, {base}"
        ));
    }
    let begun = run.summary();
    let code = match runner.interrupted() {
        Some(code) => Ok(code),
        None => place.give_to(user).and_then(|()| {
            let command = command(run, &note)?;
            Ok(runner.run(command, user)?.code)
        }),
    };
    let left = leave(args, &place, &note, child);
    run.finish(begun?, code, left)
}

impl RunMount {
    fn given(
        at: &Path,
        base: Option<&Path>,
        session: &Path,
        user: Option<&User>,
    ) -> Result<Self, CliError> {
        let point = MountPoint::find(at)?;
        let shown = point.path().display();
        if let Some(mounted) = table::at(point.path())? {
            let what = format!("{shown}: something is mounted there ({})", mounted.kind);
            let hint = format!("choose another directory, or `acetate umount {shown}`");
            return Err(CliError::new(what).with_hint(hint));
        }
        if place::check(&point, base, session, user)? {
            output::line(format_args!(
                "{shown} is not empty: its content is hidden while the session is mounted"
            ));
        }
        Ok(Self::Given(point))
    }

    /// Creates a private directory for `user`, with the name of the base.
    fn private(
        base: Option<&Path>,
        (session, name): (&Path, &OsStr),
        user: Option<&User>,
    ) -> Result<Self, CliError> {
        let name = base.and_then(Path::file_name).unwrap_or(name);
        let private = super::private_dir(name, user)?;
        // The base may contain the temporary directory. The owner of a new directory needs no
        // check.
        match place::check(private.point(), base, session, None) {
            Ok(_empty) => Ok(Self::Private(private)),
            Err(error) => {
                private.remove();
                Err(CliError::from(error)
                    .with_hint("name an empty directory to mount at: --at DIR"))
            }
        }
    }

    fn point(&self) -> &MountPoint {
        match self {
            Self::Given(point) => point,
            Self::Private(private) => private.point(),
        }
    }

    /// Gives the command's user access to a directory created for the run.
    fn give_to(&self, user: Option<&User>) -> Result<(), CliError> {
        match self {
            Self::Given(_) => Ok(()),
            Self::Private(private) => super::give_to(private, user),
        }
    }

    fn unmount(&self) -> Result<(), CliError> {
        match self {
            Self::Given(point) => Ok(unmount_dir(point, Unmounting::default())?),
            Self::Private(private) => Ok(unmount_private(private.point(), &tell)?),
        }
    }

    /// Removes a created directory if it is empty; one with a mount stays.
    fn remove(&self) {
        if let Self::Private(private) = self {
            private.remove();
        }
    }
}

/// The command, started in the mount.
fn command(run: &RunPlan<'_>, note: &Note) -> Result<Command, CliError> {
    let [program, words @ ..] = &*run.command else {
        return Err(CliError::new("no command"));
    };
    let inside = run.below().map(|below| note.dir.join(below)).filter(|inside| inside.is_dir());
    let directory: PathBuf = inside.unwrap_or_else(|| note.dir.clone());
    let mut command = Command::new(program);
    command.args(words);
    environment(&mut command, &note.session, &directory, run.user.as_ref());
    Ok(command)
}

/// Unmounts and releases the server, unless the mount is kept.
fn leave(args: &Args, place: &RunMount, note: &Note, child: Option<Child>) -> Result<(), CliError> {
    let dir = note.dir.display();
    if args.keep_mounted {
        output::line(format_args!("still mounted at {dir}; to unmount it: acetate umount {dir}"));
        return Ok(());
    }
    // Another command may have unmounted the session already.
    match table::at(&place.point().path_now())? {
        Some(mounted) if mounted.is_from(note.reached()) => place.unmount()?,
        Some(mounted) => {
            let kind = mounted.kind;
            output::line(format_args!("{dir}: something else is mounted there now ({kind})"));
        }
        None => {}
    }
    place.remove();
    tell_goes_on(&release(note, child, false, &tell)?);
    Ok(())
}
