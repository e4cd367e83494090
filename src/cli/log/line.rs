//! A change of the audit log, as a line and as JSON.

use serde_json::{Map, Value};

use crate::cli::text;
use crate::delta::{AuditProcedure, AuditRow, AuditSet};
use crate::vfs::Time;

/// A change in a line; `is_taken_back` if a restore took it back.
pub(in crate::cli) fn line(row: &AuditRow, is_taken_back: bool) -> String {
    let mut line = format!(
        "{}  {:<9}  {:<15}  {:<7}  {}",
        text::time_millis(row.time),
        format!("{}:{}", row.uid, row.gid),
        row.client.to_string(),
        row.procedure.as_str(),
        text::name(row.path.as_bytes()),
    );
    if let Some(to) = &row.path2 {
        line.push_str(&format!(" -> {}", text::name(to.as_bytes())));
    }
    match (row.procedure, row.offset, row.length) {
        (AuditProcedure::Write, Some(offset), Some(length)) => {
            line.push_str(&format!("  offset {offset}, {}", text::count(length, "byte")));
        }
        (AuditProcedure::Publish, _, Some(length)) => {
            line.push_str(&format!("  {}", text::count(length, "byte")));
        }
        (AuditProcedure::Setattr, Some(size), _) => line.push_str(&format!("  size {size}")),
        _ => {}
    }
    for (name, value) in attributes(&row.set, text::time_millis) {
        line.push_str(&format!("  {name} {}", value.as_str().unwrap_or(&value.to_string())));
    }
    if let Some(note) = &row.note {
        line.push_str(&format!("  {}", text::name(note.as_bytes())));
    }
    if let Some(export) = &row.export {
        line.push_str(&format!("  through {}", text::name(export.as_bytes())));
    }
    if is_taken_back {
        line.push_str("  (taken back)");
    }
    line
}

/// A change as an object of `--json`; `is_taken_back` if a restore took it back.
pub(in crate::cli) fn json(id: i64, row: &AuditRow, is_taken_back: bool) -> Map<String, Value> {
    let mut json = text::json("change");
    json.insert("id".to_owned(), id.into());
    json.insert("time".to_owned(), text::time(row.time).into());
    json.insert("client".to_owned(), row.client.to_string().into());
    json.insert("uid".to_owned(), row.uid.into());
    json.insert("gid".to_owned(), row.gid.into());
    json.insert("op".to_owned(), row.procedure.as_str().into());
    text::put_path(&mut json, "path", row.path.as_bytes());
    if let Some(to) = &row.path2 {
        text::put_path(&mut json, "to", to.as_bytes());
    }
    json.insert("fileid".to_owned(), row.fileid.0.into());
    if let Some(note) = &row.note {
        json.insert("note".to_owned(), note.as_str().into());
    }
    if let Some(export) = &row.export {
        json.insert("export".to_owned(), export.as_ref().into());
    }
    let is_size = row.procedure == AuditProcedure::Setattr;
    let numbers = [(if is_size { "size" } else { "offset" }, row.offset), ("length", row.length)];
    for (key, number) in numbers {
        if let Some(number) = number {
            json.insert(key.to_owned(), number.into());
        }
    }
    let set: Map<_, _> = attributes(&row.set, text::time)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if !set.is_empty() {
        json.insert("set".to_owned(), set.into());
    }
    if is_taken_back {
        json.insert("is_taken_back".to_owned(), true.into());
    }
    json
}

/// The attributes that a change set, by name: the mode in octal digits, times as `time` has them.
fn attributes(set: &AuditSet, time: fn(Time) -> String) -> Vec<(&'static str, Value)> {
    let AuditSet { mode, uid, gid, atime, mtime } = *set;
    let mut named: Vec<(&'static str, Value)> = Vec::new();
    named.extend(mode.map(|mode| ("mode", format!("{mode:04o}").into())));
    named.extend(uid.map(|uid| ("uid", uid.into())));
    named.extend(gid.map(|gid| ("gid", gid.into())));
    named.extend(atime.map(|atime| ("atime", time(atime).into())));
    named.extend(mtime.map(|mtime| ("mtime", time(mtime).into())));
    named
}
