//! The tools that read the tree.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::limits::{MAX_READ_BYTES, MAX_SEARCH_BYTES, MAX_SEARCH_TIME, READ_BYTES};
use super::results::{BoundedList, McpOutput};
use super::session::{McpSession, path};
use crate::cli::error::CliError;
use crate::cli::{object, text};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::find::FindPattern;
use crate::inspect::opened::{OpenSession, find};
use crate::inspect::search::{SearchEnd, SearchLimits, SearchMatch, TextSearch, compile, search};
use crate::inspect::stop::StopFlag;
use crate::inspect::walk::children;
use crate::vfs::{FileKind, FsError};

/// The most paths that a result names as denied by the base.
const MAX_DENIED: usize = 20;

/// How content stands in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(super) enum ContentEncoding {
    /// Text in UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Any bytes, in base64.
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFileArgs {
    /// The file, from the root of the tree.
    path: String,
    /// Where to begin, in bytes.
    #[serde(default)]
    offset: u64,
    /// How many bytes to read: at most 1048576. By default 262144.
    length: Option<u64>,
    /// How the content is returned. A file that is not UTF-8 is read with base64.
    #[serde(default)]
    encoding: ContentEncoding,
    /// Read the file as it was at this checkpoint: an id, a name, `@-1` for the newest, or a time.
    at: Option<String>,
}

pub(super) fn read_file(session: &McpSession, args: &ReadFileArgs) -> Result<McpOutput, CliError> {
    let length = args.length.unwrap_or(READ_BYTES);
    if !(1..=MAX_READ_BYTES).contains(&length) {
        let what = format!("length {length}: between 1 and {MAX_READ_BYTES} bytes are read");
        return Err(CliError::new(what).with_hint("read on with \"offset\""));
    }
    let path = path(&args.path)?;
    let opened = session.open(args.at.as_deref())?;
    let (mut content, size) = read(&opened, &path, args.offset, length)?;
    let is_last = args.offset.saturating_add(content.len() as u64) >= size;
    let text = match args.encoding {
        ContentEncoding::Base64 => STANDARD.encode(&content),
        ContentEncoding::Utf8 => {
            content.truncate(whole_characters(&content, is_last));
            String::from_utf8(content.clone()).map_err(|_| {
                CliError::new(format_args!("{}: not UTF-8", text::name(path.as_bytes())))
                    .with_hint("read it with \"encoding\": \"base64\"")
            })?
        }
    };
    let end = args.offset.saturating_add(content.len() as u64);
    let mut texts = vec![text];
    if end < size {
        let from = args.offset;
        texts.push(format!("[bytes {from} to {end} of {size}: read on with \"offset\": {end}]"));
    }
    Ok(McpOutput::Text(texts))
}

/// The length without a character that is cut at the end.
fn whole_characters(content: &[u8], is_last: bool) -> usize {
    match std::str::from_utf8(content) {
        // No more bytes are to come: an incomplete character stays, and is an error.
        Err(error) if error.error_len().is_none() && !is_last => error.valid_up_to(),
        _ => content.len(),
    }
}

