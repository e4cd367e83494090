//! Files that are much larger than what they store: one SETATTR of a client makes them.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::export::{Exported, Keep, OutputDir, export};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::patch::patch;
use acetate::vfs::{Device, NewNode, SetAttr};

use crate::support::client::size;
use crate::support::exported::{LeftOut, extract, options, tar_of};
use crate::support::world::World;

/// What a host's filesystem takes, and writing out would not end.
const LARGE: u64 = 1 << 40;

/// The largest size that a client can set, about.
const HUGE: u64 = 1 << 62;

/// A session with a small file, and these of about no content.
fn world(sizes: &[(&str, u64)]) -> World {
    let world = World::new("");
    world.put("small", "small");
    for (name, bytes) in sizes {
        world.put(*name, "begin");
        world.setattr(name, size(*bytes)).unwrap();
        world.write(name, bytes - 3, b"end").unwrap();
    }
    world
}

fn open(world: &World) -> OpenSession {
    OpenSession::open(&world.session(), Some(&world.base())).unwrap()
}

#[track_caller]
fn assert_large(file: &Path) {
    let meta = fs::metadata(file).unwrap();
    assert_eq!(meta.len(), LARGE);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    let (mut begin, mut end) = ([0; 6], [0; 4]);
    let open = File::open(file).unwrap();
    open.read_exact_at(&mut begin, 0).unwrap();
    open.read_exact_at(&mut end, LARGE - 4).unwrap();
    assert_eq!((&begin, &end), (b"begin\0", b"\0end"));
}

/// Whether the filesystem of `dir` takes a file of such a size.
fn takes(dir: &Path, bytes: u64) -> bool {
    let probe = dir.join("probe");
    let taken = File::create(&probe).unwrap().set_len(bytes).is_ok();
    fs::remove_file(&probe).unwrap();
    taken
}

#[test]
fn an_archive_has_their_data_and_not_their_holes() {
    let world = world(&[("large", LARGE)]);
    world.put("hole", "");
    world.setattr("hole", size(LARGE / 2)).unwrap();
    world.mkdir("d").unwrap();
    let long = format!("d/{}", "l".repeat(200));
    world.link("large", &long).unwrap();
    let (archive, left_out) = tar_of(&open(&world), &options("/", false)).unwrap();
    assert_eq!(left_out, [""; 0]);
    assert!(archive.len() < 1 << 20, "{} bytes", archive.len());
    let to = world.scratch().join("extracted");
    extract(&archive, &to);
    assert_large(&to.join("large"));
    assert_large(&to.join(&long));
    assert_eq!(fs::metadata(to.join("hole")).unwrap().len(), LARGE / 2);
    assert_eq!(fs::read_to_string(to.join("small")).unwrap(), "small");
}

#[test]
fn an_archive_has_the_largest_file_that_there_can_be() {
    let world = world(&[("huge", HUGE)]);
    let (archive, left_out) = tar_of(&open(&world), &options("/", false)).unwrap();
    assert!(left_out.is_empty() && archive.len() < 1 << 20, "{left_out:?}");
    let file = world.scratch().join("archive.tar");
    fs::write(&file, archive).unwrap();
    let listed = Command::new("tar").arg("-tvf").arg(&file).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with(" huge")).unwrap();
    assert!(line.contains(" 4611686018427387904 "), "{line}");
}

#[test]
fn a_layer_leaves_out_what_it_could_only_write_as_zeros() {
    let world = world(&[("large", LARGE), ("sparse", 4 << 20)]);
    let (archive, left_out) = tar_of(&open(&world), &options("/", true)).unwrap();
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].starts_with("/large: ") && left_out[0].contains("holes"), "{left_out:?}");
    let to = world.scratch().join("layer");
    extract(&archive, &to);
    assert!(!to.join("large").exists());
    assert_eq!(fs::metadata(to.join("sparse")).unwrap().len(), 4 << 20);
}

fn fill(world: &World, keep: Keep, name: &str) -> (Exported, Vec<String>, u64) {
    let to = world.scratch().join(name);
    let (left_out, mut done) = (LeftOut::default(), Exported::default());
    let mut dir = OutputDir::create(&to, keep).unwrap();
    export(&open(world), &options("/", false), &mut dir, &left_out, &mut done).unwrap();
    (done, left_out.0.into_inner(), dir.without_set_id())
}

#[test]
fn a_directory_gets_their_holes_and_what_its_filesystem_does_not_take_is_left_out() {
    let world = world(&[("large", LARGE), ("huge", HUGE)]);
    world.put("zz", "after it");
    let (_, left_out, _) = fill(&world, Keep::default(), "out");
    let to = world.scratch().join("out");
    assert_large(&to.join("large"));
    assert_eq!(fs::read_to_string(to.join("zz")).unwrap(), "after it");
    if takes(world.scratch(), HUGE) {
        assert_eq!(fs::metadata(to.join("huge")).unwrap().len(), HUGE);
    } else {
        assert_eq!(
            left_out,
            ["/huge: this filesystem cannot hold a file of 4611686018427387904 bytes"]
        );
        assert!(!to.join("huge").exists());
    }
}

#[test]
fn a_directory_gets_what_gives_rights_only_where_that_is_asked_for() {
    let world = world(&[]);
    world.chmod("small", 0o6755).unwrap();
    world.mkdir("shared").unwrap();
    world.chmod("shared", 0o2775).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let device = NewNode::Block(Device { major: 7, minor: 0 });
        world.make("disk", device, SetAttr::default()).unwrap();
    }
    let mode = |dir: &str, name: &str| {
        let at = world.scratch().join(dir).join(name);
        fs::metadata(at).unwrap().permissions().mode() & 0o7777
    };
    let (_, left_out, without) = fill(&world, Keep::default(), "plain");
    assert_eq!((mode("plain", "small"), without), (0o755, 1));
    assert_eq!(mode("plain", "shared") & 0o777, 0o775);
    if is_root {
        assert_eq!(left_out, ["/disk: a device (7, 0): not made by default"]);
        let all = Keep { set_id: true, devices: true };
        let (_, left_out, without) = fill(&world, all, "kept");
        assert_eq!((left_out, without), (Vec::new(), 0));
        assert_eq!(mode("kept", "small"), 0o6755);
        assert!(world.scratch().join("kept/disk").symlink_metadata().is_ok());
    }
}

#[test]
fn a_patch_names_them_and_has_the_rest() {
    let world = world(&[("huge", HUGE)]);
    let mut text = Vec::new();
    let options = DiffOptions::default();
    let left_out = patch(&open(&world), &options, &mut text).unwrap().unwrap();
    let too_large: Vec<_> =
        left_out.too_large.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(too_large, ["/huge"]);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("+small") && !text.contains("huge"), "{text}");
}

#[test]
fn files_are_compared_without_their_holes() {
    let mut world = World::new("");
    let file = File::create(world.change_base().join("large")).unwrap();
    file.set_len(LARGE).unwrap();
    file.write_all_at(b"x", LARGE / 2).unwrap();
    drop(file);
    world.chmod("large", 0o600).unwrap();
    let differs = |world: &World| {
        let mut all = Vec::new();
        let kept = diff(&open(world), &DiffOptions::default(), &mut |_, difference| {
            all.push((difference.differs.content, difference.differs.mode));
            Ok(ControlFlow::Continue(()))
        });
        kept.unwrap();
        all
    };
    assert_eq!(differs(&world), [(false, true)]);
    world.write("large", LARGE - 1, b"y").unwrap();
    assert_eq!(differs(&world), [(true, true)]);
}
