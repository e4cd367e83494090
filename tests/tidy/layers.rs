//! Which module may use which, and where a foreign crate may appear (docs/ARCHITECTURE.md).

use super::tokens::{Token, closing, is_run, library_tokens};
use super::{Complaint, Rule, Source, is_in, settle, sources};

/// Each module and what it may use besides itself: a module, or one name in it.
const LAYERS: &[(&str, &[&str])] = &[
    ("vfs", &[]),
    ("wire", &[]),
    ("json", &[]),
    ("escape", &[]),
    ("system_error", &[]),
    ("run_queue", &[]),
    ("growing_lru", &[]),
    ("counters", &[]),
    ("request_id", &[]),
    // Figures and health over HTTP, from sources that others give it.
    ("admin", &["counters"]),
    ("wal_shim", &[]),
    ("pattern", &[]),
    // Over any tree of files.
    ("context", &["json"]),
    ("base", &["vfs", "pattern", "system_error", "counters", "growing_lru"]),
    // What a row says about the base: a path in it, and which numbers are not the base's.
    (
        "delta",
        &[
            "vfs",
            "pattern",
            "system_error",
            "counters",
            "growing_lru",
            "wal_shim",
            "base::BasePath",
            "base::DELTA_IDS",
        ],
    ),
    // What a base is made of, and the way to what is in it.
    (
        "writeback",
        &[
            "vfs",
            "system_error",
            "base::BaseAttr",
            "base::BasePath",
            "base::Beneath",
            "base::KEPT",
            "base::STAGING",
            "base::STAGING_JOURNAL",
            "base::shown_mode",
        ],
    ),
    // A session may be in a database; its name says so.
    ("config", &["vfs", "pattern", "system_error", "delta::postgres"]),
    // A handle is bound to the mount that gave it out; numbers are in ranges by what has them.
    (
        "export",
        &[
            "vfs",
            "config",
            "overlay",
            "validation",
            "base::DELTA_IDS",
            "base::HASHED_IDS",
            "nfs::HandleCodec",
            "nfs::Handles",
            "nfs::FileHandle",
        ],
    ),
    ("validation", &["vfs", "pattern", "system_error", "json", "counters", "request_id"]),
    ("worker", &["vfs", "delta", "run_queue", "request_id", "counters", "system_error"]),
    ("overlay", &["vfs", "worker", "base", "delta", "counters", "growing_lru"]),
    ("nfs", &["vfs", "wire", "counters"]),
    ("server", &["vfs", "wire", "nfs", "run_queue", "request_id", "counters", "growing_lru"]),
    (
        "inspect",
        &[
            "vfs",
            "pattern",
            "system_error",
            "json",
            "overlay",
            "worker",
            "base",
            "delta",
            "writeback",
        ],
    ),
    ("control", &["vfs", "system_error", "overlay", "delta"]),
    (
        "workspace",
        &[
            "vfs",
            "pattern",
            "system_error",
            "nfs",
            "server",
            "overlay",
            "worker",
            "base",
            "delta",
            "inspect",
            "control",
            "config",
            "export",
            "context",
            "validation",
        ],
    ),
    // Opens a session to look into it, and asks its server; the server itself is a process.
    (
        "mounting",
        &[
            "vfs",
            "pattern",
            "system_error",
            "escape",
            "control",
            "inspect",
            "base::BaseError",
            "config::CheckpointsConfig",
            "config::KeepCheckpointsConfig",
            "delta::PendingCopies",
            "delta::sqlite",
        ],
    ),
    (
        "cli",
        &[
            "vfs",
            "pattern",
            "system_error",
            "escape",
            "admin",
            "counters",
            "request_id",
            "wire",
            "nfs",
            "server",
            "overlay",
            "worker",
            "base",
            "delta",
            "inspect",
            "control",
            "context",
            "workspace",
            "mounting",
            "config",
            "export",
            // The processes that check content, and how they are started.
            "validation::ValidatorCommand",
            "validation::serve_validator",
        ],
    ),
    ("main", &["cli"]),
    // Only declares the modules.
    ("lib", &[]),
];

