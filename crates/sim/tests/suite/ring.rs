//! Rings: the simulated kernel behaves like Linux.

use crate::common::*;
use annulus_kernel::Fd;
use annulus_ring::*;
use rustix::io::Errno;
use std::time::Duration;

#[test]
fn nops_complete_in_order_across_index_wraps() {
    on_sim_and_linux(|mut host| {
        for round in 0..1000u64 {
            (0..4).for_each(|i| host.push(round * 4 + i, op::Nop.entry()));
            let seen: Vec<u64> = host.wait_for(4).iter().map(|c| c.user_data).collect();
            assert_eq!(seen, (round * 4..round * 4 + 4).collect::<Vec<_>>());
        }
    });
}

#[test]
fn wait_without_work_times_out() {
    on_sim_and_linux(|mut host| {
        let before = host.kernel.now();
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(3)) };
        assert_eq!(host.ring.enter(wait).unwrap(), Entered::TimedOut);
        assert!(host.kernel.now() - before >= Duration::from_millis(3));
    });
}

#[test]
fn batch_ends_with_enough_completions_and_after_its_minimum_wait_with_one() {
    on_sim_and_linux(|mut host| {
        let ms = Duration::from_millis;
        let wait = |min, timeout| Wait::Batch { completions: 2, min_wait: ms(min), timeout };
        let mut entered = |entries: u64, wait| {
            (0..entries).for_each(|i| host.push(i, op::Nop.entry()));
            let before = host.kernel.now();
            let entered = host.ring.enter(wait).unwrap();
            (entered, host.ring.completions().count(), host.kernel.now() - before)
        };
        let (outcome, found, took) = entered(2, wait(10_000, None));
        assert_eq!((outcome, found), (Entered::Done, 2));
        assert!(took < ms(5000), "{took:?}");
        let (outcome, found, took) = entered(1, wait(3, None));
        assert_eq!((outcome, found), (Entered::Done, 1));
        assert!(took >= ms(3), "{took:?}");
        let (outcome, found, took) = entered(0, wait(1, Some(ms(5))));
        assert_eq!((outcome, found), (Entered::TimedOut, 0));
        assert!(took >= ms(5), "{took:?}");
        // A timeout also bounds the minimum wait.
        let (outcome, _, took) = entered(0, wait(10_000, Some(ms(5))));
        assert_eq!(outcome, Entered::TimedOut);
        assert!(took < ms(5000), "{took:?}");
    });
}

#[test]
fn wait_timeout_is_not_reported_when_entries_were_submitted() {
    on_sim_and_linux(|mut host| {
        let (_client, server) = host.pair();
        let buffers = ProvidedBuffers::new(&host.ring, 2, 16);
        host.push(1, recv_multi(server, 0));
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(3)) };
        assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done);
        assert_eq!(host.ring.ready(), 0);
        buffers.unregister(&host.ring);
    });
}

#[test]
fn completion_overflow_is_reported_and_loses_nothing() {
    on_sim_and_linux(|mut host| {
        for round in 0..20 {
            (0..8).for_each(|i| host.push(round * 8 + i, op::Nop.entry()));
            host.ring.enter(Wait::No).unwrap();
        }
        assert!(host.ring.overflowed());
        assert_eq!(host.ring.ready(), 64);
        let seen: Vec<u64> = host.wait_for(160).iter().map(|c| c.user_data).collect();
        assert_eq!(seen, (0..160).collect::<Vec<_>>());
        assert!(!host.ring.overflowed());
    });
}

#[test]
fn overflowed_completions_are_delivered_first() {
    on_sim_and_linux(|mut host| {
        for n in 0..72 {
            host.push(n, op::Nop.entry());
            host.ring.enter(Wait::No).unwrap();
        }
        let mut seen: Vec<u64> = host.ring.completions().map(|c| c.user_data).collect();
        host.push(72, op::Nop.entry());
        host.ring.enter(Wait::No).unwrap();
        assert_eq!(host.ring.ready(), 0, "a completion overtook those in the overflow list");
        seen.extend(host.wait_for(9).iter().map(|c| c.user_data));
        assert_eq!(seen, (0..73).collect::<Vec<_>>());
    });
}

