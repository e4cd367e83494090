//! `acetate mount`: serves a session in the background and mounts it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::choosing::SessionOptions;
use super::error::CliError;
use super::hiding::Hide;
use super::in_database::{IfMissing, ReplicaOptions, SessionToMount};
use super::mount_events::tell;
use super::output::{self, Out};
use super::squash::RootSquash;
use super::{Ending, in_database, session_names, text};
use crate::mounting::attach::{AttachOptions, MountState, again, attach, base_of};
use crate::mounting::detach::release_other;
use crate::mounting::mount_lock::MountLock;
use crate::mounting::note::Note;
use crate::mounting::point::MountPoint;
use crate::mounting::user::User;
use crate::mounting::{place, privilege, table};

/// Serve a session in the background, and mount it.
///
/// If the session is being served, that server is mounted. Otherwise one is started: it listens on
/// a free port of 127.0.0.1, logs to SESSION.db.log (for a session in a database, beside its
/// replica), and ends with `acetate umount`. After `sudo`
/// it runs as the user who called sudo. If the server of a mount was killed, the same command
/// starts it again, and the mount continues.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file, or its URL in a database; made if there is none.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The directory to mount at; its content is hidden while the session is mounted.
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The directory that shows through; it is never written.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Refuse every change.
    #[arg(long)]
    read_only: bool,

    /// Where the server is to listen [default: a free port of 127.0.0.1].
    #[arg(long, value_name = "ADDR:PORT", value_parser = super::listen::parse)]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    squash: RootSquash,

    #[command(flatten)]
    hide: Hide,

    #[command(flatten)]
    choosing: SessionOptions,

    #[command(flatten)]
    replica: ReplicaOptions,

    /// More options, as for `mount -o`.
    #[arg(short, long, value_name = "OPTIONS")]
    options: Option<String>,

    /// Serve as root, too, where `sudo` called this.
    #[arg(long)]
    as_root: bool,

    /// Print a JSON object: dir, session, address, server (its process, if started for mounts).
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let means = privilege::check(Some(&args.dir))?;
    in_database::name_mounted();
    let user = if args.as_root { None } else { User::behind_sudo() };
    let hide = args.hide.patterns()?;
    let new = IfMissing {
        base: args.base.as_deref(),
        hide: &hide,
        existing: args.choosing.existing,
        moved: args.choosing.moved,
        refused: None,
    };
    let named = MountPoint::find(&args.dir)?;
    named.check_owner(user.as_ref())?;
    let found = SessionToMount::find(&args.session, &args.replica, new, user.as_ref())?;
    let session = found.file;
    let base = base_of(&session, args.base.as_deref())?;
    release_other(named.path(), &session, &tell)?;
    let turn = MountLock::take(&session, &tell)?;
    // The directory may have changed while this process waited for the lock.
    let point = MountPoint::find(&args.dir)?;
    let wanted = AttachOptions {
        session,
        url: found.url.as_deref(),
        base: args.base.as_ref().and(base.clone()),
        point: &point,
        listen: args.listen,
        read_only: args.read_only,
        hide,
        settings: args.choosing.settings(args.squash),
        options: args.options.as_deref(),
        user: user.as_ref(),
        means,
    };
    if let Some(mounted) = table::at(point.path())? {
        return match again(&wanted, &mounted, turn, &tell)? {
            MountState::Serving(note) => told(args, &note, "is mounted already at"),
            MountState::Restarted(note) => told(args, &note, "is served again, and mounted at"),
        };
    }
    if place::check(&point, base.as_deref(), &wanted.session, user.as_ref())? {
        let shown = point.path().display();
        output::line(format_args!(
            "{shown} is not empty: its content is hidden while the session is mounted"
        ));
    }
    let attached = attach(&wanted, turn, &tell)?;
    told(args, &attached.note, "is mounted at")
}

fn told(args: &Args, note: &Note, how: &str) -> Result<Ending, CliError> {
    let (session, dir) = (session_names::shown(&note.session), note.dir.display());
    let mut out = Out::new();
    if args.json {
        let mut object = text::json("mount");
        text::put_path(&mut object, "dir", note.dir.as_os_str().as_encoded_bytes());
        text::put_path(&mut object, "session", note.session.as_os_str().as_encoded_bytes());
        object.insert("address".to_owned(), note.reached().to_string().into());
        object.insert("server".to_owned(), note.started.into());
        out.json(object)?;
    } else {
        out.line(format_args!("{session} {how} {dir}, from {}", note.reached()))?;
        out.line(format_args!("to unmount it: acetate umount {dir}"))?;
    }
    out.end()?;
    Ok(Ending::Done)
}