/// Foreign crates that stay in one place.
const CONFINED: &[(&str, &[&str])] = &[
    ("rusqlite", &["src/delta/sqlite", "src/wal_shim"]),
    // A netlink socket brings the loopback interface of a sandbox up.
    ("socket2", &["src/server", "src/mounting/sandbox"]),
    (
        "tokio",
        &[
            "src/admin",
            "src/server",
            "src/worker",
            "src/run_queue.rs",
            "src/control",
            "src/workspace",
            "src/validation",
            "src/cli/serve",
            "src/cli/in_database",
            "src/cli/mcp",
            "src/delta/postgres",
        ],
    ),
    ("tokio_postgres", &["src/delta/postgres"]),
    ("tokio_postgres_rustls", &["src/delta/postgres"]),
    ("rustls", &["src/delta/postgres"]),
    ("rustls_native_certs", &["src/delta/postgres"]),
    ("rustix", &["src/base", "src/writeback", "src/mounting"]),
    ("hyper", &["src/admin"]),
    ("hyper_util", &["src/admin"]),
    ("prometheus_client", &["src/admin"]),
    ("rmcp", &["src/cli/mcp"]),
    ("base64", &["src/cli/mcp"]),
    ("percent_encoding", &["src/cli/mcp", "src/delta/postgres"]),
    ("regex_syntax", &["src/config/parameters.rs"]),
    (
        "regex",
        &[
            "src/config/instances.rs",
            "src/config/parameters.rs",
            "src/config/template.rs",
            "src/inspect/search.rs",
        ],
    ),
    ("nix", &["src/delta/sqlite/file"]),
    ("landlock", &["src/mounting/sandbox"]),
    ("sd_listen_fds", &["src/cli/serve/systemd"]),
    ("toml", &["src/config"]),
    ("ipnet", &["src/config"]),
    ("clap", &["src/cli"]),
    ("clap_complete", &["src/cli"]),
    ("clap_mangen", &["src/cli"]),
];

/// A use of a module of this crate.
struct Use {
    module: String,
    /// The name that is used in it; none where the module itself is used.
    name: Option<String>,
    line: usize,
}

/// The complaints about `source`'s use of other modules.
fn edges(source: &Source) -> Vec<Complaint> {
    let complain =
        |line, what| Complaint { rule: Rule::LayerEdge, path: source.path.clone(), line, what };
    let layer = layer_of(&source.path);
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![complain(1, format!("`{layer}` is not in the table of layers"))];
    };
    let is_allowed = |used: &Use| {
        let name = used.name.as_deref().unwrap_or_default();
        let exact = format!("{}::{name}", used.module);
        used.module == layer || allowed.iter().any(|a| *a == used.module || *a == exact)
    };
    let mut complaints: Vec<_> = uses(source)
        .into_iter()
        .filter(|used| !is_allowed(used))
        .map(|used| complain(used.line, format!("`{layer}` may not use `{}`", used.module)))
        .collect();
    complaints.dedup();
    complaints
}

/// `base` for `src/base/path.rs`.
fn layer_of(path: &str) -> &str {
    let path = path.strip_prefix("src/").unwrap_or(path);
    path.split(['/', '.']).next().unwrap_or_default()
}

/// How many `super` lead from the file to the crate's root.
fn depth(path: &str) -> usize {
    let path = path.strip_prefix("src/").unwrap_or(path);
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.strip_suffix("/mod").unwrap_or(path).split('/').count()
}

