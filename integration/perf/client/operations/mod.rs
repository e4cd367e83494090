//! What is measured, in the order in which every server goes through it.
//!
//! The report knows the operations by these names.

mod change;
mod large;
mod look;

use super::load::Bench;
use super::measure::Measured;
use super::rpc::Result;

/// One row of the table.
pub struct Operation {
    /// Its name in the results.
    pub name: &'static str,
    /// Warms up and measures.
    pub run: fn(&mut Bench) -> Result<Measured>,
}

const fn operation(name: &'static str, run: fn(&mut Bench) -> Result<Measured>) -> Operation {
    Operation { name, run }
}

/// First what changes nothing, then what needs what the operations before it have made.
pub const ALL: &[Operation] = &[
    operation("null", look::null),
    operation("getattr", look::getattr),
    operation("lookup", look::lookup),
    operation("lookup-absent", look::lookup_absent),
    operation("lookup-read", look::lookup_and_read),
    operation("read-large-base", large::read_base),
    operation("readdirplus", look::readdirplus),
    operation("create-write-commit", change::create_write_commit),
    operation("setattr", change::setattr),
    operation("rename", change::rename),
    operation("mkdir", change::mkdir),
    operation("remove-delta", change::remove_delta),
    operation("remove-base", change::remove_base),
    operation("write-large", large::write),
    operation("read-large-delta", large::read_delta),
    operation("write-file-sync", large::write_file_sync),
    operation("copy-up", change::copy_up),
];
