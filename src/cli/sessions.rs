//! `acetate sessions`: what is being served on this machine.

use super::change::connect;
use super::error::CliError;
use super::mounting::table::{Mounted, mounted};
use super::output::{self, Out};
use super::{Ending, text};
use crate::control::{Answer, Entry, Request, ServerStatus, entries};

/// List the sessions that are being served on this machine.
///
/// Those of this user's servers that take changes, with their addresses and where they are
/// mounted here.
/// Exits with 1 if there are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON object for each: session, base, pid, addresses, uptime (in seconds), clients
    /// (connections), mounts (directories of this machine).
    #[arg(long)]
    json: bool,
}

/// Lists them.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let found = entries().map_err(|error| CliError::caused("the list of servers", &error))?;
    // What is mounted is told where the system tells it.
    let mounted = mounted().unwrap_or_default();
    let mut out = Out::new();
    let mut is_empty = true;
    for entry in found {
        let Some(status) = ask(&entry)? else {
            entry.forget();
            continue;
        };
        is_empty = false;
        show(args, &entry, &status, &mounted, &mut out)?;
    }
    out.end()?;
    if is_empty && !args.json {
        output::line(format_args!("no session is being served by this user"));
    }
    Ok(if is_empty { Ending::Findings } else { Ending::Done })
}

/// How a server stands; `None` if it is gone.
fn ask(entry: &Entry) -> Result<Option<ServerStatus>, CliError> {
    let Some(mut server) = connect(&entry.session)? else { return Ok(None) };
    match server.ask(&Request::Status) {
        Ok(Answer::Status(status)) => Ok(Some(status)),
        _ => Ok(None),
    }
}

fn show(
    args: &Args,
    entry: &Entry,
    status: &ServerStatus,
    mounted: &[Mounted],
    out: &mut Out,
) -> Result<(), CliError> {
    let session = entry.session.as_os_str().as_encoded_bytes();
    let is_ours = |mounted: &Mounted| status.addresses.iter().any(|at| mounted.is_from(*at));
    let mounts: Vec<_> =
        mounted.iter().filter(|mounted| is_ours(mounted)).map(|mounted| &mounted.dir).collect();
    if args.json {
        let mut object = text::json("session");
        text::put_path(&mut object, "session", session);
        let base = status.base.as_ref().map(|base| base.display().to_string());
        object.insert("base".to_owned(), base.into());
        object.insert("pid".to_owned(), status.pid.into());
        let addresses: Vec<_> = status.addresses.iter().map(ToString::to_string).collect();
        object.insert("addresses".to_owned(), addresses.into());
        object.insert("uptime".to_owned(), status.uptime.into());
        object.insert("clients".to_owned(), status.peers.len().into());
        let dirs: Vec<_> = mounts.iter().map(|dir| dir.display().to_string()).collect();
        object.insert("mounts".to_owned(), dirs.into());
        return out.json(object);
    }
    out.line(format_args!("{}", line(session, status)))?;
    for dir in mounts {
        out.line(format_args!("  mounted at {}", text::name(dir.as_os_str().as_encoded_bytes())))?;
    }
    Ok(())
}

fn line(session: &[u8], status: &ServerStatus) -> String {
    let addresses: Vec<_> = status.addresses.iter().map(ToString::to_string).collect();
    let base = match &status.base {
        Some(base) => text::name(base.as_os_str().as_encoded_bytes()),
        None => "no base".to_owned(),
    };
    format!(
        "{}  {base}  {}  {}  pid {}",
        text::name(session),
        addresses.join(" "),
        text::count(status.peers.len(), "connection"),
        status.pid,
    )
}
