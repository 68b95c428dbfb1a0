//! What a runtime's parts share: the driver, the slots, the timers, and the list of what the turn has to do.

use crate::fs::{CallSlot, Files};
use crate::nop::Question;
use crate::runtime::after::After;
use crate::runtime::fork::ForkGuard;
use crate::runtime::kernel_held::KernelHeld;
use crate::runtime::memory::Memory;
use crate::runtime::recheck::{Recheck, Rechecks};
use crate::runtime::remote::Remote;
use crate::slots::connects::Connect;
use crate::slots::datagrams::PostOffice;
use crate::slots::listeners::Listener;
use crate::slots::polls::Readiness;
use crate::slots::streams::{Links, Loan, Spares, Stream, Vectors};
use crate::task::Ready;
use crate::time::Timers;
use crate::unwind::wake_each;
use annulus_driver::{Counters, Driver, Event, Kind, MemoryOp, Op, Slab, Token};
use annulus_kernel::{Fd, Kernel};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// After so many streams have closed, the heap's free memory goes back to the system.
const CROWD: usize = 64;
/// How many events ahead the slots are asked for.
pub(crate) const AHEAD: u32 = 6;
/// How often a turn wakes and drops what the last wakes and drops have left, before it goes on without.
const ROUNDS: u32 = 8;

/// A runtime, as its streams, timers and tasks see it.
pub(crate) struct Core {
    /// `None` from the moment on in which the runtime stops everything: handles find it ended.
    inner: RefCell<Option<KernelHeld<Inner>>>,
    pub(crate) ready: Rc<Ready>,
    pub(crate) remote: Arc<Remote>,
    pub(crate) kernel: Rc<dyn Kernel>,
    pub(crate) files: Files,
    guard: ForkGuard,
    /// Its loop is turning on this thread.
    running: Cell<bool>,
    /// A panic has interrupted the loop's own work.
    broken: Cell<bool>,
    /// It has ended, and the kernel knows none of its memory any more.
    over: Cell<bool>,
}

/// Bounds of a runtime's streams. Bytes, but for the linger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Undelivered bytes a stream.
    pub(crate) receive: u32,
    /// Accepted and unsent bytes a stream, beyond which a send waits.
    pub(crate) send: usize,
    /// Bytes of a send from which on it is not copied; `None` is never.
    pub(crate) lend: Option<usize>,
    /// How long a dropped stream may go on sending what it had accepted.
    pub(crate) linger: Duration,
}

/// Everything that is borrowed at once, for moments, and never while user code runs.
pub(crate) struct Inner {
    pub(crate) driver: KernelHeld<Driver>,
    pub(crate) streams: Slab<Stream>,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) connects: Slab<Connect>,
    pub(crate) polls: Slab<Readiness>,
    pub(crate) nops: Slab<Question>,
    pub(crate) calls: Slab<CallSlot>,
    pub(crate) post: PostOffice,
    pub(crate) timers: Timers,
    pub(crate) links: Links,
    pub(crate) vectors: Vectors,
    /// Sends whose memory the kernel was lent.
    pub(crate) loans: Slab<Loan>,
    pub(crate) agenda: Agenda,
    pub(crate) after: After,
    /// Wait queues to be looked at again in the next turn.
    pub(crate) rechecks: Rechecks<Recheck>,
    pub(crate) bounds: Bounds,
    pub(crate) memory: Memory,
    /// The most streams there were since the heap was trimmed.
    pub(crate) most_streams: usize,
    /// Buffers of the runtime's own for `poll_write`, to use again.
    pub(crate) spares: Spares,
    /// Listeners that wait for a descriptor.
    pub(crate) paused_listeners: usize,
    /// Operations whose terminal event has not come.
    pub(crate) in_flight: usize,
}

