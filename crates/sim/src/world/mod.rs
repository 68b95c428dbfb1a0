//! The state of the simulated kernel.

mod attempt;
mod calls;
mod check;
mod control;
mod crash;
mod enter;
mod epoll;
mod files;
mod message;
mod nonblocking;
mod recv;
mod register;
mod ring;
mod send;
mod setup;
mod submit;
mod work;

use crate::counts::Counts;
use crate::descriptors::{Descriptors, File, FileId};
use crate::faults::{Fault, Faults};
use crate::fs::{Disk, Disks};
use crate::net::{Link, Net, SocketId};
use crate::op::{Op, OpKind, Ops};
use crate::op_id::OpId;
use crate::profile::Profile;
use crate::random::Random;
use crate::slab::Slab;
use crate::timeline::Nanos;
use crate::trace::{Trace, TraceEvent};
use annulus_ring::Completion;
use epoll::{Epoll, Timer};
use ring::Ring;
use std::ops::Range;

/// Size of a thread's table of registered rings.
const REGISTERED_RING_SLOTS: usize = 16;

pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) faults: Faults,
    pub(crate) link: Link,
    pub(crate) disk: Disk,
    pub(crate) descriptors: usize,
    pub(crate) turn_cost: Nanos,
    pub(crate) max_idle_turns: u64,
    pub(crate) poison: usize,
    pub(crate) text: bool,
}

