//! `acetate mcp`, by JSON-RPC over the pipes of the real program.

mod client;
mod history;
mod limits;
mod protocol;
mod tools;
mod two;
