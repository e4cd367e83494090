//! The overlay over a real session and a real host directory, through the `Vfs` trait.

mod absent;
mod automatic;
mod bounds;
mod broken_base;
mod bulk;
mod checkpoint_space;
mod content;
mod copy_up;
mod creation;
mod data;
mod discard;
mod discard_links;
mod discard_lost;
mod drift;
mod faults;
mod foreign;
mod full_disk;
mod guarded;
mod hard_links;
mod identity;
mod killed;
mod listing;
mod lost_dirs;
mod model;
mod not_a_directory;
mod opaque;
mod originals;
mod pending;
mod permissions;
mod quota;
mod races;
mod rebase;
mod rename_base;
mod rename_born;
mod rename_rules;
mod saved_first;
mod session;
mod times;
mod untouched;
mod whiteouts;

use acetate::inspect::maintenance::snapshot;
use acetate::inspect::seal::seal;

use crate::support::spec_reader;
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

/// Asserts that a reader which knows only the specification sees the tree that we show.
#[track_caller]
fn assert_spec_reader_agrees(world: &World) {
    let redirects: i64 = world.sql_value("SELECT count(*) FROM acetate_redirect");
    assert_eq!(redirects, 0, "the specification knows no redirects");
    let theirs = match world.sql_value::<i64>("SELECT count(*) FROM acetate_opaque") {
        0 => spec_reader::read_tree(&world.session(), &world.base()),
        // It knows opaque directories from when the session is sealed.
        _ => {
            let dir = tempfile::tempdir().unwrap();
            let copy = dir.path().join("copy.db");
            snapshot(&world.session(), &copy, &mut |_, _| ()).unwrap();
            seal(&copy, Some(&world.base()), false, &mut |_, _| ()).unwrap();
            spec_reader::read_tree(&copy, &world.base())
        }
    };
    assert_same(&theirs, &read_tree(world), "as the specification reads it");
}

/// The paths of the whole tree, one a line.
#[track_caller]
fn paths(world: &World) -> Vec<String> {
    read_tree(world).keys().map(|path| path.escape_ascii().to_string()).collect()
}
