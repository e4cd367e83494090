//! What a failing disk costs a session that is being created: one call below SQLite after the other
//! fails until there are no more.
//!
//! Creating fails and leaves nothing, or makes a whole session; the next attempt succeeds.

use acetate::delta::sqlite::Session;
use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_FSTAT, SQLITE_IOERR_READ, SQLITE_IOERR_WRITE};

use crate::disk::{Call, Fault, Medium};
use crate::ground::{SESSION, host};
use crate::support::check::violations;

const FAULTS: [(Call, i32); 5] = [
    (Call::Open, rusqlite::ffi::SQLITE_CANTOPEN),
    (Call::Write, SQLITE_IOERR_WRITE),
    (Call::Write, SQLITE_FULL),
    (Call::Read, SQLITE_IOERR_READ),
    (Call::Size, SQLITE_IOERR_FSTAT),
];

#[test]
fn a_session_that_cannot_be_created_is_not_there() {
    let mut refused = 0;
    for (call, code) in FAULTS {
        for nth in 1.. {
            let medium = Medium::new([]);
            let path = medium.path(SESSION);
            medium.disk.arm(Fault { call, nth, code, lasts: false });
            let made = Session::create(&path, &Default::default(), &host(0));
            let hits = medium.disk.disarm();
            if made.is_err() {
                assert!(hits > 0, "{call:?} {nth}: {made:?}");
                let left: Vec<_> = medium.files().into_keys().collect();
                assert_eq!(left, [""; 0], "{call:?} {nth}");
                drop(Session::create(&path, &Default::default(), &host(0)).unwrap());
                refused += 1;
            }
            drop(made);
            assert_eq!(violations(&path), [""; 0], "{call:?} {nth}");
            if hits == 0 {
                break;
            }
        }
    }
    assert!(refused > 40, "{refused}");
}
