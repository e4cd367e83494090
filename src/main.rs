//! The `acetate` program: see [`acetate::cli`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    acetate::cli::run()
}
