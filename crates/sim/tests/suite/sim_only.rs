//! Features that only a simulated kernel has: virtual time, a configurable network, other kernel
//! versions, and limits.

use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Hosts, Link, Profile, Sim, SimBuilder};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

fn builder_with_link(change: impl FnOnce(&mut Link)) -> SimBuilder {
    let mut link = Link::default();
    change(&mut link);
    Sim::builder(1).link(link)
}

/// Returns how much virtual time `body` takes.
fn virtual_time_of(host: &mut Host, body: impl FnOnce(&mut Host)) -> Duration {
    let before = host.kernel.now();
    body(host);
    host.kernel.now() - before
}

fn is_about(time: Duration, expected: Duration) -> bool {
    let difference = time.abs_diff(expected);
    difference < Duration::from_micros(20) + expected / 50
}

#[test]
fn waiting_a_day_takes_a_day_of_virtual_time() {
    let (mut host, _) = Host::simulated(Sim::builder(1));
    let day = Duration::from_secs(24 * 3600);
    let waited = virtual_time_of(&mut host, |host| {
        let wait = Wait::For { completions: 1, timeout: Some(day) };
        assert_eq!(host.ring.enter(wait).unwrap(), Entered::TimedOut);
    });
    assert!(is_about(waited, day), "{waited:?}");
}

#[test]
fn each_enter_takes_the_configured_time() {
    let (mut host, sim) = Host::simulated(Sim::builder(1).turn_cost(Duration::from_micros(3)));
    let polled =
        virtual_time_of(&mut host, |host| (0..100).for_each(|_| assert_eq!(host.reap(), [])));
    assert_eq!(polled, Duration::from_micros(300));
    assert_eq!(sim.counts().enters, 100);
}

#[test]
fn endless_wait_fails_with_edeadlk() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (_client, server) = host.pair();
    let buffers = ProvidedBuffers::new(&host.ring, 2, 16);
    host.push(1, recv_multi(server, 0));
    host.drain_until_quiet();
    let error = host.ring.enter(Wait::For { completions: 1, timeout: None }).unwrap_err();
    assert_eq!(errno_of(&error), Some(Errno::DEADLK));
    assert!(
        sim.leftovers().iter().any(|line| line.starts_with("in flight: receive on TCP")),
        "{:?}",
        sim.leftovers()
    );
    buffers.unregister(&host.ring);
}

#[test]
fn enters_without_any_effect_fail_with_etimedout_in_the_end() {
    let (mut host, _) = Host::simulated(Sim::builder(1).max_idle_turns(100));
    host.reap();
    for _ in 0..3 {
        for _ in 0..90 {
            host.ring.enter(Wait::Reap).unwrap();
        }
        // A submission and its completion count as an effect.
        host.push(1, op::Nop.entry());
        host.drain_until_quiet();
    }
    let idle = (0..200).find_map(|_| host.ring.enter(Wait::Reap).err());
    assert_eq!(errno_of(&idle.expect("the enters never fail")), Some(Errno::TIMEDOUT));
    host.ring.enter(Wait::Reap).unwrap();
}

#[test]
fn latency_applies_once_per_direction() {
    let latency = Duration::from_millis(20);
    let (mut host, _) = Host::simulated(builder_with_link(|link| link.latency = latency));
    let (mut client, mut server) = (Fd::NONE, Fd::NONE);
    let connected = virtual_time_of(&mut host, |host| (client, server) = host.pair());
    assert!(is_about(connected, 2 * latency), "{connected:?} for a handshake");
    let echoed = virtual_time_of(&mut host, |host| {
        host.send(client, b"there");
        host.recv(server).unwrap();
        host.send(server, b"and back");
        host.recv(client).unwrap();
    });
    assert!(is_about(echoed, 2 * latency), "{echoed:?} for a round trip");
}

#[test]
fn each_connection_has_the_whole_bandwidth() {
    let (mut host, _) = Host::simulated(builder_with_link(|link| {
        link.bandwidth = 1_000_000;
        link.segment = 1_000;
    }));
    let (client, server) = host.pair();
    let bytes = vec![1; 500_000];
    let carried = virtual_time_of(&mut host, |host| {
        host.push(1, send(client, &bytes, WAITALL_FLAGS));
        host.reap();
        let mut got = 0;
        while got < bytes.len() {
            let mut memory = vec![0; 65_536];
            let (fd, buffer) = (server, memory.as_mut_ptr());
            host.push(2, op::Recv { fd, buffer, len: 65_536 }.entry());
            let mut taken = host.wait_for(1);
            if taken.iter().all(|c| c.user_data == 1) {
                taken.extend(host.wait_for(1));
            }
            got +=
                taken.iter().filter(|c| c.user_data == 2).map(|c| c.result as usize).sum::<usize>();
        }
    });
    assert!(
        is_about(carried, Duration::from_millis(500)),
        "{carried:?} for the bytes of half a second"
    );
}

