//! UDP: datagrams arrive whole, with their sender, and no error ends the socket.

use crate::common::{own_address, pattern, touch};
use crate::conformance::mode::Mode;
use annulus::net::{Transmit, UdpOptions, UdpSocket, UnixOptions};
use annulus::spawn;
use annulus::stats::Counters;
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

/// Two sockets, connected to each other.
async fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(other.local_addr()?).await?;
    other.connect(one.local_addr()?).await?;
    Ok((one, other))
}

/// Echoes every datagram while the runtime runs. Returns the server's address.
fn echo_server(address: &str) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(address)?;
    let bound = socket.local_addr()?;
    spawn(async move {
        loop {
            let (datagram, from) = socket.recv_from().await?;
            socket.send_to(datagram, from).await?;
        }
        #[allow(unreachable_code, reason = "the line fixes the type of the task's errors")]
        io::Result::Ok(())
    });
    Ok(bound)
}

pub(crate) async fn datagrams_of_every_length_are_echoed() -> io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = echo_server(address)?;
        let client = UdpSocket::bind(address)?;
        for len in [1, 0, 1000, 0, 0, 1472, 9000, 60_000, 65_507] {
            let sent = pattern(len);
            client.send_to(sent.clone(), server).await?;
            let (got, from) = client.recv_from().await?;
            assert!(*got == *sent, "{len} bytes over {address}");
            assert_eq!(from, server);
        }
    }
    Ok(())
}

pub(crate) async fn many_clients_get_their_own_answers() -> io::Result<()> {
    let server = echo_server("127.0.0.1:0")?;
    let client = |n: u32| async move {
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.connect(server).await?;
        for round in 0..20u32 {
            let text = [n.to_ne_bytes(), round.to_ne_bytes()].concat();
            client.send(text.clone()).await?;
            assert_eq!(*client.recv().await?, *text);
        }
        io::Result::Ok(())
    };
    let clients: Vec<_> = (0..50).map(|n| spawn(client(n))).collect();
    for client in clients {
        client.await.expect("the task panicked")?;
    }
    Ok(())
}

/// The datagrams are queued until the end of the turn.
pub(crate) async fn a_new_peer_does_not_get_the_datagrams_for_the_former_one() -> io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let sender = UdpSocket::bind(address)?;
        let peers = [UdpSocket::bind(address)?, UdpSocket::bind(address)?];
        for round in 0..3u8 {
            for (n, peer) in (0..).zip(&peers) {
                sender.connect(peer.local_addr()?).await?;
                sender.send(vec![round, n]).await?;
            }
        }
        for round in 0..3 {
            for (n, peer) in (0..).zip(&peers) {
                let received = timeout(Duration::from_secs(20), peer.recv()).await;
                assert_eq!(*received.expect("a datagram was lost")?, [round, n]);
            }
        }
    }
    Ok(())
}

/// Like [`a_new_peer_does_not_get_the_datagrams_for_the_former_one`], for options.
pub(crate) async fn options_do_not_affect_datagrams_that_were_sent_before() -> io::Result<()> {
    let (connected, receiver) = pair().await?;
    let unconnected = UdpSocket::bind("127.0.0.1:0")?;
    for sender in [&connected, &unconnected] {
        receiver.connect(sender.local_addr()?).await?;
        receiver.set_recv_tos(true)?;
        let to = receiver.local_addr()?;
        let sent: Vec<u8> = (0..8).map(|n| n * 4).collect();
        for tos in &sent {
            sender.set_tos(*tos)?;
            sender.send_to(vec![*tos], to).await?;
            sender.send_segments(vec![*tos; 20], 10, to).await?;
        }
        for wanted in sent.iter().flat_map(|tos| [*tos; 3]) {
            let received = timeout(Duration::from_secs(20), receiver.recv_datagram()).await;
            let datagram = received.expect("a datagram was lost")?;
            assert_eq!((datagram.bytes[0], datagram.tos), (wanted, Some(wanted)));
        }
    }
    Ok(())
}

