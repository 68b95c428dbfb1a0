//! Operations of the ring that a program defines.
#![allow(unsafe_code)]

use annulus::sim::Sim;
use annulus::time::{sleep, timeout};
use annulus::uring::{Entry, Operation, Submitted, submit};
use annulus::{DriverChoice, Runtime, spawn};
use annulus_skip::skip;
use rustix::thread::futex;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const NOP: u8 = 0;
const TIMEOUT: u8 = 11;
const READ: u8 = 22;
const SOCKET: u8 = 45;
const URING_CMD: u8 = 46;
const FUTEX_WAIT: u8 = 51;
const FUTEX_WAKE: u8 = 52;
/// 32 bits, of this process.
const FUTEX2_FLAGS: i32 = 2 | 128;

pub(crate) struct Nop;

// SAFETY: the entry refers to no memory and no descriptor.
unsafe impl Operation for Nop {
    type Output = io::Result<u32>;

    fn entry(&mut self) -> Entry {
        Entry { opcode: NOP, ..Entry::default() }
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}

pub(crate) struct Unknown;

// SAFETY: no kernel has the operation, so the entry is never submitted.
unsafe impl Operation for Unknown {
    type Output = io::Result<u32>;

    fn entry(&mut self) -> Entry {
        Entry { opcode: 255, ..Entry::default() }
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}

/// A futex operation on a word that others share, with a note when its memory is freed.
struct Futex {
    opcode: u8,
    word: Arc<AtomicU32>,
    value: u32,
    freed: Rc<Freed>,
}

#[derive(Default)]
struct Freed {
    /// Number of operations that were completed, and dropped.
    counts: Cell<(u32, u32)>,
    last: Cell<Option<ErrorKind>>,
}

// SAFETY: the `Arc` keeps the word alive, and the kernel uses it atomically, as all others do.
unsafe impl Operation for Futex {
    type Output = io::Result<u32>;

    fn entry(&mut self) -> Entry {
        Entry {
            opcode: self.opcode,
            fd: FUTEX2_FLAGS,
            addr: self.word.as_ptr() as u64,
            off: self.value.into(),
            addr3: u32::MAX.into(),
            ..Entry::default()
        }
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<u32> {
        let (completed, dropped) = self.freed.counts.get();
        self.freed.counts.set((completed + 1, dropped));
        self.freed.last.set(result.as_ref().err().map(io::Error::kind));
        result
    }
}

impl Drop for Futex {
    fn drop(&mut self) {
        let (completed, dropped) = self.freed.counts.get();
        self.freed.counts.set((completed, dropped + 1));
    }
}

/// A word, and the notes of the operations on it.
#[derive(Clone, Default)]
struct Word {
    word: Arc<AtomicU32>,
    freed: Rc<Freed>,
}

impl Word {
    fn operation(&self, opcode: u8, value: u32) -> Submitted<Futex> {
        submit(Futex { opcode, word: self.word.clone(), value, freed: self.freed.clone() })
    }

    /// Waits while the word has this value.
    fn wait(&self, value: u32) -> Submitted<Futex> {
        self.operation(FUTEX_WAIT, value)
    }

    /// Returns the number of operations that were woken.
    fn wake(&self) -> usize {
        futex::wake(&self.word, futex::Flags::PRIVATE, u32::MAX).expect("the wake failed")
    }

