//! Two servers by turns: one over a session with checkpoints, one over a session without. Each turn
//! is short, so whatever else the machine does slows both down.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::at::At;
use crate::nfs::{Client, Handle, Stability, mount};
use crate::rpc::Result;

use super::{Checkpointer, print};

/// Calls in a turn of what changes nothing.
const LOOKS: usize = 200;
/// Changes between two checkpoints, and in a turn.
const CHANGES: usize = 20;
/// Turns whose times are compared as one.
const BLOCK: usize = 10;
/// Blocks beforehand, of which nothing is told.
const WARM_UP_BLOCKS: usize = 2;
/// Files that are worked on, in directories of [`PER_DIR`].
const FILES: usize = 4000;
const PER_DIR: usize = 100;
/// Bytes of the largest of them; each other has less.
const MOST_BYTES: usize = 4096;
/// Bytes of the large file, and of a WRITE into it.
const LARGE_BYTES: usize = 32 << 20;
const PIECE_BYTES: usize = 1 << 20;
const WRITE_BYTES: usize = 100;

/// What a client works on: the same in both sessions.
struct Side {
    client: Client,
    dirs: Vec<Handle>,
    /// Directory, name, handle and size.
    files: Vec<(usize, String, Handle, usize)>,
    large: Handle,
    /// A directory that was made after all checkpoints that were there before.
    fresh: Handle,
    checkpoints: Option<Checkpointer>,
    next: usize,
    made: usize,
}

impl Side {
    fn new(at: &At, checkpoints: Option<Checkpointer>) -> Result<Self> {
        let root = mount(at.mount, &at.export)?;
        let mut client = Client::open(at.nfs, 1)?;
        let top = client.mkdir(&root, "worked-on")?;
        let (mut dirs, mut files) = (Vec::new(), Vec::new());
        for number in 0..FILES {
            if number % PER_DIR == 0 {
                dirs.push(client.mkdir(&top, &format!("dir-{:02}", dirs.len()))?);
            }
            let (dir, name) = (dirs.len() - 1, format!("file-{number:04}"));
            let file = client.create(&dirs[dir], &name)?;
            let size = (number * 97 % MOST_BYTES) + 1;
            client.write(&file, 0, &vec![3; size], Stability::Unstable)?;
            files.push((dir, name, file, size));
        }
        let large = client.create(&top, "large")?;
        for offset in (0..LARGE_BYTES).step_by(PIECE_BYTES) {
            let piece = vec![4; PIECE_BYTES];
            client.write(&large, offset as u64, &piece, Stability::FileSync)?;
        }
        let fresh = client.mkdir(&top, "fresh")?;
        let mut side = Self { client, dirs, files, large, fresh, checkpoints, next: 0, made: 0 };
        side.checkpoint()?;
        Ok(side)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.checkpoints.as_mut().map_or(Ok(()), |one| one.create().map(drop))
    }

    /// The index of the next file, which is another than before until all had their turn.
    fn file(&mut self) -> usize {
        self.next += 1;
        self.next * 1009 % self.files.len()
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("new-{:06}", self.made)
    }
}

type Step = fn(&mut Side) -> Result<()>;

/// Both sides, and the median of what blocks on the first took by those on the second.
struct Pair {
    with: Side,
    without: Side,
    time: Duration,
}

impl Pair {
    fn turn(side: &mut Side, count: usize, step: Step) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            step(side)?;
        }
        Ok(start.elapsed())
    }

    /// Does `before` before each turn, outside the time.
    fn ratio(&mut self, count: usize, before: Step, step: Step) -> Result<f64> {
        let (mut ratios, start) = (Vec::new(), Instant::now());
        let mut block = 0;
        while block < WARM_UP_BLOCKS + 5 || start.elapsed() < self.time {
            let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
            for turn in 0..BLOCK {
                // Each other turn the other way round.
                for is_first in [turn % 2 == 0, turn % 2 != 0] {
                    let (side, sum) = match is_first {
                        true => (&mut self.with, &mut with),
                        false => (&mut self.without, &mut without),
                    };
                    before(side)?;
                    *sum += Self::turn(side, count, step)?;
                }
            }
            if block >= WARM_UP_BLOCKS {
                ratios.push(with.as_secs_f64() / without.as_secs_f64());
            }
            block += 1;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        Ok(ratios[ratios.len() / 2])
    }
}

