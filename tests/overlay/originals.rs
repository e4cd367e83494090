//! What the base had is kept from the session's first change of it on.

use std::fs;

use acetate::delta::MergedPath;
use acetate::overlay::{BlobDigest, CopyLimits};

use crate::support::client::size;
use crate::support::world::{Setup, World};

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/link -> file
    dir/gone "gone"
    dir/moved "moved"
"#;

/// The base paths of which an original is kept, each with its content where that is kept.
fn kept(world: &World) -> Vec<String> {
    world.sql_list(
        "SELECT concat(CAST(base_path AS TEXT), ' ', ifnull(CAST(content AS TEXT), '-'))
         FROM acetate_original ORDER BY base_path",
    )
}

fn discard(world: &World, path: &str) {
    let paths = vec![MergedPath::from_user(path.as_bytes()).unwrap()];
    world.wait(world.overlay.discard(&world.caller, paths)).unwrap();
}

#[test]
fn the_first_change_keeps_what_the_base_has() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"C").unwrap();
    world.write("dir/file", 1, b"O").unwrap();
    world.setattr("dir/other", size(0)).unwrap();
    world.rename("dir/moved", "dir/there").unwrap();
    world.chmod("dir/link", 0o700).unwrap();
    let all = ["dir/file content", "dir/link file", "dir/moved moved", "dir/other other"];
    assert_eq!(kept(&world), all);
    world.reopen();
    assert_eq!(kept(&world), all);
    let digest: Vec<u8> = world
        .sql_value("SELECT digest FROM acetate_original WHERE base_path = x'6469722f66696c65'");
    assert_eq!(digest, BlobDigest::of(b"content"));
    assert_eq!(world.cat("dir/file"), "COntent");
    assert_eq!(world.cat("dir/other"), "");
}

#[test]
fn what_a_new_object_takes_the_place_of_is_kept() {
    let mut world = World::new(TREE);
    world.remove("dir/gone").unwrap();
    assert_eq!(kept(&world), [""; 0], "a removal alone keeps nothing");
    world.put("dir/gone", "mine");
    world.put("dir/new", "mine too");
    world.rename("dir/new", "dir/file").unwrap();
    assert_eq!(kept(&world), ["dir/file content", "dir/gone gone"]);
    // A later change of the base is not what the client saw.
    fs::write(world.change_base().join("dir/other"), "theirs").unwrap();
    world.tick(-1_000_000_000);
    world.remove("dir/other").unwrap();
    world.put("dir/other", "mine");
    assert_eq!(kept(&world), ["dir/file content", "dir/gone gone"]);
}

/// The background reads what was removed; what shows again or changed first has no original.
#[test]
fn what_was_removed_is_kept_by_its_digest() {
    let mut world = World::new(TREE);
    fs::write(world.change_base().join("dir/large"), vec![b'x'; (1 << 20) + 1]).unwrap();
    fs::create_dir(world.change_base().join("empty")).unwrap();
    for gone in ["dir/gone", "dir/link", "dir/file", "dir/other", "dir/large"] {
        world.remove(gone).unwrap();
    }
    world.rmdir("empty").unwrap();
    discard(&world, "dir/file");
    fs::write(world.change_base().join("dir/other"), "theirs").unwrap();
    world.keep_removed();
    assert_eq!(kept(&world), ["dir/gone -", "dir/large -", "dir/link -", "empty -"]);
    let digests = "SELECT hex(digest) FROM acetate_original WHERE digest NOT NULL ORDER BY 1";
    let hex = |content: &[u8]| {
        BlobDigest::of(content).iter().map(|byte| format!("{byte:02X}")).collect::<String>()
    };
    let mut wanted = [hex(b"gone"), hex(b"file")];
    wanted.sort();
    assert_eq!(world.sql_list(digests), wanted);
    // What takes its place keeps the content, if the base still has it, whatever its times.
    let touched = fs::File::options().write(true).open(world.base().join("dir/gone")).unwrap();
    touched.set_modified(std::time::SystemTime::now()).unwrap();
    world.put("dir/gone", "mine");
    assert_eq!(kept(&world)[0], "dir/gone gone");
    discard(&world, "");
    assert_eq!(kept(&world), [""; 0]);
}

#[test]
fn the_original_of_a_file_stays_when_the_file_is_replaced_later() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    fs::write(world.change_base().join("dir/file"), "theirs").unwrap();
    world.put("dir/new", "new");
    world.rename("dir/new", "dir/file").unwrap();
    assert_eq!(kept(&world), ["dir/file content"]);
}

#[test]
fn what_is_given_up_has_no_original() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    world.write("dir/other", 0, b"mine").unwrap();
    world.rename("dir/moved", "dir/there").unwrap();
    discard(&world, "dir/file");
    discard(&world, "dir/there");
    assert_eq!(kept(&world), ["dir/other other"]);
    fs::write(world.change_base().join("dir/file"), "theirs").unwrap();
    world.write("dir/file", 0, b"M").unwrap();
    assert_eq!(kept(&world), ["dir/file theirs", "dir/other other"]);
    discard(&world, "");
    assert_eq!(kept(&world), [""; 0]);
}

#[test]
fn a_file_over_the_limit_and_what_does_not_fit_have_no_content() {
    let copy_up = CopyLimits { original_bytes: 8, originals_bytes: 12, ..CopyLimits::default() };
    let base = Some("a \"12345678\"\nb \"123456789\"\nc \"1234\"\nd \"12\"\n".to_owned());
    let world = World::with(Setup { base, copy_up, ..Setup::default() });
    for file in ["a", "b", "c", "d"] {
        world.write(file, 0, b"x").unwrap();
    }
    assert_eq!(kept(&world), ["a 12345678", "b -", "c 1234", "d -"]);
    discard(&world, "c");
    discard(&world, "d");
    world.write("d", 0, b"x").unwrap();
    assert_eq!(kept(&world), ["a 12345678", "b -", "d 12"]);
    // Its digest is known all the same: it was read.
    let digests = "SELECT count(digest) FROM acetate_original";
    assert_eq!(world.sql_value::<i64>(digests), 2);
}
