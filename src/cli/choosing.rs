//! Which session a server is to have: `--existing` and `--moved`, and what is said of a new one.

use std::path::Path;

use super::output;
use super::similar::{did_you_mean, similar};

/// The options.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Choosing {
    /// Refuse to make a session where there is none.
    #[arg(long, hide_short_help = true)]
    pub(super) existing: bool,

    /// The base given with --base is the tree of the session at another place.
    ///
    /// It is checked: at least half of the files and links that were copied up have to be there
    /// with their types and sizes. Without it, a session with changes refuses another base.
    #[arg(long, requires = "base", hide_short_help = true)]
    pub(super) moved: bool,
}

impl Choosing {
    /// The options that were given.
    pub(super) fn options(self) -> impl Iterator<Item = &'static str> {
        let given = [(self.existing, "--existing"), (self.moved, "--moved")];
        given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

/// Says that a session was created, and which one with a similar name may have been meant.
pub(super) fn tell_created(session: &Path) {
    output::line(format_args!("created {}", session.display()));
    if let Some(similar) = similar(session) {
        let how = "with --existing none is made";
        output::line(format_args!("hint: {} ({how})", did_you_mean(&similar)));
    }
}
