//! Which module of the store may use which (docs/ARCHITECTURE.md, `delta/sqlite`).

use super::layers::named;
use super::tokens::{Token, is_run, library_tokens};
use super::{Complaint, Rule, Source, settle, sources};

/// The folder of the store.
const STORE: &str = "src/delta/sqlite/";

/// Each module, and the modules that it may use besides itself.
const STORE_MODULES: &[(&str, &[&str])] = &[
    ("table", &[]),
    ("file", &["table"]),
    ("wal", &["file"]),
    ("txn", &["table", "file", "wal"]),
    ("store", &["file", "txn"]),
    ("tools", &["table", "file", "wal"]),
];

/// The complaints about `source`'s use of other modules.
fn edges(source: &Source) -> Vec<Complaint> {
    let Some(inside) = source.path.strip_prefix(STORE).filter(|path| *path != "mod.rs") else {
        return Vec::new();
    };
    let complain = |line, what| Complaint {
        rule: Rule::StoreModuleEdge,
        path: source.path.clone(),
        line,
        what,
    };
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    let Some((_, allowed)) = STORE_MODULES.iter().find(|(name, _)| *name == module) else {
        return vec![complain(1, format!("`{module}` is not in the table of modules"))];
    };
    let tokens = library_tokens(&source.text);
    // `super` once for each folder leads to the store.
    let to_store = inside.trim_end_matches("/mod.rs").trim_end_matches(".rs").split('/').count();
    let mut complaints = Vec::new();
    for at in 0..tokens.len() {
        let Some(names) = names_in_store(&tokens, at, to_store) else { continue };
        for used in named(&tokens, names).into_iter().map(|at| &tokens[at]) {
            let is_module = STORE_MODULES.iter().any(|(name, _)| *name == used.text);
            if is_module && used.text != module && !allowed.contains(&used.text.as_str()) {
                complaints.push(complain(used.line, format!("`{module}` uses `{}`", used.text)));
            }
        }
    }
    complaints
}

/// Where the names begin that a path which begins at `at` takes from the store, if it does.
fn names_in_store(tokens: &[Token], at: usize, to_store: usize) -> Option<usize> {
    let rest = &tokens[at..];
    if is_run(rest, &["delta", ":", ":", "sqlite", ":", ":"]) {
        return Some(at + 6);
    }
    let is_first = at == 0 || tokens[at - 1].text != ":";
    if rest.first().is_none_or(|token| token.text != "super") || !is_first {
        return None;
    }
    let mut supers = 1;
    while is_run(&rest[3 * supers - 2..], &[":", ":", "super"]) {
        supers += 1;
    }
    let is_to_store = supers == to_store && is_run(&rest[3 * supers - 2..], &[":", ":"]);
    is_to_store.then_some(at + 3 * supers)
}

#[test]
fn modules_of_the_store_use_only_those_below_them() {
    let complaints: Vec<_> = sources().iter().flat_map(edges).collect();
    settle(Rule::StoreModuleEdge, &complaints);
}

#[test]
fn a_forbidden_module_is_seen_however_it_is_written() {
    for (path, bad) in [
        ("src/delta/sqlite/table/op.rs", "use crate::delta::sqlite::file::epoch;"),
        ("src/delta/sqlite/table/op.rs", "use super::super::file::epoch;"),
        (
            "src/delta/sqlite/wal/schedule.rs",
            "use crate::delta::sqlite::{file::disk, table::meta};",
        ),
        ("src/delta/sqlite/txn/batch.rs", "fn f() { crate::delta::sqlite::tools::kv::g(); }"),
        ("src/delta/sqlite/tools/check/mod.rs", "use super::super::txn::reader;"),
        ("src/delta/sqlite/tools/check/tree.rs", "use super::super::super::{txn, table};"),
        ("src/delta/sqlite/store.rs", "use super::tools::kv;"),
        ("src/delta/sqlite/cellar/mod.rs", ""),
    ] {
        let complaints = edges(&Source::new(path, bad));
        assert_eq!(complaints.len(), 1, "{path}: {bad}: {complaints:?}");
    }
    for (path, good) in [
        ("src/delta/sqlite/file/open.rs", "use crate::delta::sqlite::table::meta; use super::x;"),
        ("src/delta/sqlite/tools/check/tree.rs", "use super::super::check; use super::found;"),
        ("src/delta/sqlite/store.rs", "use super::file::connect; use super::txn::reader;"),
        ("src/delta/sqlite/mod.rs", "pub use tools::kv::KvRow;"),
        ("src/delta/row.rs", "use super::sqlite::tools::kv;"),
    ] {
        assert_eq!(edges(&Source::new(path, good)), [], "{path}: {good}");
    }
}
