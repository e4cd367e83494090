//! Maps between the uids and gids of clients and those of the server.

use toml::Spanned;

use super::error::Result;
use super::limits::MAX_ID_RANGES;
use super::written::{self, SourceText};

/// Ranges of ids, as in a user namespace. They do not overlap, on either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

/// A range of `count` ids on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// First id on the client.
    pub client: u32,
    /// First id on the server.
    pub server: u32,
    /// Number of ids, at least one.
    pub count: u32,
}

impl IdMap {
    /// The ranges, in the file's order.
    pub fn ranges(&self) -> &[IdRange] {
        &self.0
    }

    /// Maps a client's id to the server's; `None` if it is in no range.
    pub fn to_server(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| moved(id, range.client, range.server, range.count))
    }

    /// Maps a server's id to the client's; `None` if it is in no range.
    pub fn to_client(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| moved(id, range.server, range.client, range.count))
    }
}

/// Translates `id` from the range at `from` to the range at `to`.
fn moved(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let nth = id.checked_sub(from).filter(|nth| *nth < count)?;
    to.checked_add(nth)
}

/// Checks `map_uids` or `map_gids`; `None` without ranges.
///
/// With `is_root_squashed`, rejects ranges that map a client's id to the server's 0.
pub(super) fn check(
    source: &SourceText<'_>,
    ranges: &[Spanned<written::IdRangeToml>],
    is_root_squashed: bool,
) -> Result<Option<IdMap>> {
    source.at_most("ranges of ids", ranges, MAX_ID_RANGES)?;
    let mut map: Vec<IdRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let written::IdRangeToml { client, server, count } = *range.get_ref();
        let wrong = |what: &str| source.wrong(&range.span(), what);
        if count == 0 {
            return Err(wrong("an empty range").with_hint("leave it out, or `count` for one id"));
        }
        // 4294967295 is -1, which means "no change" in chown(2).
        if client.checked_add(count).is_none() || server.checked_add(count).is_none() {
            return Err(wrong("ids end at 4294967294"));
        }
        if map.iter().any(|other| overlaps(other.client, other.count, client, count)) {
            return Err(wrong("a client's id would map to two ids of the server"));
        }
        if map.iter().any(|other| overlaps(other.server, other.count, server, count)) {
            let hint = "the server's ids are shown to clients by the same map";
            return Err(
                wrong("an id of the server would map to two ids of a client").with_hint(hint)
            );
        }
        if is_root_squashed && server == 0 {
            let hint = "add the option no_root_squash, if this client may be root here";
            return Err(wrong("root_squash takes the server's id 0 away").with_hint(hint));
        }
        map.push(IdRange { client, server, count });
    }
    Ok((!map.is_empty()).then_some(IdMap(map)))
}

/// Whether two ranges have an id in common.
fn overlaps(a: u32, a_count: u32, b: u32, b_count: u32) -> bool {
    let end = |start: u32, count: u32| u64::from(start) + u64::from(count);
    u64::from(a) < end(b, b_count) && u64::from(b) < end(a, a_count)
}