pub(crate) async fn an_oversized_datagram_is_refused_with_the_limit() -> io::Result<()> {
    let (one, other) = pair().await?;
    let error = one.send(vec![0; 65_508]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("65508 bytes is above the limit of 65507"), "{error}");
    one.send("the next").await?;
    assert_eq!(&*other.recv().await?, b"the next");
    Ok(())
}

pub(crate) async fn a_datagram_larger_than_its_buffer_is_an_error() -> io::Result<()> {
    let receiver = UdpOptions::new().max_datagram(65_535).bind("127.0.0.1:0")?;
    let small = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let text = pattern(5000);
    for to in [&receiver, &small] {
        sender.send_to(text.clone(), to.local_addr()?).await?;
        sender.send_to("next", to.local_addr()?).await?;
    }
    assert!(
        *receiver.recv().await? == *text,
        "the datagram does not fit into the requested buffer"
    );
    assert_eq!(&*receiver.recv().await?, b"next");
    let cut = small.recv_from().await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::InvalidData);
    assert!(cut.to_string().contains("5000 bytes was cut to "), "{cut}");
    assert_eq!(&*small.recv().await?, b"next", "the socket does not receive after a cut datagram");
    sender.send_to(text, small.local_addr()?).await?;
    let datagram = small.recv_datagram().await?;
    assert!(datagram.is_truncated() && datagram.whole_len == 5000);
    Ok(())
}

pub(crate) async fn a_refusal_is_returned_by_a_receive_and_does_not_end_the_socket()
-> io::Result<()> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind(own_address())?);
    let address = other.local_addr()?;
    one.connect(address).await?;
    drop(other);
    // The descriptor is closed within this turn.
    annulus::task::yield_now().await;
    for _ in 0..3 {
        let error = loop {
            one.send("refused").await?;
            // A kernel thread that takes submissions may close the socket later, so the first
            // datagram may still reach it.
            if let Ok(answer) = timeout(Duration::from_secs(1), one.recv()).await {
                break answer.unwrap_err();
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    }
    let again = UdpSocket::bind(address)?;
    one.send("received").await?;
    let (got, from) = again.recv_from().await?;
    assert_eq!(&*got, b"received");
    again.send_to("answer", from).await?;
    assert_eq!(&*one.recv().await?, b"answer");
    Ok(())
}

pub(crate) async fn several_tasks_wait_for_one_socket() -> io::Result<()> {
    let receiver = Rc::new(UdpSocket::bind("127.0.0.1:0")?);
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let receiver = receiver.clone();
            spawn(async move { receiver.recv().await.map(|got| got[0]) })
        })
        .collect();
    annulus::task::yield_now().await;
    for n in 0..8u8 {
        sender.send_to(vec![n], receiver.local_addr()?).await?;
    }
    let mut got = Vec::new();
    for task in tasks {
        got.push(task.await.expect("the task panicked")?);
    }
    got.sort_unstable();
    assert_eq!(got, (0..8).collect::<Vec<_>>());
    Ok(())
}

pub(crate) async fn dropped_receives_lose_no_datagram() -> io::Result<()> {
    let (one, other) = pair().await?;
    for n in 0..100u8 {
        assert!(touch(other.recv()).is_none_or(|got| got.is_ok()));
        one.send(vec![n]).await?;
        one.drain().await?;
        annulus::task::yield_now().await;
        // Drops a receive when the datagram may have arrived already.
        if let Some(got) = touch(other.recv()) {
            assert_eq!(*got?, [n]);
        } else {
            assert_eq!(*other.recv().await?, [n]);
        }
    }
    Ok(())
}

pub(crate) async fn a_dropped_socket_sends_accepted_datagrams() -> io::Result<()> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    for n in 0..20u8 {
        sender.send_to(vec![n], receiver.local_addr()?).await?;
    }
    drop(sender);
    for n in 0..20u8 {
        assert_eq!(*receiver.recv().await?, [n]);
    }
    Ok(())
}

