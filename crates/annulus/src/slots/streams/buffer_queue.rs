//! Received bytes in lent buffers, in the order in which they came. The links lie in one table, an entry for each buffer of
//! the pool, so that a stream's queue takes four bytes and no allocation.

/// No buffer.
const NONE: u16 = u16::MAX;

/// The buffers of one stream, from the first to the last.
pub(super) struct BufferQueue {
    first: u16,
    last: u16,
}

/// For each buffer of the pool: how much is in it, and which one is next in its stream's queue.
pub(super) struct Links(Box<[Link]>);

#[derive(Clone, Copy)]
struct Link {
    len: u32,
    next: u16,
}

impl Links {
    pub(super) fn new(buffers: u32) -> Self {
        Self(vec![Link { len: 0, next: NONE }; buffers as usize].into_boxed_slice())
    }
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl BufferQueue {
    /// The last buffer, and how much is in it.
    #[inline]
    pub(super) fn last_mut<'a>(&self, links: &'a mut Links) -> Option<(u16, &'a mut u32)> {
        (self.first != NONE).then(|| (self.last, &mut links.0[usize::from(self.last)].len))
    }

    /// Adds a buffer with `len` bytes at the end.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, id: u16, len: u32) {
        if self.first == NONE {
            self.first = id;
        } else {
            links.0[usize::from(self.last)].next = id;
        }
        self.last = id;
        links.0[usize::from(id)] = Link { len, next: NONE };
    }

    /// How much is in the first buffer.
    pub(super) fn first_len(&self, links: &Links) -> Option<u32> {
        (self.first != NONE).then(|| links.0[usize::from(self.first)].len)
    }

    /// Takes the first buffer, with its length.
    #[inline]
    pub(super) fn pop(&mut self, links: &Links) -> Option<(u16, u32)> {
        let id = self.first;
        if id == NONE {
            return None;
        }
        let Link { len, next } = links.0[usize::from(id)];
        self.first = next;
        Some((id, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_queues_over_one_table_keep_their_order() {
        let mut links = Links::new(4);
        let (mut one, mut other) = (BufferQueue::default(), BufferQueue::default());
        assert!(one.pop(&links).is_none() && one.last_mut(&mut links).is_none());
        one.push(&mut links, 2, 20);
        other.push(&mut links, 0, 5);
        one.push(&mut links, 1, 10);
        let (id, len) = one.last_mut(&mut links).unwrap();
        assert_eq!((id, *len), (1, 10));
        *len += 1;
        assert_eq!(
            (one.pop(&links), one.pop(&links), one.pop(&links)),
            (Some((2, 20)), Some((1, 11)), None)
        );
        one.push(&mut links, 2, 7);
        assert_eq!((one.pop(&links), other.pop(&links)), (Some((2, 7)), Some((0, 5))));
    }
}
