//! Detects a base whose path shows the session itself: in the mount namespace of a `run`.

use std::path::Path;

use super::address::reached;
use super::table::{self, Mounted};
use crate::cli::change::connect;
use crate::cli::error::CliError;
use crate::cli::text;
use crate::control::{Answer, Request};
use crate::inspect::opened::open_session;

/// Refuses `session` over a base whose path shows the session itself. `base` is the base that the
/// user named.
///
/// # Errors
/// The path of the base shows the session, or the session cannot be opened.
pub(in crate::cli) fn refuse(session: &Path, base: Option<&Path>) -> Result<(), CliError> {
    let mounted = table::mounted().unwrap_or_default();
    if !mounted.iter().any(Mounted::is_nfs) {
        return Ok(());
    }
    let recorded = match base {
        Some(_) => None,
        None => open_session(session)?.base_path().map(Path::to_owned),
    };
    let Some(base) = base.or(recorded.as_deref()) else { return Ok(()) };
    let path = std::path::absolute(base).unwrap_or_else(|_unknown| base.to_owned());
    let over = mounted.iter().filter(|mounted| path.starts_with(&mounted.dir));
    let nearest = over.max_by_key(|mounted| mounted.dir.components().count());
    let Some(server) = nearest.and_then(|mounted| mounted.server) else { return Ok(()) };
    let Ok(Some(mut its)) = connect(session) else { return Ok(()) };
    let Ok(Answer::Status(status)) = its.ask(&Request::Status) else { return Ok(()) };
    if !status.addresses.iter().any(|address| reached(*address) == server) {
        return Ok(());
    }
    let (base, session) = (text::name(base.as_os_str().as_encoded_bytes()), session.display());
    let what = format!("{base} shows the session itself here, in a command of `acetate run`");
    Err(CliError::new(what).with_hint(format_args!(
        "there is no base here to compare with or to change: do this outside of the run, or \
         when it has ended, with {session}"
    )))
}
