//! A difference in a line, and as an object of `--json`.

use serde_json::{Map, Value};

use crate::cli::{object, text};
use crate::delta::MergedPath;
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::fold::{Folded, FoldedLine, Reason};
use crate::inspect::patch::quoted_text;
use crate::inspect::tool_owned::OwnedBy;
use crate::vfs::FileKind;

/// The note, last of all, on a change whose base object changed as well.
pub(super) const BASE_CHANGED: &str = "changed in the base too";

/// The same where the base object was removed.
pub(super) const BASE_REMOVED: &str = "was removed in the base";

/// An entry in a line, after its letter.
pub(super) fn entry(entry: &FoldedLine) -> (char, String) {
    match entry {
        FoldedLine::One(difference) => (letter(difference.kind), line(difference)[2..].to_owned()),
        FoldedLine::Folded(folded) => {
            let path = text::dir_name(folded.path.as_bytes());
            (folded_letter(folded), format!("{path} ({})", held(folded)))
        }
    }
}

/// The letter of several differences in a line.
pub(super) fn folded_letter(folded: &Folded) -> char {
    match folded.reason {
        Reason::Added => 'A',
        Reason::Deleted => 'D',
        Reason::Own(_) => 'M',
    }
}

/// What several differences in a line hold.
pub(super) fn held(folded: &Folded) -> String {
    let whose = match folded.reason {
        Reason::Own(owner) => whose(owner),
        Reason::Added | Reason::Deleted => "",
    };
    if folded.files == 0 {
        return text::count(folded.paths.saturating_sub(1), "directory");
    }
    let times = folded.only_times;
    if folded.files == times {
        return format!("times of {}{whose}", text::count(times, "file"));
    }
    let files = text::count(folded.files - times, "file");
    let more = if times > 0 { format!(", and times of {times} more") } else { String::new() };
    let is_drifted = folded.differences.iter().any(|difference| difference.change.has_drifted());
    let drifted = if is_drifted { format!(", {BASE_CHANGED}") } else { String::new() };
    format!("{files}{whose}, {}{more}{drifted}", text::bytes(folded.bytes))
}

/// Whose files they are that programs keep for themselves, to follow their number.
pub(in crate::cli) fn whose(owner: OwnedBy) -> &'static str {
    match owner {
        OwnedBy::Git => " of git's own",
        OwnedBy::Nodes => " of context nodes",
    }
}

/// The path, with a slash after that of a directory.
pub(super) fn shown(difference: &Difference) -> String {
    let path = difference.path.as_bytes();
    if is_dir(difference) { text::dir_name(path) } else { text::name(path) }
}

/// The letter and the path, after the old one of a rename, separated by tabs.
pub(super) fn status(difference: &Difference) -> String {
    let quoted = |path: &[u8]| String::from_utf8_lossy(&quoted_text(path)).into_owned();
    let from = difference.old.as_ref().filter(|_| difference.kind == DifferenceKind::Renamed);
    let slash: &[u8] = match is_dir(difference) && difference.path != MergedPath::root() {
        true => b"/",
        false => b"",
    };
    let named = |path: &MergedPath| quoted(&[path.as_bytes(), slash].concat());
    let from = from.map_or_else(String::new, |b| named(&MergedPath::of_base(&b.path)) + "\t");
    format!("{}\t{from}{}", letter(difference.kind), named(&difference.path))
}

/// The type of an object, or of a deleted one. Of what the session deleted without its base, it is
/// not known.
pub(super) fn kind(difference: &Difference) -> FileKind {
    let after = difference.change.after.as_ref().map(|after| after.attr().kind);
    let before = || difference.old.as_ref().map(|old| old.attr.kind);
    after.or_else(before).unwrap_or(FileKind::Regular)
}

/// Whether a difference is of a directory.
pub(super) fn is_dir(difference: &Difference) -> bool {
    kind(difference) == FileKind::Directory
}

