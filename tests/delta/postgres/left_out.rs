//! The list of tests that run over their file alone.

use std::fs;
use std::path::Path;

use crate::support::database::left_out::LEFT_OUT;

#[test]
fn the_tests_that_are_left_out_exist_and_have_a_reason() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for (name, why) in LEFT_OUT {
        let (module, test) = name.rsplit_once("::").unwrap();
        let file = tests.join(format!("{}.rs", module.replace("::", "/")));
        let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(source.contains(&format!("fn {test}(")), "{name}");
        assert!(why.contains(' '), "{name}");
    }
}
