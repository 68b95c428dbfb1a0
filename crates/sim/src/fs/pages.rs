//! The content of a file, in the page cache and on the device.

use crate::random::Random;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes per page.
pub(super) const PAGE_SIZE: usize = 4096;

/// The content of a file. Missing pages read as zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    live: BTreeMap<u64, Page>,
    len: u64,
    /// The content on the device.
    durable: BTreeMap<u64, Rc<[u8; PAGE_SIZE]>>,
    durable_len: u64,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: Rc<[u8; PAGE_SIZE]>,
    /// Whether the device has other bytes for this page, or none.
    dirty: bool,
    cached: bool,
}

/// Splits a range into parts of pages: page number, offset in the page, number of bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let inside = (at % PAGE_SIZE as u64) as usize;
        let count = (PAGE_SIZE - inside).min((end - at) as usize);
        let part = (at / PAGE_SIZE as u64, inside, count);
        at += count as u64;
        (count > 0).then_some(part)
    })
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages that take space on the device.
    pub(super) fn count(&self) -> usize {
        self.live.len()
    }

    /// Returns how many pages a write would add.
    pub(super) fn missing(&self, offset: u64, len: usize) -> usize {
        parts(offset, len).filter(|(page, ..)| !self.live.contains_key(page)).count()
    }

    /// Returns true if a read needs no access to the device.
    pub(super) fn is_cached(&self, offset: u64, len: usize) -> bool {
        let readable = len.min(self.len.saturating_sub(offset) as usize);
        parts(offset, readable).all(|(page, ..)| self.live.get(&page).is_none_or(|it| it.cached))
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.len != self.durable_len || self.live.values().any(|page| page.dirty)
    }

    /// Returns the bytes of a range, up to the end of the file. The read adds their pages to the
    /// cache, unless `past_cache` is set.
    pub(super) fn read(&mut self, offset: u64, len: usize, past_cache: bool) -> Vec<u8> {
        let readable = len.min(self.len.saturating_sub(offset) as usize);
        let mut bytes = Vec::with_capacity(readable);
        for (page, at, count) in parts(offset, readable) {
            match self.live.get_mut(&page) {
                Some(page) => {
                    page.cached |= !past_cache;
                    bytes.extend_from_slice(&page.bytes[at..at + count]);
                }
                None => bytes.resize(bytes.len() + count, 0),
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (page, at, count) in parts(offset, bytes.len()) {
            let (part, behind) = rest.split_at(count);
            Rc::make_mut(&mut self.page_for_writing(page).bytes)[at..at + count]
                .copy_from_slice(part);
            rest = behind;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Adds pages of zeros where pages are missing.
    pub(super) fn allocate(&mut self, offset: u64, len: usize) {
        for (page, ..) in parts(offset, len) {
            if !self.live.contains_key(&page) {
                self.page_for_writing(page);
            }
        }
    }

    /// Returns the offset of the first byte of data at or after `offset`.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (page, _) = self.live.range(offset / PAGE_SIZE as u64..).next()?;
        Some(offset.max(page * PAGE_SIZE as u64)).filter(|data| *data < self.len)
    }

    /// Returns the offset of the first byte of a hole at or after `offset`. The end of the file
    /// counts as a hole.
    pub(super) fn next_hole(&self, offset: u64) -> Option<u64> {
        let missing = (offset / PAGE_SIZE as u64..).find(|page| !self.live.contains_key(page))?;
        (offset < self.len).then(|| offset.max(missing * PAGE_SIZE as u64).min(self.len))
    }

    /// Turns a range into a hole.
    pub(super) fn punch(&mut self, offset: u64, len: usize) {
        for (page, at, count) in parts(offset, len) {
            if count == PAGE_SIZE {
                self.live.remove(&page);
            } else if self.live.contains_key(&page) {
                Rc::make_mut(&mut self.page_for_writing(page).bytes)[at..at + count].fill(0);
            }
        }
    }

    /// Returns a page to write to, and marks it dirty.
    fn page_for_writing(&mut self, page: u64) -> &mut Page {
        let empty = || Page { bytes: Rc::new([0; PAGE_SIZE]), dirty: true, cached: true };
        let page = self.live.entry(page).or_insert_with(empty);
        (page.dirty, page.cached) = (true, true);
        page
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.live.split_off(&len.div_ceil(PAGE_SIZE as u64));
            let inside = (len % PAGE_SIZE as u64) as usize;
            if inside > 0 && self.live.contains_key(&(len / PAGE_SIZE as u64)) {
                Rc::make_mut(&mut self.page_for_writing(len / PAGE_SIZE as u64).bytes)[inside..]
                    .fill(0);
            }
        }
        self.len = len;
    }

    /// Writes all pages and the length to the device.
    pub(super) fn sync(&mut self) {
        self.durable.clear();
        for (&number, page) in &mut self.live {
            page.dirty = false;
            self.durable.insert(number, page.bytes.clone());
        }
        self.durable_len = self.len;
    }

    /// Drops all pages from the cache that are also on the device.
    pub(super) fn drop_cache(&mut self) {
        self.live.values_mut().for_each(|page| page.cached = page.dirty);
    }

    /// Replaces the content with what remains after a power cut: the synced pages, and a random
    /// choice of the unsynced ones.
    pub(super) fn cut_power(&mut self, random: &mut Random) {
        let mut kept = self.durable.clone();
        for (&number, page) in self.live.iter().filter(|(_, page)| page.dirty) {
            if random.chance(500) {
                kept.insert(number, page.bytes.clone());
            }
        }
        let reached = kept.keys().next_back().map_or(0, |last| (last + 1) * PAGE_SIZE as u64);
        let len = match self.len {
            longer if longer >= self.durable_len => longer.min(reached).max(self.durable_len),
            shorter if random.chance(500) => shorter,
            _ => self.durable_len,
        };
        let page = |(number, bytes)| (number, Page { bytes, dirty: false, cached: false });
        self.live = kept.into_iter().map(page).collect();
        self.len = self.len.max(self.durable_len);
        self.set_len(len);
        self.sync();
        self.drop_cache();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritten_bytes_read_as_zero() {
        let mut pages = Pages::default();
        pages.write(4090, &[1; 12]);
        assert_eq!((pages.len(), pages.count(), pages.missing(0, 8193)), (4102, 2, 1));
        let all = pages.read(0, 10_000, false);
        assert_eq!(
            (all.len(), &all[4090..], all[..4090].iter().max()),
            (4102, &[1; 12][..], Some(&0))
        );
        pages.set_len(4095);
        pages.set_len(5000);
        assert_eq!(pages.read(4090, 10, false), [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn holes_are_found_and_punched() {
        let page = PAGE_SIZE as u64;
        let mut pages = Pages::default();
        pages.write(page, &[1; 2 * PAGE_SIZE]);
        pages.set_len(5 * page - 1);
        assert_eq!((pages.next_data(0), pages.next_data(page + 1)), (Some(page), Some(page + 1)));
        assert_eq!((pages.next_hole(0), pages.next_hole(page + 1)), (Some(0), Some(3 * page)));
        assert_eq!((pages.next_data(3 * page), pages.next_hole(5 * page)), (None, None));
        pages.write(3 * page, &[1; 2 * PAGE_SIZE - 1]);
        assert_eq!(pages.next_hole(page), Some(5 * page - 1), "the end is not a hole");
        pages.punch(page + 1, 2 * PAGE_SIZE);
        assert_eq!((pages.next_hole(page), pages.count()), (Some(2 * page), 3));
        assert_eq!(pages.read(page, 2, false), [1, 0]);
        assert_eq!(pages.read(3 * page, 2, false), [0, 1]);
    }

    #[test]
    fn power_cut_keeps_synced_pages() {
        let mut seen = [false; 2];
        for seed in 0..50 {
            let mut pages = Pages::default();
            pages.write(0, &[1; PAGE_SIZE]);
            pages.sync();
            pages.write(PAGE_SIZE as u64, &[2; PAGE_SIZE]);
            pages.write(10, &[3; 10]);
            pages.cut_power(&mut Random::new(seed));
            let got = pages.read(0, 3 * PAGE_SIZE, false);
            assert!(got.len() == PAGE_SIZE || got.len() == 2 * PAGE_SIZE, "{}", got.len());
            assert!(got[10] == 1 || got[10..20] == [3; 10]);
            assert!(got[..10] == [1; 10] && got[20] == 1);
            seen[got.len() / PAGE_SIZE - 1] = true;
        }
        assert_eq!(seen, [true; 2]);
    }

    #[test]
    fn power_cut_may_undo_unsynced_truncation() {
        let lens = |seed| {
            let mut pages = Pages::default();
            pages.write(0, &[1; 100]);
            pages.sync();
            pages.set_len(50);
            pages.cut_power(&mut Random::new(seed));
            assert_eq!(pages.read(0, 50, false), [1; 50]);
            pages.len()
        };
        let lens: Vec<u64> = (0..20).map(lens).collect();
        assert!(lens.contains(&50) && lens.contains(&100), "{lens:?}");
    }

    #[test]
    fn reading_fills_a_dropped_cache() {
        let mut pages = Pages::default();
        pages.write(0, &[1; 2 * PAGE_SIZE]);
        pages.drop_cache();
        assert!(pages.is_cached(0, 2 * PAGE_SIZE), "a dirty page was dropped from the cache");
        pages.sync();
        pages.drop_cache();
        assert!(!pages.is_cached(0, 1) && pages.is_cached(2 * PAGE_SIZE as u64, 9));
        pages.read(0, 1, true);
        assert!(!pages.is_cached(0, 1), "a read past the cache was cached");
        pages.read(0, 1, false);
        assert!(pages.is_cached(0, 1) && !pages.is_cached(PAGE_SIZE as u64, 1));
    }
}
