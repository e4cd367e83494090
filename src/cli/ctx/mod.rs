//! `acetate ctx`: context nodes of a session.

mod get;
mod ls;
mod mv;
mod outbox;
mod place;
mod print;
mod put;
mod relate;
mod repair;
mod rm;

use super::Ending;
use super::error::CliError;

/// Keep context nodes in a session: what agents know of users and of themselves.
///
/// A node has a URI, ctx://ACCOUNT/users/USER/memories/CATEGORY/SLUG,
/// ctx://ACCOUNT/agents/AGENT/memories/CATEGORY/SLUG or ctx://ACCOUNT/agents/AGENT/skills/NAME, and
/// is a directory of the same name below /accounts in the session's tree. If a change was
/// interrupted, `repair` makes the node the old version or the new one.
///
/// With --account, or ACETATE_ACCOUNT in the environment, every other account is refused. Without,
/// the owner of the session acts as whichever account a URI names.
///
/// The session may be served at the same time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: CtxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CtxCommand {
    Put(put::Args),
    Get(get::Args),
    Ls(ls::Args),
    Rm(rm::Args),
    Mv(mv::Args),
    Relate(relate::Args),
    Outbox(outbox::Args),
    Repair(repair::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    match &args.command {
        CtxCommand::Put(args) => put::run(args),
        CtxCommand::Get(args) => get::run(args),
        CtxCommand::Ls(args) => ls::run(args),
        CtxCommand::Rm(args) => rm::run(args),
        CtxCommand::Mv(args) => mv::run(args),
        CtxCommand::Relate(args) => relate::run(args),
        CtxCommand::Outbox(args) => outbox::run(args),
        CtxCommand::Repair(args) => repair::run(args),
    }
}
