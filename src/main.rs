//! The `acetate` program: see [`acetate::cli`].

fn main() {}
