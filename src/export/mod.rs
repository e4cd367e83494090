//! Exports: what is done to every call before it reaches a session.

mod credentials;

pub use credentials::{Admission, Refused, Squash};
