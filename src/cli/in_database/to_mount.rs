//! Sessions in databases for `mount` and `run`: made if there is none, and found by the replica
//! that a server of this machine has, or is to have.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Handle;

use super::{TERM, is_missing, parse, served_here, start, url_of};
use crate::cli::error::CliError;
use crate::cli::{output, session_names};
use crate::delta::postgres::{SessionUrl, use_home};
use crate::inspect::opened::open_session;
use crate::mounting::place;
use crate::mounting::user::{User, acting_as};
use crate::pattern::PatternSet;
use crate::workspace::database::{DatabaseOptions, look, make, row_of};
use crate::workspace::replicas::place_in_home;

/// Options for a session in a database that is served and mounted.
#[derive(Debug, Clone, Default, clap::Args)]
pub(in crate::cli) struct ReplicaOptions {
    /// Where the replica of a session in a database is kept [default: the user's cache directory].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    local: Option<PathBuf>,

    /// Of a new session in a database: seconds after which a server that is silent loses it
    /// [default: 3].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(TERM))]
    #[arg(hide_short_help = true)]
    lease: Option<u64>,
}

/// A new session, if there is none.
#[derive(Debug)]
pub(in crate::cli) struct IfMissing<'a> {
    /// Its base.
    pub(in crate::cli) base: Option<&'a Path>,
    /// The paths of it that are hidden.
    pub(in crate::cli) hide: &'a PatternSet,
    /// Fail instead.
    pub(in crate::cli) existing: bool,
    /// `base` is the session's base at another path.
    pub(in crate::cli) moved: bool,
    /// What says that the session is missing, where it is not to be made.
    pub(in crate::cli) refused: Option<CliError>,
}

/// A session to be served and mounted.
#[derive(Debug)]
pub(in crate::cli) struct SessionToMount {
    /// The session file, or the replica.
    pub(in crate::cli) file: PathBuf,
    /// The session's name, if it is in a database.
    pub(in crate::cli) url: Option<String>,
    /// A name for a directory that is made for it.
    pub(in crate::cli) dir_name: OsString,
}

impl SessionToMount {
    /// Finds the session named `given`. `user` is who called sudo: the replica is theirs.
    ///
    /// # Errors
    /// The path or the URL is none, or the database refuses.
    pub(in crate::cli) fn find(
        given: &Path,
        options: &ReplicaOptions,
        new: IfMissing<'_>,
        user: Option<&User>,
    ) -> Result<Self, CliError> {
        let Some(url) = url_or_that_of_replica(given)? else {
            if options.local.is_some() || options.lease.is_some() {
                let what = "--local and --lease are for sessions in a database";
                let hint = "name the session as postgres://USER@HOST/DATABASE/NAME";
                return Err(CliError::new(what).with_hint(hint));
            }
            let file = place::session(given)?;
            let dir_name = file.file_stem().unwrap_or(OsStr::new("session")).to_owned();
            return Ok(Self { file, url: None, dir_name });
        };
        let home = user.and_then(|user| user.home.as_deref());
        if let Some(home) = home {
            use_home(home);
        }
        let of_user = home.map(place_in_home);
        let local = options.local.clone().or(of_user);
        let term = options.lease.map(Duration::from_secs);
        let found = acting_as(user, || {
            let runtime = start();
            Ok(runtime.and_then(|runtime| {
                let wanted = DatabaseOptions {
                    local: local.as_deref(),
                    base: new.base,
                    hidden: new.hide,
                    term,
                    is_moved: new.moved,
                    ..DatabaseOptions::new(&url)
                };
                let file = find(&wanted, new, runtime.handle());
                runtime.shutdown_background();
                file
            }))
        });
        let failed = |error: io::Error| CliError::caused("cannot act as who called sudo", &error);
        let file = found.map_err(failed)??;
        session_names::show_as(&file, &url.to_string());
        Ok(Self { file, url: Some(url.to_string()), dir_name: url.file_name().into() })
    }
}

/// The session in a database that an operand names: by its URL, or by the path of a replica, which
/// commands of `run` get.
fn url_or_that_of_replica(given: &Path) -> Result<Option<SessionUrl>, CliError> {
    if let Some(url) = url_of(given)? {
        return Ok(Some(url));
    }
    let opened = open_session(given).ok();
    let url = opened.as_ref().and_then(|session| session.replica_of());
    url.map(parse).transpose()
}

/// The replica that is served here, or one that is up to date and that no process has open now.
fn find(
    wanted: &DatabaseOptions<'_>,
    new: IfMissing<'_>,
    runtime: &Handle,
) -> Result<PathBuf, CliError> {
    let row = match row_of(wanted.url, runtime) {
        Err(error) if is_missing(&error) && !new.existing => {
            if let Some(refused) = new.refused {
                return Err(refused);
            }
            make(wanted, runtime)?;
            output::line(format_args!("created {}", wanted.url));
            row_of(wanted.url, runtime)?
        }
        row => row?,
    };
    if let Some(served) = served_here(wanted.url, &row) {
        return Ok(served.into());
    }
    Ok(look(wanted.url, &row, wanted.local, runtime)?.path)
}