#[test]
fn overflow_ends_multishot_recv_with_success() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut buffers = ProvidedBuffers::new(&host.ring, 8, 16);
        host.push(1, recv_multi(server, 0));
        host.reap();
        host.push(2, send(client, &[7; 40], DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
        host.ring.enter(Wait::No).unwrap();
        (0..8).for_each(|_| {
            (0..8).for_each(|_| host.push(9, op::Nop.entry()));
            host.ring.enter(Wait::No).unwrap();
        });
        assert_eq!(
            (host.ring.ready(), host.ring.overflowed()),
            (64, false),
            "the queue is not full"
        );
        pass_time(&host, QUIET_PERIOD);
        host.ring.enter(Wait::Reap).unwrap();
        host.ring.enter(Wait::Reap).unwrap();
        assert!(host.ring.overflowed());
        let taken: Vec<_> = host.wait_for(65).into_iter().filter(|c| c.user_data == 1).collect();
        let last = taken.last().unwrap();
        assert_eq!((last.result, last.more()), (16, false));
        assert_eq!(buffers.bytes(last), [7; 16]);
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_recv_stops_at_its_limit() {
    on_sim_and_linux(|mut host| {
        // The last receive may exceed the rest of the limit, but no single receive exceeds the
        // whole limit.
        for (limit, parts) in [(8, 1), (16, 1), (20, 2), (40, 3)] {
            for early in [true, false] {
                let (client, server) = host.pair();
                let buffers = ProvidedBuffers::new(&host.ring, 8, 16);
                if early {
                    assert_eq!(host.send(client, &[1; 100]), 100);
                    host.drain_until_quiet();
                }
                host.push(1, recv_multi(server, limit));
                let mut taken = host.reap();
                if !early {
                    assert_eq!(taken, []);
                    host.push(
                        2,
                        send(client, &[1; 100], DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS),
                    );
                }
                taken.extend(host.drain_until_quiet());
                let outcomes: Vec<_> = taken.iter().map(fields).collect();
                let expected: Vec<_> =
                    (1..=parts).map(|i| (1, limit.min(16) as i32, i < parts)).collect();
                assert_eq!(outcomes, expected, "wrong completions with a limit of {limit}");
                host.kernel.close(client);
                host.kernel.close(server);
                buffers.unregister(&host.ring);
            }
        }
    });
}

#[test]
fn recv_without_buffers_reports_enobufs() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut buffers = ProvidedBuffers::new(&host.ring, 2, 16);
        host.push(1, recv_multi(server, 0));
        host.push(2, send(client, &[5; 40], DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
        let taken: Vec<_> = host.drain_until_quiet();
        let expected = [(1, 16, true), (1, 16, true), (1, errno(Errno::NOBUFS), false)];
        assert_eq!(taken.iter().map(fields).collect::<Vec<_>>(), expected);
        host.push(3, recv_multi(client, 0));
        let none = (3, errno(Errno::NOBUFS), false);
        assert_eq!(
            fields(&host.wait_for(1)[0]),
            none,
            "a missing buffer was not reported before anything arrived"
        );
        assert_eq!(buffers.bytes(&taken[0]), [5; 16]);
        host.push(4, op::RecvSelect { fd: server, group: BUFFER_GROUP }.entry());
        assert_eq!(fields(&host.wait_for(1)[0]), (4, 8, false));
        host.push(5, op::RecvSelect { fd: server, group: 99 }.entry());
        assert_eq!(fields(&host.wait_for(1)[0]), (5, errno(Errno::NOBUFS), false));
        buffers.unregister(&host.ring);
    });
}

#[test]
fn eof_ends_multishot_recv_after_its_data() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let buffers = ProvidedBuffers::new(&host.ring, 4, 16);
        assert_eq!(host.send(client, &[1; 20]), 20);
        host.kernel.close(client);
        host.drain_until_quiet();
        host.push(1, recv_multi(server, 0));
        let taken = host.wait_for(3);
        let expected = [(1, 16, true), (1, 4, true), (1, 0, false)];
        assert_eq!(taken.iter().map(fields).collect::<Vec<_>>(), expected);
        assert_eq!(taken[2].buffer(), None);
        buffers.unregister(&host.ring);
    });
}

#[test]
fn short_send_with_skipped_success_is_reported() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let quiet = |bytes| send(client, bytes, DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS);
        host.push(1, quiet(b"all of it"));
        assert_eq!(host.drain_until_quiet(), []);
        assert_eq!(host.recv(server).unwrap(), b"all of it");
        let big = vec![1; 32 << 20];
        host.push(2, quiet(&big));
        let short = host.wait_for(1)[0];
        assert!(short.result > 0 && (short.result as usize) < big.len(), "{short:?}");
        // On Linux, the loopback may move bytes in the meantime, which frees space.
        let full = (0..1000).find_map(|_| {
            host.push(3, quiet(&big));
            let again = host.wait_for(1)[0];
            (again.result == errno(Errno::AGAIN)).then_some(again)
        });
        assert_eq!(full.map(|c| fields(&c)), Some((3, errno(Errno::AGAIN), false)));
    });
}

