//! Denies a server each system call that it makes, one at a time. The server either serves anyway,
//! or names the denied call and ends before its announcement. It never hangs, spins, or announces
//! itself without serving. Calls without which no program reaches its `main` are not included
//! (`mmap`, `mprotect`, `openat`, `read`, `close`, `poll`, `rt_sigaction` and the like, used by the
//! loader, libc and the start of the standard library). Neither are `rt_sigreturn`, without which
//! no signal handler returns, and `futex`, without which libc ends the process at the first wait.

use crate::common::{PATIENCE, Server, denied, drivers, finish, free_address, round_trip};
use annulus_load::clock;
use annulus_skip::skip;
use libc::c_long;
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpStream;
use std::process::Stdio;

/// What a server does when it is denied a call.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Serves,
    /// Ends with status 1 and a line that contains this text.
    Refuses(&'static str),
}

use Outcome::{Refuses, Serves};

/// Calls, each with its outcome for a server on uring, on epoll and on threads.
const DENIED_CALLS: [(&str, c_long, [Outcome; 3]); 36] = [
    ("accept4", libc::SYS_accept4, [Serves, Serves, Refuses("accept4: ")]),
    ("bind", libc::SYS_bind, [Refuses("bind: "); 3]),
    ("brk", libc::SYS_brk, [Serves; 3]),
    ("clock_gettime", libc::SYS_clock_gettime, [Serves; 3]),
    ("clone3", libc::SYS_clone3, [Serves, Serves, Refuses("cannot start a thread: ")]),
    ("epoll_create1", libc::SYS_epoll_create1, [Serves, Refuses("epoll_create1: "), Serves]),
    ("epoll_ctl", libc::SYS_epoll_ctl, [Serves, Refuses("epoll_ctl: "), Serves]),
    ("epoll_pwait", libc::SYS_epoll_pwait, [Serves; 3]),
    ("eventfd2", libc::SYS_eventfd2, [Refuses("eventfd2: "), Refuses("eventfd2: "), Serves]),
    ("exit", libc::SYS_exit, [Serves, Serves, Refuses("exit: ")]),
    ("exit_group", libc::SYS_exit_group, [Serves; 3]),
    ("fcntl", libc::SYS_fcntl, [Serves, Serves, Refuses("fcntl: ")]),
    ("getdents64", libc::SYS_getdents64, [Serves; 3]),
    (
        "getpeername",
        libc::SYS_getpeername,
        [Refuses("getpeername: "), Refuses("getpeername: "), Refuses("getpeername: ")],
    ),
    ("getrandom", libc::SYS_getrandom, [Serves; 3]),
    ("getsockname", libc::SYS_getsockname, [Refuses("getsockname: "); 3]),
    (
        "getsockopt",
        libc::SYS_getsockopt,
        [Refuses("getsockopt: "), Refuses("getsockopt: "), Serves],
    ),
    ("gettid", libc::SYS_gettid, [Serves; 3]),
    ("io_uring_enter", libc::SYS_io_uring_enter, [Refuses("allow io_uring_setup"), Serves, Serves]),
    ("io_uring_register", libc::SYS_io_uring_register, [Refuses("enabling"), Serves, Serves]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [Refuses("io_uring_setup: "), Serves, Serves]),
    ("ioctl", libc::SYS_ioctl, [Refuses("ioctl: "); 3]),
    ("listen", libc::SYS_listen, [Refuses("listen: "); 3]),
    ("madvise", libc::SYS_madvise, [Refuses("mapping the ring: "), Refuses("madvise: "), Serves]),
    ("ppoll", libc::SYS_ppoll, [Serves, Serves, Refuses("ppoll: ")]),
    ("prctl", libc::SYS_prctl, [Serves; 3]),
    ("prlimit64", libc::SYS_prlimit64, [Serves; 3]),
    ("recvfrom", libc::SYS_recvfrom, [Refuses("recvfrom: "); 3]),
    ("rseq", libc::SYS_rseq, [Serves; 3]),
    ("sched_getaffinity", libc::SYS_sched_getaffinity, [Serves; 3]),
    ("sendto", libc::SYS_sendto, [Serves, Refuses("sendto: "), Refuses("sendto: ")]),
    ("setsockopt", libc::SYS_setsockopt, [Refuses("setsockopt: "); 3]),
    ("shutdown", libc::SYS_shutdown, [Serves, Refuses("shutdown: "), Refuses("shutdown: ")]),
    ("socket", libc::SYS_socket, [Refuses("socket: "); 3]),
    ("socketpair", libc::SYS_socketpair, [Refuses("socketpair: "); 3]),
    ("timerfd_create", libc::SYS_timerfd_create, [Serves, Refuses("timerfd_create: "), Serves]),
];

#[test]
fn server_that_is_denied_a_call_serves_or_names_the_call() {
    for (place, driver) in ["uring", "epoll", "threads"].into_iter().enumerate() {
        if !drivers().contains(&driver) {
            skip!("the {driver} driver does not work here");
            continue;
        }
        let args = ["echo", "--listen", "127.0.0.1:0", "--driver", driver, "--stats", "-"];
        for (name, call, outcomes) in DENIED_CALLS {
            println!("{driver} without {name}");
            match outcomes[place] {
                Serves => assert_serves(Server::spawn(&mut denied(&args, call, libc::EPERM))),
                Refuses(part) => {
                    let finished = finish(&mut denied(&args, call, libc::EPERM));
                    finished.fails_with(1, &[part, "seccomp"]);
                    // The advice about privileged ports must not appear, and each cause is reported
                    // once.
                    assert!(!finished.stderr.contains("1024"), "{finished:?}");
                    assert_eq!(
                        finished.stderr.matches("(os error").count(),
                        errno_count(name),
                        "{finished:?}"
                    );
                }
            }
        }
    }
}

/// Returns how often the error contains an OS error: once, or never for `exit`, which is noticed by
/// a timeout.
fn errno_count(call: &str) -> usize {
    usize::from(call != "exit")
}

/// Asserts that the server serves, does not spin, and ends on a signal.
fn assert_serves(server: Server) {
    for turn in 0..3 {
        round_trip(&mut server.connect(), &[turn; 1000]);
    }
    let finished = server.stop();
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let stats = finished.json();
    assert_eq!(stats["messages"], 3, "{stats}");
    assert!(stats["counters"]["enters"].as_u64().is_none_or(|enters| enters < 200), "{stats}");
}

/// With `write` denied, the announcement is lost.
#[test]
fn server_that_may_not_write_serves_without_an_announcement() {
    for driver in drivers() {
        let free = free_address();
        let listen = free.to_string();
        let args = ["echo", "--listen", &listen, "--driver", driver];
        let mut command = denied(&args, libc::SYS_write, libc::EPERM);
        let mut server = command.stdin(Stdio::null()).spawn().unwrap();
        let deadline = clock::now() + PATIENCE;
        let mut stream = loop {
            match TcpStream::connect(free) {
                Ok(stream) => break stream,
                Err(error) => assert!(clock::now() < deadline, "{driver}: {error}"),
            }
        };
        round_trip(&mut stream, b"in silence");
        drop(stream);
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(0), "{driver}");
    }
}

#[test]
fn auto_driver_falls_back_when_the_ring_is_denied() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        let args = ["echo", "--listen", "127.0.0.1:0", "--stats", "-"];
        for errno in [libc::EPERM, libc::ENOSYS] {
            assert_serves(Server::spawn(&mut denied(&args, call, errno)));
        }
    }
}
