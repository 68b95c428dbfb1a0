//! Numbered slots. The slot freed last is used next, so the numbers depend only on the history.

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(value);
            return index;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as u32
    }

    /// Takes a value out and frees its slot.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        self.slots[index as usize].take().expect("the slot was freed twice")
    }

    /// Takes a value out temporarily. Its slot stays reserved until [`put`](Self::put) or
    /// [`forget`](Self::forget).
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> T {
        self.slots[index as usize].take().expect("the slot is empty")
    }

    #[inline]
    pub(crate) fn put(&mut self, index: u32, value: T) {
        self.slots[index as usize] = Some(value);
    }

    /// Frees the slot of a value that was taken out.
    #[inline]
    pub(crate) fn forget(&mut self, index: u32) {
        debug_assert!(self.slots[index as usize].is_none());
        self.free.push(index);
    }

    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize).and_then(Option::as_ref)
    }

    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize).and_then(Option::as_mut)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        self.slots[index as usize].as_ref().expect("the slot is empty")
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].as_mut().expect("the slot is empty")
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// Returns all values with their slot numbers, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_last_in_first_out() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = ["a", "b", "c"].into_iter().map(|v| slab.insert(v)).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!((slab.remove(0), slab.remove(2)), ("a", "c"));
        assert_eq!((slab.insert("d"), slab.insert("e"), slab.insert("f")), (2, 0, 3));
        assert_eq!(slab.len(), 4);
    }

    #[test]
    fn taken_value_keeps_its_slot() {
        let mut slab = Slab::new();
        let index = slab.insert(1);
        let value = slab.take(index);
        assert_eq!((slab.insert(2), slab.find(index)), (1, None));
        slab.put(index, value + 10);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &11), (1, &2)]);
    }
}