#[test]
fn cancel_completes_before_its_target_and_loses_no_data() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let buffers = ProvidedBuffers::new(&host.ring, 4, 16);
        host.push(1, recv_multi(server, 0));
        host.reap();
        host.push(9, send(client, b"unread", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
        host.ring.enter(Wait::No).unwrap();
        pass_time(&host, QUIET_PERIOD);
        host.push(2, cancel(1));
        host.push(3, cancel(77));
        let outcomes: Vec<_> = host.wait_for(3).iter().map(fields).collect();
        let canceled = (1, errno(Errno::CANCELED), false);
        assert_eq!(outcomes, [(2, 0, false), (3, errno(Errno::NOENT), false), canceled]);
        assert_eq!(host.recv(server).unwrap(), b"unread");
        buffers.unregister(&host.ring);
    });
}

#[test]
fn cancelled_send_reports_bytes_sent() {
    on_sim_and_linux(|mut host| {
        let (client, _server) = host.pair();
        let big = vec![1; 32 << 20];
        host.push(1, send(client, &big, WAITALL_FLAGS));
        assert_eq!(host.drain_until_quiet(), []);
        host.push(2, cancel(1));
        let taken = host.wait_for(2);
        assert_eq!(fields(&taken[0]), (2, 0, false));
        assert!(taken[1].result > 0 && (taken[1].result as usize) < big.len(), "{taken:?}");
    });
}

#[test]
fn every_waiting_operation_can_be_cancelled() {
    on_sim_and_linux(|mut host| {
        let (listener, _) = host.listener(1);
        let (client, server) = host.pair();
        let mut memory = [0; 8];
        let fd = client;
        host.push(1, op::Accept { fd: listener }.entry());
        host.push(2, op::AcceptMulti { fd: listener }.entry());
        host.push(3, op::Recv { fd, buffer: memory.as_mut_ptr(), len: 8 }.entry());
        host.push(4, op::PollMulti { fd: server, events: op::poll::IN }.entry());
        host.reap();
        for target in 1..=4 {
            host.push(100 + target, cancel(target));
            let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
            assert!(outcomes.contains(&(100 + target, 0, false)), "{outcomes:?}");
            assert!(outcomes.contains(&(target, errno(Errno::CANCELED), false)), "{outcomes:?}");
        }
    });
}

#[test]
fn multishot_poll_reports_each_arrival() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        host.push(1, op::PollMulti { fd: server, events: op::poll::IN }.entry());
        host.reap();
        for _ in 0..3 {
            host.push(9, send(client, b"edge", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
            assert_eq!(fields(&host.wait_for(1)[0]), (1, 1, true));
            assert_eq!(host.drain_until_quiet(), []);
        }
    });
}

/// Creates a timeout whose duration is in the test's memory, which may change once the entry has
/// been consumed.
fn timeout(after: &op::TimeSpec) -> Entry {
    let addr = std::ptr::from_ref(after) as u64;
    const ZERO_TIME: op::TimeSpec = op::TimeSpec { seconds: 0, nanoseconds: 0 };
    Entry { addr, ..op::Timeout { after: &ZERO_TIME }.entry().into() }
}

#[test]
fn timeout_expires_or_is_cancelled() {
    on_sim_and_linux(|mut host| {
        let time = op::TimeSpec { seconds: 0, nanoseconds: 5_000_000 };
        let before = host.kernel.now();
        host.push(1, timeout(&time));
        host.ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
        assert_eq!(fields(&host.wait_for(1)[0]), (1, errno(Errno::TIME), false));
        let passed = host.kernel.now() - before;
        assert!(passed >= Duration::from_millis(5), "{passed:?}");
        let mut time = op::TimeSpec { seconds: 3600, nanoseconds: 0 };
        host.push(2, timeout(&time));
        assert_eq!(host.reap(), []);
        time.seconds = 0;
        host.push(3, cancel(2));
        let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
        assert!(outcomes.contains(&(3, 0, false)), "{outcomes:?}");
        assert!(outcomes.contains(&(2, errno(Errno::CANCELED), false)), "{outcomes:?}");
        time.seconds = -1;
        assert_eq!(host.submit_and_wait(timeout(&time)), errno(Errno::INVAL));
    });
}

