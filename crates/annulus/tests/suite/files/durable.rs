//! Writes that are durable once they have ended.

use crate::common::pattern;
use crate::files::mode::everywhere;
use annulus::fs::{self, AlignedBuf, OpenOptions};
use std::io::ErrorKind;

#[test]
fn durable_writes_are_whole_and_at_their_offset() {
    everywhere(|place| async move {
        let path = place.join("file");
        let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
        let (written, bytes) = file.write_durable_at(pattern(300_000), 5).await;
        written?;
        assert!(bytes == pattern(300_000));
        file.write_durable_at("abcde", 0).await.0?;
        file.write_durable_at("", 7).await.0?;
        let all = fs::read(&path).await?;
        assert!(all[..5] == *b"abcde" && all[5..] == pattern(300_000));
        Ok(())
    });
}

#[test]
fn refused_durable_writes_return_their_memory_and_the_reason() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, "abc").await?;
        let file = OpenOptions::new().read(true).write(true).open(&path).await?;
        let (refused, bytes) = file.write_durable_at("x", u64::MAX).await;
        assert_eq!((refused.unwrap_err().kind(), bytes), (ErrorKind::InvalidInput, "x"));
        let read_only = fs::File::open(&path).await?;
        let (refused, bytes) = read_only.write_durable_at("y", 0).await;
        assert!(refused.is_err() && bytes == "y");
        assert_eq!(fs::read(&path).await?, b"abc");
        Ok(())
    });
}

#[test]
fn a_misaligned_durable_direct_write_says_what_is_needed() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, vec![0; 8192]).await?;
        let Ok(file) = OpenOptions::new().write(true).direct(true).open(&path).await else {
            // This file system has no direct I/O.
            return Ok(());
        };
        let mut block = AlignedBuf::new(4096, 4096)?;
        block.fill(7);
        let (written, block) = file.write_durable_at(block, 4096).await;
        written?;
        let (refused, _block) = file.write_durable_at(block, 4097).await;
        // Some file systems, such as tmpfs, have no requirements.
        if let Err(error) = refused {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("offsets in multiples"), "{error}");
        }
        assert!(fs::read(&path).await?[4097..8192] == [7; 4095]);
        Ok(())
    });
}
