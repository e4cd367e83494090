//! `acetate sessions`: lists the sessions that are served on this machine.

use super::change::connect;
use super::error::CliError;
use super::output::{self, Out};
use super::{Ending, session_names, text};
use crate::control::{Answer, RegistryEntry, Request, ServerStatus, entries};
use crate::delta::postgres::{DatabasePlace, ListedSession, UrlError, without_password};
use crate::inspect::opened::open_session;
use crate::mounting::address::reached;
use crate::mounting::table::{Mounted, mounted};
use crate::workspace::database;

/// List the sessions that are being served on this machine.
///
/// Lists sessions of this user's servers that accept changes, with their addresses and mount
/// points. With the URL of a database, lists the sessions in it, and who serves each. Exits with 1
/// if there are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// postgres://USER@HOST/DATABASE[?schema=S]: list the sessions in this database.
    #[arg(value_name = "URL")]
    database: Option<String>,

    /// Print a JSON object for each: session, base, pid, addresses, uptime (in seconds), clients
    /// (connections), mounts (directories of this machine); of a database: session, holder,
    /// address, epoch, seq (changes since it was made, in batches), bytes.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    if let Some(url) = &args.database {
        return in_database(args, &parse_place(url)?);
    }
    let found = entries().map_err(|error| CliError::caused("the list of servers", &error))?;
    // Without a mount table, no mounts are shown.
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

/// The status of a server; `None` if it is gone.
fn ask(entry: &RegistryEntry) -> Result<Option<ServerStatus>, CliError> {
    let Some(mut server) = connect(&entry.session)? else { return Ok(None) };
    match server.ask(&Request::Status) {
        Ok(Answer::Status(status)) => Ok(Some(status)),
        _ => Ok(None),
    }
}

fn show(
    args: &Args,
    entry: &RegistryEntry,
    status: &ServerStatus,
    mounted: &[Mounted],
    out: &mut Out,
) -> Result<(), CliError> {
    let opened = open_session(&entry.session).ok();
    if let Some(url) = opened.as_ref().and_then(|session| session.replica_of()) {
        session_names::show_as(&entry.session, url);
    }
    let url = session_names::url_of(&entry.session);
    let session =
        url.as_deref().map_or(entry.session.as_os_str().as_encoded_bytes(), str::as_bytes);
    let shown = mounted.iter().filter(|mounted| shows(mounted, status));
    let mounts: Vec<_> = shown.map(|mounted| &mounted.dir).collect();
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

/// Whether a mount on this machine is one of the server's exports. A mount without a known server
/// address may be.
fn shows(mounted: &Mounted, status: &ServerStatus) -> bool {
    let is_here = status.addresses.iter().any(|at| mounted.is_from(reached(*at)));
    let exports = status.exports.as_ref();
    is_here && exports.is_none_or(|paths| paths.iter().any(|path| mounted.is_export(path)))
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

fn parse_place(text: &str) -> Result<DatabasePlace, CliError> {
    text.parse().map_err(|error: UrlError| {
        // Not by clap, which would show the whole text.
        let error = CliError::new(format!("{}: {error}", without_password(text)));
        error.with_hint("a database is named as postgres://USER@HOST/DATABASE?schema=S")
    })
}

/// Lists the sessions of a database.
fn in_database(args: &Args, place: &DatabasePlace) -> Result<Ending, CliError> {
    let runtime = super::in_database::start()?;
    let found = database::all(place, runtime.handle())?;
    let mut out = Out::new();
    for session in &found {
        let ListedSession { name, seq, bytes, lease } = session;
        if args.json {
            let mut object = text::json("database_session");
            object.insert("session".to_owned(), name.as_str().into());
            object.insert("holder".to_owned(), lease.holder.as_deref().into());
            object.insert("address".to_owned(), lease.address.as_deref().into());
            object.insert("epoch".to_owned(), lease.epoch.into());
            object.insert("seq".to_owned(), (*seq).into());
            object.insert("bytes".to_owned(), (*bytes).into());
            out.json(object)?;
            continue;
        }
        let name = text::name(name.as_bytes());
        let size = text::bytes(bytes.unsigned_abs());
        let holder = match (&lease.holder, lease.address.as_deref().filter(|it| !it.is_empty())) {
            (None, _) => "not served".to_owned(),
            (Some(holder), None) => format!("by {}", text::name(holder.as_bytes())),
            (Some(holder), Some(address)) => format!(
                "by {} at {}",
                text::name(holder.as_bytes()),
                text::name(address.as_bytes())
            ),
        };
        out.line(format_args!("{name}  {size}  {holder}"))?;
    }
    out.end()?;
    if found.is_empty() && !args.json {
        output::line(format_args!("no session is in {place}"));
    }
    Ok(if found.is_empty() { Ending::Findings } else { Ending::Done })
}

#[cfg(test)]
mod tests {
    use super::shows;
    use crate::control::ServerStatus;
    use crate::mounting::table::Mounted;

    fn mounted(source: &str, server: &str) -> Mounted {
        let server = server.parse().ok();
        let device = "0:50".into();
        Mounted { dir: "/mnt".into(), kind: "nfs".into(), source: source.into(), device, server }
    }

    fn status(address: &str, exports: Option<&[&str]>) -> ServerStatus {
        ServerStatus {
            pid: 1,
            version: String::new(),
            addresses: vec![address.parse().unwrap()],
            base: None,
            exports: exports.map(|paths| paths.iter().map(ToString::to_string).collect()),
            uptime: 0,
            peers: Vec::new(),
        }
    }

    #[test]
    fn a_server_at_all_addresses_is_mounted_by_one() {
        let local = mounted("127.0.0.1:/", "127.0.0.1:2049");
        assert!(shows(&local, &status("127.0.0.1:2049", None)));
        assert!(shows(&local, &status("0.0.0.0:2049", None)));
        assert!(!shows(&local, &status("0.0.0.0:2050", None)));
        assert!(shows(&mounted("[::1]:/", "[::1]:2049"), &status("[::]:2049", None)));
        assert!(!shows(&mounted("nas:/", "192.0.2.1:2049"), &status("0.0.0.0:2049", None)));
    }

    #[test]
    fn a_mount_shows_the_sessions_of_its_export() {
        let at = "0.0.0.0:2049";
        let skill = mounted("localhost:/skill", "127.0.0.1:2049");
        assert!(shows(&skill, &status(at, Some(&["/other", "/skill"]))));
        for others in [&["/other"][..], &["/skill/more"], &["/"], &[]] {
            assert!(!shows(&skill, &status(at, Some(others))), "{others:?}");
        }
        assert!(shows(
            &mounted("[::1]://a//b/", "[::1]:2049"),
            &status("[::]:2049", Some(&["/a/b"]))
        ));
        assert!(!shows(&mounted("odd", "127.0.0.1:2049"), &status(at, Some(&["/"]))));
    }
}
