//! Leases on files (`fcntl(F_SETLEASE)`): a conflicting open waits until the lease has been given
//! back.
#![allow(unsafe_code)]

use crate::files::mode::Mode;
use crate::files::place::Place;
use annulus::fs::OpenOptions;
use annulus::task::yield_now;
use annulus_skip::skip;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The `fcntl` command that sets the signal for a conflict. The default, SIGIO, ends the process.
const F_SETSIG: i32 = 10;

/// A read lease on a file. A conflict raises a signal that is ignored by default.
struct Leased(File);

impl Leased {
    /// Returns `None` if the file system does not support leases.
    fn new(path: &Path) -> Option<Self> {
        let file = File::open(path).unwrap();
        let command = |command: i32, argument: i32| {
            // SAFETY: the descriptor is open, and the command takes no pointer.
            unsafe { libc::fcntl(file.as_raw_fd(), command, argument) }
        };
        assert_eq!(command(F_SETSIG, libc::SIGURG), 0);
        (command(libc::F_SETLEASE, libc::F_RDLCK) == 0).then_some(Self(file))
    }

    /// Returns true if an open waits for the lease.
    fn is_asked_back(&self) -> bool {
        // SAFETY: the descriptor is open, and the command takes no pointer.
        let held = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) };
        held == libc::F_UNLCK
    }
}

async fn open_against_a_lease(place: &Place) -> io::Result<()> {
    let path = place.join("file");
    std::fs::write(&path, b"leased")?;
    let Some(leased) = Leased::new(&path) else {
        skip!("no leases on this file system");
        return Ok(());
    };
    let opened = annulus::spawn(async move { OpenOptions::new().write(true).open(path).await });
    while !leased.is_asked_back() {
        yield_now().await;
    }
    drop(leased);
    opened.await.unwrap()?.write_all(b"given back").await.0?;
    Ok(())
}

#[test]
fn an_open_waits_for_a_lease_off_the_loop() {
    // An open on the loop would wait for the lease, which only this thread gives back.
    for mode in Mode::all() {
        mode.run(|place| async move { open_against_a_lease(&place).await });
    }
}
