//! Errors about invalid input name the path, the limit or the rule.

use crate::files::mode::everywhere;
use annulus::fs::{self, AlignedBuf, Alignment, File, IoBuf, OpenOptions};
use annulus::io::raw_os_error;
use std::io::ErrorKind;

#[test]
fn errors_name_the_path() {
    everywhere(|place| async move {
        let missing = place.join("missing");
        let error = File::open(&missing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(raw_os_error(&error), Some(libc::ENOENT));
        assert!(error.to_string().contains("missing`"), "{error}");
        let new = place.join("new");
        let both = |doing, joint| {
            let (missing, new) = (missing.display(), new.display());
            format!("{doing} `{missing}` {joint} `{new}`: ")
        };
        let text = fs::rename(&missing, &new).await.unwrap_err().to_string();
        assert!(text.starts_with(&both("renaming", "to")), "{text}");
        let text = fs::hard_link(&missing, &new).await.unwrap_err().to_string();
        assert!(text.starts_with(&both("creating a hard link to", "at")), "{text}");
        fs::symlink(&missing, &new).await?;
        let text = fs::symlink(&missing, &new).await.unwrap_err().to_string();
        assert!(text.starts_with(&both("creating a symbolic link to", "at")), "{text}");
        let error = fs::read(place.path()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        assert!(error.to_string().contains(&*place.path().to_string_lossy()), "{error}");
        assert_eq!(raw_os_error(&error), Some(libc::EISDIR));
        let error = fs::copy(place.path(), &missing).await.unwrap_err();
        let from = place.path().display();
        let to = missing.display();
        let text = format!("copying `{from}` to `{to}`: only regular files can be copied");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidInput, text));
        let file = place.join("file");
        fs::write(&file, vec![0xff; 1000]).await?;
        let error = fs::read_to_string(&file).await.unwrap_err();
        let text = format!("reading `{}`: invalid utf-8", file.display());
        assert!(error.to_string().starts_with(&text), "{error}");
        assert!(format!("{error:?}").len() < 500, "the error contains the whole file: {error:?}");
        Ok(())
    });
}

#[test]
fn contradictory_options_are_refused() {
    everywhere(|place| async move {
        let path = place.join("file");
        let none = OpenOptions::new();
        let wrong = [
            none.clone(),
            none.clone().read(true).create(true),
            none.clone().read(true).truncate(true),
            none.append(true).truncate(true),
        ];
        for options in wrong {
            let error = options.open(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{options:?}");
        }
        assert!(fs::metadata(&path).await.is_err(), "the file was created");
        Ok(())
    });
}

#[test]
fn a_full_device_reports_how_much_was_written() {
    everywhere(|_place| async move {
        let full = OpenOptions::new().write(true).open("/dev/full").await?;
        let (written, bytes) = full.write_all_at(vec![1; 10_000], 0).await;
        let error = written.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(raw_os_error(&error), Some(libc::ENOSPC));
        let text = "writing 10000 bytes at offset 0 of `/dev/full`: ";
        assert!(error.to_string().starts_with(text), "{error}");
        assert!(error.to_string().ends_with("; free some space, and write again"), "{error}");
        assert_eq!(bytes.len(), 10_000, "the memory was not returned");
        Ok(())
    });
}

#[test]
fn an_impossible_aligned_buffer_reports_both_limits() {
    for len in [0, usize::MAX] {
        let text = AlignedBuf::new(len, 512).unwrap_err().to_string();
        let limits = format!("from 1 to {}, and the alignment a power of two", isize::MAX);
        assert!(text.contains(&len.to_string()) && text.ends_with(&limits), "{text}");
    }
}

/// Files of procfs have no direct I/O.
#[test]
fn a_file_system_without_direct_io_is_named_as_the_cause() {
    everywhere(|_place| async move {
        let options = OpenOptions::new().read(true).direct(true);
        let error = options.open("/proc/self/status").await.unwrap_err();
        assert_eq!(
            (error.kind(), raw_os_error(&error)),
            (ErrorKind::InvalidInput, Some(libc::EINVAL))
        );
        let text = error.to_string();
        assert!(
            text.contains("`/proc/self/status`") && text.contains("without `direct`"),
            "{text}"
        );
        Ok(())
    });
}

#[test]
fn a_file_truncated_during_a_read_ends_there() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, vec![1; 100_000]).await?;
        let file = File::open(&path).await?;
        assert_eq!(file.read_at(vec![0; 50_000], 0).await.0?, 50_000);
        std::fs::OpenOptions::new().write(true).open(&path)?.set_len(60_000)?;
        assert_eq!(file.read_at(vec![0; 50_000], 50_000).await.0?, 10_000);
        assert_eq!(file.read_at(vec![0; 50_000], 60_000).await.0?, 0);
        Ok(())
    });
}

