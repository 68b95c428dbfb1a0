//! The entries of a file cache: values by path, with the time of their last use. This module
//! neither reads a clock nor opens files; callers pass the time.
//!
//! When the cache is full, the clock algorithm evicts one entry: an index, the hand, moves around
//! the entries, skips each entry that has been used since it was added or last skipped, and evicts
//! the first other one. This usually takes one or two steps.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Number of entries whose age is checked when one is added.
const ENTRIES_SWEPT_PER_INSERT: usize = 2;

/// A map from paths to at most `capacity` values.
pub(super) struct Entries<T> {
    /// The index of each path's entry.
    indices: HashMap<Rc<[u8]>, usize>,
    entries: Vec<Entry<T>>,
    capacity: usize,
    /// Index of the next entry that an eviction or a sweep looks at.
    hand: usize,
}

struct Entry<T> {
    path: Rc<[u8]>,
    value: T,
    used: Cell<Duration>,
    /// Whether the entry has been used since it was added, or since [`evict`](Entries::evict) last
    /// skipped it.
    is_recent: Cell<bool>,
}

impl<T> Entries<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { indices: HashMap::new(), entries: Vec::new(), capacity, hand: 0 }
    }

    /// Changes the maximum number of entries, and evicts entries beyond it.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.entries.len() > capacity {
            self.evict();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the value of a path, and marks it as used now.
    pub(super) fn find(&self, path: &[u8], now: Duration) -> Option<&T> {
        let entry = &self.entries[*self.indices.get(path)?];
        entry.used.set(now);
        entry.is_recent.set(true);
        Some(&entry.value)
    }

    /// Returns a value without marking it as used.
    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut T> {
        Some(&mut self.entries[*self.indices.get(path)?].value)
    }

    /// Inserts a value that counts as used now, and replaces any previous one. May remove entries
    /// that were last used before `unused_since`.
    pub(super) fn insert(&mut self, path: &[u8], value: T, now: Duration, unused_since: Duration) {
        self.remove(path);
        self.sweep(unused_since);
        if self.capacity == 0 {
            return;
        }
        if self.entries.len() >= self.capacity {
            self.evict();
        }
        let path: Rc<[u8]> = path.into();
        self.indices.insert(path.clone(), self.entries.len());
        // Not recent until it is used again, so that a scan of many files does not evict files that
        // are used repeatedly.
        let (used, is_recent) = (Cell::new(now), Cell::new(false));
        self.entries.push(Entry { path, value, used, is_recent });
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<T> {
        let index = *self.indices.get(path)?;
        Some(self.remove_at(index))
    }

    pub(super) fn clear(&mut self) {
        self.indices.clear();
        self.entries.clear();
    }

    fn remove_at(&mut self, index: usize) -> T {
        let gone = self.entries.swap_remove(index);
        self.indices.remove(&gone.path);
        if let Some(moved) = self.entries.get(index) {
            self.indices.insert(moved.path.clone(), index);
        }
        gone.value
    }

    /// Removes the next entry that has not been used since it was added, or since this function
    /// last skipped it. Returns false if there are no entries.
    pub(super) fn evict(&mut self) -> bool {
        while !self.entries.is_empty() {
            let index = self.next();
            if !self.entries[index].is_recent.replace(false) {
                self.remove_at(index);
                return true;
            }
        }
        false
    }

    /// Checks the next few entries and removes those last used before `unused_since`.
    fn sweep(&mut self, unused_since: Duration) {
        for _ in 0..ENTRIES_SWEPT_PER_INSERT.min(self.entries.len()) {
            let index = self.next();
            if self.entries[index].used.get() < unused_since {
                self.remove_at(index);
            }
        }
    }

    /// Advances the hand and returns its previous position. There must be an entry.
    fn next(&mut self) -> usize {
        let index = self.hand % self.entries.len();
        self.hand = index + 1;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const NO_EXPIRY: Duration = Duration::ZERO;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn used_entries_survive_many_insertions() {
        let mut entries = Entries::new(10);
        for name in 0..5_u8 {
            entries.insert(&[name], name, ms(0), NO_EXPIRY);
        }
        for other in 10..200_u8 {
            (0..5).for_each(|name| assert!(entries.find(&[name], ms(1)).is_some(), "{name}"));
            entries.insert(&[other], other, ms(1), NO_EXPIRY);
            assert!(entries.len() <= 10);
        }
    }

    #[test]
    fn unused_entries_are_removed_as_others_are_inserted() {
        let mut entries = Entries::new(1000);
        (0..100_u32).for_each(|name| entries.insert(&name.to_le_bytes(), name, ms(0), NO_EXPIRY));
        for other in 100..200_u32 {
            entries.insert(&other.to_le_bytes(), other, ms(90), ms(50));
        }
        assert!((0..100_u32).all(|name| entries.find(&name.to_le_bytes(), ms(90)).is_none()));
        assert_eq!(entries.len(), 100);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u16),
        Find(u8),
        Change(u8, u16),
        Remove(u8),
        Capacity(u8),
        Clear,
        Pass(u8),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..20_u8, any::<u16>()).prop_map(|(name, value)| Step::Insert(name, value)),
            6 => (0..20_u8).prop_map(Step::Find),
            2 => (0..20_u8, any::<u16>()).prop_map(|(name, value)| Step::Change(name, value)),
            2 => (0..20_u8).prop_map(Step::Remove),
            1 => (0..12_u8).prop_map(Step::Capacity),
            1 => Just(Step::Clear),
            4 => any::<u8>().prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// `find` returns the latest value, the capacity is never exceeded, and below the capacity
        /// no recently used entry is removed.
        #[test]
        fn entries_match_a_map_apart_from_evictions(all in prop::collection::vec(steps(), 1..200)) {
            let (mut entries, mut capacity, mut now) = (Entries::new(8), 8, Duration::ZERO);
            // The value and the time of its last use.
            let mut model: BTreeMap<u8, (u16, Duration)> = BTreeMap::new();
            let mut has_evicted = false;
            for step in all {
                match step {
                    Step::Insert(name, value) => {
                        has_evicted |= model.len() >= capacity;
                        entries.insert(&[name], value, now, now.saturating_sub(ms(300)));
                        model.insert(name, (value, now));
                    }
                    Step::Find(name) => match entries.find(&[name], now) {
                        Some(value) => {
                            let known = model.get_mut(&name).expect("the model lacks the entry");
                            prop_assert_eq!(*value, known.0);
                            known.1 = now;
                        }
                        None => if let Some((_, used)) = model.remove(&name) {
                            prop_assert!(has_evicted || now - used > ms(300), "{} is gone", name);
                        }
                    },
                    Step::Change(name, value) => if let Some(there) = entries.get_mut(&[name]) {
                        *there = value;
                        model.get_mut(&name).expect("the model lacks the entry").0 = value;
                    }
                    Step::Remove(name) => {
                        let (value, known) = (entries.remove(&[name]), model.remove(&name));
                        prop_assert!(value.is_none() || value == known.map(|known| known.0));
                    }
                    Step::Capacity(most) => {
                        capacity = usize::from(most);
                        has_evicted |= model.len() > capacity;
                        entries.set_capacity(capacity);
                    }
                    Step::Clear => {
                        entries.clear();
                        model.clear();
                    }
                    Step::Pass(time) => now += ms(time.into()),
                }
                prop_assert!(entries.len() <= capacity);
                prop_assert_eq!(entries.len(), entries.indices.len());
            }
        }
    }
}
