//! Guards without a server: validators, patterns, drafts.

mod desk;
mod desk_time;
mod draft;
mod program;
mod rules;
mod tree;
mod validators;
