//! Copies between files and streams.

use crate::common::rerun::{self, rerun};
use crate::common::touch;
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, File, OpenOptions, Policy};
use annulus::io::{AsyncRecv, AsyncSend, CopySink, CopySource, copy, copy_at_most, copy_range};
use annulus::net::{TcpListener, TcpStream};
use annulus::pipe::pipe;
use annulus::spawn;
use annulus::task::JoinHandle;
use annulus::time::timeout;
use annulus_skip::skip;
use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

/// Number of bytes: more than the socket buffers of both ends hold.
const LEN: usize = 12_000_000;

fn pattern() -> &'static [u8] {
    static PATTERN: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..LEN as u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect());
    &PATTERN
}

/// Returns a file with the pattern, and a pair of connected streams.
async fn set_up(place: &Place) -> io::Result<(File, TcpStream, TcpStream)> {
    fs::write(place.join("from"), pattern()).await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ours = TcpStream::connect(listener.local_addr()?).await?;
    let (remote, _) = listener.accept().await?;
    Ok((File::open(place.join("from")).await?, ours, remote))
}

fn receive_all(mut stream: TcpStream) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(async move {
        let mut all = Vec::new();
        while let Some(lease) = stream.recv().await? {
            all.extend_from_slice(&lease);
        }
        Ok(all)
    })
}

#[test]
fn a_file_to_a_stream_after_bytes_sent_before() {
    everywhere(|place| async move {
        let (mut file, mut ours, remote) = set_up(&place).await?;
        let received = receive_all(remote);
        ours.send("before ").await?;
        file.seek(SeekFrom::Start(1000)).await?;
        assert_eq!(copy(&mut file, &mut ours).await?, (LEN - 1000) as u64);
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, LEN as u64);
        ours.send(" after").await?;
        drop(ours);
        let received = received.await.unwrap()?;
        assert_eq!(received.len(), LEN - 1000 + 13);
        assert_eq!(
            (&received[..7], &received[received.len() - 6..]),
            (&b"before "[..], &b" after"[..])
        );
        assert!(received[7..received.len() - 6] == pattern()[1000..]);
        Ok(())
    });
}

#[test]
fn a_direct_file_to_a_stream_from_any_offset_to_any_end() {
    everywhere(|place| async move {
        let (_, mut ours, remote) = set_up(&place).await?;
        let mut file = OpenOptions::new().read(true).direct(true).open(place.join("from")).await?;
        let received = receive_all(remote);
        file.seek(SeekFrom::Start(LEN as u64 - 200_001)).await?;
        assert_eq!(copy(&mut file, &mut ours).await?, 200_001);
        drop(ours);
        assert!(received.await.unwrap()? == pattern()[LEN - 200_001..]);
        Ok(())
    });
}

#[test]
fn a_stream_to_a_file_and_a_stream_to_a_stream() {
    everywhere(|place| async move {
        let (mut file, mut ours, mut remote) = set_up(&place).await?;
        let (_, mut second, mut far) = set_up(&place).await?;
        let sent = spawn(async move { copy(&mut file, &mut ours).await });
        let relayed = spawn(async move { copy(&mut remote, &mut second).await });
        let mut into = OpenOptions::new().write(true).create(true).open(place.join("to")).await?;
        into.write_all_at(&b"head"[..], 0).await.0?;
        into.seek(SeekFrom::Start(4)).await?;
        assert_eq!(copy(&mut far, &mut into).await?, LEN as u64);
        assert_eq!((sent.await.unwrap()?, relayed.await.unwrap()?), (LEN as u64, LEN as u64));
        let all = fs::read(place.join("to")).await?;
        assert!(all[..4] == *b"head" && all[4..] == *pattern());
        Ok(())
    });
}

