//! Outgoing datagrams. A send waits for space in the queue. Then it checks the datagram, splits it
//! if needed, and queues it in the form in which the kernel reads it.
//!
//! Large borrowed bytes are sent at once by a system call, so that only the kernel copies them. To
//! keep datagrams in order, this happens only while the socket has nothing queued or in flight. If
//! the kernel refuses such a datagram, it is queued, and an error of the queued send is handled
//! like any other. The bytes sent this way are bounded per turn, because a socket that takes
//! everything at once would starve other tasks. Small datagrams are copied and queued, because a
//! turn sends many of them with one call.

use super::{DatagramResources, DatagramSocket, PeerAddress};
use crate::bytes::chunk::Chunk;
use crate::bytes::chunk::DeferredDrops;
use crate::slots::loop_state::LoopState;
use crate::waiters::{Wait, WaiterId};
use annulus_driver::MemoryOp;
use annulus_kernel::{
    Address, Control, ControlWriter, Direction, Domain, Fd, IoVec, MsgHeader, space,
};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::task::{Context, Poll, ready};

/// Maximum segments per send (`UDP_MAX_SEGMENTS` was 64 before Linux 6.9).
pub(super) const MAX_SEGMENTS: usize = 64;
/// Maximum payload bytes: 65,535 less the UDP header (8 bytes) and, for IPv4, the IP header (20
/// bytes).
const MAX_V4_PAYLOAD_BYTES: usize = 65_507;
const MAX_V6_PAYLOAD_BYTES: usize = 65_527;
const POLLED_AFTER_COMPLETION: &str = "polled after completion";
/// Minimum borrowed bytes worth a system call of their own.
const MIN_DIRECT_BYTES: usize = 4 * 1024;
/// Maximum borrowed bytes sent directly per turn by all sockets.
const MAX_DIRECT_BYTES_PER_TURN: usize = 1024 * 1024;

/// The destination of a datagram, and the options of its send.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendMeta {
    /// The destination's address. Empty for the peer of a connected socket.
    pub(crate) to: PeerAddress,
    /// The payload is split into datagrams of this size.
    pub(crate) segment_size: Option<u16>,
    pub(crate) tos: Option<u8>,
    /// The local address to send from.
    pub(crate) source: Option<IpAddr>,
    /// The destination is an IPv4 address, possibly on an IPv6 socket.
    pub(crate) v4: bool,
}

/// Space for the control messages of a datagram without descriptors: segment size, service class
/// and packet information.
pub(super) const CONTROL_BYTES: usize = space(2) + space(4) + space(20);

/// The state of an outgoing datagram.
///
/// An event of a submitted datagram sets its next state. Without an event, the datagram counts as
/// sent once its batch is assumed complete. Then sent and failed datagrams are freed, and the
/// others are queued again or deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingState {
    Queued,
    /// In flight.
    Submitted,
    /// An event reported that the datagram was sent.
    Sent,
    /// The datagram found no space.
    NoSpace,
    /// The datagram will be queued again without waiting for space.
    Retry,
    /// The payload will be split into datagrams, which are queued instead.
    Split,
    /// The send failed, and the failure was recorded.
    Failed,
}

/// An outgoing datagram, with everything that the kernel reads of it. It must not move while it is
/// submitted, because the operation points into it.
pub(crate) struct OutgoingDatagram {
    pub(super) slot: u32,
    /// Bytes that count against the send bound.
    pub(super) weight: usize,
    pub(super) state: OutgoingState,
    /// The datagram found no space earlier.
    pub(super) waited: bool,
    /// An error that an earlier datagram may have caused, after which this one was sent again.
    pub(super) earlier: Option<Errno>,
    pub(super) chunk: Chunk,
    pub(super) meta: SendMeta,
    /// The `sendmsg` arguments of a submitted datagram, unless the operation takes bytes and
    /// address directly. Stored inline to avoid an allocation.
    message: Option<SendMsgArgs>,
}

/// The arguments of a `sendmsg`. The header points to the other two fields.
struct SendMsgArgs {
    header: MsgHeader,
    vector: IoVec,
    control: [u8; CONTROL_BYTES],
}

impl OutgoingDatagram {
    #[inline]
    pub(super) fn new(slot: u32, weight: usize, chunk: Chunk, meta: SendMeta) -> Self {
        Self {
            slot,
            weight,
            state: OutgoingState::Queued,
            waited: false,
            earlier: None,
            chunk,
            meta,
            message: None,
        }
    }

