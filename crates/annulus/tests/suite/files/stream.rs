//! Files as streams of bytes: reading ahead, writing behind, and the traits of futures-io and
//! tokio.

use crate::common::{pattern, touch};
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, File, FileStream, OpenOptions, Policy};
use annulus::io::{AsyncRecv, AsyncSend, raw_os_error};
use annulus::time::timeout;
use annulus::{Runtime, spawn};
use annulus_skip::skip;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;
use tokio_util::compat::TokioAsyncReadCompatExt;

/// Number of bytes: several times the read-ahead.
const LEN: usize = 300_000;

async fn both_ways(place: &Place, name: &str) -> io::Result<FileStream> {
    let options = || OpenOptions::new();
    let opened = options().read(true).write(true).create(true).open(place.join(name)).await?;
    Ok(opened.into_stream())
}

async fn read_whole(place: Place) -> io::Result<()> {
    let text = pattern(LEN);
    fs::write(place.join("a"), text.clone()).await?;
    let mut file = File::open(place.join("a")).await?.into_stream();
    assert!(file.fill_at_least(100_000).await?.starts_with(&text[..100_000]));
    assert!(*file.recv_exact(150_000).await? == text[..150_000]);
    let mut rest = Vec::new();
    file.read_to_end(&mut rest, LEN).await?;
    assert!(rest == text[150_000..]);
    assert!(file.recv().await?.is_none() && file.recv().await?.is_none());
    Ok(())
}

#[test]
fn a_file_is_read_in_pieces_of_any_size() {
    everywhere(read_whole);
}

async fn write_and_read(place: Place) -> io::Result<()> {
    let mut file = both_ways(&place, "a").await?;
    let text = pattern(LEN);
    file.write_all(&text).await?;
    let slices = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
    assert_eq!(file.write_vectored(&slices).await?, 7);
    file.flush().await?;
    assert_eq!(file.seek(SeekFrom::Start(10)).await?, 10);
    assert!(*file.recv_exact(20).await? == text[10..30]);
    assert_eq!(
        file.seek(SeekFrom::Current(-5)).await?,
        25,
        "the seek was not relative to the consumed bytes"
    );
    assert!(*file.recv_exact(5).await? == text[25..30]);
    // The cursor is after the last consumed byte, not after the read-ahead.
    file.write_all(b"here").await?;
    assert!(*file.recv_exact(6).await? == text[34..40]);
    let error = file.seek(SeekFrom::Current(-41)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "a seek before the start has another error");
    assert!(*file.recv_exact(1).await? == text[40..41], "a refused seek changed the position");
    // The next call abandons a dropped seek, which has not moved the cursor by then.
    _ = touch(file.seek(SeekFrom::Start(7)));
    assert_eq!(file.seek(SeekFrom::Start(41)).await?, 41);
    _ = touch(file.seek(SeekFrom::Start(41)));
    let file = file.into_file().await?;
    let (read, next) = { file }.read(vec![0; 9]).await;
    assert!(read? == 9 && next == text[41..50], "a pending seek moved the cursor");
    let expected = [&text[..30], b"here", &text[34..], b"one two"].concat();
    assert!(fs::read(place.join("a")).await? == expected);
    Ok(())
}

#[test]
fn writes_go_after_the_consumed_bytes() {
    everywhere(write_and_read);
}

#[test]
fn equal_relative_seeks_each_move_the_cursor() {
    everywhere(|place| async move {
        let mut file = both_ways(&place, "a").await?;
        for by in [5, 10] {
            // The dropped seek has begun, so the next one completes it first.
            _ = touch(file.seek(SeekFrom::Current(by)));
            let before = file.seek(SeekFrom::Current(by)).await?;
            assert_eq!(before, if by == 5 { 10 } else { 30 });
        }
        Ok(())
    });
}

async fn drop_all(place: Place) -> io::Result<()> {
    let mut file = both_ways(&place, "a").await?;
    let text = pattern(LEN);
    let mut accepted = 0;
    while accepted < LEN {
        accepted += file.write(&text[accepted..]).await?;
    }
    drop(file);
    let mut reader = File::open(place.join("a")).await?.into_stream();
    let mut got = Vec::new();
    // The end is not final: the last piece may not have been written yet.
    while got.len() < LEN {
        _ = touch(reader.fill_at_least(200_000));
        _ = touch(reader.recv_exact(usize::MAX));
        match touch(reader.recv()).transpose()?.flatten() {
            Some(lease) => got.extend_from_slice(&lease),
            None => annulus::task::yield_now().await,
        }
    }
    assert!(got == text);
    Ok(())
}

#[test]
fn accepted_bytes_are_written_and_dropped_reads_lose_nothing() {
    everywhere(drop_all);
}

