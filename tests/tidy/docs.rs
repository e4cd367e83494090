//! The documents agree with the repository: links lead somewhere, tables and dependencies are
//! explained.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Source, files, root};

/// The text of the repository's file `path`.
fn document(path: &str) -> String {
    let text = fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Targets of the links in `markdown` that lead to files: without code, web addresses, and
/// places in the same document.
fn local_links(markdown: &str) -> Vec<String> {
    let text = without_code(markdown);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let references = text.lines().filter_map(|line| {
        let (label, target) = line.trim_start().strip_prefix('[')?.split_once("]: ")?;
        (!label.contains(']')).then_some(target.split(' ').next()?)
    });
    let targets = inline.chain(references).map(|t| t.trim_matches(['<', '>']));
    targets
        .filter(|t| !t.starts_with('#') && !t.contains("://") && !t.starts_with("mailto:"))
        .map(|t| t.split('#').next().unwrap_or(t).to_owned())
        .collect()
}

/// `markdown` without fenced blocks and `code`.
fn without_code(markdown: &str) -> String {
    let mut text = String::new();
    let mut in_fence = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            text.extend(line.split('`').step_by(2));
            text.push('\n');
        }
    }
    text
}

/// The links in `document` that lead to nothing.
fn dead_links(document: &Source, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    let links = local_links(&document.text);
    links
        .into_iter()
        .filter(|link| link.starts_with('/') || !exists(&folder.join(link)))
        .map(|link| format!("{}: {link} leads nowhere", document.path))
        .collect()
}

/// Names in `text` that begin with `acetate_`.
fn table_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.len() > "acetate_".len() && word.starts_with("acetate_"))
        .map(str::to_owned)
        .collect()
}

/// The crates that a Cargo.toml depends on, for building, running or testing.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_section = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_section = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.insert(name.to_owned());
            }
        } else if in_section
            && !line.starts_with('#')
            && let Some((name, _)) = line.split_once(['=', '.'])
        {
            found.insert(name.trim().trim_matches('"').to_owned());
        }
    }
    found
}

/// The source files that `markdown` names as code, by their whole path or its end.
fn source_files_named(markdown: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_fence = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            names.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.' | '-');
    names.retain(|name| name.ends_with(".rs") && name.chars().all(is_path));
    names
}

/// The source files that `document` names and that are none of `sources`.
fn unknown_source_files(document: &Source, sources: &[String]) -> Vec<String> {
    let exists =
        |name: &str| sources.iter().any(|path| path == name || path.ends_with(&format!("/{name}")));
    let named = source_files_named(&document.text).into_iter();
    named
        .filter(|name| !exists(name))
        .map(|name| format!("{}: no file {name}", document.path))
        .collect()
}

/// Whether `text` holds `name` as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn every_link_leads_to_a_file() {
    let mut documents = files("docs", "md");
    documents.push(Source::new("README.md", &document("README.md")));
    let exists = |path: &Path| root().join(path).exists();
    let dead: Vec<_> = documents.iter().flat_map(|d| dead_links(d, exists)).collect();
    assert!(dead.is_empty(), "\n{}\n", dead.join("\n"));
}

#[test]
fn every_source_file_that_a_document_names_exists() {
    let mut documents = files("docs", "md");
    documents.push(Source::new("README.md", &document("README.md")));
    let places = ["src", "tests", "integration"];
    let sources: Vec<_> = places.iter().flat_map(|place| files(place, "rs")).collect();
    let sources: Vec<_> = sources.into_iter().map(|source| source.path).collect();
    let unknown: Vec<_> =
        documents.iter().flat_map(|d| unknown_source_files(d, &sources)).collect();
    assert!(unknown.is_empty(), "\n{}\n", unknown.join("\n"));
}

#[test]
fn our_tables_are_those_of_the_schema() {
    let schema = table_names(&document("docs/SCHEMA.md"));
    let code = files("src/delta/sqlite", "rs");
    let code: BTreeSet<_> = code.iter().flat_map(|source| table_names(&source.text)).collect();
    assert!(!code.is_empty(), "no table is named in src/delta/sqlite");
    let unexplained: Vec<_> = code.difference(&schema).collect();
    assert!(unexplained.is_empty(), "not in docs/SCHEMA.md: {unexplained:?}");
    let unknown: Vec<_> = schema.difference(&code).collect();
    assert!(unknown.is_empty(), "in docs/SCHEMA.md, but not in src/delta/sqlite: {unknown:?}");
}

#[test]
fn every_dependency_is_explained() {
    let text = document("docs/ARCHITECTURE.md");
    let all = dependencies(&document("Cargo.toml"));
    assert!(all.contains("rusqlite") && all.contains("tempfile"), "{all:?}");
    let missing: Vec<_> = all.into_iter().filter(|name| !names(&text, name)).collect();
    assert!(missing.is_empty(), "not in docs/ARCHITECTURE.md: {missing:?}");
}

#[test]
fn every_decision_is_in_the_index() {
    let index = document("docs/decisions/README.md");
    let decisions = files("docs/decisions", "md").into_iter().filter_map(|decision| {
        let name = decision.path.strip_prefix("docs/decisions/")?.to_owned();
        (name != "README.md").then_some(name)
    });
    let missing: Vec<_> = decisions.filter(|name| !index.contains(&format!("({name})"))).collect();
    assert!(missing.is_empty(), "not in docs/decisions/README.md: {missing:?}");
}

#[test]
fn a_dead_link_is_seen() {
    let text = "[a](there.md#part) [b](gone.md) `[c](code.md)` [d](https://e.org/x) [e](#here)\n\
        ```\n[f](fenced.md)\n```\n![g](<img.png> \"t\") [h](/etc/passwd)\n[r]: ref.md\n";
    let source = Source::new("docs/x.md", text);
    let dead = dead_links(&source, |path| path == Path::new("docs/there.md"));
    let gone = ["gone.md", "img.png", "/etc/passwd", "ref.md"];
    assert_eq!(dead, gone.map(|link| format!("docs/x.md: {link} leads nowhere")));
}

#[test]
fn a_source_file_that_does_not_exist_is_seen() {
    let text = "`a.rs`, `overlay/gone.rs` and `edit.rs` `src/*.rs` it.rs\n\
        ```\nfenced.rs `b.rs`\n```\n`src/overlay/edit.rs` `lay/edit.rs`\n";
    let sources = ["src/overlay/edit.rs", "tests/a.rs"].map(str::to_owned);
    let unknown = unknown_source_files(&Source::new("docs/x.md", text), &sources);
    let gone = ["overlay/gone.rs", "lay/edit.rs"];
    assert_eq!(unknown, gone.map(|name| format!("docs/x.md: no file {name}")));
}

#[test]
fn tables_and_dependencies_are_recognised() {
    let tables = table_names("`acetate_op`, acetate_meta.key acetate_ acetate xacetate_no");
    assert_eq!(tables.into_iter().collect::<Vec<_>>(), ["acetate_meta", "acetate_op"]);

    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# no = \"1\"\na-b = \"1\"\n\
        c.workspace = true\n[target.'cfg(unix)'.dependencies]\nd = { version = \"1\" }\n\
        [dev-dependencies.e]\nversion = \"1\"\n[profile.release]\nlto = \"thin\"\n";
    let found: Vec<_> = dependencies(manifest).into_iter().collect();
    assert_eq!(found, ["a-b", "c", "d", "e"]);

    assert!(names("uses `serde`, and", "serde") && !names("serde_json serde-x", "serde"));
}
