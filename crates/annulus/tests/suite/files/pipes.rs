//! Named pipes and other files whose calls wait for another process. Such a call blocks no other
//! call under any policy.

use crate::common::rerun::{self, rerun};
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, File, OpenOptions};
use annulus::spawn;
use annulus::time::{sleep, timeout};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

/// Time limit of an open that does not have to wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of bytes: more than a pipe holds.
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
    for mode in Mode::all() {
        mode.run(|place| async move {
            let path = place.join("pipe");
            make_pipe(&path);
            through(&path).await
        });
    }
}

/// Returns the same path through `/proc`. A lookup in memory alone cannot follow its links, so
/// each open leaves the loop.
fn uncached(path: &Path) -> PathBuf {
    Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap())
}

/// Returns true if reads and writes of the file block, according to the status flags that the
/// kernel shows.
fn waits(file: &File) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap() & libc::O_NONBLOCK == 0
}

async fn opened_without_its_other_end(place: &Place) -> io::Result<()> {
    let path = uncached(&place.join("pipe"));
    make_pipe(&path);
    let write_only = OpenOptions::new().write(true);
    let refused = timeout(PATIENCE, write_only.open(&path)).await.expect("the open waited");
    let refusal = refused.unwrap_err().to_string();
    assert!(refusal.contains("(os error 6)"), "not the error for a missing reader: {refusal}");
    assert!(refusal.contains("; it is a pipe that no process reads"), "{refusal}");
    let reader = timeout(PATIENCE, File::open(&path)).await.expect("the open waited")?;
    let writer = write_only.open(&path).await?;
    assert!(waits(&reader) && waits(&writer), "an end of the pipe is non-blocking");
    let asked_not_to = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK);
    assert!(!waits(&asked_not_to.open(&path).await?));
    drop((reader, writer));
    through(&path).await
}

#[test]
fn an_open_off_the_loop_does_not_wait_for_the_other_end() {
    for mode in Mode::all() {
        mode.run(|place| async move { opened_without_its_other_end(&place).await });
    }
}

/// Opens six pipes: more than the driver has threads for files.
async fn waits_block_no_file(place: &Place) -> io::Result<()> {
    let moment = Duration::from_millis(5);
    let mut pipes = Vec::new();
    for n in 0..6 {
        let path = place.join(format!("pipe{n}"));
        make_pipe(&path);
        let reader = File::open(&path).await?;
        let writer = OpenOptions::new().write(true).open(&path).await?;
        // Both ends are open, so this open does not wait.
        pipes.push((reader, writer, std::fs::File::open(&path)?));
    }
    for (reader, _, _) in &mut pipes {
        assert!(
            timeout(moment, reader.read(vec![0; 10])).await.is_err(),
            "a read of the empty pipe returned"
        );
    }
    for (_, writer, pipe) in &mut pipes {
        let mut write = pin!(writer.write_all(vec![1; LEN]));
        // The timeout may be too short for the first bytes.
        while rustix::io::ioctl_fionread(&*pipe)? == 0 {
            assert!(
                timeout(moment, &mut write).await.is_err(),
                "a write to the full pipe returned"
            );
        }
    }
    fs::write(place.join("file"), b"written").await?;
    File::open(place.join("file")).await?.sync_all().await?;
    for (reader, _, _) in &mut pipes {
        assert!(reader.read(vec![0; 10]).await.0? > 0, "the written bytes cannot be read");
    }
    Ok(())
}

#[test]
fn calls_that_wait_for_a_pipe_block_no_file() {
    for mode in Mode::all() {
        mode.run(|place| async move { waits_block_no_file(&place).await });
    }
}

#[test]
fn whole_pipes_are_written_and_read() {
    everywhere(|_place| async move {
        let (reader, writer) = io::pipe()?;
        fs::write(format!("/dev/fd/{}", writer.as_raw_fd()), b"through").await?;
        drop(writer);
        assert_eq!(fs::read(format!("/dev/fd/{}", reader.as_raw_fd())).await?, b"through");
        Ok(())
    });
}

#[test]
fn a_named_pipe_without_a_writer_has_not_ended() {
    everywhere(|place| async move {
        let path = place.join("pipe");
        make_pipe(&path);
        let mut reader = File::open(&path).await?;
        let mut read = pin!(reader.read(vec![0; 10]));
        assert!(
            timeout(Duration::from_millis(5), &mut read).await.is_err(),
            "a read without a writer returned"
        );
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path)?;
        io::Write::write_all(&mut writer, b"first")?;
        let (read, bytes) = read.await;
        assert_eq!((read?, &bytes[..5]), (5, &b"first"[..]));
        Ok(())
    });
}

