//! `acetate mount-sync-child`: syncs one mount, for a command that makes a checkpoint or restores.

use std::path::PathBuf;

use super::Ending;
use super::error::CliError;
use crate::mounting::client_sync::sync_filesystem;

/// The exit code for an error without a number.
const FAILED: u8 = 5;

/// Sync a mount: for commands that make checkpoints.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The device number of the filesystem, as in `/proc/self/mountinfo`.
    #[arg(long)]
    device: String,

    /// The root of the mount.
    dir: PathBuf,
}

/// Syncs it; the exit code is the number of the error.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let code = match sync_filesystem(&args.dir, &args.device) {
        Ok(()) => 0,
        Err(error) => {
            let number = error.raw_os_error().and_then(|number| u8::try_from(number).ok());
            number.unwrap_or(FAILED)
        }
    };
    Ok(Ending::Exit(code))
}