pub(crate) async fn segments_arrive_as_datagrams() -> io::Result<()> {
    let (one, other) = pair().await?;
    let text = pattern(25_000);
    one.send_segments(text.clone(), 1200, other.local_addr()?).await?;
    let mut got = Vec::new();
    while got.len() < text.len() {
        let datagram = other.recv().await?;
        assert_eq!(datagram.len(), 1200.min(text.len() - got.len()));
        got.extend_from_slice(&datagram);
    }
    assert!(got == text);
    // This payload needs several sends.
    one.send_segments(text[..2000].to_vec(), 10, other.local_addr()?).await?;
    for piece in text[..2000].chunks(10) {
        assert_eq!(*other.recv().await?, *piece);
    }
    Ok(())
}

pub(crate) async fn segments_of_no_bytes_are_refused() -> io::Result<()> {
    let (one, other) = pair().await?;
    let none = Transmit::to(other.local_addr()?).segment_size(0);
    let tries = [one.send_with("bytes", &none).await, one.try_send(b"bytes", &none)];
    for error in tries.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "a segment size of 0 bytes is out of range (1–65507)");
    }
    one.send("the next").await?;
    assert_eq!(&*other.recv().await?, b"the next");
    Ok(())
}

pub(crate) async fn try_send_copies() -> io::Result<()> {
    let (one, other) = pair().await?;
    let mut buffer = *b"first";
    one.try_send(&buffer, &Transmit::connected())?;
    buffer = *b"other";
    one.try_send(&buffer, &Transmit::to(other.local_addr()?))?;
    assert_eq!(&*other.recv().await?, b"first");
    assert_eq!(&*other.recv().await?, b"other");
    poll_fn(|cx| one.poll_send_ready(cx)).await
}

/// How a datagram is queued.
#[derive(Clone, Copy, Debug)]
enum Way {
    Owned,
    Lease,
    Copied,
    /// The datagram is large enough for its own system call.
    Direct,
}

/// The runtime assumes that the first send is complete without waiting for a completion, and no
/// other event arrives. Datagrams queued after it must still be sent.
pub(crate) async fn datagrams_queued_after_another_leave_without_further_events() -> io::Result<()>
{
    const WAYS: [Way; 4] = [Way::Owned, Way::Lease, Way::Copied, Way::Direct];
    let (connected, other) = pair().await?;
    let other = Rc::new(other);
    let unconnected = UdpSocket::bind("127.0.0.1:0")?;
    let to = other.local_addr()?;
    for sender in [&connected, &unconnected] {
        other.connect(sender.local_addr()?).await?;
        for (first, second) in WAYS.into_iter().flat_map(|one| WAYS.map(|other| (one, other))) {
            sender.send_to("l", to).await?;
            let lease = other.recv().await?;
            sender.send_to("l", to).await?;
            let leases = [lease, other.recv().await?];
            let receiver = other.clone();
            let waits = spawn(async move {
                let first = receiver.recv().await?.len();
                io::Result::Ok([first, receiver.recv().await?.len()])
            });
            // The receive is already armed, so starting it causes no event.
            annulus::task::yield_now().await;
            for (way, lease) in [first, second].into_iter().zip(leases) {
                match way {
                    Way::Owned => touch(sender.send_to(vec![1; 2], to)).expect("there is space"),
                    Way::Lease => touch(sender.send_to(lease, to)).expect("there is space"),
                    Way::Copied => sender.try_send(&[1; 3], &Transmit::to(to)),
                    Way::Direct => sender.try_send(&[1; 5000], &Transmit::to(to)),
                }?;
            }
            let lens = [first, second].map(|way| match way {
                Way::Lease => 1,
                Way::Owned => 2,
                Way::Copied => 3,
                Way::Direct => 5000,
            });
            assert_eq!(waits.await.expect("the task panicked")?, lens, "{first:?}, {second:?}");
        }
    }
    Ok(())
}

