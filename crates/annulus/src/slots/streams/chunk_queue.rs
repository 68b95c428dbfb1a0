//! Chunks to be sent, in order.

use crate::bytes::chunk::Chunk;
use std::collections::VecDeque;

/// A queue whose first chunk needs no memory of its own: the commonest has one or none.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "slots are small, and hardly any stream queues a second chunk"
)]
pub(super) struct ChunkQueue {
    pub(super) first: Option<Chunk>,
    rest: Option<Box<VecDeque<Chunk>>>,
}

impl ChunkQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.get_or_insert_default().push_back(chunk);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        std::mem::replace(&mut self.first, next)
    }

    /// The chunk, if there is only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&Chunk> {
        self.first.as_ref().filter(|_| self.rest.as_ref().is_none_or(|rest| rest.is_empty()))
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Chunk> {
        self.rest.as_mut().and_then(|rest| rest.back_mut()).or(self.first.as_mut())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }
}
