//! Changes of names and attributes, and small writes: one call in flight per connection.

use std::time::Duration;

use crate::fixture::{SMALL_BYTES, SMALL_FILES, SMALL_PER_DIR, content, small_name};
use crate::load::Bench;
use crate::measure::{Budget, Lane, Measured, Pace, run};
use crate::nfs::Stability;
use crate::operations::look::timed;
use crate::rpc::Result;

/// Units of work before those that count.
const WARM_UP_UNITS: u64 = 64;
/// Files that the operations on files of the delta work on, of all lanes together: as many for a
/// server that makes them slowly, and no more for a fast one.
const FILES: usize = 6000;
/// No more directories are made than this, however fast: their parent stays of an ordinary size.
const MAX_DIRS: u64 = 8000;
/// Small files from this one on are removed; those before it are copied up.
const FIRST_REMOVED: usize = SMALL_FILES / 2;
/// What a first write to a file of the base writes, and where, in bytes.
const FIRST_WRITE_BYTES: usize = 512;
const FIRST_WRITE_OFFSET: u64 = 1024;

/// Does a little, and then as much as the budget allows.
fn warmed_up<W>(lanes: &mut [Lane], budget: Budget, work: W) -> Result<Measured>
where
    W: Fn(&mut Lane, &mut Pace) -> Result<()> + Sync,
{
    run(lanes, Budget::units(WARM_UP_UNITS), &work)?;
    run(lanes, budget, &work)
}

/// CREATE, WRITE of 4 KiB UNSTABLE, COMMIT: a small file that is closed. A unit is all three.
pub fn create_write_commit(bench: &mut Bench) -> Result<Measured> {
    let data = content(0, 0, SMALL_BYTES);
    let create = |lane: &mut Lane, pace: &mut Pace| {
        while lane.files.len() < FILES / lane.lanes && pace.more() {
            let name = format!("file-{:06}", lane.files.len());
            let file = lane.client.create(&lane.dir, &name)?;
            let written = lane.client.write(&file, 0, &data, Stability::Unstable)?;
            lane.client.commit(&file, written)?;
            lane.files.push((name, file));
            pace.add(1);
        }
        Ok(())
    };
    let measured = warmed_up(&mut bench.lanes, Budget::time(2 * bench.time), create)?;
    // The rest of what the next operations work on, which nobody measures.
    run(&mut bench.lanes, Budget::time(Duration::MAX), create)?;
    Ok(measured)
}

/// Fails where there are no files that [`create_write_commit`] made.
fn need_files(lanes: &[Lane]) -> Result<()> {
    let missing = lanes.iter().any(|lane| lane.files.is_empty());
    if missing { Err("this needs the files that create-write-commit makes".into()) } else { Ok(()) }
}

/// SETATTR of the mode of files of the delta.
pub fn setattr(bench: &mut Bench) -> Result<Measured> {
    need_files(&bench.lanes)?;
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let (round, at) = (lane.next / lane.files.len(), lane.next % lane.files.len());
            let mode = if round % 2 == 0 { 0o600 } else { 0o644 };
            lane.client.chmod(&lane.files[at].1, mode)?;
            lane.next += 1;
            pace.add(1);
        }
        Ok(())
    })
}

/// RENAME of files of the delta, in their directory, to a name that is free.
pub fn rename(bench: &mut Bench) -> Result<Measured> {
    need_files(&bench.lanes)?;
    timed(&mut bench.lanes, bench.time, |lane, pace| {
        while pace.more() {
            let at = lane.next % lane.files.len();
            let name = format!("name-{:06}", lane.next);
            lane.client.rename(&lane.dir, &lane.files[at].0, &name)?;
            lane.files[at].0 = name;
            lane.next += 1;
            pace.add(1);
        }
        Ok(())
    })
}

/// MKDIR.
pub fn mkdir(bench: &mut Bench) -> Result<Measured> {
    let budget = Budget::time(bench.time).at_most(MAX_DIRS);
    warmed_up(&mut bench.lanes, budget, |lane, pace| {
        while pace.more() {
            lane.client.mkdir(&lane.dir, &format!("dir-{:06}", lane.next))?;
            lane.next += 1;
            pace.add(1);
        }
        Ok(())
    })
}

/// REMOVE of the files that were made before, of 4 KiB each.
pub fn remove_delta(bench: &mut Bench) -> Result<Measured> {
    need_files(&bench.lanes)?;
    warmed_up(&mut bench.lanes, Budget::time(bench.time), |lane, pace| {
        while !lane.files.is_empty() && pace.more() {
            let (name, _) = lane.files.swap_remove(0);
            lane.client.remove(&lane.dir, &name)?;
            pace.add(1);
        }
        Ok(())
    })
}

/// REMOVE of half of the small files of the base; a unit is a file.
pub fn remove_base(bench: &mut Bench) -> Result<Measured> {
    let dirs = &bench.small_dirs;
    warmed_up(&mut bench.lanes, Budget::time(Duration::MAX), |lane, pace| {
        while let Some(number) = own(lane, FIRST_REMOVED..SMALL_FILES)
            && pace.more()
        {
            lane.client.remove(&dirs[number / SMALL_PER_DIR], &small_name(number).1)?;
            lane.next += 1;
            pace.add(1);
        }
        Ok(())
    })
}

/// A WRITE of 512 bytes, UNSTABLE, into each of the other 1,000 small files of the base.
pub fn copy_up(bench: &mut Bench) -> Result<Measured> {
    let (small, data) = (&bench.small, content(1, 0, FIRST_WRITE_BYTES));
    run(&mut bench.lanes, Budget::time(Duration::MAX), |lane, pace| {
        while let Some(number) = own(lane, 0..FIRST_REMOVED) {
            lane.client.write(&small[number], FIRST_WRITE_OFFSET, &data, Stability::Unstable)?;
            lane.next += 1;
            pace.add(1);
        }
        Ok(())
    })
}

/// The next number of `all` that is this lane's: neighbours go to different lanes.
fn own(lane: &Lane, mut all: std::ops::Range<usize>) -> Option<usize> {
    all.nth(lane.next * lane.lanes + lane.index)
}
