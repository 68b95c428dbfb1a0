//! The state of each descriptor: its readiness, and the operations that wait for it.

use super::input::Input;
use crate::slots::{Kind, Token};
use annulus_kernel::Fd;
use annulus_kernel::epoll::EventFlags;

/// A read may succeed, or report an error.
const READ: EventFlags = EventFlags::IN.union(WARY);
/// A write may succeed, or report an error.
const WRITE: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
/// A receive may report more than bytes: an end, an error, an urgent mark that cuts it short.
const WARY: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// One descriptor.
///
/// A readiness bit that is set may be stale: it leads to a try, and a try that finds nothing clears it. A bit that is clear is
/// exact: bytes that come after such a try bring an edge.
///
/// Each has a cache line of its own: with a thousand connections, a line has left the nearest cache by its next turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Watch {
    pub(super) input: Option<(Token, Input)>,
    /// Index of the operation that waits for a descriptor to become writable.
    pub(super) output: Option<u32>,
    pub(super) registered: bool,
    /// Registered for `EPOLLOUT`, too.
    pub(super) has_out_edges: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// An edge has told of more than bytes: after a short receive there may be more to receive. Stays until a try finds nothing,
    /// since another edge under this number may belong to a socket that was closed here and lives on as a duplicate.
    wary: bool,
    /// Whether that holds after each of its receives; `None` until one was short.
    pub(super) in_pieces: Option<bool>,
    /// The last receive of messages filled every buffer: the next one gets more.
    pub(super) bulk: bool,
    /// In the queue of descriptors to try.
    pub(super) queued: bool,
}

impl Watch {
    /// An edge came.
    #[inline]
    fn note(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(READ);
        self.writable |= flags.intersects(WRITE);
        self.wary |= flags.intersects(WARY);
    }

    /// A try found nothing to read: what comes later brings an edge.
    #[inline]
    pub(super) fn emptied(&mut self) {
        (self.readable, self.wary) = (false, false);
    }

    /// A receive did not fill its buffer: bytes that come later bring an edge.
    #[inline]
    pub(super) fn drained(&mut self) {
        self.readable = self.wary;
    }

    #[inline]
    pub(super) fn can_read(&self) -> bool {
        self.readable && self.input.is_some()
    }

    #[inline]
    pub(super) fn can_write(&self) -> bool {
        self.writable && self.output.is_some()
    }

    /// True if it has something to try and is not queued: the caller queues it.
    #[inline]
    fn enlist(&mut self) -> bool {
        let wanted = !self.queued && (self.can_read() || self.can_write());
        self.queued |= wanted;
        wanted
    }
}

/// All descriptors by number, and the descriptor of each operation by token.
#[derive(Debug, Default)]
pub(super) struct Watches {
    table: Vec<Watch>,
    /// The descriptor of the last operation that waited, by kind and slot of its token.
    fds: [Vec<Fd>; Kind::ALL.len()],
}

impl Watches {
    /// A descriptor that operations have named before.
    #[inline]
    pub(super) fn known(&mut self, fd: Fd) -> &mut Watch {
        &mut self.table[fd.raw() as usize]
    }

    /// The operation that waits to read from a descriptor.
    #[inline]
    pub(super) fn reader(&self, fd: Fd) -> Option<Token> {
        self.table[fd.raw() as usize].input.map(|(token, _)| token)
    }

    /// A descriptor, unless it was never waited for.
    #[inline]
    pub(super) fn find(&mut self, fd: Fd) -> Option<&mut Watch> {
        self.table.get_mut(usize::try_from(fd.raw()).ok()?)
    }

    /// A descriptor that may be new.
    pub(super) fn get_or_insert(&mut self, fd: Fd) -> &mut Watch {
        let index = fd.raw() as usize;
        if index >= self.table.len() {
            self.table.resize_with((index + 1).next_power_of_two(), Watch::default);
        }
        &mut self.table[index]
    }

    /// Forgets a descriptor, whose number may be reused.
    pub(super) fn forget(&mut self, fd: Fd) {
        if let Some(watch) = self.find(fd) {
            debug_assert!(
                watch.input.is_none() && watch.output.is_none(),
                "an operation is in flight"
            );
            *watch = Watch { queued: watch.queued, ..Watch::default() };
        }
    }

    /// Records an edge; true if the caller must queue the descriptor.
    #[inline]
    pub(super) fn note(&mut self, fd: Fd, flags: EventFlags) -> bool {
        self.find(fd).is_some_and(|watch| {
            watch.note(flags);
            watch.enlist()
        })
    }

    /// True if a descriptor has something to try and is not queued: the caller queues it.
    #[inline]
    pub(super) fn enlist(&mut self, fd: Fd) -> bool {
        self.known(fd).enlist()
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

    /// The descriptor that an operation may be waiting for.
    pub(super) fn fd_of(&self, token: Token) -> Option<Fd> {
        self.fds[token.kind() as usize]
            .get(token.slot() as usize)
            .copied()
            .filter(|fd| *fd != Fd::NONE)
    }
}

const _: () = assert!(size_of::<Watch>() == 64, "one cache line");
