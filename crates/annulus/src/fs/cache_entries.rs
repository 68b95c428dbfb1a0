//! What a cache of files remembers: values by path, with the time of their last check and of their last use. No clock and no file:
//! times are given.
//!
//! If it is full, the entry goes that was not used since the hand came by last (the clock algorithm): looking for it costs a step or
//! two, and a use costs a store.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Entries that are looked at for age when one is added.
const SWEPT: usize = 2;

/// Values by path, at most `capacity`.
pub(super) struct Entries<T> {
    places: HashMap<Rc<[u8]>, usize>,
    entries: Vec<Entry<T>>,
    capacity: usize,
    /// The next entry to look at.
    hand: usize,
}

struct Entry<T> {
    path: Rc<[u8]>,
    value: T,
    checked: Duration,
    used: Cell<Duration>,
    /// Used since the hand came by.
    is_recent: Cell<bool>,
}

impl<T> Entries<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { places: HashMap::new(), entries: Vec::new(), capacity, hand: 0 }
    }

    /// Changes how many there may be; those that are too many go.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.entries.len() > capacity {
            self.evict();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A use of an entry: the value, and when it was last checked.
    pub(super) fn find(&self, path: &[u8], now: Duration) -> Option<(&T, Duration)> {
        let entry = &self.entries[*self.places.get(path)?];
        entry.used.set(now);
        entry.is_recent.set(true);
        Some((&entry.value, entry.checked))
    }

    /// A value, without using it.
    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut T> {
        Some(&mut self.entries[*self.places.get(path)?].value)
    }

    /// Puts a value that was checked just now in the place of what was there. Entries that were used before `unused_since` may go.
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
        self.places.insert(path.clone(), self.entries.len());
        // Not recent before it is used a second time, so that a scan of many files leaves those that are in use.
        let (used, is_recent) = (Cell::new(now), Cell::new(false));
        self.entries.push(Entry { path, value, checked: now, used, is_recent });
    }

    /// Notes that an entry was checked and found as it was.
    pub(super) fn set_checked(&mut self, path: &[u8], now: Duration) {
        if let Some(place) = self.places.get(path) {
            self.entries[*place].checked = now;
        }
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<T> {
        let place = *self.places.get(path)?;
        Some(self.remove_at(place))
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
    }

    fn remove_at(&mut self, place: usize) -> T {
        let gone = self.entries.swap_remove(place);
        self.places.remove(&gone.path);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.path.clone(), place);
        }
        gone.value
    }

    /// Removes one entry, the next that was not used lately; whether there was any.
    pub(super) fn evict(&mut self) -> bool {
        while !self.entries.is_empty() {
            let place = self.next();
            if !self.entries[place].is_recent.replace(false) {
                self.remove_at(place);
                return true;
            }
        }
        false
    }

    /// Removes those of the next few that were not used since then.
    fn sweep(&mut self, unused_since: Duration) {
        for _ in 0..SWEPT.min(self.entries.len()) {
            let place = self.next();
            if self.entries[place].used.get() < unused_since {
                self.remove_at(place);
            }
        }
    }

    /// Moves the hand on, of entries of which there is one at least; where it was.
    fn next(&mut self) -> usize {
        let place = self.hand % self.entries.len();
        self.hand = place + 1;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const NEVER: Duration = Duration::ZERO;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn what_is_used_stays_when_many_others_come_by() {
        let mut entries = Entries::new(10);
        for name in 0..5_u8 {
            entries.insert(&[name], name, ms(0), NEVER);
        }
        for other in 10..200_u8 {
            (0..5).for_each(|name| assert!(entries.find(&[name], ms(1)).is_some(), "{name}"));
            entries.insert(&[other], other, ms(1), NEVER);
            assert!(entries.len() <= 10);
        }
    }

    #[test]
    fn what_is_not_used_goes_as_others_come() {
        let mut entries = Entries::new(1000);
        (0..100_u32).for_each(|name| entries.insert(&name.to_le_bytes(), name, ms(0), NEVER));
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
        Check(u8),
        Remove(u8),
        Capacity(u8),
        Clear,
        Pass(u8),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..20_u8, any::<u16>()).prop_map(|(name, value)| Step::Insert(name, value)),
            6 => (0..20_u8).prop_map(Step::Find),
            2 => (0..20_u8).prop_map(Step::Check),
            2 => (0..20_u8).prop_map(Step::Remove),
            1 => (0..12_u8).prop_map(Step::Capacity),
            1 => Just(Step::Clear),
            4 => any::<u8>().prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// What is found is what was put there last, with the time of its last check; there are never more than may be; and as long
        /// as there are fewer, nothing goes that was used lately.
        #[test]
        fn entries_are_those_of_a_map_with_some_left_out(all in prop::collection::vec(steps(), 1..200)) {
            let (mut entries, mut capacity, mut now) = (Entries::new(8), 8, Duration::ZERO);
            // Value, time of the check, time of the use.
            let mut model: BTreeMap<u8, (u16, Duration, Duration)> = BTreeMap::new();
            let mut has_evicted = false;
            for step in all {
                match step {
                    Step::Insert(name, value) => {
                        has_evicted |= model.len() >= capacity;
                        entries.insert(&[name], value, now, now.saturating_sub(ms(300)));
                        model.insert(name, (value, now, now));
                    }
                    Step::Find(name) => match entries.find(&[name], now) {
                        Some((value, checked)) => {
                            let known = model.get_mut(&name).expect("it was put there");
                            prop_assert_eq!((*value, checked), (known.0, known.1));
                            known.2 = now;
                        }
                        None => if let Some((_, _, used)) = model.remove(&name) {
                            prop_assert!(has_evicted || now - used > ms(300), "{} is gone", name);
                        }
                    },
                    Step::Check(name) => {
                        entries.set_checked(&[name], now);
                        if let Some(known) = model.get_mut(&name) { known.1 = now; }
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
                prop_assert_eq!(entries.len(), entries.places.len());
            }
        }
    }
}
