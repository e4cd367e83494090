//! The `acetate` program: see [`acetate::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    acetate::cli::run()
}
