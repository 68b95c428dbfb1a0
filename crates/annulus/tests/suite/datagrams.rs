//! Information about datagrams that only Linux reports, on both drivers: addresses, service
//! classes, times, drops, ICMP errors and coalesced datagrams.
#![allow(unsafe_code)]

use crate::common;
use annulus_skip::skip;

use annulus::io::raw_os_error;
use annulus::net::{Transmit, UdpOptions, UdpSocket, UnixOptions};
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use annulus::{DriverChoice, Runtime, counters, spawn};
use common::rerun::{self, rerun};
use common::{open_descriptors, own_address, pattern, run_on};
use rustix::net::{self, AddressFamily, SendFlags, SocketType};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Runs a body on each driver that works on this machine.
fn on_each_driver<F: Future<Output = io::Result<()>>>(body: impl Fn() -> F) {
    run_on(Runtime::builder().driver(DriverChoice::Epoll), body());
    if annulus_ring::Features::detect().is_ok() {
        run_on(Runtime::builder().driver(DriverChoice::Uring), body());
    } else {
        skip!("io_uring is blocked here");
    }
}

#[test]
fn a_datagram_has_its_destination_class_and_time() {
    on_each_driver(|| async {
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (any, local) in [
            ("0.0.0.0:0", IpAddr::from(Ipv4Addr::new(127, 0, 0, 9))),
            ("[::]:0", IpAddr::from(Ipv6Addr::LOCALHOST)),
        ] {
            let receiver = UdpSocket::bind(any)?;
            receiver.set_packet_info(true)?;
            receiver.set_recv_tos(true)?;
            receiver.set_timestamps(true)?;
            let sender = UdpSocket::bind(any)?;
            let to = (local, receiver.local_addr()?.port()).into();
            sender.send_with("hello", &Transmit::to(to).tos(0xb9)).await?;
            let datagram = receiver.recv_datagram().await?;
            assert_eq!(
                (datagram.local, datagram.tos, datagram.ecn()),
                (Some(local), Some(0xb9), Some(1))
            );
            assert!(datagram.interface.is_some_and(|number| number > 0));
            assert!(datagram.timestamp.is_some_and(|at| at > past));
            // The answer leaves from the address that the datagram was sent to.
            receiver
                .send_with(datagram.bytes, &Transmit::to(datagram.source).source(local))
                .await?;
            assert_eq!(sender.recv_from().await?.1.ip(), local);
        }
        Ok(())
    });
}

#[test]
fn coalesced_datagrams_are_returned_one_by_one() {
    on_each_driver(|| async {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        receiver.set_coalescing(true)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        let text = pattern(12_500);
        sender.send_segments(text.clone(), 1200, receiver.local_addr()?).await?;
        let mut got = Vec::new();
        let mut leases = Vec::new();
        while got.len() < text.len() {
            let (datagram, _) = receiver.recv_from().await?;
            assert_eq!(datagram.len(), 1200.min(text.len() - got.len()));
            got.extend_from_slice(&datagram);
            leases.push(datagram);
        }
        assert!(got == text);
        drop(leases);
        sender.send_segments(text.clone(), 1000, receiver.local_addr()?).await?;
        let coalesced = receiver.recv_datagram().await?;
        assert_eq!((coalesced.segment_size, coalesced.bytes.len()), (Some(1000), text.len()));
        assert_eq!(coalesced.into_segments().count(), 13);
        Ok(())
    });
}

/// Other code may have turned coalescing on.
#[test]
fn coalesced_datagrams_of_an_adopted_socket_arrive_whole() {
    for driver in [DriverChoice::Epoll, DriverChoice::Auto] {
        run_on(Runtime::builder().driver(driver).datagram_buffer_size(4096), async {
            let first = UdpSocket::bind("127.0.0.1:0")?;
            first.set_coalescing(true)?;
            let receiver = UdpSocket::try_from(first.as_fd().try_clone_to_owned()?)?;
            drop(first);
            let sender = UdpSocket::bind("127.0.0.1:0")?;
            sender.send_segments(pattern(40_000), 1000, receiver.local_addr()?).await?;
            assert_eq!(receiver.recv_datagram().await?.bytes.len(), 40_000);
            Ok(())
        });
    }
}

