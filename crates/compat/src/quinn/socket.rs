//! An implementation of quinn's UDP socket trait.

use crate::OnThread;
use annulus::net::{Datagram, OpError, Transmit, UdpSocket};
use quinn::udp::{self, EcnCodepoint, RecvMeta};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Maximum datagrams per send, as accepted by kernels before 6.9.
const MAX_DATAGRAMS_PER_SEND: usize = 64;
/// Maximum datagrams that the kernel coalesces (`UDP_GRO_CNT_MAX`).
const MAX_COALESCED_DATAGRAMS: usize = 64;

/// Adapts an annulus UDP socket to quinn, for `Endpoint::new_with_abstract_socket` and
/// `Endpoint::rebind_abstract`.
///
/// A `Socket` sends and receives on the thread that created it, where all of quinn's tasks run. On
/// other threads, sending and receiving return errors. It may be dropped on any thread, but is
/// closed on the thread that created it.
///
/// ```
/// use annulus::net::{UdpOptions, UdpSocket};
/// use annulus_compat::quinn::{Socket, client};
/// use std::sync::Arc;
///
/// annulus::run(async {
///     let endpoint = client("127.0.0.1:0".parse().unwrap())?;
///     // The interface has changed: connections continue from another address.
///     let socket = UdpOptions::new().recv_buffer_size(1 << 20).bind("127.0.0.1:0")?;
///     endpoint.rebind_abstract(Arc::new(Socket::new(socket)?))
/// })
/// # .unwrap();
/// ```
pub struct Socket {
    /// `None` only during `drop`.
    socket: Option<OnThread<UdpSocket>>,
    handle: annulus::Handle,
    may_fragment: bool,
}

impl Socket {
    /// Takes an unconnected socket and sets the options that QUIC needs: coalescing, congestion
    /// notification, local addresses, and no fragmentation. Coalescing and the ban on fragmentation
    /// are skipped if the system does not support them.
    ///
    /// # Errors
    /// Fails with `InvalidInput` for a connected socket. Also fails outside a runtime, or if the
    /// system rejects another option.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        if let Ok(peer) = socket.peer_addr() {
            let text = format!(
                "the socket is connected to {peer}, but an endpoint needs an unconnected one"
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        socket.set_recv_tos(true)?;
        socket.set_packet_info(true)?;
        _ = socket.set_coalescing(true);
        let may_fragment = socket.set_dont_fragment(true).is_err();
        let handle = annulus::handle()?;
        Ok(Self { socket: Some(OnThread::new(socket)), handle, may_fragment })
    }

    /// Fails on a thread other than the one that created the socket.
    fn socket(&self) -> io::Result<&UdpSocket> {
        let socket = self.socket.as_ref().expect("the socket was taken before the drop");
        Ok(socket.try_ref()?)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(self))
    }

    /// Network errors and `InvalidInput`, which a datagram that is too large causes, are ignored:
    /// the datagram counts as lost, and quinn resends its content.
    fn try_send(&self, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        let (socket, how) = (self.socket()?, transmit_of(transmit));
        let send = || socket.try_send(transmit.contents, &how);
        // The error may belong to an earlier datagram to the same address. In that case the kernel
        // has not sent this datagram, so try again.
        match send().or_else(|error| if is_of_network(&error) { send() } else { Err(error) }) {
            Err(error) if !is_of_network(&error) && error.kind() != ErrorKind::InvalidInput => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let socket = self.socket()?;
        let mut count = 0;
        while let Some((buf, meta)) = bufs.get_mut(count).zip(metas.get_mut(count)) {
            match socket.poll_recv_datagram(cx) {
                Poll::Ready(Ok(datagram)) => count += usize::from(fill(buf, meta, &datagram)),
                // The error belongs to an earlier datagram, which is lost.
                Poll::Ready(Err(error)) if is_of_network(&error) => {}
                Poll::Ready(Err(error)) if count == 0 => return Poll::Ready(Err(error)),
                Poll::Pending if count == 0 => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket()?.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        MAX_DATAGRAMS_PER_SEND
    }

    fn max_receive_segments(&self) -> usize {
        MAX_COALESCED_DATAGRAMS
    }

    fn may_fragment(&self) -> bool {
        self.may_fragment
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        if socket.try_ref().is_err() {
            // Closes the socket on its own thread. If the runtime has ended, it is already closed.
            _ = self.handle.spawn(async move { drop(socket) });
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("local", &self.local_addr().ok()).finish()
    }
}

/// Waits for send space on behalf of one connection, and wakes only that connection's task.
#[derive(Debug)]
struct Poller(Arc<Socket>);

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket()?.poll_send_ready(cx)
    }
}

/// Returns true if an error concerns a datagram or its route, not the socket.
fn is_of_network(error: &io::Error) -> bool {
    OpError::of(error).is_some()
}

fn transmit_of(transmit: &udp::Transmit<'_>) -> Transmit {
    let mut how = Transmit::to(transmit.destination);
    let several = transmit.segment_size.filter(|size| *size < transmit.contents.len());
    if let Some(size) = several.and_then(|size| u16::try_from(size).ok()) {
        how = how.segment_size(size);
    }
    if let Some(ecn) = transmit.ecn {
        how = how.tos(ecn as u8);
    }
    transmit.src_ip.map_or(how, |source| how.source(source))
}

/// Copies a datagram, or several coalesced ones, into quinn's buffer. Returns false if it does not
/// fit or is truncated; it is then lost.
fn fill(buf: &mut [u8], meta: &mut RecvMeta, datagram: &Datagram) -> bool {
    let len = datagram.bytes.len();
    let Some(space) = buf.get_mut(..len).filter(|_| !datagram.is_truncated()) else { return false };
    space.copy_from_slice(&datagram.bytes);
    *meta = RecvMeta {
        addr: datagram.source,
        len,
        stride: datagram.segment_size.unwrap_or(len),
        ecn: datagram.tos.and_then(EcnCodepoint::from_bits),
        dst_ip: datagram.local,
    };
    true
}
