//! How the log is written: a commit at a time, whatever SQLite hands over. And how it is copied:
//! what was copied is synced, though SQLite waits with that until nothing is left.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::disk::{Event, Medium};
use crate::ground::{Ground, SESSION};
use crate::life::{Birth, Life};

/// The database's number on the disk: it is the first file.
const DATABASE: u32 = 0;

/// The log's.
const LOG: u32 = 1;

/// What is written at once, in bytes.
const SMALL_BYTES: usize = 256 << 10;

/// How long a thread may take until it has copied a few MiB.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the log begins with, in bytes.
const LOG_HEADER_BYTES: usize = 32;

/// A page of 4 KiB behind its header, in bytes.
const FRAME_BYTES: usize = 24 + 4096;

/// A commit longer than this comes in several pieces, each up to a multiple of it, in bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// Where a frame says that it ends a commit.
fn ends_commit(frame: &[u8]) -> bool {
    frame[4..8] != [0; 4]
}

#[test]
fn the_log_is_written_a_commit_at_a_time() {
    let ground = Ground::new();
    let (medium, reference) = (Medium::new(&ground.files), ground.reference.clone());
    medium.disk.record();
    let birth = Birth { medium, reference, strict: false, boot: 1, seed: 11 };
    let mut life = Life::new(&ground, birth);
    for _ in 0..60 {
        life.step();
    }
    let (medium, _) = life.end();
    let (mut commits, mut frames, mut pieces) = (0, 0, 0);
    // What came of a commit, and where it ends.
    let (mut commit, mut end) = (Vec::new(), 0);
    for event in medium.disk.events() {
        let Event::Write(LOG, offset, bytes) = event else { continue };
        if offset == 0 {
            assert_eq!(bytes.len(), LOG_HEADER_BYTES);
            continue;
        }
        assert!(commit.is_empty() || offset == end, "a commit goes on elsewhere");
        commit.extend_from_slice(&bytes);
        end = offset + bytes.len() as u64;
        let is_whole = commit.len() % FRAME_BYTES == 0;
        let mut held = commit.chunks(FRAME_BYTES);
        let last = held.next_back().expect("a frame");
        if is_whole && ends_commit(last) {
            assert!(!held.any(ends_commit), "two commits at once");
            (commits, frames) = (commits + 1, frames + commit.len() / FRAME_BYTES);
            commit.clear();
        } else {
            assert_eq!(end % PIECE_BYTES, 0, "{} bytes of a commit at {offset}", bytes.len());
            pieces += 1;
        }
    }
    assert!(commit.is_empty(), "half a commit");
    assert!(pieces > 0, "no large commit");
    assert!(commits > 20 && frames > 2 * commits, "{commits} commits of {frames} frames");
}

#[test]
fn what_is_copied_while_somebody_reads_is_synced() {
    let ground = Ground::new();
    let (medium, reference) = (Medium::new(&ground.files), ground.reference.clone());
    medium.disk.record();
    let birth = Birth { medium, reference, strict: false, boot: 1, seed: 12 };
    let mut life = Life::new(&ground, birth);
    let mut at = 0;
    let mut write_on = |life: &mut Life<'_>, bytes| {
        // Commits so small that nothing is synced ahead.
        for _ in 0..bytes / SMALL_BYTES {
            life.write_over(at, SMALL_BYTES);
            at += SMALL_BYTES;
        }
    };
    write_on(&mut life, 4 << 20);
    let reader = Connection::open(life.medium.path(SESSION)).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM fs_data", [], |row| row.get(0)).unwrap();
    // What follows cannot be copied while it reads, and is enough for the rest to be.
    write_on(&mut life, 16 << 20);
    let (mut written, mut synced) = (0, false);
    let begun = Instant::now();
    while !synced {
        assert!(begun.elapsed() < PATIENCE, "{written} pages were copied and not synced");
        for event in life.medium.disk.events() {
            match event {
                Event::Write(DATABASE, ..) => (written, synced) = (written + 1, false),
                Event::Sync(DATABASE) => synced = written > 0,
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(reader);
    life.end();
}
