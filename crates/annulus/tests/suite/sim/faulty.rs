//! Foreign code that panics during a run: wakers, values, panic payloads and owners of bytes.
//! Nothing else is lost because of it, and each of these is dropped once (invariant 15).

use crate::sim::foreign::{Bomb, Here, waker_of};
use crate::sim::run::Run;
use annulus::net::{TcpStream, UdpSocket};
use annulus::spawn;
use annulus::task::JoinHandle;
use bytes::Bytes;
use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::mem::forget;
use std::net::SocketAddr;
use std::panic::panic_any;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::panicking;

/// Counts the faulty values and wakers that a run has created, and those that were dropped.
#[derive(Default)]
pub(crate) struct Tally {
    made: Cell<u64>,
    dropped: Cell<u64>,
}

impl Tally {
    pub(crate) fn made(&self) -> u64 {
        self.made.get()
    }

    pub(crate) fn left(&self) -> u64 {
        self.made.get() - self.dropped.get()
    }
}

/// A value whose drop panics if it is armed, unless the thread is already unwinding, since a second
/// panic would abort the process.
pub(crate) struct FaultyValue {
    tally: Rc<Tally>,
    armed: Cell<bool>,
}

impl FaultyValue {
    pub(crate) fn new(tally: &Rc<Tally>) -> Self {
        tally.made.set(tally.made.get() + 1);
        Self { tally: tally.clone(), armed: Cell::new(true) }
    }
}

impl Drop for FaultyValue {
    fn drop(&mut self) {
        self.tally.dropped.set(self.tally.dropped.get() + 1);
        if self.armed.get() && !panicking() {
            panic_any(Bomb);
        }
    }
}

/// Wakes a task. Then either its wake or its drop panics.
struct FaultyWaker {
    task: Waker,
    wake_panics: bool,
    value: Here<FaultyValue>,
}

impl Wake for FaultyWaker {
    fn wake(self: Arc<Self>) {
        self.task.wake_by_ref();
        if self.wake_panics {
            panic_any(Bomb);
        }
    }
}

/// Polls a future with a waker that panics.
pub(crate) fn poll_faultily<T>(
    run: &Run,
    cx: &Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let value = Here(FaultyValue::new(run.tally()));
    let wake_panics = run.below(2) == 0;
    value.0.armed.set(!wake_panics);
    let faulty = Arc::new(FaultyWaker { task: cx.waker().clone(), wake_panics, value });
    let waker = Waker::from(faulty.clone());
    let polled = poll(&mut Context::from_waker(&waker));
    drop(waker);
    if Arc::strong_count(&faulty) == 1 {
        // The runtime has kept no clone, so the test itself drops the value.
        faulty.value.0.armed.set(false);
    }
    polled
}

/// Bytes whose owner panics when it is dropped, unless it is disarmed.
pub(crate) struct FaultyBytes {
    bytes: Vec<u8>,
    value: Here<FaultyValue>,
    armed: Arc<AtomicBool>,
}

impl AsRef<[u8]> for FaultyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for FaultyBytes {
    fn drop(&mut self) {
        self.value.0.armed.set(self.armed.load(Ordering::Relaxed));
    }
}

/// Sends bytes whose owner panics when the runtime drops it.
pub(crate) async fn send_faulty<F: Future<Output = io::Result<()>>>(
    run: &Run,
    bytes: Vec<u8>,
    send: impl FnOnce(Bytes) -> F,
) -> io::Result<()> {
    let armed = Arc::new(AtomicBool::new(true));
    let value = Here(FaultyValue::new(run.tally()));
    let bytes = Bytes::from_owner(FaultyBytes { bytes, value, armed: armed.clone() });
    let sent = pin!(send(bytes));
    let mut refused = Disarm(Some(armed));
    sent.await?;
    refused.0 = None;
    Ok(())
}

/// Disarms bytes that a stream has refused, or has not accepted by the time the task is aborted.
/// They are still in the future, which the test itself drops afterwards.
struct Disarm(Option<Arc<AtomicBool>>);

impl Drop for Disarm {
    fn drop(&mut self) {
        self.0.iter().for_each(|armed| armed.store(false, Ordering::Relaxed));
    }
}

/// Runs tasks that panic, or are dropped with a value that panics, at any time.
pub(crate) async fn run_faulty_tasks(run: Run, server: SocketAddr) {
    for _ in 0..run.plan().faulty_tasks {
        run.pause().await;
        let value = FaultyValue::new(run.tally());
        match run.below(6) {
            0 => drop(spawn(take_panic(spawn(end_with(value))))),
            1 => drop(spawn(async { value })),
            2 => drop(spawn(hold(value))),
            3 => {
                let task = spawn(hold(value));
                run.pause().await;
                task.abort();
            }
            4 => take_panic(spawn(end_with(value))).await,
            _ => drop(spawn(leave_behind(run.clone(), value, server))),
        }
    }
}

/// Waits for a task that panics, and takes its panic. Otherwise, the run would fail.
async fn take_panic(task: JoinHandle<()>) {
    match task.await {
        Err(error) => forget(error.into_panic()),
        Ok(()) => panic!("the task ended without a panic"),
    }
}

/// Ends with a panic whose payload panics too. The value is dropped during unwinding.
async fn end_with(value: FaultyValue) {
    let _value = value;
    panic_any(Bomb);
}

async fn hold(value: FaultyValue) {
    pending::<()>().await;
    drop(value);
}

/// Waits for a datagram that never arrives, and leaves behind a stream whose waker owns `other` and
/// `value`. The runtime drops both while it ends, and the drop of `value` panics.
async fn leave_behind(run: Run, value: FaultyValue, server: SocketAddr) -> io::Result<()> {
    // Until the waker owns the value, the test itself drops it.
    value.armed.set(false);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (mut stream, other) =
        (TcpStream::connect(server).await?, TcpStream::connect(server).await?);
    value.armed.set(true);
    let waker = waker_of((other, value));
    let pending = pin!(stream.recv()).poll(&mut Context::from_waker(&waker)).is_pending();
    assert!(pending, "the server sent first");
    drop(waker);
    run.keep(stream);
    poll_fn(|cx| poll_faultily(&run, cx, |cx| pin!(socket.recv()).poll(cx))).await.map(drop)
}