    /// Lets the loop turn until this many operations have been dropped.
    async fn until_dropped(&self, count: u32) {
        let all = async {
            while self.freed.counts.get().1 < count {
                sleep(Duration::from_micros(100)).await;
            }
        };
        timeout(Duration::from_secs(20), all).await.expect("the memory was not freed");
    }
}

/// Runs on a ring whose kernel has the operation. Otherwise reports the test as skipped.
fn on_ring(opcode: u8, body: impl AsyncFnOnce() -> io::Result<()>) {
    let runtime = Runtime::builder().driver(DriverChoice::Uring).build();
    let mut runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return skip!("no io_uring: {error}"),
    };
    let probe = annulus_ring::Ring::builder().entries(2).build().and_then(|ring| {
        ring.probe().map_err(|error| annulus_ring::SetupError::Step("probing", error))
    });
    if !probe.is_ok_and(|probe| probe.has(opcode)) {
        return skip!("this kernel's io_uring does not have operation {opcode}");
    }
    runtime.block_on(body()).expect("a step of the test failed");
}

#[test]
fn a_futex_is_awaited_and_woken() {
    on_ring(FUTEX_WAKE, async || {
        let word = Word::default();
        // The value differs already.
        let error = word.wait(7).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let waiting = spawn(word.wait(0));
        let waker = word.clone();
        let woken = spawn(async move {
            // Until the wait has reached the kernel.
            loop {
                waker.word.store(1, Ordering::Release);
                if waker.operation(FUTEX_WAKE, 1).await? > 0 {
                    return io::Result::Ok(());
                }
                waker.word.store(0, Ordering::Release);
            }
        });
        // The wait may see the 1 in between.
        let waited = waiting.await.expect("the task panicked");
        let kind = waited.err().map(|error| error.kind());
        assert!(matches!(kind, None | Some(ErrorKind::WouldBlock)), "{kind:?}");
        woken.abort();
        Ok(())
    });
}

#[test]
fn another_thread_wakes_the_task() {
    on_ring(FUTEX_WAIT, async || {
        let word = Word::default();
        let mut wait = Box::pin(word.wait(0));
        let polled = std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
        let shared = word.word.clone();
        let thread = std::thread::spawn(move || {
            while futex::wake(&shared, futex::Flags::PRIVATE, 1).unwrap() == 0 {
                std::thread::yield_now();
            }
        });
        timeout(Duration::from_secs(20), wait).await.expect("not woken")?;
        thread.join().unwrap();
        Ok(())
    });
}

#[test]
fn a_dropped_future_cancels_and_frees_only_afterwards() {
    on_ring(FUTEX_WAIT, async || {
        let word = Word::default();
        // Never polled: never submitted, so never completed.
        drop(word.wait(0));
        assert_eq!(word.freed.counts.get(), (0, 1));
        for round in 2..20 {
            let mut wait = Box::pin(word.wait(0));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            if round % 2 == 0 {
                // It has reached the kernel.
                sleep(Duration::from_micros(100)).await;
            }
            drop(wait);
            assert_eq!(word.freed.counts.get().1, round - 1, "freed while the kernel may use it");
            word.until_dropped(round).await;
            // `complete` got the result.
            assert_eq!(word.freed.counts.get().0, round - 1);
            assert!(word.freed.last.get().is_some());
        }
        // The operation has ended before the drop.
        let mut wait = Box::pin(word.wait(0));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        while word.wake() == 0 {
            sleep(Duration::from_micros(100)).await;
        }
        drop(wait);
        word.until_dropped(20).await;
        assert_eq!(word.freed.last.get(), None);
        assert_eq!(Arc::strong_count(&word.word), 1);
        Ok(())
    });
}

#[test]
fn the_end_of_the_runtime_cancels() {
    let word = Word::default();
    let mut kept = None;
    let in_ring = word.clone();
    on_ring(FUTEX_WAIT, async || {
        spawn(in_ring.wait(0));
        // A future that outlives its runtime.
        let mut wait = Box::pin(in_ring.wait(0));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sleep(Duration::from_millis(1)).await;
        kept = Some(wait);
        Ok(())
    });
    let Some(mut wait) = kept else { return };
    assert_eq!(word.freed.counts.get().1, 1, "the task's operation is still there");
    let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
    drop(wait);
    assert_eq!(word.freed.counts.get().1, 2);
}

#[test]
fn a_forgotten_future_keeps_its_memory() {
    on_ring(FUTEX_WAIT, async || {
        let word = Word::default();
        let mut wait = Box::pin(word.wait(0));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        std::mem::forget(wait);
        while word.wake() == 0 {
            sleep(Duration::from_micros(100)).await;
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(word.freed.counts.get(), (0, 0));
        Ok(())
    });
}

/// Sleeps, with the time inside the value itself.
struct Sleep {
    time: [i64; 2],
}

// SAFETY: the kernel reads the time, a field of the value, which does not move.
unsafe impl Operation for Sleep {
    type Output = io::Error;

    fn entry(&mut self) -> Entry {
        let addr = std::ptr::from_ref(&self.time) as u64;
        Entry { opcode: TIMEOUT, fd: -1, addr, len: 1, ..Entry::default() }
    }

    fn complete(self, result: io::Result<u32>) -> io::Error {
        assert_eq!(self.time, [0, 1_000_000]);
        result.expect_err("a timeout ends with an error")
    }
}

#[test]
fn an_entry_may_refer_to_fields_of_its_value() {
    on_ring(TIMEOUT, async || {
        let error = submit(Sleep { time: [0, 1_000_000] }).await;
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TIME.raw_os_error()));
        Ok(())
    });
}

/// Reads from a descriptor that it owns, into memory that it owns.
struct Read {
    from: OwnedFd,
    memory: Vec<u8>,
}

// SAFETY: the kernel writes to the vector's heap memory, which nothing else uses, and the value owns
// the descriptor.
unsafe impl Operation for Read {
    type Output = io::Result<Vec<u8>>;

    fn entry(&mut self) -> Entry {
        Entry {
            opcode: READ,
            on_worker: true,
            fd: self.from.as_raw_fd(),
            addr: self.memory.as_mut_ptr() as u64,
            len: self.memory.len() as u32,
            off: u64::MAX,
            ..Entry::default()
        }
    }