/// A difference in a line.
pub(in crate::cli) fn line(difference: &Difference) -> String {
    let letter = letter(difference.kind);
    let path = shown(difference);
    let mut line = match (&difference.old, difference.kind) {
        (Some(before), DifferenceKind::Renamed) => {
            format!(
                "{letter} {} -> {path}",
                text::name(MergedPath::of_base(&before.path).as_bytes())
            )
        }
        _ => format!("{letter} {path}"),
    };
    let notes = notes(difference);
    if !notes.is_empty() {
        line.push_str(&format!(" ({})", notes.join(", ")));
    }
    line
}

/// What there is to say besides the letter and the path.
pub(super) fn notes(difference: &Difference) -> Vec<String> {
    let mut notes = Vec::new();
    let differs = difference.differs;
    if let (Some(before), Some(after)) = (&difference.old, &difference.change.after) {
        if differs.mode {
            notes.push(format!("mode {:04o} -> {:04o}", before.attr.mode, after.attr().mode));
        }
        if differs.owner {
            let (old, new) = (&before.attr, after.attr());
            notes.push(format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid));
        }
        if difference.kind == DifferenceKind::Renamed && differs.content {
            notes.push("modified".to_owned());
        }
        if differs.mtime && !differs.content && difference.kind == DifferenceKind::Modified {
            notes.push("time".to_owned());
        }
    }
    if difference.change.is_link {
        notes.push("link".to_owned());
    }
    if difference.change.replaced.is_some() {
        notes.push("replaced".to_owned());
    }
    if difference.change.has_drifted() {
        let is_removed = difference.change.is_drifted && difference.change.before.is_none();
        let what = if is_removed { BASE_REMOVED } else { BASE_CHANGED };
        notes.push(what.to_owned());
    }
    notes
}

pub(in crate::cli) fn letter(kind: DifferenceKind) -> char {
    match kind {
        DifferenceKind::Added => 'A',
        DifferenceKind::Deleted => 'D',
        DifferenceKind::Modified => 'M',
        DifferenceKind::Renamed => 'R',
        DifferenceKind::Retyped => 'T',
    }
}

/// What happened, in `--json`.
pub(in crate::cli) fn change_name(kind: DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::Added => "added",
        DifferenceKind::Deleted => "deleted",
        DifferenceKind::Modified => "modified",
        DifferenceKind::Renamed => "renamed",
        DifferenceKind::Retyped => "retyped",
    }
}

/// A difference as an object of `--json`.
pub(in crate::cli) fn json(difference: &Difference) -> Map<String, Value> {
    let mut json = text::json("difference");
    json.insert("change".to_owned(), change_name(difference.kind).into());
    text::put_path(&mut json, "path", difference.path.as_bytes());
    let change = &difference.change;
    if let (Some(before), DifferenceKind::Renamed) = (&difference.old, difference.kind) {
        text::put_path(&mut json, "from", MergedPath::of_base(&before.path).as_bytes());
    }
    for (key, value) in [
        ("content", difference.differs.content),
        ("mode", difference.differs.mode),
        ("owner", difference.differs.owner),
        ("mtime", difference.differs.mtime),
        ("link", change.is_link),
        ("replaced", change.replaced.is_some()),
        ("drifted", change.has_drifted()),
    ] {
        json.insert(key.to_owned(), value.into());
    }
    if let Some(before) =
        difference.old.as_ref().filter(|_| difference.kind != DifferenceKind::Added)
    {
        let attr = &before.attr;
        let mut old = Map::new();
        old.insert("kind".to_owned(), text::kind(attr.kind).into());
        old.insert("mode".to_owned(), format!("{:04o}", attr.mode).into());
        old.insert("uid".to_owned(), attr.uid.into());
        old.insert("gid".to_owned(), attr.gid.into());
        old.insert("size".to_owned(), attr.size.into());
        old.insert("mtime".to_owned(), text::time(attr.mtime).into());
        json.insert("before".to_owned(), old.into());
    }
    if let Some(after) = &change.after {
        json.insert("after".to_owned(), object::json(after).into());
    }
    json
}