/// Large datagrams go to the kernel at once and small ones at the end of the turn. None overtakes
/// another, whether or not something is queued.
pub(crate) async fn borrowed_datagrams_of_all_sizes_keep_their_order() -> io::Result<()> {
    let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let how = Transmit::to(receiver.local_addr()?).tos(0b10);
    receiver.set_recv_tos(true)?;
    for lens in [[9000, 10, 20_000], [4096, 30_000, 5000], [1, 12_000, 4095], [65_507, 0, 4097]] {
        for len in lens {
            sender.try_send(&pattern(len), &how)?;
        }
        for len in lens {
            let datagram = receiver.recv_datagram().await?;
            assert!(*datagram.bytes == *pattern(len), "{len} bytes of {lens:?}");
            assert_eq!((datagram.source, datagram.ecn()), (sender.local_addr()?, Some(0b10)));
        }
        let text = pattern(lens[2]);
        sender.try_send(&text, &how.segment_size(1000))?;
        for part in text.chunks(1000) {
            assert!(*receiver.recv().await? == *part, "a segment of {}", lens[2]);
        }
    }
    let error = sender.try_send(&pattern(65_508), &how).unwrap_err();
    assert!(error.to_string().contains("above the limit of 65507"), "{error}");
    sender.drain().await
}

/// Each large datagram is sent during its call, unless a kernel thread or other operations carry
/// the bytes.
pub(crate) async fn large_borrowed_datagrams_go_to_the_kernel_at_once() -> io::Result<()> {
    let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let to = Transmit::to(receiver.local_addr()?);
    for round in 0..10 {
        for len in [4095, 4096 + round] {
            sender.drain().await?;
            sender.try_send(&pattern(len), &to)?;
            assert!(*receiver.recv().await? == *pattern(len), "{len} bytes");
        }
    }
    Ok(())
}

pub(crate) fn went_directly(_: Mode, counters: &Counters) {
    assert_eq!(counters.direct_sends, 10);
}

