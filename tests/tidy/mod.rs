//! House rules that the compiler does not check, read off the text of the repository.
//!
//! Each rule is a function from texts to complaints, with a test on the repository and one on a
//! bad sample, so that no rule can fall silent. An exception to a rule is one line in
//! [`EXCEPTIONS`], with its reason.

mod code_map;
mod docs;
mod layers;
mod limits;
mod safety;
mod shape;
mod store_modules;
mod tokens;
mod tree_statements;
mod type_names;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

/// What may break which rule, and why. The path may be a folder; a rule that nothing breaks any
/// more makes its exception a complaint.
const EXCEPTIONS: &[Exception] = &[
    exception(Rule::CrateConfinement, "src/cli/child.rs", "tokio, rustix: a child and signals"),
    exception(Rule::CrateConfinement, "src/cli/control.rs", "tokio: the socket's task"),
    exception(Rule::CrateConfinement, "src/cli/copying/placing.rs", "rustix: O_NOFOLLOW"),
    exception(Rule::CrateConfinement, "src/cli/detached.rs", "tokio, rustix: the log, setsid"),
    exception(Rule::CrateConfinement, "src/config/added_dir.rs", "rustix: O_NOFOLLOW"),
    exception(Rule::CrateConfinement, "src/control", "rustix: whose process it is, holes"),
    exception(Rule::CrateConfinement, "src/cli/output.rs", "rustix: whether anyone reads stdout"),
    exception(Rule::CrateConfinement, "src/cli/serve/limits.rs", "rustix: descriptors"),
    exception(Rule::CrateConfinement, "src/cli/serve/systemd", "rustix: sockets, the clock"),
    exception(Rule::CrateConfinement, "src/cli/signals.rs", "tokio: signals"),
    exception(Rule::CrateConfinement, "src/server/incoming.rs", "rustix: what has arrived, now"),
    exception(Rule::CrateConfinement, "src/delta/sqlite/file/disk.rs", "rustix: space"),
    exception(Rule::CrateConfinement, "src/workspace/mod.rs", "rustix: who runs it"),
    exception(Rule::CrateConfinement, "src/workspace/database.rs", "rustix: where it is"),
    exception(Rule::CrateConfinement, "src/workspace/replicas.rs", "rustix: who it is"),
    exception(Rule::CrateConfinement, "src/workspace/old_replicas.rs", "rustix: utimensat"),
    exception(Rule::CrateConfinement, "src/delta/postgres/lease.rs", "rustix: the clock"),
    exception(Rule::CrateConfinement, "src/delta/sqlite/file/lock.rs", "rustix: O_NOFOLLOW"),
    exception(Rule::CrateConfinement, "src/validation/child", "rustix: limits and ends a process"),
    exception(Rule::CrateConfinement, "src/validation/program.rs", "rustix: the same"),
    exception(Rule::CrateConfinement, "src/inspect/export/dir.rs", "rustix: fills a directory"),
    exception(Rule::CrateConfinement, "src/wal_shim/filesystem.rs", "rustix: which filesystem"),
    exception(Rule::UniqueTypeName, "src/base/host_dir/local.rs", "one type for each system"),
    exception(Rule::NoUnsafe, "src/wal_shim/vfs", "a layer under SQLite"),
];

/// One exception.
struct Exception {
    rule: Rule,
    path: &'static str,
    reason: &'static str,
}

const fn exception(rule: Rule, path: &'static str, reason: &'static str) -> Exception {
    Exception { rule, path, reason }
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A module uses only modules below it.
    LayerEdge,
    /// A module of the store uses only those that it may.
    StoreModuleEdge,
    /// A foreign crate is used in one place.
    CrateConfinement,
    /// A file has at most 500 lines.
    FileLength,
    /// A line has at most 100 characters.
    LineLength,
    /// A function has at most 70 lines of code.
    FunctionLength,
    /// A source file says what it is for.
    ModuleDoc,
    /// The library neither panics nor prints.
    NoPanic,
    /// What the compiler cannot check is in one place.
    NoUnsafe,
    /// A statement that changes a row of the tree has a conflict clause.
    TreeStatement,
    /// No two types have the same name.
    UniqueTypeName,
    /// Some words are not used.
    Wording,
}

/// A file that was read.
struct Source {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }
}

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    rule: Rule,
    path: String,
    line: usize,
    what: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files at or below `place` (in the repository) whose name ends in `.{extension}`.
fn files(place: &str, extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut paths: Vec<PathBuf> = vec![root().join(place)];
    while let Some(path) = paths.pop() {
        if let Ok(entries) = fs::read_dir(&path) {
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|e| e == extension) {
            let name = path.strip_prefix(root()).expect("below the root");
            let text = fs::read_to_string(&path).expect("UTF-8 text");
            found.push(Source::new(&name.to_string_lossy(), &text));
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The library and the program.
fn sources() -> Vec<Source> {
    let sources = files("src", "rs");
    assert!(sources.len() > 20, "the sources are not where this test looks for them");
    sources
}

/// Whether `path` is `place`, or in the folder `place`.
fn is_in(path: &str, place: &str) -> bool {
    let rest = path.strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || place.ends_with('/'))
}

/// Fails with all complaints about `rule` that no exception covers, and with exceptions that
/// cover nothing.
fn settle(rule: Rule, complaints: &[Complaint]) {
    let report = unsettled(rule, complaints, EXCEPTIONS);
    assert!(report.is_empty(), "\n{}\n", report.join("\n"));
}

fn unsettled(rule: Rule, complaints: &[Complaint], exceptions: &[Exception]) -> Vec<String> {
    let covers = |e: &Exception, c: &Complaint| e.rule == c.rule && is_in(&c.path, e.path);
    let complaints = complaints.iter().filter(|c| c.rule == rule);
    let exceptions = exceptions.iter().filter(|e| e.rule == rule);
    let open = complaints
        .clone()
        .filter(|c| !exceptions.clone().any(|e| covers(e, c)))
        .map(|c| format!("{}:{}: {}", c.path, c.line, c.what));
    let idle = exceptions
        .clone()
        .filter(|e| !complaints.clone().any(|c| covers(e, c)))
        .map(|e| format!("{}: needs no exception from {rule:?} ({})", e.path, e.reason));
    open.chain(idle).collect()
}

#[test]
fn an_exception_covers_its_path_and_has_to_be_needed() {
    let about = |path: &str| Complaint {
        rule: Rule::FileLength,
        path: path.to_owned(),
        line: 1,
        what: "long".to_owned(),
    };
    let complaints = [about("src/a/b.rs"), about("src/ab.rs")];
    let exception = |rule, path| exception(rule, path, "r");
    let report = unsettled(Rule::FileLength, &complaints, &[exception(Rule::FileLength, "src/a")]);
    assert_eq!(report, ["src/ab.rs:1: long"]);
    let idle = [exception(Rule::FileLength, "src"), exception(Rule::FileLength, "src/c.rs")];
    let report = unsettled(Rule::FileLength, &complaints, &idle);
    assert_eq!(report, ["src/c.rs: needs no exception from FileLength (r)"]);
    let other = [exception(Rule::LineLength, "src")];
    assert_eq!(unsettled(Rule::FileLength, &complaints, &other).len(), 2);
}
