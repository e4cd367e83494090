//! The changes of a session in the pieces that a person chooses from, as `git add -p` has them:
//! runs of changed lines of a text, and everything else as a whole.
//!
//! Each piece has an id that does not depend on line numbers: it stays the same while other pieces
//! are applied or discarded.

mod choice;
mod id;
mod pieces;
mod text;
mod without;

pub(in crate::inspect) use choice::{Choice, part};
pub use choice::{ChosenHunks, ChosenPart, Pick};
pub use id::HunkId;
pub use pieces::{Attributes, DiffPieces, FileHunks, base_now, pieces, whole_id};
pub use text::{Hunk, Sign, TextHunks};
pub use without::{Undoing, without};