/// A flood that nothing reads: the kernel counts every datagram that it drops, and each of the rest
/// arrives once.
pub(crate) async fn datagrams_dropped_in_a_flood_are_counted() -> io::Result<()> {
    let receiver = UdpOptions::new().recv_buffer_size(16 * 1024).bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    assert!(touch(receiver.recv()).is_none());
    let sent = 2000u64;
    for n in 0..sent {
        sender.send_to(n.to_ne_bytes().to_vec(), receiver.local_addr()?).await?;
    }
    sender.drain().await?;
    let (mut got, mut seen) = (0, vec![false; sent as usize]);
    while got + receiver.dropped()? < sent {
        let Ok(datagram) = timeout(Duration::from_millis(10), receiver.recv()).await else {
            continue;
        };
        let n = u64::from_ne_bytes(datagram?[..].try_into().expect("not eight bytes"));
        assert!(!std::mem::replace(&mut seen[n as usize], true), "{n} arrived twice");
        got += 1;
    }
    assert!(got > 0 && receiver.dropped()? > 0, "{got} of {sent} arrived");
    Ok(())
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The two polls have different wakers.
pub(crate) async fn tasks_that_poll_for_space_and_for_a_drain_are_woken() -> io::Result<()> {
    let (one, _other) = pair().await?;
    while one.try_send(&[0; 100], &Transmit::connected()).is_ok() {}
    let (drained, has_space) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let (waker, other) = (drained.clone().into(), has_space.clone().into());
    assert!(one.poll_drain(&mut Context::from_waker(&waker)).is_pending());
    assert!(one.poll_send_ready(&mut Context::from_waker(&other)).is_pending());
    one.drain().await?;
    annulus::task::yield_now().await;
    assert!(has_space.0.load(Ordering::Relaxed), "the task that polled for space was not woken");
    assert!(drained.0.load(Ordering::Relaxed), "the task that polled for a drain was not woken");
    Ok(())
}

/// A task may poll once and never again. It is woken in addition to the task that waits.
pub(crate) async fn a_task_that_polled_once_consumes_no_wake() -> io::Result<()> {
    let (one, other) = pair().await?;
    let other = Rc::new(other);
    assert!(touch(poll_fn(|cx| other.poll_recv_from(cx))).is_none());
    let waiting = other.clone();
    let waiting = spawn(async move { waiting.recv().await });
    annulus::task::yield_now().await;
    one.send("for the waiting task").await?;
    let got =
        timeout(Duration::from_secs(20), waiting).await.expect("the waiting task was not woken");
    assert_eq!(&*got.expect("the task panicked")?, b"for the waiting task");
    // A task that polls and is still waiting is woken like one that awaits.
    let (polls, awaits) = (other.clone(), other.clone());
    let tasks = [
        spawn(async move { poll_fn(|cx| polls.poll_recv_from(cx)).await.map(|(bytes, _)| bytes) }),
        spawn(async move { awaits.recv().await }),
    ];
    annulus::task::yield_now().await;
    one.send("x").await?;
    one.send("x").await?;
    for task in tasks {
        assert_eq!(&*task.await.expect("the task panicked")?, b"x");
    }
    Ok(())
}

pub(crate) async fn peeked_datagrams_stay() -> io::Result<()> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let (to, from) = (one.local_addr()?, other.local_addr()?);
    let mut memory = [0; 4];
    assert_eq!(one.try_peek_from(&mut memory).unwrap_err().kind(), ErrorKind::WouldBlock);
    for text in ["first", "", "x"] {
        other.send_to(text, to).await?;
    }
    for _ in 0..3 {
        assert_eq!(one.peek_from(&mut memory).await?, (4, from));
        assert_eq!(&memory, b"firs");
        assert_eq!(one.peek(&mut memory[..2]).await?, 2);
        assert_eq!(one.peek_sender().await?, from);
        assert_eq!(one.try_peek_from(&mut [])?, (0, from));
        one.readable().await?;
    }
    assert_eq!(&*one.recv().await?, b"first");
    assert_eq!(one.peek_from(&mut memory).await?, (0, from));
    assert_eq!(one.try_recv_from()?.0.len(), 0);
    assert_eq!(one.peek(&mut memory).await?, 1);
    // A peek does not take the turn of a task that receives.
    let datagram = one.recv_datagram().await?;
    assert_eq!((&*datagram.bytes, datagram.source), (&b"x"[..], from));
    let one = Rc::new(one);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let one = one.clone();
            spawn(async move { one.peek_sender().await })
        })
        .collect();
    let receiving = spawn({
        let one = one.clone();
        async move { one.recv().await.map(|lease| lease.len()) }
    });
    annulus::task::yield_now().await;
    for _ in 0..2 {
        other.send_to("more", to).await?;
    }
    assert_eq!(receiving.await.expect("the task panicked")?, 4);
    for task in waiting {
        assert_eq!(task.await.expect("the task panicked")?, from);
    }
    Ok(())
}

pub(crate) async fn datagrams_are_received_in_batches() -> io::Result<()> {
    const COUNT: u32 = 300;
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let (to, from) = (one.local_addr()?, other.local_addr()?);
    let mut batch = Vec::new();
    assert_eq!(one.recv_many_from(&mut batch, 0).await?, 0);
    assert!(touch(one.recv_many_from(&mut batch, 9)).is_none());
    let (mut next, mut sent, mut largest) = (0, 0, 0);
    while next < COUNT {
        // Twenty at a time, so that no queue overflows.
        while sent < COUNT.min(next + 20) {
            other.send_to(sent.to_ne_bytes().to_vec(), to).await?;
            sent += 1;
        }
        // Lets several arrive.
        sleep(Duration::from_millis(1)).await;
        if next % 3 == 0 {
            // A shown datagram is a part of the batch.
            assert_eq!(one.peek_sender().await?, from);
        }
        let count = one.recv_many_from(&mut batch, 7).await?;
        assert_eq!(count, batch.len());
        assert!((1..=7).contains(&count));
        largest = largest.max(count);
        for (bytes, source) in batch.drain(..) {
            assert_eq!((&*bytes, source), (&next.to_ne_bytes()[..], from));
            next += 1;
        }
    }
    assert!(largest > 1, "each datagram came alone");
    Ok(())
}

