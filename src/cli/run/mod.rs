//! `acetate run`: runs a command in a mounted session.

mod at_directory;
#[cfg(target_os = "linux")]
mod in_namespace;
#[cfg(target_os = "linux")]
mod inherited;
mod summary;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::choosing::SessionOptions;
use super::confinement::SandboxOptions;
use super::error::CliError;
use super::hiding::Hide;
use super::in_database::{IfMissing, ReplicaOptions, SessionToMount};
use super::mount_events::tell;
use super::shell_words::quoted;
use super::squash::RootSquash;
use super::{Ending, checkpoint, in_database, output};
use crate::mounting::attach::{AttachOptions, base_of};
use crate::mounting::detach::release_dead;
use crate::mounting::point::MountPoint;
use crate::mounting::private::PrivateDir;
use crate::mounting::privilege;
use crate::mounting::privilege::MountMethod;
use crate::mounting::user::User;
use crate::pattern::PatternSet;
use summary::SessionBefore;

/// The environment variable that gives the command the session.
const VARIABLE: &str = "ACETATE_SESSION";

/// The shell if neither the user nor $SHELL names one.
const SHELL: &str = "/bin/sh";

/// Run a command in a session: serve it, mount it, and unmount it afterwards.
///
/// On Linux the command runs in a mount namespace in which the session is mounted at the base's
/// path: no path there leads to the base. With --at, without a base, or on another system, the
/// session is mounted at another directory, and the base stays reachable. The command starts in
/// the current directory if that is in the base, otherwise at its root. Without a command, a shell
/// is run.
///
/// The exit code is the command's, or 128 plus the number of the signal that ended it. What this
/// run changed, and what the session holds, is shown on stderr at the end. After `sudo`, the server
/// and the command run as the user who called sudo.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file, or its URL in a database; made if there is none, with --base or --no-base.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The directory that shows through; it is never written.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// A new session begins empty, without a base.
    #[arg(long, conflicts_with = "base")]
    no_base: bool,

    /// Mount at this directory, which every process sees.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,

    #[command(flatten)]
    hide: Hide,

    #[command(flatten)]
    choosing: SessionOptions,

    #[command(flatten)]
    replica: ReplicaOptions,

    /// Keep the session mounted and served afterwards.
    #[arg(long, requires = "at")]
    keep_mounted: bool,

    /// More options, as for `mount -o`.
    #[arg(short, long, value_name = "OPTIONS", hide_short_help = true)]
    options: Option<String>,

    /// Serve and run the command as root, too, where `sudo` called this.
    #[arg(long, hide_short_help = true)]
    as_root: bool,

    #[command(flatten)]
    confinement: SandboxOptions,

    /// Make no checkpoint before the command.
    ///
    /// One is made unless nothing changed since the newest; `acetate checkpoint ls` lists it.
    #[arg(long, hide_short_help = true)]
    no_checkpoint: bool,

    /// Write the summary to this file, as a JSON object.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    report: Option<PathBuf>,

    /// The command with its arguments.
    ///
    /// Without one, a shell: after `sudo` the user's login shell, otherwise $SHELL, or /bin/sh.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A run with resolved paths.
struct RunPlan<'a> {
    args: &'a Args,
    means: MountMethod,
    session: PathBuf,
    /// The URL of a session in a database, which `session` is a replica of.
    url: Option<String>,
    /// A name for a directory that is made to mount the session at.
    dir_name: OsString,
    base: Option<PathBuf>,
    user: Option<User>,
    confinement: SandboxOptions,
    command: Vec<OsString>,
    /// The patterns to hide from the base.
    hide: PatternSet,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let means = privilege::check(args.at.as_deref())?;
    in_database::name_mounted();
    let user = if args.as_root { None } else { User::behind_sudo() };
    let hide = args.hide.patterns()?;
    let new = IfMissing {
        base: args.base.as_deref(),
        hide: &hide,
        existing: args.choosing.existing,
        moved: args.choosing.moved,
        refused: needs_base(args).then(|| missing(&args.session)),
    };
    if let Some(at) = &args.at {
        // Before a session is made.
        MountPoint::find(at)?;
    }
    let found = SessionToMount::find(&args.session, &args.replica, new, user.as_ref())?;
    let SessionToMount { file: session, url, dir_name } = found;
    let base = base(args, &session)?;
    let command =
        if args.command.is_empty() { vec![shell(user.as_ref())] } else { args.command.clone() };
    let confinement = args.confinement.resolved()?;
    if confinement.sandbox {
        check_sandbox(args)?;
    }
    release_dead(Some(&session), &tell)?;
    let run =
        RunPlan { args, means, session, url, dir_name, base, user, confinement, command, hide };
    let code = match (&run.base, &args.at) {
        #[cfg(target_os = "linux")]
        (Some(_), None) => in_namespace::run(&run)?,
        #[cfg(target_os = "linux")]
        (None, None) if run.confinement.sandbox => in_namespace::run(&run)?,
        _ => at_directory::run(&run)?,
    };
    Ok(Ending::Exit(code))
}

