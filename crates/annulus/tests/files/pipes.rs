//! Named pipes: what waits for somebody at the other end holds up nobody else.

use crate::mode::{Mode, everywhere};
use annulus::fs::{self, File, OpenOptions, Policy};
use annulus::spawn;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

/// More than a pipe holds.
const LEN: usize = 200_000;

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
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
        mode.run(|place| async move {
            let path = place.join("pipe");
            make_pipe(&path);
            through(&path).await
        });
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
