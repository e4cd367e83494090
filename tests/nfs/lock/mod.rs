//! The lock manager: the table of locks, and the program in bytes.

mod program;
mod ranges;
mod table;
