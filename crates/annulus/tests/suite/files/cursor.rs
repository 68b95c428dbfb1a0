//! Calls at the cursor: each acknowledged byte is where it was written, whatever happened to the
//! calls before it.

use crate::common::rerun::{self, rerun};
use crate::files::drops::begin;
use crate::files::mode::everywhere;
use annulus::fs::{AlignedBuf, File, OpenOptions};
use annulus::io::{AsyncRecv, AsyncSend, copy};
use annulus::spawn;
use annulus_skip::skip;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, ErrorKind, SeekFrom};

const BLOCK: usize = 4096;

fn block(number: u8) -> io::Result<AlignedBuf> {
    let mut block = AlignedBuf::new(BLOCK, BLOCK)?;
    block.fill(number);
    Ok(block)
}

#[test]
fn direct_calls_move_the_cursor() {
    everywhere(|place| async move {
        let path = place.join("file");
        std::fs::write(&path, [0; 4 * BLOCK])?;
        let options = OpenOptions::new().read(true).write(true).direct(true);
        let Ok(mut file) = options.open(&path).await else {
            skip!("no direct I/O here");
            return Ok(());
        };
        for number in 1..=4 {
            file.write_all(block(number)?).await.0?;
        }
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, 4 * BLOCK as u64);
        file.seek(SeekFrom::Start(0)).await?;
        for number in 1..=4 {
            let (read, bytes) = file.read(AlignedBuf::new(BLOCK, BLOCK)?).await;
            assert_eq!((read?, bytes[0]), (BLOCK, number));
        }
        assert_eq!(file.read(AlignedBuf::new(BLOCK, BLOCK)?).await.0?, 0);
        Ok(())
    });
}

#[test]
fn records_of_clones_are_neither_lost_nor_torn() {
    const RECORDS: usize = 50;
    everywhere(|place| async move {
        let path = place.join("file");
        let file = File::create(&path).await?;
        let tasks: Vec<_> = (0..4u8)
            .map(|writer| {
                let mut file = file.try_clone().expect("the file cannot be cloned");
                spawn(async move {
                    for number in 0..RECORDS {
                        // Some writes are so large that they run off the loop under any policy.
                        let len = if number % 10 == 0 { 300_000 } else { 100 };
                        file.write_all(vec![b'a' + writer; len]).await.0?;
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        for _ in 0..5 {
            file.sync_data().await?;
        }
        for task in tasks {
            task.await.expect("the task panicked")?;
        }
        let written = std::fs::read(&path)?;
        let each = 300_000 * RECORDS / 10 + 100 * (RECORDS - RECORDS / 10);
        let mut counts = [0; 256];
        written.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert_eq!(counts[usize::from(b'a')..][..4], [each; 4], "records of a writer are missing");
        assert_eq!(written.len(), 4 * each);
        Ok(())
    });
}

#[test]
fn a_write_comes_after_a_dropped_one() {
    everywhere(|place| async move {
        let path = place.join("file");
        let mut file = File::create(&path).await?;
        for len in [100, 8 << 20] {
            file.set_len(0).await?;
            file.seek(SeekFrom::Start(0)).await?;
            begin(file.write(vec![b'x'; len])).await;
            let mut clone = file.try_clone()?;
            clone.write_all("tail").await.0?;
            file.sync_all().await?;
            let written = std::fs::read(&path)?;
            assert!(written.ends_with(b"tail") && [4, len + 4].contains(&written.len()));
            assert_eq!(file.seek(SeekFrom::Current(0)).await?, written.len() as u64);
        }
        Ok(())
    });
}

/// Maximum file length in the process that runs a test alone.
pub(crate) const LIMIT: u64 = 1 << 20;

/// Runs the test alone in a process that limits file lengths. Returns true in that process, and
/// false in the parent once the child has passed.
pub(crate) fn with_short_files(test: std::process::Command) -> bool {
    if !rerun::is_alone(test) {
        return false;
    }
    // Without a handler, the signal would end the process before the call could fail.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default())
        .expect("the signal is unknown");
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum })
        .expect("the limit could not be lowered");
    true
}

/// Removes the limit on file lengths.
fn allow_long_files() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum })
        .expect("the limit could not be raised");
}

fn allow_short_files() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum })
        .expect("the limit could not be lowered");
}

#[test]
fn a_flush_fails_until_the_bytes_are_written() {
    if !with_short_files(rerun!(a_flush_fails_until_the_bytes_are_written)) {
        return;
    }
    everywhere(|place| async move {
        allow_short_files();
        let path = place.join("file");
        let bytes: Vec<u8> = (0..LIMIT as usize + 5000).map(|at| (at / 256) as u8).collect();
        let mut stream = new_options().open(&path).await?.into_stream();
        stream.send(bytes.clone()).await?;
        for _ in 0..3 {
            let error = stream.flush().await.expect_err("the flush of too many bytes succeeded");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
            assert!(stream.write(b"more").await.is_err());
            assert!(stream.send(b"more".to_vec()).await.is_err());
            assert!(stream.seek(SeekFrom::Start(0)).await.is_err());
            assert!(stream.shutdown().await.is_err());
            let shown = stream.fill_at_least(1).await?;
            assert!(shown.is_empty(), "a read after the failed flush returned bytes");
        }
        allow_long_files();
        stream.flush().await?;
        assert_eq!(std::fs::read(&path)?, bytes);
        stream.write_all(b", and more").await?;
        stream.flush().await?;
        assert_eq!(std::fs::read(&path)?, [&bytes, &b", and more"[..]].concat());
        Ok(())
    });
}

