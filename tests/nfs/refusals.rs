//! What is refused or limited before the filesystem is asked.

use acetate::nfs::CallError;
use acetate::vfs::{FsError, Time};

use super::{Server, wire};
use crate::support::scripted_vfs::ScriptedVfs;

const NO_SATTR: &str = "00000000 00000000 00000000 00000000 00000000 00000000";
/// A refused change carries the attributes of the object as it is.
const UNCHANGED: &str = "
    00000001 00000000 00001122 00000020 00000002 00000030 00000003
    00000001 FATTR
";

async fn refused(procedure: u32, args: &str, status: u32, asked: &str) {
    let server = Server::new(ScriptedVfs::default());
    let reply = server.ask(procedure, args).await;
    let mut expected = status.to_be_bytes().to_vec();
    expected.extend(wire(UNCHANGED));
    assert_eq!(reply, expected, "procedure {procedure}: {args}");
    assert_eq!(server.vfs.take_calls(), [asked]);
}

#[tokio::test]
async fn write_with_a_wrong_count_is_invalid() {
    for count in ["00000003", "00000005", "00000000", "ffffffff"] {
        let args = format!("FILE 00000000 00000000 {count} 00000000 00000004 61626364");
        refused(7, &args, 22, "getattr delta:119").await;
    }
}

#[tokio::test]
async fn times_with_a_billion_nanoseconds_are_invalid() {
    let time = "00000002 00000001 3b9aca00";
    let atime = format!("00000000 00000000 00000000 00000000 {time} 00000000");
    let mtime = format!("00000000 00000000 00000000 00000000 00000000 {time}");
    for set in [atime, mtime] {
        refused(2, &format!("FILE {set} 00000000"), 22, "getattr delta:119").await;
        let place = "DIR 00000001 66000000";
        refused(8, &format!("{place} 00000000 {set}"), 22, "getattr delta:68").await;
        refused(9, &format!("{place} {set}"), 22, "getattr delta:68").await;
        refused(10, &format!("{place} {set} 00000001 61000000"), 22, "getattr delta:68").await;
        refused(11, &format!("{place} 00000007 {set}"), 22, "getattr delta:68").await;
    }
}

#[tokio::test]
async fn symlink_targets_are_checked() {
    let place = "DIR 00000001 66000000";
    refused(10, &format!("{place} {NO_SATTR} 00000000"), 22, "getattr delta:68").await;
    refused(10, &format!("{place} {NO_SATTR} 00000003 61006200"), 22, "getattr delta:68").await;
    let longest = "61616161".repeat(1024);
    let server = Server::new(ScriptedVfs::default());
    let reply = server.ask(10, &format!("{place} {NO_SATTR} 00001000 {longest}")).await;
    assert_eq!(reply[..4], [0; 4]);
    refused(10, &format!("{place} {NO_SATTR} 00001001 {longest} 61000000"), 63, "getattr delta:68")
        .await;
}

#[tokio::test]
async fn mknod_of_what_others_make_is_a_bad_type() {
    for kind in ["00000001", "00000002", "00000005"] {
        refused(11, &format!("DIR 00000001 66000000 {kind}"), 10007, "getattr delta:68").await;
    }
}

#[tokio::test]
async fn values_without_meaning_are_garbage() {
    let place = "DIR 00000001 66000000";
    let cases = [
        (11, format!("{place} 00000000")),
        (11, format!("{place} 00000008")),
        (8, format!("{place} 00000003 {NO_SATTR}")),
        (9, format!("{place} 00000002 {NO_SATTR}")),
        (9, format!("{place} 00000000 00000000 00000000 00000000 00000003 00000000")),
        (2, format!("FILE {NO_SATTR} 00000002")),
        (7, "FILE 00000000 00000000 00000004 00000003 00000004 61626364".into()),
    ];
    let server = Server::new(ScriptedVfs::default());
    for (procedure, args) in cases {
        let result = server.call(procedure, wire(&args)).await;
        assert!(matches!(result, Err(CallError::GarbageArgs(_))), "{procedure}: {result:?}");
    }
}

