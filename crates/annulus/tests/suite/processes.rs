//! Child processes, on both drivers.

use crate::common;

use annulus::io::raw_os_error;
use annulus::process::{Command, Stdio};
use annulus::signal::{Signal, signals};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, spawn};
use common::rerun::{self, rerun};
use common::{open_descriptors, pattern, run_on, touch};
use std::future::Future;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Tests run one at a time, since some count descriptors or look for zombies.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a body on each driver; a deadline turns a hang into a failure.
fn on_each<F: Future<Output = io::Result<()>>>(body: fn() -> F) {
    let _alone = alone();
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let builder = Runtime::builder().driver(choice);
        run_on(builder, async {
            timeout(Duration::from_secs(60), body()).await.expect("the test hangs")
        });
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

/// Returns true if a process runs or is a zombie.
fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

async fn until_gone(process: u32) {
    while exists(process) {
        yield_now().await;
    }
}

#[test]
fn output_is_collected_from_both_streams_at_once() {
    on_each(|| async {
        // Each stream carries more than a pipe holds. Reading one stream to its end before the
        // other would wait forever.
        let script = "i=0; while [ $i -lt 30 ]; do
            head -c 10000 /dev/zero | tr '\\0' e >&2; head -c 10000 /dev/zero | tr '\\0' o; i=$((i+1)); done; exit 3";
        let output = shell(script).output().await?;
        assert_eq!(output.status.code(), Some(3));
        assert!(output.stdout == vec![b'o'; 300_000]);
        assert!(output.stderr == vec![b'e'; 300_000]);
        Ok(())
    });
}

/// The first wait may be a lookup of the paths. One through the files of another process is not
/// made on the loop.
#[test]
fn a_dropped_output_leaves_the_command_as_it_was() {
    on_each(|| async {
        let other = Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
        let mut command = Command::new("true");
        command.current_dir(format!("/proc/{}/cwd/.", other.id()));
        for polls in 1..=2 {
            let mut output = Box::pin(command.output());
            for _ in 0..polls {
                assert!(output.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            drop(output);
            let mut child = command.spawn()?;
            assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
            assert!(child.wait().await?.success());
        }
        Ok(())
    });
}

#[test]
fn streams_run_in_both_directions_at_once() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().expect("not piped");
        let text = pattern(1 << 20);
        let sent = text.clone();
        let writer = spawn(async move {
            stdin.write_all(&sent).await?;
            stdin.shutdown().await
        });
        let output = child.wait_with_output().await?;
        assert!(output.status.success() && output.stdout == text);
        writer.await.expect("the task panicked")
    });
}

#[test]
fn settings_reach_the_program() {
    on_each(|| async {
        let mut command = shell("echo $1 $NAME $OTHER; pwd");
        command.args(["sh", "argument"]).env("NAME", "value").env("OTHER", "gone");
        let output = command.env_remove("OTHER").current_dir("/").output().await?;
        assert_eq!(String::from_utf8_lossy(&output.stdout), "argument value\n/\n");
        let mut leader = shell("cut -d ' ' -f 5 /proc/$$/stat");
        let child = leader.process_group(0).stdout(Stdio::piped()).spawn()?;
        let id = child.id();
        let group = child.wait_with_output().await?.stdout;
        assert_eq!(String::from_utf8_lossy(&group).trim(), id.to_string());
        Ok(())
    });
}

#[test]
fn a_status_is_returned_every_time() {
    on_each(|| async {
        let mut child = shell("exit 7").spawn()?;
        assert_eq!(child.wait().await?.code(), Some(7));
        assert_eq!(child.wait().await?.code(), Some(7));
        assert_eq!(child.try_wait()?.and_then(|status| status.code()), Some(7));
        child.signal(Signal::SIGTERM)?;
        child.kill().await?;
        assert!(Command::new("true").status().await?.success());
        Ok(())
    });
}

