//! Child processes while SIGCHLD is ignored or process descriptors are refused, and programs that
//! fail to start. Each test of process-wide state runs in a separate process.
#![allow(unsafe_code)]

mod common;

use annulus::io::raw_os_error;
use annulus::process::{Command, Stdio};
use annulus::task::yield_now;
use annulus::{DriverChoice, Runtime, spawn};
use common::denied::deny;
use common::fuse::Mounted;
use common::rerun::{assert_passes, is_alone, rerun};
use common::{run, run_on};
use rustix::fs::{Mode, chmod};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use std::fs;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

/// Runs a body on each driver; a deadline turns a hang into a failure.
fn on_each<F: Future<Output = io::Result<()>>>(body: impl Fn() -> F) {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        run_on(Runtime::builder().driver(choice), async {
            annulus::time::timeout(Duration::from_secs(60), body()).await.expect("the test hangs")
        });
    }
}

fn exists(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Sets the action for SIGCHLD, which a parent may have changed.
fn set_sigchld(handler: libc::sighandler_t, flags: i32) {
    // SAFETY: the action is a plain value, and its handler is one of the system's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Checks everything that a program does with children.
async fn every_use() -> io::Result<()> {
    let children: Vec<_> = (0..20)
        .map(|n| spawn(async move { shell(&format!("echo {n}; exit {n}")).output().await }))
        .collect();
    for (n, child) in children.into_iter().enumerate() {
        let output = child.await.expect("the task panicked")?;
        assert_eq!(output.status.code(), Some(n as i32));
        assert_eq!(output.stdout, format!("{n}\n").into_bytes());
    }
    assert_eq!(shell("exit 7").status().await?.code(), Some(7));
    let mut child = Command::new("sleep").arg("1000").spawn()?;
    assert!(child.try_wait()?.is_none());
    child.kill().await?;
    assert_eq!(child.wait().await?.signal(), Some(libc::SIGKILL));
    let child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
    let id = child.id();
    drop(child);
    while exists(id) {
        yield_now().await;
    }
    Ok(())
}

#[test]
fn an_ignored_sigchld_loses_neither_output_nor_status() {
    assert_passes(&mut rerun!(child_with_sigchld_ignored));
}

#[test]
#[ignore = "a child of the test above"]
fn child_with_sigchld_ignored() {
    for (handler, flags) in [(libc::SIG_IGN, 0), (libc::SIG_DFL, libc::SA_NOCLDWAIT)] {
        on_each(|| {
            set_sigchld(handler, flags);
            every_use()
        });
    }
}

#[test]
fn a_status_lost_to_an_ignored_sigchld_is_an_error_that_mentions_it() {
    assert_passes(&mut rerun!(child_that_ignores_sigchld_later));
}

#[test]
#[ignore = "a child of the test above"]
fn child_that_ignores_sigchld_later() {
    on_each(|| async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        set_sigchld(libc::SIG_IGN, 0);
        let mut stdin = child.stdin.take().expect("not piped");
        stdin.send("the output is kept").await?;
        drop(stdin);
        let error = child.wait().await.unwrap_err();
        assert!(error.to_string().contains("SIGCHLD"), "{error}");
        assert_eq!(raw_os_error(&error), Some(libc::ECHILD));
        assert!(child.try_wait().unwrap_err().to_string().contains("SIGCHLD"));
        child.start_kill()?;
        let mut stdout = child.stdout.take().expect("not piped");
        assert_eq!(stdout.recv().await?.as_deref(), Some(&b"the output is kept"[..]));
        assert!(stdout.recv().await?.is_none());
        Ok(())
    });
}

#[test]
fn children_run_where_process_descriptors_are_refused() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EMFILE, libc::ENOMEM, libc::ESRCH] {
        assert_passes(rerun!(child_without_descriptors).env("ERRNO", errno.to_string()));
    }
}

#[test]
#[ignore = "a child of the test above"]
fn child_without_descriptors() {
    let errno =
        std::env::var("ERRNO").expect("not run by its parent").parse().expect("not a number");
    deny(libc::SYS_pidfd_open, errno);
    on_each(every_use);
}

#[test]
fn children_are_killed_where_signals_to_descriptors_are_refused() {
    assert_passes(&mut rerun!(child_without_descriptor_signals));
}

#[test]
#[ignore = "a child of the test above"]
fn child_without_descriptor_signals() {
    deny(libc::SYS_pidfd_send_signal, libc::EPERM);
    on_each(every_use);
}

