//! `acetate run`: runs a command in a mounted session.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::child::Runner;
use super::choosing::Choosing;
use super::error::CliError;
use super::hiding::Hide;
use super::mounting::attach::{Attached, Wanted, attach, base_of};
use super::mounting::detach::{
    Server, Unmounting, release, release_other, unmount_dir, unmount_private,
};
use super::mounting::note::Note;
use super::mounting::point::MountPoint;
use super::mounting::private::PrivateDir;
use super::mounting::turn::Turn;
use super::mounting::user::User;
use super::mounting::{place, privilege, table};
use super::squash::RootSquash;
use super::{Ending, diff, output};
use crate::inspect::opened::Opened;

/// Names the session for the command.
const VARIABLE: &str = "ACETATE_SESSION";

/// Changes that are shown at the end; more are counted.
const MAX_SHOWN: usize = 40;

/// Run a command in a session: serve it, mount it, and unmount it afterwards.
///
/// The command's working directory is in the mount, at the place where we are in the base, or
/// at its root. Exits as the command does: with its exit code, or with 128 and the number of the
/// signal that ended it. What changed is shown on stderr at the end. After `sudo`, server and
/// command run as the user who called that. This is no sandbox: the command can reach what that
/// user can, the base by its own path too.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file; made where there is none.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The directory that shows through; it is never written.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Mount at this directory [default: a new one, which goes away].
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,

    #[command(flatten)]
    hide: Hide,

    #[command(flatten)]
    choosing: Choosing,

    /// Leave it mounted and served afterwards.
    #[arg(long)]
    keep_mounted: bool,

    /// More options, as for `mount -o`.
    #[arg(short, long, value_name = "OPTIONS")]
    options: Option<String>,

    /// Serve and run the command as root, too, where `sudo` called this.
    #[arg(long)]
    as_root: bool,

    /// The command with its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Where the session is mounted for the command.
enum Place {
    /// At a directory of the user's.
    Given(MountPoint),
    /// At a directory of its own.
    Private(PrivateDir),
}

/// Serves, mounts, runs, unmounts, and shows what changed.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let means = privilege::check(args.at.as_deref(), &privilege::as_root())?;
    let session = place::session(&args.session)?;
    let user = if args.as_root { None } else { User::behind_sudo() };
    let base = base_of(&session, args.base.as_deref())?;
    if let Some(at) = &args.at {
        let named = MountPoint::find(at)?;
        named.check_owner(user.as_ref())?;
        release_other(named.path(), &session)?;
    }
    // While signals still end us: it may be long in coming.
    let turn = Turn::take(&session)?;
    // From the first on that has to be taken back, a signal is the command's.
    let mut runner = Runner::new()?;
    let place = match &args.at {
        Some(at) => Place::given(at, base.as_deref(), &session, user.as_ref())?,
        None => Place::private(base.as_deref(), &session, user.as_ref())?,
    };
    let wanted = Wanted {
        session,
        base: args.base.as_ref().and(base.clone()),
        point: place.point(),
        listen: None,
        squash: RootSquash::default(),
        read_only: false,
        hide: args.hide.patterns()?,
        choosing: args.choosing,
        options: args.options.as_deref(),
        user: user.as_ref(),
        means,
    };
    let Attached { note, child } = match attach(&wanted, turn) {
        Ok(attached) => attached,
        Err(error) => {
            place.remove();
            return Err(error);
        }
    };
    let code = match runner.interrupted() {
        Some(code) => Ok(code),
        None => place.give_to(user.as_ref()).and_then(|()| {
            let command = command(args, &note, base.as_deref(), user.as_ref())?;
            Ok(runner.run(command, user.as_ref())?.code)
        }),
    };
    let left = leave(args, &place, &note, child);
    show(&note);
    match (code, left) {
        (Ok(code), Ok(())) => Ok(Ending::Exit(code)),
        (Ok(0), Err(error)) | (Err(error), Ok(())) => Err(error),
        (code, Err(error)) => {
            output::error(&error);
            code.map(Ending::Exit)
        }
    }
}

