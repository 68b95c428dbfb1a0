//! Messages on each driver: datagrams arrive with the same layout, and are sent whole or not at
//! all.
#![allow(unsafe_code)]

mod common;

use annulus_driver::{Event, MemoryOp, Op, OpKind, PoolSize, Wait};
use annulus_kernel::{
    Address, Control, ControlWriter, Controls, Direction, Fd, IoVec, Kernel, Linux, MessageHead,
    MessageLayout, MsgHeader, SocketOption, SocketType,
};
use annulus_skip::skip;
use common::{Rig, on_each_driver, own_address, owned};
use rustix::io::Errno;
use std::net::UdpSocket;
use std::os::fd::IntoRawFd;
use std::ptr;

const DATAGRAM_POOL_SIZE: PoolSize = PoolSize { buffer: 8192, count: 8 };
const MESSAGE_LAYOUT: MessageLayout = MessageLayout { name: 32, control: 80 };

/// The header for receiving messages into pool buffers.
const RECEIVE_HEADER: &MsgHeader = &MsgHeader {
    name_len: MESSAGE_LAYOUT.name as u32,
    control_len: MESSAGE_LAYOUT.control,
    ..MsgHeader::EMPTY
};

/// A datagram with its sender and control messages.
struct ReceivedDatagram {
    head: MessageHead,
    from: Address,
    controls: Vec<u8>,
    payload: Vec<u8>,
}

fn open(rig: &mut Rig, fd: Fd) -> annulus_driver::Token {
    rig.driver.open_datagram_pool(DATAGRAM_POOL_SIZE).unwrap();
    rig.start_memory(
        OpKind::RecvDatagram,
        MemoryOp::RecvMessages { fd, header: ptr::from_ref(RECEIVE_HEADER).cast() },
    )
}

fn take(rig: &mut Rig, event: Event) -> ReceivedDatagram {
    let id = event.buffer.expect("a message has no buffer");
    let len = event.result.expect("a message has no length") as usize;
    let pool = rig.driver.datagram_pool().expect("the datagram pool is missing");
    // SAFETY: the buffer is lent to this test, and the driver has filled `len` bytes of it.
    let bytes = unsafe { std::slice::from_raw_parts(pool.address(id), len) };
    let head = MessageHead::read(bytes).unwrap();
    let controls = &bytes[MESSAGE_LAYOUT.control_at()..][..head.control_len as usize];
    let datagram = ReceivedDatagram {
        head,
        from: Address::from_bytes(&bytes[MessageLayout::HEAD_BYTES..][..head.name_len as usize]),
        controls: controls.to_vec(),
        payload: bytes[MESSAGE_LAYOUT.payload_at()..].to_vec(),
    };
    pool.give_back(id);
    datagram
}

fn socket() -> (Fd, UdpSocket) {
    socket_with_peer(UdpSocket::bind("127.0.0.1:0").unwrap())
}

fn socket_with_peer(remote: UdpSocket) -> (Fd, UdpSocket) {
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    remote.connect(ours.local_addr().unwrap()).unwrap();
    ours.set_nonblocking(true).unwrap();
    (owned(ours.into_raw_fd()), remote)
}

#[test]
fn datagrams_arrive_whole_with_their_sender() {
    on_each_driver(|rig| {
        let (fd, peer) = socket();
        Linux.set_option(fd, SocketOption::RecvTos(annulus_kernel::Ip::V4), 1).unwrap();
        let mut token = open(rig, fd);
        for len in [1, 0, 1000, 0, 8192] {
            peer.send(&vec![7; len]).unwrap();
            let event = rig.event(token);
            if !event.more {
                token = open(rig, fd);
            }
            let datagram = take(rig, event);
            let space = DATAGRAM_POOL_SIZE.buffer as usize - MESSAGE_LAYOUT.payload_at();
            assert_eq!(datagram.head.payload_len as usize, len);
            assert_eq!(datagram.head.is_cut(), len > space, "{len}");
            assert!(datagram.payload == vec![7; len.min(space)]);
            assert_eq!(datagram.from.to_inet().unwrap(), peer.local_addr().unwrap());
            let controls: Vec<Control<'_>> = Controls::new(&datagram.controls).collect();
            assert_eq!(controls, [Control::Tos(0)]);
        }
        rig.cancel(token);
        assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
        assert_eq!(rig.driver.datagram_pool().unwrap().lent(), 0);
        rig.close(fd);
    });
}