async fn fail(place: Place) -> io::Result<()> {
    fs::write(place.join("a"), "text").await?;
    let mut file = File::open(place.join("a")).await?.into_stream();
    assert_eq!(file.fill_at_least(2).await?, b"text");
    let mut outcome = file.write_all(b"x").await;
    if outcome.is_ok() {
        // The bytes are accepted at once. The write that fails comes later, off the loop.
        outcome = file.flush().await;
    }
    assert_eq!(raw_os_error(&outcome.unwrap_err()), Some(libc::EBADF));
    assert_eq!(
        *file.recv_exact(4).await?,
        *b"text",
        "the file cannot be read after a failed write"
    );
    let mut directory = File::open(place.path()).await?.into_stream();
    assert_eq!(directory.recv().await.unwrap_err().kind(), ErrorKind::IsADirectory);
    Ok(())
}

#[test]
fn errors_are_reported_and_nothing_else_fails() {
    everywhere(fail);
}

#[test]
fn outside_a_runtime_calls_fail() {
    let place = Place::new();
    let mut runtime = Mode::all()[0].runtime().unwrap();
    let mut file = runtime.block_on(both_ways(&place, "a")).unwrap();
    assert!(touch(file.write(b"text")).expect("the call waited").is_err());
    assert!(touch(file.recv()).expect("the call waited").is_err());
    assert!(touch(file.seek(SeekFrom::Start(1))).expect("the call waited").is_err());
    runtime
        .block_on(async {
            file.write_all(b"text").await?;
            file.seek(SeekFrom::Start(1)).await?;
            assert_eq!(*file.recv_exact(3).await?, *b"ext");
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn the_ends_of_a_pipe_are_streams() {
    for mode in Mode::all().into_iter().filter(|mode| mode.policy != Policy::Inline) {
        mode.run(|place| async move {
            let path = place.join("pipe");
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            let mut reader = File::open(&path).await?.into_stream();
            let mut writer = OpenOptions::new().write(true).open(&path).await?.into_stream();
            let text = pattern(LEN);
            let sent = text.clone();
            let written = spawn(async move {
                writer.write_all(&sent).await?;
                writer.flush().await
            });
            assert!(*reader.recv_exact(100_000).await? == text[..100_000]);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest, LEN).await?;
            assert!(rest == text[100_000..]);
            written.await.unwrap()
        });
    }
}

async fn by_futures(place: Place) -> io::Result<()> {
    use futures_util::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, TryStreamExt, io as futures};
    let mut file = TokioAsyncReadCompatExt::compat(both_ways(&place, "a").await?);
    AsyncWriteExt::write_all(&mut file, b"first\nsecond\n").await?;
    AsyncWriteExt::close(&mut file).await?;
    assert_eq!(AsyncSeekExt::seek(&mut file, SeekFrom::Start(6)).await?, 6);
    let mut text = String::new();
    assert_eq!(AsyncReadExt::read_to_string(&mut file, &mut text).await?, 7);
    assert_eq!((&*text, AsyncSeekExt::stream_position(&mut file).await?), ("second\n", 13));
    AsyncSeekExt::seek(&mut file, SeekFrom::Start(0)).await?;
    let lines: Vec<_> = futures::AsyncBufReadExt::lines(&mut file).try_collect().await?;
    assert_eq!(lines, ["first", "second"]);
    Ok(())
}

async fn by_tokio(place: Place) -> io::Result<()> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, copy};
    let mut file = both_ways(&place, "a").await?;
    AsyncWriteExt::write_all(&mut file, b"first\nsecond\n").await?;
    AsyncWriteExt::shutdown(&mut file).await?;
    assert_eq!(AsyncSeekExt::seek(&mut file, SeekFrom::End(-7)).await?, 6);
    let mut two = [0; 2];
    AsyncReadExt::read_exact(&mut file, &mut two).await?;
    assert_eq!((&two, AsyncSeekExt::stream_position(&mut file).await?), (b"se", 8));
    AsyncSeekExt::rewind(&mut file).await?;
    let mut other = both_ways(&place, "b").await?;
    assert_eq!(copy(&mut file, &mut other).await?, 13);
    AsyncSeekExt::rewind(&mut other).await?;
    let mut lines = AsyncBufReadExt::lines(other);
    assert_eq!(lines.next_line().await?.as_deref(), Some("first"));
    assert_eq!(lines.next_line().await?.as_deref(), Some("second"));
    assert!(lines.next_line().await?.is_none());
    Ok(())
}

#[test]
fn foreign_traits_read_write_and_seek() {
    everywhere(by_futures);
    everywhere(by_tokio);
}

#[test]
fn accepted_bytes_are_written_when_the_runtime_ends() {
    for mode in Mode::all() {
        for keep in [false, true] {
            let place = Place::new();
            let path = place.join("a");
            let mut runtime = mode.runtime().unwrap();
            let accepted = runtime.block_on(async {
                let mut file = File::create(&path).await?.into_stream();
                file.write_all(b"accepted").await?;
                file.send(vec![b'.'; 200_000]).await?;
                io::Result::Ok(keep.then_some(file))
            });
            drop(runtime);
            let written = std::fs::read(&path).unwrap();
            assert!(written.starts_with(b"accepted..") && written.len() == 200_008, "{mode:?}");
            drop(accepted.unwrap());
        }
    }
}

