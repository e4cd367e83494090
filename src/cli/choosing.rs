//! Options that choose the session of a server: `--existing`, `--moved`, `--keep-originals`,
//! `--checkpoints` and `--keep-checkpoints`; and the message about a new session.

use std::collections::BTreeSet;
use std::path::Path;

use super::output;
use super::similar::{did_you_mean, similar};
use super::squash::RootSquash;
use crate::config::{CheckpointsConfig, KeepCheckpointsConfig, parse_bytes};
use crate::mounting::server::ServerSettings;
use crate::overlay::CopyLimits;

/// Options of commands that open a session to serve it.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct SessionOptions {
    /// Fail if there is no such session, instead of making one.
    #[arg(long, hide_short_help = true)]
    pub(super) existing: bool,

    /// Accept --base as the session's base at another path.
    ///
    /// At least half of the files and links that were copied up must be there with their types and
    /// sizes. Without this option, a session with changes refuses another base.
    #[arg(long, requires = "base", hide_short_help = true)]
    pub(super) moved: bool,

    /// Keep the original of a changed base file up to this size [default: 1MiB].
    ///
    /// With its original, a file can be merged when the base changed too. 16MiB at most; 0 keeps
    /// none.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    pub(super) keep_originals: Option<u64>,

    /// Checkpoints to make: `off`, `tools` (before commands of `run` and `tool run`), or `idle`
    /// [default: tools].
    ///
    /// `idle` makes those, and one after changes that are followed by no other for 2 seconds;
    /// `idle:SECONDS` sets another gap.
    #[arg(long, value_name = "WHICH", hide_short_help = true)]
    pub(super) checkpoints: Option<CheckpointsConfig>,

    /// Automatic checkpoints that the session keeps from now on
    /// [default: 100,hourly=1d, then daily].
    ///
    /// `N,hourly=AGE,daily=AGE,bytes=SIZE`, or a part of it: the newest N, then one for each hour
    /// up to an age, then one for each day up to another age. The oldest go first while more than
    /// SIZE is saved for all checkpoints [default: a quarter of the session's other content, at
    /// least 256MiB]. The session remembers it.
    #[arg(long, value_name = "KEEP", value_parser = KeepCheckpointsConfig::parse)]
    #[arg(hide_short_help = true)]
    pub(super) keep_checkpoints: Option<KeepCheckpointsConfig>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes <= CopyLimits::MAX_ORIGINAL_BYTES);
    bytes.ok_or_else(|| "expected bytes up to 16MiB, such as 4MiB or 4096".to_owned())
}

impl SessionOptions {
    /// The settings of a server with these options.
    pub(super) fn settings(self, squash: RootSquash) -> ServerSettings {
        let Self { existing, moved, keep_originals, checkpoints, keep_checkpoints } = self;
        let root_squash = squash.given();
        ServerSettings {
            root_squash,
            existing,
            moved,
            keep_originals,
            checkpoints,
            keep_checkpoints,
        }
    }
}

/// Says that a session was created, and names an existing session with a similar name.
pub(super) fn tell_created(session: &Path) {
    output::line(format_args!("created {}", session.display()));
    if let Some(similar) = similar(session) {
        let how = "with --existing none is made";
        output::line(format_args!("hint: {} ({how})", did_you_mean(&similar)));
    }
}

/// Says that the session of an export was created, and names a session with a similar name that is
/// not among those that are `served`.
pub(super) fn tell_created_of_export(session: &Path, served: &BTreeSet<&Path>) {
    output::line(format_args!("created {}", session.display()));
    if let Some(similar) = similar(session).filter(|it| !served.contains(it.as_path())) {
        output::line(format_args!("hint: {}", did_you_mean(&similar)));
    }
}
