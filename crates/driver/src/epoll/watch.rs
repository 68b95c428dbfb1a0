//! What is known of each descriptor: how ready it is, and what waits for it.

use super::input::Input;
use crate::token::{Kind, Token};
use annulus_kernel::Fd;
use rustix::event::epoll::EventFlags;

/// The descriptor can be tried for reading, be it for an error.
const READ: EventFlags = EventFlags::IN.union(WARY);
/// The descriptor can be tried for writing, be it for an error.
const WRITE: EventFlags = EventFlags::OUT.union(EventFlags::HUP).union(EventFlags::ERR);
/// There is more to learn than bytes: an end, an error, an urgent mark that cuts a receive short.
const WARY: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// One descriptor.
///
/// The bits are guesses to the safe side: a set one is tried, and cleared by the try that finds it stale; a clear one
/// is set by the next edge, which the kernel owes for whatever comes after such a try.
///
/// It has a cache line for itself: with a thousand connections each one's has left the nearest cache by its next turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Watch {
    pub(super) input: Option<(Token, Input)>,
    /// Place of the operation that waits for a descriptor to become writable.
    pub(super) output: Option<u32>,
    pub(super) registered: bool,
    /// Edges for room come, too.
    pub(super) hears_of_room: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// A short receive does not mean that there was no more.
    wary: bool,
    /// Whether that holds for all of its receives; `None` until one was short.
    pub(super) in_pieces: Option<bool>,
    /// The last receive of messages brought as many as it had room for: the next one has more.
    pub(super) bulk: bool,
    /// On the list of those to try.
    pub(super) queued: bool,
}

impl Watch {
    /// An edge came.
    #[inline]
    fn note(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(READ);
        self.writable |= flags.intersects(WRITE);
        self.wary = flags.intersects(WARY);
    }

    /// A receive got fewer bytes than it had room for: what comes later comes with an edge.
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

    /// True where it has something to try and is not on the list yet: the caller puts it there.
    #[inline]
    fn enlist(&mut self) -> bool {
        let wanted = !self.queued && (self.can_read() || self.can_write());
        self.queued |= wanted;
        wanted
    }
}

/// All descriptors, by number; and where each operation's token is at home.
#[derive(Debug, Default)]
pub(super) struct Watches {
    table: Vec<Watch>,
    /// The descriptor of the last operation that waited, by the slot of its token, one list a kind.
    homes: [Vec<Fd>; Kind::ALL.len()],
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

    /// A descriptor from here on.
    pub(super) fn meet(&mut self, fd: Fd) -> &mut Watch {
        let index = fd.raw() as usize;
        if index >= self.table.len() {
            self.table.resize_with((index + 1).next_power_of_two(), Watch::default);
        }
        &mut self.table[index]
    }

    /// The number means another descriptor from here on, if any.
    pub(super) fn forget(&mut self, fd: Fd) {
        if let Some(watch) = self.find(fd) {
            debug_assert!(watch.input.is_none() && watch.output.is_none(), "closed under way");
            *watch = Watch { queued: watch.queued, ..Watch::default() };
        }
    }

    /// Notes an edge; true where the descriptor is to be put on the list.
    #[inline]
    pub(super) fn note(&mut self, fd: Fd, flags: EventFlags) -> bool {
        self.find(fd).is_some_and(|watch| {
            watch.note(flags);
            watch.enlist()
        })
    }

    /// True where a descriptor has something to try and is not on the list yet: the caller puts it there.
    #[inline]
    pub(super) fn enlist(&mut self, fd: Fd) -> bool {
        self.known(fd).enlist()
    }

    /// Remembers which descriptor an operation waits for.
    pub(super) fn settle(&mut self, token: Token, fd: Fd) {
        let homes = &mut self.homes[token.kind() as usize];
        let slot = token.slot() as usize;
        if slot >= homes.len() {
            homes.resize((slot + 1).next_power_of_two(), Fd::NONE);
        }
        homes[slot] = fd;
    }

    /// The descriptor that an operation may be waiting for.
    pub(super) fn home(&self, token: Token) -> Option<Fd> {
        self.homes[token.kind() as usize]
            .get(token.slot() as usize)
            .copied()
            .filter(|fd| *fd != Fd::NONE)
    }
}

const _: () = assert!(size_of::<Watch>() == 64, "one line");