#[test]
fn a_copy_runs_where_the_target_file_makes_its_calls() {
    everywhere(|place| async move {
        fs::write(place.join("from"), b"a few bytes").await?;
        let from = OpenOptions::new().read(true).policy(Policy::Inline);
        let from = from.open(place.join("from")).await?;
        for (policy, is_off_the_loop) in [(Policy::Inline, false), (Policy::Offload, true)] {
            let to = OpenOptions::new().write(true).create(true).policy(policy);
            let to = to.open(place.join("to")).await?;
            let before = annulus::counters().unwrap().file_worker;
            assert_eq!(from.copy_to(&to).await?, 11);
            let calls = annulus::counters().unwrap().file_worker - before;
            assert_eq!(calls > 0, is_off_the_loop, "{policy:?}");
        }
        Ok(())
    });
}

#[test]
fn a_reader_that_stalls_blocks_no_other_task() {
    everywhere(|place| async move {
        let (mut file, mut ours, remote) = set_up(&place).await?;
        let copied = spawn(async move { copy(&mut file, &mut ours).await });
        // The peer does not read, so the copy waits while this task continues.
        for _ in 0..1000 {
            annulus::task::yield_now().await;
        }
        assert!(!copied.is_finished());
        assert!(receive_all(remote).await.unwrap()? == pattern());
        assert_eq!(copied.await.unwrap()?, LEN as u64);
        Ok(())
    });
}

#[test]
fn a_file_to_a_file_from_their_cursors() {
    everywhere(|place| async move {
        fs::write(place.join("from"), b"0123456789").await?;
        let mut from = File::open(place.join("from")).await?;
        let mut to = File::create(place.join("to")).await?;
        to.write(b"ab").await.0?;
        from.seek(SeekFrom::End(-4)).await?;
        assert_eq!(copy(&mut from, &mut to).await?, 4);
        assert_eq!(copy(&mut from, &mut to).await?, 0);
        to.write(b"yz").await.0?;
        assert_eq!(fs::read(place.join("to")).await?, b"ab6789yz");
        let mut status = File::open("/proc/self/status").await?;
        assert!(copy(&mut status, &mut to).await? > 100);
        Ok(())
    });
}

/// Copies everything with copies that are dropped part-way, each slightly later than the one
/// before.
async fn copy_with_drops(from: &mut impl CopySource, to: &mut impl CopySink) -> io::Result<()> {
    let mut patience = Duration::ZERO;
    loop {
        patience += Duration::from_micros(500);
        if let Ok(done) = timeout(patience, copy(from, to)).await {
            return done.map(drop);
        }
    }
}

#[test]
fn a_copy_into_a_file_continues_after_a_dropped_one() {
    everywhere(|place| async move {
        let (mut file, mut ours, mut remote) = set_up(&place).await?;
        let mut into = File::create(place.join("to")).await?;
        let sent = spawn(async move { copy(&mut file, &mut ours).await });
        copy_with_drops(&mut remote, &mut into).await?;
        assert_eq!(sent.await.unwrap()?, LEN as u64);
        assert_eq!(into.seek(SeekFrom::Current(0)).await?, LEN as u64);
        // A write started by a dropped copy may finish last.
        while fs::read(place.join("to")).await? != pattern() {
            annulus::task::yield_now().await;
        }
        Ok(())
    });
}

#[test]
fn a_copy_into_a_stream_continues_after_a_dropped_one() {
    everywhere(|place| async move {
        let (mut file, mut ours, mut remote) = set_up(&place).await?;
        let (_, mut second, far) = set_up(&place).await?;
        let received = receive_all(far);
        let relayed = spawn(async move { copy_with_drops(&mut remote, &mut second).await });
        copy_with_drops(&mut file, &mut ours).await?;
        drop(ours);
        relayed.await.unwrap()?;
        assert!(received.await.unwrap()? == pattern());
        Ok(())
    });
}

