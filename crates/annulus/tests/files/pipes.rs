//! Named pipes: what waits for somebody at the other end holds up nobody else.

use crate::mode::{Mode, everywhere};
use crate::place::Place;
use annulus::fs::{self, File, OpenOptions, Policy};
use annulus::spawn;
use std::fs::OpenOptions as Std;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// More than a pipe holds.
const LEN: usize = 200_000;

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Frees a loop that the pipe holds up, so that the test fails instead of hanging.
fn watch(path: &Path) -> (Sender<()>, thread::JoinHandle<bool>) {
    let (done, told) = channel();
    let path = path.to_owned();
    let watcher = thread::spawn(move || {
        let hangs = told.recv_timeout(Duration::from_secs(10)) == Err(RecvTimeoutError::Timeout);
        if hangs {
            let mut both = Std::new().read(true).write(true).open(path).unwrap();
            both.read_exact(&mut vec![0; LEN]).unwrap();
        }
        hangs
    });
    (done, watcher)
}

async fn through(path: &Path) -> io::Result<()> {
    let mut reader = File::open(path).await?;
    let mut writer = OpenOptions::new().write(true).open(path).await?;
    let written = spawn(async move { writer.write_all(vec![7; LEN]).await.0 });
    let mut all = 0;
    while all < LEN {
        all += reader.read(vec![0; 4096]).await.0?;
    }
    written.await.unwrap()?;
    Ok(())
}

#[test]
fn both_ends_on_one_loop() {
    for mode in Mode::all().into_iter().filter(|mode| mode.policy != Policy::Inline) {
        let place = Place::new();
        let path = place.join("pipe");
        make_pipe(&path);
        let (done, watcher) = watch(&path);
        let outcome = mode.runtime().unwrap().block_on(through(&path)).unwrap();
        done.send(()).unwrap();
        assert!(!watcher.join().unwrap(), "{mode:?}: the loop hung");
        outcome.unwrap();
    }
}

#[test]
fn whole_pipes_written_and_read() {
    everywhere(|_place| async move {
        let (reader, writer) = io::pipe()?;
        fs::write(format!("/dev/fd/{}", writer.as_raw_fd()), b"through").await?;
        drop(writer);
        assert_eq!(fs::read(format!("/dev/fd/{}", reader.as_raw_fd())).await?, b"through");
        Ok(())
    });
}