/// What the turn has to do before it enters the kernel. Slots, each at most once.
#[derive(Default)]
pub(crate) struct Agenda {
    /// Streams with something to send.
    pub(crate) sends: Vec<u32>,
    /// Streams to arm.
    pub(crate) arms: VecDeque<u32>,
    /// Streams whose send went out in this turn: done, unless an event says otherwise.
    pub(crate) eager: Vec<u32>,
    /// Somebody waits for one of these: no sleep before they are settled.
    pub(crate) sleepless: bool,
}

impl Core {
    pub(crate) fn new(inner: Inner, remote: Arc<Remote>, files: Files, guard: ForkGuard) -> Self {
        Self {
            kernel: inner.driver.kernel().clone(),
            inner: RefCell::new(Some(KernelHeld::new(inner))),
            ready: Rc::new(Ready::new()),
            remote,
            files,
            guard,
            running: Cell::new(false),
            broken: Cell::new(false),
            over: Cell::new(false),
        }
    }

    /// Borrows the runtime's inside for a moment.
    ///
    /// # Errors
    /// After the runtime's end, in a forked child, and while it is borrowed already: the clone of a waker is foreign code, and
    /// runs under the borrow.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<RefMut<'_, Inner>> {
        if !self.guard.at_home() {
            return Err(forked());
        }
        let inner = self.inner.try_borrow_mut().map_err(|_| borrowed())?;
        RefMut::filter_map(inner, Option::as_deref_mut).map_err(|_| ended())
    }

    /// As [`enter`](Self::enter), for somebody who may have to wait: who else would wake him?
    ///
    /// # Errors
    /// As there, and where this runtime is not the one that is running.
    #[inline]
    pub(crate) fn enter_running(&self) -> io::Result<RefMut<'_, Inner>> {
        let inner = self.enter()?;
        if self.running.get() { Ok(inner) } else { Err(not_running()) }
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.set(running);
    }

    /// False in a forked child, after the end, and where its loop does not turn.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get() && self.at_home()
    }

    /// What was counted so far; nothing in a forked child, and after the end.
    pub(crate) fn counters(&self) -> Option<Counters> {
        let mut inner = self.enter().ok()?;
        inner.count_all_drops();
        inner.driver.counters().memory_held = inner.held() as u64;
        let mut counters = self.files.add_to(*inner.driver.counters());
        (counters.remote_wakes, counters.alarms) = self.remote.counts();
        Some(counters)
    }

    /// False in a forked child.
    #[inline]
    pub(crate) fn at_home(&self) -> bool {
        self.guard.at_home()
    }

    /// Takes the inside out: for its handles, the runtime has ended.
    pub(crate) fn take_inside(&self) -> Option<KernelHeld<Inner>> {
        self.set_running(false);
        self.inner.try_borrow_mut().ok()?.take()
    }

    /// # Errors
    /// After a panic has interrupted the loop's own work: what is in flight is not known for certain any more.
    pub(crate) fn check_whole(&self) -> io::Result<()> {
        if self.broken.get() { Err(broken()) } else { Ok(()) }
    }

    pub(crate) fn set_over(&self, over: bool) {
        self.over.set(over);
    }

    /// After the end, if the kernel knows none of its memory any more. False in a forked child.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get() && self.at_home()
    }

    /// Does a part of the loop's own work. No foreign code is in it, so a panic is a bug, and the runtime is broken from then on.
    #[inline]
    pub(crate) fn own_work<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Unwinding<'a>(&'a Cell<bool>);

        impl Drop for Unwinding<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }

        let unwinding = Unwinding(&self.broken);
        let done = work();
        mem::forget(unwinding);
        done
    }

    /// Tells other threads how many streams are open here.
    pub(crate) fn publish_streams(&self) -> io::Result<()> {
        self.remote.publish_streams(self.enter()?.streams.len());
        Ok(())
    }

    /// Wakes and drops what the last borrows left to be woken and dropped, and what that leaves, up to a bound. True if
    /// nothing is left.
    #[inline]
    pub(crate) fn settle(&self) -> io::Result<bool> {
        let mut inner = self.enter()?;
        for _ in 0..ROUNDS {
            if inner.after.is_empty() {
                return Ok(true);
            }
            let mut wakes = mem::take(&mut inner.after.wakes);
            let drops = inner.after.has_drops().then(|| mem::take(&mut inner.after));
            drop(inner);
            wake_each(wakes.drain(..));
            if let Some(drops) = drops {
                drops.discard();
            }
            inner = self.enter()?;
            if inner.after.wakes.is_empty() {
                // Keeps the list's memory.
                inner.after.wakes = wakes;
            }
        }
        Ok(inner.after.is_empty())
    }
}

