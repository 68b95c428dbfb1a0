//! The state of each descriptor: its readiness, and the operations that wait for it.

use super::input::Input;
use crate::slots::{Kind, Token};
use annulus_kernel::Fd;
use annulus_kernel::epoll::EventFlags;

/// A read may succeed, or report an error.
const READ: EventFlags = EventFlags::IN.union(WARY);
/// A write may succeed, or report an error.
const WRITE: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
/// A receive may report more than bytes: the end, an error, or an urgent mark that cuts it short.
const WARY: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// One descriptor.
///
/// A readiness bit that is set may be stale: it leads to a try, and a try that finds nothing clears
/// it. A clear bit is exact: bytes that arrive after such a try cause an edge.
///
/// Each has its own cache line: with a thousand connections, a line has left the nearest cache by
/// its next turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Watch {
    pub(super) input: Option<(Token, Input)>,
    /// Index of the operation that waits for the descriptor to become writable.
    pub(super) output: Option<u32>,
    pub(super) registered: bool,
    /// Also registered for `EPOLLOUT`.
    pub(super) has_out_edges: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// An edge has reported more than bytes, so a short receive does not mean that the socket is
    /// empty. It stays set until a try finds nothing, since an edge with this number may belong to
    /// a socket that was closed here but lives on as a duplicate.
    wary: bool,
    /// Whether no short receive means that the socket is empty; `None` until the first short
    /// receive.
    pub(super) in_pieces: Option<bool>,
    /// The last receive of messages filled every buffer, so the next one gets more buffers.
    pub(super) bulk: bool,
    /// In the queue of descriptors to try.
    pub(super) queued: bool,
}

impl Watch {
    /// Records an edge.
    #[inline]
    fn note(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(READ);
        self.writable |= flags.intersects(WRITE);
        self.wary |= flags.intersects(WARY);
    }

    /// Records that a try found nothing to read: later bytes cause an edge.
    #[inline]
    pub(super) fn emptied(&mut self) {
        (self.readable, self.wary) = (false, false);
    }

    /// Records that a receive did not fill its buffer. Unless `wary` is set, later bytes cause an
    /// edge.
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

    /// Marks the descriptor as queued if it has something to try and is not queued yet. Returns
    /// true if so: the caller must then queue it.
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
    /// The descriptor of the last operation that waited, by the kind and slot of its token.
    fds: [Vec<Fd>; Kind::ALL.len()],
}

impl Watches {
    /// Returns the state of a descriptor that an operation has used before.
    #[inline]
    pub(super) fn known(&mut self, fd: Fd) -> &mut Watch {
        &mut self.table[fd.raw() as usize]
    }

    /// Returns the operation that waits to read from a descriptor.
    #[inline]
    pub(super) fn reader(&self, fd: Fd) -> Option<Token> {
        self.table[fd.raw() as usize].input.map(|(token, _)| token)
    }

    /// Returns the state of a descriptor, or `None` if its number is beyond the table.
    #[inline]
    pub(super) fn find(&mut self, fd: Fd) -> Option<&mut Watch> {
        self.table.get_mut(usize::try_from(fd.raw()).ok()?)
    }

    /// Returns the state of a descriptor, which may be new.
    pub(super) fn get_or_insert(&mut self, fd: Fd) -> &mut Watch {
        let index = fd.raw() as usize;
        if index >= self.table.len() {
            self.table.resize_with((index + 1).next_power_of_two(), Watch::default);
        }
        &mut self.table[index]
    }

    /// Resets the state of a descriptor, since its number may be reused.
    pub(super) fn forget(&mut self, fd: Fd) {
        if let Some(watch) = self.find(fd) {
            debug_assert!(
                watch.input.is_none() && watch.output.is_none(),
                "an operation is in flight"
            );
            *watch = Watch { queued: watch.queued, ..Watch::default() };
        }
    }

    /// Records an edge. Returns true if the caller must queue the descriptor.
    #[inline]
    pub(super) fn note(&mut self, fd: Fd, flags: EventFlags) -> bool {
        self.find(fd).is_some_and(|watch| {
            watch.note(flags);
            watch.enlist()
        })
    }

    /// Marks a descriptor as queued if it has something to try and is not queued yet. Returns true
    /// if so: the caller must then queue it.
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

    /// Returns the descriptor that an operation may be waiting for.
    pub(super) fn fd_of(&self, token: Token) -> Option<Fd> {
        self.fds[token.kind() as usize]
            .get(token.slot() as usize)
            .copied()
            .filter(|fd| *fd != Fd::NONE)
    }
}

const _: () = assert!(size_of::<Watch>() == 64, "one cache line");
