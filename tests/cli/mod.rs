//! The real program: what it prints, and how it ends.

mod apply;
mod change;
mod check;
mod compact;
mod config;
mod ctx;
mod cycles;
mod errors;
mod export;
mod exports;
mod exports_quota;
mod help;
mod inspect;
mod kv;
mod log;
mod migrate;
mod mount_point;
mod mounting;
mod pretended;
mod program;
mod quota;
mod reference;
mod run;
#[cfg(target_os = "linux")]
mod sandbox;
mod seal;
mod serve;
mod snapshot;
mod status;
mod tool;
mod tool_run;
mod unmounting;
mod writing;
