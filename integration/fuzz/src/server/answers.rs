//! Whether an answer is well-formed, in the eyes of code that we did not write.

use nfs3_types::mount::{exports, mountlist, mountres3};
use nfs3_types::nfs3::{
    ACCESS3res, COMMIT3res, CREATE3res, FSINFO3res, FSSTAT3res, GETATTR3res, LINK3res, LOOKUP3res,
    MKDIR3res, MKNOD3res, Nfs3Option, Nfs3Result, PATHCONF3res, READ3res, READDIR3res,
    READDIRPLUS3res, READLINK3res, REMOVE3res, RENAME3res, RMDIR3res, SETATTR3res, SYMLINK3res,
    WRITE3res, nfs_fh3,
};
use nfs3_types::xdr_codec::Unpack;

use super::OUTSIDE;
use super::calls::{Call, MOUNT, NFS};

/// A handle.
pub type Found = Vec<u8>;

/// Asserts that `reply` is RPC, and says nothing of what lies outside; returns xid, and the
/// results if it is a success.
pub fn envelope(reply: &[u8]) -> (u32, Option<&[u8]>) {
    assert!(reply.len().is_multiple_of(4) && reply.len() >= 20, "{reply:?}");
    assert!(!reply.windows(OUTSIDE.len()).any(|window| window == OUTSIDE), "it leaks");
    let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
    assert_eq!(word(4), 1, "a reply");
    let xid = word(0);
    match (word(8), word(12)) {
        // Accepted, with an empty verifier.
        (0, 0) => {
            assert_eq!(word(16), 0);
            match word(20) {
                0 => (xid, Some(&reply[24..])),
                2 => {
                    assert!(reply.len() == 32 && word(24) <= word(28));
                    (xid, None)
                }
                1 | 3 | 4 => {
                    assert_eq!(reply.len(), 24);
                    (xid, None)
                }
                // SYSTEM_ERR: a panic of ours.
                status => panic!("accept_stat {status}"),
            }
        }
        // Denied: version, or credentials.
        (1, 0) => {
            assert_eq!((reply.len(), word(16), word(20)), (24, 2, 2));
            (xid, None)
        }
        (1, 1) => {
            assert!(reply.len() == 20 && (1..=5).contains(&word(16)));
            (xid, None)
        }
        other => panic!("{other:?}"),
    }
}

/// Asserts that the answer to a sound call is a success with results that decode; returns the
/// handles in it.
pub fn check(call: &Call, reply: &[u8]) -> Vec<Found> {
    let (_, results) = envelope(reply);
    let Some(results) = results else { panic!("refused: {call:?}: {reply:?}") };
    match call.program {
        NFS => nfs(call.procedure, results),
        MOUNT => mount(call.procedure, results),
        _ => {
            lock(call.procedure, results);
            Vec::new()
        }
    }
}

/// Reads a value that takes all of `results`.
fn all<T: Unpack>(results: &[u8]) -> T {
    let mut rest = results;
    let (value, _) = T::unpack(&mut rest).expect("results that decode");
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
    value
}

fn option(handle: Nfs3Option<nfs_fh3>) -> Vec<Found> {
    match handle {
        Nfs3Option::Some(handle) => vec![handle.data.to_vec()],
        Nfs3Option::None => Vec::new(),
    }
}

fn nfs(procedure: u32, results: &[u8]) -> Vec<Found> {
    match procedure {
        0 => assert!(results.is_empty()),
        1 => drop(all::<GETATTR3res>(results)),
        2 => drop(all::<SETATTR3res>(results)),
        3 => {
            if let Nfs3Result::Ok(found) = all::<LOOKUP3res>(results) {
                return vec![found.object.data.to_vec()];
            }
        }
        4 => drop(all::<ACCESS3res>(results)),
        5 => drop(all::<READLINK3res<'_>>(results)),
        6 => {
            if let Nfs3Result::Ok(read) = all::<READ3res<'_>>(results) {
                assert_eq!(read.count as usize, read.data.len());
            }
        }
        7 => drop(all::<WRITE3res>(results)),
        8 => {
            if let Nfs3Result::Ok(made) = all::<CREATE3res>(results) {
                return option(made.obj);
            }
        }
        9 => {
            if let Nfs3Result::Ok(made) = all::<MKDIR3res>(results) {
                return option(made.obj);
            }
        }
        10 => {
            if let Nfs3Result::Ok(made) = all::<SYMLINK3res>(results) {
                return option(made.obj);
            }
        }
        11 => {
            if let Nfs3Result::Ok(made) = all::<MKNOD3res>(results) {
                return option(made.obj);
            }
        }
        12 => drop(all::<REMOVE3res>(results)),
        13 => drop(all::<RMDIR3res>(results)),
        14 => drop(all::<RENAME3res>(results)),
        15 => drop(all::<LINK3res>(results)),
        16 => drop(all::<READDIR3res<'_>>(results)),
        17 => {
            if let Nfs3Result::Ok(page) = all::<READDIRPLUS3res<'_>>(results) {
                let entries = page.reply.entries.into_inner();
                return entries.into_iter().flat_map(|entry| option(entry.name_handle)).collect();
            }
        }
        18 => drop(all::<FSSTAT3res>(results)),
        19 => drop(all::<FSINFO3res>(results)),
        20 => drop(all::<PATHCONF3res>(results)),
        21 => drop(all::<COMMIT3res>(results)),
        _ => panic!("no such procedure"),
    }
    Vec::new()
}

fn mount(procedure: u32, results: &[u8]) -> Vec<Found> {
    match procedure {
        1 => {
            if let mountres3::Ok(mounted) = all::<mountres3<'_>>(results) {
                return vec![mounted.fhandle.0.to_vec()];
            }
        }
        2 => drop(all::<mountlist<'_, '_>>(results)),
        5 => drop(all::<exports<'_, '_>>(results)),
        _ => assert!(results.is_empty()),
    }
    Vec::new()
}

fn lock(procedure: u32, results: &[u8]) {
    let word = |at: usize| u32::from_be_bytes(results[at..at + 4].try_into().unwrap());
    if matches!(procedure, 0 | 23) {
        return assert!(results.is_empty());
    }
    assert_eq!(&results[..12], b"\0\0\0\x06cookie\0\0", "the cookie comes back");
    let status = word(12);
    assert!(status <= 9);
    let expected = match procedure {
        // TEST: who is in the way.
        1 if status == 1 => 16 + 8 + 4 + word(24).next_multiple_of(4) as usize + 16,
        20 | 21 => 20,
        _ => 16,
    };
    assert_eq!(results.len(), expected);
}
