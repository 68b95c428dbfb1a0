//! Segmentation that is refused by a device without support or by a path with a small MTU, and
//! immediate sends of borrowed bytes.
#![allow(unsafe_code)]

use crate::common;
use annulus_skip::skip;

use annulus::net::{Transmit, UdpSocket};
use annulus::sim::{Fault, Faults, Sim};
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime};
use common::{pattern, run_on};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Time limit, far longer than a datagram takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends segments, also as borrowed bytes, and checks that each arrives, in order.
async fn transfer(size: usize) -> io::Result<()> {
    let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for round in 0..5 {
        let text = pattern(10 * size + 1 + round);
        sender.send_segments(text.clone(), size as u16, receiver.local_addr()?).await?;
        for piece in text.chunks(size) {
            let came = timeout(PATIENCE, receiver.recv()).await;
            assert!(*came.expect("no datagram arrived in time")? == *piece, "round {round}");
        }
        // Borrowed bytes, sent by an immediate system call.
        let how = Transmit::to(receiver.local_addr()?).segment_size(size as u16);
        sender.try_send(&text, &how)?;
        for piece in text.chunks(size) {
            let came = timeout(PATIENCE, receiver.recv()).await;
            assert!(
                *came.expect("no datagram arrived in time")? == *piece,
                "borrowed, round {round}"
            );
        }
    }
    sender.drain().await
}

#[test]
fn a_device_that_cannot_split_loses_no_datagram() {
    let faults = Faults::none().with(Fault::SegmentsRefused, 1000);
    let sim = Sim::builder(1).faults(faults).build();
    annulus::sim::run_on(&sim, Runtime::builder(), transfer(1200)).unwrap();
}

/// A send that the system refuses at once is queued, and not counted as direct.
#[test]
fn a_refused_direct_send_is_not_counted() {
    for (refused, direct) in [(1000, 0), (0, 1)] {
        let faults = Faults::none().with(Fault::SegmentsRefused, refused);
        let sim = Sim::builder(1).faults(faults).build();
        let transfer = async {
            let sender = UdpSocket::bind("127.0.0.1:0")?;
            let receiver = UdpSocket::bind("127.0.0.1:0")?;
            let text = pattern(12_000);
            let how = Transmit::to(receiver.local_addr()?).segment_size(1200);
            sender.try_send(&text, &how)?;
            for piece in text.chunks(1200) {
                assert!(*receiver.recv().await? == *piece);
            }
            io::Result::Ok(annulus::counters().expect("not in a runtime").direct_sends)
        };
        let counted = annulus::sim::run_on(&sim, Runtime::builder(), transfer).unwrap();
        assert_eq!(counted, direct, "{refused} of 1000 refused");
    }
}

/// Sockets that accept everything at once do not prolong a turn: the rest is queued.
#[test]
fn a_turn_sends_a_mebibyte_directly_and_the_rest_at_its_end() {
    let sim = Sim::builder(1).build();
    let sends = async {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        let how = Transmit::to(receiver.local_addr()?);
        let senders = (0..20).map(|_| UdpSocket::bind("127.0.0.1:0"));
        let senders = senders.collect::<io::Result<Vec<_>>>()?;
        for turn in 1..=3 {
            for sender in &senders {
                sender.try_send(&[7; 60_000], &how)?;
            }
            // The 18th send starts below the limit.
            assert_eq!(annulus::counters().expect("not in a runtime").direct_sends, turn * 18);
            for sender in &senders {
                sender.drain().await?;
            }
        }
        io::Result::Ok(())
    };
    annulus::sim::run_on(&sim, Runtime::builder(), sends).unwrap();
}

/// Linux refuses segments that do not fit the MTU, although it would send the same datagrams one by
/// one in fragments.
#[test]
fn segments_larger_than_the_route_arrive_in_fragments() {
    const MTU: i32 = 1500;
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // The namespace ends with its thread.
    let narrow = std::thread::Builder::new().name(name).spawn(|| {
        if let Err(error) = own_network(MTU) {
            return skip!("cannot create a network namespace ({error})");
        }
        for size in [2000, 1200] {
            run_on(Runtime::builder().driver(DriverChoice::Epoll), transfer(size));
            if annulus_ring::Features::detect().is_ok() {
                run_on(Runtime::builder().driver(DriverChoice::Uring), transfer(size));
            } else {
                skip!("io_uring is blocked here");
            }
        }
    });
    narrow.unwrap().join().unwrap();
}

/// Gives the calling thread its own network, with only a loopback device of this MTU.
fn own_network(mtu: i32) -> io::Result<()> {
    // SAFETY: the call affects only the network of this thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an all-zero `ifreq` is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_mtu = mtu;
    // SAFETY: the descriptor is open, and the request outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU as _, &raw const request) })?;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the descriptor is open, and the request outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