pub(crate) async fn an_error_in_a_batch_comes_after_the_datagrams_before_it() -> io::Result<()> {
    let one = UdpOptions::new().max_datagram(2000).bind("127.0.0.1:0")?;
    let other = UdpSocket::bind("127.0.0.1:0")?;
    for len in [1, 2, 6000, 3, 4] {
        other.send_to(vec![7; len], one.local_addr()?).await?;
    }
    let (mut batch, mut lens, mut errors) = (Vec::new(), Vec::new(), 0);
    while lens.len() < 4 {
        match one.recv_many_from(&mut batch, 9).await {
            Ok(count) => {
                assert_eq!(count, batch.len());
                lens.extend(batch.drain(..).map(|(bytes, _)| bytes.len()));
            }
            Err(error) => {
                assert_eq!((error.kind(), &lens[..]), (ErrorKind::InvalidData, &[1, 2][..]));
                assert!(batch.is_empty());
                errors += 1;
            }
        }
    }
    assert_eq!((errors, lens), (1, vec![1, 2, 3, 4]));
    Ok(())
}

/// Coalesced datagrams are larger than any of them.
pub(crate) async fn coalesced_datagrams_larger_than_a_buffer_arrive_whole() -> io::Result<()> {
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    for options in [UdpOptions::new(), UdpOptions::new().max_datagram(5000)] {
        let receiver = options.bind("127.0.0.1:0")?;
        let to = receiver.local_addr()?;
        // A receive with a buffer for one datagram is in flight.
        sender.send_to("first", to).await?;
        assert_eq!(&*receiver.recv().await?, b"first");
        assert!(touch(receiver.recv()).is_none());
        yield_now().await;
        receiver.set_coalescing(true)?;
        let text = pattern(40_000);
        for _ in 0..3 {
            sender.send_segments(text.clone(), 1000, to).await?;
            let mut got = Vec::new();
            while got.len() < text.len() {
                got.extend_from_slice(&receiver.recv().await?);
            }
            assert!(got == text);
        }
    }
    Ok(())
}

/// Repeats a call that does not wait until it finds something.
async fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let found = async {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sleep(Duration::from_millis(1)).await;
                }
                outcome => return outcome,
            }
        }
    };
    timeout(Duration::from_secs(10), found).await.expect("the call never found the datagram")
}

/// Datagrams that do not fit into a buffer are received into heap memory, one at a time.
pub(crate) async fn calls_that_do_not_wait_find_large_datagrams() -> io::Result<()> {
    let text = pattern(50_000);
    let receiver = UdpOptions::new().max_datagram(60_000).bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    for _ in 0..3 {
        sender.send_to(text.clone(), receiver.local_addr()?).await?;
        let mut start = [0; 9];
        assert_eq!(retry(|| receiver.try_peek_from(&mut start)).await?.0, 9);
        assert_eq!(start, text[..9]);
        assert!(*retry(|| receiver.try_recv_from()).await?.0 == *text);
    }
    let (one, other) = UnixOptions::new().max_datagram(60_000).datagram_pair()?;
    for _ in 0..3 {
        one.send(text.clone()).await?;
        assert!(*retry(|| other.try_recv_from()).await?.0 == *text);
    }
    Ok(())
}