#[test]
fn coalesced_datagrams_wake_one_task_each() {
    on_each_driver(|| async {
        let receiver = Rc::new(UdpSocket::bind("127.0.0.1:0")?);
        receiver.set_coalescing(true)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(async move { receiver.recv().await })
            })
            .collect();
        yield_now().await;
        sender.send_segments(pattern(400), 100, receiver.local_addr()?).await?;
        for receives in receivers {
            let got =
                timeout(Duration::from_secs(20), receives).await.expect("a receiver was not woken");
            assert_eq!(got.expect("the task panicked")?.len(), 100);
        }
        Ok(())
    });
}

/// Sends an ICMP error about a datagram of a socket to its peer, as a router on the way would.
fn report_unreachable(code: u8, socket: &UdpSocket) -> io::Result<()> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (socket.local_addr()?, socket.peer_addr()?)
    else {
        return Err(io::Error::other("the addresses are not of IPv4"));
    };
    const TOO_BIG_FOR: u16 = 1280;
    let mut packet = vec![3, code, 0, 0, 0, 0];
    packet.extend(TOO_BIG_FOR.to_be_bytes());
    // The start of the datagram: an IP header for UDP, and the ports.
    packet.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend([from.ip().octets(), to.ip().octets()].as_flattened());
    packet.extend([from.port(), to.port(), 8, 0].map(u16::to_be_bytes).as_flattened());
    let sum: u32 = packet.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[2..4].copy_from_slice(&(!((folded + (folded >> 16)) as u16)).to_be_bytes());
    let raw = net::socket(AddressFamily::INET, SocketType::RAW, Some(net::ipproto::ICMP))?;
    net::sendto(raw, &packet, SendFlags::empty(), &SocketAddrV4::new(*from.ip(), 0))?;
    Ok(())
}

/// The kernel keeps the error, and refuses the next datagram with it.
#[test]
fn icmp_error_does_not_stop_the_datagram_after_it() {
    on_each_driver(|| async {
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        // The kernel notes the packet size of the route to this address, which no other test uses.
        let receiver = UdpSocket::bind(own_address())?;
        sender.connect(receiver.local_addr()?).await?;
        for (code, errno) in [(3, libc::ECONNREFUSED), (4, libc::EMSGSIZE), (8, libc::ENONET)] {
            match report_unreachable(code, &sender) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skip!("raw sockets need CAP_NET_RAW");
                    return Ok(());
                }
                reported => reported?,
            }
            sender.send("after it").await?;
            let error = sender.drain().await.unwrap_err();
            assert_eq!(raw_os_error(&error), Some(errno), "{error}");
            assert!(error.to_string().starts_with("sending an earlier datagram: "), "{error}");
            let received = timeout(Duration::from_secs(20), receiver.recv()).await;
            assert_eq!(&*received.expect("the datagram was lost")?, b"after it");
        }
        Ok(())
    });
}

/// Without a peer, a socket gets the errors of all its datagrams if other code asks for them.
#[test]
fn icmp_error_does_not_stop_a_datagram_to_another_address() {
    on_each_driver(|| async {
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        // SAFETY: the option is an `int`, and the pointer is valid for one.
        let set = unsafe {
            let (fd, on) = (sender.as_raw_fd(), 1);
            let value = (&raw const on).cast();
            libc::setsockopt(fd, libc::SOL_IP, libc::IP_RECVERR, value, size_of_val(&on) as u32)
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        let gone = UdpSocket::bind(own_address())?;
        let closed = gone.local_addr()?;
        drop(gone);
        yield_now().await;
        for round in 0..10u8 {
            sender.send_to("to nobody", closed).await?;
            sender.drain().await?;
            sender.send_to(vec![round], receiver.local_addr()?).await?;
            let received = timeout(Duration::from_secs(20), receiver.recv()).await;
            assert_eq!(*received.expect("the datagram was lost")?, [round]);
        }
        Ok(())
    });
}

/// An address that the kernel refuses says nothing about the device.
#[test]
fn segments_refused_for_one_address_are_split_only_for_it() {
    on_each_driver(|| async {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        receiver.set_coalescing(true)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        let no_port = (Ipv4Addr::LOCALHOST, 0).into();
        sender.send_segments(pattern(3000), 1000, no_port).await?;
        let error = sender.drain().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().ends_with("; 2 more were not sent"), "{error}");
        sender.send_segments(pattern(3000), 1000, receiver.local_addr()?).await?;
        assert_eq!(receiver.recv_datagram().await?.segment_size, Some(1000));
        Ok(())
    });
}

