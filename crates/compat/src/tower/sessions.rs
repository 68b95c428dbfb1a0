//! Upgraded connections: how many are open, and how they end when the server shuts down.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use tokio_util::sync::CancellationToken;

/// The sessions of a server: its upgraded connections, such as WebSockets, and the tasks that serve
/// them.
///
/// [`Serve::sessions`](super::Serve::sessions) returns it, each request that may be upgraded has it
/// as an extension, and so does [`WebSocketUpgrade`](super::WebSocketUpgrade) (feature `ws`). A
/// graceful shutdown tells the sessions to end ([`shutting_down`](Self::shutting_down)), waits for
/// them within [`drain_timeout`](super::Serve::drain_timeout), and cuts the rest:
///
/// - Tasks spawned with [`spawn`](Self::spawn), and those of `WebSocketUpgrade`, are dropped.
/// - Reads and writes on other upgraded streams fail with `ConnectionAborted`.
/// - Each one counts in [`cut`](Self::cut), and is reported to
///   [`on_error`](super::Serve::on_error) with its peer, unless it has dropped its stream.
///
/// An upgraded connection without a task that the server knows is a session until its stream is
/// dropped.
///
/// ```
/// use annulus::io::AsyncRecv;
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::tower::{Sessions, serve_hyper};
/// use hyper::service::service_fn;
/// use hyper::{Request, Response, StatusCode, body::Incoming};
/// use hyper_util::rt::TokioIo;
/// use std::convert::Infallible;
/// use std::future::IntoFuture;
/// use std::time::Duration;
/// use tokio::io::AsyncWriteExt;
///
/// /// Upgrades to a protocol in which the server says when it ends.
/// async fn upgrade(mut request: Request<Incoming>) -> Result<Response<String>, Infallible> {
///     let mut response = Response::new(String::new());
///     if let Some(sessions) = request.extensions().get::<Sessions>().cloned() {
///         let upgraded = hyper::upgrade::on(&mut request);
///         let shutdown = sessions.shutting_down();
///         sessions.spawn(async move {
///             let mut stream = TokioIo::new(upgraded.await?);
///             shutdown.await;
///             stream.write_all(b"bye").await?;
///             stream.shutdown().await?;
///             Ok::<_, Box<dyn std::error::Error>>(())
///         });
///         *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
///         response.headers_mut().insert("connection", "upgrade".parse().unwrap());
///         response.headers_mut().insert("upgrade", "bye".parse().unwrap());
///     }
///     Ok(response)
/// }
///
/// annulus::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let stop = tokio_util::sync::CancellationToken::new();
///     let server = serve_hyper(listener, service_fn(upgrade))
///         .with_graceful_shutdown(stop.clone().cancelled_owned())
///         .drain_timeout(Duration::from_secs(10));
///     let sessions = server.sessions();
///     let server = annulus::spawn(server.into_future());
///
///     let mut client = TcpStream::connect(address).await?;
///     client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: bye\r\n\r\n").await?;
///     while client.recv_until(b'\n', 1000).await?.expect("the head ended early").len() > 2 {}
///     stop.cancel();
///     assert_eq!(&*client.recv_exact(3).await?, b"bye");
///     server.await??;
///     assert_eq!((sessions.open(), sessions.cut()), (0, 0));
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone)]
pub struct Sessions {
    server: Arc<Server>,
    /// The session of the request that has this value as an extension.
    session: Option<Arc<Session>>,
}

/// Shared by a server and its sessions. Atomic, because a request's extensions must be `Send`, and a
/// program may spawn sessions on other threads.
struct Server {
    stop: CancellationToken,
    /// Cancelled when the remaining sessions are cut.
    cut: CancellationToken,
    open_count: AtomicUsize,
    task_count: AtomicUsize,
    cut_count: AtomicUsize,
    /// The task that waits for sessions to end.
    waiter: Mutex<Option<Waker>>,
}

