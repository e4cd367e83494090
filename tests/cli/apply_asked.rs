//! What `acetate apply` asks on a terminal, and what it has nothing to ask for.

use std::fs;

use super::picking::typed;
use super::program::{run, said};
use crate::support::world::World;

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// A session that changed `src/a` in one line. In the base, `src/a` has this now.
fn changed(a: &str) -> World {
    let text = LINES.escape_default().to_string();
    let mut world = World::new(&format!("src/a \"{text}\"\nb \"{text}\"\n"));
    world.put("src/a", &LINES.replace('2', "agent"));
    fs::write(world.change_base().join("src/a"), a).unwrap();
    world.close();
    world
}

fn base(world: &World) -> String {
    fs::read_to_string(world.base().join("src/a")).unwrap()
}

#[test]
fn the_question_says_what_happens_to_a_change_that_is_left_to_the_base() {
    let theirs = LINES.replace('2', "person");
    let world = changed(&theirs);
    let said = typed(&world, "n\n", "apply --take base src/a", None);
    assert!(said.contains("\ndrop 1 change from the session? [y/N]"), "{said}");
    assert!(said.ends_with("nothing was written\n"), "{said}");
    let said = typed(&world, "a\nn\n", "apply -p --take base src/a", None);
    assert!(said.contains("\ndrop 1 change from the session? [y/N]"), "{said}");
    let said = typed(&world, "y\n", "apply --take base src/a", None);
    assert!(said.contains("1 object stays as the base has it"), "{said}");
    assert!(!said.contains("applied"), "{said}");
    assert_eq!(base(&world), theirs);
    let session = world.session();
    self::said(&run(world.scratch(), &["diff", session.to_str().unwrap()]), 0);
}

#[test]
fn the_question_names_both_where_the_rest_is_applied() {
    let mut world = changed(&LINES.replace('2', "person"));
    world.open_again();
    world.put("b", "agent\n");
    world.close();
    let said = typed(&world, "y\n", "apply --take base src/a", None);
    let asked = format!(
        "apply this change to {}, and drop 1 change from the session? [y/N]",
        world.base().display()
    );
    assert!(said.contains(&asked), "{said}");
    assert_eq!(fs::read_to_string(world.base().join("b")).unwrap(), "agent\n");
}

#[test]
fn nothing_is_asked_where_all_is_left_out() {
    let theirs = LINES.replace('2', "person");
    let world = changed(&theirs);
    for (answers, args) in [("", "apply --skip-drifted"), ("a\n", "apply -p --skip-drifted")] {
        let said = typed(&world, answers, args, None);
        assert!(said.ends_with("\nnothing is left to apply\n"), "{said}");
        assert!(!said.contains("[y/N]"), "{said}");
    }
    assert_eq!(base(&world), theirs);
}

#[test]
fn what_the_base_has_already_is_not_offered_and_said_so() {
    let world = changed(&LINES.replace('2', "agent").replace('8', "person"));
    let line = "= /src/a: the base has this change already\n";
    let said = typed(&world, "", "apply -p", None);
    assert_eq!(said, format!("{line}nothing was chosen\n"));
    let editor = world.scratch().join("editor.sh");
    fs::write(&editor, "echo it was edited >&2\n").unwrap();
    let said = typed(&world, "", "apply -i", Some(&editor));
    assert_eq!(said, format!("{line}nothing was chosen\n"));
    let session = world.session();
    let args = ["diff", session.to_str().unwrap(), "--json", "--hunks"];
    let hunks = self::said(&run(world.scratch(), &args), 1).0;
    let hunk: serde_json::Value = serde_json::from_str(hunks.lines().next().unwrap()).unwrap();
    let id = hunk["id"].as_str().unwrap();
    let args = ["apply", session.to_str().unwrap(), "--hunk", id, "--yes"];
    let (_, err) = self::said(&run(world.scratch(), &args), 2);
    let told =
        format!("error: {id}: the base has this change of /src/a already\nhint: `acetate apply`");
    assert!(err.starts_with(&told), "{err}");
}