#[test]
fn a_copy_into_the_stream_of_a_file_continues_after_a_dropped_one() {
    everywhere(|place| async move {
        let mut into = File::create(place.join("to")).await?.into_stream();
        let mut left = &pattern()[..300_000];
        // A copy takes nothing from the source while a write is in flight. At other times, it takes
        // only bytes that the target accepts.
        into.write_all(b"head").await?;
        while touch(copy(&mut left, &mut into)).transpose()?.is_none() {
            annulus::task::yield_now().await;
        }
        into.flush().await?;
        let all = fs::read(place.join("to")).await?;
        assert!(all[..4] == *b"head" && all[4..] == pattern()[..300_000]);
        Ok(())
    });
}

/// A program's own sink, which accepts a few bytes at every other poll.
#[derive(Default)]
struct Slow {
    got: Vec<u8>,
    is_ready: bool,
}

impl AsyncSend for Slow {
    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_ready = !self.is_ready;
        if !self.is_ready {
            return Poll::Pending;
        }
        let accepted = &bytes[..bytes.len().min(1000)];
        self.got.extend_from_slice(accepted);
        Poll::Ready(Ok(accepted.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[test]
fn a_file_copy_continues_after_the_accepted_part_of_a_piece() {
    let modes = Mode::all().into_iter().filter(|mode| mode.policy == Policy::Inline);
    for mode in modes {
        mode.run(|place| async move {
            fs::write(place.join("from"), &pattern()[..20_000]).await?;
            let mut file = File::open(place.join("from")).await?;
            let mut slow = Slow::default();
            while touch(copy(&mut file, &mut slow)).transpose()?.is_none() {
                assert_eq!(file.seek(SeekFrom::Current(0)).await?, slow.got.len() as u64);
                annulus::task::yield_now().await;
            }
            assert!(slow.got == pattern()[..20_000]);
            Ok(())
        });
    }
}

#[test]
fn the_cursor_stays_if_nothing_was_written() {
    everywhere(|place| async move {
        let (mut file, mut ours, mut remote) = set_up(&place).await?;
        file.seek(SeekFrom::Start(1000)).await?;
        ours.send("not for a file open for reading").await?;
        let error = copy(&mut remote, &mut file).await.unwrap_err();
        assert_eq!(annulus::io::raw_os_error(&error), Some(9), "{error}");
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, 1000);
        Ok(())
    });
}

#[test]
fn a_copy_to_a_lost_peer_is_an_error() {
    everywhere(|place| async move {
        let (mut file, mut ours, remote) = set_up(&place).await?;
        remote.abort();
        let error = copy(&mut file, &mut ours).await.unwrap_err();
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(gone.contains(&error.kind()), "{error}");
        Ok(())
    });
}

#[test]
fn a_copy_to_a_lost_peer_raises_no_signal() {
    use signal_hook::consts::SIGPIPE;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    // The test needs a process of its own, since signals belong to the whole process and other
    // tests write to pipes without a reader.
    if !rerun::is_alone(rerun!(a_copy_to_a_lost_peer_raises_no_signal)) {
        return;
    }
    let raised = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGPIPE, raised.clone()).unwrap();
    everywhere(|place| async move {
        let (mut file, mut ours, _remote) = set_up(&place).await?;
        ours.shutdown().await?;
        let error = copy(&mut file, &mut ours).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
    assert!(!raised.load(Ordering::Relaxed));
}

#[test]
fn parts_of_a_file_go_to_streams_halves_and_pipes_and_leave_its_cursor() {
    everywhere(|place| async move {
        let (mut file, mut ours, remote) = set_up(&place).await?;
        let received = receive_all(remote);
        assert_eq!(copy_range(&file, 1_000_000..3_000_000, &mut ours).await?, 2_000_000);
        let (_recv, mut send) = ours.into_split();
        assert_eq!(copy_range(&file, 5..=9, &mut send).await?, 5);
        assert_eq!(copy_range(&file, LEN as u64 - 3.., &mut send).await?, 3);
        assert_eq!(copy_range(&file, LEN as u64 + 3.., &mut send).await?, 0);
        drop(send);
        let (mut sender, mut receiver) = pipe()?;
        let piped = spawn(async move {
            let mut all = Vec::new();
            copy(&mut receiver, &mut all).await.map(|_| all)
        });
        assert_eq!(copy_range(&file, 7..300_007, &mut sender).await?, 300_000);
        drop(sender);
        assert!(piped.await.unwrap()? == pattern()[7..300_007]);
        let parts = [&pattern()[1_000_000..3_000_000], &pattern()[5..10], &pattern()[LEN - 3..]];
        assert!(received.await.unwrap()? == parts.concat());
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, 0);
        let mut nowhere = Vec::new();
        #[expect(clippy::reversed_empty_ranges, reason = "an empty range is under test")]
        let error = copy_range(&file, 9..3, &mut nowhere).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("range 9 to 3"), "{error}");
        Ok(())
    });
}

#[test]
fn a_limit_applies_to_bytes_of_files_too() {
    everywhere(|place| async move {
        let (mut file, mut ours, mut remote) = set_up(&place).await?;
        file.seek(SeekFrom::Start(10)).await?;
        let mut into = File::create(place.join("part")).await?;
        assert_eq!(copy_at_most(&mut file, &mut into, 300_000).await?, 300_000);
        assert_eq!(copy_at_most(&mut file, &mut ours, 5000).await?, 5000);
        assert_eq!(copy_at_most(&mut file, &mut ours, 0).await?, 0);
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, 305_010);
        assert_eq!(copy_at_most(&mut remote, &mut into, 4000).await?, 4000);
        ours.shutdown().await?;
        assert_eq!(copy_at_most(&mut remote, &mut into, 4000).await?, 1000);
        assert!(fs::read(place.join("part")).await? == pattern()[10..305_010]);
        Ok(())
    });
}

