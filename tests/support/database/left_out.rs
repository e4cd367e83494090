//! The tests that run over their file alone, though a database is named.

use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::sync::Mutex;

/// The tests, and why they make no sense over a database.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("delta::adopt::a_foreign_session_is_adopted", FOREIGN),
    ("delta::adopt::a_foreign_session_may_live_in_its_log", FOREIGN),
    ("delta::durability::a_lost_sync_moves_the_epoch_for_good", EPOCH),
    ("delta::durability::a_sync_writes_only_if_something_is_unsynced", SYNCS),
    ("delta::durability::the_epoch_moves_only_when_a_machine_dies", EPOCH),
    ("delta::durability::what_a_sync_has_to_write_is_known", SYNCS),
    ("delta::memory::content_ends_before_the_bound_and_goes_on_when_some_is_removed", MEMORY),
    ("delta::memory::the_write_ahead_log_counts", MEMORY),
    ("delta::memory::there_is_no_audit_log", MEMORY),
    ("delta::memory::whiteouts_end_there_too", MEMORY),
    ("delta::rows::a_base_is_recorded_at_any_time", EARLY),
    ("delta::rows::content_that_another_program_left_without_an_inode_is_nobodys", FOREIGN),
    ("delta::wal::a_change_adds_few_pages", "each batch also changes the page with its mark"),
    ("delta::wal::a_log_that_was_long_is_cut_once_nothing_large_comes", SYNCS),
    ("delta::wal::what_a_new_log_holds_is_not_taken_for_synced", SYNCS),
    ("overlay::pending::a_round_of_turns_copies_all_and_is_synced", SYNCS),
];

const EARLY: &str =
    "it changes the session before it is served; tests/delta/postgres has this case";
const EPOCH: &str = "the epoch is the lease's, and no commit is lost with the machine";
const FOREIGN: &str = "the database takes no value of another type than its column's";
const MEMORY: &str = "a session in memory is in no database";
const SYNCS: &str = "the replica is not synced: the database has what was answered";

/// Whether the running test is one of them. Says so once, past the harness, which captures what a
/// test prints; `integration/database/run` counts these lines.
pub fn is_left_out() -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let current = std::thread::current();
    let name = current.name().unwrap_or_default();
    assert_ne!(name, "main", "tests have no names with --test-threads=1");
    let Some((_, why)) = LEFT_OUT.iter().find(|(test, _)| *test == name) else { return false };
    if SAID.lock().unwrap().insert(name.to_owned()) {
        let line = format!("LEFT OUT {name}: {why}\n");
        stderr().write_all(line.as_bytes()).expect("stderr takes a line");
    }
    true
}
