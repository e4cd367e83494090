//! Writes a delta in git's format (gitformat-pack(5), "Deltified representation"): copies from the
//! old content, and insertions.

use std::collections::HashMap;

/// Bytes of the blocks of the old content that are searched in the new one.
const BLOCK_BYTES: usize = 16;

/// The most bytes of one copy, and of one insertion.
const MAX_COPY: usize = 0xffff;
const MAX_INSERT: usize = 0x7f;

/// The base of the rolling hash.
const BASE: u64 = 0x0001_0000_01b3;

/// The delta from `old` to `new`.
pub(super) fn delta(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_size(&mut out, old.len());
    put_size(&mut out, new.len());
    let mut blocks = HashMap::new();
    for (at, block) in old.chunks_exact(BLOCK_BYTES).enumerate() {
        blocks.entry(hash(block)).or_insert(at * BLOCK_BYTES);
    }
    let top = (1..BLOCK_BYTES).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let (mut at, mut written) = (0, 0);
    let mut rolling = new.get(..BLOCK_BYTES).map_or(0, hash);
    while at + BLOCK_BYTES <= new.len() {
        let found = blocks.get(&rolling).copied();
        let found = found.filter(|from| old[*from..][..BLOCK_BYTES] == new[at..][..BLOCK_BYTES]);
        let Some(from) = found else {
            if let Some(next) = new.get(at + BLOCK_BYTES) {
                let without = rolling.wrapping_sub(u64::from(new[at]).wrapping_mul(top));
                rolling = without.wrapping_mul(BASE).wrapping_add(u64::from(*next));
            }
            at += 1;
            continue;
        };
        // Extends the match in both directions.
        let back = new[written..at].iter().rev().zip(old[..from].iter().rev());
        let back = back.take_while(|(a, b)| a == b).count();
        let on = new[at..].iter().zip(&old[from..]).take_while(|(a, b)| a == b).count();
        insert(&mut out, &new[written..at - back]);
        copy(&mut out, from - back, back + on);
        at += on;
        written = at;
        rolling = new.get(at..at + BLOCK_BYTES).map_or(0, hash);
    }
    insert(&mut out, &new[written..]);
    out
}

fn hash(block: &[u8]) -> u64 {
    block.iter().fold(0, |hash: u64, &byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(byte)))
}

/// Seven bits per byte, lowest first.
fn put_size(out: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        out.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

fn insert(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_INSERT) {
        out.push(piece.len() as u8);
        out.extend_from_slice(piece);
    }
}

/// Writes a copy of a range: a byte that says which bytes of offset and length follow, and these.
fn copy(out: &mut Vec<u8>, mut from: usize, mut left: usize) {
    while left > 0 {
        let length = left.min(MAX_COPY);
        let place = out.len();
        out.push(0x80);
        let numbers = [(from, 4, 0), (length, 2, 4)];
        for (number, bytes, first_bit) in numbers {
            for byte in 0..bytes {
                let value = (number >> (8 * byte)) as u8;
                if value != 0 {
                    out.push(value);
                    out[place] |= 1 << (first_bit + byte);
                }
            }
        }
        from += length;
        left -= length;
    }
}
