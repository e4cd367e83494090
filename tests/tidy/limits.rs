//! docs/LIMITS.md lists every limit, as the code has it. `ACETATE_BLESS=1 cargo test --test acetate
//! limits` writes it anew.

use super::{Source, files, root};

const PAGE: &str = "docs/LIMITS.md";

const HEAD: &str = "\
# Limits

The bounds of what a server takes, by the module that keeps to them.
Past a limit, a client waits, is told to ask again (JUKEBOX), or loses its connection; the server \
does not grow.
Written by a test from the code: `ACETATE_BLESS=1 cargo test --test acetate limits`.
Sizes are in bytes where nothing else is said, and `a << b` is a · 2^b.
";

/// Limits are all constants of files named `limits.rs`, and those of others whose names begin like
/// this, in [`PLACES`].
const NAMES: &[&str] = &[
    "MAX_",
    "CACHE_BYTES",
    "WRITER_CACHE",
    "READER_CACHE",
    "SHARE_OF_LIMIT",
    // The log's.
    "CHECKPOINT_BYTES",
    "EARLY_CHECKPOINT_BYTES",
    "WAIT_FOR_READERS_BYTES",
    "READERS_WAIT",
    "KEPT_BYTES",
    // What an apply keeps.
    "KEEP_LIMIT_BYTES",
    // Of the lock table.
    "EXPORT_SHARE",
    "CLIENT_SHARE",
];
const PLACES: &[&str] = &[
    "src/wire",
    "src/admin",
    "src/server",
    "src/nfs",
    "src/worker",
    "src/overlay",
    "src/base",
    "src/delta",
    "src/export",
    "src/context",
    "src/control",
    "src/config",
    "src/validation",
    "src/workspace",
    "src/cli/logging.rs",
    "src/cli/mcp",
    "src/inspect/search.rs",
    "src/inspect/apply/keep.rs",
];

#[derive(Debug, PartialEq, Eq)]
struct Limit {
    name: String,
    value: String,
    what: String,
}

/// The constants in `source` that are limits, with the first sentence of what is said of them.
fn limits(source: &Source) -> Vec<Limit> {
    let is_limits = source.path.ends_with("/limits.rs");
    let mut found = Vec::new();
    let mut comment = String::new();
    let mut lines = source.text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            comment = format!("{comment} {}", text.trim());
            continue;
        }
        let declared = line.strip_prefix("pub(super) ").or(line.strip_prefix("pub "));
        let declared = declared.unwrap_or(line).strip_prefix("const ");
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        if let Some((name, rest)) = declared.and_then(|rest| rest.split_once(": "))
            && is_name(name)
        {
            let mut rest = rest.to_owned();
            while !rest.ends_with(';') {
                rest = format!("{rest} {}", lines.next().expect("an end").trim());
            }
            let is_limit = is_limits || NAMES.iter().any(|begin| name.starts_with(begin));
            if let (true, Some((_, value))) = (is_limit && name != "_", rest.split_once("= ")) {
                let what = first_sentence(comment.trim());
                found.push(Limit { name: name.to_owned(), value: plain(value), what });
            }
        }
        comment.clear();
    }
    found
}

/// The value without what Rust needs around it.
fn plain(value: &str) -> String {
    let value = value.trim_end_matches(';').trim_end_matches(".unwrap()");
    let value = value.strip_prefix("NonZeroUsize::new(").map_or(value, |v| v.trim_end_matches(')'));
    value.replace('|', "or").replace("Duration::", "")
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    // Links of rustdoc lead nowhere here.
    text[..end].trim_end_matches('.').replace(['[', ']'], "").replace('|', "or")
}

fn page() -> String {
    let mut text = HEAD.to_owned();
    for source in PLACES.iter().flat_map(|place| files(place, "rs")) {
        let limits = limits(&source);
        if limits.is_empty() {
            continue;
        }
        text += &format!("\n## [{0}](../{0})\n\n| limit | value | |\n|---|---|---|\n", source.path);
        for Limit { name, value, what } in limits {
            text += &format!("| `{name}` | `{value}` | {what} |\n");
        }
    }
    text
}

#[test]
fn the_page_of_limits_is_as_generated() {
    let (path, page) = (root().join(PAGE), page());
    if std::env::var_os("ACETATE_BLESS").is_some() {
        return std::fs::write(path, page).unwrap();
    }
    for named in ["MAX_CONNECTIONS", "MAX_RECORD_BYTES", "REPLY_CACHE_BYTES", "MAX_WAITING"] {
        assert!(page.contains(&format!("| `{named}` |")), "{named}");
    }
    let hint = "write it anew: ACETATE_BLESS=1 cargo test --test acetate limits";
    assert!(std::fs::read_to_string(path).unwrap() == page, "{PAGE} is not true any more: {hint}");
}

#[test]
fn a_limit_is_recognised() {
    let text = "//! M.\n\n/// Connections at a time; more\n/// wait. Not for long.\n\
        pub const MAX_A: usize =\n    4 * 2;\n/// No.\nconst B: u8 = 1;\n\
        /// Kept.\npub(super) const MAX_C: NonZeroUsize = NonZeroUsize::new(7).unwrap();\n";
    let limit = |name: &str, value: &str, what: &str| Limit {
        name: name.to_owned(),
        value: value.to_owned(),
        what: what.to_owned(),
    };
    let a = limit("MAX_A", "4 * 2", "Connections at a time; more wait");
    let (b, c) = (limit("B", "1", "No"), limit("MAX_C", "7", "Kept"));
    assert_eq!(limits(&Source::new("src/x/y.rs", text)), [a, c]);
    assert_eq!(limits(&Source::new("src/x/limits.rs", text))[1], b);
}
