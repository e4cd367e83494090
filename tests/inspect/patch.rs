//! Patches, as git takes them.

use acetate::vfs::NewNode;

use crate::support::client::mode;
use crate::support::patched;
use crate::support::tree::read_tree;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
    dir/other "without an end"
    dir/sub/deep "deep\n"
    dir/sub/deeper "deeper\n"
    gone/a "a"
    gone/b "b"
    link -> dir/file
"#;

/// The patch, once git has made the merged tree of it.
#[track_caller]
fn patch(world: &World) -> String {
    patched::assert_applies(&world.session(), &world.base(), &read_tree(world));
    patched::assert_taken_back(&world.session(), &world.base());
    String::from_utf8_lossy(&patched::text(&world.session(), &world.base()).0).into_owned()
}

#[test]
fn nothing_is_an_empty_patch() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"o").unwrap();
    world.mkdir("empty directory").unwrap();
    assert_eq!(patch(&world), "");
}

#[test]
fn a_line_in_the_middle() {
    let world = World::new(TREE);
    let content = world.cat("dir/file").replace("five", "FIVE");
    world.put("dir/file", &content);
    let text = patch(&world);
    let (head, hunk) = text.split_once("@@ ").unwrap();
    assert!(head.starts_with("diff --git a/dir/file b/dir/file\nindex "), "{text}");
    assert!(head.ends_with(" 100644\n--- a/dir/file\n+++ b/dir/file\n"), "{text}");
    assert_eq!(hunk, "-2,7 +2,7 @@ one\n two\n three\n four\n-five\n+FIVE\n six\n seven\n eight\n");
}

#[test]
fn files_come_go_and_change_their_ends() {
    let world = World::new(TREE);
    world.put("new", "line\nwithout an end");
    world.create("empty", acetate::vfs::CreateHow::Guarded(mode(0o644))).unwrap();
    world.remove("dir/other").unwrap();
    world.rm_rf("gone");
    world.truncate("dir/sub/deeper", 0).unwrap();
    world.put("spaced name", "spaces");
    world.put("dir/sub/deep", "deep");
    let text = patch(&world);
    assert!(text.contains("\\ No newline at end of file\n"), "{text}");
    assert!(text.contains("+++ b/spaced name\t\n"), "{text}");
}

#[test]
fn text_need_not_be_utf8_and_only_newlines_end_lines() {
    let world = World::new(TREE);
    world.put("dir/other", "");
    world.write("dir/other", 0, b"caf\xe9\rold\n\xff").unwrap();
    world.write("dir/sub/deep", 2, b"\r\xe9").unwrap();
    let (text, _) = patched::text(&world.session(), &world.base());
    assert!(text.windows(5).any(|bytes| bytes == b"+caf\xe9"), "{}", text.escape_ascii());
    patch(&world);
}

#[test]
fn binary_contents() {
    let world = World::new(TREE);
    let binary: Vec<u8> = (0..5000u32).map(|n| (n * n % 251) as u8).collect();
    world.put("binary", "");
    world.write("binary", 0, &binary).unwrap();
    world.write("dir/other", 3, b"\0\0").unwrap();
    assert!(patch(&world).contains("GIT binary patch\nliteral 5000\n"));
}

#[test]
fn modes_and_links() {
    let world = World::new(TREE);
    world.chmod("dir/file", 0o755).unwrap();
    world.symlink("elsewhere", "new-link").unwrap();
    world.remove("link").unwrap();
    world.put("link", "a file now");
    world.remove("dir/other").unwrap();
    world.symlink("a link now", "dir/other").unwrap();
    let text = patch(&world);
    assert!(text.contains("old mode 100644\nnew mode 100755\n"), "{text}");
}

#[test]
fn renames() {
    let world = World::new(TREE);
    world.rename("dir/file", "moved").unwrap();
    world.rename("dir/sub", "sub").unwrap();
    world.write("sub/deeper", 0, b"D").unwrap();
    let text = patch(&world);
    assert!(text.contains("similarity index 100%\nrename from dir/file\nrename to moved\n"));
    assert!(text.contains("rename from dir/sub/deep\nrename to sub/deep\n"), "{text}");
    assert!(text.contains("rename from dir/sub/deeper\nrename to sub/deeper\nindex"), "{text}");
}

#[test]
fn names_that_are_exchanged() {
    let world = World::new(TREE);
    world.rename("gone/a", "gone/c").unwrap();
    world.rename("gone/b", "gone/a").unwrap();
    world.rename("gone/c", "gone/b").unwrap();
    world.rename("dir/file", "dir/other").unwrap();
    patch(&world);
    world.rename("dir/sub", "dir/file").unwrap();
    patch(&world);
}

#[test]
fn names_that_want_quotes() {
    let world = World::new(TREE);
    world.put("gr\u{fc}n", "green");
    world.put("quo\"te\\s\n\t", "x");
    world.create(b"\xff\xfe", acetate::vfs::CreateHow::Guarded(mode(0o644))).unwrap();
    world.rename("gone/a", "sp\u{e4}ced name").unwrap();
    let text = patch(&world);
    assert!(text.contains(r#""b/gr\303\274n""#), "{text}");
}

#[test]
fn special_files_are_counted() {
    let world = World::new(TREE);
    world.make("fifo", NewNode::Fifo, mode(0o600)).unwrap();
    world.put("new", "new");
    patch(&world);
    assert_eq!(patched::text(&world.session(), &world.base()).1.special, 1);
}

#[test]
fn a_directory_with_files_is_not_empty_whatever_name_comes_next() {
    let world = World::new(TREE);
    for dir in ["p", "p/q", "p.r", "p.r/none", "p-"] {
        world.mkdir(dir).unwrap();
    }
    world.put("p/q/file", "file");
    world.put("p.r/file", "file");
    world.rm_rf("gone");
    patch(&world);
    // `/p-` and `/p.r/none`.
    assert_eq!(patched::text(&world.session(), &world.base()).1.empty_dirs, 2);
}
