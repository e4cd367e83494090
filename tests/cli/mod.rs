//! The real program: what it prints, and how it ends.

mod check;
mod compact;
mod errors;
mod help;
mod inspect;
mod log;
mod program;
mod reference;
mod serve;
mod snapshot;
mod status;
