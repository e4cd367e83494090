//! Finds exports whose options let clients act as any user, when other machines can reach them.

use crate::config::{ExportConfig, SquashMode};

/// The hint for [`pretended`].
pub(super) const HINT: &str = "leave these options out, say `all_squash`, or listen on 127.0.0.1 \
    and use a tunnel";

/// Describes the users that clients can act as, if options make these more than necessary.
pub(super) fn impersonation_risk(export: &ExportConfig) -> Option<String> {
    let lets_root = export.options.squash == SquashMode::NoRoot;
    let lets_users = !export.options.is_secure && export.options.squash != SquashMode::All;
    let (options, who) = match (lets_users, lets_root) {
        (true, true) => ("`insecure` and `no_root_squash` let", "any user, root included"),
        (true, false) => ("`insecure` lets", "any user but root"),
        (false, true) => ("`no_root_squash` lets", "any user, root included"),
        (false, false) => return None,
    };
    let whose = match (export.clients.are_all(), lets_users) {
        (true, true) => "every program of every machine that reaches the port",
        (true, false) => "every machine that reaches the port",
        (false, true) => "every program of its clients",
        (false, false) => "each of its clients",
    };
    Some(format!("{options} {whose} be {who}, and the wire is clear text"))
}