pub(crate) struct World {
    pub(crate) net: Net,
    pub(crate) disks: Disks,
    pub(crate) files: Descriptors,
    pub(crate) ops: Ops,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    faults: Faults,
    random: Random,
    /// Draws the seeds of runtimes. It is separate from `random`, so that these draws do not change
    /// the rest of the run.
    runtime_seeds: Random,
    profile: Profile,
    rings: Slab<Ring>,
    epolls: Slab<Epoll>,
    timers: Slab<Timer>,
    /// Number of times that timers have been set.
    settings: u64,
    registered: [Option<(u32, FileId)>; REGISTERED_RING_SLOTS],
    /// The time that an `enter` or epoll wait takes.
    turn_cost: Nanos,
    max_idle_turns: u64,
    /// Number of turns in a row without any effect.
    idle_turns: u64,
    /// The number of submissions and completions before the last turn, and the time at its start.
    last_turn: (u64, Nanos),
    /// Number of bytes that are checked at each end of memory that the kernel owns.
    poison: usize,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut random = Random::new(settings.seed);
        let network = Random::new(random.bits());
        Self {
            net: Net::new(settings.link, network),
            disks: Disks::new(settings.disk),
            files: Descriptors::new(settings.descriptors),
            ops: Ops::new(),
            trace: Trace::new(settings.text),
            counts: Counts::default(),
            faults: settings.faults,
            random,
            runtime_seeds: Random::new(settings.seed.rotate_left(32) ^ 0x5E1E_C700),
            profile: settings.profile,
            rings: Slab::new(),
            epolls: Slab::new(),
            timers: Slab::new(),
            settings: 0,
            registered: [None; REGISTERED_RING_SLOTS],
            turn_cost: settings.turn_cost,
            max_idle_turns: settings.max_idle_turns,
            idle_turns: 0,
            last_turn: (0, 0),
            poison: settings.poison,
        }
    }

    pub(crate) fn runtime_seed(&mut self) -> u64 {
        self.runtime_seeds.bits()
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Returns true if a fault occurs now, and records it.
    #[inline]
    fn occurs(&mut self, fault: Fault) -> bool {
        let occurs = self.random.chance(self.faults.of(fault));
        if occurs {
            self.counts.faults += 1;
            self.trace.record(self.net.time.now(), TraceEvent::Fault(fault));
        }
        occurs
    }

    /// Posts a completion, in the overflow list if there is no space.
    #[inline]
    fn post(&mut self, ring: u32, completion: Completion) {
        self.counts.completed += 1;
        self.trace.record(self.net.time.now(), TraceEvent::Completed(&completion));
        if self.rings.at_mut(ring).post(completion) {
            self.counts.overflowed += 1;
        }
    }

    /// Posts a completion that is not the last of its operation. Returns false if there is no
    /// space, or if the overflow list is not empty.
    #[inline]
    fn post_more(&mut self, ring: u32, completion: Completion) -> bool {
        let posted = self.rings.at_mut(ring).post_more(completion);
        if posted {
            self.counts.completed += 1;
            self.trace.record(self.net.time.now(), TraceEvent::Completed(&completion));
        }
        posted
    }

    /// Queues the waiting operations and the edges of sockets that have changed.
    #[inline]
    fn wake(&mut self) {
        while let Some(id) = self.net.next_fired() {
            self.queue(id);
        }
        while let Some((socket, side)) = self.net.next_woken() {
            let waiters = std::mem::take(self.net.socket_mut(socket).waiters(side));
            waiters.iter().for_each(|&id| self.queue(id));
            *self.net.socket_mut(socket).waiters(side) = waiters;
        }
        while let Some((socket, side)) = self.net.next_edge() {
            self.mark_socket(socket, side);
        }
        while let Some((timer, setting)) = self.net.next_expired() {
            self.expire(timer, setting);
        }
        while let Some(file) = self.net.next_orphan() {
            self.drop_file(file);
        }
    }

    /// Puts an operation into the work queue of its ring, unless it is already there.
    #[inline]
    fn queue(&mut self, id: OpId) {
        if let Some(op) = self.ops.find(id)
            && !op.queued
        {
            op.queued = true;
            self.rings.at_mut(op.ring).queue(id);
        }
    }

    /// Drops a reference to a file, and closes the file with the last one.
    fn drop_file(&mut self, file: FileId) {
        if let Some(file) = self.files.release(file) {
            self.tear_down(file);
        }
    }

    fn tear_down(&mut self, file: File) {
        match file {
            File::Socket(id) => {
                let watchers = std::mem::take(self.net.watchers(id));
                self.end_watches(watchers);
                self.net.release(id);
            }
            File::Epoll(epoll) => self.end_epoll(epoll),
            File::Timer(timer) => self.end_timer(timer),
            File::Ring(ring) => self.end_ring(ring),
            File::OnDisk(disk, file) => self.disks.at_mut(disk).close(file),
        }
        self.wake();
    }

    pub(crate) fn buffers_held(&self) -> usize {
        self.rings.iter().flat_map(|(_, ring)| ring.groups()).map(|group| group.len()).sum()
    }

    /// Poisons the buffers in a range that was discarded.
    pub(crate) fn poison_again(&self, range: &Range<u64>) {
        let groups = self.rings.iter().flat_map(|(_, ring)| ring.groups());
        groups.for_each(|group| group.poison_again(range));
    }

    /// Checks all memory that the kernel owns. Panics if the program has touched it.
    pub(crate) fn check(&self) {
        for (_, ring) in self.rings.iter() {
            ring.groups().for_each(|group| group.verify_all());
        }
        self.ops.iter().for_each(|op| self.verify(op));
    }

    /// Panics if the program has touched the memory of a waiting operation.
    fn verify(&self, op: &Op) {
        let memory = |what| format!("the memory of {what} (user_data {:#x})", op.user_data);
        match &op.body {
            OpKind::Receive(receive) => {
                if let Some(at) = receive.overwritten_at(self.poison) {
                    panic!(
                        "{} was written to while it was with the kernel (byte {at})",
                        memory("a receive")
                    );
                }
            }
            OpKind::Send(send) => {
                let intact =
                    send.checksum.is_none() || send.checksum == send.memory_checksum(self.poison);
                assert!(intact, "{} was changed while it was with the kernel", memory("a send"));
            }
            OpKind::Notification(notification) => assert!(
                notification.is_intact(self.poison),
                "{} was changed before its notification",
                memory("a send")
            ),
            OpKind::File(work) => assert!(
                work.is_intact(self.poison),
                "{} was touched while it was with the kernel",
                memory("a file call")
            ),
            OpKind::Accept { .. } | OpKind::Connect | OpKind::Poll { .. } => {}
            OpKind::Timer { .. } | OpKind::Never => {}
        }
    }

    /// Returns true if the next attempt of an operation would not wait.
    #[inline]
    fn is_ready(&self, op: &Op) -> bool {
        let Some(socket) = op.socket() else { return false };
        match op.body {
            OpKind::Send(ref send) if self.net.socket(socket).is_datagram() => {
                self.net.can_send_datagram(socket, send.to())
            }
            OpKind::Connect | OpKind::Send(_) => self.net.writable(socket),
            OpKind::Accept { .. } | OpKind::Receive(_) => self.net.socket(socket).ends_receive(),
            // A multishot poll is only tried after a change.
            OpKind::Poll { events, multi } => !multi && self.is_polled_ready(socket, events),
            OpKind::Timer { .. } | OpKind::Notification(_) | OpKind::File(_) | OpKind::Never => {
                false
            }
        }
    }

    fn socket_of(&self, fd: i32) -> Result<(FileId, SocketId), rustix::io::Errno> {
        let (id, file) = self.files.find(fd)?;
        socket(id, file)
    }
}

fn socket(id: FileId, file: File) -> Result<(FileId, SocketId), rustix::io::Errno> {
    match file {
        File::Socket(socket) => Ok((id, socket)),
        _ => Err(rustix::io::Errno::NOTSOCK),
    }
}
