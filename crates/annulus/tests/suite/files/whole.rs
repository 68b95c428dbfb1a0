//! Reading and writing files.

use crate::files::locks::assert_refused;
use crate::files::mode::everywhere;
use annulus::fs::{self, Advice, File, IoBuf, Lock, OpenOptions};
use std::io::{self, SeekFrom};

#[test]
fn written_bytes_are_read_back() {
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, b"some bytes").await?;
        assert_eq!(fs::read(&path).await?, b"some bytes");
        assert_eq!(fs::read_to_string(&path).await?, "some bytes");
        fs::write(&path, "less".to_owned()).await?;
        assert_eq!(fs::read(&path).await?, b"less");
        Ok(())
    });
}

#[test]
fn files_have_offsets_cursors_and_ends() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create_new(true);
        let mut file = options.open(place.join("file")).await?;
        let (written, _) = file.write_at(vec![7; 100], 1000).await;
        assert_eq!(written?, 100);
        let (read, bytes) = file.read_at(vec![1; 200], 950).await;
        assert_eq!(read?, 150);
        assert!(
            bytes[..50].iter().all(|byte| *byte == 0)
                && bytes[50..150].iter().all(|byte| *byte == 7)
        );
        assert_eq!(bytes[150..], [1; 50], "memory beyond the read bytes was changed");
        assert_eq!(file.read_at(vec![0; 9], 1100).await.0?, 0);
        // The cursor has not moved.
        assert_eq!(file.write(b"abc").await.0?, 3);
        assert_eq!(file.write(b"def").await.0?, 3);
        let (read, bytes) = file.read(Vec::with_capacity(4)).await;
        assert_eq!((read?, bytes), (4, vec![0; 4]));
        let (read, bytes) = file.read_at(vec![0; 6], 0).await;
        assert_eq!((read?, &bytes[..]), (6, &b"abcdef"[..]));
        Ok(())
    });
}

#[test]
fn exact_transfers_are_whole_or_report_how_much() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(place.join("file")).await?;
        let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let (written, bytes) = file.write_all_at(bytes, 5).await;
        written?;
        let (read, copy) = file.read_exact_at(vec![0; bytes.len()], 5).await;
        read?;
        assert_eq!(copy, bytes);
        let (read, _) = file.read_exact_at(vec![0; 10], 300_000).await;
        let error = read.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("5 of 10 bytes"), "{error}");
        Ok(())
    });
}

#[test]
fn vectored_calls_use_several_pieces() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(place.join("file")).await?;
        let (written, _) = file.write_vectored_at(vec![&b"one"[..], b"", b"twothree"], 2).await;
        assert_eq!(written?, 11);
        let bufs = vec![Vec::with_capacity(5), vec![9; 3], Vec::with_capacity(100)];
        let (read, bufs) = file.read_vectored_at(bufs, 0).await;
        assert_eq!(read?, 13);
        assert_eq!(bufs, [&b"\0\0one"[..], b"two", b"three"]);
        let (refused, bufs) = file.write_vectored_at(vec![&b"x"[..]; 1025], 0).await;
        assert_eq!((refused.unwrap_err().kind(), bufs.len()), (io::ErrorKind::InvalidInput, 1025));
        Ok(())
    });
}

#[test]
fn slices_move_only_their_part() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(place.join("file")).await?;
        let (written, slice) = file.write_at(b"0123456789".slice(3..6), 0).await;
        assert_eq!((written?, slice.into_inner()), (3, b"0123456789"));
        let (read, slice) = file.read_at(vec![b'.'; 9].slice(2..4), 0).await;
        assert_eq!((read?, &slice.into_inner()[..]), (2, &b"..34....."[..]));
        Ok(())
    });
}