#[test]
fn a_wait_ends_a_child_that_reads_to_the_end() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        assert!(child.try_wait()?.is_none());
        for _ in 0..3 {
            // Dropping a wait loses nothing.
            _ = touch(child.wait());
            yield_now().await;
        }
        assert!(child.wait().await?.success());
        Ok(())
    });
}

/// The input is more than a pipe holds, so most of it still waits when the child is waited for.
#[test]
fn a_wait_sends_all_queued_input() {
    let _alone = alone();
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let builder = Runtime::builder().driver(choice).linger(Duration::ZERO);
        run_on(builder, async {
            let input = vec![b'x'; 300_000];
            for drops_a_wait in [false, true] {
                let mut command = Command::new("wc");
                command.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn()?;
                child.stdin.as_mut().expect("not piped").send(input.clone()).await?;
                if drops_a_wait {
                    assert!(touch(child.wait()).is_none());
                }
                let output = child.wait_with_output().await?;
                assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");
            }
            let (mut reading, writing) = io::pipe()?;
            let mut child =
                Command::new("wc").arg("-c").stdin(Stdio::piped()).stdout(writing).spawn()?;
            child.stdin.as_mut().expect("not piped").send(input).await?;
            assert!(child.wait().await?.success());
            let mut counted = [0; 7];
            reading.read_exact(&mut counted)?;
            assert_eq!(&counted, b"300000\n");
            Ok(())
        });
    }
}

#[test]
fn a_wait_ends_although_the_child_has_not_read_its_input() {
    on_each(|| async {
        // The second process holds the pipe open and does not read it.
        let mut child =
            shell("sleep 1000 & echo $!").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.as_mut().expect("not piped").send(vec![0; 200_000]).await?;
        let mut stdout = child.stdout.take().expect("not piped");
        let line = stdout.recv().await?.expect("no number was printed");
        let number: i32 = str::from_utf8(&line).unwrap().trim().parse().unwrap();
        assert!(child.wait().await?.success());
        let other = rustix::process::Pid::from_raw(number).expect("zero is no process");
        rustix::process::kill_process(other, rustix::process::Signal::KILL)?;
        Ok(())
    });
}

#[test]
fn a_child_that_does_not_end_can_be_killed() {
    on_each(|| async {
        let mut command = shell("trap '' TERM; echo ready; read line");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("not piped");
        assert_eq!(stdout.recv().await?.as_deref(), Some(&b"ready\n"[..]));
        child.signal(Signal::SIGTERM)?;
        assert!(timeout(Duration::from_millis(2), child.wait()).await.is_err());
        child.kill().await?;
        assert_eq!(child.wait().await?.signal(), Some(9));
        drop(stdin);
        Ok(())
    });
}

#[test]
fn a_child_is_killed_on_drop_if_requested() {
    on_each(|| async {
        let child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
        let id = child.id();
        assert!(exists(id));
        drop(child);
        until_gone(id).await;
        // A child is also killed if the future of its output is dropped: its end of the pipe closes
        // with the child.
        let (mut reading, writing) = io::pipe()?;
        let mut command = Command::new("sleep");
        command.arg("1000").kill_on_drop(true).stdout(writing);
        let mut output = Box::pin(command.output());
        assert!(touch(output.as_mut()).is_none());
        drop(output);
        drop(command);
        assert_eq!(reading.read(&mut [0])?, 0);
        Ok(())
    });
}

#[test]
fn a_dropped_child_continues_and_leaves_no_zombie() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (id, stdin, stdout) = (child.id(), child.stdin.take(), child.stdout.take());
        drop(child);
        let (mut stdin, mut stdout) = (stdin.expect("not piped"), stdout.expect("not piped"));
        stdin.send("still here").await?;
        assert_eq!(stdout.recv().await?.as_deref(), Some(&b"still here"[..]));
        drop(stdin);
        assert!(stdout.recv().await?.is_none());
        until_gone(id).await;
        Ok(())
    });
}

