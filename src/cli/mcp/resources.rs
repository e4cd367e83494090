//! The files of the tree as resources, by URIs of the form `acetate:///PATH`.

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rmcp::model::{
    ErrorData, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};

use super::limits::{MAX_PAGE_TIME, MAX_READ_BYTES, MAX_RESOURCES};
use super::reading;
use super::session::McpSession;
use crate::cli::error::CliError;
use crate::cli::text;
use crate::delta::MergedPath;
use crate::inspect::opened::find;
use crate::inspect::walk::{WalkControl, walk_past_denied};
use crate::vfs::FileKind;

/// What stands before a path.
const SCHEME: &str = "acetate://";

/// What is escaped in a path: all but the unreserved characters of RFC 3986 and the slash.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The pattern of the URIs.
pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new("acetate:///{+path}", "file")
        .with_description("A file of the session's tree; its path without the first slash.")
}

/// A page of files, in the order of a walk through the tree.
pub(super) fn list(
    session: &McpSession,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let after = cursor.map(path_of_cursor).transpose()?;
    let until = Instant::now() + MAX_PAGE_TIME;
    let mut page = ListResourcesResult::with_all_items(Vec::new());
    let opened = session.open(None).map_err(|error| failed(session, &error))?;
    let walked = opened.with_tree(|view| {
        let (mut denied, mut last) = (Vec::new(), None);
        let root = view.root();
        let root =
            root.map_err(|error| crate::inspect::InspectError::at(&MergedPath::root(), error))?;
        walk_past_denied(view, &root, &|_| true, &mut denied, &mut |_, object, _| {
            let path = object.path();
            if let Some(after) = &after
                && !is_after(path, after)
            {
                let is_above = after.is_within(path);
                return Ok(if is_above { WalkControl::Deeper } else { WalkControl::Past });
            }
            if page.resources.len() >= MAX_RESOURCES || Instant::now() >= until {
                page.next_cursor = last.take().map(|last| cursor_of(&last));
                if page.next_cursor.is_some() {
                    return Ok(WalkControl::Stop);
                }
            }
            if object.attr().kind == FileKind::Regular {
                let resource = Resource::new(uri(path), text::name(path.as_bytes()));
                page.resources.push(resource.with_size(object.attr().size));
            }
            last = Some(path.clone());
            Ok(WalkControl::Deeper)
        })
    });
    walked.map_err(|error| failed(session, &error.into()))?;
    Ok(page)
}

/// Whether a walk comes to a path after another one, which is not above it.
fn is_after(path: &MergedPath, other: &MergedPath) -> bool {
    path.names()
        .map(|name| name.as_bytes().to_vec())
        .gt(other.names().map(|name| name.as_bytes().to_vec()))
}

/// Reads a file as text, or in base64 if it is not UTF-8.
pub(super) fn read(session: &McpSession, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let path = path_of(uri)?;
    let opened = session.open(None).map_err(|error| failed(session, &error))?;
    let found = opened.with_tree(|view| find(view, &path));
    let found =
        found.map_err(|error| ErrorData::resource_not_found(session.told(&error.into()), None))?;
    if found.attr().size > MAX_READ_BYTES {
        let (name, size) = (text::name(path.as_bytes()), found.attr().size);
        let what = format!(
            "{name}: {size} bytes: a resource is read up to {MAX_READ_BYTES}; the tool read_file \
             reads a part"
        );
        return Err(ErrorData::invalid_params(what, None));
    }
    let (content, _) =
        reading::read(&opened, &path, 0, MAX_READ_BYTES).map_err(|e| failed(session, &e))?;
    let contents = match String::from_utf8(content) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type("application/octet-stream"),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn uri(path: &MergedPath) -> String {
    format!("{SCHEME}{}", percent_encode(path.as_bytes(), ESCAPED))
}

fn path_of(uri: &str) -> Result<MergedPath, ErrorData> {
    let path = uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/'));
    let bytes: Option<Vec<u8>> = path.map(|path| percent_decode_str(path).collect());
    let path = bytes.and_then(|bytes| MergedPath::from_bytes(&bytes));
    path.ok_or_else(|| {
        let what = format!("{uri}: not a URI of a file: expected {SCHEME}/PATH");
        ErrorData::resource_not_found(what, None)
    })
}

fn cursor_of(path: &MergedPath) -> String {
    URL_SAFE_NO_PAD.encode(path.as_bytes())
}

fn path_of_cursor(cursor: &str) -> Result<MergedPath, ErrorData> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let path = bytes.and_then(|bytes| MergedPath::from_bytes(&bytes));
    path.ok_or_else(|| ErrorData::invalid_params("not a cursor of this server", None))
}

fn failed(session: &McpSession, error: &CliError) -> ErrorData {
    ErrorData::internal_error(session.told(error), None)
}
