//! Statements that change a row of the tree say `OR FAIL`, or another word.
//!
//! Without one SQLite must be able to abort each of them alone, and copies every page that one with
//! triggers changes (`src/delta/sqlite/table/old_rows.rs`).

use super::{Complaint, Rule, Source, settle, sources};

/// The tables whose rows make up the tree.
const TREE_TABLES: &[&str] = &[
    "fs_inode",
    "fs_origin",
    "fs_dentry",
    "fs_data",
    "fs_symlink",
    "fs_whiteout",
    "acetate_inode",
    "acetate_copy_up",
    "acetate_origin",
    "acetate_redirect",
    "acetate_opaque",
    "acetate_link",
    "acetate_original",
];

fn without_word(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for change in ["INSERT INTO ", "UPDATE "] {
            let starts = line.match_indices(change).map(|(at, _)| &line[at + change.len()..]);
            for rest in starts.map(|rest| rest.strip_prefix("main.").unwrap_or(rest)) {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                if name.is_some_and(|name| TREE_TABLES.contains(&name)) {
                    complaints.push(Complaint {
                        rule: Rule::TreeStatement,
                        path: source.path.clone(),
                        line: number + 1,
                        what: format!("`{change}` without `OR FAIL`"),
                    });
                }
            }
        }
    }
    complaints
}

#[test]
fn changes_of_the_tree_say_what_a_failure_leaves() {
    let complaints: Vec<_> = sources()
        .iter()
        .filter(|source| source.path.starts_with("src/delta/sqlite/table/"))
        .flat_map(without_word)
        .collect();
    settle(Rule::TreeStatement, &complaints);
}

#[test]
fn a_change_without_a_word_is_seen() {
    for (text, count) in [
        ("\"INSERT INTO fs_data (ino) VALUES (?1)\"", 1),
        ("\"INSERT OR FAIL INTO fs_data (ino) VALUES (?1)\"", 0),
        ("\"UPDATE main.fs_inode SET mode = 1\"", 1),
        ("\"UPDATE OR IGNORE fs_inode SET mode = 1\"", 0),
        ("\"INSERT INTO fs_data_old VALUES (1); INSERT INTO acetate_op VALUES (1)\"", 0),
    ] {
        let found = without_word(&Source::new("src/delta/sqlite/table/x.rs", text));
        assert_eq!(found.len(), count, "{text}");
    }
}

#[test]
fn the_tables_are_those_that_are_saved() {
    let saved = sources().into_iter().find(|s| s.path.ends_with("table/old_rows.rs")).expect("it");
    for table in TREE_TABLES {
        assert!(saved.text.contains(&format!("\"{table}\"")), "{table}");
    }
}
