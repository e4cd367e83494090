//! What the tests of several layers share.
#![allow(dead_code)]

pub mod check;
pub mod faulty_store;
pub mod hex;
pub mod scripted_vfs;
