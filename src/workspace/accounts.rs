//! Quota usage of exports and their sessions: of a running server, or of an exports file that is
//! not served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::error::{Error, Result};
use crate::config::{Config, ExportConfig, MountConfig, RealPaths, real_path};
use crate::control::{ExportUsage, ExportsUsage, SessionUsage, UsageReport};
use crate::delta::{Limits, Usage, UsageDelta};
use crate::inspect::quota::{QuotaReport, quota};
use crate::overlay::{Group, Overlay};

/// Usage of a server's exports. Clones share the accounts.
#[derive(Clone)]
pub struct Accounts {
    file: PathBuf,
    of: Arc<RwLock<Vec<SharedAccount>>>,
}

/// The account of an export, which is replaced when the export is opened and closed.
pub(super) type SharedAccount = Arc<RwLock<ExportAccount>>;
/// The usage of an export with a quota.
#[derive(Debug, Clone)]
pub struct LimitedUsage {
    /// Name of the export, or the path of its template: no client chooses it.
    pub export: String,
    /// What counts against the quota.
    pub usage: Usage,
    /// The quota.
    pub limits: Limits,
}

/// The account of one export.
pub(super) struct ExportAccount {
    export: Arc<ExportConfig>,
    /// Counts usage against the limits, if the export is open and has limits.
    group: Option<Arc<Group>>,
    /// The sessions of an open export. Those of a closed one are found when they are needed.
    parts: Option<Vec<AccountPart>>,
}

/// A session of an export.
struct AccountPart {
    /// The session file, or its URL; `None` in memory.
    session: Option<PathBuf>,
    at: Vec<String>,
    is_counted: bool,
    source: UsageSource,
}

/// Where a session's usage is read.
pub(super) enum UsageSource {
    /// From the server, if it counts usage; otherwise from the file.
    Open {
        /// Weak: the account does not keep the session open.
        overlay: Weak<Overlay>,
        /// The session file.
        file: PathBuf,
        /// The limits of a session in memory.
        memory: Option<Arc<Group>>,
    },
    /// From the file, if it exists.
    File(PathBuf),
    /// Not served, and in memory or in a database: no usage is known.
    Memory,
}

impl Accounts {
    /// Accounts without exports.
    pub(super) fn new(file: &Path) -> Self {
        Self { file: real_path(file), of: Arc::default() }
    }

    /// Replaces the accounts.
    pub(super) fn replace(&self, accounts: Vec<SharedAccount>) {
        *self.of.write() = accounts;
    }

    /// Adds an account.
    pub(super) fn add(&self, account: SharedAccount) {
        self.of.write().push(account);
    }

    /// Current usage of each export. Blocks while it counts sessions without limits.
    ///
    /// # Errors
    /// A session cannot be read.
    pub fn usage(&self) -> Result<ExportsUsage> {
        let accounts = self.of.read().clone();
        let mut real = RealPaths::default();
        let exports = accounts.iter().map(|account| account.read().usage(&mut real));
        let exports = exports.collect::<Result<_>>()?;
        Ok(ExportsUsage { file: Some(self.file.clone()), exports })
    }

    /// Usage of the open exports that have a quota; of the instances of a template, that of the
    /// fullest one. Waits for nothing.
    pub fn limited(&self) -> Vec<LimitedUsage> {
        let accounts = self.of.read().clone();
        let mut limited = BTreeMap::<String, LimitedUsage>::new();
        for account in accounts.iter() {
            let account = account.read();
            let Some(usage) = account.group.as_ref().map(|group| group.usage()) else { continue };
            let export = account.export.template.as_ref().unwrap_or(&account.export.name).clone();
            let limits = super::exports::assembling::limits(&account.export);
            let new = LimitedUsage { export: export.clone(), usage, limits };
            let known = limited.entry(export).or_insert_with(|| new.clone());
            if new.usage.bytes > known.usage.bytes {
                *known = new;
            }
        }
        limited.into_values().collect()
    }

    /// Paths of the exports that serve a session. They may be secrets.
    pub fn paths_of(&self, session: &Path) -> Vec<String> {
        let accounts = self.of.read().clone();
        let mut real = RealPaths::default();
        accounts.iter().filter_map(|account| account.read().path_of(session, &mut real)).collect()
    }
}

/// Usage of the exports of a file that is not served. Missing sessions, and sessions in memory,
/// count as empty.
///
/// # Errors
/// A session cannot be read.
pub fn at_rest(file: &Path, config: &Config) -> Result<ExportsUsage> {
    let accounts = config.exports.iter().map(|it| ExportAccount::at_rest(Arc::new(it.clone())));
    let mut real = RealPaths::default();
    let exports = accounts.map(|account| account.usage(&mut real)).collect::<Result<_>>()?;
    Ok(ExportsUsage { file: Some(real_path(file)), exports })
}