const LOOKED_AT: &[(&str, Step)] = &[
    ("LOOKUP", |side| {
        let (dir, name, _, size) = &side.files[side.next * 1009 % FILES];
        let (_, found) = side.client.lookup(&side.dirs[*dir], name)?;
        side.next += 1;
        if found == *size as u64 { Ok(()) } else { Err("LOOKUP: not the file".into()) }
    }),
    ("GETATTR", |side| {
        let (_, _, file, size) = &side.files[side.next * 1009 % FILES];
        side.next += 1;
        side.client.getattr(file, *size as u64)
    }),
    ("READ", |side| {
        let (_, _, file, size) = &side.files[side.next * 1009 % FILES];
        side.next += 1;
        side.client.send_read(file, 0, *size as u32)?;
        side.client.receive_read(*size, |_, _| Ok(()))
    }),
    ("CREATE in a new directory", |side| {
        let name = side.new_name();
        side.client.create(&side.fresh, &name).map(drop)
    }),
    ("CREATE in an old directory", |side| {
        let name = side.new_name();
        side.client.create(&side.dirs[0], &name).map(drop)
    }),
];

/// What operations take in a session with very many checkpoints, by what they take in one without.
pub fn look(with: &At, without: &At, session: &Path, what: &str, time: Duration) -> Result<()> {
    let checkpoints = Some(Checkpointer::open(session)?);
    let (with, without) = (Side::new(with, checkpoints)?, Side::new(without, None)?);
    let mut pair = Pair { with, without, time };
    // The new directory is newer than the newest checkpoint.
    for side in [&mut pair.with, &mut pair.without] {
        let top = side.dirs[0].clone();
        side.fresh = side.client.mkdir(&top, "fresh")?;
    }
    for (name, step) in LOOKED_AT {
        let count = if name.starts_with("CREATE") { CHANGES } else { LOOKS };
        let ratio = pair.ratio(count, |_| Ok(()), *step)?;
        print(&format!("{what}: {name}"), ratio, "times");
    }
    Ok(())
}

const TAXED: &[(&str, Step)] = &[
    ("CREATE", |side| {
        let (name, dir) = (side.new_name(), side.made % side.dirs.len());
        side.client.create(&side.dirs[dir], &name).map(drop)
    }),
    ("SETATTR", |side| {
        let at = side.file();
        // Another mode each time round.
        let mode = 0o400 + (side.next / FILES % 0o377) as u32;
        side.client.chmod(&side.files[at].2, mode)
    }),
    ("RENAME", |side| {
        let (at, to) = (side.file(), side.new_name());
        let (dir, name, ..) = &mut side.files[at];
        side.client.rename(&side.dirs[*dir], name, &to)?;
        *name = to;
        Ok(())
    }),
    ("WRITE of 100 bytes into a large file", |side| {
        side.next += 1;
        let at = side.next as u64 * 1_000_003 % (LARGE_BYTES - WRITE_BYTES) as u64;
        side.client.write(&side.large, at, &[5; WRITE_BYTES], Stability::Unstable).map(drop)
    }),
    ("REMOVE", |side| {
        let (dir, name, ..) = side.files.swap_remove(0);
        side.client.remove(&side.dirs[dir], &name)
    }),
];

/// What changes take with a checkpoint before every [`CHANGES`] of them, by what they take without.
pub fn tax(with: &At, without: &At, session: &Path, what: &str, time: Duration) -> Result<()> {
    let checkpoints = Some(Checkpointer::open(session)?);
    let (with, without) = (Side::new(with, checkpoints)?, Side::new(without, None)?);
    let mut pair = Pair { with, without, time };
    for (name, step) in TAXED {
        // As many as there are files to remove.
        let is_last = *name == "REMOVE";
        pair.time = if is_last { Duration::ZERO } else { time };
        let ratio = pair.ratio(CHANGES, Side::checkpoint, *step)?;
        print(&format!("{what}: {name}"), ratio, "times");
    }
    Ok(())
}