#[test]
fn files_that_cannot_seek_are_copied_in_order() {
    everywhere(|place| async move {
        let (reader, writer) = rustix::pipe::pipe()?;
        let (mut source, mut pipe) = (File::try_from(reader)?, File::try_from(writer)?);
        let path = place.join("file");
        fs::write(&path, "some text, and more").await?;
        let mut file = File::open(&path).await?;
        assert_eq!(copy_at_most(&mut file, &mut pipe, 9).await?, 9);
        let mut there = File::create(place.join("there")).await?;
        assert_eq!(copy_at_most(&mut source, &mut there, 4).await?, 4);
        drop(pipe);
        let mut rest = Vec::new();
        assert_eq!(copy(&mut source, &mut rest).await?, 5);
        assert_eq!(
            (&fs::read(place.join("there")).await?[..], &rest[..]),
            (&b"some"[..], &b" text"[..])
        );
        let mut zeroes = Vec::new();
        let mut endless = File::open("/dev/zero").await?;
        assert_eq!(copy_at_most(&mut endless, &mut zeroes, 100_000).await?, 100_000);
        assert!(zeroes == [0; 100_000]);
        Ok(())
    });
}

#[test]
fn a_copy_into_an_append_file_leaves_the_cursor_at_its_end() {
    everywhere(|place| async move {
        fs::write(place.join("from"), "copied").await?;
        fs::write(place.join("to"), "what is there, ").await?;
        let options = OpenOptions::new().append(true).read(true);
        let mut to = options.open(place.join("to")).await?;
        let mut from = File::open(place.join("from")).await?;
        assert_eq!(copy(&mut from, &mut to).await?, 6);
        assert_eq!(
            (to.seek(SeekFrom::Current(0)).await?, from.seek(SeekFrom::Current(0)).await?),
            (21, 6)
        );
        assert_eq!(fs::read(place.join("to")).await?, b"what is there, copied");
        Ok(())
    });
}

