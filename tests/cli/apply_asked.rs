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
