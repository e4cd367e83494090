//! The example in docs/EXPORTS.md is what it says.

use std::fs;
use std::path::Path;

use acetate::config::{self, Missing, SquashMode, StoreConfig};

use super::Folder;

#[test]
fn the_example_of_the_reference_is_right() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/EXPORTS.md");
    let document = fs::read_to_string(document).unwrap();
    let example = document.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = Folder::new(example);
    let exports = folder.read(Missing::Make).unwrap().exports;
    let [abc, xyz] = &exports[..] else { panic!("{exports:?}") };
    let at: Vec<_> = abc.mounts.iter().map(|mount| mount.at.as_str()).collect();
    assert_eq!(at, ["/", "/.user", "/.agent", "/skills/onboarding"]);
    assert_eq!(abc.mounts[3].store, StoreConfig::Memory);
    assert_eq!((abc.quota.bytes, abc.guards.len()), (Some(2 << 30), 1));
    assert!(abc.guards[0].path.matches(b".agent/fragments.jsonl"));
    assert!(xyz.path.clone().unwrap().as_str().starts_with("/chat-xyz-"));
    assert_eq!((xyz.options.squash, xyz.options.anon_uid), (SquashMode::All, 1000));
    assert_eq!(xyz.mounts[1].session(), abc.mounts[1].session());
}

#[test]
fn the_example_of_a_template_is_right() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/EXPORTS.md");
    let document = fs::read_to_string(document).unwrap();
    let example = document.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let folder = Folder::new(example);
    let config = folder.read(Missing::Make).unwrap();
    let mounted = config.templates[0].mounted_path("/chat/u1/c1234567").unwrap();
    assert_eq!(mounted.len(), "/chat/u1/c1234567/".len() + 32);
    let export = config.templates[0].instance(mounted.as_bytes()).unwrap();
    assert!(export.mounts[0].session().unwrap().ends_with("chats/u1/c1234567.db"));
    assert_eq!(config.idle_close.as_secs(), 300);
    assert_eq!(config.ephemeral_expire.as_secs(), 24 * 3600);
    assert_eq!(config.templates[0].expire.map(|expire| expire.as_secs()), Some(30 * 86_400));
}

#[test]
fn the_exports_file_of_the_package_is_right() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/exports.toml");
    let exports = config::read(&file, Missing::Leave).unwrap().exports;
    let [scratch] = &exports[..] else { panic!("{exports:?}") };
    assert_eq!(scratch.path.clone().unwrap().as_str(), "/scratch");
    // Only clients on this machine, and of them only root.
    assert!(!scratch.clients.are_beyond_loopback() && scratch.options.is_secure);
    let session = scratch.mounts[0].session().unwrap();
    assert_eq!(session, Path::new("/var/lib/acetate/scratch.db"));
    // The example in its comments is right too.
    let text = fs::read_to_string(&file).unwrap();
    let (served, example) = text.split_once("# [[export]]").unwrap();
    let example = example.replace("\n#", "\n");
    let folder = Folder::new(&format!("{served}[[export]]{example}"));
    assert_eq!(folder.read(Missing::Leave).unwrap().exports.len(), 2);
}
