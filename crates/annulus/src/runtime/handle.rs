//! A handle to a runtime, for other threads.

use crate::memory::MemoryLimit;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::stats::{Stats, TaskInfo, Trace};
use crate::tasks::remote::Remote;
use crate::tasks::{self, JoinHandle, refuse};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A handle that spawns tasks on a runtime, wakes it and stops it, from any thread. It is `Send`,
/// `Sync` and cheap to clone, and does not keep the runtime alive.
///
/// It makes a system call only if the runtime's loop is asleep.
///
/// ```
/// # annulus::run(async {
/// let handle = annulus::handle()?;
/// let other_thread = std::thread::spawn(move || {
///     // The future is created on the runtime's thread, so it may use the runtime's sockets.
///     handle.spawn_with(|| async {
///         let socket = annulus::net::UdpSocket::bind("127.0.0.1:0")?;
///         socket.local_addr()
///     })
/// });
/// let task = other_thread.join().unwrap()?;
/// println!("bound {}", task.await.unwrap()?);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Handle {
    remote: Arc<Remote>,
}

impl Handle {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { remote }
    }

    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Spawns a task on the runtime. It runs there; its result can be awaited anywhere.
    ///
    /// # Errors
    /// After the runtime's end, and in a forked child.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        if let Err(error) = self.remote.check_open() {
            refuse(future);
            return Err(error);
        }
        Ok(tasks::spawn_remotely(&self.remote, future))
    }

    /// Spawns a task whose future `make` creates on the runtime's thread, so that it need not be
    /// `Send`. Aborting the task drops the future on that thread. The values that `make` captures
    /// move to another thread, so they must be `Send`. A stream is not, so this does not compile:
    ///
    /// ```compile_fail,E0277
    /// fn elsewhere(handle: &annulus::Handle, stream: annulus::net::TcpStream) {
    ///     _ = handle.spawn_with(move || async move { stream.into_parts().await.is_ok() });
    /// }
    /// ```
    ///
    /// # Errors
    /// After the runtime's end, and in a forked child.
    #[track_caller]
    pub fn spawn_with<M, F>(&self, make: M) -> io::Result<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        if let Err(error) = self.remote.check_open() {
            refuse(make);
            return Err(error);
        }
        Ok(tasks::spawn_late(&self.remote, make))
    }

    /// Runs a future, which `make` creates on the runtime's thread, as a task there, and blocks
    /// this thread until it is done. If the task panics, the panic resumes here.
    ///
    /// # Errors
    /// If the runtime has ended or ends before the task; if this thread runs a runtime, whose loop
    /// would be blocked, or has built this one, which nothing else can run; or in a forked child.
    #[track_caller]
    pub fn block_on<M, F>(&self, make: M) -> io::Result<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.remote.check_open()?;
        if current::get().is_ok() {
            let text =
                "block_on would block the loop of this thread; await a task of spawn_with instead";
            return Err(io::Error::other(text));
        }
        if self.remote.on_owner_thread() {
            let text = "Handle::block_on would wait forever on the thread that runs the runtime; use Runtime::block_on";
            return Err(io::Error::other(text));
        }
        match wait_for(self.spawn_with(make)?) {
            Ok(value) => Ok(value),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_cancelled) => Err(io::Error::other("the runtime has ended")),
            },
        }
    }

    /// Returns the number of streams open on the runtime, as of its last turn.
    pub fn streams(&self) -> usize {
        self.remote.streams()
    }

    /// Returns the limit on the memory of the runtime's streams and datagram sockets, or `None` if
    /// there is no limit. The limit reports how much is held now and how many streams are paused,
    /// over all runtimes that share it.
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        self.remote.memory_limit().cloned()
    }

    /// Returns the state and counters of the runtime. The snapshot is taken on the runtime's
    /// thread: at once if that is this thread, otherwise by a task in the runtime's next turn, so
    /// it waits while another task blocks the loop. The future may be polled on any runtime; a
    /// thread without a runtime uses [`block_on`](Self::block_on).
    ///
    /// If the future is dropped, the answer is discarded.
    ///
    /// # Errors
    /// After the runtime's end, and in a forked child.
    pub async fn stats(&self) -> io::Result<Stats> {
        self.ask(Core::stats).await
    }

    /// Returns the turns, polls and waits of the last seconds, for a trace viewer. The snapshot is
    /// taken as for [`stats`](Self::stats).
    ///
    /// # Errors
    /// After the runtime's end, and in a forked child.
    pub async fn trace(&self) -> io::Result<Trace> {
        self.ask(Core::trace).await
    }

    /// Returns every unfinished task of the runtime, where it was spawned and what it waits for.
    /// The snapshot is taken as for [`stats`](Self::stats), and leaves out the calling task. It
    /// takes time proportional to the number of tasks and sockets, during which no other task runs.
    ///
    /// # Errors
    /// After the runtime's end, and in a forked child.
    pub async fn tasks(&self) -> io::Result<Vec<TaskInfo>> {
        self.ask(Core::tasks).await
    }

    /// Makes the runtime's loop run a turn, even if it is asleep.
    pub fn wake(&self) {
        self.remote.wake();
    }

    /// Makes the runtime's [`try_block_on`](crate::Runtime::try_block_on) return an error of kind
    /// `Interrupted`. Its `block_on` panics instead. If neither is running, the next call does so,
    /// unless its future is ready at once.
    pub fn stop(&self) {
        self.remote.stop();
    }
}

/// Blocks this thread until a future is ready.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
