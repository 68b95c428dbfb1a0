//! `annulus doctor`, and every command where io_uring is blocked.

use crate::common::{ANNULUS, Said, Server, annulus, finish, round_trip};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command in which `io_uring_setup` answers EPERM, as in most containers.
#[allow(unsafe_code)]
fn blocked(args: &[&str]) -> Command {
    let mut command = Command::new(ANNULUS);
    command.args(args);
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(block_io_uring) };
    command
}

/// Installs a seccomp filter: load the call's number; EPERM for `io_uring_setup`, else allow.
#[allow(unsafe_code)]
fn block_io_uring() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        op(LOAD, 0, 0, 0),
        op(JUMP_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: this option takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the kernel copies the program during the call; program and filter outlive it.
    check(unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    })
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn run_blocked(args: &[&str]) -> Said {
    finish(&mut blocked(args))
}

#[test]
fn the_page_and_the_json_agree() {
    let (page, json) = (annulus(["doctor"]), annulus(["doctor", "--json", "-"]).json());
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    for part in
        ["kernel", "io_uring", "open files", "locked memory", "kernel.io_uring_disabled", "missing"]
    {
        assert!(page.stdout.contains(part), "'{part}' is not in:\n{}", page.stdout);
    }
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 80), "{}", page.stdout);
    assert!(page.stdout.contains(json["kernel"].as_str().unwrap()));
    assert!(
        page.stdout
            .contains(&format!("driver       {}: ", json["driver"]["kind"].as_str().unwrap()))
    );
    for feature in json["io_uring"]["features"].as_array().unwrap() {
        assert!(page.stdout.contains(feature["name"].as_str().unwrap()), "{feature}");
    }
}

#[test]
fn where_io_uring_is_blocked_the_doctor_says_so() {
    let said = run_blocked(&["doctor"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    for part in ["not available", "driver       epoll: ", "seccomp", "missing      io_uring"] {
        assert!(said.stdout.contains(part), "'{part}' is not in:\n{}", said.stdout);
    }
    assert!(!said.stdout.contains("advice"), "both polls are io_uring's:\n{}", said.stdout);
    let said = run_blocked(&["doctor", "--require", "uring"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.stderr.matches("Operation not permitted").count(), 1, "{said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    let json = run_blocked(&["doctor", "--json", "-"]).json();
    assert_eq!(json["io_uring"]["available"], false);
    assert_eq!(json["driver"]["kind"], "epoll");
}

#[test]
fn where_io_uring_is_blocked_demanding_it_is_an_error() {
    for args in [
        &["echo", "--listen", "127.0.0.1:0", "--driver", "uring"][..],
        &["load", "--driver", "uring"],
    ] {
        run_blocked(args).complains(1, &["uring", "Operation not permitted", "seccomp"]);
    }
}

#[test]
fn where_io_uring_is_blocked_echo_serves_on_epoll_and_says_why() {
    let server = Server::spawn(&mut blocked(&["echo", "--listen", "127.0.0.1:0"]));
    assert!(server.ready.contains("(epoll: "), "{}", server.ready);
    assert!(server.ready.contains("Operation not permitted"), "no reason: {}", server.ready);
    round_trip(&mut server.connect(), b"all the same");
}
