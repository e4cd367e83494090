//! Maps of users and groups: what a client calls them, and what the server does.

use toml::Spanned;

use super::error::Result;
use super::limits::MAX_ID_RANGES;
use super::written::{self, SourceText};

/// Ranges of ids, as those of a user namespace: an id is in one at most, on either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

/// So many ids, from one on, on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// What a client calls the first.
    pub client: u32,
    /// What the server calls it.
    pub server: u32,
    /// How many there are: at least one.
    pub count: u32,
}

impl IdMap {
    /// Its ranges, in the file's order.
    pub fn ranges(&self) -> &[IdRange] {
        &self.0
    }

    /// What the server calls the client's `id`; `None` where the map does not have it.
    pub fn to_server(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| moved(id, range.client, range.server, range.count))
    }

    /// What a client is to call the server's `id`; `None` where the map does not have it.
    pub fn to_client(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| moved(id, range.server, range.client, range.count))
    }
}

/// `id` in the range of `count` from `from` on, as one of the range from `to` on.
fn moved(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let nth = id.checked_sub(from).filter(|nth| *nth < count)?;
    to.checked_add(nth)
}

/// Reads `map_uids` or `map_gids`; without ranges there is no map.
///
/// `is_root_squashed` refuses a range that would make a client's id the server's 0.
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
            return Err(wrong("a range of no ids").with_hint("leave it out, or `count` for one id"));
        }
        // The last number is -1, which is no id but "leave it" of chown(2).
        if client.checked_add(count).is_none() || server.checked_add(count).is_none() {
            return Err(wrong("ids end at 4294967294"));
        }
        if map.iter().any(|other| overlaps(other.client, other.count, client, count)) {
            return Err(wrong("a client's id would be two ids of the server"));
        }
        if map.iter().any(|other| overlaps(other.server, other.count, server, count)) {
            let hint = "the server's ids are shown to clients by the same map";
            return Err(wrong("an id of the server would be two of a client").with_hint(hint));
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