#[tokio::test]
async fn handles_over_64_bytes_are_garbage_and_others_bad() {
    let server = Server::new(ScriptedVfs::default());
    let long = format!("00000041 {} 01000000", "01010101".repeat(16));
    let result = server.call(1, wire(&long)).await;
    assert!(matches!(result, Err(CallError::GarbageArgs(_))), "{result:?}");
    for handle in [format!("00000040 {}", "01010101".repeat(16)), "00000000".into()] {
        assert_eq!(server.ask(1, &handle).await, 10001u32.to_be_bytes());
    }
    assert_eq!(server.vfs.take_calls(), [""; 0]);
}

#[tokio::test]
async fn reads_are_cut_to_the_transfer_limit() {
    let server = Server::new(ScriptedVfs::default());
    server.ask(6, "FILE 00000000 00000000 ffffffff").await;
    assert_eq!(server.vfs.take_calls(), ["read delta:119 0 1048576"]);
}

#[tokio::test]
async fn the_largest_write_passes_and_the_next_is_garbage() {
    for (bytes, passes) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut args = wire("FILE 00000000 00000000");
        args.extend((bytes as u32).to_be_bytes());
        args.extend([0; 4]);
        args.extend((bytes as u32).to_be_bytes());
        args.resize(args.len() + (bytes as usize).next_multiple_of(4), 0);
        let result = Server::new(ScriptedVfs::default()).call(7, args).await;
        assert_eq!(result.is_ok(), passes, "{bytes} bytes");
    }
}

#[tokio::test]
async fn long_names_reach_the_filesystem() {
    for bytes in [256usize, 4097, 100_000] {
        let mut args = wire("DIR");
        args.extend((bytes as u32).to_be_bytes());
        args.extend(vec![b'a'; bytes.next_multiple_of(4)]);
        let server = Server::new(ScriptedVfs::failing(FsError::NameTooLong));
        for (procedure, name) in [(3, "lookup"), (12, "remove"), (13, "rmdir")] {
            let reply = server.call(procedure, args.clone()).await.unwrap();
            assert_eq!(reply[..4], 63u32.to_be_bytes());
            assert_eq!(server.vfs.take_calls(), [format!("{name} delta:68 \"{bytes} bytes\"")]);
        }
    }
}

#[tokio::test]
async fn times_are_clamped_to_what_the_protocol_can_say() {
    let cases = [
        (Time { secs: -1, nanos: 5 }, "00000000 00000000"),
        (Time { secs: 0xffff_ffff, nanos: 7 }, "ffffffff 00000007"),
        (Time { secs: 0x1_0000_0000, nanos: 7 }, "ffffffff 3b9ac9ff"),
    ];
    for (time, expected) in cases {
        let mut vfs = ScriptedVfs::default();
        vfs.attr.mtime = time;
        let reply = Server::new(vfs).ask(1, "FILE").await;
        assert_eq!(reply[4 + 68..4 + 76], wire(expected), "{time:?}");
    }
}

#[tokio::test]
async fn large_data_is_not_copied() {
    let server = Server::new(ScriptedVfs { data: vec![7; 8192].into(), ..Default::default() });
    let args = wire("FILE 00000000 00000000 00002000").into();
    let reply = server.nfs.call(&super::caller(), 6, args).await.unwrap();
    let segments = reply.into_segments();
    assert_eq!(segments.len(), 2);
    assert_eq!(segments[1].as_ptr(), server.vfs.data.as_ptr());
}

/// The server runs calls on any of its threads.
#[test]
fn calls_can_move_between_threads() {
    fn check<T: Send>(_: T) {}
    let server = Server::new(ScriptedVfs::default());
    check(server.nfs.call(&super::caller(), 17, bytes::Bytes::new()));
}