impl Inner {
    /// Starts an operation whose terminal event will be waited for.
    #[inline]
    pub(crate) fn start(&mut self, token: Token, op: Op) {
        self.in_flight += 1;
        self.driver.submit(token, op);
    }

    /// As [`start`](Self::start), of an operation that names memory.
    ///
    /// # Safety
    /// See [`Driver::submit_memory`].
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn start_memory(&mut self, token: Token, op: MemoryOp) {
        self.in_flight += 1;
        // SAFETY: the caller's promise, passed on.
        unsafe { self.driver.submit_memory(token, op) };
    }

    /// Cancels an operation in flight; its own terminal event still comes.
    pub(crate) fn cancel(&mut self, target: Token) {
        self.driver.submit(Token::IGNORED, Op::Cancel { target });
    }

    /// Closes a descriptor of which nothing is in flight. Listeners that had run out of descriptors try again.
    pub(crate) fn close(&mut self, fd: Fd) {
        self.driver.submit(Token::IGNORED, Op::Close { fd });
        self.resume_accepts();
    }

    /// Passes every event that is there to its slot, then settles the sends that were not heard of.
    #[inline]
    pub(crate) fn take_events(&mut self) {
        // Before any event is handled: that may submit more.
        if self.driver.all_taken() {
            self.vectors.free_all();
        }
        (0..AHEAD).for_each(|ahead| self.prefetch(ahead));
        while let Some(event) = self.driver.next_event() {
            self.prefetch(AHEAD - 1);
            self.dispatch(event);
        }
        if self.driver.settled() {
            self.settle_sends();
            self.settle_posts();
        }
        if self.driver.take_trimmed() {
            self.trim();
        }
    }

    /// The driver has given back memory that was not needed: the rest of the runtime does the same.
    #[cold]
    fn trim(&mut self) {
        self.spares.clear();
        let streams = self.streams.len();
        // It looks through all of the heap, which is worth it only after many connections have closed.
        if self.most_streams >= streams + CROWD {
            self.driver.kernel().trim_heap();
        }
        self.most_streams = streams;
    }

    /// Asks for the slot of an event to come.
    #[inline]
    fn prefetch(&self, ahead: u32) {
        if let Some(token) = self.driver.upcoming(ahead)
            && matches!(token.kind(), Kind::Receive | Kind::Send)
        {
            self.streams.prefetch(token.slot());
        }
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        match event.token.kind() {
            Kind::Receive => self.on_receive(event),
            Kind::Ready => self.on_ready(event),
            Kind::Send => self.on_send(event),
            Kind::Accept => self.on_accept(event),
            Kind::Acceptable => self.on_acceptable(event),
            Kind::Connect => self.on_connect(event),
            Kind::Poll => self.on_poll(event),
            Kind::Nop => self.on_nop(event),
            Kind::File => self.on_file(event),
            Kind::Packet => self.on_packet(event),
            Kind::Parcel => self.on_parcel(event),
            Kind::Room => self.on_room(event),
            Kind::Loan => self.on_loan(event),
            Kind::Ignored => {}
        }
    }