    /// Returns the operation that sends the datagram and posts an event only on failure. It refers
    /// to memory that `self` owns. With `addressed`, the driver can send to an address, so a
    /// datagram without control messages needs no header.
    #[inline]
    pub(super) fn send_now(&mut self, fd: Fd, addressed: bool) -> MemoryOp {
        let is_plain = addressed && self.meta.is_plain() && self.chunk.control().is_empty();
        // A datagram that is too long for the length field of `SendToNow` is sent with a header, so
        // that the kernel refuses it instead of sending a part of it.
        let Some(len) = u32::try_from(self.chunk.len()).ok().filter(|_| is_plain) else {
            return MemoryOp::SendMessageNow { fd, header: self.write_header() };
        };
        let (bytes, to) = (self.chunk.as_ref(), self.meta.to.as_bytes());
        let (buffer, to_len) = (bytes.as_ptr(), to.len() as u16);
        MemoryOp::SendToNow { fd, buffer, len, to: start(to), to_len }
    }

    /// Writes the header, which points into `self`. Returns its address.
    pub(super) fn write_header(&mut self) -> *const u8 {
        let (bytes, to) = (self.chunk.as_ref(), self.meta.to.as_bytes());
        let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let header = MsgHeader::EMPTY;
        let message =
            self.message.insert(SendMsgArgs { header, vector, control: [0; CONTROL_BYTES] });
        let SendMsgArgs { header, vector, control } = message;
        (header.vectors, header.vector_count) = (ptr::from_ref(vector), 1);
        (header.name, header.name_len) = (start(to), to.len() as u32);
        if self.chunk.control().is_empty() {
            header.control_len = self.meta.write_control(control);
            header.control = control.as_ptr();
        } else {
            header.control_len = self.chunk.control().len();
            header.control = self.chunk.control().as_ptr();
        }
        ptr::from_ref(header).cast()
    }
}

/// Returns the pointer to an address, or null if it is empty, because a send treats every other
/// pointer as an address.
#[inline]
fn start(to: &[u8]) -> *const u8 {
    if to.is_empty() { ptr::null() } else { to.as_ptr() }
}

impl SendMeta {
    /// Returns true if these options need no control messages.
    #[inline]
    fn is_plain(&self) -> bool {
        self.segment_size.is_none() && self.tos.is_none() && self.source.is_none()
    }

    /// Writes the control messages of the datagram. Returns their length in bytes.
    pub(super) fn write_control(&self, control: &mut [u8; CONTROL_BYTES]) -> usize {
        if self.is_plain() {
            return 0;
        }
        let Self { segment_size, tos, source, v4, .. } = *self;
        let mut writer = ControlWriter::new(control, Direction::Sent);
        let class = |tos| if v4 { Control::Tos(tos) } else { Control::TrafficClass(tos) };
        let controls = [
            segment_size.map(Control::SegmentSize),
            tos.map(class),
            source.map(|local| Control::PacketInfo { local, interface: 0 }),
        ];
        let fit = controls.into_iter().flatten().all(|control| writer.push(control));
        debug_assert!(fit, "the control messages do not fit");
        writer.len()
    }

    /// Sets the destination, unless the datagram has one.
    pub(super) fn address_to(&mut self, peer: &PeerAddress) {
        if self.to.is_empty() {
            self.to = peer.clone();
        }
    }

    /// Returns the metadata of a datagram to the peer of a connected socket.
    pub(crate) fn connected(v4: bool) -> Self {
        Self { v4, ..Self::default() }
    }

    #[inline]
    pub(crate) fn to_inet(to: SocketAddr) -> Self {
        let v4 = match to.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
        };
        Self { to: to.into(), v4, ..Self::default() }
    }

    pub(crate) fn to(to: Address) -> Self {
        Self { to: to.into(), ..Self::default() }
    }
}

