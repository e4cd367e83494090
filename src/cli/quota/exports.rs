//! Shows the quotas of exports: from their server, or from the sessions if it is not running.

use std::path::Path;

use serde_json::{Map, Value};

use super::{brief, line, put};
use crate::cli::change::connect;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::{Ending, text};
use crate::config::{self, Config, Missing, real_path};
use crate::control::{
    Answer, ControlConnection, ExportUsage, ExportsUsage, Request, SessionUsage, entries,
};
use crate::workspace::accounts;

/// Shows the exports of an exports file.
pub(super) fn show(file: &Path, is_json: bool) -> Result<Ending, CliError> {
    let config = config::read(file, Missing::Leave)?;
    let served = served(file, &config);
    let is_served = served.is_some();
    let usage = match served {
        Some(usage) => usage,
        None => accounts::at_rest(file, &config)?,
    };
    let mut out = Out::new();
    for export in &usage.exports {
        if is_json {
            out.json(json(export, is_served))?;
            continue;
        }
        out.line(format_args!("{}", brief(export)))?;
        for session in &export.sessions {
            out.line(format_args!("  {}", session_line(session)))?;
        }
    }
    out.end()?;
    if !is_served && !is_json {
        let file = text::name(file.as_os_str().as_encoded_bytes());
        output::line(format_args!("{file} is not served: this is what its sessions hold"));
    }
    Ok(Ending::Done)
}

/// The usage from the server of an exports file, if one answers this user.
fn served(file: &Path, config: &Config) -> Option<ExportsUsage> {
    let file = real_path(file);
    let mounts = config.exports.iter().flat_map(|export| &export.mounts);
    let in_file = mounts.filter_map(|mount| mount.session().cloned());
    // Sessions in memory are only in the list of servers.
    let listed = entries().unwrap_or_default().into_iter().map(|entry| entry.session);
    in_file.chain(listed).find_map(|session| {
        let mut server = connect(&session).ok().flatten()?;
        ask(&mut server).filter(|usage| usage.file.as_ref() == Some(&file))
    })
}

/// The exports of a server that contain a session.
pub(in crate::cli) fn with_session(
    server: &mut ControlConnection,
    session: &Path,
) -> Vec<ExportUsage> {
    let session = real_path(session);
    let is_in = |part: &SessionUsage| part.session.as_ref() == Some(&session);
    let all = ask(server).unwrap_or_default().exports;
    all.into_iter().filter(|export| export.sessions.iter().any(is_in)).collect()
}

fn ask(server: &mut ControlConnection) -> Option<ExportsUsage> {
    match server.ask(&Request::Exports) {
        Ok(Answer::Exports(usage)) => Some(usage),
        _ => None,
    }
}

fn session_line(part: &SessionUsage) -> String {
    let places: Vec<String> = part.at.iter().map(|at| text::name(at.as_bytes())).collect();
    let session = match &part.session {
        Some(file) => text::name(file.as_os_str().as_encoded_bytes()),
        None => "memory".to_owned(),
    };
    let counted = if part.is_counted { "" } else { "; only read here, and not counted" };
    format!("{} {session}: {}{counted}", places.join(" "), line(&part.taken))
}

fn json(export: &ExportUsage, is_served: bool) -> Map<String, Value> {
    let mut object = text::json("export_quota");
    object.insert("name".to_owned(), export.name.as_str().into());
    object.insert("is_served".to_owned(), is_served.into());
    put(&mut object, &export.taken);
    object.insert("sessions".to_owned(), export.sessions.iter().map(session_json).collect());
    object
}

fn session_json(part: &SessionUsage) -> Value {
    let mut object = Map::new();
    match &part.session {
        Some(file) => {
            text::put_path(&mut object, "session", file.as_os_str().as_encoded_bytes());
        }
        None => drop(object.insert("session".to_owned(), Value::Null)),
    }
    object.insert("at".to_owned(), part.at.clone().into());
    object.insert("is_counted".to_owned(), part.is_counted.into());
    put(&mut object, &part.taken);
    object.into()
}

/// The JSON of an export without its sessions.
pub(in crate::cli) fn brief_json(export: &ExportUsage) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), export.name.as_str().into());
    put(&mut object, &export.taken);
    object.into()
}
