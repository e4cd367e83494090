//! The code map of docs/ARCHITECTURE.md names every file and folder directly in a module, and no
//! file that does not exist. Its table of caches has every cache.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Source, files, root};

/// The words in backticks of `text`.
fn code_words(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The section of the code map about the module `name`.
fn section<'a>(map: &'a str, name: &str) -> &'a str {
    let head = format!("\n### `{name}`\n");
    let start = map.find(&head).unwrap_or_else(|| panic!("no section about {name}"));
    let text = &map[start + head.len()..];
    &text[..text.find("\n##").unwrap_or(text.len())]
}

/// The names of the files and folders directly in `folder`, but for `mod.rs`.
fn entries(folder: &Path) -> BTreeSet<String> {
    let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = list.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| name.trim_end_matches(".rs").to_owned()).filter(|n| n != "mod").collect()
}

/// The names of all files and folders below `folder`.
fn entries_below(folder: &str) -> BTreeSet<String> {
    let sources = files(folder, "rs");
    let paths = sources.iter().flat_map(|source| source.path.split('/').skip(2));
    paths.map(|name| name.trim_end_matches(".rs").to_owned()).collect()
}

#[test]
fn the_code_map_names_every_file_of_a_module() {
    let map = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let commands = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let mut missing = Vec::new();
    for module in entries(&root().join("src")) {
        let folder = root().join("src").join(&module);
        if !folder.is_dir() {
            continue;
        }
        let named = code_words(section(&map, &module));
        let is_command =
            |name: &str| module == "cli" && commands.contains(&format!("\n## acetate {name}\n"));
        let mut there = entries(&folder);
        if module == "inspect" {
            // Large, with a table of its own.
            there.extend(entries(&folder.join("apply")));
        }
        let unnamed = there.into_iter().filter(|name| !named.contains(name.as_str()));
        missing.extend(unnamed.filter(|n| !is_command(n)).map(|n| format!("{module}/{n}")));
    }
    assert!(missing.is_empty(), "not in the code map of docs/ARCHITECTURE.md: {missing:?}");
}

#[test]
fn the_code_map_names_no_file_that_does_not_exist() {
    let map = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let mut stale = Vec::new();
    for module in entries(&root().join("src")) {
        if !root().join("src").join(&module).is_dir() {
            continue;
        }
        let there = entries_below(&format!("src/{module}"));
        // The tables' columns of files; an apply's table has its steps in front of them.
        let rows = section(&map, &module).lines().filter(|line| line.starts_with('|'));
        let columns = rows.map(|row| row.split('|').nth(1 + usize::from(is_step(row))));
        let named = columns.flatten().flat_map(code_words);
        stale.extend(named.filter(|n| !there.contains(*n)).map(|n| format!("{module}/{n}")));
    }
    assert!(stale.is_empty(), "in the code map of docs/ARCHITECTURE.md, and no file: {stale:?}");
}

/// Whether a row of a table has the name of a step before the files.
fn is_step(row: &str) -> bool {
    row.split('|').count() == 5
}

/// What a cache is made of.
const CACHE_TYPES: [&str; 3] = ["LruCache<", "WeightedLru<", "Mutex<HashMap<FileId,"];

/// The files of caches in `sources` that `table` does not name.
fn caches_without_row(sources: &[Source], table: &str) -> Vec<String> {
    let named = code_words(table);
    let caches = sources.iter().filter(|source| {
        let mut code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.any(|line| CACHE_TYPES.iter().any(|cache| line.contains(cache)))
    });
    caches
        .map(|source| source.path.trim_start_matches("src/").trim_end_matches(".rs").to_owned())
        .filter(|path| path != "overlay/weighted_lru" && path != "growing_lru")
        .filter(|path| !named.contains(path.as_str()))
        .collect()
}

#[test]
fn the_table_of_caches_has_every_cache_and_its_bounds() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let limits = fs::read_to_string(root().join("docs/LIMITS.md")).unwrap();
    let start = text.find("\n## Caches\n").expect("a section about caches");
    let section = &text[start..];
    let rows = section[..section[1..].find("\n## ").unwrap()].lines();
    let rows: Vec<&str> = rows.filter(|line| line.starts_with("| `")).collect();
    assert_eq!(caches_without_row(&files("src", "rs"), &rows.join("\n")), Vec::<String>::new());
    for row in rows {
        let columns: Vec<&str> = row.split('|').collect();
        let file = code_words(columns[1]).into_iter().next().unwrap();
        assert!(root().join(format!("src/{file}.rs")).exists(), "no file: {file}");
        let bounds = code_words(columns[3]);
        assert!(!bounds.is_empty(), "no bound: {row}");
        for bound in bounds {
            assert!(limits.contains(&format!("| `{bound}` |")), "not in LIMITS.md: {bound}");
        }
    }
}

/// The files in `sources` with caches that allocate their whole tables at once.
fn caches_allocated_at_once(sources: &[Source]) -> Vec<&str> {
    let calls = ["LruCache::new(", "LruCache::with_hasher("];
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let makes_one = |source: &&Source| {
        source.text.lines().filter(is_code).any(|line| calls.iter().any(|call| line.contains(call)))
    };
    sources.iter().filter(makes_one).map(|source| source.path.as_str()).collect()
}

#[test]
fn the_tables_of_caches_grow_with_their_entries() {
    assert_eq!(caches_allocated_at_once(&files("src", "rs")), Vec::<&str>::new());
    let sources = [
        Source::new("src/nfs/read.rs", "let cache = LruCache::new(MAX);"),
        Source::new("src/nfs/write.rs", "let cache = growing_lru(MAX);"),
    ];
    assert_eq!(caches_allocated_at_once(&sources), ["src/nfs/read.rs"]);
}

#[test]
fn a_cache_without_a_row_is_found() {
    let source = Source::new("src/nfs/read.rs", "struct Memory(LruCache<u64, u64>);");
    let table = "| `nfs/other` | a call | `MAX` | always |";
    assert_eq!(caches_without_row(&[source], table), ["nfs/read"]);
}
