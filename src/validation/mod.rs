//! Guards: files that accept only content which passes their validators.
//!
//! An export has [`Guards`]: patterns of paths, each with a [`Validator`]. What a client writes to
//! a guarded file goes to a draft in the server's memory ([`Draft`]); readers see the published
//! content all the time. [`DraftTable`] has the drafts of an export, and publishes one as a whole,
//! in one change of the tree, once it is valid.
//!
//! | File | What |
//! |---|---|
//! | `rules` | which path is guarded by what |
//! | `validator` | JSON Lines, JSON, with or without a schema, or a program |
//! | `schema`, `json`, `lines`, `program` | these, one by one |
//! | `child` | the processes in which content is checked against a schema |
//! | `recursion` | schemas for which a small content may take long |
//! | `violation` | why content is refused |
//! | `draft` | content that is being written, and which of its lines have arrived |
//! | `resources` | what the guards of all exports share, and the part of each |
//! | `fair` | turns that exports take |
//! | `published` | what is needed of the tree |
//! | `desk` | drafts by file and client |
//! | `desk/write`, `desk/settle`, `desk/tend` | writing, publishing, what time ends |
//! | `limits` | every bound |
//!
//! Nothing here knows how the tree is stored, nor the protocol: [`Published`] is the way to the
//! tree. Who calls what, for a file that [`crate::vfs::FsError::Guarded`] says is guarded:
//!
//! - WRITE: [`DraftTable::write`]; SETATTR and CREATE with a size: [`DraftTable::set_size`], once
//!   the other attributes are set; COMMIT: [`DraftTable::commit`], and the tree's own where that
//!   gives nothing.
//! - A WRITE that the tree took: [`DraftTable::abandon`], for the file may have been guarded
//!   before.
//! - RENAME onto a guarded path: [`DraftTable::validate`] the content, then rename on the condition
//!   that it is still the same.
//! - Attributes that leave, of whichever procedure: [`DraftTable::show`]; write verifiers of *all*
//!   files of the export: [`DraftTable::verifier`].
//! - At the end: [`DraftTable::close`].

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
pub use draft_table::{DeskParts, DraftTable};
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
