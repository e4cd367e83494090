//! Compares an exports file with this machine: what is missing, and what does not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::database_check::database_fault;
use super::files::{MountTree, PathReach, is_there, open_base};
use crate::cli::exposure;
use crate::config::{
    Config, ExportConfig, GuardRule, MountConfig, Position, StoreConfig, real_path,
};
use crate::delta::postgres::SessionUrl;
use crate::delta::sqlite::Session;
use crate::inspect::opened::open_session;
use crate::workspace::guards;

/// A problem that was found.
#[derive(Debug)]
pub(in crate::cli) struct ConfigFinding {
    /// The file: the exports file, or one of `exports.d`.
    pub(in crate::cli) file: Arc<Path>,
    /// The position in the file.
    pub(in crate::cli) position: Position,
    /// A description of the problem.
    pub(in crate::cli) what: String,
    /// Whether the export is served nevertheless.
    pub(in crate::cli) is_warning: bool,
}

/// Checks everything that `config` names. Creates and changes nothing. `creates` is whether a mount
/// of an instance of a template makes its sessions.
pub(super) fn look(config: &Config, creates: bool) -> Vec<ConfigFinding> {
    let mut looker = HostChecker { creates, ..HostChecker::default() };
    for export in &config.exports {
        for mount in &export.mounts {
            looker.mount(export, mount);
        }
    }
    let written = config.exports.iter();
    for export in written.chain(config.templates.iter().map(|template| &template.export)) {
        looker.rest(export);
    }
    looker.findings
}

/// Checks what one export names. Creates and changes nothing.
pub(in crate::cli) fn look_at(export: &ExportConfig) -> Vec<ConfigFinding> {
    let mut looker = HostChecker::default();
    for mount in &export.mounts {
        looker.mount(export, mount);
    }
    looker.rest(export);
    looker.findings
}

/// The results so far; each session and each base is reported once.
#[derive(Default)]
struct HostChecker {
    findings: Vec<ConfigFinding>,
    /// Whether a mount of an instance makes its sessions, with their directories.
    creates: bool,
    bases: BTreeSet<PathBuf>,
    /// Whether each session can be used.
    sessions: BTreeMap<PathBuf, bool>,
}

impl HostChecker {
    fn find(&mut self, export: &ExportConfig, position: Position, what: String) {
        let file = Arc::clone(&export.file);
        self.findings.push(ConfigFinding { file, position, what, is_warning: false });
    }

    fn warn(&mut self, export: &ExportConfig, position: Position, what: String) {
        let file = Arc::clone(&export.file);
        self.findings.push(ConfigFinding { file, position, what, is_warning: true });
    }

    /// Checks who may reach an export, and its guards.
    fn rest(&mut self, export: &ExportConfig) {
        if export.clients.are_all()
            && let Some(what) = exposure::impersonation_risk(export)
        {
            self.warn(export, export.position, format!("{what}; {}", exposure::HINT));
        }
        for guard in &export.guards {
            let fault = guards::fault(guard).map(|fault| fault.to_string());
            let program = match &guard.rule {
                GuardRule::Program { argv, .. } => argv.first().and_then(|it| program_fault(it)),
                GuardRule::Json(_) | GuardRule::JsonLines(_) => None,
            };
            for what in fault.into_iter().chain(program) {
                self.find(export, guard.position, what);
            }
            if let Some(what) = guards::warning(guard) {
                self.warn(export, guard.position, what);
            }
        }
    }

    fn mount(&mut self, export: &ExportConfig, mount: &MountConfig) {
        let mut is_usable = true;
        if let Some(base) = &mount.base
            && let Err(what) = open_base(base)
        {
            is_usable = false;
            if self.bases.insert(base.clone()) {
                self.find(export, mount.position, what);
            }
        }
        if let Some(url) = mount.url() {
            // What is in it is not known here.
            return self.database((export, mount), url);
        }
        if let StoreConfig::Session { file, chunk_size } = &mount.store {
            is_usable &= self.session((export, mount), file, *chunk_size);
        }
        if is_usable && let Some(what) = subtree_problem(mount) {
            self.find(export, mount.position, what);
        }
        if is_usable && let Some(what) = parent_problem(export, mount) {
            self.find(export, mount.position, what);
        }
    }

    /// Checks a session in a database, once.
    fn database(&mut self, (export, mount): (&ExportConfig, &MountConfig), url: &SessionUrl) {
        if self.sessions.insert(url.key().into(), true).is_none()
            && let Some(what) = database_fault(url, mount.is_read_only)
        {
            self.find(export, mount.position, what);
        }
    }

