//! What the tests of several layers share.

pub mod check;
pub mod faulty_store;
pub mod hex;
pub mod scripted_vfs;
