//! Signals of the process: ignored signals, and a second signal. Each test runs in separate
//! processes.
#![allow(unsafe_code)]

mod common;

use annulus::signal::{Signal, ctrl_c, signals, signals_even_if_ignored, until_terminated};
use annulus::task::{spawn_blocking, yield_now};
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Runtime, spawn};
use common::rerun::{assert_passes, rerun};
use common::{run_on, touch};
use rustix::process::{Pid, Signal as Number, WaitOptions, getpid, kill_process, waitpid};
use std::future::{Future, pending};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Runs a body on each driver; a deadline turns a hang into a failure.
fn on_each<F: Future<Output = io::Result<()>>>(body: fn() -> F) {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        run_on(Runtime::builder().driver(choice), async {
            annulus::time::timeout(Duration::from_secs(60), body()).await.expect("the test hangs")
        });
    }
}

fn raise(signal: Number) -> io::Result<()> {
    Ok(kill_process(getpid(), signal)?)
}

/// Ignores a signal, as if the program had inherited that.
fn ignore(signal: Number) {
    // SAFETY: the call takes a number and one of the system's handlers.
    let before = unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Returns true if this process ignores a signal; programs that it starts inherit this.
fn is_ignored(signal: Number) -> bool {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("/proc/self/status cannot be read");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .expect("no mask of ignored signals");
    u64::from_str_radix(mask.trim(), 16).expect("not a number") & 1 << (signal.as_raw() - 1) != 0
}

#[test]
fn an_ignored_signal_stays_ignored() {
    assert_passes(&mut rerun!(child_with_ignored_signals));
}

#[test]
#[ignore = "a child of the test above"]
fn child_with_ignored_signals() {
    const IGNORED: [Number; 5] =
        [Number::HUP, Number::INT, Number::QUIT, Number::USR1, Number::WINCH];
    IGNORED.into_iter().for_each(ignore);
    on_each(|| async {
        let which =
            [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGWINCH];
        let mut caught = signals(&[&which[..], &[Signal::SIGUSR2]].concat())?;
        let interrupted = ctrl_c();
        for signal in IGNORED {
            raise(signal)?;
        }
        raise(Number::USR2)?;
        // `recv` prefers signals that come earlier in the list, so it would return an ignored
        // signal first.
        assert_eq!(caught.recv().await?, Signal::SIGUSR2);
        assert!(touch(interrupted).is_none());
        let goes_on = until_terminated(async {
            raise(Number::INT)?;
            raise(Number::USR2)?;
            caught.recv().await?;
            yield_now().await;
            Err(io::Error::other("goes on"))
        });
        assert_eq!(goes_on.await.unwrap_err().to_string(), "goes on");
        assert!(IGNORED.into_iter().all(is_ignored), "a signal is no longer ignored");
        Ok(())
    });
    on_each(|| async {
        let mut caught = signals_even_if_ignored(&[Signal::SIGHUP])?;
        raise(Number::HUP)?;
        assert_eq!(caught.recv().await?, Signal::SIGHUP);
        Ok(())
    });
    // This check comes last, because each further signal ends the process.
    run_on(
        Runtime::builder(),
        until_terminated(async {
            raise(Number::TERM)?;
            pending().await
        }),
    );
}

/// Programs ignore signals to survive them. That does not apply here: the standard library ignores
/// SIGPIPE in every program, and SIGCHLD ends no process.
#[test]
fn sigpipe_and_sigchld_are_caught_even_if_ignored() {
    assert_passes(&mut rerun!(child_with_usual_signals));
}

#[test]
#[ignore = "a child of the test above"]
fn child_with_usual_signals() {
    assert!(is_ignored(Number::PIPE), "the standard library does not ignore SIGPIPE");
    ignore(Number::CHILD);
    on_each(|| async {
        let mut caught = signals(&[Signal::SIGPIPE, Signal::SIGCHLD])?;
        raise(Number::PIPE)?;
        assert_eq!(caught.recv().await?, Signal::SIGPIPE);
        raise(Number::CHILD)?;
        assert_eq!(caught.recv().await?, Signal::SIGCHLD);
        Ok(())
    });
}

/// A forked child shares the sockets through which its parent's handlers report signals.
#[test]
fn a_signal_of_a_forked_child_arrives_at_the_child_only() {
    assert_passes(&mut rerun!(child_that_forks));
}

#[test]
#[ignore = "a child of the test above"]
fn child_that_forks() {
    on_each(|| async {
        for (signal, number) in [(Signal::SIGUSR1, Number::USR1), (Signal::SIGTERM, Number::TERM)] {
            let mut caught = signals(&[Signal::SIGUSR1])?;
            let goes_on = until_terminated(async {
                let (mut ready, mut is_ready) = io::pipe()?;
                // SAFETY: the other threads of the process hold no lock, so the child may call
                // anything. It exits at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let own = annulus::run(async {
                        let mut caught = signals(&[signal])?;
                        is_ready.write_all(b"!")?;
                        caught.recv().await
                    });
                    // SAFETY: `_exit` takes no pointers. It ends the child without running the
                    // parent's destructors.
                    unsafe { libc::_exit(i32::from(own.is_err())) };
                }
                ready.read_exact(&mut [0])?;
                let pid = Pid::from_raw(child).expect("no child");
                kill_process(pid, number)?;
                let ended = waitpid(Some(pid), WaitOptions::empty())?.expect("still running");
                assert_eq!(ended.1.exit_status(), Some(0), "{signal} did not arrive at the child");
                // The parent would find the signal within a turn or two.
                sleep(Duration::from_millis(20)).await;
                Err(io::Error::other("goes on"))
            });
            let ended = goes_on.await.expect_err("the parent got the SIGTERM of its child");
            assert_eq!(ended.to_string(), "goes on");
            assert!(touch(caught.recv()).is_none(), "the parent got the signal of its child");
            raise(Number::USR1)?;
            assert_eq!(caught.recv().await?, Signal::SIGUSR1);
        }
        Ok(())
    });
}