#[test]
fn files_can_be_resized_allocated_and_synced() {
    everywhere(|place| async move {
        let file = File::create(place.join("file")).await?;
        file.set_len(5000).await?;
        assert_eq!(file.metadata().await?.len(), 5000);
        file.allocate(0, 10_000).await?;
        let known = file.metadata().await?;
        assert_eq!(known.len(), 10_000);
        assert!(known.blocks() > 0 && known.is_file());
        file.sync_data().await?;
        file.sync_all().await?;
        file.advise(0, 0, Advice::DontNeed).await?;
        let alignment = file.alignment().await?;
        assert!(alignment.memory.is_power_of_two() && alignment.offset.is_power_of_two());
        Ok(())
    });
}

#[test]
fn locks_exclude_other_handles_and_wait() {
    everywhere(|place| async move {
        let path = place.join("lock");
        let (one, two) = (File::create(&path).await?, File::create(&path).await?);
        one.lock(Lock::Exclusive).await?;
        assert_refused(two.try_lock(Lock::Shared).await);
        let waits = annulus::spawn(async move { two.lock(Lock::Exclusive).await.map(|()| two) });
        annulus::task::yield_now().await;
        one.unlock().await?;
        let two = waits.await.unwrap()?;
        assert_refused(one.try_lock(Lock::Exclusive).await);
        drop(two);
        one.try_lock(Lock::Exclusive).await
    });
}

#[test]
fn copies_are_whole_and_keep_permissions() {
    everywhere(|place| async move {
        let bytes: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
        let (from, to) = (place.join("from"), place.join("to"));
        fs::write(&from, bytes.clone()).await?;
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(&from, permissions).await?;
        fs::write(&to, vec![1; 1_000_000]).await?;
        assert_eq!(fs::copy(&from, &to).await?, 600_000);
        assert_eq!(fs::read(&to).await?, bytes);
        let fresh = place.join("fresh");
        fs::copy(&from, &fresh).await?;
        assert_eq!(fs::metadata(&fresh).await?.mode() & 0o777, 0o640);
        assert_eq!(fs::copy(&from, &from).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read(&from).await?, bytes, "the copied file has changed");
        // A file that reports no length, and that the kernel does not copy, is still copied.
        assert!(fs::copy("/proc/self/status", &fresh).await? > 100);
        Ok(())
    });
}

#[test]
fn clones_share_the_cursor_and_the_last_one_closes() {
    everywhere(|place| async move {
        let mut file = File::create(place.join("file")).await?;
        let mut clone = file.try_clone()?;
        file.write(b"ab").await.0?;
        clone.write(b"cd").await.0?;
        drop(file);
        clone.write(b"ef").await.0?;
        assert_eq!(fs::read(place.join("file")).await?, b"abcdef");
        Ok(())
    });
}

#[test]
fn files_without_a_length_are_read_whole() {
    everywhere(|_place| async move {
        let status = fs::read_to_string("/proc/self/status").await?;
        assert!(status.contains("VmRSS"));
        Ok(())
    });
}

#[test]
fn bytes_are_written_and_read_without_a_copy() {
    use bytes::{Bytes, BytesMut};
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(place.join("file")).await?;
        let all = Bytes::from_static(b"some bytes");
        let (written, _) = file.write_at(all.slice(5..), 0).await;
        assert_eq!(written?, 5);
        let room = BytesMut::with_capacity(100);
        let start = room.as_ptr();
        let (read, room) = file.read_at(room, 0).await;
        assert_eq!((read?, &room[..], room.as_ptr()), (5, &b"bytes"[..], start));
        Ok(())
    });
}

#[test]
fn copies_also_set_the_permissions_of_an_existing_file() {
    use std::os::unix::fs::PermissionsExt;

    everywhere(|place| async move {
        let (from, to) = (place.join("from"), place.join("to"));
        fs::write(&from, b"all").await?;
        // The mode has more permissions than a umask would allow.
        fs::set_permissions(&from, PermissionsExt::from_mode(0o666)).await?;
        fs::write(&to, b"before").await?;
        fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).await?;
        for to in [to, place.join("fresh")] {
            fs::copy(&from, &to).await?;
            assert_eq!(fs::metadata(&to).await?.mode() & 0o777, 0o666);
        }
        assert_eq!(fs::copy(&from, "/dev/null").await?, 3, "the copy to a device was not complete");
        Ok(())
    });
}