#[test]
fn shutdown_does_not_wait_forever() {
    for mode in Mode::all().into_iter().filter(|mode| mode.policy == Policy::Offload) {
        let place = Place::new();
        let path = place.join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let builder = Runtime::builder().driver(mode.driver).file_policy(mode.policy);
        let mut runtime = builder.shutdown_timeout(Duration::from_millis(10)).build().unwrap();
        let reader = runtime.block_on(async {
            let mut pipe = OpenOptions::new().read(true).write(true).open(&path).await?;
            // The write is longer than the pipe's space, and nobody reads the pipe.
            let reader = pipe.try_clone()?;
            pipe.write(vec![0; 65_536]).await.0?;
            assert_eq!(pipe.into_stream().write(b"waits").await?, 5);
            io::Result::Ok(reader)
        });
        drop(runtime);
        drop(reader.unwrap());
    }
}

async fn drop_a_seek(place: Place) -> io::Result<()> {
    let text = pattern(100);
    fs::write(place.join("a"), text.clone()).await?;
    let mut file = File::open(place.join("a")).await?.into_stream();
    file.recv_exact(40).await?;
    _ = touch(file.seek(SeekFrom::Start(10)));
    assert!(file.fill_buf().await? == &text[10..]);
    Ok(())
}

#[test]
fn a_dropped_seek_completes_before_the_next_read() {
    everywhere(drop_a_seek);
}

async fn grow(place: Place) -> io::Result<()> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt};
    let mut writer = std::fs::File::create(place.join("a"))?;
    let mut file = File::open(place.join("a")).await?.into_stream();
    for _ in 0..3 {
        let mut bytes = [0; 9];
        assert_eq!(AsyncReadExt::read(&mut file, &mut bytes).await?, 0);
        writer.write_all(b"a line\n")?;
        assert_eq!(AsyncReadExt::read(&mut file, &mut bytes).await?, 7);
        let mut line = String::new();
        assert_eq!(AsyncBufReadExt::read_line(&mut file, &mut line).await?, 0);
        writer.write_all(b"a line\n")?;
        assert_eq!(AsyncBufReadExt::read_line(&mut file, &mut line).await?, 7);
    }
    Ok(())
}

#[test]
fn reading_continues_when_a_file_grows() {
    everywhere(grow);
}

async fn share_the_cursor(place: Place) -> io::Result<()> {
    use tokio::io::AsyncSeek;
    fs::write(place.join("a"), pattern(100)).await?;
    let mut file = both_ways(&place, "a").await?;
    file.fill_buf().await?;
    file.file().try_clone()?.seek(SeekFrom::Start(0)).await?;
    assert_eq!(poll_fn(|cx| Pin::new(&mut file).poll_complete(cx)).await?, 0);
    file.seek(SeekFrom::Start(0)).await?;
    file.write_all(b"accepted").await?;
    let position = poll_fn(|cx| Pin::new(&mut file).poll_complete(cx)).await?;
    assert_eq!(position, 8, "the position is not after the accepted bytes");
    Ok(())
}

#[test]
fn the_position_is_the_offset_of_the_next_byte() {
    everywhere(share_the_cursor);
}

/// The halves wait for each other's calls, and each is woken.
async fn split(place: Place) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let file = both_ways(&place, "a").await?;
    let (mut reading, mut writing) = tokio::io::split(file);
    let writer = spawn(async move {
        for _ in 0..20 {
            writing.write_all(&pattern(1000)).await?;
            writing.flush().await?;
        }
        io::Result::Ok(())
    });
    let reader = spawn(async move {
        let mut bytes = [0; 100];
        for _ in 0..20 {
            _ = AsyncReadExt::read(&mut reading, &mut bytes).await?;
        }
        io::Result::Ok(())
    });
    let limit = Duration::from_secs(20);
    timeout(limit, writer).await.expect("the writer was not woken").expect("the task panicked")?;
    timeout(limit, reader).await.expect("the reader was not woken").expect("the task panicked")
}

#[test]
fn the_halves_of_a_stream_may_be_in_two_tasks() {
    everywhere(split);
}

/// A block device backed by a file. It is removed on drop.
struct Device(String);

impl Device {
    /// Returns `None` without permission to create one.
    fn on(image: &std::path::Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Self(name.trim().into()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

async fn use_device(place: Place) -> io::Result<()> {
    let text = pattern(LEN / 512 * 512);
    std::fs::write(place.join("image"), &text)?;
    let Some(device) = Device::on(&place.join("image")) else {
        skip!("no block device can be made here");
        return Ok(());
    };
    let opened = OpenOptions::new().read(true).write(true).open(&device.0).await?;
    let mut file = opened.into_stream();
    assert!(*file.recv_exact(512).await? == text[..512]);
    file.write_all(b"behind what was consumed").await?;
    let file = file.into_file().await?;
    file.sync_all().await?;
    let mut behind = [0; 24];
    std::fs::File::open(&device.0)?.read_exact_at(&mut behind, 512)?;
    assert_eq!(&behind, b"behind what was consumed");
    Ok(())
}

#[test]
fn a_block_device_has_a_cursor() {
    everywhere(use_device);
}