#[test]
fn a_max_datagram_above_the_limit_is_refused() {
    on_each_driver(|| async {
        let above = 1 << 62;
        let refusals = [
            (UdpOptions::new().max_datagram(above).bind("127.0.0.1:0").unwrap_err(), "65535"),
            (UnixOptions::new().max_datagram(above).datagram_pair().unwrap_err(), "67108864"),
        ];
        for (error, limit) in refusals {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let text =
                format!("max_datagram of {above} bytes is above the limit of {limit}; use less");
            assert!(error.to_string().ends_with(&text), "{error}");
        }
        let (one, other) = UnixOptions::new().max_datagram(1 << 26).datagram_pair()?;
        one.send(pattern(100_000)).await?;
        assert!(*other.recv().await? == *pattern(100_000));
        Ok(())
    });
}

#[test]
fn datagrams_that_a_slow_receiver_loses_are_counted() {
    on_each_driver(|| async {
        let receiver = UdpOptions::new().recv_buffer_size(16 * 1024).bind("127.0.0.1:0")?;
        let sender = std::net::UdpSocket::bind("127.0.0.1:0")?;
        sender.connect(receiver.local_addr()?)?;
        assert!(common::touch(receiver.recv()).is_none());
        let sent = 2000u32;
        for n in 0..sent {
            sender.send(&n.to_ne_bytes())?;
            if n % 50 == 0 {
                yield_now().await;
            }
        }
        let mut got = 0;
        let deadline = Duration::from_millis(50);
        while let Ok(datagram) = timeout(deadline, receiver.recv()).await {
            datagram?;
            got += 1;
        }
        let dropped = receiver.dropped()?;
        assert!(got < sent && dropped > 0, "{got} of {sent} arrived, {dropped} were dropped");
        // The slot holds 64 datagrams, plus up to 33 of a receive that was in flight. The kernel's
        // buffer holds fewer.
        assert!(got < 2 * (64 + 33), "{got} datagrams were held");
        assert_eq!(u64::from(got) + dropped, u64::from(sent));
        assert_eq!(counters().expect("not in a runtime").dropped_datagrams, dropped);
        Ok(())
    });
}

#[test]
fn multicast_reaches_only_members() {
    on_each_driver(|| async {
        let (group, here) = (Ipv4Addr::new(239, 77, 1, 5), Ipv4Addr::LOCALHOST);
        let member = UdpOptions::new().reuse_address(true).bind("0.0.0.0:0")?;
        member.join_multicast_v4(group, here)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        sender.set_multicast_interface_v4(here)?;
        sender.set_multicast_ttl(1)?;
        sender.set_multicast_loop(true)?;
        let to = (group, member.local_addr()?.port()).into();
        sender.send_to("to all", to).await?;
        assert_eq!(&*member.recv().await?, b"to all");
        member.leave_multicast_v4(group, here)?;
        sender.send_to("to none", to).await?;
        sender.drain().await?;
        let late = timeout(Duration::from_millis(20), member.recv()).await;
        assert!(late.is_err(), "a datagram arrived after the socket left the group");
        Ok(())
    });
}

/// A socket with the unspecified address also gets the datagrams of groups that only other sockets
/// have joined.
#[test]
fn a_socket_with_the_address_of_a_group_gets_no_datagrams_of_other_groups() {
    on_each_driver(|| async {
        let here = Ipv4Addr::LOCALHOST;
        let groups = [Ipv4Addr::new(239, 77, 1, 6), Ipv4Addr::new(239, 77, 1, 7)];
        let options = UdpOptions::new().reuse_address(true);
        let one = options.bind((groups[0], 0))?;
        let port = one.local_addr()?.port();
        let other = options.bind((groups[1], port))?;
        let sender = UdpSocket::bind((here, 0))?;
        sender.set_multicast_interface_v4(here)?;
        for (member, group) in [&one, &other].into_iter().zip(groups) {
            member.join_multicast_v4(group, here)?;
            sender.send_to(group.to_string(), (group, port).into()).await?;
        }
        sender.drain().await?;
        for (member, group) in [&one, &other].into_iter().zip(groups) {
            assert_eq!(*member.recv().await?, *group.to_string().as_bytes());
            let second = timeout(Duration::from_millis(5), member.recv()).await;
            assert!(second.is_err(), "a datagram of the other group arrived");
        }
        Ok(())
    });
}

