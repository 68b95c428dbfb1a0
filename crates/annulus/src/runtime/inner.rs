//! The state that is borrowed at once: the shared [`Io`], and beside it one owner a family of slots.

use crate::base::io::{AHEAD, Io};
use crate::base::recheck::{Recheck, RecheckQueue};
use crate::slots::connects::Connects;
use crate::slots::datagrams::Datagrams;
use crate::slots::file_ops::FileOps;
use crate::slots::listeners::Listeners;
use crate::slots::nops::Nops;
use crate::slots::polls::Polls;
use crate::slots::streams::Streams;
use annulus_driver::{Event, Kind, PoolSize};
use std::rc::Weak;

/// Everything that is borrowed at once, for moments, and never while user code runs.
pub(crate) struct Inner {
    pub(crate) io: Io,
    pub(crate) streams: Streams,
    pub(crate) listeners: Listeners,
    pub(crate) connects: Connects,
    pub(crate) polls: Polls,
    pub(crate) nops: Nops,
    pub(crate) file_ops: FileOps,
    pub(crate) datagrams: Datagrams,
    /// The poll of the descriptor by which other threads wake the loop.
    pub(crate) wake_poll: Option<u32>,
}

impl Inner {
    pub(crate) fn new(io: Io, datagrams: PoolSize) -> Self {
        Self {
            streams: Streams::new(&io),
            listeners: Listeners::default(),
            connects: Connects::default(),
            polls: Polls::default(),
            nops: Nops::default(),
            file_ops: FileOps::default(),
            datagrams: Datagrams::new(datagrams),
            wake_poll: None,
            io,
        }
    }

    /// Passes every event that is there to its slot, then settles the sends without an event.
    #[inline]
    pub(crate) fn take_events(&mut self) {
        // Before any event is handled: that may submit more.
        if self.io.driver.all_taken() {
            self.streams.all_taken();
        }
        // Only slots of streams are prefetched: there are many, and an event for each.
        let prefetches = self.streams.len() > 0;
        if prefetches {
            (0..AHEAD).take_while(|ahead| self.prefetch(*ahead)).for_each(drop);
        }
        while let Some(event) = self.io.driver.next_event() {
            if prefetches {
                self.prefetch(AHEAD - 1);
            }
            self.dispatch(event);
        }
        if self.io.driver.settled() {
            self.streams.settle_sends(&mut self.io);
            self.datagrams.settle_sends(&mut self.io);
        }
        if self.io.driver.take_trimmed() {
            // The driver has given back memory that was not needed: the rest does the same.
            self.io.spares.clear();
            self.streams.trim(&self.io);
        }
    }

    /// Asks for the slot of an event to come. False if there is none.
    #[inline]
    fn prefetch(&self, ahead: u32) -> bool {
        let token = self.io.driver.upcoming(ahead);
        if let Some(token) = token
            && matches!(token.kind(), Kind::Recv | Kind::Send)
        {
            self.streams.prefetch(token);
        }
        token.is_some()
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        let io = &mut self.io;
        match event.token.kind() {
            Kind::Recv => self.streams.on_recv(io, event),
            Kind::RecvReady => self.streams.on_ready(io, event),
            Kind::Send => self.streams.on_send(io, event),
            Kind::Accept => self.listeners.on_accept(io, event),
            Kind::AcceptReady => self.listeners.on_accept_ready(io, event),
            Kind::Connect => self.connects.on_event(io, event),
            Kind::Poll => self.polls.on_event(io, event),
            Kind::Nop => self.nops.on_event(io, event),
            Kind::File => self.file_ops.on_event(io, event),
            Kind::RecvDatagram => self.datagrams.on_recv(io, event),
            Kind::SendDatagram => self.datagrams.on_sent(io, event),
            Kind::DatagramWritable => self.datagrams.on_writable(io, event),
            Kind::SendZeroCopy => self.streams.on_zero_copy(io, event),
            Kind::Ignored => {}
        }
    }

    /// Notifies the next waiters of the items that the first have not taken. True if the loop must not sleep.
    #[inline]
    pub(crate) fn recheck_waiters(&mut self) -> bool {
        !self.io.rechecks.is_empty() && self.recheck_due()
    }

