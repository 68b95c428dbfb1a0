//! The content of a file, in the page cache and on the device.

use crate::random::Random;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

pub(super) const PAGE_SIZE: usize = 4096;
/// Bytes per sector, which the device writes as a whole or not at all.
const SECTOR_SIZE: usize = 512;

/// The pages on the device, by their numbers.
type DurablePages = BTreeMap<u64, Rc<[u8; PAGE_SIZE]>>;

/// The content of a file. Missing pages read as zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    live: BTreeMap<u64, Page>,
    len: u64,
    /// The content on the device.
    durable: DurablePages,
    durable_len: u64,
    /// The shortest length since the last sync. If it is below `durable_len`, a truncation is not
    /// on the device yet.
    shortest_len: u64,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: Rc<[u8; PAGE_SIZE]>,
    /// The device has different content, or none, and the next sync writes the page.
    dirty: bool,
    /// A sync has failed to write the page. It counts as clean, so no later sync writes it, unless
    /// it is changed again.
    lost: bool,
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

    /// Returns true if a write adds at most `free` pages.
    pub(super) fn fits(&self, offset: u64, len: usize, free: usize) -> bool {
        let mut missing = parts(offset, len).filter(|(page, ..)| !self.live.contains_key(page));
        missing.nth(free).is_none()
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
        let empty =
            || Page { bytes: Rc::new([0; PAGE_SIZE]), dirty: true, lost: false, cached: true };
        let page = self.live.entry(page).or_insert_with(empty);
        (page.dirty, page.cached) = (true, true);
        page
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.shortest_len = self.shortest_len.min(len);
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

    pub(super) fn sync(&mut self) {
        self.durable.retain(|number, _| self.live.contains_key(number));
        self.write_back(0..u64::MAX);
        (self.durable_len, self.shortest_len) = (self.len, self.len);
    }

    /// Syncs a range of bytes, with earlier truncations and as much of the length as the range
    /// needs. Other bytes may be lost in a power cut.
    pub(super) fn sync_range(&mut self, bytes: Range<u64>) {
        self.sync_truncation();
        self.durable_len = self.durable_len.max(bytes.end);
        self.shortest_len = self.durable_len;
        self.write_back(page_numbers(bytes));
    }

    /// Truncates the content on the device, if a truncation is not there yet.
    fn sync_truncation(&mut self) {
        if self.shortest_len < self.durable_len {
            truncate(&mut self.durable, self.shortest_len);
            self.durable_len = self.shortest_len;
        }
    }

    /// Writes dirty pages to the device.
    fn write_back(&mut self, numbers: Range<u64>) {
        for (&number, page) in self.live.range_mut(numbers).filter(|(_, page)| page.dirty) {
            (page.dirty, page.lost) = (false, false);
            self.durable.insert(number, page.bytes.clone());
        }
    }

    /// Performs a sync of a range of bytes that fails. Each dirty page reaches the device or is
    /// lost, at random. All of them are clean afterwards, so a later sync succeeds without writing
    /// the lost pages.
    pub(super) fn fail_sync(&mut self, bytes: Range<u64>, random: &mut Random) {
        // New pages are never on the device without the truncation before them.
        self.sync_truncation();
        let dirty = self.live.range_mut(page_numbers(bytes)).filter(|(_, page)| page.dirty);
        for (&number, page) in dirty {
            (page.dirty, page.lost) = (false, random.chance(500));
            if !page.lost {
                self.durable.insert(number, page.bytes.clone());
            }
        }
    }

    /// Drops all clean pages from the cache. Pages that a failed sync has lost revert to the
    /// content on the device.
    pub(super) fn drop_cache(&mut self) {
        for (number, page) in &mut self.live {
            page.cached = page.dirty;
            if page.lost && !page.dirty {
                let written = self.durable.get(number).cloned();
                (page.bytes, page.lost) =
                    (written.unwrap_or_else(|| Rc::new([0; PAGE_SIZE])), false);
            }
        }
    }

    /// Replaces the content with what remains after a power cut: the synced sectors, and a random
    /// choice of the others. The new length may survive without the bytes, which then read as
    /// zeros. A truncation or a punched hole may survive without bytes that were written later.
    pub(super) fn cut_power(&mut self, random: &mut Random) {
        let mut kept = self.durable.clone();
        let mut old_len = self.durable_len;
        if self.shortest_len < old_len && random.chance(500) {
            old_len = self.shortest_len;
            truncate(&mut kept, old_len);
        }
        let uncut = page_numbers(0..self.shortest_len);
        kept.retain(|number, _| {
            let is_punched = uncut.contains(number) && !self.live.contains_key(number);
            !is_punched || random.chance(500)
        });
        let mut reached = old_len;
        for (&number, page) in self.live.iter().filter(|(_, page)| page.dirty || page.lost) {
            // None, about half, or all of the page's sectors.
            let per_mille = random.pick(&[0, 500, 1000]);
            for start in (0..PAGE_SIZE).step_by(SECTOR_SIZE) {
                if random.chance(per_mille) {
                    let sector = start..start + SECTOR_SIZE;
                    let bytes = kept.entry(number).or_insert_with(|| Rc::new([0; PAGE_SIZE]));
                    Rc::make_mut(bytes)[sector.clone()]
                        .copy_from_slice(&page.bytes[sector.clone()]);
                    reached = reached.max(number * PAGE_SIZE as u64 + sector.end as u64);
                }
            }
        }
        let grown = self.len.min(reached).max(old_len);
        let lens = if self.len < old_len {
            [self.len, self.len, old_len]
        } else {
            [self.len, grown, old_len]
        };
        let len = random.pick(&lens);
        let page =
            |(number, bytes)| (number, Page { bytes, dirty: true, lost: false, cached: false });
        self.live = kept.into_iter().map(page).collect();
        self.len = self.len.max(old_len);
        self.set_len(len);
        self.sync();
        self.drop_cache();
    }
}