/// Refuses a sandbox that is not possible here.
fn check_sandbox(args: &Args) -> Result<(), CliError> {
    if args.at.is_some() {
        let what = CliError::new("with --at the base stays reachable, which is no sandbox");
        return Err(what.with_hint("leave --at or --sandbox out"));
    }
    #[cfg(target_os = "linux")]
    return Ok(crate::mounting::sandbox::confine::check()?);
    #[cfg(not(target_os = "linux"))]
    return Err(CliError::new("--sandbox needs Linux"));
}

/// The base of the session; a new session needs `--base` or `--no-base`.
fn base(args: &Args, session: &Path) -> Result<Option<PathBuf>, CliError> {
    let base = base_of(session, args.base.as_deref())?;
    if session.symlink_metadata().is_err() && needs_base(args) {
        return Err(missing(session));
    }
    if let (true, Some(base)) = (args.no_base, &base) {
        let what = format!("{}: the session has a base, {}", session.display(), base.display());
        return Err(CliError::new(what).with_hint("leave --no-base out"));
    }
    Ok(base)
}

/// Whether there is nothing to make a new session of.
fn needs_base(args: &Args) -> bool {
    args.base.is_none() && !args.no_base
}

fn missing(session: &Path) -> CliError {
    let what = format!("{}: there is no such session", session.display());
    let here = std::env::current_dir().unwrap_or_else(|_unknown| ".".into());
    CliError::new(what).with_hint(format_args!(
        "to make it for the current directory: --base {}; for one that begins empty: --no-base",
        quoted(&here.to_string_lossy())
    ))
}

/// The shell of the user as whom the command runs.
fn shell(user: Option<&User>) -> OsString {
    let of_user = user.and_then(|user| user.shell.clone()).map(PathBuf::into_os_string);
    let shell = of_user.or_else(|| std::env::var_os("SHELL"));
    shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.into())
}

impl RunPlan<'_> {
    /// The parameters to serve the session and to mount it at `point`.
    fn wanted<'w>(&'w self, point: &'w MountPoint) -> AttachOptions<'w> {
        AttachOptions {
            session: self.session.clone(),
            url: self.url.as_deref(),
            base: self.args.base.as_ref().and(self.base.clone()),
            point,
            listen: None,
            read_only: false,
            hide: self.hide.clone(),
            settings: self.args.choosing.settings(RootSquash::default()),
            options: self.args.options.as_deref(),
            user: self.user.as_ref(),
            means: self.means,
        }
    }

    /// The path in the base of the current directory, if it is in the base.
    fn below(&self) -> Option<PathBuf> {
        let here = std::env::current_dir().ok()?;
        Some(here.strip_prefix(self.base.as_ref()?).ok()?.to_owned())
    }

    /// The state of the session before the command runs. The session must be served already.
    fn summary(&self) -> Result<Option<SessionBefore>, CliError> {
        if self.args.command.is_empty() {
            let (session, shell) = (self.session.display(), self.command[0].display());
            output::line(format_args!("{shell}: changes go to {session}; `exit` ends the run"));
        }
        let program = self.command[0].to_string_lossy();
        let has_checkpoint = !self.args.no_checkpoint
            && checkpoint::before_command(&self.session, ("command", &program)).is_some();
        SessionBefore::now(&self.session, has_checkpoint).map(Some)
    }

    /// Shows the summary; returns the exit code. `begun` is `None` if the command never ran.
    fn finish(
        &self,
        begun: Option<SessionBefore>,
        code: Result<u8, CliError>,
        left: Result<(), CliError>,
    ) -> Result<u8, CliError> {
        if let Some(begun) = begun {
            let ended = code.as_ref().ok().copied();
            let report = self.args.report.as_deref();
            let shown = begun.show(self.base.as_deref(), ended, report, self.user.as_ref());
            if let Err(error) = shown {
                output::line(format_args!("cannot show what changed: {error}"));
            }
        }
        match (code, left) {
            (Ok(code), Ok(())) => Ok(code),
            (Ok(0), Err(error)) | (Err(error), Ok(())) => Err(error),
            (code, Err(error)) => {
                output::error(&error);
                code
            }
        }
    }
}

/// Sets the command's environment and current directory.
pub(super) fn environment(
    command: &mut Command,
    session: &Path,
    directory: &Path,
    user: Option<&User>,
) {
    command.env(VARIABLE, session).env("PWD", directory).current_dir(directory);
    if let Some(user) = user {
        command.env("USER", &user.name).env("LOGNAME", &user.name);
        if let Some(home) = &user.home {
            command.env("HOME", home);
        }
    }
}

/// Creates a private directory with this name.
fn private_dir(name: &OsStr, user: Option<&User>) -> Result<PrivateDir, CliError> {
    PrivateDir::new(name, user).map_err(|error| {
        let temporary = std::env::temp_dir();
        let what = format!("cannot make a directory in {}", temporary.display());
        CliError::caused(what, &error).with_hint("name one to mount at: --at DIR")
    })
}

/// Gives the command's user access to a private directory.
fn give_to(private: &PrivateDir, user: Option<&User>) -> Result<(), CliError> {
    private.give_to(user).map_err(|error| {
        let shown = private.point().path().display();
        CliError::caused(format!("cannot give the command's user access to {shown}"), &error)
    })
}
