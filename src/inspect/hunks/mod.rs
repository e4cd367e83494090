//! Divides changes into the pieces that a person chooses from, like `git add -p`: runs of changed
//! lines of a text; any other change is one piece.
//!
//! The id of a piece does not depend on line numbers: it stays valid while other pieces are applied
//! or discarded.

mod choice;
mod discard_plan;
mod id;
mod pieces;
mod text;

pub(in crate::inspect) use choice::{Choice, part};
pub use choice::{ChosenHunks, ChosenPart, Pick};
pub use discard_plan::{DiscardStep, without};
pub use id::HunkId;
pub use pieces::{Attributes, DiffPieces, FileHunks, base_now, pieces, whole_id};
pub use text::{Hunk, Sign, TextHunks};
