//! An implementation of quinn's runtime trait.

use super::socket::Socket;
use crate::clock::{self, Origin};
use annulus::net::UdpSocket;
use quinn::{AsyncTimer, AsyncUdpSocket};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// A thread's annulus runtime, as a quinn runtime.
///
/// Use it with `quinn::Endpoint::new` and `Endpoint::new_with_abstract_socket`, which have more
/// parameters than the functions of this module:
///
/// ```
/// use annulus_compat::quinn::Runtime;
/// use quinn::{Endpoint, EndpointConfig};
/// use std::sync::Arc;
///
/// annulus::run(async {
///     let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
///     let runtime = Arc::new(Runtime::new()?);
///     let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
///     println!("from {}", endpoint.local_addr()?);
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    handle: annulus::Handle,
    origin: Origin,
}

impl Runtime {
    /// Returns the runtime that is running on this thread.
    ///
    /// # Errors
    /// Fails if called outside a runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self { handle: annulus::handle()?, origin: Origin::new() })
    }
}

impl quinn::Runtime for Runtime {
    /// The timer may be created on any thread, but must be polled on the runtime's thread.
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer::new(self.origin, deadline))
    }

    /// Spawns on the runtime, from any thread. If the runtime has ended, the future is dropped.
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        _ = self.handle.spawn(future);
    }

    /// # Errors
    /// Fails on a thread other than the runtime's. Fails with `Unsupported` under a simulated
    /// kernel; create the endpoint from an annulus socket there.
    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(UdpSocket::from_std(socket)?)?))
    }

    fn now(&self) -> Instant {
        self.origin.now()
    }
}

/// A timer that takes quinn's instants.
#[derive(Debug)]
struct Timer {
    origin: Origin,
    timer: clock::Timer,
}

impl Timer {
    fn new(origin: Origin, deadline: Instant) -> Self {
        Self { origin, timer: clock::Timer::new(origin.to_runtime(deadline)) }
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let deadline = self.origin.to_runtime(deadline);
        self.timer.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.timer).poll(cx)
    }
}