/// Returns the numbers of the pages that have bytes of a range.
fn page_numbers(bytes: Range<u64>) -> Range<u64> {
    bytes.start / PAGE_SIZE as u64..bytes.end.div_ceil(PAGE_SIZE as u64)
}

/// Removes the bytes from `len` on.
fn truncate(pages: &mut DurablePages, len: u64) {
    pages.split_off(&len.div_ceil(PAGE_SIZE as u64));
    if let Some(last) = pages.get_mut(&(len / PAGE_SIZE as u64)) {
        Rc::make_mut(last)[(len % PAGE_SIZE as u64) as usize..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn unwritten_bytes_read_as_zero() {
        let mut pages = Pages::default();
        pages.write(4090, &[1; 12]);
        assert_eq!((pages.len(), pages.count()), (4102, 2));
        assert!(pages.fits(0, 8192, 0) && !pages.fits(0, 8193, 0) && pages.fits(0, 8193, 1));
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
    fn power_cut_keeps_synced_pages_and_tears_others_at_sectors() {
        let (mut lens, mut torn) = (BTreeSet::new(), 0);
        for seed in 0..100 {
            let mut pages = Pages::default();
            pages.write(0, &[1; PAGE_SIZE]);
            pages.sync();
            pages.write(PAGE_SIZE as u64, &[2; PAGE_SIZE]);
            pages.write(10, &[3; 1000]);
            pages.cut_power(&mut Random::new(seed));
            let got = pages.read(0, 3 * PAGE_SIZE, false);
            assert!(got[..10] == [1; 10] && got[1010..PAGE_SIZE] == [1; PAGE_SIZE - 1010]);
            let (first, second) = (&got[10..512], &got[512..1010]);
            assert!([first, second].iter().all(|part| part.iter().all(|byte| *byte == part[0])));
            assert!(matches!((first[0], second[0]), (1 | 3, 1 | 3)));
            for sector in got[PAGE_SIZE..].chunks(SECTOR_SIZE) {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]) && [0, 2].contains(&sector[0])
                );
            }
            torn += u32::from(first[0] != second[0]);
            lens.insert(got.len());
        }
        assert!(torn > 5, "{torn} of 100 power cuts have torn a page");
        assert!(lens.contains(&PAGE_SIZE) && lens.contains(&(2 * PAGE_SIZE)), "{lens:?}");
        assert!(lens.len() > 3 && lens.iter().all(|len| len % SECTOR_SIZE == 0), "{lens:?}");
    }

    #[test]
    fn pages_of_a_failed_sync_are_clean_and_not_on_the_device() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..50 {
            let mut pages = Pages::default();
            pages.write(0, &[1; 100]);
            pages.sync();
            pages.write(0, &[2; 100]);
            pages.fail_sync(0..u64::MAX, &mut Random::new(seed));
            assert!(!pages.is_dirty());
            assert_eq!(pages.read(0, 100, false), [2; 100], "the cache has lost the bytes");
            pages.sync();
            pages.drop_cache();
            let got = pages.read(0, 100, false);
            assert!(got == [1; 100] || got == [2; 100]);
            (lost, kept) = (lost + u32::from(got[0] == 1), kept + u32::from(got[0] == 2));
            pages.write(0, &[3]);
            pages.sync();
            pages.drop_cache();
            assert_eq!(pages.read(0, 1, false), [3], "a page that was written again is lost");
        }
        assert!(lost > 10 && kept > 10, "{lost} lost, {kept} kept");
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

    /// The contents of a file after each of many power cuts.
    fn after_power_cuts(change: impl Fn(&mut Pages)) -> BTreeSet<Vec<u8>> {
        let after = |seed| {
            let mut pages = Pages::default();
            pages.write(0, &[1; 3 * PAGE_SIZE]);
            pages.sync();
            change(&mut pages);
            pages.cut_power(&mut Random::new(seed));
            // The first byte of each page shows what the page has become.
            pages.read(0, 4 * PAGE_SIZE, false).into_iter().step_by(PAGE_SIZE).collect()
        };
        (0..200).map(after).collect()
    }

    #[test]
    fn truncation_may_survive_without_the_bytes_that_replace_the_old_ones() {
        let found = after_power_cuts(|pages| {
            pages.set_len(0);
            pages.write(0, &[2; PAGE_SIZE]);
        });
        for content in [&[][..], &[0], &[2], &[1, 1, 1]] {
            assert!(found.contains(content), "{content:?} is not in {found:?}");
        }
    }

    #[test]
    fn punched_hole_may_survive_or_not() {
        let found = after_power_cuts(|pages| pages.punch(0, 2 * PAGE_SIZE));
        let all = [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]];
        assert_eq!(found, all.map(Vec::from).into());
    }

    #[test]
    fn synced_range_survives_and_other_bytes_may_not() {
        let found = after_power_cuts(|pages| {
            pages.write(0, &[2; 2 * PAGE_SIZE]);
            pages.write(3 * PAGE_SIZE as u64, &[2; PAGE_SIZE]);
            pages.sync_range(PAGE_SIZE as u64..PAGE_SIZE as u64 + 1);
        });
        assert!(found.iter().all(|content| content[1] == 2), "{found:?}");
        for content in [&[1, 2, 1][..], &[2, 2, 1, 2], &[1, 2, 1, 0]] {
            assert!(found.contains(content), "{content:?} is not in {found:?}");
        }
    }

    #[test]
    fn synced_range_makes_the_truncation_before_it_durable() {
        let found = after_power_cuts(|pages| {
            pages.set_len(1);
            pages.write(PAGE_SIZE as u64, &[2; 100]);
            pages.sync_range(PAGE_SIZE as u64..PAGE_SIZE as u64 + 100);
        });
        assert_eq!(found, [vec![1, 2]].into());
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