#[test]
fn invalid_entry_fails_with_the_error_of_linux() {
    on_sim_and_linux(|mut host| {
        let (_client, server) = host.pair();
        let fd = server;
        let bare = Entry::from(op::Nop.entry());
        let (inval, badf) = (errno(Errno::INVAL), errno(Errno::BADF));
        let many: Entry = op::RecvMulti { fd, group: BUFFER_GROUP, limit: 0 }.entry().into();
        let none = op::RecvMulti { fd: Fd::NONE, group: BUFFER_GROUP, limit: 1 }.entry().into();
        let cases = [
            ("an unknown operation", Entry { opcode: 250, ..bare }, inval),
            ("a multishot without a group", Entry { flags: 0, ..many }, inval),
            ("unknown receive flags", Entry { ioprio: 1 << 14, ..many }, inval),
            ("a descriptor that is not open", none, badf),
            ("a close of nothing", op::Close { fd: owned(9_999) }.entry().into(), badf),
        ];
        for (what, entry, answer) in cases {
            assert_eq!(host.submit_and_wait(entry), answer, "{what}");
        }
    });
}

#[test]
fn enter_runs_twenty_work_items_unless_it_waits_for_more() {
    on_sim_and_linux(|mut host| {
        let pairs: Vec<_> = (0..50).map(|_| host.pair()).collect();
        let mut memory = vec![[0u8; 8]; pairs.len()];
        for (n, (&(_, server), memory)) in pairs.iter().zip(&mut memory).enumerate() {
            let (fd, buffer) = (server, memory.as_mut_ptr());
            host.push(n as u64, op::Recv { fd, buffer, len: 8 }.entry());
            host.reap();
        }
        for chunk in pairs.chunks(8) {
            let quiet = |fd| send(fd, b"go", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS);
            chunk.iter().for_each(|&(client, _)| host.push(999, quiet(client)));
            host.ring.enter(Wait::No).unwrap();
        }
        pass_time(&host, QUIET_PERIOD);
        host.ring.enter(Wait::No).unwrap();
        assert_eq!(host.ring.ready(), 0, "deferred work ran without being requested");
        assert!(host.ring.has_deferred_work());
        assert_eq!(host.reap().len(), 20);
        let wait = Wait::For { completions: 25, timeout: Some(QUIET_PERIOD) };
        assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done);
        assert_eq!(host.ring.completions().count(), 25);
        assert_eq!(host.reap().len(), 5);
        assert!(!host.ring.has_deferred_work());
    });
}

/// Lets time pass by a wait on another ring, without a call on this one.
fn pass_time(host: &Host, time: Duration) {
    let mut other = Host::over(host.kernel.clone(), 1, 1);
    let entered = other.ring.enter(Wait::For { completions: 1, timeout: Some(time) }).unwrap();
    assert_eq!(entered, Entered::TimedOut);
}

#[test]
fn kernel_has_features_the_driver_needs() {
    on_sim_and_linux(|host| {
        let features = Features::detect_on(host.kernel.clone()).unwrap();
        for name in ["multishot receive", "multishot accept", "receive limit", "no index array"] {
            assert!(features.has(name), "{name}");
        }
        let probe = host.ring.probe().unwrap();
        assert!(probe.has(opcode::RECV) && probe.has(opcode::SENDMSG) && !probe.has(250));
    });
}

#[test]
fn every_set_of_setup_flags_works() {
    on_sim_and_linux(|host| {
        for without in [SetupFlags::empty(), SetupFlags::NO_SQARRAY, SetupFlags::DEFER_TASKRUN] {
            let builder = Ring::builder().kernel(host.kernel.clone()).entries(4).without(without);
            let ring = builder.build().unwrap();
            assert!(!ring.setup_flags().intersects(without));
            let mut host = Host { kernel: host.kernel.clone(), ring, kept: Vec::new() };
            let (client, server) = host.pair();
            assert_eq!(host.send(client, b"up"), 2);
            assert_eq!(host.recv(server).unwrap(), b"up");
        }
    });
}

#[test]
fn dropped_ring_frees_its_registered_slot() {
    on_sim_and_linux(|host| {
        for _ in 0..40 {
            drop(Host::over(host.kernel.clone(), 4, 8));
        }
        let more: Vec<_> = (0..20).map(|_| Host::over(host.kernel.clone(), 4, 8)).collect();
        for mut host in more {
            host.push(1, op::Nop.entry());
            assert_eq!(host.wait_for(1).len(), 1);
        }
    });
}
