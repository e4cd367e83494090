//! Guards without a server: validators, patterns, drafts.

#[cfg(target_os = "linux")]
mod children;
mod desk;
mod desk_time;
mod draft;
mod program;
mod recursion;
mod rules;
mod shares;
mod tree;
mod validators;
