//! What the tests of several layers share.

pub mod applied;
pub mod check;
pub mod client;
pub mod counted;
pub mod exported;
pub mod faulty_store;
pub mod fixture;
pub mod git;
pub mod given_up;
pub mod hanging_base;
pub mod hex;
pub mod hooked_base;
pub mod host_tree;
pub mod merged;
pub mod nlm;
pub mod patched;
pub mod predicted;
pub mod random;
pub mod scripted_vfs;
pub mod served;
pub mod skip;
pub mod spec_reader;
pub mod spec_versions;
pub mod tree;
pub mod validators;
pub mod world;
