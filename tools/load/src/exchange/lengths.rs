//! The lengths of the messages of a client.

use crate::mix::Sizes;
use fastrand::Rng;
use std::collections::VecDeque;

/// The lengths of messages, as they are sent, and as their echoes come.
#[derive(Debug)]
pub(super) enum Lengths {
    /// All the same.
    Fixed(usize),
    /// Drawn for each message.
    Drawn {
        sizes: Sizes,
        random: Rng,
        /// Of the messages in flight, in order.
        in_flight: VecDeque<usize>,
    },
}

impl Lengths {
    pub(super) fn new(sizes: &Sizes, random: Rng) -> Lengths {
        match *sizes {
            Sizes::Fixed(length) => Lengths::Fixed(length),
            ref sizes => {
                Lengths::Drawn { sizes: sizes.clone(), random, in_flight: VecDeque::new() }
            }
        }
    }

    /// Puts a message into flight; returns its length.
    pub(super) fn send(&mut self) -> usize {
        match self {
            Lengths::Fixed(length) => *length,
            Lengths::Drawn { sizes, random, in_flight } => {
                let length = sizes.draw(random);
                in_flight.push_back(length);
                length
            }
        }
    }

    /// The length of the message that is answered next; zero if none is in flight and lengths differ.
    pub(super) fn next(&self) -> usize {
        match self {
            Lengths::Fixed(length) => *length,
            Lengths::Drawn { in_flight, .. } => in_flight.front().copied().unwrap_or_default(),
        }
    }

    /// The oldest message is answered.
    pub(super) fn pop(&mut self) {
        if let Lengths::Drawn { in_flight, .. } = self {
            in_flight.pop_front();
        }
    }

    /// No message is in flight any more.
    pub(super) fn clear(&mut self) {
        if let Lengths::Drawn { in_flight, .. } = self {
            in_flight.clear();
        }
    }

    /// The position of a byte in its message, and the length of that; `at` counts from the beginning of the oldest message in flight.
    pub(super) fn locate(&self, mut at: usize) -> (usize, usize) {
        let Lengths::Drawn { in_flight, .. } = self else {
            let length = self.next();
            return (at % length, length);
        };
        let mut lengths = in_flight.iter().copied();
        let mut length = lengths.next().unwrap_or_default();
        while at >= length
            && let Some(next) = lengths.next()
        {
            at -= length;
            length = next;
        }
        (at, length)
    }
}