impl DatagramSocket {
    /// Queues a datagram as soon as there is space for it.
    ///
    /// # Errors
    /// Like [`try_send`](Self::try_send), except for `WouldBlock`.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        datagram: &mut Option<(Chunk, SendMeta)>,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_send_ready(shared, state, wait, cx));
        Poll::Ready(self.try_send(shared, state, datagram))
    }

    /// Returns `Ready` once there is space for a datagram.
    #[inline]
    pub(crate) fn poll_send_ready(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let has_space = self.has_space(shared, state);
        self.wait_until(has_space, &mut state.deferred, wait, cx)
    }

    /// Returns `Ready` if `is_there` is true. Otherwise registers the task.
    #[inline]
    fn wait_until(
        &mut self,
        is_there: bool,
        deferred: &mut DeferredDrops,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        if !is_there || wait.has_waited() {
            self.note_wait(is_there, deferred, wait, cx);
        }
        if is_there { Poll::Ready(()) } else { Poll::Pending }
    }

    #[cold]
    fn note_wait(
        &mut self,
        is_over: bool,
        deferred: &mut DeferredDrops,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) {
        let DeferredDrops { wakes, drops, .. } = deferred;
        if is_over {
            self.tx.waiters.leave(wait, drops);
        } else {
            self.tx.waiters.wait(wait, cx.waker(), wakes, drops);
        }
    }

    /// Queues a datagram unless too much is queued. A datagram without segments is moved only once,
    /// to the memory from which the kernel reads it.
    ///
    /// # Errors
    /// `WouldBlock` if too much is queued; the reason why an earlier datagram to the same
    /// destination was not sent; `InvalidInput` if the datagram is too large or its segment size is
    /// 0.
    #[inline]
    pub(crate) fn try_send(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        datagram: &mut Option<(Chunk, SendMeta)>,
    ) -> io::Result<()> {
        let (chunk, meta) = datagram.as_ref().expect(POLLED_AFTER_COMPLETION);
        let (len, size) = (chunk.len(), meta.segment_size);
        if let Err(error) = self.check(shared, state, len, meta) {
            let chunk = datagram.take().map(|(chunk, _)| chunk);
            chunk
                .into_iter()
                .for_each(|chunk| chunk.retire(&mut state.spares, &mut state.deferred));
            return Err(error);
        }
        match size {
            Some(size) if self.format.domain != Domain::Unix => {
                let (chunk, meta) = datagram.take().expect(POLLED_AFTER_COMPLETION);
                self.queue_segments(shared, state, chunk, meta, size.into());
            }
            _ => self.queue_from(shared, state, len, datagram),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        len: usize,
        meta: &SendMeta,
    ) -> io::Result<()> {
        if let Some(error) = self.tx.failures.take_of(&meta.to) {
            return Err(error);
        }
        if !self.has_space(shared, state) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.format.domain == Domain::Unix {
            return Ok(());
        }
        let most = most_of(meta);
        check_size(meta.segment_size.map_or(len, usize::from), most)?;
        meta.segment_size.map_or(Ok(()), |size| check_segment(size, most))
    }

    /// Queues a payload that consists of datagrams of `size` bytes, in pieces that each fit into
    /// one send.
    fn queue_segments(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        mut chunk: Chunk,
        meta: SendMeta,
        size: usize,
    ) {
        let (piece, segment_size) = if self.tx.splits_here {
            (size, None)
        } else {
            (size * MAX_SEGMENTS.min(most_of(&meta) / size), meta.segment_size)
        };
        let meta = SendMeta { segment_size, ..meta };
        while chunk.len() > piece {
            let first = chunk.split_to(piece);
            self.queue(shared, state, first, meta.clone());
        }
        let segment_size = meta.segment_size.filter(|_| chunk.len() > size);
        self.queue(shared, state, chunk, SendMeta { segment_size, ..meta });
    }

    pub(super) fn queue(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        chunk: Chunk,
        meta: SendMeta,
    ) {
        self.queue_from(shared, state, chunk.len(), &mut Some((chunk, meta)));
    }

    #[inline]
    fn queue_from(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        len: usize,
        datagram: &mut Option<(Chunk, SendMeta)>,
    ) {
        let (chunk, _) = datagram.as_ref().expect(POLLED_AFTER_COMPLETION);
        state.memory.meter.add(chunk.weight());
        let (slot, weight) = (self.id.index, len + size_of::<OutgoingDatagram>());
        let id = shared.outgoing.insert_with(|_| {
            let (chunk, meta) = datagram.take().expect(POLLED_AFTER_COMPLETION);
            OutgoingDatagram::new(slot, weight, chunk, meta)
        });
        self.tx.queue.push_back(id);
        self.tx.weight += weight;
        self.list_send(shared);
    }

    /// Returns `Ready` once the kernel has taken all datagrams, or they have failed.
    ///
    /// # Errors
    /// The reason why the last failed datagram was not sent, with the number of other failures.
    /// Failures are returned once.
    pub(crate) fn poll_drain(
        &mut self,
        state: &mut LoopState,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.wait_until(self.tx.is_idle(), &mut state.deferred, wait, cx));
        Poll::Ready(self.tx.failures.take_all().map_or(Ok(()), Err))
    }

    /// Removes a dropped future that waited for space or a drain. No other waiter has to be
    /// notified instead, because all are notified at the same time.
    pub(crate) fn leave_send(&mut self, state: &mut LoopState, id: &mut Option<WaiterId>) {
        state.deferred.drops.extend(self.tx.waiters.remove(id));
    }
}

