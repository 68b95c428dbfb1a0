//! Several reads or writes in one call.

use crate::common::pattern;
use crate::files::drops::begin;
use crate::files::mode::everywhere;
use annulus::fs::{self, AlignedBuf, File, OpenOptions, Policy};
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::Poll;

/// More calls than the submission queue has entries.
const MANY: usize = 600;
const LEN: usize = 100_000;

#[test]
fn each_read_has_its_own_bytes_and_result() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, pattern(LEN)).await?;
        let file = File::open(&path).await?;
        let reads = (0..MANY).map(|number| (vec![0; 1 + number % 5000], (number * 170) as u64));
        let read = file.read_many_at(reads.collect()).await;
        assert_eq!(read.len(), MANY);
        let whole = pattern(LEN);
        for (number, (count, bytes)) in read.into_iter().enumerate() {
            let (count, start) = (count?, (number * 170).min(LEN));
            let expected = (1 + number % 5000).min(LEN - start);
            assert_eq!(count, expected, "read {number}");
            assert!(bytes[..count] == whole[start..start + count], "read {number}");
        }
        Ok(())
    });
}

#[test]
fn each_write_is_made_and_counted() {
    everywhere(|place| async move {
        let path = place.join("file");
        let file = OpenOptions::new().write(true).create(true).open(&path).await?;
        let whole = pattern(LEN);
        let pieces = whole.chunks(100).map(<[u8]>::to_vec);
        let writes = pieces.zip((0..LEN as u64).step_by(100)).collect();
        for (written, piece) in file.write_many_at(writes).await {
            assert_eq!((written?, piece.len()), (100, 100));
        }
        assert!(fs::read(&path).await? == whole);
        Ok(())
    });
}

#[test]
fn an_error_affects_only_its_own_call() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, "abcdef").await?;
        let file = OpenOptions::new().read(true).write(true).open(&path).await?;
        let read = file.read_many_at(vec![(vec![0; 2], 4), (vec![0; 2], u64::MAX)]).await;
        assert_eq!((read[0].0.as_ref().ok(), &read[0].1[..]), (Some(&2), &b"ef"[..]));
        let refused = |answer: &io::Result<usize>| answer.as_ref().map_err(io::Error::kind).err();
        assert_eq!(refused(&read[1].0), Some(ErrorKind::InvalidInput));
        let written = file.write_many_at(vec![("x", u64::MAX), ("y", 1)]).await;
        assert_eq!(refused(&written[0].0), Some(ErrorKind::InvalidInput));
        assert_eq!(written[1].0.as_ref().ok(), Some(&1));
        assert!(file.read_many_at(Vec::<(Vec<u8>, u64)>::new()).await.is_empty());
        assert_eq!(fs::read(&path).await?, b"aycdef");
        Ok(())
    });
}

#[test]
fn dropped_calls_release_their_file_and_memory() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, pattern(LEN)).await?;
        let file = OpenOptions::new().read(true).write(true).open(&path).await?;
        for _ in 0..20 {
            begin(file.read_many_at((0..50).map(|at| (vec![0; 5000], at * 100)).collect())).await;
            begin(file.write_many_at((0..50).map(|at| (vec![7; 10], at * 10)).collect())).await;
        }
        drop(file);
        // Writes that had begun may have replaced the first bytes, and nothing else.
        let left = fs::read(&path).await?;
        assert!(left[500..] == pattern(LEN)[500..]);
        Ok(())
    });
}

/// Reads that miss the page cache are submitted with the turn, by one system call.
#[test]
fn direct_reads_share_one_system_call() {
    let Ok(mut runtime) =
        Runtime::builder().driver(DriverChoice::Uring).file_policy(Policy::Adaptive).build()
    else {
        return skip!("no io_uring");
    };
    let path = std::env::temp_dir().join(format!("annulus-many-direct-{}", std::process::id()));
    let read = runtime.block_on(async {
        fs::write(&path, pattern(1 << 20)).await?;
        File::open(&path).await?.sync_all().await?;
        let Ok(file) = OpenOptions::new().read(true).direct(true).open(&path).await else {
            return Ok(None);
        };
        let reads = || (0..32).map(|at| (AlignedBuf::new(4096, 4096).unwrap(), at * 4096));
        // The first reads may change how the runtime makes later reads of the file.
        drop(file.read_many_at(reads().collect()).await);
        let enters = || annulus::stats().expect("not in a runtime").counters.enters;
        let (mut future, before) = (pin!(file.read_many_at(reads().collect())), enters());
        assert!(poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await.is_pending());
        let submitted_early = enters() - before;
        for (number, (count, bytes)) in future.await.into_iter().enumerate() {
            assert_eq!(count?, 4096);
            assert!(bytes[..] == pattern(1 << 20)[number * 4096..][..4096]);
        }
        io::Result::Ok(Some(submitted_early))
    });
    std::fs::remove_file(&path).unwrap();
    match read.unwrap() {
        Some(early) => assert_eq!(early, 0, "the reads were not submitted together"),
        None => skip!("the file system has no direct I/O"),
    }
}
