//! Files and sockets keep working when a seccomp filter denies newer system calls that older ones
//! can replace.
#![allow(unsafe_code)]

use crate::common::denied::deny;
use crate::common::rerun::{assert_passes, rerun};
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, File, OpenOptions};
use annulus::net::{TcpListener, TcpStream, UdpSocket};
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, UNIX_EPOCH};

/// The newer system calls, by name and number.
const CALLS: [(&str, libc::c_long); 14] = [
    ("accept4", libc::SYS_accept4),
    ("close_range", libc::SYS_close_range),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("faccessat2", libc::SYS_faccessat2),
    ("futex_waitv", libc::SYS_futex_waitv),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("openat2", libc::SYS_openat2),
    ("preadv2", libc::SYS_preadv2),
    ("pwritev2", libc::SYS_pwritev2),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("renameat2", libc::SYS_renameat2),
    ("statx", libc::SYS_statx),
];
/// The environment variable with the call and the error, for the process with the filter.
const DENIED: &str = "ANNULUS_TEST_DENIED";

#[test]
fn a_newer_call_that_is_denied_is_replaced_by_an_older_one() {
    for (name, number) in CALLS {
        if name == "epoll_pwait" && cfg!(not(target_arch = "x86_64")) {
            skip!("this architecture has no epoll_wait");
            continue;
        }
        for errno in [Errno::PERM, Errno::NOSYS] {
            println!("{name}: {errno}");
            let denied = format!("{number} {}", errno.raw_os_error());
            let mut child = rerun!(child_that_uses_older_calls);
            if name == "io_uring_setup" {
                // io_uring is blocked on purpose here, so the test is not skipped.
                child.env_remove(annulus_skip::FILE_VARIABLE);
            }
            assert_passes(child.env(DENIED, denied));
        }
    }
}

#[test]
#[ignore = "run by the test above, with a call to deny"]
fn child_that_uses_older_calls() {
    let denied = std::env::var(DENIED).expect("no call and no error are given");
    let (call, errno) = denied.split_once(' ').unwrap();
    let (call, errno) = (call.parse().unwrap(), errno.parse().unwrap());
    deny(call, errno);
    // SAFETY: the arguments are invalid for each of these calls, whether or not the filter lets it
    // through.
    let answer = unsafe { libc::syscall(call, -1, -1, -1, -1, -1, -1) };
    let is_denied = Errno::from_io_error(&io::Error::last_os_error());
    assert_eq!(
        (answer, is_denied),
        (-1, Some(Errno::from_raw_os_error(errno))),
        "the call was not denied"
    );
    // Makes each call twice: the second time, the crate already knows that the call is denied.
    everywhere(|place| async move {
        use_files(&place, "first").await?;
        use_files(&place, "second").await?;
        use_pipe().await
    });
    let drivers = [DriverChoice::Uring, DriverChoice::Epoll];
    for driver in
        drivers.into_iter().filter(|driver| Mode::all().iter().any(|m| m.driver == *driver))
    {
        let mut runtime = Runtime::builder().driver(driver).build().unwrap();
        runtime.block_on(use_sockets()).unwrap_or_else(|error| panic!("{driver:?}: {error}"));
    }
}

async fn use_files(place: &Place, name: &str) -> io::Result<()> {
    let path = place.join(name);
    fs::write(&path, b"one two").await?;
    let known = fs::metadata(&path).await?;
    // The standard library detected `statx` before the filter was installed, and does not work
    // without it.
    let expected = rustix::fs::stat(&path)?;
    assert!(known.is_file() && known.len() == 7 && known.ino() == expected.st_ino);
    let modified = Duration::new(expected.st_mtime as u64, expected.st_mtime_nsec as u32);
    assert_eq!(known.modified(), UNIX_EPOCH + modified);
    assert_eq!((known.nlink(), known.mode()), (1, expected.st_mode));
    let file = OpenOptions::new().read(true).write(true).open(&path).await?;
    assert_eq!(file.metadata().await?.dev(), known.dev());
    let (read, bytes) = file.read_at(Vec::with_capacity(3), 4).await;
    assert_eq!((read?, &bytes[..]), (3, &b"two"[..]));
    let (read, parts) = file.read_vectored_at(vec![vec![0; 3], vec![0; 4]], 0).await;
    assert_eq!((read?, parts), (7, vec![b"one".to_vec(), b" two".to_vec()]));
    assert_eq!(file.write_vectored_at(vec![b"1", b"2"], 0).await.0?, 2);
    let (read, bytes) = File::open(&path).await?.read(Vec::with_capacity(9)).await;
    assert_eq!((read?, &bytes[..]), (7, &b"12e two"[..]));
    assert_eq!(fs::copy(&path, place.join("copy")).await?, 7);
    fs::rename(place.join("copy"), place.join("renamed")).await?;
    assert_eq!(fs::read(place.join("renamed")).await?, b"12e two");
    let missing = File::open(place.join("missing")).await.unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(!fs::try_exists(place.join("missing")).await?);
    let link = place.join(format!("{name}-link"));
    fs::symlink(&path, &link).await?;
    assert!(
        fs::symlink_metadata(&link).await?.is_symlink() && fs::metadata(&link).await?.is_file()
    );
    Ok(())
}

async fn use_pipe() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let mut reader = File::try_from(OwnedFd::from(reader))?;
    let mut writer = File::try_from(OwnedFd::from(writer))?;
    let read = annulus::spawn(async move { reader.read(Vec::with_capacity(9)).await });
    assert_eq!(writer.write_vectored(vec![b"by and"]).await.0?, 6);
    let (read, bytes) = read.await.unwrap();
    assert_eq!((read?, &bytes[..]), (6, &b"by and"[..]));
    Ok(())
}

async fn use_sockets() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    for turn in 0..3_u8 {
        let mut client = TcpStream::connect(listener.local_addr()?).await?;
        let (mut server, _) = listener.accept().await?;
        client.send(vec![turn; 1000]).await?;
        assert_eq!(*server.recv_exact(1000).await?, [turn; 1000]);
    }
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for turn in 0..20_u8 {
        one.send_to(vec![turn; 10], other.local_addr()?).await?;
    }
    for turn in 0..20_u8 {
        assert_eq!(*other.recv().await?, [turn; 10]);
    }
    Ok(())
}
