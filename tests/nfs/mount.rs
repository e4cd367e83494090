//! The MOUNT program, in bytes (RFC 1813 appendix I).

use std::sync::Arc;

use acetate::nfs::{CallError, MAX_REMEMBERED_MOUNTS, MountProgram};
use acetate::vfs::{Caller, Flavor, FsError, Locator};
use bytes::Bytes;

use super::{caller, codec, handle};
use crate::support::hex::{hex, hex_with, to_hex};
use crate::support::scripted_vfs::ScriptedVfs;

fn mount(vfs: ScriptedVfs) -> MountProgram<ScriptedVfs> {
    MountProgram::new(Arc::new(vfs), codec())
}

async fn from(
    mount: &MountProgram<ScriptedVfs>,
    client: &str,
    procedure: u32,
    args: &str,
) -> Result<String, CallError> {
    let caller = Caller { client: client.parse().unwrap(), ..caller() };
    let reply = mount.call(&caller, procedure, Bytes::from(hex(args))).await?;
    Ok(to_hex(&reply.into_bytes()))
}

async fn ask(mount: &MountProgram<ScriptedVfs>, procedure: u32, args: &str) -> String {
    from(mount, "192.0.2.1:700", procedure, args).await.unwrap()
}

fn root_reply() -> String {
    let text = "00000000 ROOT 00000002 00000001 00000000";
    to_hex(&hex_with(text, |_| handle(&Locator::ROOT)))
}

const ROOT_PATH: &str = "00000001 2f000000";

#[tokio::test]
async fn any_spelling_of_the_root_mounts() {
    let mount = mount(ScriptedVfs::default());
    assert_eq!(ask(&mount, 1, ROOT_PATH).await, root_reply());
    assert_eq!(ask(&mount, 1, "00000003 2f2f2f00").await, root_reply());
}

#[tokio::test]
async fn the_credentials_that_are_taken_are_listed() {
    for (flavors, listed) in [
        (vec![Flavor::Sys], "00000001 00000001"),
        (vec![Flavor::None], "00000001 00000000"),
        (vec![Flavor::Sys, Flavor::None], "00000002 00000001 00000000"),
    ] {
        let mount = mount(ScriptedVfs { flavors, ..ScriptedVfs::default() });
        let text = format!("00000000 ROOT {listed}");
        let expected = to_hex(&hex_with(&text, |_| handle(&Locator::ROOT)));
        assert_eq!(ask(&mount, 1, ROOT_PATH).await, expected);
    }
}

#[tokio::test]
async fn no_other_path_mounts() {
    let mount = mount(ScriptedVfs::default());
    let others = ["00000000", "00000001 61000000", "00000003 2f612f00", "00000003 2f2e2e00"];
    for path in others {
        assert_eq!(ask(&mount, 1, path).await, "00000002", "{path}");
    }
    let long = format!("00000404 {}", "2f2f2f2f".repeat(257));
    assert_eq!(ask(&mount, 1, &long).await, "0000003f");
    assert_eq!(ask(&mount, 2, "").await, "00000000", "a failed MNT is not remembered");
}

#[tokio::test]
async fn a_failing_filesystem_fails_the_mount() {
    let mount = mount(ScriptedVfs::failing(FsError::Io));
    assert_eq!(ask(&mount, 1, ROOT_PATH).await, "00000005");
}

#[tokio::test]
async fn mounts_are_listed_until_unmounted() {
    let mount = mount(ScriptedVfs::default());
    let list = |hosts: &[&str]| {
        let mut text = String::new();
        for host in hosts {
            let bytes: String = host.bytes().map(|byte| format!("{byte:02x}")).collect();
            let pad = "00".repeat(host.len().next_multiple_of(4) - host.len());
            text.push_str(&format!("00000001 {:08x} {bytes}{pad} 00000001 2f000000 ", host.len()));
        }
        to_hex(&hex(&(text + "00000000")))
    };
    for client in ["192.0.2.1:700", "192.0.2.2:700", "[::ffff:192.0.2.1]:701"] {
        from(&mount, client, 1, ROOT_PATH).await.unwrap();
    }
    assert_eq!(ask(&mount, 2, "").await, list(&["192.0.2.1", "192.0.2.2"]));
    assert_eq!(ask(&mount, 3, "00000002 2f610000").await, "");
    assert_eq!(ask(&mount, 2, "").await, list(&["192.0.2.1", "192.0.2.2"]));
    assert_eq!(ask(&mount, 3, ROOT_PATH).await, "");
    assert_eq!(ask(&mount, 2, "").await, list(&["192.0.2.2"]));
    assert_eq!(ask(&mount, 4, "").await, "");
    assert_eq!(ask(&mount, 2, "").await, list(&["192.0.2.2"]));
    assert_eq!(from(&mount, "192.0.2.2:9", 4, "").await.unwrap(), "");
    assert_eq!(ask(&mount, 2, "").await, list(&[]));
}

#[tokio::test]
async fn remembered_mounts_are_bounded() {
    let mount = mount(ScriptedVfs::default());
    for index in 0..MAX_REMEMBERED_MOUNTS + 10 {
        let client = format!("10.0.{}.{}:1", index / 256, index % 256);
        from(&mount, &client, 1, ROOT_PATH).await.unwrap();
    }
    let list = ask(&mount, 2, "").await;
    assert_eq!(list.matches("00000001 2f000000").count(), MAX_REMEMBERED_MOUNTS);
}

#[tokio::test]
async fn the_export_is_listed() {
    let mount = mount(ScriptedVfs::default());
    assert_eq!(ask(&mount, 5, "").await, "00000001 00000001 2f000000 00000000 00000000");
    assert_eq!(ask(&mount, 0, "").await, "");
}

#[tokio::test]
async fn garbage_is_refused() {
    let mount = mount(ScriptedVfs::default());
    let garbage = [
        (0, "00000000"),
        (1, ""),
        (1, "00000001"),
        (1, "00000001 2f0000"),
        (1, "00000001 2f000000 00000000"),
        (1, "ffffffff 2f000000"),
        (2, "00000000"),
        (3, "00000001 2f"),
        (4, "00000000"),
        (5, "00000000"),
    ];
    for (procedure, args) in garbage {
        let result = from(&mount, "192.0.2.1:700", procedure, args).await;
        assert!(matches!(result, Err(CallError::GarbageArgs(_))), "{procedure}: {args}");
    }
    let result = from(&mount, "192.0.2.1:700", 6, "").await;
    assert_eq!(result, Err(CallError::ProcedureUnavailable));
}
