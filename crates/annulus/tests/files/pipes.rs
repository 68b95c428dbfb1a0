//! Named pipes: what waits for somebody at the other end holds up nobody else.

use crate::mode::{Mode, everywhere};
use crate::place::Place;
use annulus::fs::{self, File, OpenOptions, Policy};
use annulus::spawn;
use annulus::time::timeout;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

/// Six of them: a driver has fewer threads for its files.
async fn waits_hold_up_no_file(place: &Place) -> io::Result<()> {
    let moment = Duration::from_millis(5);
    let mut pipes = Vec::new();
    for n in 0..6 {
        let path = place.join(format!("pipe{n}"));
        make_pipe(&path);
        let reader = File::open(&path).await?;
        pipes.push((reader, OpenOptions::new().write(true).open(&path).await?));
    }
    for (reader, _) in &mut pipes {
        assert!(timeout(moment, reader.read(vec![0; 10])).await.is_err(), "nobody has written");
    }
    for (_, writer) in &mut pipes {
        assert!(timeout(moment, writer.write_all(vec![1; LEN])).await.is_err(), "nobody reads");
    }
    fs::write(place.join("file"), b"written").await?;
    File::open(place.join("file")).await?.sync_all().await?;
    for (reader, _) in &mut pipes {
        assert!(reader.read(vec![0; 10]).await.0? > 0, "what was written is there");
    }
    Ok(())
}

#[test]
fn whoever_waits_for_a_pipe_holds_up_no_file() {
    for mode in Mode::all().into_iter().filter(|mode| mode.policy != Policy::Inline) {
        mode.run(|place| async move { waits_hold_up_no_file(&place).await });
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
