//! Invariant 16: which driver a runtime uses where io_uring is blocked, and that it reports why.
//! Tests that need a seccomp filter run in child processes, because a filter cannot be removed.
#![allow(unsafe_code)]

mod common;

use annulus::sim::{Profile, Sim};
use annulus::{DriverChoice, DriverKind, Runtime};
use annulus_skip::skip;
use common::denied::deny;
use common::rerun::{self, rerun};
use common::{echo, pair, receive, run_on};
use std::io;
use std::process::Command;
use std::time::Duration;

/// The environment variable with the errno that `io_uring_setup` returns in a child.
const ERRNO: &str = "ANNULUS_TEST_ERRNO";

/// Errors that block io_uring, as errno, with the cause and the remedy that the message must
/// contain.
const BLOCKS: [(i32, &str, &str); 4] = [
    (libc::EPERM, "seccomp", "allow io_uring_setup"),
    (libc::ENOSYS, "this kernel has no io_uring", "run Linux 6.0 or newer"),
    (libc::ENOMEM, "memlock", "ulimit -l"),
    (libc::EOPNOTSUPP, "host", "operator"),
];

/// Makes `io_uring_setup` fail on this thread and on threads that it starts.
fn block_io_uring(errno: i32) {
    deny(libc::SYS_io_uring_setup, errno);
}

/// Runs one of the ignored tests below in a separate process.
fn assert_passes(mut test: Command, set: &[(&str, &str)]) {
    test.env_remove("ANNULUS_DRIVER").env("RUST_BACKTRACE", "0");
    rerun::assert_passes(test.envs(set.iter().copied()));
}

fn block_from_env() -> (i32, &'static str, &'static str) {
    let errno: i32 = std::env::var(ERRNO).expect("not run by its parent").parse().unwrap();
    block_io_uring(errno);
    BLOCKS.into_iter().find(|(known, ..)| *known == errno).expect("the errno is not on the list")
}

/// Checks an echo on the driver that the builder chooses.
fn echoes(choice: DriverChoice) {
    let got = run_on(Runtime::builder().driver(choice), async {
        let (mut client, server) = pair().await?;
        annulus::spawn(echo(server));
        client.send("there and back").await?;
        receive(&mut client, 14).await
    });
    assert_eq!(got, b"there and back");
}

#[test]
fn auto_falls_back_on_every_refusal_and_says_why() {
    for (errno, ..) in BLOCKS {
        assert_passes(rerun!(blocked_auto), &[(ERRNO, &errno.to_string())]);
    }
}

#[test]
#[ignore = "run by its parent, under a filter"]
fn blocked_auto() {
    let (errno, cause, _) = block_from_env();
    let runtime = Runtime::new().unwrap();
    let info = runtime.driver();
    assert_eq!(info.kind, DriverKind::Epoll);
    for part in ["io_uring_setup", &format!("os error {errno}"), cause] {
        assert!(info.reason.contains(part), "no `{part}` in: {info}");
    }
    assert_eq!(info.features.iter().count(), 0);
    drop(runtime);
    echoes(DriverChoice::Auto);
}

#[test]
fn requesting_a_blocked_uring_fails_with_cause_and_remedy() {
    for (errno, ..) in BLOCKS {
        assert_passes(rerun!(blocked_uring), &[(ERRNO, &errno.to_string())]);
        let demanded = [(ERRNO, &*errno.to_string()), ("ANNULUS_DRIVER", "uring")];
        assert_passes(rerun!(blocked_uring), &demanded);
    }
}

