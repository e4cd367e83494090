//! `acetate sandbox-child`: the first process in a sandbox of `run`, which runs the command.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::Ending;
use super::child::Runner;
use super::error::CliError;
use super::namespace_child::command;
use crate::mounting::sandbox::TMP;
use crate::mounting::sandbox::confine;
use crate::mounting::user::User;

/// Confine this process, and run a command: for `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the session shows.
    #[arg(long)]
    pub(super) dir: PathBuf,

    /// What the command gets as the session's path.
    #[arg(long)]
    pub(super) session: PathBuf,

    /// Where the command begins, if there is such a directory.
    #[arg(long)]
    pub(super) enter: PathBuf,

    /// A directory that can be written to.
    #[arg(long)]
    pub(super) writable: Vec<PathBuf>,

    /// As for `run`.
    #[arg(long)]
    pub(super) no_network: bool,

    /// As for `run`.
    #[arg(long)]
    pub(super) as_root: bool,

    /// The command with its arguments.
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}

impl Args {
    /// The arguments with which `namespace-child` starts this command.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["sandbox-child".into()];
        let fixed =
            [("--dir=", &self.dir), ("--session=", &self.session), ("--enter=", &self.enter)];
        let writable = self.writable.iter().map(|dir| ("--writable=", dir));
        for (name, path) in fixed.into_iter().chain(writable) {
            let mut word = OsString::from(name);
            word.push(path);
            words.push(word);
        }
        let flags = [("--no-network", self.no_network), ("--as-root", self.as_root)];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }
}

/// Drops rights and runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let failed = |what: &'static str| {
        move |error: io::Error| CliError::caused(format_args!("no sandbox: {what}"), &error)
    };
    confine::end_with_parent().map_err(failed("the parent's end"))?;
    confine::set_process_name();
    let user = if args.as_root { None } else { User::behind_sudo() };
    confine::mount_proc().map_err(failed("/proc"))?;
    if args.no_network {
        confine::leave_network().map_err(failed("a network namespace"))?;
    }
    let has_left = confine::leave_terminal();
    let mut runner = Runner::reaping()?;
    runner.pass_on_all(has_left);
    confine::restrict(&args.writable)?;
    confine::drop_capabilities(user.is_none()).map_err(failed("capabilities"))?;
    let mut command = command(&args.command, &args.session, &args.enter, &args.dir, user.as_ref());
    command.env("TMPDIR", TMP);
    Ok(Ending::Exit(runner.run(command, user.as_ref())?.code))
}
