//! `diff --json --hunks`.

use serde_json::{Map, Value};

use super::line::change_name;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::text;
use crate::inspect::diff::Difference;
use crate::inspect::hunks::{DiffPieces, FileHunks, HunkId, Sign, pieces};
use crate::inspect::opened::OpenSession;

/// Unchanged lines around a hunk.
const CONTEXT: usize = 3;

/// Prints the pieces of a difference from which `apply` and `discard` choose.
pub(super) fn print(
    opened: &OpenSession,
    difference: &Difference,
    out: &mut Out,
) -> Result<(), CliError> {
    // A file at a time: what is printed is held.
    match opened.with_tree(|view| pieces(opened, view, difference))? {
        DiffPieces::Whole(id) => out.json(hunk(difference, id, "whole")),
        DiffPieces::File(file) => print_file(difference, &file, out),
    }
}

fn print_file(difference: &Difference, file: &FileHunks, out: &mut Out) -> Result<(), CliError> {
    if let Some(attributes) = &file.attributes {
        let mut object = hunk(difference, attributes.id, "attributes");
        for (key, [mode, uid, gid]) in [("before", attributes.old), ("after", attributes.new)] {
            let mut value = Map::new();
            value.insert("mode".to_owned(), format!("{mode:04o}").into());
            value.insert("uid".to_owned(), uid.into());
            value.insert("gid".to_owned(), gid.into());
            object.insert(key.to_owned(), value.into());
        }
        out.json(object)?;
    }
    for (at, one) in file.text.hunks.iter().enumerate() {
        let mut lines: Vec<Value> = Vec::new();
        let header = file.text.show(at..at + 1, CONTEXT, &mut |sign, line| {
            let sign = match sign {
                Sign::Context => " ",
                Sign::Old => "-",
                Sign::New => "+",
            };
            lines.push(Value::from(format!("{sign}{}", String::from_utf8_lossy(line))));
        });
        let mut object = hunk(difference, one.id, "lines");
        object.insert("header".to_owned(), header.into());
        for (key, lines) in [("old", &one.old), ("new", &one.new)] {
            object.insert(format!("{key}_start"), (lines.start + 1).into());
            object.insert(format!("{key}_lines"), lines.len().into());
        }
        object.insert("lines".to_owned(), lines.into());
        out.json(object)?;
    }
    Ok(())
}

fn hunk(difference: &Difference, id: HunkId, part: &str) -> Map<String, Value> {
    let mut object = text::json("hunk");
    object.insert("id".to_owned(), id.to_string().into());
    text::put_path(&mut object, "path", difference.path.as_bytes());
    object.insert("change".to_owned(), change_name(difference.kind).into());
    object.insert("part".to_owned(), part.into());
    object
}
