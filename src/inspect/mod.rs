//! Tools for sessions that are not served: they return data, and never print.
//!
//! One file per tool; what a user sees of it is the business of the subcommand of the same name.

pub mod compact;