#[test]
fn accepted_bytes_of_a_stream_are_written_once_there_is_space() {
    if !with_short_files(rerun!(accepted_bytes_of_a_stream_are_written_once_there_is_space)) {
        return;
    }
    everywhere(|place| async move {
        allow_short_files();
        let path = place.join("file");
        let bytes: Vec<u8> = (0..LIMIT as usize + 5000).map(|at| (at / 256) as u8).collect();
        let mut stream = new_options().open(&path).await?.into_stream();
        let (mut taken, mut failures) = (0, 0);
        while taken < bytes.len() {
            match stream.write(&bytes[taken..]).await {
                Ok(count) => taken += count,
                Err(error) if failures < 3 => {
                    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
                    failures += 1;
                }
                Err(_) => allow_long_files(),
            }
        }
        if failures == 0 {
            // The last piece was accepted, but not written.
            stream.flush().await.expect_err("the flush of too many bytes succeeded");
            allow_long_files();
        }
        stream.flush().await?;
        assert_eq!(std::fs::read(&path)?, bytes);
        Ok(())
    });
}

fn new_options() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn a_partial_write_is_an_error_and_overwrites_nothing() {
    if !with_short_files(rerun!(a_partial_write_is_an_error_and_overwrites_nothing)) {
        return;
    }
    everywhere(|place| async move {
        let path = place.join("file");
        let bytes: Vec<u8> = (0..LIMIT as usize + 5000).map(|at| (at / 256) as u8).collect();
        let mut file = new_options().open(&path).await?;
        let error = file.write_all(bytes.clone()).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, LIMIT);

        assert!(annulus::fs::write(&path, bytes.clone()).await.is_err());
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);

        let mut stream = File::create(&path).await?.into_stream();
        let sent = async {
            stream.send(bytes.clone()).await?;
            stream.flush().await
        };
        assert!(sent.await.is_err());
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);
        Ok(())
    });
}

#[test]
fn a_failed_copy_is_reported_later_and_leaves_the_cursors_where_it_ended() {
    let test = rerun!(a_failed_copy_is_reported_later_and_leaves_the_cursors_where_it_ended);
    if !with_short_files(test) {
        return;
    }
    everywhere(|place| async move {
        let mut to = new_options().open(place.join("to")).await?;
        let long = vec![b'x'; LIMIT as usize + 5000];
        let mut source = &long[..];
        begin(copy(&mut source, &mut to)).await;
        let result = match to.sync_all().await {
            Ok(()) if !source.is_empty() => copy(&mut source, &mut to).await.map(drop),
            result => result,
        };
        assert_eq!(
            result.expect_err("the copy of too many bytes succeeded").kind(),
            ErrorKind::FileTooLarge
        );
        let written = std::fs::read(place.join("to"))?;
        assert!(written.iter().all(|byte| *byte == b'x'), "the copied file has a gap");
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, written.len() as u64);

        let mut from = new_options().open(place.join("from")).await?;
        from.write_all(vec![b'y'; LIMIT as usize]).await.0?;
        from.seek(SeekFrom::Start(0)).await?;
        to.set_len(0).await?;
        to.seek(SeekFrom::Start(5000)).await?;
        assert!(copy(&mut from, &mut to).await.is_err());
        assert_eq!(from.seek(SeekFrom::Current(0)).await?, LIMIT - 5000);
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, LIMIT);
        Ok(())
    });
}

#[test]
fn pieces_are_read_and_written_at_the_cursor() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let mut file = options.open(place.join("file")).await?;
        let large = vec![b'l'; 300_000];
        let pieces = vec![b"one ".to_vec(), Vec::new(), large.clone(), b" two".to_vec()];
        let total = 300_008;
        let (written, pieces) = file.write_vectored(pieces).await;
        assert_eq!((written?, pieces[3].as_slice()), (total, &b" two"[..]));
        // Starts and drops another call. The next call at the cursor takes effect after it.
        begin(file.write_vectored(vec![large.clone()])).await;
        assert_eq!(file.write_vectored(vec!["end"]).await.0?, 3);
        let len = file.metadata().await?.len();
        assert!(len == total as u64 + 3 || len == 2 * total as u64 - 5, "{len}");
        file.seek(SeekFrom::Start(0)).await?;
        let mut got = Vec::new();
        loop {
            let pieces = vec![Vec::with_capacity(3), Vec::with_capacity(5), vec![0; 70_000]];
            let (read, pieces) = file.read_vectored(pieces).await;
            match read? {
                0 => break,
                count => got.extend_from_slice(&pieces.concat()[..count]),
            }
        }
        let first = [b"one ", &large[..], b" two"].concat();
        assert!(got.len() as u64 == len && got.starts_with(&first) && got.ends_with(b"end"));
        let error = file.read_vectored(vec![vec![0]; 1025]).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn a_close_waits_for_dropped_calls_and_returns_their_error() {
    everywhere(|place| async move {
        let path = place.join("file");
        let mut file = File::create(&path).await?;
        begin(file.write(vec![b'x'; 300_000])).await;
        let clone = file.try_clone()?;
        file.close().await?;
        assert_eq!(std::fs::metadata(&path)?.len() % 300_000, 0);
        clone.close().await?;
        // Other tests of this process open and close descriptors, but not those of this file.
        let links = std::fs::read_dir("/proc/self/fd")?.flatten();
        let of_file =
            links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path));
        assert_eq!(of_file.count(), 0);
        Ok(())
    });
}