#[test]
fn a_pool_of_an_invalid_size_is_invalid_input_on_every_driver() {
    on_each_driver(|rig| {
        let error = rig.driver.open_datagram_pool(PoolSize { buffer: 4096, count: 3 }).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    });
}

#[test]
fn a_burst_of_datagrams_arrives_in_order() {
    on_each_driver(|rig| {
        let (fd, peer) = socket();
        let mut token = open(rig, fd);
        for round in 0..3 {
            // More datagrams than buffers.
            (0..20).for_each(|n| assert_eq!(peer.send(&[round, n]).unwrap(), 2));
            for n in 0..20 {
                let mut event = rig.event(token);
                while event.result == Err(Errno::NOBUFS) {
                    token = open(rig, fd);
                    event = rig.event(token);
                }
                assert_eq!(take(rig, event).payload, [round, n]);
            }
        }
        rig.cancel(token);
        rig.event(token);
        rig.close(fd);
    });
}

#[test]
fn an_unreachable_peer_is_reported_once() {
    on_each_driver(|rig| {
        let (fd, peer) = socket_with_peer(UdpSocket::bind(own_address()).unwrap());
        let gone = peer.local_addr().unwrap();
        Linux.connect(fd, &Address::from(gone)).unwrap();
        drop(peer);
        let token = open(rig, fd);
        let outgoing = Outgoing::new(b"hello?!?", None);
        let send = rig.start_memory(OpKind::SendDatagram, outgoing.now(fd));
        let event = rig.event(token);
        assert_eq!((event.result, event.more), (Err(Errno::CONNREFUSED), false));
        let again = UdpSocket::bind(gone).unwrap();
        let token = open(rig, fd);
        rig.start_memory(OpKind::SendDatagram, outgoing.now(fd));
        rig.turn(Wait::No);
        let mut got = [0; 16];
        assert_eq!(again.recv_from(&mut got).unwrap().0, 8);
        assert_ne!(send, token);
        rig.cancel(token);
        rig.event(token);
        rig.close(fd);
    });
}

/// A message to send. Its parts do not move, because the header points to them.
struct Outgoing {
    header: MsgHeader,
    _parts: Box<[IoVec]>,
    _name: Box<Address>,
    _control: Box<[u8]>,
}

impl Outgoing {
    fn new(bytes: &'static [u8], segment: Option<u16>) -> Box<Self> {
        Self::to(bytes, segment, None)
    }

    fn to(bytes: &'static [u8], segment: Option<u16>, to: Option<Address>) -> Box<Self> {
        let parts: Box<[IoVec]> = [IoVec { base: bytes.as_ptr(), len: bytes.len() }].into();
        let mut buffer = [0; 64];
        let mut writer = ControlWriter::new(&mut buffer, Direction::Sent);
        assert!(segment.is_none_or(|size| writer.push(Control::SegmentSize(size))));
        let control: Box<[u8]> = {
            let len = writer.len();
            buffer[..len].into()
        };
        let name = Box::new(to.unwrap_or_else(|| Address::from_bytes(&[])));
        let header = MsgHeader {
            name: name.as_bytes().as_ptr(),
            name_len: name.as_bytes().len() as u32,
            vectors: parts.as_ptr(),
            vector_count: 1,
            control: control.as_ptr(),
            control_len: control.len(),
            flags: 0,
        };
        Box::new(Self { header, _parts: parts, _name: name, _control: control })
    }

    fn now(&self, fd: Fd) -> MemoryOp {
        MemoryOp::SendMessageNow { fd, header: (&raw const self.header).cast() }
    }
}