    /// Checks a session, once; returns whether it can be used.
    fn session(
        &mut self,
        (export, mount): (&ExportConfig, &MountConfig),
        file: &Path,
        chunk_size: Option<u64>,
    ) -> bool {
        let key = real_path(file);
        if let Some(is_usable) = self.sessions.get(&key) {
            return *is_usable;
        }
        let faults = match self.creates && export.template.is_some() && !is_there(file) {
            true => dirs_fault(file).map_or(Ok(Vec::new()), Err),
            false => session_faults(file, mount, chunk_size),
        };
        let is_usable = faults.is_ok();
        for what in faults.unwrap_or_else(|what| vec![what]) {
            self.find(export, mount.position, what);
        }
        self.sessions.insert(key, is_usable);
        is_usable
    }
}

/// Why the directories of a session cannot be made, if so.
fn dirs_fault(file: &Path) -> Option<String> {
    let above = file.ancestors().skip(1).find(|dir| is_there(dir)).filter(|dir| !dir.is_dir())?;
    Some(format!("session {}: {} is not a directory", file.display(), above.display()))
}

/// Warnings about a session; `Err` if it cannot be served.
fn session_faults(
    file: &Path,
    mount: &MountConfig,
    chunk_size: Option<u64>,
) -> Result<Vec<String>, String> {
    if !is_there(file) {
        let folder = file.parent().unwrap_or(Path::new("/"));
        return match folder.is_dir() {
            true => Ok(Vec::new()),
            false => Err(dirs_fault(file).unwrap_or_else(|| {
                let (file, folder) = (file.display(), folder.display());
                format!("session {file}: the directory {folder} does not exist")
            })),
        };
    }
    let session: Session = open_session(file).map_err(|error| error.to_string())?;
    let stored = session.chunk_bytes();
    if let Some(wanted) = chunk_size.filter(|wanted| *wanted != stored) {
        return Err(format!(
            "session {}: it has chunks of {stored} bytes, not {wanted}",
            file.display()
        ));
    }
    let Some(recorded) = session.base_path() else { return Ok(Vec::new()) };
    match &mount.base {
        Some(given) if real_path(given) != recorded => {
            let what = format!(
                "session {}: it was made over the base {}",
                file.display(),
                recorded.display()
            );
            Ok(vec![what])
        }
        Some(_) => Ok(Vec::new()),
        None => {
            open_base(recorded)
                .map_err(|what| format!("session {}: it names a {what}", file.display()))?;
            Ok(Vec::new())
        }
    }
}

/// The problem with a mount's subtree, if any.
fn subtree_problem(mount: &MountConfig) -> Option<String> {
    if mount.subtree.is_root() {
        return None;
    }
    let names: Vec<&str> = mount.subtree.components().collect();
    reach_problem(mount, &names, &format!("subtree {}", mount.subtree))
}

/// The problem with the directory that contains a mount point, if any.
fn parent_problem(export: &ExportConfig, mount: &MountConfig) -> Option<String> {
    let names: Vec<&str> = mount.at.components().collect();
    let (_, above) = names.split_last()?;
    let depth = |outer: &MountConfig| outer.at.components().count();
    let encloses = |outer: &&MountConfig| {
        let at: Vec<&str> = outer.at.components().collect();
        at.len() < names.len() && names.starts_with(&at)
    };
    let outer = export.mounts.iter().filter(encloses).max_by_key(|outer| depth(outer))?;
    let below = above.get(depth(outer)..)?;
    let names: Vec<&str> = outer.subtree.components().chain(below.iter().copied()).collect();
    reach_problem(outer, &names, &format!("the directory above {}", mount.at))
}

/// Why a directory neither exists nor can be created, if so.
fn reach_problem(mount: &MountConfig, names: &[&str], which: &str) -> Option<String> {
    if mount.url().is_some() {
        return None;
    }
    match MountTree::open(mount).and_then(|tree| tree.reach(names)) {
        Ok(PathReach::There) => None,
        Ok(PathReach::Missing) if mount.is_read_only => {
            Some(format!("{which} does not exist, and the mount at {} is read-only", mount.at))
        }
        Ok(PathReach::Missing) => None,
        Ok(PathReach::Blocked(path)) => Some(format!("{which}: {path} is not a directory")),
        Err(what) => Some(format!("{which}: {what}")),
    }
}

/// The problem with a guard's program: a path, or a name that is searched in `PATH`.
fn program_fault(program: &str) -> Option<String> {
    let can_run = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let found = can_run(Path::new(program));
        return (!found).then(|| format!("program {program}: not found, or not executable"));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| can_run(&folder.join(program)));
    (!found).then(|| format!("program {program}: not in PATH"))
}
