//! Every procedure in bytes: arguments, success and failure, written by hand from RFC 1813 §3.3.
//!
//! The failure is always `NFS3ERR_ROFS` (30, hexadecimal 1e).

use acetate::vfs::{Cookie, Entry, FileId, FsError};
use bytes::Bytes;

use crate::support::scripted_vfs::{ScriptedVfs, attr, found};

/// A procedure with one set of arguments.
pub struct Case {
    /// Its number.
    pub procedure: u32,
    /// Encoded arguments.
    pub args: &'static str,
    /// What the filesystem is asked.
    pub call: &'static str,
    /// The encoded result, if the filesystem succeeds.
    pub ok: &'static str,
    /// The encoded result, if the filesystem fails.
    pub failed: &'static str,
}

/// The filesystem that the cases are about.
pub fn filesystem(fail: Option<FsError>) -> ScriptedVfs {
    let dot = Entry {
        name: Bytes::from_static(b"."),
        fileid: FileId(0x44),
        cookie: Cookie(1),
        object: None,
    };
    let file = Entry {
        name: Bytes::from_static(b"foo.c"),
        fileid: FileId(0x77),
        cookie: Cookie(0x0123_4567_89ab_cdef),
        object: Some((found(), attr())),
    };
    ScriptedVfs { fail, entries: vec![dot, file], ..ScriptedVfs::default() }
}

const CREATED: &str = "00000000 00000001 FOUND 00000001 FATTR WCC";
const FAILED_WCC: &str = "0000001e WCC";
const FAILED_POST_OP: &str = "0000001e 00000001 FATTR";
const NO_SATTR: &str = "00000000 00000000 00000000 00000000 00000000 00000000";

/// All procedures but NULL; CREATE and MKNOD in each of their forms.
pub fn cases() -> Vec<Case> {
    let mut cases = objects();
    cases.extend(files());
    cases.extend(creation());
    cases.extend(names());
    cases.extend(listings());
    cases.extend(filesystem_info());
    cases
}

fn case(
    procedure: u32,
    args: &'static str,
    call: &'static str,
    ok: &'static str,
    failed: &'static str,
) -> Case {
    Case { procedure, args, call, ok, failed }
}

fn objects() -> Vec<Case> {
    vec![
        case(1, "FILE", "getattr delta:119", "00000000 FATTR", "0000001e"),
        case(
            2,
            "FILE
             00000001 ffff81ed              // mode, with bits that are not permissions
             00000000                       // no uid
             00000001 00000064              // gid
             00000001 00000001 00000005     // size
             00000001                       // atime: SET_TO_SERVER_TIME
             00000002 00000009 3b9ac9ff     // mtime: SET_TO_CLIENT_TIME
             00000001 00000030 00000003     // guard",
            "setattr delta:119 SetAttr { mode: Some(493), uid: None, gid: Some(100), \
             size: Some(4294967301), atime: ServerNow, \
             mtime: To(Time { secs: 9, nanos: 999999999 }) } Some(Time { secs: 48, nanos: 3 })",
            "00000000 WCC",
            FAILED_WCC,
        ),
        case(
            3,
            "DIR 00000005 666f6f2e 63000000",
            "lookup delta:68 \"foo.c\"",
            "00000000 FOUND 00000001 FATTR 00000001 FATTR",
            FAILED_POST_OP,
        ),
        case(
            4,
            "FILE ffffff23",
            "access delta:119 Access(35)",
            "00000000 00000001 FATTR 00000021",
            FAILED_POST_OP,
        ),
        case(
            5,
            "FILE",
            "readlink delta:119",
            "00000000 00000001 FATTR 00000003 612f6200",
            FAILED_POST_OP,
        ),
    ]
}

fn files() -> Vec<Case> {
    vec![
        case(
            6,
            "FILE 00000001 00000002 00001000",
            "read delta:119 4294967298 4096",
            "00000000 00000001 FATTR 00000005 00000001 00000005 68656c6c 6f000000",
            FAILED_POST_OP,
        ),
        case(
            7,
            "FILE 00000001 00000002 00000006 00000001 00000006 68656c6c 6f210000",
            "write delta:119 4294967298 \"hello!\" DataSync",
            "00000000 WCC 00000006 00000002 76657269 66696572",
            FAILED_WCC,
        ),
        case(
            21,
            "FILE 00000001 00000002 00001000",
            "commit delta:119",
            "00000000 WCC 76657269 66696572",
            FAILED_WCC,
        ),
    ]
}

