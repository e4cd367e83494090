//! `acetate namespace-child`: the process of `run` that enters a mount namespace and runs the
//! command in it.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Ending;
use super::child::Runner;
use super::confinement::SandboxOptions;
use super::error::CliError;
use super::mount_events::{tell, tell_goes_on};
use super::run::environment;
use super::{output, sandbox_child};
use crate::mounting::namespace::{self, Namespace, NamespaceMount};
use crate::mounting::note::Note;
use crate::mounting::privilege;
use crate::mounting::sandbox::Confinement;
use crate::mounting::user::User;

/// Mount a session in a mount namespace, and run a command there: for `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the session shows.
    #[arg(long)]
    pub(super) dir: PathBuf,

    /// That is the base.
    #[arg(long)]
    pub(super) covers_base: bool,

    /// The session.
    #[arg(long)]
    pub(super) session: PathBuf,

    /// A directory to show the session's files in, which cannot be seen at their own paths.
    #[arg(long)]
    pub(super) show_session: Option<PathBuf>,

    /// The server's address.
    #[arg(long)]
    pub(super) address: SocketAddr,

    /// The process of `run`.
    #[arg(long)]
    pub(super) runner: u32,

    /// Where the command begins, if there is such a directory.
    #[arg(long)]
    pub(super) enter: PathBuf,

    /// As for `run`.
    #[arg(long)]
    pub(super) options: Option<String>,

    /// As for `run`.
    #[arg(long)]
    pub(super) as_root: bool,

    /// Mount this directory in place of the server's export: for tests of kernels without NFS.
    #[arg(long)]
    pub(super) stand_in: Option<PathBuf>,

    #[command(flatten)]
    pub(super) confinement: SandboxOptions,

    /// The command with its arguments.
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}

impl Args {
    /// The arguments with which `run` starts this command.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["namespace-child".into()];
        let mut option = |name: &str, value: &OsStr| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            words.push(word);
        };
        option("--dir", self.dir.as_os_str());
        option("--session", self.session.as_os_str());
        option("--address", self.address.to_string().as_ref());
        option("--runner", self.runner.to_string().as_ref());
        option("--enter", self.enter.as_os_str());
        if let Some(dir) = &self.show_session {
            option("--show-session", dir.as_os_str());
        }
        if let Some(options) = &self.options {
            option("--options", options.as_ref());
        }
        let flags = [("--covers-base", self.covers_base), ("--as-root", self.as_root)];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        words.extend(self.confinement.words());
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }
}

/// Enters the namespace, runs the command, and undoes everything.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let means = privilege::check(None)?;
    let user = if args.as_root { None } else { User::behind_sudo() };
    let mut runner = Runner::reaping()?;
    let note = Note::of_run(&args.dir, args.runner)
        .ok_or_else(|| CliError::new("the `acetate run` that started this process has ended"))?;
    let confinement = args.confinement.confinement();
    let wanted = NamespaceMount {
        dir: &args.dir,
        is_base: args.covers_base,
        session: &args.session,
        show_session: args.show_session.as_deref(),
        address: args.address,
        note: &note,
        options: args.options.as_deref(),
        means,
        stand_in: args.stand_in.as_deref(),
        confinement: confinement.as_ref(),
    };
    let namespace = namespace::enter(&wanted, &tell)?;
    let code = match runner.interrupted() {
        Some(code) => Ok(code),
        None => start(args, &namespace, confinement.as_ref(), user.as_ref(), &mut runner),
    };
    let left = namespace.leave(&tell).map(|server| server.iter().for_each(tell_goes_on));
    let left = left.map_err(CliError::from);
    match (code, left) {
        (Ok(code), Ok(())) => Ok(Ending::Exit(code)),
        (Ok(0), Err(error)) | (Err(error), Ok(())) => Err(error),
        (code, Err(error)) => {
            output::error(&error);
            code.map(Ending::Exit)
        }
    }
}

/// Runs the command, or the first process of its sandbox; returns the exit code.
fn start(
    args: &Args,
    namespace: &Namespace,
    confinement: Option<&Confinement>,
    user: Option<&User>,
    runner: &mut Runner,
) -> Result<u8, CliError> {
    let session = namespace.session(&args.session);
    let Some(confinement) = confinement else {
        // A setuid program would trust files of another user that the session can change.
        let is_theirs = user.is_some_and(|user| namespace.base_owner() == Some(user.uid));
        runner.set_no_new_privs(user.is_some() && !is_theirs);
        let command = command(&args.command, session, &args.enter, &args.dir, user);
        return Ok(runner.run(command, user)?.code);
    };
    namespace::leave_processes()?;
    let child = sandbox_child::Args {
        dir: args.dir.clone(),
        session: session.to_owned(),
        enter: args.enter.clone(),
        writable: namespace.writable(confinement),
        no_network: args.confinement.no_network,
        as_root: args.as_root,
        command: args.command.clone(),
    };
    // Not by its path, at which the session may show another program.
    let mut command = Command::new("/proc/self/exe");
    command.args(child.words());
    Ok(runner.run(command, None)?.code)
}

/// The command with its directory and environment.
pub(super) fn command(
    words: &[OsString],
    session: &Path,
    enter: &Path,
    dir: &Path,
    user: Option<&User>,
) -> Command {
    let (program, words) = match words {
        [program, words @ ..] => (program.as_os_str(), words),
        [] => (OsStr::new("true"), &[][..]),
    };
    let mut command = Command::new(program);
    let directory = Some(enter).filter(|dir| dir.is_dir()).unwrap_or(dir);
    command.args(words);
    environment(&mut command, session, directory, user);
    command
}