/// The number of a child that other code has waited for may now belong to another process.
#[test]
fn a_reaped_child_gets_no_signal_by_number() {
    assert_passes(&mut rerun!(child_whose_child_is_reaped));
}

#[test]
#[ignore = "a child of the test above"]
fn child_whose_child_is_reaped() {
    deny(libc::SYS_pidfd_open, libc::EPERM);
    let mut is_denied = false;
    run(async {
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn()?;
        let pid = Pid::from_raw(child.id() as i32);
        waitpid(pid, WaitOptions::empty())?;
        if !is_denied {
            deny(libc::SYS_kill, libc::EXDEV);
            is_denied = true;
        }
        child.start_kill()?;
        let error = child.wait().await.unwrap_err();
        assert!(error.to_string().contains("other code in this process has waited"), "{error}");
        child.start_kill()
    });
    assert!(is_denied);
}

/// A started child is not abandoned for lack of a descriptor.
#[test]
fn a_child_without_descriptors_is_either_awaited_or_not_started() {
    assert_passes(&mut rerun!(child_out_of_descriptors));
}

#[test]
#[ignore = "a child of the test above"]
fn child_out_of_descriptors() {
    let file = temporary("ran");
    on_each(|| async {
        let mut seen = [0; 2];
        for spare in 0..16 {
            _ = fs::remove_file(&file);
            let before = getrlimit(Resource::Nofile);
            let open =
                fs::read_dir("/proc/self/fd")?.map(|entry| entry.map(|entry| entry.file_name()));
            let open = open.collect::<io::Result<Vec<_>>>()?;
            let last = open.iter().filter_map(|name| name.to_str()?.parse::<u64>().ok()).max();
            let limit = last.expect("no descriptor is open") + 2 + spare;
            setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before })?;
            let mut held = Vec::new();
            while let Ok(file) = fs::File::open("/dev/null") {
                held.push(file);
            }
            held.truncate(held.len().saturating_sub(spare as usize));
            let script = format!("echo started >> {0}; echo ended >> {0}", file.display());
            let status = Command::new("/bin/sh").arg("-c").arg(script).status().await;
            setrlimit(Resource::Nofile, before)?;
            let wrote = fs::read_to_string(&file).unwrap_or_default();
            match status {
                Ok(status) => assert!(status.success() && wrote == "started\nended\n", "{spare}"),
                Err(ref error) => {
                    assert!(wrote.is_empty(), "{spare}: {error}");
                    assert!(error.to_string().contains("ulimit -n"), "{error}");
                }
            }
            seen[usize::from(status.is_ok())] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
        Ok(())
    });
    _ = fs::remove_file(&file);
}

/// The working directory is on a file system that may hang, so the start needs a thread.
#[test]
fn a_command_can_be_started_again_after_a_lack_of_threads() {
    assert_passes(&mut rerun!(child_without_threads));
}

#[test]
#[ignore = "a child of the test above"]
fn child_without_threads() {
    let place = temporary("mount");
    let Some(mounted) = Mounted::at(place.clone()) else { return };
    // Only once, because a second runtime would get the stack of the first one's thread.
    run(async {
        let mut command = shell("exit 7");
        command.current_dir(mounted.path());
        let before = getrlimit(Resource::As);
        let pages = fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = pages.split(' ').next().expect("empty").parse().expect("not a number");
        // Room for the small stacks of threads for files, but not for that of a blocking call.
        let limit = pages * rustix::param::page_size() as u64 + (1 << 20);
        setrlimit(Resource::As, Rlimit { current: Some(limit), ..before })?;
        let refused = command.status().await;
        setrlimit(Resource::As, before)?;
        let text = refused.expect_err("the child was started").to_string();
        assert_names(&text, &["starting sh", "cannot start a thread"]);
        assert_eq!(command.status().await?.code(), Some(7));
        Ok(())
    });
    drop(mounted);
    _ = fs::remove_dir(place);
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("annulus-{}-{name}", std::process::id()))
}

/// Starts a command and returns the text of its error, which must have this kind.
async fn refused(mut command: Command, kind: ErrorKind) -> String {
    let error = command.output().await.expect_err("the command was started");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.starts_with("starting "), "{text}");
    text
}

fn in_directory(program: &str, directory: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    command
}

