//! `run` in a mount namespace in which the session is mounted at the base's own path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::{RunPlan, inherited};
use crate::cli::child::Runner;
use crate::cli::error::CliError;
use crate::cli::mount_events::{tell, tell_goes_on};
use crate::cli::namespace_child;
use crate::mounting::attach::{MountedSession, serve_for_run};
use crate::mounting::detach::{end_left, release};
use crate::mounting::mount_lock::MountLock;
use crate::mounting::note::Note;
use crate::mounting::point::MountPoint;
use crate::mounting::private::PrivateDir;
use crate::mounting::sandbox::TMP;

/// Serves, lets `namespace-child` mount and run the command, and stops the server; returns the
/// command's exit code.
pub(super) fn run(run: &RunPlan<'_>) -> Result<u8, CliError> {
    if let Some(base) = &run.base {
        if base == Path::new("/") {
            let what = CliError::new("the base is `/`, which nothing can be mounted over");
            return Err(what.with_hint("name a directory to mount at: --at DIR"));
        }
        inherited::check(base)?;
    }
    if run.confinement.sandbox {
        check_system(run)?;
        inherited::check_for_sandbox()?;
    }
    // Waits for other mounts of this session. Until here, a signal ends this process.
    let turn = MountLock::take(&run.session, &tell)?;
    // From here on, signals are passed on to the command, so that the cleanup runs.
    let mut runner = Runner::new()?;
    let place = MadeDirs::make(run)?;
    let done = run_at(run, &place, &mut runner, turn);
    place.remove();
    done
}

/// Directories with the system's programs, and with files that these trust.
const SYSTEM: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

/// Refuses a base with programs of the system: a sandbox runs some as root before it runs the
/// command as a user.
fn check_system(run: &RunPlan<'_>) -> Result<(), CliError> {
    let (Some(base), Some(_)) = (&run.base, &run.user) else {
        return Ok(());
    };
    if SYSTEM.iter().any(|dir| base.starts_with(dir) || Path::new(dir).starts_with(base)) {
        let what = format!("{}: the system's programs are in this base", base.display());
        return Err(CliError::new(what).with_hint("leave --sandbox out, or run all as root"));
    }
    Ok(())
}

/// Directories that are created for a run.
struct MadeDirs {
    /// The mount point of a session without a base.
    mount: Option<PrivateDir>,
    /// The directory that shows the session's files if their own paths are covered.
    files: Option<PrivateDir>,
}

impl MadeDirs {
    fn make(run: &RunPlan<'_>) -> Result<Self, CliError> {
        let user = run.user.as_ref();
        let make = |name: &OsStr| -> Result<PrivateDir, CliError> {
            let made = super::private_dir(name, user)?;
            super::give_to(&made, user)?;
            Ok(made)
        };
        let mount = match &run.base {
            Some(_) => None,
            None => Some(make(&run.dir_name)?),
        };
        let mut hidden = run.base.iter().chain(&run.confinement.deny_read);
        let is_hidden = hidden.any(|dir| run.session.starts_with(dir))
            || (run.confinement.sandbox && run.session.starts_with(TMP));
        let files = if is_hidden { Some(make(OsStr::new("session"))) } else { None };
        match files.transpose() {
            Ok(files) => Ok(Self { mount, files }),
            Err(error) => {
                Self { mount, files: None }.remove();
                Err(error)
            }
        }
    }

    fn remove(&self) {
        self.mount.iter().chain(&self.files).for_each(PrivateDir::remove);
    }
}

fn run_at(
    run: &RunPlan<'_>,
    place: &MadeDirs,
    runner: &mut Runner,
    turn: MountLock,
) -> Result<u8, CliError> {
    let found = run.base.as_deref().map(MountPoint::find).transpose()?;
    let point = found.as_ref().or(place.mount.as_ref().map(PrivateDir::point));
    let Some(point) = point else {
        return Err(CliError::new("there is no directory to mount at"));
    };
    let MountedSession { note, child } = serve_for_run(&run.wanted(point), turn, &tell)?;
    let begun = run.summary();
    let code = match runner.interrupted() {
        Some(code) => Ok(code),
        None => command(run, &note, place).and_then(|command| Ok(runner.run(command, None)?.code)),
    };
    let begun = begun.map(|begun| begun.filter(|_| was_mounted(&note)));
    let left = leave(&note, child);
    run.finish(begun?, code, left)
}

/// The command line of `namespace-child`.
fn command(run: &RunPlan<'_>, note: &Note, place: &MadeDirs) -> Result<Command, CliError> {
    let failed =
        |error: std::io::Error| CliError::caused("cannot start this program again", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let files = place.files.as_ref().map(|dir| dir.point().path().to_owned());
    let args = namespace_child::Args {
        dir: note.dir.clone(),
        covers_base: run.base.is_some(),
        session: note.session.clone(),
        show_session: files,
        address: note.reached(),
        runner: std::process::id(),
        enter: directory(run, &note.dir),
        options: run.args.options.clone(),
        as_root: run.args.as_root,
        stand_in: None,
        confinement: run.confinement.clone(),
        command: run.command.clone(),
    };
    let mut command = Command::new(program);
    command.args(args.words());
    Ok(command)
}

/// The start directory: the current directory as $PWD names it, if that is in the base.
fn directory(run: &RunPlan<'_>, base: &Path) -> PathBuf {
    let Some(below) = run.below() else {
        return base.to_owned();
    };
    let here = base.join(below);
    let called = std::env::var_os("PWD").map(PathBuf::from).filter(|called| {
        called.is_absolute() && called.canonicalize().is_ok_and(|real| real == here)
    });
    called.unwrap_or(here)
}

/// Whether the session was mounted: only then does the note have a namespace.
fn was_mounted(note: &Note) -> bool {
    let now = Note::of_run(&note.dir, std::process::id());
    now.and_then(|now| now.run?.namespace).is_some()
}

/// Stops the server. The mount is gone with the namespace, unless `namespace-child` was killed.
fn leave(note: &Note, child: Option<Child>) -> Result<(), CliError> {
    let now = Note::of_run(&note.dir, std::process::id());
    let note = now.as_ref().unwrap_or(note);
    end_left(note, &tell);
    // Another run may have started the killed server again.
    let child = child.filter(|child| note.started == Some(child.id()));
    tell_goes_on(&release(note, child, false, &tell)?);
    Ok(())
}
