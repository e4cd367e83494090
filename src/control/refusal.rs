//! Why a request failed, and what the user can do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::delta::MergedPath;
use crate::vfs::FsError;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The error.
    pub what: String,
    /// How to resolve it, without the names of commands and options.
    pub hint: Option<String>,
    /// How to resolve it, for a caller that has commands and options to name.
    #[serde(default)]
    pub advice: Option<RefusalAdvice>,
    /// Whether the disk is full.
    #[serde(default)]
    pub is_full: bool,
    /// Whether the filesystem delays the request.
    #[serde(skip)]
    pub is_delayed: bool,
}

/// What the user can do about a refused request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalAdvice {
    /// The path is a directory, which only a recursive request accepts.
    Recurse,
    /// The parent directory does not exist.
    MakeParents,
    /// The session has reached a limit.
    ShowQuota,
    /// An apply to the base has not ended: wait for it, or finish an interrupted one.
    FinishApply,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, advice: None, is_full: false, is_delayed: false }
    }

    /// Removes the hint and the advice.
    pub(super) fn without_hint(self) -> Self {
        Self { hint: None, advice: None, ..self }
    }

    /// The refusal for an error of the filesystem at a path.
    pub fn at(path: &MergedPath, error: FsError) -> Self {
        let hint = match error {
            FsError::ReadOnly => Some("the server has the session read-only"),
            FsError::NoSpace => Some("the disk that holds the session is full"),
            _ => None,
        };
        let advice = match error {
            FsError::IsDirectory => Some(RefusalAdvice::Recurse),
            FsError::Quota => Some(RefusalAdvice::ShowQuota),
            _ => None,
        };
        let what = format!("{}: {error}", path.display());
        let is_full = matches!(error, FsError::NoSpace);
        let is_delayed = matches!(error, FsError::TryLater);
        Self { what, hint: hint.map(str::to_owned), advice, is_full, is_delayed }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}
