//! The ring on the real kernel.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Kernel, Linux, msg};
use annulus_ring::*;
use annulus_skip::skip;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Time after which a missing byte or signal fails the test.
const MAX_ARRIVAL_WAIT: Duration = Duration::from_secs(20);

fn small_ring() -> Ring {
    Ring::builder()
        .entries(4)
        .completions(8)
        .build()
        .expect("these tests need io_uring; see `annulus doctor`")
}

fn fd(socket: &TcpStream) -> Fd {
    // SAFETY: each test keeps the socket open as long as it submits with the descriptor.
    unsafe { Fd::from_raw(socket.as_raw_fd()) }
}

fn nop(ring: &mut Ring, user_data: u64) {
    ring.push(op::Nop.entry().user_data(user_data)).unwrap();
}

/// Enters until `count` completions have been taken.
fn take(ring: &mut Ring, count: usize) -> Vec<Completion> {
    let mut taken = Vec::new();
    while taken.len() < count {
        ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
        taken.extend(ring.completions());
    }
    taken
}

#[test]
fn nops_return_their_user_data_through_many_wraps() {
    let mut ring = small_ring();
    for round in 0..1000u64 {
        (0..4).for_each(|i| nop(&mut ring, round * 4 + i));
        let seen: Vec<u64> = take(&mut ring, 4).iter().map(|c| c.user_data).collect();
        assert_eq!(seen, (round * 4..round * 4 + 4).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_queue_is_an_error_and_loses_nothing() {
    let mut ring = small_ring();
    (0..4).for_each(|i| nop(&mut ring, i));
    assert_eq!(ring.push(op::Nop.entry()), Err(QueueFull));
    assert_eq!(take(&mut ring, 4).len(), 4);
}

#[test]
fn a_wait_without_work_times_out() {
    let mut ring = small_ring();
    let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
    assert_eq!(ring.enter(wait).unwrap(), Entered::TimedOut);
    assert_eq!(ring.pending(), 0);
}

#[test]
fn an_overflowing_completion_queue_is_detected_and_loses_nothing() {
    let mut ring = small_ring();
    for i in 0..32 {
        nop(&mut ring, i);
        ring.enter(Wait::No).unwrap();
    }
    assert!(ring.overflowed());
    let mut seen: Vec<u64> = take(&mut ring, 32).iter().map(|c| c.user_data).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..32).collect::<Vec<_>>());
    assert!(!ring.overflowed());
    assert_eq!(ring.dropped(), 0);
}

#[test]
fn a_multishot_receive_fills_published_buffers_and_ends_with_enobufs() {
    let mut ring = small_ring();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();

    let mut memory = [[0u8; 16]; 2];
    let mut buffers = BufferRing::register(&ring, 3, 2).unwrap();
    for (id, buffer) in memory.iter_mut().enumerate() {
        // SAFETY: the buffers are not used until a completion returns their id, and the group is
        // unregistered before they are freed.
        unsafe { buffers.add(buffer.as_mut_ptr(), 16, id as u16) };
    }
    buffers.publish();
    let receive = op::RecvMulti { fd: fd(&server), group: 3, limit: 0 };
    ring.push(receive.entry().user_data(9)).unwrap();

    // Linux 6.1 ends the receive with the last buffer; later kernels end it only when more bytes
    // find no buffer.
    let mut came = VecDeque::new();
    let mut next = |ring: &mut Ring| loop {
        match came.pop_front() {
            Some(completion) => return completion,
            None => came.extend(take(ring, 1)),
        }
    };
    for text in ["first", "second"] {
        client.write_all(text.as_bytes()).unwrap();
        let completion: Completion = next(&mut ring);
        assert_eq!((completion.result as usize, completion.more()), (text.len(), true));
        let id = completion.buffer().unwrap();
        // SAFETY: the completion has returned the buffer, so the kernel no longer writes to it. The
        // read is volatile, since the compiler does not see the kernel's writes.
        let got = unsafe { std::ptr::read_volatile(&raw const memory[usize::from(id)]) };
        assert_eq!(&got[..text.len()], text.as_bytes());
    }
    client.write_all(b"third").unwrap();
    let end = next(&mut ring);
    assert_eq!((end.result, end.more()), (-rustix::io::Errno::NOBUFS.raw_os_error(), false));
    // SAFETY: the group was registered with this ring.
    unsafe { buffers.unregister(&ring) }.unwrap();
}

#[test]
fn a_send_that_skips_its_completion_posts_none() {
    let mut ring = small_ring();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let send = op::Send {
        fd: fd(&server),
        buffer: b"quiet".as_ptr(),
        len: 5,
        flags: msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL,
    };
    // SAFETY: the bytes are static, and the socket is open.
    unsafe { ring.push_unchecked(send.entry().with(EntryFlags::SKIP_SUCCESS)) }.unwrap();
    ring.enter(Wait::Reap).unwrap();
    assert_eq!((ring.pending(), ring.ready()), (0, 0));
    let mut got = [0; 5];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"quiet");
}