#[test]
#[ignore = "run by its parent, under a filter"]
fn blocked_uring() {
    let (errno, cause, remedy) = block_from_env();
    let by_environment = std::env::var_os("ANNULUS_DRIVER").is_some();
    let choice = if by_environment { DriverChoice::Auto } else { DriverChoice::Uring };
    let text = Runtime::builder().driver(choice).build().unwrap_err().to_string();
    for part in ["io_uring_setup", &format!("os error {errno}"), cause, remedy, "epoll"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn the_environment_overrides_only_auto() {
    assert_passes(rerun!(chosen_by_environment), &[("ANNULUS_DRIVER", "epoll")]);
}

#[test]
#[ignore = "run by its parent, with a variable set"]
fn chosen_by_environment() {
    let auto = Runtime::new().unwrap();
    assert_eq!(auto.driver().to_string(), "epoll: as set by ANNULUS_DRIVER");
    drop(auto);
    echoes(DriverChoice::Auto);
    match Runtime::builder().driver(DriverChoice::Uring).build() {
        Ok(demanded) => assert_eq!(demanded.driver().kind, DriverKind::Uring),
        Err(error) => assert!(error.to_string().contains("io_uring"), "{error}"),
    }
}

#[test]
fn an_unknown_name_in_the_environment_is_an_error() {
    assert_passes(rerun!(unknown_in_the_environment), &[("ANNULUS_DRIVER", "iocp")]);
}

#[test]
#[ignore = "run by its parent, with a variable set"]
fn unknown_in_the_environment() {
    let error = Runtime::new().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let expected = "ANNULUS_DRIVER: unknown driver `iocp`; choose one of auto, uring, epoll";
    assert_eq!(error.to_string(), expected);
    // A driver requested in code overrides the environment.
    echoes(DriverChoice::Epoll);
}

#[test]
fn requesting_epoll_selects_epoll() {
    let runtime = Runtime::builder().driver(DriverChoice::Epoll).build().unwrap();
    assert_eq!(runtime.driver().to_string(), "epoll: as requested");
    assert_eq!(runtime.driver().in_use().count() + runtime.driver().missing().count(), 0);
    drop(runtime);
    echoes(DriverChoice::Epoll);
}

#[test]
fn an_impossible_pool_size_is_an_error_on_every_driver() {
    let error = |choice| {
        Runtime::builder()
            .driver(choice)
            .stream_buffer_size(1000)
            .stream_buffer_count(8)
            .build()
            .unwrap_err()
    };
    let text = error(DriverChoice::Epoll).to_string();
    assert!(text.starts_with("stream_buffer_size of 1000 is invalid; "), "{text}");
    assert_eq!(error(DriverChoice::Auto).to_string(), text);
    match Runtime::builder().driver(DriverChoice::Uring).build() {
        Ok(_) => assert_eq!(error(DriverChoice::Uring).to_string(), text),
        Err(_) => skip!("io_uring is blocked here"),
    }
}

#[test]
fn build_fails_for_invalid_pools_and_names_the_setting() {
    let cases = [
        (Runtime::builder().stream_buffer_size(1 << 25), "stream_buffer_size of 33554432"),
        (Runtime::builder().stream_buffer_count(3), "stream_buffer_count of 3"),
        (Runtime::builder().datagram_buffer_size(0), "datagram_buffer_size of 0"),
        (Runtime::builder().datagram_buffer_count(65_536), "datagram_buffer_count of 65536"),
    ];
    for (builder, start) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(start), "{error}");
    }
    let error = Runtime::builder().unread_limit(usize::MAX).build().unwrap_err();
    assert!(error.to_string().ends_with("bytes is above 2147483647; use less"), "{error}");
}

#[test]
fn zero_copy_sends_are_refused_where_unsupported() {
    let builder = || Runtime::builder().zero_copy_threshold(Some(4096));
    let text = builder().driver(DriverChoice::Epoll).build().unwrap_err().to_string();
    assert!(text.starts_with("zero_copy_threshold needs io_uring"), "{text}");
    let old = Sim::builder(1).profile(Profile::old()).build();
    let error = builder().kernel(old.clone()).build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("lacks SENDMSG_ZC") && text.contains("newer kernel"), "{text}");
    assert!(builder().zero_copy_threshold(None).kernel(old).build().is_ok());
}

#[test]
fn features_in_use_and_missing_features_are_reported_separately() {
    let Ok(runtime) = Runtime::builder().driver(DriverChoice::Uring).build() else {
        return skip!("io_uring is blocked here");
    };
    let info = runtime.driver();
    // The uring driver requires these two.
    for name in ["multishot receive", "multishot accept"] {
        assert!(info.in_use().any(|feature| feature.name == name), "{name}");
    }
    assert!(info.in_use().all(|feature| feature.present));
    assert!(info.missing().all(|feature| !feature.present));
    let unused = info.features.iter().find(|feature| feature.name == "bundles").unwrap();
    assert!(!info.in_use().chain(info.missing()).any(|feature| feature == unused));
}

/// A denied accept must not be treated as a connection that was reset, which is retried at once.
#[test]
fn an_accept_that_is_denied_does_not_spin() {
    assert_passes(rerun!(child_without_accept), &[("ANNULUS_DRIVER", "epoll")]);
}

#[test]
#[ignore = "a child of the test above"]
fn child_without_accept() {
    run_on(Runtime::builder().driver(DriverChoice::Epoll), async {
        let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        deny(libc::SYS_accept4, libc::EPERM);
        // The runtime falls back to this call if accept4 is refused.
        deny(libc::SYS_accept, libc::EPERM);
        let accepted = annulus::spawn(async move { listener.accept().await });
        let mut counters = annulus::counters().expect("not in a runtime");
        while counters.accept_pauses < 2 {
            assert!(counters.enters < 100, "{counters:?}");
            annulus::time::sleep(Duration::from_millis(20)).await;
            counters = annulus::counters().expect("not in a runtime");
        }
        assert!(!accepted.is_finished());
        Ok(())
    });
}
