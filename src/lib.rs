//! acetate: a copy-on-write directory for agents, served over NFSv3.

pub mod base;
pub mod cli;
pub mod delta;
pub mod nfs;
pub mod overlay;
pub mod server;
pub mod vfs;
pub mod wire;
pub mod worker;