#[test]
fn unaligned_direct_io_reports_the_required_alignment() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
        let file = options.open(place.join("file")).await?;
        let Alignment { memory, offset } = file.alignment().await?;
        let step = offset as usize;
        let buf = |len| AlignedBuf::new(len, memory.max(2)).unwrap();
        let (written, whole) = file.write_at(buf(2 * step), 0).await;
        assert_eq!(written?, 2 * step);
        let odd = [
            file.write_at(buf(step + 1), 0).await.0,
            file.read_at(buf(step), 1).await.0,
            file.write_at(whole.slice(1..=step), 0).await.0,
        ];
        // An in-memory file system accepts anything.
        for (refused, what) in odd.into_iter().zip(["lengths", "offsets", "addresses"]) {
            let Err(error) = refused else { continue };
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(what), "{error}");
            assert!(error.to_string().contains("/file`: "), "{error}");
        }
        Ok(())
    });
}

#[test]
fn misuse_is_an_error() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, b"abc").await?;
        let file = File::open(&path).await?;
        let error = file.write_at(b"x", 5).await.0.expect_err("the file is read-only");
        let text = format!("writing 1 bytes at offset 5 of `{}`: ", path.display());
        assert!(error.to_string().starts_with(&text), "{error}");
        assert!(error.to_string().contains("open the file for writing"), "{error}");
        assert!(file.set_len(0).await.is_err());
        assert_eq!(fs::read_link(&path).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        fs::write(&path, vec![0xff; 4]).await?;
        assert_eq!(fs::read_to_string(&path).await.unwrap_err().kind(), ErrorKind::InvalidData);
        let long = place.join("x".repeat(300));
        assert_eq!(File::open(&long).await.unwrap_err().kind(), ErrorKind::InvalidFilename);
        Ok(())
    });
}

#[test]
fn calls_outside_a_runtime_are_errors() {
    let mut runtime = annulus::Runtime::new().unwrap();
    let file = runtime.block_on(File::open("/proc/self/exe")).unwrap();
    let mut opening = std::pin::pin!(File::open("/proc/self/exe"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(refused) = opening.as_mut().poll(&mut cx) else {
        panic!("a pending future would never be woken")
    };
    assert!(refused.unwrap_err().to_string().contains("no runtime"));
    drop(runtime);
    drop(file);
}

#[test]
fn an_offset_beyond_every_file_is_not_the_cursor() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, b"here").await?;
        let mut file = OpenOptions::new().read(true).write(true).open(&path).await?;
        for offset in [u64::MAX, 1 << 63] {
            let errors = [
                file.read_at(vec![0; 4], offset).await.0.unwrap_err(),
                file.write_at(b"gone", offset).await.0.unwrap_err(),
                file.write_all_at(b"gone", offset).await.0.unwrap_err(),
                file.read_exact_at(vec![0; 4], offset).await.0.unwrap_err(),
                file.read_vectored_at(vec![vec![0; 4]], offset).await.0.unwrap_err(),
                file.write_vectored_at(vec![b"gone"], offset).await.0.unwrap_err(),
            ];
            assert!(
                errors.iter().all(|error| error.kind() == ErrorKind::InvalidInput),
                "{errors:?}"
            );
        }
        assert_eq!(
            file.read(vec![0; 9]).await.0?,
            4,
            "a failed call moved the cursor or wrote to the file"
        );
        Ok(())
    });
}

#[test]
fn flags_with_options_of_their_own_are_ignored() {
    everywhere(|place| async move {
        let path = place.join("file");
        let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
        let options = OpenOptions::new().write(true).custom_flags(flags);
        assert_eq!(options.open(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&path, b"0123").await?;
        options.open(&path).await?.write_at(b"x", 1).await.0?;
        assert_eq!(fs::read(&path).await?, b"0x23");
        Ok(())
    });
}