fn creation() -> Vec<Case> {
    let set = "SetAttr { mode: Some(384), uid: Some(1), gid: None, size: None, atime: Keep, \
               mtime: Keep }";
    let sattr = "00000001 00000180 00000001 00000001 00000000 00000000 00000000 00000000";
    // A test may leak a few strings.
    let leak = |text: String| -> &'static str { text.leak() };
    let create = |how: &str, call: String| {
        let args = leak(format!("DIR 00000001 66000000 {how}"));
        case(8, args, leak(format!("create delta:68 \"f\" {call}")), CREATED, FAILED_WCC)
    };
    let make = |procedure: u32, what: &str, call: &str| {
        let args = leak(format!("DIR 00000001 66000000 {what}"));
        case(procedure, args, leak(format!("make_node delta:68 \"f\" {call}")), CREATED, FAILED_WCC)
    };
    vec![
        create(&format!("00000000 {sattr}"), format!("Unchecked({set})")),
        create(&format!("00000001 {sattr}"), format!("Guarded({set})")),
        create(
            "00000002 01020304 05060708",
            "Exclusive(CreateVerifier([1, 2, 3, 4, 5, 6, 7, 8]))".into(),
        ),
        make(9, sattr, "Directory Some(384)"),
        make(10, &format!("{sattr} 00000003 612f6200"), "Symlink(b\"a/b\") Some(384)"),
        make(
            11,
            &format!("00000004 {sattr} 00000008 00000009"),
            "Character(Device { major: 8, minor: 9 }) Some(384)",
        ),
        make(
            11,
            &format!("00000003 {NO_SATTR} 00000008 00000009"),
            "Block(Device { major: 8, minor: 9 }) None",
        ),
        make(11, &format!("00000006 {sattr}"), "Socket Some(384)"),
        make(11, &format!("00000007 {sattr}"), "Fifo Some(384)"),
    ]
}

fn names() -> Vec<Case> {
    vec![
        case(
            12,
            "DIR 00000004 66ff0a2e",
            "remove delta:68 \"f\\\\xff\\\\n.\"",
            "00000000 WCC",
            FAILED_WCC,
        ),
        case(13, "DIR 00000002 66670000", "rmdir delta:68 \"fg\"", "00000000 WCC", FAILED_WCC),
        case(
            14,
            "DIR 00000001 61000000 DIR2 00000002 62620000",
            "rename delta:68 \"a\" linked:85 \"bb\"",
            "00000000 WCC 00000000 00000001 FATTR",
            "0000001e WCC 00000000 00000001 FATTR",
        ),
        case(
            15,
            "FILE DIR2 00000001 61000000",
            "link delta:119 linked:85 \"a\"",
            "00000000 00000001 FATTR WCC",
            "0000001e 00000001 FATTR WCC",
        ),
    ]
}

fn listings() -> Vec<Case> {
    vec![
        case(
            16,
            "DIR 00000000 00000000 00000000 00000000 00001000",
            "readdir delta:68 Cookie(0) false",
            "00000000 00000001 FATTR 00000000 00000000
             00000001 00000000 00000044 00000001 2e000000 00000000 00000001
             00000001 00000000 00000077 00000005 666f6f2e 63000000 01234567 89abcdef
             00000000 00000001",
            FAILED_POST_OP,
        ),
        case(
            17,
            "DIR 00000000 00000000 00000000 00000000 00001000 00002000",
            "readdir delta:68 Cookie(0) true",
            "00000000 00000001 FATTR 00000000 00000000
             00000001 00000000 00000044 00000001 2e000000 00000000 00000001
                      00000000 00000000
             00000001 00000000 00000077 00000005 666f6f2e 63000000 01234567 89abcdef
                      00000001 FATTR 00000001 FOUND
             00000000 00000001",
            FAILED_POST_OP,
        ),
    ]
}

fn filesystem_info() -> Vec<Case> {
    vec![
        case(
            18,
            "DIR",
            "fsstat delta:68",
            "00000000 00000001 FATTR
             00000000 00000061 00000000 00000062 00000000 00000063
             00000000 00000064 00000000 00000065 00000000 00000066
             00000000",
            FAILED_POST_OP,
        ),
        case(
            19,
            "DIR",
            "fsinfo delta:68",
            "00000000 00000001 FATTR
             00100000 00100000 00001000         // rtmax, rtpref, rtmult
             00100000 00100000 00001000         // wtmax, wtpref, wtmult
             00010000                           // dtpref
             00007fff ffffffff                  // maxfilesize
             00000000 00000001                  // time_delta
             0000001b                           // LINK SYMLINK HOMOGENEOUS CANSETTIME",
            FAILED_POST_OP,
        ),
        case(
            20,
            "DIR",
            "pathconf delta:68",
            "00000000 00000001 FATTR
             00007d00 000000ff 00000001 00000001 00000000 00000001",
            FAILED_POST_OP,
        ),
    ]
}