    #[cold]
    fn recheck_due(&mut self) -> bool {
        for recheck in self.io.rechecks.take_due() {
            match recheck {
                Recheck::Accept(id) => self.listeners.recheck(&mut self.io, id),
                Recheck::Receive(id) => self.datagrams.recheck_receivers(&mut self.io, id),
                Recheck::Queue(queue) => self.recheck_queue(queue),
            }
        }
        !self.io.rechecks.is_empty() || !self.io.after.wakes.is_empty()
    }

    fn recheck_queue(&mut self, weak: Weak<dyn RecheckQueue>) {
        if let Some(queue) = weak.upgrade() {
            if queue.recheck(&mut self.io.after.wakes) {
                self.io.rechecks.push(Recheck::Queue(weak));
            }
            // It may be the last to hold what has the queue, whose drop enters the runtime.
            self.io.after.kept.push(Box::new(queue));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use annulus_driver::{Event, Kind, Token};
    use annulus_kernel::Fd;
    use rustix::io::Errno;
    use std::io::Write;
    use std::os::fd::IntoRawFd;

    fn event(kind: Kind, generation: u32, slot: u32, result: Result<u32, Errno>) -> Event {
        Event { token: Token::new(kind, generation, slot), result, more: false, buffer: None }
    }

    #[test]
    fn late_events_are_counted_dropped_and_reclaimed() {
        let runtime = Runtime::new().unwrap();
        let core = runtime.core();
        let (ours, mut remote) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut lent = core.enter().unwrap();
        let inner = &mut *lent;
        let stream = inner.streams.add(&inner.io, (Fd::NONE, Vec::new(), None));
        let generation = inner.streams.slots().id(stream).generation;
        inner.streams.slots().remove(stream);
        // The slot's next life has another generation, and gets none of its predecessor's events.
        let reborn = inner.streams.add(&inner.io, (Fd::NONE, Vec::new(), None));
        assert_eq!(reborn, stream);
        for kind in [
            Kind::Recv,
            Kind::Send,
            Kind::Connect,
            Kind::Nop,
            Kind::RecvDatagram,
            Kind::SendDatagram,
            Kind::DatagramWritable,
            Kind::SendZeroCopy,
        ] {
            inner.dispatch(event(kind, generation, stream, Ok(1)));
            inner.dispatch(event(kind, generation + 7, 1_000_000, Err(Errno::CANCELED)));
        }
        let accepted = ours.into_raw_fd() as u32;
        inner.dispatch(event(Kind::Accept, 5, 99, Ok(accepted)));
        assert_eq!(inner.io.driver.counters().late_completions, 17);
        inner.streams.slots().remove(reborn);
        drop(lent);
        // The late connection's descriptor was closed.
        core.turn(true, None).unwrap();
        assert_eq!(std::io::Read::read(&mut remote, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn unread_bytes_stay_within_the_bound() {
        let bound = 64 * 1024;
        let mut runtime = Runtime::builder().recv_bound(bound).build().unwrap();
        let buffer = runtime.core().enter().unwrap().io.driver.pool().buffer_size();
        let (mut stream, flooder) = runtime
            .block_on(async {
                let listener = crate::net::TcpListener::bind("127.0.0.1:0")?;
                let peer = std::net::TcpStream::connect(listener.local_addr()?)?;
                listener.accept().await.map(|(stream, _)| (stream, peer))
            })
            .unwrap();
        let mut writer = flooder.try_clone().unwrap();
        let flood = std::thread::spawn(move || while writer.write_all(&[1; 65_536]).is_ok() {});
        let mut most = 0;
        for round in 0..200 {
            // Some reading, so that the receive is armed again and again.
            if round % 3 == 0 {
                runtime.block_on(stream.recv()).unwrap();
            }
            runtime.core().turn(true, None).unwrap();
            let mut inner = runtime.core().enter().unwrap();
            let slot = inner.streams.slots().indices()[0];
            most = most.max(inner.streams.get(slot).0.undelivered());
        }
        assert!(most > bound / 2, "the flood came through: {most}");
        // The kernel does not cut the last buffer of a limited receive.
        assert!(most <= bound + buffer, "{most} bytes unread");
        flooder.shutdown(std::net::Shutdown::Both).unwrap();
        flood.join().unwrap();
    }
}