#[test]
fn segments_arrive_as_datagrams() {
    on_each_driver(|rig| {
        let (fd, peer) = socket();
        let to = Some(Address::from(peer.local_addr().unwrap()));
        let outgoing = Outgoing::to(b"one.two.end", Some(4), to);
        rig.start_memory(OpKind::SendDatagram, outgoing.now(fd));
        rig.expect_silence();
        let mut got = [0; 16];
        for wanted in [&b"one."[..], b"two.", b"end"] {
            let len = peer.recv(&mut got).unwrap();
            assert_eq!(&got[..len], wanted);
        }
        rig.close(fd);
    });
}

#[test]
fn bytes_are_sent_to_an_address_or_the_peer_without_a_header() {
    on_each_driver(|rig| {
        if !rig.driver.supports_send_to_now() {
            return skip!("this kernel's SEND does not accept an address (6.1)");
        }
        let (fd, peer) = socket();
        let address = Address::from(peer.local_addr().unwrap());
        let (address, none) = (address.as_bytes(), [].as_slice());
        let send = |bytes: &'static [u8], to: &[u8]| {
            let (buffer, len, to_len) = (bytes.as_ptr(), bytes.len() as u32, to.len() as u16);
            let to = if to.is_empty() { ptr::null() } else { to.as_ptr() };
            MemoryOp::SendToNow { fd, buffer, len, to, to_len }
        };
        let mut got = [0; 16];
        for (bytes, to) in [(&b"address"[..], address), (b"", address), (b"peer", none)] {
            if to.is_empty() {
                let token = rig.start_memory(OpKind::SendDatagram, send(bytes, none));
                assert_eq!(
                    rig.event(token).result,
                    Err(Errno::DESTADDRREQ),
                    "an unconnected socket sent a datagram"
                );
                Linux.connect(fd, &Address::from(peer.local_addr().unwrap())).unwrap();
            }
            rig.start_memory(OpKind::SendDatagram, send(bytes, to));
            rig.expect_silence();
            let len = peer.recv(&mut got).unwrap();
            assert_eq!(&got[..len], bytes);
        }
        let token = rig.start_memory(OpKind::SendDatagram, send(&[0; 70_000], none));
        assert_eq!(rig.event(token).result, Err(Errno::MSGSIZE));
        rig.close(fd);
    });
}

#[test]
fn a_socket_is_reported_writable() {
    on_each_driver(|rig| {
        let (fd, peer) = Linux.socket_pair(SocketType::Datagram, true).unwrap();
        let (fd, peer) = (owned(fd), owned(peer));
        let outgoing = Outgoing::new(b"datagram", None);
        let mut filled = 0;
        while rig.start_memory(OpKind::SendDatagram, outgoing.now(fd)).slot() > 0 {
            match rig.turn(Wait::No).as_slice() {
                [] => filled += 1,
                [event] => {
                    assert_eq!(event.result, Err(Errno::AGAIN));
                    break;
                }
                more => panic!("one send has several events: {more:?}"),
            }
        }
        let writable = rig.start(OpKind::DatagramWritable, Op::WritableOnce { fd });
        rig.expect_silence();
        let mut got = [0; 16];
        for _ in 0..filled {
            assert_eq!(receive(peer, &mut got), b"datagram");
        }
        let event = rig.event(writable);
        assert!(event.result.is_ok() && !event.more, "{event:?}");
        rig.start_memory(OpKind::SendDatagram, outgoing.now(fd));
        rig.expect_silence();
        assert_eq!(receive(peer, &mut got), b"datagram");
        let writable = rig.start(OpKind::DatagramWritable, Op::WritableOnce { fd });
        assert!(rig.event(writable).result.is_ok(), "the socket was not reported writable");
        rig.close(fd);
        Linux.close(peer);
    });
}

/// Receives one message with a system call.
fn receive(fd: Fd, buffer: &mut [u8]) -> &[u8] {
    use rustix::net::{RecvFlags, recv};
    let (_, len) = recv(Linux::borrow(fd), &mut *buffer, RecvFlags::DONTWAIT).unwrap();
    &buffer[..len]
}