#[test]
fn connect_retries_while_backlog_is_full() {
    let (mut host, _) = Host::simulated(Sim::builder(1));
    let (listener, address) = host.listener(1);
    let bytes = Address::from(address);
    for n in 0..3 {
        let (fd, address) = (host.socket(), bytes.as_bytes());
        let (address, len) = (address.as_ptr(), address.len() as u32);
        host.push(n, op::Connect { fd, address, len }.entry());
    }
    assert_eq!(
        host.drain_until_quiet().len(),
        2,
        "a backlog of one does not hold two connections, as on Linux"
    );
    host.accept(listener);
    let waited =
        virtual_time_of(&mut host, |host| assert_eq!(fields(&host.wait_for(1)[0]), (2, 0, false)));
    assert!(is_about(waited, Duration::from_secs(1) - QUIET_PERIOD), "{waited:?}");
}

#[test]
fn connect_times_out_when_backlog_stays_full() {
    let (mut host, _) = Host::simulated(Sim::builder(1));
    let (_listener, address) = host.listener(0);
    let first = host.socket();
    assert_eq!(host.connect(first, address), 0);
    let second = host.socket();
    let bytes = Address::from(address);
    let (address, len) = (bytes.as_bytes().as_ptr(), bytes.as_bytes().len() as u32);
    host.push(1, op::Connect { fd: second, address, len }.entry());
    let waited = virtual_time_of(&mut host, |host| {
        host.ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
        host.ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
    });
    assert_eq!(
        host.ring.completions().map(|c| c.result).collect::<Vec<_>>(),
        [errno(Errno::TIMEDOUT)]
    );
    assert!(is_about(waited, Duration::from_secs(63)), "{waited:?}: 1 + 2 + 4 + … + 32 seconds");
}

/// The answers of the network to an attempt that was given up do not reach the next one.
#[test]
fn connect_that_timed_out_can_be_repeated() {
    let [here, there] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    for listens in [true, false] {
        let builder = builder_with_link(|link| link.latency = Duration::from_millis(10));
        let (mut host, sim) = Host::simulated(builder);
        let [listener, client] = [there, here].map(|ip| {
            let fd = host.socket();
            host.kernel.bind(fd, &SocketAddr::from((ip, 0)).into()).unwrap();
            fd
        });
        let to = host.kernel.local_address(listener).unwrap();
        if listens {
            host.kernel.listen(listener, 8).unwrap();
        }
        let bytes = to.as_bytes();
        let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
        host.push(1, op::Connect { fd: client, address, len }.entry());
        host.reap();
        sim.compute(Duration::from_millis(15));
        sim.partition(here, there);
        let accepted = listens.then(|| host.accept(listener));
        if let Some(first) = accepted {
            assert_eq!(host.send(first, b"old"), 3);
        }
        let taken = loop {
            host.ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
            if let Some(done) = host.ring.completions().next() {
                break done;
            }
        };
        assert_eq!(fields(&taken), (1, errno(Errno::TIMEDOUT), false));
        // The answer to the first attempt arrives before that to the second.
        host.push(2, op::Connect { fd: client, address, len }.entry());
        assert!(host.reap().is_empty(), "the second connect was refused");
        if !listens {
            host.kernel.listen(listener, 8).unwrap();
        }
        sim.repair(here, there);
        assert_eq!(fields(&host.wait_for(1)[0]), (2, 0, false), "listens: {listens}");
        if let Some(first) = accepted {
            assert_eq!(host.recv(first), Err(errno(Errno::CONNRESET)));
            host.kernel.close(first);
        }
        let server = host.accept(listener);
        assert_eq!(host.send(server, b"new"), 3);
        assert_eq!(host.recv(client).unwrap(), b"new");
        [listener, client, server].into_iter().for_each(|fd| host.kernel.close(fd));
        assert!(!sim.pass_until(None), "something is left in flight");
        drop(host);
        assert_eq!(sim.leftovers(), [""; 0]);
    }
}

#[test]
fn descriptor_limit_is_enforced_and_closed_numbers_are_reused() {
    let (mut host, _) = Host::simulated(Sim::builder(1).descriptors(4));
    let (listener, address) = host.listener(4);
    let client = host.socket();
    assert_eq!(host.connect(client, address), 0);
    let third = host.socket();
    let error = host.new_socket(Domain::Inet, SocketType::Stream, false).unwrap_err();
    assert_eq!(errno_of(&error), Some(Errno::MFILE));
    host.push(1, op::AcceptMulti { fd: listener }.entry());
    assert_eq!(fields(&host.wait_for(1)[0]), (1, errno(Errno::MFILE), false));
    host.kernel.close(third);
    assert_eq!(
        host.accept(listener),
        third,
        "the waiting connection did not take the lowest number"
    );
}

