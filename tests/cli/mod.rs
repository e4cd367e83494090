//! The real program: what it prints, and how it ends.

mod compact;
mod errors;
mod help;
mod program;
mod serve;
