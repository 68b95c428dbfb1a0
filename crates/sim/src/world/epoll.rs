//! Edge-triggered epoll, and the timers that end its waits.

use super::World;
use crate::descriptors::{FIRST_DESCRIPTOR, File, FileId, WatchKey, Watcher};
use crate::faults::Fault;
use crate::net::{Side, SocketId};
use crate::timeline::{Nanos, nanos};
use crate::trace::TraceEvent;
use annulus_kernel::epoll::{Edge, EventData, EventFlags, Registration};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// The file id of all real descriptors of the process, which are never ready.
const REAL_FILE: FileId = FileId::MAX;
/// Events that are reported even if not requested.
const ALWAYS_REPORTED: EventFlags = EventFlags::ERR.union(EventFlags::HUP);
const NANOS_PER_MILLISECOND: Nanos = 1_000_000;

pub(super) struct Epoll {
    host: Option<IpAddr>,
    interests: BTreeMap<WatchKey, Interest>,
    /// Registrations whose readiness has changed since it was last reported, in order.
    changed: VecDeque<WatchKey>,
}

#[derive(Clone, Copy)]
struct Interest {
    flags: EventFlags,
    /// Whether the registration is in `changed`.
    queued: bool,
}

impl Epoll {
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    fn queue(&mut self, key: WatchKey) {
        let interest = self.interests.get_mut(&key);
        if interest.is_some_and(|interest| !std::mem::replace(&mut interest.queued, true)) {
            self.changed.push_back(key);
        }
    }

    /// Takes a registration that has changed, and the events it asks for.
    fn take(&mut self, index: usize) -> Option<(WatchKey, EventFlags)> {
        let key = self.changed.remove(index)?;
        let interest = self.interests.get_mut(&key)?;
        interest.queued = false;
        Some((key, interest.flags))
    }

    fn forget(&mut self, key: WatchKey) {
        if self.interests.remove(&key).is_some_and(|interest| interest.queued) {
            self.changed.retain(|changed| *changed != key);
        }
    }
}

#[derive(Default)]
pub(super) struct Timer {
    /// The number of the latest setting of this timer. Expirations of earlier settings are ignored.
    setting: u64,
    expired: bool,
    watchers: Vec<Watcher>,
}

impl World {
    pub(crate) fn epoll(&mut self) -> Result<RawFd, Errno> {
        let host = self.net.host();
        let epoll = Epoll { host, interests: BTreeMap::new(), changed: VecDeque::new() };
        let epoll = self.epolls.insert(epoll);
        self.files.open(File::Epoll(epoll)).inspect_err(|_| drop(self.epolls.remove(epoll)))
    }

    pub(crate) fn timer(&mut self) -> Result<RawFd, Errno> {
        let timer = self.timers.insert(Timer::default());
        self.files.open(File::Timer(timer)).inspect_err(|_| drop(self.timers.remove(timer)))
    }

    pub(crate) fn set_timer(&mut self, fd: RawFd, after: Duration) -> Result<(), Errno> {
        let (_, File::Timer(timer)) = self.files.find(fd)? else { return Err(Errno::INVAL) };
        self.settings += 1;
        let state = self.timers.at_mut(timer);
        (state.setting, state.expired) = (self.settings, false);
        if !after.is_zero() {
            self.net.start_clock(nanos(after), timer, self.settings);
        }
        Ok(())
    }

    /// Expires a timer, unless it has been set again.
    pub(super) fn expire(&mut self, timer: u32, setting: u64) {
        if let Some(state) = self.timers.find_mut(timer)
            && state.setting == setting
        {
            state.expired = true;
            let watchers = state.watchers.clone();
            watchers.into_iter().for_each(|watcher| self.mark(watcher, None));
        }
    }

    /// Marks the registrations of a socket whose readiness has changed.
    pub(super) fn mark_socket(&mut self, socket: SocketId, side: Side) {
        let watchers = std::mem::take(self.net.watchers(socket));
        watchers.iter().for_each(|&watcher| self.mark(watcher, Some(side)));
        *self.net.watchers(socket) = watchers;
    }

    /// Queues a registration to be reported, if it is interested in this side and ready.
    fn mark(&mut self, (epoll, key): Watcher, side: Option<Side>) {
        let Some(&Interest { flags, .. }) = self.epolls.at(epoll).interests.get(&key) else {
            return;
        };
        let concerns = side != Some(Side::Write) || flags.contains(EventFlags::OUT);
        if concerns && !self.report(key, flags).is_empty() {
            self.epolls.at_mut(epoll).queue(key);
        }
    }

    /// Returns the events that a registration reports now.
    fn report(&mut self, (_, file): WatchKey, interest: EventFlags) -> EventFlags {
        let ready = match self.files.file(file) {
            Some(File::Socket(socket)) => self.net.readiness(socket),
            Some(File::Timer(timer)) if self.timers.at(timer).expired => EventFlags::IN,
            _ => EventFlags::empty(),
        };
        ready & (interest | ALWAYS_REPORTED)
    }

