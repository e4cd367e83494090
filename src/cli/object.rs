//! Formats an object of the merged tree, as a line and as JSON.

use serde_json::{Map, Value};

use super::text;
use crate::overlay::TreeObject;

/// The layer that holds the object.
pub(super) fn layer(object: &TreeObject) -> &'static str {
    match (object.row().is_some(), object.origin().is_some()) {
        (false, _) => "base",
        (true, false) => "session",
        (true, true) => "copied",
    }
}

/// The object for `--json`.
pub(super) fn json(object: &TreeObject) -> Map<String, Value> {
    let mut json = text::json("object");
    text::put_path(&mut json, "path", object.path().as_bytes());
    json.insert("layer".to_owned(), layer(object).into());
    text::put_attr(&mut json, object.attr());
    if let Some(origin) = object.origin() {
        text::put_path(&mut json, "origin", origin.path.as_bytes());
    }
    json
}

/// The widths of the columns of a long listing.
#[derive(Debug, Default)]
pub(super) struct ColumnWidths {
    nlink: usize,
    uid: usize,
    gid: usize,
    size: usize,
}

impl ColumnWidths {
    /// The widths that these objects need.
    pub(super) fn of<'a>(objects: impl Iterator<Item = &'a TreeObject>) -> Self {
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        objects.fold(Self::default(), |widths, object| {
            let attr = object.attr();
            Self {
                nlink: widths.nlink.max(digits(attr.nlink.into())),
                uid: widths.uid.max(digits(attr.uid.into())),
                gid: widths.gid.max(digits(attr.gid.into())),
                size: widths.size.max(digits(attr.size)),
            }
        })
    }

    /// The line of an object.
    pub(super) fn line(&self, object: &TreeObject, name: &str) -> String {
        let attr = object.attr();
        format!(
            "{:<7} {} {:>nlink$} {:>uid$} {:>gid$} {:>size$} {} {name}",
            layer(object),
            text::mode(attr),
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.size,
            text::time_short(attr.mtime),
            nlink = self.nlink,
            uid = self.uid,
            gid = self.gid,
            size = self.size,
        )
    }
}
