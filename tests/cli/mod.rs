//! The real program: what it prints, and how it ends.

mod errors;
mod help;
mod program;
mod serve;