impl Place {
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
            output::line(format_args!("{shown} is not empty: what is in it is hidden meanwhile"));
        }
        Ok(Self::Given(point))
    }

    /// A new directory that is called as the base is, for whom the command runs as.
    fn private(base: Option<&Path>, session: &Path, user: Option<&User>) -> Result<Self, CliError> {
        let name = base.and_then(Path::file_name).or(session.file_stem());
        let made = PrivateDir::new(name.unwrap_or(OsStr::new("session")), user);
        let private = made.map_err(|error| {
            let temporary = std::env::temp_dir();
            let what = format!("cannot make a directory in {}", temporary.display());
            CliError::caused(what, &error).with_hint("name one to mount at: --at DIR")
        })?;
        // A base that holds all temporary directories holds this one. It is ours until then.
        match place::check(private.point(), base, session, None) {
            Ok(_empty) => Ok(Self::Private(private)),
            Err(error) => {
                private.remove();
                Err(error.with_hint("name an empty directory to mount at: --at DIR"))
            }
        }
    }

    fn point(&self) -> &MountPoint {
        match self {
            Self::Given(point) => point,
            Self::Private(private) => private.point(),
        }
    }

    /// Lets the command's user into a directory that was made for it.
    fn give_to(&self, user: Option<&User>) -> Result<(), CliError> {
        match self {
            Self::Given(_) => Ok(()),
            Self::Private(private) => private.give_to(user).map_err(|error| {
                let shown = private.point().path().display();
                CliError::caused(format!("cannot let the command's user into {shown}"), &error)
            }),
        }
    }

    fn unmount(&self) -> Result<(), CliError> {
        match self {
            Self::Given(point) => unmount_dir(point, Unmounting::default()),
            Self::Private(private) => unmount_private(private.point()),
        }
    }

    /// Removes what was made. Only what is empty: whatever is still mounted stays as it is.
    fn remove(&self) {
        if let Self::Private(private) = self {
            private.remove();
        }
    }
}

/// The command, in the mount.
fn command(
    args: &Args,
    note: &Note,
    base: Option<&Path>,
    user: Option<&User>,
) -> Result<Command, CliError> {
    let [program, words @ ..] = &*args.command else {
        return Err(CliError::new("no command"));
    };
    let here = std::env::current_dir().ok();
    let below = base.and_then(|base| here.as_deref()?.strip_prefix(base).ok());
    let inside = below.map(|below| note.dir.join(below)).filter(|inside| inside.is_dir());
    let directory = inside.unwrap_or_else(|| note.dir.clone());
    let mut command = Command::new(program);
    command.args(words).env(VARIABLE, &note.session).env("PWD", &directory);
    command.current_dir(directory);
    if let Some(user) = user {
        command.env("USER", &user.name).env("LOGNAME", &user.name);
        if let Some(home) = &user.home {
            command.env("HOME", home);
        }
    }
    Ok(command)
}

/// Unmounts, unless that is not wanted.
fn leave(args: &Args, place: &Place, note: &Note, child: Option<Child>) -> Result<(), CliError> {
    let dir = note.dir.display();
    if args.keep_mounted {
        output::line(format_args!("still mounted at {dir}; to unmount it: acetate umount {dir}"));
        return Ok(());
    }
    // Another command that unmounted it left the directory and the server.
    match table::at(&place.point().path_now())? {
        Some(mounted) if mounted.is_from(note.reached()) => place.unmount()?,
        Some(mounted) => {
            let kind = mounted.kind;
            output::line(format_args!("{dir}: something else is mounted there now ({kind})"));
        }
        None => {}
    }
    place.remove();
    if let Server::GoesOn { pid, why } = release(note, child, false)? {
        output::line(format_args!("its server (process {pid}) goes on: {why}"));
    }
    Ok(())
}

/// Shows what the session changed, and what can be done with that.
fn show(note: &Note) {
    let session = note.session.display();
    let shown = Opened::open(&note.session, None)
        .map_err(CliError::from)
        .and_then(|opened| diff::stat(&opened, MAX_SHOWN));
    match shown {
        Ok(0) => output::line(format_args!("{session}: nothing changed")),
        Ok(_) => output::line(format_args!(
            "to see it: acetate diff {session}; to keep it: acetate apply {session}; \
             to undo a part: acetate discard {session} PATH"
        )),
        Err(error) => {
            output::line(format_args!("cannot show what changed: {error}"));
        }
    }
}
