//! A short queue, of which a load has two for each connection.

use std::collections::VecDeque;

/// A queue that needs no memory of its own if it has one place.
#[derive(Debug)]
pub(super) enum Queue<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

impl<T> Queue<T> {
    /// A queue with so many places. It grows if it needs more, unless it has one place.
    pub(super) fn new(places: usize) -> Queue<T> {
        if places == 1 { Queue::One(None) } else { Queue::Many(VecDeque::with_capacity(places)) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Queue::One(one) => usize::from(one.is_some()),
            Queue::Many(many) => many.len(),
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        match self {
            Queue::One(one) => one.as_ref(),
            Queue::Many(many) => many.front(),
        }
    }

    /// Adds an element at the end. There must be a place.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self {
            Queue::One(one) => {
                debug_assert!(one.is_none(), "a queue with one place was full");
                *one = Some(value);
            }
            Queue::Many(many) => many.push_back(value),
        }
    }

    /// Takes the first element.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        match self {
            Queue::One(one) => one.take(),
            Queue::Many(many) => many.pop_front(),
        }
    }

    /// Exchanges the first element with the one at a position, if the queue is that long.
    #[inline]
    pub(super) fn bring_forward(&mut self, position: usize) {
        match self {
            Queue::Many(many) if position > 0 && position < many.len() => many.swap(0, position),
            _ => {}
        }
    }

    /// All elements, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            Queue::One(one) => (one.as_ref(), None),
            Queue::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The last elements, so many, in order. There must be as many.
    #[inline]
    pub(super) fn last_mut(&mut self, count: usize) -> impl Iterator<Item = &mut T> {
        let (one, many) = match self {
            Queue::One(one) => (one.as_mut().filter(|_| count > 0), None),
            Queue::Many(many) => (None, Some(many.range_mut(many.len() - count..))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<T: Ord> Queue<T> {
    /// Inserts an element in front of those that are greater; at the end if none is.
    pub(super) fn push_sorted(&mut self, value: T) {
        match self {
            Queue::Many(many) => {
                let at = many.partition_point(|earlier| *earlier <= value);
                many.insert(at, value);
            }
            Queue::One(_) => self.push(value),
        }
    }
}