#[test]
fn old_profile_lacks_newer_features() {
    let sim = Sim::builder(1).profile(Profile::old()).build();
    let features = Features::detect_on(sim).unwrap();
    for missing in ["deferred task work", "no index array", "receive limit", "honest iowait"] {
        assert!(!features.has(missing), "{missing}");
    }
    for there in ["multishot receive", "multishot accept", "skipped completions"] {
        assert!(features.has(there), "{there}");
    }
}

#[test]
fn old_profile_runs_all_work_in_one_enter() {
    let (mut host, _) = Host::simulated(Sim::builder(1).profile(Profile::old()));
    let pairs: Vec<_> = (0..50).map(|_| host.pair()).collect();
    let mut memory = [0; 8];
    for (n, &(_, server)) in pairs.iter().enumerate() {
        let (fd, buffer) = (server, memory.as_mut_ptr());
        host.push(n as u64, op::Recv { fd, buffer, len: 8 }.entry());
        host.reap();
    }
    for &(client, _) in &pairs {
        host.kernel.shutdown(client, Shutdown::Write).unwrap();
    }
    let wait = Wait::For { completions: 50, timeout: Some(QUIET_PERIOD) };
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done);
    assert_eq!(host.ring.ready(), 50);
}

#[test]
fn refused_setup_returns_the_configured_error() {
    for errno in [Errno::PERM, Errno::NOSYS, Errno::NOMEM, Errno::OPNOTSUPP] {
        let sim = Sim::builder(1).profile(Profile::current().refusing(errno)).build();
        let error = Ring::builder().kernel(sim.clone()).build().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        assert_eq!(sim.open_descriptors(), 0);
    }
}

#[test]
fn missing_operation_is_refused_and_not_probed() {
    let (mut host, _) =
        Host::simulated(Sim::builder(1).profile(Profile::current().without(opcode::SENDMSG)));
    assert!(!host.ring.probe().unwrap().has(opcode::SENDMSG));
    let message = op::SendMsg { fd: Fd::NONE, header: std::ptr::null(), flags: 0 };
    assert_eq!(host.submit_and_wait(message.entry()), errno(Errno::INVAL));
}

#[test]
fn dropped_ring_leaves_nothing_open() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, server) = host.pair();
    let mut memory = [0; 8];
    let (fd, buffer) = (server, memory.as_mut_ptr());
    host.push(1, op::Recv { fd, buffer, len: 8 }.entry());
    let unknown = op::PollMulti { fd: owned(5), events: op::poll::IN };
    host.push(2, unknown.entry());
    assert_eq!(host.drain_until_quiet(), []);
    assert_eq!((sim.open_descriptors(), sim.pending_operations()), (3, 2));
    let kernel: Rc<dyn Kernel> = sim.clone();
    drop(host);
    assert_eq!((sim.open_descriptors(), sim.pending_operations()), (2, 0));
    [client, server].into_iter().for_each(|fd| kernel.close(fd));
    assert_eq!(sim.leftovers(), [] as [&str; 0]);
}

#[test]
fn poll_of_real_descriptor_never_completes_and_can_be_cancelled() {
    let (mut host, _) = Host::simulated(Sim::builder(1));
    host.push(1, op::PollMulti { fd: owned(0), events: op::poll::IN }.entry());
    assert_eq!(host.drain_until_quiet(), []);
    host.push(2, cancel(1));
    let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
    assert_eq!(outcomes, [(2, 0, false), (1, errno(Errno::CANCELED), false)]);
}

#[test]
fn trace_records_the_run() {
    let run = |builder: SimBuilder| {
        let (mut host, sim) = Host::simulated(builder.trace_text());
        let (client, server) = host.pair();
        host.send(client, b"hello");
        host.recv(server).unwrap();
        (sim.trace_hash(), sim.trace_lines())
    };
    let (hash, lines) = run(Sim::builder(1));
    assert_eq!((hash, &lines), (run(Sim::builder(1)).0, &run(Sim::builder(1)).1));
    assert_ne!(hash, run(Sim::builder(1).turn_cost(Duration::from_nanos(999))).0);
    assert!(
        lines.iter().any(|line| line.to_lowercase().contains("send fd 10002 len 5")),
        "{lines:#?}"
    );
}