    fn complete(mut self, result: io::Result<u32>) -> io::Result<Vec<u8>> {
        self.memory.truncate(result? as usize);
        Ok(self.memory)
    }
}

#[test]
fn the_kernel_writes_into_memory_of_the_operation() {
    on_ring(READ, async || {
        let (from, mut to) = std::io::pipe()?;
        let reading = spawn(submit(Read { from: from.into(), memory: vec![0; 100] }));
        sleep(Duration::from_millis(1)).await;
        io::Write::write_all(&mut to, b"written later")?;
        assert_eq!(reading.await.expect("the task panicked")?, b"written later");
        Ok(())
    });
}

/// Opens a socket, whose descriptor is the result.
struct OpenSocket(Rc<Cell<i32>>);

// SAFETY: the entry refers to no memory and no descriptor.
unsafe impl Operation for OpenSocket {
    type Output = io::Result<OwnedFd>;

    fn entry(&mut self) -> Entry {
        const UNIX: i32 = 1;
        const STREAM: u64 = 1;
        Entry { opcode: SOCKET, fd: UNIX, off: STREAM, ..Entry::default() }
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<OwnedFd> {
        let fd = result? as i32;
        self.0.set(fd);
        // SAFETY: the kernel has opened the descriptor for this operation alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

#[test]
fn a_descriptor_in_the_result_of_a_dropped_future_is_closed() {
    on_ring(SOCKET, async || {
        let opened = Rc::new(Cell::new(-1));
        let fd = submit(OpenSocket(opened.clone())).await?;
        rustix::io::fcntl_getfd(fd.as_fd())?;
        drop(fd);
        opened.set(-1);
        let mut open = Box::pin(submit(OpenSocket(opened.clone())));
        assert!(open.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // The socket exists, but no task takes it.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(opened.get(), -1);
        drop(open);
        // `complete` gets the descriptor, and closes it with its output.
        while opened.get() < 0 {
            sleep(Duration::from_micros(100)).await;
        }
        Ok(())
    });
}

#[test]
fn a_descriptor_in_a_result_that_outlives_the_runtime_is_not_lost() {
    for polls in [true, false] {
        let (opened, mut kept) = (Rc::new(Cell::new(-1)), None);
        on_ring(SOCKET, async || {
            let mut open = Box::pin(submit(OpenSocket(opened.clone())));
            assert!(open.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // The socket exists, but no task takes it.
            sleep(Duration::from_millis(1)).await;
            kept = Some(open);
            Ok(())
        });
        let Some(mut open) = kept else { return };
        assert_eq!(opened.get(), -1);
        if polls {
            match open.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(fd)) => assert_eq!(fd.as_raw_fd(), opened.get()),
                polled => panic!("no socket: {polled:?}"),
            }
        }
        drop(open);
        assert!(opened.get() >= 0, "the result was lost");
    }
}

/// Asks a socket how many bytes it has received (`SOCKET_URING_OP_SIOCINQ`, Linux 6.7).
struct Unread(OwnedFd);

// SAFETY: the entry refers to no memory, and the value owns the descriptor.
unsafe impl Operation for Unread {
    type Output = io::Result<u32>;

    fn entry(&mut self) -> Entry {
        Entry { opcode: URING_CMD, fd: self.0.as_raw_fd(), off: 0, ..Entry::default() }
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}

#[test]
fn a_command_of_a_socket_is_made() {
    on_ring(URING_CMD, async || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let mut client = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept()?;
        io::Write::write_all(&mut client, b"1234567")?;
        match submit(Unread(accepted.into())).await {
            Ok(count) => assert_eq!(count, 7),
            // Before Linux 6.7.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                skip!("no commands of sockets: {error}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    });
}

#[test]
fn unavailable_operations_are_refused_with_the_reason() {
    let refused = |error: io::Error, reason: &str| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    let mut epoll = Runtime::builder().driver(DriverChoice::Epoll).build().unwrap();
    epoll.block_on(async {
        refused(
            submit(Nop).await.unwrap_err(),
            "operation 0 of io_uring is not available: the epoll",
        );
        // The operation is completed with the error, and not leaked.
        let word = Word::default();
        refused(word.wait(0).await.unwrap_err(), "epoll driver");
        assert_eq!(word.freed.counts.get(), (1, 1));
    });
    let sim = Sim::builder(1).build();
    let simulated = annulus::sim::run_on(&sim, Runtime::builder(), async { submit(Nop).await });
    refused(simulated.unwrap_err(), "simulated kernel");
    on_ring(NOP, async || {
        assert_eq!(submit(Nop).await?, 0);
        refused(
            submit(Unknown).await.unwrap_err(),
            "operation 255 of io_uring is not available: this kernel",
        );
        Ok(())
    });
    // Outside a runtime.
    let polled = crate::common::touch(submit(Nop)).expect("it waits for a runtime");
    assert!(polled.is_err());
}