#[test]
fn a_child_that_outlives_its_runtime_is_reaped_by_the_next() {
    let _alone = alone();
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let (id, input) = run_on(Runtime::builder().driver(choice), async {
            let (reading, writing) = io::pipe()?;
            let child = Command::new("cat").stdin(reading).stdout(Stdio::null()).spawn()?;
            Ok((child.id(), writing))
        });
        assert!(exists(id), "the dropped child has ended");
        drop(input);
        run_on(Runtime::builder().driver(choice), async {
            while exists(id) {
                assert!(Command::new("true").status().await?.success());
            }
            Ok(())
        });
    }
}

#[test]
fn errors_contain_a_program_that_cannot_be_started() {
    on_each(|| async {
        let error = Command::new("/nonexistent/program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("/nonexistent/program"), "{error}");
        assert_eq!(raw_os_error(&error), Some(libc::ENOENT));
        let error = Command::new("/etc/passwd").status().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        Ok(())
    });
}

#[test]
fn a_command_starts_children_of_every_kind() {
    on_each(|| async {
        // More than a pipe holds.
        let mut command = shell("[ $QUIET ] || head -c 100000 /dev/zero");
        assert_eq!(command.output().await?.stdout.len(), 100_000);
        let mut child = command.env("QUIET", "yes").spawn()?;
        assert!(child.stdout.is_none() && child.stderr.is_none(), "a stream is still piped");
        assert!(child.wait().await?.success() && command.status().await?.success());
        command.env_remove("QUIET");
        assert_eq!(command.output().await?.stdout.len(), 100_000);
        // The child's pipes are closed, so it ends although nothing reads.
        command.stdout(Stdio::piped()).stdin(Stdio::piped()).status().await?;
        assert_eq!(command.output().await?.stdout.len(), 100_000);
        Ok(())
    });
}

#[test]
fn fifty_children_end_at_once_and_leave_nothing_open() {
    // Descriptors belong to the whole process.
    if !rerun::is_alone(rerun!(fifty_children_end_at_once_and_leave_nothing_open)) {
        return;
    }
    on_each(|| async {
        assert!(Command::new("true").status().await?.success());
        let before = open_descriptors();
        let children: Vec<_> = (0..50)
            .map(|n| {
                spawn(async move {
                    shell(&format!("exit {n}")).output().await.map(|output| (n, output))
                })
            })
            .collect();
        for child in children {
            let (n, output) = child.await.expect("the task panicked")?;
            assert_eq!(output.status.code(), Some(n));
        }
        while open_descriptors() > before {
            yield_now().await;
        }
        Ok(())
    });
}

#[test]
fn a_child_exposes_a_process_descriptor() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", child.as_raw_fd()))?;
        assert!(about.contains(&format!("Pid:\t{}\n", child.id())), "{about}");
        child.wait().await.map(drop)
    });
}

#[test]
fn processes_need_a_runtime_on_a_real_kernel() {
    let _alone = alone();
    assert!(Command::new("true").spawn().is_err());
    run_on(Runtime::builder().kernel(Sim::builder(1).build()), async {
        assert_eq!(Command::new("true").spawn().unwrap_err().kind(), ErrorKind::Unsupported);
        Ok(())
    });
}

/// Polls a future that is pending, with the waker of another task each time, as collections of
/// futures do.
fn poll_as_another_task(future: impl Future, counted: &Arc<()>) {
    struct Task(#[expect(dead_code, reason = "it is only counted")] Arc<()>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let waker = Waker::from(Arc::new(Task(counted.clone())));
    assert!(pin!(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn dropped_waits_for_a_child_or_a_signal_keep_only_the_last_waker() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let mut caught = signals(&[Signal::SIGURG])?;
        let counted = Arc::new(());
        for _ in 0..100 {
            poll_as_another_task(child.wait(), &counted);
            poll_as_another_task(caught.recv(), &counted);
            yield_now().await;
            let kept = Arc::strong_count(&counted) - 1;
            assert!(kept <= 2, "{kept} wakers are kept");
        }
        drop(input);
        assert!(child.wait().await?.success());
        Ok(())
    });
}
