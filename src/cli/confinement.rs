//! The sandbox options of `run`, which it passes on to the processes that create the sandbox.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::text;
#[cfg(target_os = "linux")]
use crate::mounting::sandbox::Confinement;

/// The options of a sandbox.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SandboxOptions {
    /// Make everything read-only except the session, /dev, /proc and a private /tmp.
    ///
    /// On Linux, with Landlock. The command has process and IPC namespaces of its own, no
    /// capabilities, and gains nothing from setuid programs.
    #[arg(long)]
    pub(super) sandbox: bool,

    /// With --sandbox: this directory can be written to; repeatable.
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    pub(super) allow_write: Vec<PathBuf>,

    /// With --sandbox: this directory shows empty; repeatable.
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    pub(super) deny_read: Vec<PathBuf>,

    /// With --sandbox: only a loopback interface.
    #[arg(long, requires = "sandbox")]
    pub(super) no_network: bool,
}

impl SandboxOptions {
    /// The options with resolved paths.
    ///
    /// # Errors
    /// A path does not exist, is not a directory, is in both lists, or is `/`.
    pub(super) fn resolved(&self) -> Result<Self, CliError> {
        let resolve = |dirs: &[PathBuf]| -> Result<Vec<PathBuf>, CliError> {
            dirs.iter().map(|dir| directory(dir)).collect()
        };
        let (allow_write, deny_read) = (resolve(&self.allow_write)?, resolve(&self.deny_read)?);
        if let Some(both) = allow_write.iter().find(|dir| deny_read.contains(dir)) {
            let what = format!("{}: both --allow-write and --deny-read", both.display());
            return Err(CliError::new(what).with_hint("leave one of them out"));
        }
        Ok(Self { allow_write, deny_read, ..self.clone() })
    }

    /// What the sandbox confines; `None` without one.
    #[cfg(target_os = "linux")]
    pub(super) fn confinement(&self) -> Option<Confinement> {
        let (allow_write, deny_read) = (self.allow_write.clone(), self.deny_read.clone());
        self.sandbox.then_some(Confinement { allow_write, deny_read })
    }

    /// The options as words of a command line.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut with_value = |name: &str, dirs: &[PathBuf]| {
            words.extend(dirs.iter().map(|dir| {
                let mut word = OsString::from(name);
                word.push(dir);
                word
            }));
        };
        with_value("--allow-write=", &self.allow_write);
        with_value("--deny-read=", &self.deny_read);
        let flags = [("--sandbox", self.sandbox), ("--no-network", self.no_network)];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        words
    }
}

fn directory(dir: &Path) -> Result<PathBuf, CliError> {
    let shown = text::name(dir.as_os_str().as_encoded_bytes());
    let real = dir
        .canonicalize()
        .map_err(|error| CliError::caused(&shown, &error).with_hint("name a directory"))?;
    if !real.is_dir() || real == Path::new("/") {
        let why = if real.is_dir() { "the whole tree" } else { "not a directory" };
        return Err(CliError::new(format_args!("{shown}: {why}")).with_hint("name a directory"));
    }
    Ok(real)
}
