//! LRU caches whose tables grow with their entries.

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

/// An empty LRU cache of at most `max` entries. [`LruCache::new`] allocates the whole table at
/// once: four megabytes for the caches of a session, and most sessions have few entries.
pub(crate) fn growing_lru<K: Hash + Eq, V>(max: NonZeroUsize) -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(max);
    cache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_as_any_other() {
        let mut cache = growing_lru(NonZeroUsize::new(2).unwrap());
        for key in 0..5 {
            cache.put(key, ());
        }
        assert_eq!(cache.iter().map(|(key, ())| *key).collect::<Vec<_>>(), [4, 3]);
    }
}
