//! Statements that change a row of the tree have a conflict clause, such as `OR FAIL`.
//!
//! With `ABORT`, the default, SQLite copies each page before a statement with triggers changes it
//! (`src/delta/sqlite/table/old_rows.rs`). The update of an `ON CONFLICT DO UPDATE` is always run
//! so: these are of rows that few changes have. Statements whose table's name is put in (those of a
//! restore, which changes many rows in each) are not seen here.

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

fn without_clause(source: &Source) -> Vec<Complaint> {
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
fn changes_of_tree_tables_have_a_conflict_clause() {
    let complaints: Vec<_> = sources()
        .iter()
        .filter(|source| source.path.starts_with("src/delta/sqlite/table/"))
        .flat_map(without_clause)
        .collect();
    settle(Rule::TreeStatement, &complaints);
}

#[test]
fn a_missing_conflict_clause_is_seen() {
    for (text, count) in [
        ("\"INSERT INTO fs_data (ino) VALUES (?1)\"", 1),
        ("\"INSERT OR FAIL INTO fs_data (ino) VALUES (?1)\"", 0),
        ("\"UPDATE main.fs_inode SET mode = 1\"", 1),
        ("\"UPDATE OR IGNORE fs_inode SET mode = 1\"", 0),
        ("\"INSERT INTO fs_data_old VALUES (1); INSERT INTO acetate_op VALUES (1)\"", 0),
    ] {
        let found = without_clause(&Source::new("src/delta/sqlite/table/x.rs", text));
        assert_eq!(found.len(), count, "{text}");
    }
}

#[test]
fn the_tables_are_those_that_are_saved() {
    let all = sources();
    let saved = all.iter().find(|source| source.path.ends_with("table/old_rows.rs"));
    let text = &saved.expect("table/old_rows.rs").text;
    for table in TREE_TABLES {
        assert!(text.contains(&format!("\"{table}\"")), "{table}");
    }
    assert!(text.contains(&format!("TREE_TABLES: [TreeTable; {}]", TREE_TABLES.len())));
}
