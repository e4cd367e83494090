//! K1: rows saved for checkpoints, as far as the file alone shows violations.

use crate::delta::Result;

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};
use crate::delta::sqlite::table::{checkpoint, old_rows};

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    if checkpoint::is_used(subject.conn)? {
        for (table, id) in old_rows::without_checkpoint(subject.conn)? {
            let what = format!("{table} has rows of the checkpoint {id}, which does not exist");
            found.add("K1", BreachSubject::Session, what);
        }
    }
    Ok(())
}