    /// An event whose slot has moved on: counted, and what it carries reclaimed.
    #[cold]
    #[allow(unsafe_code)]
    pub(crate) fn late(&mut self, event: Event) {
        self.driver.counters().late += 1;
        if let Some(id) = event.buffer {
            let packets = self.driver.packets().filter(|_| event.token.kind() == Kind::Packet);
            packets.unwrap_or(self.driver.pool()).give_back(id);
        }
        if let (Kind::Accept, Ok(fd)) = (event.token.kind(), event.result) {
            // SAFETY: the connection was made for this runtime, and nothing else has heard of it.
            self.close(unsafe { Fd::from_raw(fd as i32) });
        }
    }
}

fn forked() -> io::Error {
    io::Error::other("this runtime belongs to the parent process; build another one in the child")
}

fn not_running() -> io::Error {
    io::Error::other(
        "polled outside its runtime; use it inside the block_on of the runtime that made it",
    )
}

fn borrowed() -> io::Error {
    io::Error::other("used by the clone of a waker, while the runtime notes that waker")
}

fn broken() -> io::Error {
    io::Error::other(
        "a panic has interrupted the runtime's own work; end it, and build another one",
    )
}

fn ended() -> io::Error {
    io::Error::other("the runtime has ended; its streams and timers end with it")
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
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut inner = core.enter().unwrap();
        let stream = inner.add_stream(Fd::NONE, None);
        let generation = inner.streams.generation(stream);
        inner.streams.remove(stream);
        // The slot's next life has another generation, and gets none of its predecessor's events.
        let reborn = inner.add_stream(Fd::NONE, None);
        assert_eq!(reborn, stream);
        for kind in [
            Kind::Receive,
            Kind::Send,
            Kind::Connect,
            Kind::Nop,
            Kind::Packet,
            Kind::Parcel,
            Kind::Room,
            Kind::Loan,
        ] {
            inner.dispatch(event(kind, generation, stream, Ok(1)));
            inner.dispatch(event(kind, generation + 7, 1_000_000, Err(Errno::CANCELED)));
        }
        let accepted = ours.into_raw_fd() as u32;
        inner.dispatch(event(Kind::Accept, 5, 99, Ok(accepted)));
        assert_eq!(inner.driver.counters().late, 17);
        inner.streams.remove(reborn);
        drop(inner);
        // The late connection's descriptor was closed.
        core.turn(true, None).unwrap();
        assert_eq!(std::io::Read::read(&mut theirs, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn unread_bytes_stay_within_the_bound() {
        let bound = 64 * 1024;
        let mut runtime = Runtime::builder().receive_bound(bound).build().unwrap();
        let buffer = runtime.core().enter().unwrap().driver.pool().buffer_size();
        let (mut stream, flooder) = runtime
            .block_on(async {
                let listener = crate::net::TcpListener::bind("127.0.0.1:0")?;
                let peer = std::net::TcpStream::connect(listener.local_addr()?)?;
                listener.accept().await.map(|(stream, _)| (stream, peer))
            })
            .unwrap()
            .unwrap();
        let mut writer = flooder.try_clone().unwrap();
        let flood = std::thread::spawn(move || while writer.write_all(&[1; 65_536]).is_ok() {});
        let mut most = 0;
        for round in 0..200 {
            // Some reading, so that the receive is armed again and again.
            if round % 3 == 0 {
                runtime.block_on(stream.recv()).unwrap().unwrap();
            }
            runtime.core().turn(true, None).unwrap();
            let mut inner = runtime.core().enter().unwrap();
            let slot = inner.streams.indices()[0];
            most = most.max(inner.streams.get(slot).rx.undelivered());
        }
        assert!(most > bound / 2, "the flood came through: {most}");
        // The kernel does not cut the last buffer of a limited receive.
        assert!(most <= bound + buffer, "{most} bytes unread");
        flooder.shutdown(std::net::Shutdown::Both).unwrap();
        flood.join().unwrap();
    }
}
