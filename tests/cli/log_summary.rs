//! `acetate log --summary`: what is folded.

use super::program::run;
use crate::support::world::World;

#[test]
fn a_summary_has_one_line_for_what_is_a_program_s_own() {
    let world = World::new("sub/.git/HEAD \"ref: refs/heads/main\\n\"\nfile \"content\"");
    world.put("sub/.git/index", "index");
    world.put("sub/.git/ORIG_HEAD", "x");
    world.put("sub/.gitignore", "target");
    let session = world.session();
    let says = |args: &[&str]| {
        let args = [&["log", session.to_str().unwrap(), "--summary"], args].concat();
        let output = run(world.scratch(), &args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let names = |args: &[&str]| {
        let said = says(args);
        said.lines().map(|line| line.splitn(3, "  ").nth(2).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let folded = names(&[]);
    assert_eq!(folded.len(), 2, "{folded:?}");
    assert!(folded[0].starts_with("/sub/.git/  2 paths of git's own: 2 WRITE, "), "{folded:?}");
    assert!(folded[0].ends_with(", 6 B written"), "{folded:?}");
    assert!(folded[1].starts_with("/sub/.gitignore  1 WRITE, "), "{folded:?}");
    let all = names(&["--all"]);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].starts_with("/sub/.git/ORIG_HEAD  1 WRITE, "), "{all:?}");
    assert_eq!(says(&["--json"]).lines().count(), 3);
}