#[test]
fn a_file_without_a_name_can_be_used_by_its_creator() {
    everywhere(|place| async move {
        let options = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE);
        let file = options.mode(0o600).open(place.path()).await?;
        assert_eq!(file.metadata().await?.mode() & 0o777, 0o600);
        Ok(())
    });
}

#[test]
fn a_file_of_an_idle_runtime_always_returns_an_error() {
    use annulus::Runtime;
    use std::task::Poll;

    let file = Runtime::new().unwrap().block_on(async { File::open("/proc/self/exe").await });
    let file = file.unwrap();
    let mut polls = 0;
    for _ in 0..1000 {
        let read = std::pin::pin!(file.read_at(vec![0; 4], 0));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match read.poll(&mut cx) {
            Poll::Ready((outcome, _)) => polls += usize::from(outcome.is_err()),
            Poll::Pending => break,
        }
    }
    assert_eq!(polls, 1000);
}

#[test]
fn read_to_end_appends_what_follows_the_position() {
    everywhere(|place| async move {
        let path = place.join("file");
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        fs::write(&path, bytes.clone()).await?;
        let mut file = File::open(&path).await?;
        let (read, _) = file.read(vec![0; 1000]).await;
        assert_eq!(read?, 1000);
        let (count, all) = file.read_to_end(b"before".to_vec()).await;
        assert_eq!(count?, bytes.len() - 1000);
        assert!(all[..6] == *b"before" && all[6..] == bytes[1000..], "the bytes differ");
        let (count, all) = file.read_to_end(Vec::new()).await;
        assert_eq!((count?, all.len()), (0, 0));
        // After an error, the call returns the buffer.
        let mut directory = File::open(place.path()).await?;
        let (failed, kept) = directory.read_to_end(b"kept".to_vec()).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(kept, b"kept");
        Ok(())
    });
}

#[test]
fn read_to_string_appends_text_or_leaves_the_string_as_it_was() {
    everywhere(|place| async move {
        let path = place.join("file");
        let text = "grüße, ".repeat(20_000);
        fs::write(&path, text.clone()).await?;
        let mut file = File::open(&path).await?;
        let (count, all) = file.read_to_string("before ".to_owned()).await;
        assert_eq!(count?, text.len());
        assert!(all.strip_prefix("before ") == Some(&*text), "the text differs");
        let (count, all) = file.read_to_string(String::new()).await;
        assert_eq!((count?, &*all), (0, ""));
        fs::write(&path, b"half a character: \xc3").await?;
        let (failed, kept) = File::open(&path).await?.read_to_string("kept".to_owned()).await;
        assert_eq!((failed.unwrap_err().kind(), &*kept), (io::ErrorKind::InvalidData, "kept"));
        // After an error of the system, only a part may have been read.
        let mut directory = File::open(place.path()).await?;
        let (failed, kept) = directory.read_to_string("kept".to_owned()).await;
        assert_eq!((failed.unwrap_err().kind(), &*kept), (io::ErrorKind::IsADirectory, "kept"));
        Ok(())
    });
}

#[test]
fn reads_to_the_end_reserve_memory_for_the_rest_only() {
    everywhere(|place| async move {
        // Longer than the memory of the machine, and without data.
        const LEN: u64 = 1 << 40;
        let path = place.join("file");
        std::fs::File::create(&path)?.set_len(LEN)?;
        let mut file = File::open(&path).await?;
        for (to, rest) in [(LEN - 10, 10), (LEN, 0), (LEN + 10, 0)] {
            file.seek(SeekFrom::Start(to)).await?;
            let (count, bytes) = file.read_to_end(Vec::new()).await;
            assert_eq!((count?, &*bytes), (rest, &vec![0; rest][..]));
            assert!(bytes.capacity() < 4096, "{} bytes were reserved", bytes.capacity());
            file.seek(SeekFrom::Start(to)).await?;
            let (count, text) = file.read_to_string(String::new()).await;
            assert_eq!((count?, text.len()), (rest, rest));
        }
        Ok(())
    });
}