/// All that the file uses from the crate, as `crate::…`, `acetate::…` or by `super`.
fn uses(source: &Source) -> Vec<Use> {
    let tokens = library_tokens(&source.text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        at += 1;
        let is_inner = start > 0 && tokens[start - 1].text == ":";
        if is_inner {
            continue;
        }
        match tokens[start].text.as_str() {
            "crate" | "acetate" if is_run(&tokens[at..], &[":", ":"]) => {
                collect(&tokens, at + 2, false, &mut found);
            }
            "super" => {
                let mut supers = 1;
                while is_run(&tokens[at..], &[":", ":", "super"]) {
                    (supers, at) = (supers + 1, at + 3);
                }
                if supers >= depth(&source.path) && is_run(&tokens[at..], &[":", ":"]) {
                    collect(&tokens, at + 2, true, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// Adds the module, or the group of modules, that is named at `at`.
///
/// A `super` may come from an inline module and end lower than it seems: with `only_layers`,
/// names that are no layer's are left out.
fn collect(tokens: &[Token], at: usize, only_layers: bool, found: &mut Vec<Use>) {
    for at in named(tokens, at) {
        let module = &tokens[at].text;
        if only_layers && !LAYERS.iter().any(|(layer, _)| layer == module) {
            continue;
        }
        let mut add = |name: Option<&Token>| {
            let name = name.map(|t| t.text.clone());
            found.push(Use { module: module.clone(), name, line: tokens[at].line });
        };
        if !is_run(&tokens[at + 1..], &[":", ":"]) {
            add(None);
            continue;
        }
        for name in named(tokens, at + 3) {
            add(Some(&tokens[name]));
        }
    }
}

/// Where the names are that can stand at `at`: one, or all of a group in braces.
pub(super) fn named(tokens: &[Token], at: usize) -> Vec<usize> {
    match tokens.get(at) {
        Some(token) if token.text == "{" => {
            let end = closing(tokens, at) - 1;
            let mut found = Vec::new();
            let mut item = at + 1;
            while item < end {
                found.push(item);
                while item < end && tokens[item].text != "," {
                    item = if tokens[item].text == "{" { closing(tokens, item) } else { item + 1 };
                }
                item += 1;
            }
            found
        }
        Some(_) => vec![at],
        None => Vec::new(),
    }
}

/// The complaints about foreign crates in `source`.
fn confinement(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for token in library_tokens(&source.text) {
        for (name, places) in CONFINED {
            if token.text == *name && !places.iter().any(|place| is_in(&source.path, place)) {
                complaints.push(Complaint {
                    rule: Rule::CrateConfinement,
                    path: source.path.clone(),
                    line: token.line,
                    what: format!("`{name}` may only be used in {}", places.join(", ")),
                });
            }
        }
    }
    complaints
}

#[test]
fn modules_use_only_what_is_below_them() {
    let complaints: Vec<_> = sources().iter().flat_map(edges).collect();
    settle(Rule::LayerEdge, &complaints);
}

#[test]
fn foreign_crates_stay_where_they_belong() {
    let complaints: Vec<_> = sources().iter().flat_map(confinement).collect();
    settle(Rule::CrateConfinement, &complaints);
}

#[test]
fn a_forbidden_edge_is_seen_however_it_is_written() {
    for bad in [
        "use crate::overlay::Overlay;",
        "use crate::{vfs::Name, overlay::{A, B}};",
        "use crate::{\n    vfs::{Name, Time},\n    base::{HostDir, BasePath},\n};",
        "fn f() { let x = crate::overlay::g(); }",
        "use super::super::overlay::Overlay;",
        "use super::super::{vfs, worker};",
        "pub use crate::base::HostDir as BasePath;",
        "use crate::base;",
        "use crate::base::*;",
        "mod inner { use super::super::super::nfs::x; }",
        "type T = Vec<crate::nowhere::Thing>;",
    ] {
        let complaints = edges(&Source::new("src/delta/row.rs", bad));
        assert_eq!(complaints.len(), 1, "{bad}: {complaints:?}");
    }
    for good in [
        "use crate::vfs::Name; use crate::base::BasePath; use crate::delta::Ino;",
        "use crate::{base::{BasePath}, vfs};",
        "// use crate::overlay::Overlay;",
        "/// See [`crate::overlay`].\nconst A: &str = \"crate::overlay\";",
        "#[cfg(test)] mod tests { use crate::overlay::Overlay; }",
        "use super::overlay_row::X; use super::super::vfs::Y; use super::Z;",
        "mod inner { use super::super::Row; }",
    ] {
        let complaints = edges(&Source::new("src/delta/row.rs", good));
        assert_eq!(complaints, [], "{good}");
    }
    assert_eq!(edges(&Source::new("src/newcomer/mod.rs", "")).len(), 1);
    assert_eq!(edges(&Source::new("src/main.rs", "acetate::server::run()")).len(), 1);
    assert_eq!(edges(&Source::new("src/main.rs", "acetate::cli::main()")), []);
}

#[test]
fn a_foreign_crate_in_the_wrong_place_is_seen() {
    for (path, bad) in [
        ("src/delta/row.rs", "use rusqlite::Connection;"),
        ("src/delta/sqlite_like.rs", "fn f(c: &rusqlite::Connection) {}"),
        ("src/overlay/read.rs", "tokio::spawn(x);"),
        ("src/cli/init.rs", "use tokio::net::TcpListener;"),
        ("src/delta/sqlite/mod.rs", "rustix::fs::flock(f)"),
        ("src/server/mod.rs", "#[derive(clap::Parser)] struct A;"),
    ] {
        let complaints = confinement(&Source::new(path, bad));
        assert_eq!(complaints.len(), 1, "{path}: {bad}");
    }
    for (path, good) in [
        ("src/delta/sqlite/table/chunk.rs", "use rusqlite::Connection;"),
        ("src/cli/serve/mod.rs", "tokio::spawn(x);"),
        ("src/wire/mod.rs", "// tokio is not used here\n#[cfg(test)] use tokio::test;"),
    ] {
        assert_eq!(confinement(&Source::new(path, good)), [], "{path}");
    }
}