/// What a child is doing when the second signal arrives.
const MODES: [&str; 4] = ["behind", "blocking", "busy", "ctrl_c"];

#[test]
fn a_second_signal_ends_a_process_that_is_shutting_down() {
    for mode in MODES {
        for (second, number) in [(Number::INT, libc::SIGINT), (Number::TERM, libc::SIGTERM)] {
            if mode == "ctrl_c" && second == Number::TERM {
                continue;
            }
            let mut command = rerun!(child_that_never_ends);
            let child = command.env("MODE", mode).stdout(Stdio::piped()).spawn();
            let mut child = child.expect("the test program does not start");
            let mut lines = BufReader::new(child.stdout.take().expect("not piped")).lines();
            let mut until = |text: &str| {
                let found = lines.any(|line| line.expect("not UTF-8").contains(text));
                assert!(found, "{mode}: the child ended before it printed {text:?}");
            };
            until("ready");
            let pid = Pid::from_child(&child);
            kill_process(pid, Number::INT).expect("the child is not running");
            until("asked");
            assert_eq!(ended_by(&mut child, pid, second), Some(number), "{mode}");
        }
    }
}

/// Sends signals until the process has ended, since signals that arrive together with the first one
/// count as the same request.
fn ended_by(child: &mut Child, pid: Pid, signal: Number) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("not a child of this process") {
            return status.signal();
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().expect("the child is not running");
            panic!("the child does not react to signals");
        }
        kill_process(pid, signal).expect("the child has been waited for");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn never() -> ! {
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_that_never_ends() {
    let mode = std::env::var("MODE").expect("not run by its parent");
    let ready = async {
        println!("\nready");
        pending().await
    };
    match &*mode {
        "behind" => run_on(Runtime::builder(), until_terminated(ready)),
        "blocking" => run_on(Runtime::builder(), async {
            drop(spawn_blocking(|| never()));
            until_terminated(ready).await?;
            println!("\nasked");
            Ok(())
        }),
        "busy" => run_on(Runtime::builder(), async {
            spawn(async {
                // The loop is blocked: nothing that waits for a signal is polled.
                let mut caught = signal_pipe();
                println!("\nready");
                caught.wait();
                println!("\nasked");
                never();
            });
            until_terminated(pending()).await
        }),
        _ => run_on(Runtime::builder(), async {
            let interrupted = ctrl_c();
            println!("\nready");
            interrupted.await
        }),
    }
    println!("\nasked");
    never();
}

/// Waits for SIGINT without the runtime.
struct SignalPipe(std::os::unix::net::UnixStream);

fn signal_pipe() -> SignalPipe {
    let (reading, writing) = std::os::unix::net::UnixStream::pair().expect("no pair of sockets");
    signal_hook::low_level::pipe::register(libc::SIGINT, writing)
        .expect("the handler cannot be registered");
    SignalPipe(reading)
}

impl SignalPipe {
    fn wait(&mut self) {
        let read = io::Read::read(&mut self.0, &mut [0]);
        assert!(!matches!(read, Err(ref error) if error.kind() != ErrorKind::Interrupted));
    }
}