#[test]
fn direct_files_are_copied_whatever_their_length() {
    everywhere(|place| async move {
        let text = crate::common::pattern(300_001);
        fs::write(place.join("from"), text.clone()).await?;
        let options = || OpenOptions::new().read(true).write(true).create(true).direct(true);
        let Ok(mut from) = options().open(place.join("from")).await else {
            skip!("no direct I/O here");
            return Ok(());
        };
        let mut to = options().open(place.join("to")).await?;
        assert_eq!(copy(&mut from, &mut to).await?, text.len() as u64);
        assert!(fs::read(place.join("to")).await? == text);
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, text.len() as u64);
        assert_eq!(copy(&mut &b"and a tail"[..], &mut to).await?, 10);
        assert!(fs::read(place.join("to")).await? == [&text[..], b"and a tail"].concat());
        Ok(())
    });
}

#[test]
fn parts_of_direct_files_are_copied_whatever_their_length() {
    everywhere(|place| async move {
        let text = crate::common::pattern(20_000);
        fs::write(place.join("from"), text.clone()).await?;
        let options = OpenOptions::new().read(true).direct(true);
        let Ok(mut from) = options.open(place.join("from")).await else {
            skip!("no direct I/O here");
            return Ok(());
        };
        let mut part = Vec::new();
        assert_eq!(copy_range(&from, 5000..5100, &mut part).await?, 100);
        assert!(part == text[5000..5100]);
        let write = OpenOptions::new().write(true).create(true);
        for options in [write.clone(), OpenOptions::new().append(true).create(true)] {
            let mut to = options.open(place.join("to")).await?;
            to.set_len(0).await?;
            from.seek(SeekFrom::Start(0)).await?;
            for count in [100, 4000, 7] {
                assert_eq!(copy_at_most(&mut from, &mut to, count).await?, count);
            }
            assert!(fs::read(place.join("to")).await? == text[..4107]);
            assert_eq!(from.seek(SeekFrom::Current(0)).await?, 4107);
        }
        Ok(())
    });
}

/// Creates a file of 32 MiB with a little data in the middle and before the end, and returns its
/// bytes.
async fn sparse(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::create(path).await?;
    file.write_all_at(vec![7; 4096], 8 << 20).await.0?;
    file.write_all_at(vec![8; 100_000], 20 << 20).await.0?;
    file.set_len(32 << 20).await?;
    let mut bytes = vec![0; 32 << 20];
    bytes[8 << 20..][..4096].fill(7);
    bytes[20 << 20..][..100_000].fill(8);
    Ok(bytes)
}

/// Checks that a copy of a sparse file has its bytes and takes at most as much space.
fn check_sparse(from: &Path, to: &Path, bytes: &[u8]) {
    assert!(std::fs::read(to).unwrap() == bytes);
    let [from, to] = [from, to].map(|path| std::fs::metadata(path).unwrap().blocks() * 512);
    assert!(to <= from + 65_536, "{to} bytes of space, but {from} for the source");
}

#[test]
fn holes_stay_holes() {
    everywhere(|place| async move {
        let (from, to) = (place.join("from"), place.join("to"));
        let bytes = sparse(&from).await?;
        let len = bytes.len() as u64;
        if std::fs::metadata(&from)?.blocks() * 512 > len / 2 {
            skip!("the file system has no holes");
            return Ok(());
        }
        assert_eq!(fs::copy(&from, &to).await?, len);
        check_sparse(&from, &to, &bytes);
        // Existing data becomes a hole.
        fs::write(&to, vec![1; 30 << 20]).await?;
        let target = OpenOptions::new().write(true).open(&to).await?;
        assert_eq!(File::open(&from).await?.copy_to(&target).await?, len);
        check_sparse(&from, &to, &bytes);

        let (mut source, mut target) = (File::open(&from).await?, File::create(&to).await?);
        assert_eq!(copy_at_most(&mut source, &mut target, 10 << 20).await?, 10 << 20);
        assert_eq!(target.metadata().await?.len(), 10 << 20, "the copy lost the hole at its end");
        assert_eq!(copy(&mut source, &mut target).await?, len - (10 << 20));
        assert_eq!(source.seek(SeekFrom::Current(0)).await?, len);
        assert_eq!(target.seek(SeekFrom::Current(0)).await?, len);
        check_sparse(&from, &to, &bytes);

        let mut source = File::open(&from).await?.into_stream();
        let mut target = File::create(&to).await?.into_stream();
        assert_eq!(source.fill_buf().await?.first(), Some(&0));
        source.consume(1);
        target.write_all(&[0]).await?;
        assert_eq!(copy(&mut source, &mut target).await?, len - 1);
        assert!(source.fill_buf().await?.is_empty());
        target.write_all(b"tail").await?;
        target.flush().await?;
        check_sparse(&from, &to, &[&bytes[..], b"tail"].concat());
        Ok(())
    });
}

