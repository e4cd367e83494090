//! Warns of insecure ways to serve a session. NFSv3 has no authentication: a client itself states
//! which user it acts for.

use std::net::SocketAddr;

use crate::cli::squash::is_beyond_loopback;
use crate::cli::{exposure, output, text};
use crate::config::Config;

/// Warns on stderr if clients can act as any user.
pub(super) fn tell(addresses: &[SocketAddr], insecure: bool, squashes_root: bool) {
    let who = if squashes_root { "any user but root" } else { "any user, root included" };
    if let Some(address) = addresses.iter().find(|address| is_beyond_loopback(address)) {
        output::line(format_args!(
            "warning: other machines can reach {address}: each of them can be {who}, and the \
             wire is clear text"
        ));
        output::line(format_args!(
            "hint: listen on 127.0.0.1 and use a tunnel, or name the clients in an exports file"
        ));
    }
    if insecure {
        output::line(format_args!(
            "warning: --insecure lets every program that reaches the port be {who}"
        ));
        let hint = match squashes_root {
            true => "leave it out where clients can mount with `resvport`",
            false => "leave it out where clients can mount with `resvport`, or add --root-squash",
        };
        output::line(format_args!("hint: {hint}"));
    }
}

/// Warns on stderr if other machines can read the figures of `--admin`.
pub(super) fn tell_of_admin(address: Option<SocketAddr>) {
    if let Some(address) = address.filter(is_beyond_loopback) {
        output::line(format_args!(
            "warning: other machines can read the figures at {address}, without a password"
        ));
        output::line(format_args!("hint: listen on 127.0.0.1, or let a firewall guard the port"));
    }
}

/// Warns on stderr of each export in which other machines can act as any user. The warning names
/// the position in the file, because a secret path must not get into logs.
pub(super) fn tell_of_exports(config: &Config, addresses: &[SocketAddr]) {
    if !addresses.iter().any(is_beyond_loopback) {
        return;
    }
    let templates = config.templates.iter().map(|template| &template.export);
    let exports = config.exports.iter().chain(templates);
    for export in exports.filter(|export| export.clients.are_beyond_loopback()) {
        if let Some(what) = exposure::impersonation_risk(export) {
            let file = text::name(export.file.as_os_str().as_encoded_bytes());
            output::line(format_args!("warning: {file}:{}: {what}", export.position));
            output::line(format_args!("hint: {}", exposure::HINT));
        }
    }
}
