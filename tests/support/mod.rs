//! What the tests of several layers share.

pub mod hex;
pub mod scripted_vfs;