#[test]
fn a_file_is_copied_into_itself() {
    everywhere(|place| async move {
        let bytes = sparse(place.join("file")).await?;
        let options = OpenOptions::new().read(true).write(true);
        let mut from = options.open(place.join("file")).await?;
        let mut to = options.open(place.join("file")).await?;
        to.seek(SeekFrom::End(0)).await?;
        assert_eq!(copy_at_most(&mut from, &mut to, 32 << 20).await?, 32 << 20);
        assert!(std::fs::read(place.join("file"))? == [&bytes[..], &bytes].concat());
        Ok(())
    });
}

#[test]
fn system_files_are_copied_whatever_their_reported_length() {
    everywhere(|place| async move {
        for path in ["/proc/version", "/sys/devices/system/cpu/online", "/sys/kernel/mm/ksm/run"] {
            let Ok(expected) = std::fs::read(path) else {
                assert_ne!(path, "/proc/version");
                continue;
            };
            let to = place.join("to");
            assert_eq!(fs::copy(path, &to).await?, expected.len() as u64, "{path}");
            assert!(std::fs::read(&to)? == expected, "{path}");
            std::fs::remove_file(&to)?;
            let (from, mut into) = (File::open(path).await?, File::create(&to).await?);
            assert_eq!(from.copy_to(&into).await?, expected.len() as u64, "{path}");
            let mut from = File::open(path).await?;
            into.seek(SeekFrom::Start(0)).await?;
            assert_eq!(copy(&mut from, &mut into).await?, expected.len() as u64, "{path}");
            assert!(std::fs::read(&to)? == expected, "{path}");
            std::fs::remove_file(&to)?;
        }
        Ok(())
    });
}

#[test]
fn a_copy_to_an_append_file_continues_after_a_dropped_one() {
    everywhere(|place| async move {
        fs::write(place.join("from"), &pattern()[..600_000]).await?;
        fs::write(place.join("to"), "head").await?;
        let mut from = File::open(place.join("from")).await?;
        let options = OpenOptions::new().append(true);
        let mut to = options.open(place.join("to")).await?;
        copy_with_drops(&mut from, &mut to).await?;
        to.sync_data().await?;
        assert!(fs::read(place.join("to")).await? == [b"head", &pattern()[..600_000]].concat());
        assert_eq!(from.seek(SeekFrom::Current(0)).await?, 600_000);
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, 600_004);
        Ok(())
    });
}

#[test]
fn a_copy_of_no_bytes_leaves_the_length() {
    everywhere(|place| async move {
        std::fs::File::create(place.join("from"))?.set_len(1 << 20)?;
        let mut from = File::open(place.join("from")).await?;
        let mut to = File::create(place.join("to")).await?;
        to.seek(SeekFrom::Start(100)).await?;
        assert_eq!(copy_at_most(&mut from, &mut to, 0).await?, 0);
        for end in [1 << 20, 1 << 21] {
            from.seek(SeekFrom::Start(end)).await?;
            assert_eq!(copy(&mut from, &mut to).await?, 0);
        }
        assert_eq!(to.metadata().await?.len(), 0);
        // The end of the source is a hole, which counts.
        from.seek(SeekFrom::End(-10)).await?;
        assert_eq!((copy(&mut from, &mut to).await?, to.metadata().await?.len()), (10, 110));
        Ok(())
    });
}
