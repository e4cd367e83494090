//! No statement of the SQLite store changes a row of a session that the update hook does not see.
//!
//! SQLite reports no row of a `DELETE` without `WHERE`, and none that `REPLACE` deletes: only where
//! the row id is the key, the new row has the same one. It reports no incremental write of a BLOB.

use std::fs;
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::session_tables;
use regex::{Regex, RegexBuilder};

use crate::delta::Place;

/// Files that never work on the connection of a served session, and why.
const OTHERS: &[(&str, &str)] = &[
    ("tools/fork.rs", "fills a new file"),
    ("tools/migrate/", "rewrites a session that no server has; a replica is made again"),
    ("tools/repair/", "mends a session that no server has"),
    ("tools/instances.rs", "the registry of exports, which is no session"),
    ("tools/instance_removals.rs", "the registry of exports, which is no session"),
];

fn regex(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).case_insensitive(true).build().unwrap()
}

/// What `source` does that the hook does not see.
fn unseen(source: &str) -> Vec<String> {
    // Literals may span lines.
    let text = source.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\ ", "");
    let mut found = Vec::new();
    let delete = regex(r#"DELETE FROM ([\w.{}]+)([^";]*)"#);
    for delete in delete.captures_iter(&text) {
        let is_temporary = delete[1].starts_with("temp.");
        if !is_temporary && !regex(r"\bWHERE\b").is_match(&delete[2]) {
            found.push(delete[0].to_owned());
        }
    }
    let replace = regex(r"\b(?:INSERT OR REPLACE|REPLACE) INTO ([\w.{}]+)");
    for replace in replace.captures_iter(&text) {
        let table = replace[1].trim_start_matches("main.");
        let has_key =
            |name: &str| session_tables().iter().any(|it| it.name == name && it.key.is_some());
        if !has_key(table) && !table.starts_with("temp.") {
            found.push(replace[0].to_owned());
        }
    }
    let other = regex(r"UPDATE OR REPLACE|ON CONFLICT REPLACE|TRUNCATE TABLE");
    found.extend(other.find_iter(&text).map(|it| it.as_str().to_owned()));
    if text.contains("blob_open(") && !text.contains(".add(") {
        found.push("blob_open".to_owned());
    }
    found
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, into),
            false => into.push(path),
        }
    }
}

#[test]
fn every_change_of_the_store_is_seen() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/delta/sqlite");
    let mut files = Vec::new();
    sources(&store, &mut files);
    assert!(files.len() > 50);
    let mut complaints = Vec::new();
    for file in files {
        let name = file.strip_prefix(&store).unwrap().to_str().unwrap().to_owned();
        if !OTHERS.iter().any(|(other, _)| name.starts_with(other)) {
            let found = unseen(&fs::read_to_string(&file).unwrap());
            complaints.extend(found.into_iter().map(|what| format!("{name}: {what}")));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn what_is_not_seen_is_found_in_sources() {
    for bad in [
        r#"conn.execute("DELETE FROM fs_data", [])"#,
        r#"conn.execute_batch("DELETE FROM fs_origin; DELETE FROM fs_data WHERE 1")"#,
        "\"DELETE FROM main.{name}\"",
        "\"INSERT OR REPLACE INTO fs_config (key, value) VALUES (?1, ?2)\"",
        "\"REPLACE INTO main.acetate_meta (key, value) VALUES (?1, ?2)\"",
        "\"INSERT OR REPLACE INTO {table} VALUES (?1)\"",
        "\"UPDATE OR REPLACE fs_dentry SET name = ?1\"",
        "conn.blob_open(MAIN_DB, table, column, row, false)",
    ] {
        assert!(!unseen(bad).is_empty(), "{bad}");
    }
    let good = "\"DELETE FROM fs_data \\\n   WHERE ino = ?1\" \"DELETE FROM temp.a\"
        \"INSERT OR REPLACE INTO fs_symlink (ino, target) VALUES (?1, ?2)\"";
    assert_eq!(unseen(good), [""; 0]);
}

/// The row that `REPLACE` deletes has the id of the new one, as long as no other column is unique.
#[test]
fn tables_with_a_row_id_are_unique_by_it_alone() {
    let place = Place::new();
    drop(place.create());
    let replaced = ["fs_symlink", "fs_origin"];
    for table in replaced {
        let unique = format!("SELECT count(*) FROM pragma_index_list('{table}') WHERE \"unique\"");
        assert_eq!(place.number(&unique), 0, "{table}");
    }
}