/// On loopback the kernel copies every zero-copy send, so a requested report must say so.
#[test]
fn a_zero_copy_report_shows_that_the_kernel_copied() {
    if !Features::detect().unwrap().has("zero-copy report") {
        skip!("this kernel does not report copies of zero-copy sends (6.2)");
        return;
    }
    let mut ring = small_ring();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let send = op::Send { fd: fd(&server), buffer: b"lent".as_ptr(), len: 4, flags: 0 };
    for reports in [false, true] {
        // SAFETY: the bytes are static, and the socket is open.
        unsafe { ring.push_unchecked(op::zero_copy(send.entry(), reports)) }.unwrap();
        ring.enter(Wait::Reap).unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        let [outcome, notification] = take(&mut ring, 2)[..] else {
            panic!("a zero-copy send did not have two completions")
        };
        assert_eq!((outcome.result, outcome.more()), (4, true));
        assert_eq!(notification.was_copied(), reports);
    }
}

#[test]
fn every_set_of_setup_flags_works() {
    for without in [SetupFlags::empty(), SetupFlags::NO_SQARRAY, SetupFlags::DEFER_TASKRUN] {
        let mut ring = Ring::builder().entries(4).without(without).build().unwrap();
        assert!(!ring.setup_flags().intersects(without));
        (0..4).for_each(|i| nop(&mut ring, i));
        assert_eq!(take(&mut ring, 4).len(), 4);
    }
}

#[test]
fn dropped_rings_free_their_registered_index() {
    // A thread can register 16 rings at a time, so more than 16 in sequence must all get an index.
    for _ in 0..40 {
        drop(small_ring());
    }
    let mut ring = small_ring();
    nop(&mut ring, 1);
    assert_eq!(take(&mut ring, 1)[0].user_data, 1);
}

#[test]
fn errors_for_sizes_out_of_range_give_the_limit() {
    let error = Ring::builder().entries(100_000).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "100000 is not a valid size of a submission queue: use 1 to 32768"
    );
    let ring = small_ring();
    let error = BufferRing::register(&ring, 0, 3).unwrap_err();
    assert!(error.to_string().contains("3 is not a valid size of a buffer ring"), "{error}");
}

#[test]
fn the_probe_agrees_with_the_features() {
    let probe = small_ring().probe().unwrap();
    assert!(probe.has(opcode::NOP) && probe.has(opcode::RECV));
    let features = Features::detect().unwrap();
    assert!(features.has("skipped completions"));
    assert_eq!(features.has("pipe"), probe.has(opcode::PIPE));
    assert!(!features.has("no such feature"));
}

/// Returns true if an eventfd is signalled within this time.
fn readable(eventfd: &OwnedFd, within: Duration) -> bool {
    let within = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(eventfd, PollFlags::IN)], Some(&within)).unwrap() == 1
}

#[test]
fn an_eventfd_is_signalled_while_notifications_are_on() {
    let mut ring = small_ring();
    let eventfd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    ring.register_eventfd(eventfd.as_fd()).unwrap();
    // The receive must wait for the peer: an operation that completes during submission may or may
    // not signal the eventfd.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    for (user_data, on) in [(1, false), (2, true), (3, false)] {
        let mut byte = Box::new([0]);
        let read = op::Recv { fd: fd(&socket), buffer: byte.as_mut_ptr(), len: 1 };
        // SAFETY: the byte stays allocated and unused until the completion has been taken below.
        unsafe { ring.push_unchecked(read.entry().user_data(user_data)) }.unwrap();
        ring.enter(Wait::Reap).unwrap();
        ring.set_eventfd_enabled(on);
        assert!(
            !ring.has_deferred_work() && ring.ready() == 0,
            "a completion or deferred work is pending already"
        );
        (&peer).write_all(&[7]).unwrap();
        // A kernel thread may deliver the byte to the socket later.
        let deadline = Linux.now() + MAX_ARRIVAL_WAIT;
        while !ring.has_deferred_work() && ring.ready() == 0 {
            assert!(Linux.now() < deadline, "the byte has not arrived");
        }
        let signalled = readable(&eventfd, if on { MAX_ARRIVAL_WAIT } else { Duration::ZERO });
        assert_eq!(signalled, on);
        assert_eq!(take(&mut ring, 1)[0].user_data, user_data);
        assert_eq!(*byte, [7]);
        // The eventfd was signalled above, or when the completion was posted.
        _ = rustix::io::read(&eventfd, &mut [0; 8]);
    }
}