impl Server {
    fn wake(&self) {
        let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Waits until a count is zero.
    async fn until_zero(&self, count: &AtomicUsize) {
        poll_fn(|cx| {
            // Registered before the check, because the last session may end on another thread.
            *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if count.load(Relaxed) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// One upgraded connection, with the task that serves it.
pub(super) struct Session {
    server: Arc<Server>,
    hold_count: AtomicUsize,
}

impl Session {
    /// Counts the session as open until the result and all others of this session are dropped.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        if self.hold_count.fetch_add(1, Relaxed) == 0 {
            self.server.open_count.fetch_add(1, Relaxed);
        }
        Hold(self.clone())
    }
}

/// The stream or the task of a session.
pub(super) struct Hold(Arc<Session>);

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.hold_count.fetch_sub(1, Relaxed) == 1 {
            self.0.server.open_count.fetch_sub(1, Relaxed);
            self.0.server.wake();
        }
    }
}

struct TaskCount(Arc<Server>);

impl Drop for TaskCount {
    fn drop(&mut self) {
        self.0.task_count.fetch_sub(1, Relaxed);
        self.0.wake();
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        let server = Arc::new(Server {
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            open_count: AtomicUsize::new(0),
            task_count: AtomicUsize::new(0),
            cut_count: AtomicUsize::new(0),
            waiter: Mutex::default(),
        });
        Self { server, session: None }
    }

    /// Completes once the server's graceful shutdown has begun; at once if it already has. The
    /// session should then say goodbye to its peer and end.
    ///
    /// The future is cancel-safe. It never completes without
    /// [`with_graceful_shutdown`](super::Serve::with_graceful_shutdown), or if the server was
    /// dropped before.
    pub fn shutting_down(&self) -> impl Future<Output = ()> + Send + use<> {
        self.server.stop.clone().cancelled_owned()
    }

    /// Returns true if the server's graceful shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.server.stop.is_cancelled()
    }

    /// Returns the number of open sessions.
    pub fn open(&self) -> usize {
        self.server.open_count.load(Relaxed)
    }

    /// Returns the number of sessions that were cut, because they were still open at the end of
    /// [`drain_timeout`](super::Serve::drain_timeout).
    pub fn cut(&self) -> usize {
        self.server.cut_count.load(Relaxed)
    }

    /// Spawns the task of a session on this thread's runtime. A graceful shutdown waits for it, and
    /// drops it if it does not end in time. Its result is then `None`.
    ///
    /// On the value from a request's extensions, the task and the upgraded connection count as one
    /// session. Otherwise the task is a session of its own.
    ///
    /// # Panics
    /// Panics outside a runtime, like [`annulus::spawn`].
    pub fn spawn<F>(&self, session: F) -> annulus::task::JoinHandle<Option<F::Output>>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let hold = self.session.clone().unwrap_or_else(|| self.new_session()).hold();
        let server = self.server.clone();
        server.task_count.fetch_add(1, Relaxed);
        let counted = TaskCount(server.clone());
        annulus::spawn(async move {
            let _guards = (hold, counted);
            server.cut.run_until_cancelled(session).await
        })
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.server.stop
    }

    fn new_session(&self) -> Arc<Session> {
        Arc::new(Session { server: self.server.clone(), hold_count: AtomicUsize::new(0) })
    }

    /// Returns the extension of a request that may be upgraded, and its session, which is not open
    /// yet.
    pub(super) fn of_request(&self) -> (Self, Arc<Session>) {
        let session = self.new_session();
        (Self { server: self.server.clone(), session: Some(session.clone()) }, session)
    }

    pub(super) async fn all_ended(&self) {
        self.server.until_zero(&self.server.open_count).await;
    }

    /// Counts the open sessions as cut, and tells their tasks to drop themselves.
    pub(super) fn cut_all(&self) {
        self.server.cut_count.fetch_add(self.open(), Relaxed);
        self.server.cut.cancel();
    }

    pub(super) async fn all_tasks_dropped(&self) {
        self.server.until_zero(&self.server.task_count).await;
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open()).field("cut", &self.cut()).finish()
    }
}
