//! Guards: files that accept only content that passes their validators.
//!
//! An export has [`Guards`]: path patterns, each with a [`Validator`]. Writes to a guarded file go
//! to a draft in the server's memory ([`Draft`]), while readers see the published content.
//! [`DraftTable`] has the drafts of an export. It publishes a draft as a whole, in one change of
//! the tree, once the content is valid.
//!
//! | File | What |
//! |---|---|
//! | `rules` | path patterns and their validators |
//! | `validator` | the kinds of validators |
//! | `schema`, `json`, `lines`, `program` | JSON Schema, JSON, JSON Lines, external programs |
//! | `child` | processes that check content against a schema |
//! | `recursion` | detects schemas that can take exponential time |
//! | `violation` | why content is rejected |
//! | `draft` | content being written, and which of its lines are complete |
//! | `resources` | limits that all exports share, and the part of each |
//! | `fair` | a semaphore that is fair among exports |
//! | `published` | the interface to the tree |
//! | `draft_table` | drafts by file and client |
//! | `draft_table/write`, `publish`, `expire` | writing, publishing, timeouts |
//! | `draft_table/truncated_mark` | files truncated long before content arrives |
//! | `limits` | every bound |
//!
//! This module knows neither the protocol nor how the tree is stored: it reaches the tree through
//! [`Published`]. What callers do for a file for which the tree returns
//! [`crate::vfs::FsError::Guarded`]:
//!
//! - WRITE: [`DraftTable::write`]. SETATTR and CREATE with a size: [`DraftTable::set_size`], after
//!   the other attributes were set. COMMIT: [`DraftTable::commit`], then the tree's COMMIT if that
//!   returns `None`.
//! - A WRITE that the tree accepted: [`DraftTable::abandon`], because the file may have been
//!   guarded before.
//! - RENAME to a guarded path: [`DraftTable::validate`] the content, then rename if it is
//!   unchanged.
//! - Attributes in any reply: [`DraftTable::show`]. Write verifiers of *all* files of the export:
//!   [`DraftTable::verifier`].
//! - At shutdown: [`DraftTable::close`].

mod child;
mod draft;
mod draft_table;
mod fair;
mod json;
mod limits;
mod lines;
mod program;
mod published;
mod recursion;
mod resources;
mod rules;
mod schema;
mod validator;
mod violation;

pub use child::{ValidatorCommand, serve_validator};
pub use draft::{ArrivedLines, Draft};
pub use draft_table::{DraftTable, DraftTableParts};
pub use limits::{
    ChildLimits, GuardLimits, MAX_ARRIVAL_CHECK_TIME, MAX_CHECK_TIME, MAX_DRAFT_BYTES,
    MAX_LINE_BYTES, Periods,
};
pub use program::ValidatorProgram;
pub use published::Published;
pub use resources::{ExportResources, GuardResources, NoValidatorCommand, NotAccepted};
pub use rules::Guards;
pub use schema::SchemaError;
pub use validator::Validator;
pub use violation::Violation;
