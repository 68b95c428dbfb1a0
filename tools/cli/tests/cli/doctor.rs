//! `annulus doctor`, and other commands while io_uring is blocked: they report which driver runs
//! and why.

use crate::common::{Finished, Server, annulus, denied, finish, round_trip};
use std::process::Command;

/// Returns a command in which `io_uring_setup` fails with EPERM, as in most containers.
fn without_io_uring(args: &[&str]) -> Command {
    denied(args, libc::SYS_io_uring_setup, libc::EPERM)
}

fn run_without_io_uring(args: &[&str]) -> Finished {
    finish(&mut without_io_uring(args))
}

#[test]
fn text_and_json_agree() {
    let (page, json) = (annulus(["doctor"]), annulus(["doctor", "--json", "-"]).json());
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    for part in
        ["kernel", "io_uring", "open files", "locked memory", "address space", "VIRT", "missing"]
    {
        assert!(page.stdout.contains(part), "'{part}' is not in:\n{}", page.stdout);
    }
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 80), "{}", page.stdout);
    // A report of a fault needs both.
    for (row, key) in [("annulus", "version"), ("kernel", "kernel")] {
        let row = format!("{row:<13}{}\n", json[key].as_str().unwrap());
        assert!(page.stdout.contains(&row), "{row} is not in:\n{}", page.stdout);
    }
    assert!(
        page.stdout
            .contains(&format!("driver       {}: ", json["driver"]["kind"].as_str().unwrap()))
    );
    // What `auto` chose is followed by why it does not prefer the other driver.
    let is_uring = json["driver"]["kind"] == "uring";
    assert_eq!(page.stdout.contains("ANNULUS_DRIVER=epoll"), is_uring, "{}", page.stdout);
    for feature in json["io_uring"]["features"].as_array().unwrap() {
        assert!(page.stdout.contains(feature["name"].as_str().unwrap()), "{feature}");
    }
}

#[test]
fn doctor_without_io_uring_reports_epoll_and_why() {
    let finished = run_without_io_uring(&["doctor"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    for part in ["not available", "driver       epoll: ", "seccomp", "missing      io_uring"] {
        assert!(finished.stdout.contains(part), "'{part}' is not in:\n{}", finished.stdout);
    }
    assert!(
        !finished.stdout.contains("advice"),
        "busy polling requires io_uring:\n{}",
        finished.stdout
    );
    let finished = run_without_io_uring(&["doctor", "--require", "uring"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_eq!(finished.stderr.matches("Operation not permitted").count(), 1, "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    let json = run_without_io_uring(&["doctor", "--json", "-"]).json();
    assert_eq!(json["io_uring"]["available"], false);
    assert_eq!(json["driver"]["kind"], "epoll");
}

#[test]
fn uring_driver_without_io_uring_is_an_error() {
    for args in [
        &["echo", "--listen", "127.0.0.1:0", "--driver", "uring"][..],
        &["load", "--driver", "uring"],
    ] {
        run_without_io_uring(args).fails_with(1, &["uring", "Operation not permitted", "seccomp"]);
    }
}

#[test]
fn echo_without_io_uring_serves_on_epoll_and_says_why() {
    let server = Server::spawn(&mut without_io_uring(&["echo", "--listen", "127.0.0.1:0"]));
    assert!(server.ready.contains("(epoll: "), "{}", server.ready);
    assert!(server.ready.contains("Operation not permitted"), "no reason: {}", server.ready);
    round_trip(&mut server.connect(), b"all the same");
}
