//! K1: rows saved for checkpoints, as far as the file alone shows violations; K2: which checkpoints
//! are incomplete; their format (M1); T1: the bounds of tool calls.

use rusqlite::types::Value;

use crate::delta::Result;

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};
use crate::delta::sqlite::table::{call_bounds, checkpoint, incomplete, meta, old_rows};

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    if checkpoint::is_used(subject.conn)? {
        let format = meta::get::<Value>(subject.conn, meta::FORMAT)?;
        if format == Some(Value::Integer(meta::FIRST_FORMAT)) {
            let what = "format_version is 1, and there was a checkpoint";
            found.add("M1", BreachSubject::Session, what.to_owned());
        }
        for (table, id) in old_rows::without_checkpoint(subject.conn)? {
            let what = format!("{table} has rows of the checkpoint {id}, which does not exist");
            found.add("K1", BreachSubject::Session, what);
        }
        for (id, word) in incomplete::unknown(subject.conn)? {
            let what = format!("the checkpoint {id} is incomplete for an unknown reason: {word}");
            found.add("K2", BreachSubject::Session, what);
        }
    }
    if let Some(call) = call_bounds::first_unsound(subject.conn)? {
        let what = format!("acetate_tool_call has a row of the call {call} that is not sound");
        found.add("T1", BreachSubject::Session, what);
    }
    Ok(())
}