fn assert_names(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "no {parts:?} in: {text}");
}

#[test]
fn errors_contain_a_working_directory_that_cannot_be_entered() {
    on_each(|| async {
        for program in ["ls", "/bin/ls"] {
            let text = refused(in_directory(program, "/nonexistent"), ErrorKind::NotFound).await;
            assert_names(&text, &["working directory '/nonexistent'", "No such file"]);
            let file = in_directory(program, "/etc/hostname");
            let text = refused(file, ErrorKind::NotADirectory).await;
            assert_names(&text, &["working directory '/etc/hostname'", "not a directory"]);
        }
        let text = refused(in_directory("no-such-program", "/"), ErrorKind::NotFound).await;
        assert!(!text.contains("working directory"), "{text}");
        Ok(())
    });
}

#[test]
fn errors_explain_why_a_program_cannot_be_executed() {
    // A file cannot be executed while a child of another test has inherited it open for writing.
    if !is_alone(rerun!(errors_explain_why_a_program_cannot_be_executed)) {
        return;
    }
    let file = temporary("program");
    let write = |text: &str, mode| {
        fs::write(&file, text).expect("the file cannot be written");
        chmod(&file, Mode::from_raw_mode(mode)).expect("the mode cannot be changed");
    };
    let path = file.to_str().expect("not UTF-8").to_owned();
    on_each(|| async {
        let text = refused(Command::new("no-such-program"), ErrorKind::NotFound).await;
        assert_names(&text, &["starting no-such-program", "PATH", "bin"]);
        let mut elsewhere = Command::new("ls");
        let text = refused(
            std::mem::replace(elsewhere.env("PATH", "/nonexistent"), Command::new("")),
            ErrorKind::NotFound,
        );
        assert_names(&text.await, &["PATH", "/nonexistent"]);
        let text = refused(Command::new("/nonexistent/x"), ErrorKind::NotFound).await;
        assert_eq!(text, "starting /nonexistent/x: No such file or directory (os error 2)");
        assert_names(
            &refused(in_directory("./x", "/etc"), ErrorKind::NotFound).await,
            &["'/etc/./x'"],
        );
        assert_names(
            &refused(Command::new("/etc"), ErrorKind::PermissionDenied).await,
            &["'/etc' is a directory"],
        );
        write("#!/bin/sh\n", 0o644);
        assert_names(
            &refused(Command::new(&path), ErrorKind::PermissionDenied).await,
            &[&path, "chmod +x"],
        );
        write("#!/no/such/interpreter -x\n", 0o755);
        assert_names(
            &refused(Command::new(&path), ErrorKind::NotFound).await,
            &[&path, "'/no/such/interpreter'"],
        );
        write("#!/etc/passwd\n", 0o755);
        assert_names(
            &refused(Command::new(&path), ErrorKind::PermissionDenied).await,
            &[&path, "'/etc/passwd'"],
        );
        write("\u{7f}ELF", 0o755);
        let error = Command::new(&path).output().await.expect_err("the program started");
        assert_eq!(raw_os_error(&error), Some(libc::ENOEXEC), "{error}");
        assert_names(&error.to_string(), &["'#!'"]);
        Ok(())
    });
    fs::remove_file(&file).expect("the file does not exist");
}

#[test]
fn errors_contain_invalid_arguments_and_groups() {
    on_each(|| async {
        let big = "x".repeat(200_000);
        let mut command = Command::new("true");
        command.arg("small").arg(&big);
        let text = command.status().await.unwrap_err().to_string();
        assert_names(&text, &["argument 2", "200001", "131072"]);
        let mut command = Command::new("true");
        command.env("BIG", &big);
        let text = command.status().await.unwrap_err().to_string();
        assert_names(&text, &["variable 'BIG'", "200005", "131072"]);
        let mut command = Command::new("true");
        command.args((0..100).map(|_| &big[..100_000]));
        let text = command.status().await.unwrap_err().to_string();
        assert_names(&text, &["arguments and environment take 100", "ulimit -s"]);
        let mut command = Command::new("true");
        command.arg("a").arg("b\0c");
        let text = command.status().await.unwrap_err().to_string();
        assert_names(&text, &["argument 2 contains a NUL byte"]);
        let mut command = Command::new("true");
        command.process_group(1);
        let text = command.status().await.unwrap_err().to_string();
        assert_names(&text, &["process group 1"]);
        Ok(())
    });
}