/// Reads a part of a regular file; returns the size of the file too.
pub(super) fn read(
    opened: &OpenSession,
    path: &MergedPath,
    offset: u64,
    length: u64,
) -> Result<(Vec<u8>, u64), CliError> {
    Ok(opened.with_tree(|view| {
        let file = find(view, path)?;
        match file.attr().kind {
            FileKind::Directory => return Err(InspectError::at(path, FsError::IsDirectory)),
            FileKind::Regular => {}
            kind => {
                let (path, kind) = (text::name(path.as_bytes()), text::kind(kind));
                return Err(InspectError::Invalid { what: format!("{path}: is a {kind}") });
            }
        }
        let size = file.attr().size;
        let wanted = length.min(size.saturating_sub(offset));
        let mut content = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
        let mut got = 0;
        while let Some(rest) = content.get_mut(got..).filter(|rest| !rest.is_empty()) {
            let read = view.read(&file, offset + got as u64, rest);
            match read.map_err(|source| InspectError::at(path, source))? {
                0 => break,
                more => got += more,
            }
        }
        content.truncate(got);
        Ok((content, size))
    })?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct ReadDirArgs {
    /// The directory. By default the root of the tree.
    path: Option<String>,
    /// Only entries whose names sort after this one: the last name of the result before.
    after: Option<String>,
    /// How many entries: at most 1000. By default 200.
    limit: Option<usize>,
    /// List the directory as it was at this checkpoint.
    at: Option<String>,
}

pub(super) fn readdir(session: &McpSession, args: &ReadDirArgs) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let path = path(args.path.as_deref().unwrap_or("/"))?;
    let opened = session.open(args.at.as_deref())?;
    let entries = opened.with_tree(|view| {
        let dir = find(view, &path)?;
        match dir.attr().kind {
            FileKind::Directory => children(view, &dir),
            _ => Err(InspectError::at(&path, FsError::NotDirectory)),
        }
    })?;
    for (name, child) in &entries {
        if args.after.as_ref().is_some_and(|after| name.as_bytes() <= after.as_bytes()) {
            continue;
        }
        let (mut entry, attr) = (JsonObject::new(), child.attr());
        text::put_path(&mut entry, "name", name.as_bytes());
        entry.insert("kind".to_owned(), text::kind(attr.kind).into());
        entry.insert("size".to_owned(), attr.size.into());
        entry.insert("mtime".to_owned(), text::time(attr.mtime).into());
        if !list.push(entry) {
            break;
        }
    }
    let mut json = JsonObject::new();
    text::put_path(&mut json, "path", path.as_bytes());
    list.put(&mut json, "entries");
    Ok(McpOutput::Json(json))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct StatArgs {
    /// The file, directory or link. Symbolic links are not followed.
    path: String,
    /// Its attributes as they were at this checkpoint.
    at: Option<String>,
}

pub(super) fn stat(session: &McpSession, args: &StatArgs) -> Result<McpOutput, CliError> {
    let path = path(&args.path)?;
    let opened = session.open(args.at.as_deref())?;
    let json = opened.with_tree(|view| {
        let found = find(view, &path)?;
        let mut json = object::json(&found);
        if found.attr().kind == FileKind::Symlink {
            let target = view.target(&found).map_err(|source| InspectError::at(&path, source))?;
            text::put_path(&mut json, "target", &target);
        }
        Ok(json)
    })?;
    Ok(McpOutput::Json(json))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArgs {
    /// The regular expression, in the syntax of Rust's crate `regex`, for single lines.
    pattern: String,
    /// The file, or the directory below which files are searched. By default the root.
    path: Option<String>,
    /// Only files whose names match this glob, such as `*.rs`.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// How many matching lines: at most 1000. By default 200.
    limit: Option<usize>,
    /// Search the tree as it was at this checkpoint.
    at: Option<String>,
}

pub(super) fn search_files(
    session: &McpSession,
    args: &SearchArgs,
    stop: &StopFlag,
) -> Result<McpOutput, CliError> {
    let mut list = BoundedList::new(args.limit)?;
    let (matches, stop) = (list.most(), stop.clone());
    let limits = SearchLimits { matches, bytes: MAX_SEARCH_BYTES, time: MAX_SEARCH_TIME, stop };
    let wanted = TextSearch {
        pattern: compile(&args.pattern, args.ignore_case)?,
        name: args.glob.as_deref().map(FindPattern::new).transpose()?,
        limits,
    };
    let path = path(args.path.as_deref().unwrap_or("/"))?;
    let opened = session.open(args.at.as_deref())?;
    let report = opened.with_tree(|view| search(view, &find(view, &path)?, &wanted))?;
    let has_room = report.matches.iter().all(|found| list.push(match_json(found)));
    let ended = match report.ended {
        _ if !has_room => Some("size of the result"),
        Some(SearchEnd::Matches) => Some("matches"),
        Some(SearchEnd::Bytes) => Some("content"),
        Some(SearchEnd::Time) => Some("time"),
        None => None,
    };
    let mut json = JsonObject::new();
    list.put(&mut json, "matches");
    json.insert("more".to_owned(), ended.is_some().into());
    json.insert("ended_by".to_owned(), ended.into());
    json.insert("files".to_owned(), report.files.into());
    json.insert("bytes".to_owned(), report.bytes.into());
    json.insert("binary_files".to_owned(), report.binary.into());
    let denied = report.denied.iter().take(MAX_DENIED).map(|path| text::name(path.as_bytes()));
    json.insert("denied".to_owned(), denied.collect::<Vec<_>>().into());
    Ok(McpOutput::Json(json))
}

fn match_json(found: &SearchMatch) -> JsonObject {
    let mut json = JsonObject::new();
    text::put_path(&mut json, "path", found.path.as_bytes());
    json.insert("line".to_owned(), found.line.into());
    json.insert("text".to_owned(), found.text.clone().into());
    if found.is_cut {
        json.insert("is_cut".to_owned(), true.into());
    }
    json
}
