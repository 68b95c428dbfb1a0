//! The state of each descriptor: its readiness, and the operations that wait for it.

use super::input::InputOp;
use crate::slots::{OpKind, Token};
use annulus_kernel::Fd;
use annulus_kernel::epoll::EventFlags;

/// Edges after which a read may succeed or report an error.
const READABLE_FLAGS: EventFlags = EventFlags::IN.union(EXCEPTIONAL_FLAGS);
/// Edges after which a write may succeed or report an error.
const WRITABLE_FLAGS: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
/// Edges after which a receive may find more than bytes: the end, an error, or an urgent mark,
/// which cuts the receive short.
const EXCEPTIONAL_FLAGS: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// The state of one descriptor.
///
/// A readiness bit that is set may be stale: it leads to a try, and a try that finds nothing clears
/// it. A clear bit is exact: bytes that arrive after such a try cause an edge.
///
/// Each value fills one cache line, so that its use costs at most one cache miss: with a thousand
/// connections, no line stays in the nearest cache until it is needed again.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Watch {
    pub(super) input: Option<(Token, InputOp)>,
    /// Index of the operation that waits for the descriptor to become writable.
    pub(super) output: Option<u32>,
    pub(super) registered: bool,
    /// Whether the registration includes `EPOLLOUT`.
    pub(super) has_out_edges: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether an edge has reported more than bytes, so that a short receive does not mean that the
    /// socket is empty. It stays set until a try finds nothing. A later edge without these flags
    /// does not clear it, because that edge may come from an earlier socket with the same
    /// descriptor number, which was closed here but lives on as a duplicate.
    exceptional: bool,
    /// Whether a short receive may leave bytes in the socket; `None` until the first short receive.
    pub(super) short_receive_is_ambiguous: Option<bool>,
    /// Whether the last receive of messages filled every buffer, so that the next one gets more.
    pub(super) filled_batch: bool,
    /// Whether the descriptor is in the queue of descriptors to try.
    pub(super) queued: bool,
}

impl Watch {
    /// Records an edge.
    #[inline]
    fn record_edge(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(READABLE_FLAGS);
        self.writable |= flags.intersects(WRITABLE_FLAGS);
        self.exceptional |= flags.intersects(EXCEPTIONAL_FLAGS);
    }

    /// Records that a try found nothing to read: later bytes cause an edge.
    #[inline]
    pub(super) fn record_empty(&mut self) {
        (self.readable, self.exceptional) = (false, false);
    }

    /// Records that a receive did not fill its buffer. Unless `exceptional` is set, later bytes
    /// cause an edge.
    #[inline]
    pub(super) fn record_short_receive(&mut self) {
        self.readable = self.exceptional;
    }

    #[inline]
    pub(super) fn can_read(&self) -> bool {
        self.readable && self.input.is_some()
    }

    #[inline]
    pub(super) fn can_write(&self) -> bool {
        self.writable && self.output.is_some()
    }

    /// Marks the descriptor as queued if it has something to try and is not queued yet. Returns
    /// true if so: the caller must then queue it.
    #[inline]
    fn mark_queued(&mut self) -> bool {
        let wanted = !self.queued && (self.can_read() || self.can_write());
        self.queued |= wanted;
        wanted
    }
}

/// All descriptors by number, and the descriptor of each operation by token.
#[derive(Debug, Default)]
pub(super) struct Watches {
    table: Vec<Watch>,
    /// The descriptor of the last operation that waited, by the kind and slot of its token.
    fds: [Vec<Fd>; OpKind::ALL.len()],
}

impl Watches {
    /// Returns the state of a descriptor that an operation has used before.
    #[inline]
    pub(super) fn get(&mut self, fd: Fd) -> &mut Watch {
        &mut self.table[fd.raw() as usize]
    }

    /// Returns the token of the operation that waits to read from a descriptor.
    #[inline]
    pub(super) fn reader(&self, fd: Fd) -> Option<Token> {
        self.table[fd.raw() as usize].input.map(|(token, _)| token)
    }

    /// Returns the state of a descriptor, or `None` if its number is beyond the table.
    #[inline]
    pub(super) fn find(&mut self, fd: Fd) -> Option<&mut Watch> {
        self.table.get_mut(usize::try_from(fd.raw()).ok()?)
    }

    /// Returns the state of a descriptor, and adds it if it is new.
    pub(super) fn get_or_insert(&mut self, fd: Fd) -> &mut Watch {
        let index = fd.raw() as usize;
        if index >= self.table.len() {
            self.table.resize_with((index + 1).next_power_of_two(), Watch::default);
        }
        &mut self.table[index]
    }

    /// Resets the state of a descriptor, since its number may be reused.
    pub(super) fn reset(&mut self, fd: Fd) {
        if let Some(watch) = self.find(fd) {
            debug_assert!(
                watch.input.is_none() && watch.output.is_none(),
                "a descriptor was reset with an operation in flight"
            );
            *watch = Watch { queued: watch.queued, ..Watch::default() };
        }
    }

    /// Records an edge. Returns true if the caller must queue the descriptor.
    #[inline]
    pub(super) fn record_edge(&mut self, fd: Fd, flags: EventFlags) -> bool {
        self.find(fd).is_some_and(|watch| {
            watch.record_edge(flags);
            watch.mark_queued()
        })
    }

    /// Marks a descriptor as queued if it has something to try and is not queued yet. Returns true
    /// if so: the caller must then queue it.
    #[inline]
    pub(super) fn mark_queued(&mut self, fd: Fd) -> bool {
        self.get(fd).mark_queued()
    }

    /// Records the descriptor that an operation waits for.
    pub(super) fn set_fd(&mut self, token: Token, fd: Fd) {
        let fds = &mut self.fds[token.kind() as usize];
        let slot = token.slot() as usize;
        if slot >= fds.len() {
            fds.resize((slot + 1).next_power_of_two(), Fd::NONE);
        }
        fds[slot] = fd;
    }

    /// Returns the descriptor that an operation may be waiting for.
    pub(super) fn fd_of(&self, token: Token) -> Option<Fd> {
        self.fds[token.kind() as usize]
            .get(token.slot() as usize)
            .copied()
            .filter(|fd| *fd != Fd::NONE)
    }
}

const _: () = assert!(size_of::<Watch>() == 64, "a Watch does not fill one cache line");