impl ExportAccount {
    /// The account of an export that is opened, without sessions.
    pub(super) fn new(export: &Arc<ExportConfig>, group: Option<Arc<Group>>) -> Self {
        Self { export: Arc::clone(export), group, parts: Some(Vec::new()) }
    }

    /// The account of an export that is not open.
    pub(super) fn at_rest(export: Arc<ExportConfig>) -> Self {
        Self { export, group: None, parts: None }
    }

    /// This account, with the sessions of the export also if it is not open.
    fn with_parts(&self, real: &mut RealPaths) -> Self {
        let mut account = Self::new(&self.export, None);
        for mount in &self.export.mounts {
            let session = shown(mount, |file| real.of(file));
            let source = match mount.session() {
                Some(file) => UsageSource::File(real.of(file)),
                None => UsageSource::Memory,
            };
            account.add_at(mount, session, source);
        }
        account
    }

    /// The path that clients mount, if the export shows this session. `None` without a token.
    fn path_of(&self, session: &Path, real: &mut RealPaths) -> Option<String> {
        let shows = match &self.parts {
            Some(parts) => parts.iter().any(|part| part.shows(session)),
            None => {
                let mut files = self.export.mounts.iter().filter_map(MountConfig::session);
                files.any(|file| real.of(file) == session)
            }
        };
        self.export.path.as_ref().filter(|_| shows).map(ToString::to_string)
    }

    /// Adds a mount's session; a session that is already there gets a further mount point.
    pub(super) fn add(&mut self, mount: &MountConfig, source: UsageSource) {
        self.add_at(mount, shown(mount, real_path), source);
    }

    fn add_at(&mut self, mount: &MountConfig, session: Option<PathBuf>, source: UsageSource) {
        let is_there = |part: &&mut AccountPart| session.is_some() && part.session == session;
        let is_counted = !mount.is_read_only && !mount.is_shared;
        let at = mount.at.to_string();
        let parts = self.parts.get_or_insert_default();
        match parts.iter_mut().find(is_there) {
            Some(part) => {
                part.at.push(at);
                part.is_counted |= is_counted;
            }
            None => parts.push(AccountPart { session, at: vec![at], is_counted, source }),
        }
    }

    fn usage(&self, real: &mut RealPaths) -> Result<ExportUsage> {
        let Some(parts) = &self.parts else { return self.with_parts(real).usage(real) };
        let sessions: Vec<_> = parts.iter().map(AccountPart::usage).collect::<Result<_>>()?;
        let usage = match &self.group {
            Some(group) => group.usage(),
            None => {
                let mut sum = UsageDelta::default();
                for session in sessions.iter().filter(|session| session.is_counted) {
                    sum += session.taken.usage().into();
                }
                sum.usage()
            }
        };
        let taken = UsageReport::new(usage, super::exports::assembling::limits(&self.export));
        Ok(ExportUsage { name: self.export.name.clone(), taken, sessions })
    }
}

impl AccountPart {
    fn shows(&self, session: &Path) -> bool {
        let is_open_there =
            matches!(&self.source, UsageSource::Open { file, .. } if file == session);
        is_open_there || self.session.as_deref() == Some(session)
    }

    fn usage(&self) -> Result<SessionUsage> {
        let (usage, limits) = match &self.source {
            UsageSource::Open { overlay, file, memory } => {
                let known = overlay.upgrade().map(|overlay| overlay.counted());
                let (usage, own) = match known {
                    Some((Some(usage), limits)) => (usage, limits),
                    _ => in_file(file)?,
                };
                let given = memory.as_ref().map(|group| group.limits()).unwrap_or_default();
                let tighter = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
                let bytes = tighter(own.bytes, given.bytes);
                (usage, Limits { bytes, files: tighter(own.files, given.files), ..own })
            }
            UsageSource::File(file) if file.symlink_metadata().is_ok() => in_file(file)?,
            UsageSource::File(_) | UsageSource::Memory => Default::default(),
        };
        Ok(SessionUsage {
            session: self.session.clone(),
            at: self.at.clone(),
            is_counted: self.is_counted,
            taken: UsageReport::new(usage, limits),
        })
    }
}

/// A mount's session by the real path of its file, or by its URL.
fn shown(mount: &MountConfig, real: impl FnOnce(&Path) -> PathBuf) -> Option<PathBuf> {
    let url = || mount.url().map(|url| PathBuf::from(url.to_string()));
    mount.session().map(|file| real(file)).or_else(url)
}

fn in_file(file: &Path) -> Result<(Usage, Limits)> {
    let QuotaReport { usage, limits } = quota(file).map_err(Error::from)?;
    Ok((usage, limits))
}
