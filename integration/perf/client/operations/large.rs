//! A large file, in pieces of 1 MiB, of which a kernel has several on the way: 16 per
//! connection. With several connections the pieces go round among them, as with `nconnect`.

use std::time::{Duration, Instant};

use crate::fixture::{LARGE_BYTES, LARGE_SEED, check_content, content};
use crate::load::Bench;
use crate::measure::{Budget, Lane, Measured, Pace, run, server_time};
use crate::nfs::{Handle, Stability};
use crate::operations::look::timed;
use crate::rpc::Result;

/// Bytes of a READ or WRITE.
const PIECE_BYTES: usize = 1 << 20;
/// READs or WRITEs on the way per connection.
const IN_FLIGHT: usize = 16;
/// Pieces of the large file.
const PIECES: u64 = LARGE_BYTES / PIECE_BYTES as u64;
/// Different pieces of content that are written: making them must not take time.
const CONTENTS: u64 = 16;
/// Pieces of the file that is written beforehand.
const WARM_UP_PIECES: u64 = 16;
/// Bytes of a random write.
const RANDOM_BYTES: usize = 4096;

/// READ of the large file of the base. A unit is a MiB.
pub fn read_base(bench: &mut Bench) -> Result<Measured> {
    let expect = |offset, data: &[u8]| check_content(LARGE_SEED, offset, data);
    read(&mut bench.lanes, &bench.large, bench.time, expect)
}

/// READ of the file that [`write`] has written. A unit is a MiB.
pub fn read_delta(bench: &mut Bench) -> Result<Measured> {
    let expect = |offset, data: &[u8]| {
        let within = offset % (CONTENTS * PIECE_BYTES as u64);
        check_content(LARGE_SEED + 1, within, data)
    };
    read(&mut bench.lanes, &bench.written, bench.time, expect)
}

fn read(
    lanes: &mut [Lane],
    file: &Handle,
    time: Duration,
    expect: impl Fn(u64, &[u8]) -> Result<()> + Sync,
) -> Result<Measured> {
    let expect = &expect;
    timed(lanes, time, |lane, pace| {
        loop {
            while lane.client.in_flight() < IN_FLIGHT && pace.more() {
                let offset = next_piece(lane) % PIECES * PIECE_BYTES as u64;
                lane.client.send_read(file, offset, PIECE_BYTES as u32)?;
                pace.add(1);
            }
            if lane.client.in_flight() == 0 {
                return Ok(());
            }
            lane.client.receive_piece(file, PIECE_BYTES, expect)?;
        }
    })
}

/// The piece that comes next in this lane.
fn next_piece(lane: &mut Lane) -> u64 {
    let piece = lane.next * lane.lanes + lane.index;
    lane.next += 1;
    piece as u64
}

/// WRITE of 256 MiB to a new file, UNSTABLE, and one COMMIT at the end. A unit is a MiB.
pub fn write(bench: &mut Bench) -> Result<Measured> {
    let contents: Vec<_> = (0..CONTENTS)
        .map(|at| content(LARGE_SEED + 1, at * PIECE_BYTES as u64, PIECE_BYTES))
        .collect();
    write_file(bench, "written-first.bin", WARM_UP_PIECES, &contents)?;
    write_file(bench, "written.bin", PIECES, &contents)
}

fn write_file(
    bench: &mut Bench,
    name: &str,
    pieces: u64,
    contents: &[Vec<u8>],
) -> Result<Measured> {
    let file = bench.lanes[0].client.create(&bench.root, name)?;
    for lane in &mut bench.lanes {
        lane.next = 0;
    }
    let mut measured = run(&mut bench.lanes, Budget::units(pieces), |lane, pace| {
        loop {
            while lane.client.in_flight() < IN_FLIGHT && pace.more() {
                let piece = next_piece(lane);
                let data = &contents[(piece % CONTENTS) as usize];
                let offset = piece * PIECE_BYTES as u64;
                lane.client.send_write(&file, offset, data, Stability::Unstable)?;
                pace.add(1);
            }
            if lane.client.in_flight() == 0 {
                return Ok(());
            }
            lane.written = Some(lane.client.receive_write(PIECE_BYTES, Stability::Unstable)?);
        }
    })?;
    let (start, server_start) = (Instant::now(), server_time());
    let written: Vec<_> = bench.lanes.iter().filter_map(|lane| lane.written).collect();
    if written.iter().any(|one| *one != written[0]) {
        return Err("WRITE: the write verifier changed".into());
    }
    bench.lanes[0].client.commit(&file, written[0])?;
    measured.time += start.elapsed();
    let of_commit = server_time().zip(server_start).map(|(end, start)| end - start);
    measured.server_time = measured.server_time.zip(of_commit).map(|(all, last)| all + last);
    bench.written = file;
    Ok(measured)
}

/// WRITE of 4 KiB, FILE_SYNC, at random places of the file that [`write`] has written, one
/// in flight.
pub fn write_file_sync(bench: &mut Bench) -> Result<Measured> {
    let data = content(LARGE_SEED + 2, 0, RANDOM_BYTES);
    let file = &bench.written;
    timed(&mut bench.lanes, bench.time, |lane: &mut Lane, pace: &mut Pace| {
        while pace.more() {
            let offset = random_place(lane) * RANDOM_BYTES as u64;
            lane.client.write(file, offset, &data, Stability::FileSync)?;
            pace.add(1);
        }
        Ok(())
    })
}

/// The same places in every run, others in each lane.
fn random_place(lane: &mut Lane) -> u64 {
    let word = content((lane.index as u64 + 1) << 33, 8 * lane.next as u64, 8);
    lane.next += 1;
    let word = word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    word % (LARGE_BYTES / RANDOM_BYTES as u64)
}