#[test]
fn calls_of_no_bytes_do_not_wait_for_a_pipe() {
    everywhere(|_place| async move {
        let (reader, writer) = io::pipe()?;
        let mut reader = File::try_from(OwnedFd::from(reader))?;
        let mut writer = File::try_from(OwnedFd::from(writer))?;
        assert_eq!(timeout(PATIENCE, reader.read(Vec::new())).await.expect("a read waited").0?, 0);
        let pieces = vec![Vec::new(), Vec::new()];
        let read = timeout(PATIENCE, reader.read_vectored(pieces)).await;
        assert_eq!(read.expect("a vectored read waited").0?, 0);
        let filling = timeout(Duration::from_millis(5), writer.write_all(vec![7; 1 << 20])).await;
        assert!(filling.is_err(), "the pipe holds a mebibyte");
        let write = timeout(PATIENCE, writer.write(Vec::new())).await;
        assert_eq!(write.expect("a write waited").0?, 0);
        Ok(())
    });
}

#[test]
fn a_write_to_dev_null_is_not_divided() {
    everywhere(|_place| async move {
        let mut null = OpenOptions::new().write(true).open("/dev/null").await?;
        assert_eq!(null.write(vec![7; 1 << 20]).await.0?, 1 << 20);
        Ok(())
    });
}

/// Standard streams are shared with other programs, which may have made them non-blocking.
#[test]
fn nonblocking_ends_of_a_pipe_wait_for_each_other() {
    everywhere(|_place| async move {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        rustix::io::ioctl_fionbio(&writer, true)?;
        let mut reader = File::try_from(OwnedFd::from(reader))?;
        let mut writer = File::try_from(OwnedFd::from(writer))?;
        let first = timeout(Duration::from_millis(5), reader.read(vec![0; 10])).await;
        assert!(first.is_err(), "a read of the empty pipe returned");
        let written = spawn(async move { writer.write_all(vec![7; LEN]).await.0 });
        let mut all = 0;
        while all < LEN {
            let (read, bytes) = reader.read(vec![0; 4096]).await;
            let read = read?;
            assert!(bytes[..read].iter().all(|byte| *byte == 7));
            all += read;
        }
        written.await.unwrap()
    });
}

/// Returns the CPU time that this process has used.
fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(used).expect("the CPU time is negative")
}

/// `poll(2)` refuses more descriptors than the process may have, even if all are open.
#[test]
fn reads_of_more_pipes_than_the_lowered_limit_allows_still_end() {
    const PIPES: usize = 40;
    // The limit belongs to the whole process.
    if !rerun::is_alone(rerun!(reads_of_more_pipes_than_the_lowered_limit_allows_still_end)) {
        return;
    }
    let usual = getrlimit(Resource::Nofile);
    everywhere(move |_| async move {
        let (mut reads, mut writers) = (Vec::new(), Vec::new());
        for _ in 0..PIPES {
            let (reader, writer) = io::pipe()?;
            let mut file = File::try_from(OwnedFd::from(reader))?;
            reads.push(spawn(async move { file.read(vec![0; 9]).await.0 }));
            writers.push(writer);
        }
        sleep(Duration::from_millis(20)).await;
        let low = Rlimit { current: Some(10), maximum: usual.maximum };
        setrlimit(Resource::Nofile, low)?;
        // The first read that ends makes the thread poll the others again.
        let first = reads.remove(0);
        writers[0].write_all(b"a")?;
        assert_eq!(first.await.expect("the task panicked")?, 1);
        let before = cpu_time();
        sleep(Duration::from_millis(300)).await;
        let used = cpu_time() - before;
        for writer in &mut writers[1..] {
            writer.write_all(b"bc")?;
        }
        let ended = timeout(PATIENCE, async {
            for read in reads {
                assert_eq!(read.await.expect("the task panicked")?, 2);
            }
            io::Result::Ok(())
        });
        let ended = ended.await;
        setrlimit(Resource::Nofile, usual)?;
        ended.expect("the reads never end")?;
        assert!(used < Duration::from_millis(100), "waiting took {used:?} of CPU time");
        Ok(())
    });
}
