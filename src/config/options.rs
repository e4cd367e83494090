//! Options of exports(5).

use toml::Spanned;

use super::error::Result;
use super::limits::MAX_OPTIONS;
use super::written::SourceText;
use crate::vfs::Caller;

/// An export's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// `ro`: every change fails with NFS3ERR_ROFS.
    pub is_read_only: bool,
    /// `secure`: clients must use privileged ports; enforced on Linux only.
    pub is_secure: bool,
    /// Which callers are squashed.
    pub squash: SquashMode,
    /// `anonuid`: uid of squashed callers.
    pub anon_uid: u32,
    /// `anongid`: gid of squashed callers.
    pub anon_gid: u32,
    /// `sec=sys`: AUTH_SYS is accepted.
    pub takes_sys: bool,
    /// `sec=none`: AUTH_NONE is accepted.
    pub takes_none: bool,
}

/// Which callers are squashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SquashMode {
    /// `no_root_squash`: only callers with AUTH_NONE.
    NoRoot,
    /// `root_squash`: also uid 0 and gid 0.
    Root,
    /// `all_squash`: all callers.
    All,
}

/// The defaults of exports(5), except `rw`: changes go to a session.
impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            is_read_only: false,
            is_secure: true,
            squash: SquashMode::Root,
            anon_uid: Caller::NOBODY,
            anon_gid: Caller::NOBODY,
            takes_sys: true,
            takes_none: false,
        }
    }
}

/// Options of exports(5) that have no effect here, with the reason.
const MEANINGLESS: &[(&str, &str)] = &[
    ("sync", "the durability of the server says what a reply promises"),
    ("async", "the durability of the server says what a reply promises"),
    ("wdelay", "waiting writes are always combined"),
    ("no_wdelay", "waiting writes are always combined"),
    ("subtree_check", "a handle always works in its own mount alone"),
    ("no_subtree_check", "a handle always works in its own mount alone"),
    ("crossmnt", "an export is composed of its mounts, and of nothing else"),
    ("nohide", "an export is composed of its mounts, and of nothing else"),
    ("hide", "paths of the base that are not served are in `hide = [...]`"),
    ("fsid", "an export's number follows from its session and path, and stays the same"),
    ("insecure_locks", "locks are open to all who may mount"),
    ("secure_locks", "locks are open to all who may mount"),
    ("auth_nlm", "locks are open to all who may mount"),
    ("no_auth_nlm", "locks are open to all who may mount"),
    ("mp", "name the directory as the `base` of a mount"),
    ("mountpoint", "name the directory as the `base` of a mount"),
    ("no_acl", "there are no access control lists"),
];

/// The options given so far; repeating one is allowed.
#[derive(Default)]
struct ParsedOptions {
    read_only: Option<bool>,
    secure: Option<bool>,
    squash: Option<SquashMode>,
    anon_uid: Option<u32>,
    anon_gid: Option<u32>,
    security: Option<(bool, bool)>,
}

/// Checks an export's `options`.
pub(super) fn check(source: &SourceText<'_>, words: &[Spanned<String>]) -> Result<ExportOptions> {
    source.at_most("options", words, MAX_OPTIONS)?;
    let mut given = ParsedOptions::default();
    for word in words {
        let wrong = |what: &str| source.wrong(&word.span(), what);
        let text = word.get_ref().as_str();
        let fits = match (text.split_once('='), text) {
            (_, "ro") => put(&mut given.read_only, true),
            (_, "rw") => put(&mut given.read_only, false),
            (_, "secure") => put(&mut given.secure, true),
            (_, "insecure") => put(&mut given.secure, false),
            (_, "root_squash") => put(&mut given.squash, SquashMode::Root),
            (_, "no_root_squash") => put(&mut given.squash, SquashMode::NoRoot),
            (_, "all_squash") => put(&mut given.squash, SquashMode::All),
            (Some((key @ ("anonuid" | "anongid"), id)), _) => {
                let id = id.parse().ok().filter(|id| *id != u32::MAX).ok_or_else(|| {
                    wrong("expected a number, 0 to 4294967294, such as anonuid=1000")
                })?;
                let is_uid = key == "anonuid";
                put(if is_uid { &mut given.anon_uid } else { &mut given.anon_gid }, id)
            }
            (Some(("sec", flavors)), _) => {
                let flavors = security(flavors).ok_or_else(|| {
                    wrong("`sec` takes sys, none, or both: sec=sys:none")
                        .with_hint("there is no Kerberos here")
                })?;
                put(&mut given.security, flavors)
            }
            _ => return Err(unknown(source, word)),
        };
        if !fits {
            let what = format!("'{text}' contradicts an option before it");
            return Err(source.wrong(&word.span(), what).with_hint("leave one of them out"));
        }
    }
    Ok(given.options())
}

/// Checks a mount's `options`; returns whether it is read-only.
pub(super) fn check_mount(source: &SourceText<'_>, words: &[Spanned<String>]) -> Result<bool> {
    source.at_most("options", words, MAX_OPTIONS)?;
    let mut read_only = None;
    for word in words {
        let is_read_only = match word.get_ref().as_str() {
            "ro" => true,
            "rw" => false,
            other => {
                let what = format!("'{}' is not an option of a mount", other.escape_debug());
                let hint = "a mount has ro or rw; all others are the export's";
                return Err(source.wrong(&word.span(), what).with_hint(hint));
            }
        };
        if !put(&mut read_only, is_read_only) {
            return Err(source.wrong(&word.span(), "a mount has ro or rw, not both"));
        }
    }
    Ok(read_only == Some(true))
}

impl ParsedOptions {
    fn options(self) -> ExportOptions {
        let usual = ExportOptions::default();
        let (takes_sys, takes_none) = self.security.unwrap_or((usual.takes_sys, usual.takes_none));
        ExportOptions {
            is_read_only: self.read_only.unwrap_or(usual.is_read_only),
            is_secure: self.secure.unwrap_or(usual.is_secure),
            squash: self.squash.unwrap_or(usual.squash),
            anon_uid: self.anon_uid.unwrap_or(usual.anon_uid),
            anon_gid: self.anon_gid.unwrap_or(usual.anon_gid),
            takes_sys,
            takes_none,
        }
    }
}

/// Sets a value; `false` if a different one was set before.
fn put<T: PartialEq + Copy>(slot: &mut Option<T>, value: T) -> bool {
    slot.replace(value).is_none_or(|before| before == value)
}

/// Whether `flavors` contains AUTH_SYS and AUTH_NONE; `None` for any other flavor.
fn security(flavors: &str) -> Option<(bool, bool)> {
    let (mut sys, mut none) = (false, false);
    for flavor in flavors.split(':') {
        match flavor {
            "sys" => sys = true,
            "none" => none = true,
            _ => return None,
        }
    }
    Some((sys, none))
}

/// The error for an unknown option.
fn unknown(source: &SourceText<'_>, word: &Spanned<String>) -> super::ConfigError {
    let text = word.get_ref();
    let key = text.split('=').next().unwrap_or_default();
    if let Some((_, why)) = MEANINGLESS.iter().find(|(known, _)| *known == key) {
        let what = format!("the option '{}' has no effect", text.escape_debug());
        return source.wrong(&word.span(), what).with_hint(format_args!("leave it out: {why}"));
    }
    let what = format!("there is no option '{}'", text.escape_debug());
    let hint = "ro, rw, secure, insecure, root_squash, no_root_squash, all_squash, anonuid=N, \
        anongid=N, sec=sys, sec=none; one word each";
    source.wrong(&word.span(), what).with_hint(hint)
}