pub(super) fn most_of(meta: &SendMeta) -> usize {
    if meta.v4 { MAX_V4_PAYLOAD_BYTES } else { MAX_V6_PAYLOAD_BYTES }
}

fn check_segment(size: u16, most: usize) -> io::Result<()> {
    if size > 0 {
        return Ok(());
    }
    let text = format!("a segment size of 0 bytes is out of range (1–{most})");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn check_size(len: usize, most: usize) -> io::Result<()> {
    if len <= most {
        return Ok(());
    }
    let text = format!(
        "a datagram of {len} bytes is above the limit of {most}; send it in pieces, or with send_segments"
    );
    // `io::ErrorKind` has no kind for EMSGSIZE.
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl DatagramSocket {
    /// Sends borrowed bytes directly if that is worthwhile, or copies them into a buffer of the
    /// runtime's own, which is sent with the turn.
    ///
    /// # Errors
    /// See [`try_send`](Self::try_send).
    pub(crate) fn try_send_borrowed(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        bytes: &[u8],
        meta: SendMeta,
    ) -> io::Result<()> {
        if bytes.len() >= MIN_DIRECT_BYTES && self.may_send_directly(shared, bytes.len(), &meta) {
            self.check(shared, state, bytes.len(), &meta)?;
            if self.send_directly(shared, state, bytes, &meta) {
                return Ok(());
            }
        }
        let mut buffer = state.spares.take();
        buffer.extend_from_slice(bytes);
        self.try_send(shared, state, &mut Some((Chunk::copied(buffer), meta)))
    }

    /// Returns true if the datagram may be sent directly. The datagrams of a connected socket are
    /// always queued, because a direct send could return an error of an earlier datagram, which is
    /// meant for receiving tasks.
    fn may_send_directly(&self, shared: &DatagramResources, len: usize, meta: &SendMeta) -> bool {
        let unsplit = meta
            .segment_size
            .is_none_or(|size| len <= most_of(meta) && len <= usize::from(size) * MAX_SEGMENTS);
        unsplit
            && self.tx.is_quiet()
            && !self.tx.awaits_retry
            && !self.tx.connected
            && self.format.domain != Domain::Unix
            && (meta.segment_size.is_none() || !self.tx.splits_here)
            && shared.turn_lists.sent_directly < MAX_DIRECT_BYTES_PER_TURN
    }

    /// Sends a datagram with one system call. Returns true if the kernel has taken it.
    fn send_directly(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        bytes: &[u8],
        meta: &SendMeta,
    ) -> bool {
        // A single segment is sent as a plain datagram, which may be larger than the route's MTU.
        let several = meta.segment_size.filter(|size| bytes.len() > usize::from(*size));
        let meta = &SendMeta { segment_size: several, ..meta.clone() };
        shared.turn_lists.sent_directly += bytes.len();
        self.call_send(state, bytes, meta).is_ok()
    }

    fn call_send(&self, state: &mut LoopState, bytes: &[u8], meta: &SendMeta) -> io::Result<()> {
        let mut control = [0; CONTROL_BYTES];
        let control_len = meta.write_control(&mut control);
        let (to, control) = (meta.to.as_bytes(), &control[..control_len]);
        let sent = state.driver.kernel().send_datagram_now(self.fd, to, control, bytes);
        state.driver.counters().direct_sends += u64::from(sent.is_ok());
        sent
    }

    /// Sends the queued datagrams now, as far as there is space, because options are about to
    /// change. No option affects how Unix datagrams are sent.
    pub(crate) fn send_queued(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        self.start_in_flight(state);
        while self.format.domain != Domain::Unix && self.tx.may_start() {
            let Some(id) = self.tx.queue.pop_front() else { break };
            self.tx.in_flight.push_back(id);
            let datagram = shared.outgoing.get(id);
            let sent = self.call_send(state, datagram.chunk.as_ref(), &datagram.meta);
            datagram.state = match sent.map_err(|error| Errno::from_io_error(&error)) {
                Ok(()) => OutgoingState::Sent,
                Err(errno) => self.on_refused(datagram, errno.unwrap_or(Errno::IO)),
            };
            self.settle_batch(shared, state);
        }
    }
}