    fn epoll_of(&self, fd: RawFd) -> Result<u32, Errno> {
        match self.files.find(fd)?.1 {
            File::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn epoll_control(
        &mut self,
        epoll: RawFd,
        change: Registration,
        fd: RawFd,
    ) -> Result<(), Errno> {
        let epoll = self.epoll_of(epoll)?;
        let file = match self.files.find(fd) {
            Ok((_, File::Ring(_) | File::OnDisk(..) | File::Epoll(_))) => return Err(Errno::PERM),
            Ok((file, _)) => file,
            Err(_) if (0..FIRST_DESCRIPTOR).contains(&fd) => REAL_FILE,
            Err(errno) => return Err(errno),
        };
        let (key, instance) = ((fd, file), self.epolls.at_mut(epoll));
        let known = instance.interests.get(&key).copied();
        match change {
            Registration::Add(_) if known.is_some() => return Err(Errno::EXIST),
            Registration::Modify(_) | Registration::Delete if known.is_none() => {
                return Err(Errno::NOENT);
            }
            Registration::Add(flags) | Registration::Modify(flags) => {
                if !flags.contains(EventFlags::ET) {
                    return Err(Errno::INVAL);
                }
                let queued = known.is_some_and(|interest| interest.queued);
                instance.interests.insert(key, Interest { flags, queued });
                if known.is_none()
                    && let Some(watchers) = self.watchers_of(file)
                {
                    watchers.push((epoll, key));
                }
                self.mark((epoll, key), None);
            }
            Registration::Delete => {
                instance.forget(key);
                self.unwatch((epoll, key));
            }
        }
        Ok(())
    }

    fn watchers_of(&mut self, file: FileId) -> Option<&mut Vec<Watcher>> {
        match self.files.file(file)? {
            File::Socket(socket) => Some(self.net.watchers(socket)),
            File::Timer(timer) => Some(&mut self.timers.at_mut(timer).watchers),
            File::Ring(_) | File::OnDisk(..) | File::Epoll(_) => None,
        }
    }

    fn unwatch(&mut self, (epoll, key): Watcher) {
        if let Some(watchers) = self.watchers_of(key.1) {
            watchers.retain(|watcher| *watcher != (epoll, key));
        }
    }

    pub(crate) fn epoll_wait(
        &mut self,
        fd: RawFd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let epoll = self.epoll_of(fd)?;
        let is_down = self.epolls.at(epoll).host.is_some_and(|host| self.net.is_down(host));
        self.begin_turn(is_down)?;
        self.add_needless_edge(epoll, edges);
        let timeout = timeout.map(|time| nanos(time).div_ceil(NANOS_PER_MILLISECOND));
        let deadline = timeout.map(|time| {
            self.net.time.now().saturating_add(time.saturating_mul(NANOS_PER_MILLISECOND))
        });
        loop {
            self.take_edges(epoll, edges);
            if !edges.is_empty() || timeout == Some(0) {
                return Ok(());
            }
            if self.occurs(Fault::Interrupt) {
                return Err(Errno::INTR);
            }
            match self.pass_while(deadline, |world| !world.epolls.at(epoll).has_changed()) {
                Err(Errno::TIME) => {
                    self.take_edges(epoll, edges);
                    return Ok(());
                }
                other => other?,
            }
        }
    }

    /// Reports registrations that have changed and are ready, as many as fit.
    fn take_edges(&mut self, epoll: u32, edges: &mut Vec<Edge>) {
        while edges.len() < edges.capacity() && self.epolls.at(epoll).has_changed() {
            let index = self.choose_edge(epoll);
            let Some((key, flags)) = self.epolls.at_mut(epoll).take(index) else { return };
            let flags = self.report(key, flags);
            if !flags.is_empty() {
                self.push_edge(edges, key, flags);
            }
        }
    }

    /// Returns the index of the next edge: the first, unless the shuffle fault occurs.
    fn choose_edge(&mut self, epoll: u32) -> usize {
        let len = self.epolls.at(epoll).changed.len();
        if len < 2 || !self.occurs(Fault::Shuffle) {
            return 0;
        }
        self.random.below(len as u64) as usize
    }

    /// Reports a socket that may not be ready, if the fault occurs. The edge has the socket's
    /// actual events and, if the registration asks for them, also IN and OUT.
    fn add_needless_edge(&mut self, epoll: u32, edges: &mut Vec<Edge>) {
        if edges.capacity() == 0 || !self.occurs(Fault::NeedlessEdge) {
            return;
        }
        let of_socket = |key: &WatchKey| matches!(self.files.file(key.1), Some(File::Socket(_)));
        let interests = self.epolls.at(epoll).interests.iter();
        let sockets: Vec<(WatchKey, EventFlags)> = interests
            .filter(|(key, _)| of_socket(key))
            .map(|(key, interest)| (*key, interest.flags))
            .collect();
        if !sockets.is_empty() {
            let (key, interest) = self.random.pick(&sockets);
            let flags = self.report(key, interest) | interest & (EventFlags::IN | EventFlags::OUT);
            self.push_edge(edges, key, flags);
        }
    }

    fn push_edge(&mut self, edges: &mut Vec<Edge>, (fd, _): WatchKey, flags: EventFlags) {
        self.trace.record(self.net.time.now(), TraceEvent::Edge(fd, flags.bits()));
        edges.push(Edge { flags, data: EventData::new_u64(fd as u64) });
    }

    /// Removes the registrations of a closed file.
    pub(super) fn end_watches(&mut self, watchers: Vec<Watcher>) {
        watchers.into_iter().for_each(|(epoll, key)| self.epolls.at_mut(epoll).forget(key));
    }

    pub(super) fn end_timer(&mut self, timer: u32) {
        let Timer { watchers, .. } = self.timers.remove(timer);
        self.end_watches(watchers);
    }

    pub(super) fn end_epoll(&mut self, epoll: u32) {
        let Epoll { interests, .. } = self.epolls.remove(epoll);
        interests.into_keys().for_each(|key| self.unwatch((epoll, key)));
    }
}
