//! What changes nothing: one call in flight per connection, as a process has it that waits for
//! each answer.

use std::time::Duration;

use crate::fixture::{
    SMALL_BYTES, SMALL_FILES, SMALL_PER_DIR, WIDE_ENTRIES, check_content, small_name,
};
use crate::load::Bench;
use crate::measure::{Budget, Lane, Measured, Pace, run};
use crate::rpc::Result;

/// Part of the time that is spent beforehand, without counting.
const WARM_UP_SHARE: u32 = 4;

/// Works for a while, and then for the measured time.
pub fn timed<W>(lanes: &mut [Lane], time: Duration, work: W) -> Result<Measured>
where
    W: Fn(&mut Lane, &mut Pace) -> Result<()> + Sync,
{
    run(lanes, Budget::time(time / WARM_UP_SHARE), &work)?;
    run(lanes, Budget::time(time), &work)
}

/// NULL.
pub fn null(bench: &mut Bench) -> Result<Measured> {
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            lane.client.null()?;
            pace.add(1);
        }
        Ok(())
    })
}

/// The small file that comes next in the lane's round through all of them. Lanes begin apart.
fn next_small(lane: &mut Lane) -> usize {
    let first = lane.index * SMALL_FILES / lane.lanes;
    let number = (first + lane.next) % SMALL_FILES;
    lane.next += 1;
    number
}

/// GETATTR of the small files, one after another, over and over.
pub fn getattr(bench: &mut Bench) -> Result<Measured> {
    let small = &bench.small;
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let number = next_small(lane);
            lane.client.getattr(&small[number], SMALL_BYTES as u64)?;
            pace.add(1);
        }
        Ok(())
    })
}

/// LOOKUP of the small files.
pub fn lookup(bench: &mut Bench) -> Result<Measured> {
    let (dirs, names) = (&bench.small_dirs, names());
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let number = next_small(lane);
            let (_, size) = lane.client.lookup(&dirs[number / SMALL_PER_DIR], &names[number])?;
            if size != SMALL_BYTES as u64 {
                return Err("LOOKUP: not the file's attributes".into());
            }
            pace.add(1);
        }
        Ok(())
    })
}

/// LOOKUP of as many names that are not there.
pub fn lookup_absent(bench: &mut Bench) -> Result<Measured> {
    let dirs = &bench.small_dirs;
    let names: Vec<_> = names().iter().map(|name| format!("no-{name}")).collect();
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let number = next_small(lane);
            lane.client.lookup_absent(&dirs[number / SMALL_PER_DIR], &names[number])?;
            pace.add(1);
        }
        Ok(())
    })
}

/// LOOKUP, and READ of the whole file that it found. A unit is both.
pub fn lookup_and_read(bench: &mut Bench) -> Result<Measured> {
    let (dirs, names) = (&bench.small_dirs, names());
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let number = next_small(lane);
            let (file, _) = lane.client.lookup(&dirs[number / SMALL_PER_DIR], &names[number])?;
            lane.client.send_read(&file, 0, SMALL_BYTES as u32)?;
            let look = |_, data: &[u8]| check_content(number as u64, 0, data);
            lane.client.receive_read(SMALL_BYTES, look)?;
            pace.add(1);
        }
        Ok(())
    })
}

fn names() -> Vec<String> {
    (0..SMALL_FILES).map(|number| small_name(number).1).collect()
}

/// READDIRPLUS of the wide directory, from the first page to the last. A unit is an entry.
pub fn readdirplus(bench: &mut Bench) -> Result<Measured> {
    let wide = &bench.wide;
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let (mut cookie, mut verifier, mut entries) = (0, 0, 0);
            loop {
                let page = lane.client.list(wide, cookie, verifier)?;
                (cookie, verifier) = (page.cookie, page.verifier);
                entries += page.entries - page.dots;
                if page.eof {
                    break;
                }
            }
            if entries != WIDE_ENTRIES as u64 {
                return Err(format!("READDIRPLUS: {entries} entries").into());
            }
            pace.add(entries);
        }
        Ok(())
    })
}