#[test]
fn an_unreachable_destination_fails_only_its_own_sends() {
    on_each_driver(|| async {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let here = socket.local_addr()?;
        let broadcast = "255.255.255.255:9".parse().expect("not an address");
        socket.send_to("not allowed", broadcast).await?;
        socket.send_to("myself", here).await?;
        assert_eq!(&*socket.recv().await?, b"myself");
        let error = socket.send_to("again", broadcast).await.unwrap_err();
        let hint = "11 bytes to 255.255.255.255:9, which set_broadcast(true) allows if it is a";
        assert!(error.to_string().contains(hint), "{error}");
        socket.drain().await
    });
}

/// Returns a socket with a full queue that nobody reads, and its address.
fn full_reader() -> io::Result<(std::os::unix::net::UnixDatagram, UnixAddress)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = UnixAddress::from_abstract_name(format!("annulus-full-{}-{n}", std::process::id()))?;
    let reader = std::os::unix::net::UnixDatagram::bind_addr(&name)?;
    reader.set_nonblocking(true)?;
    // Each sender sends until its own send buffer is full. The last one finds no space at all.
    loop {
        let filler = std::os::unix::net::UnixDatagram::unbound()?;
        filler.set_nonblocking(true)?;
        filler.connect_addr(&name)?;
        if filler.send(b"x").is_err() {
            return Ok((reader, name));
        }
        while filler.send(b"x").is_ok() {}
    }
}

/// Returns the number of times that the loop enters the kernel while nothing can be sent.
async fn enters_of(pause: Duration) -> u64 {
    let before = counters().expect("not in a runtime").enters;
    sleep(pause).await;
    counters().expect("not in a runtime").enters - before
}

/// A writable event reports space at the connected peer only.
#[test]
fn a_full_receiver_that_is_not_the_peer_does_not_keep_the_loop_awake() {
    on_each_driver(|| async {
        for unordered in [false, true] {
            let ((full, name), (peer, peers)) = (full_reader()?, full_reader()?);
            // The peer has space again.
            while peer.recv(&mut [0]).is_ok() {}
            let sender = UnixOptions::new().unordered(unordered);
            let sender = sender.bind_addr(&UnixAddress::from_pathname("")?)?;
            sender.connect_addr(&peers)?;
            sender.send_to_addr("at last", &name).await?;
            let enters = enters_of(Duration::from_millis(200)).await;
            assert!(enters < 50, "{enters} needless enters");
            let mut got = [0; 7];
            while got != *b"at last" {
                if full.recv(&mut got).is_err() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            sender.drain().await?;
        }
        Ok(())
    });
}

#[test]
fn deferred_datagrams_are_retried_with_growing_delays() {
    on_each_driver(|| async {
        let (full, name) = full_reader()?;
        let sender = UnixOptions::new().unordered(true);
        let sender = sender.bind_addr(&UnixAddress::from_pathname("")?)?;
        // At the bound, the first deferred datagram is discarded, and a send returns its error.
        let mut deferred = 0u32;
        while sender.send_to_addr("x", &name).await.is_ok() {
            deferred += 1;
        }
        let enters = enters_of(Duration::from_millis(500)).await;
        assert!(enters < 80, "{enters} needless enters, {deferred} deferred");
        drop(full);
        while sender.drain().await.is_err() {}
        Ok(())
    });
}

#[test]
fn sockets_that_end_with_their_runtime_leave_no_descriptor() {
    // Descriptors belong to the whole process, so they are counted in a process that does nothing
    // else.
    if !rerun::is_alone(rerun!(sockets_that_end_with_their_runtime_leave_no_descriptor)) {
        return;
    }
    let before = open_descriptors();
    for _ in 0..3 {
        on_each_driver(|| async {
            let (one, other) = UnixOptions::new().descriptors(true).datagram_pair()?;
            let (_reader, writer) = io::pipe()?;
            assert!(common::touch(other.recv()).is_none());
            one.send_with_descriptors("passed", vec![writer.into()]).await?;
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            assert!(common::touch(socket.recv()).is_none());
            spawn(async move {
                _ = (socket.recv().await, one, other);
            });
            yield_now().await;
            Ok(())
        });
    }
    assert_eq!(open_descriptors(), before);
}
