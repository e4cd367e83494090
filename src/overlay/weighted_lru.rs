//! An LRU cache bounded by entries and by total weight.

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::growing_lru::growing_lru;

/// Evicts least recently used entries until the rest fits both bounds.
pub(super) struct WeightedLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    cost: usize,
    max_weight: usize,
}

impl<K: Hash + Eq, V> WeightedLru<K, V> {
    /// A cache of at most `max_entries` entries with a total weight of at most `max_weight`.
    pub fn new(max_entries: NonZeroUsize, max_weight: usize) -> Self {
        Self { entries: growing_lru(max_entries), cost: 0, max_weight }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// The value, to modify it; its weight must not change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Adds or replaces an entry. An entry above the maximum weight is not kept.
    pub fn put(&mut self, key: K, value: V, cost: usize) {
        self.cost += cost;
        if let Some((_, (_, replaced))) = self.entries.push(key, (value, cost)) {
            self.cost -= replaced;
        }
        while self.cost > self.max_weight {
            let Some((_, (_, dropped))) = self.entries.pop_lru() else { return };
            self.cost -= dropped;
        }
    }

    pub fn pop(&mut self, key: &K) {
        if let Some((_, dropped)) = self.entries.pop(key) {
            self.cost -= dropped;
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.cost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: usize, cost: usize) -> WeightedLru<u32, char> {
        WeightedLru::new(NonZeroUsize::new(entries).unwrap(), cost)
    }

    #[test]
    fn the_oldest_go_when_the_rest_is_too_heavy() {
        let mut cache = cache(10, 100);
        cache.put(1, 'a', 40);
        cache.put(2, 'b', 40);
        assert_eq!(cache.get(&1), Some(&'a'));
        cache.put(3, 'c', 40);
        assert_eq!(cache.get(&1), Some(&'a'));
        assert_eq!(cache.get(&2), None);
        cache.put(4, 'd', 101);
        assert!([1, 2, 3, 4].iter().all(|key| cache.get(key).is_none()));
        assert_eq!(cache.cost, 0);
    }

    #[test]
    fn what_leaves_any_way_weighs_nothing() {
        let mut cache = cache(2, 100);
        for key in 0..10 {
            cache.put(key, 'x', 30);
        }
        assert_eq!(cache.cost, 60, "two entries at most");
        cache.put(9, 'y', 10);
        assert_eq!(cache.cost, 40, "replaced");
        cache.pop(&9);
        assert_eq!(cache.cost, 30);
        cache.clear();
        assert_eq!(cache.cost, 0);
    }
}
