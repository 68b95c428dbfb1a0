//! Memory of operations in flight, on both simulated drivers. `cargo xtask miri` runs these tests
//! under Miri with both aliasing models, where moving or using a box is undefined behaviour while
//! the kernel is still using an address in it.

use annulus::fs::{self, AlignedBuf, Dir, File, IoBuf, OpenOptions, Policy};
use annulus::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use annulus::sim::{Faults, Link, Sim, run_on};
use annulus::task::yield_now;
use annulus::{Chunk, DriverChoice, Runtime, SharedBytes};
use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The length of `/file`, which is filled with sevens.
const LEN: usize = 100;

/// Runs a body on a runtime with small pools, on both drivers over the simulated kernel.
fn on_both<F: Future<Output = io::Result<()>>>(body: impl Fn() -> F) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        // Sockets have little buffer space, so that sends wait for it.
        let link = Link { receive_buffer: 4096, send_buffer: 4096, ..Link::default() };
        let sim = Sim::builder(1).faults(Faults::none()).link(link).build();
        let builder = Runtime::builder()
            .driver(driver)
            .stream_buffer_size(4096)
            .stream_buffer_count(4)
            .datagram_buffer_size(4096)
            .datagram_buffer_count(4)
            .sq_entries(16)
            .cq_entries(32)
            .file_policy(Policy::Offload);
        let zero_copy = (driver == DriverChoice::Uring).then_some(64);
        let (kernel, body) = (sim.clone(), &body);
        let ran = run_on(&sim, builder.zero_copy_threshold(zero_copy), async move {
            let made = OpenOptions::new().write(true).create(true).policy(Policy::Inline);
            let made = made.open("/file").await?;
            made.write_all_at(vec![7; LEN], 0).await.0?;
            made.sync_all().await?;
            // Reads of this file wait for the device.
            kernel.drop_page_cache();
            body().await
        });
        ran.unwrap_or_else(|error| panic!("{driver}: {error}"));
    }
}

/// Opens the file so that every call on it is made off the loop.
async fn offloaded() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).policy(Policy::Offload).open("/file").await
}

/// Polls the future once, which starts its operation, and drops it.
async fn start_and_drop(future: impl Future) {
    {
        let mut future = pin!(future);
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    for _ in 0..20 {
        yield_now().await;
    }
}

#[test]
fn reads_fill_every_kind_of_memory() {
    on_both(async || {
        let file = offloaded().await?;
        assert_eq!(file.read_at(vec![0; LEN], 0).await.1, [7; LEN]);
        let boxed = vec![0; LEN].into_boxed_slice();
        assert_eq!(&*file.read_at(boxed, 0).await.1, [7; LEN]);
        let boxed = vec![0; LEN].into_boxed_slice();
        assert_eq!(&*file.read_exact_at(boxed.slice(9..), 0).await.1.into_inner(), {
            let mut expected = [7; LEN];
            expected[..9].fill(0);
            expected
        });
        assert_eq!(*file.read_at(AlignedBuf::new(64, 64)?, 0).await.1, [7; 64]);
        let (mut one, mut other) = UnixStream::pair()?;
        one.send(vec![1; 50]).await?;
        let lease = other.recv().await?.expect("the stream ended too early");
        assert_eq!(*file.read_at(lease, 0).await.1, [7; 50]);
        Ok(())
    });
}

#[test]
fn vectored_calls_use_several_pieces() {
    on_both(async || {
        let file = offloaded().await?;
        let pieces = [10, 20].map(|len| vec![3u8; len].into_boxed_slice());
        assert_eq!(file.write_vectored_at(pieces.into(), 5).await.0?, 30);
        let pieces = [10, 20].map(|len| vec![0u8; len].into_boxed_slice());
        let (count, pieces) = file.read_vectored_at(pieces.into(), 0).await;
        assert_eq!((count?, pieces[0][4], pieces[0][5]), (30, 7, 3));
        Ok(())
    });
}

#[test]
fn writes_of_every_kind_of_memory() {
    on_both(async || {
        let file = offloaded().await?;
        file.write_all_at(vec![1; 4].into_boxed_slice(), 0).await.0?;
        file.write_all_at(String::from("text").into_boxed_str(), 4).await.0?;
        file.write_all_at(Rc::<[u8]>::from(*b"rc"), 8).await.0?;
        file.write_all_at(Chunk::from(vec![2; 2].into_boxed_slice()), 10).await.0?;
        file.write_all_at(SharedBytes::from(vec![3; 2].into_boxed_slice()), 12).await.0?;
        let (_, read) = file.read_exact_at(vec![0; 14], 0).await;
        assert_eq!(read, b"\x01\x01\x01\x01textrc\x02\x02\x03\x03");
        Ok(())
    });
}

#[test]
fn queries_write_their_answers() {
    on_both(async || {
        let mut file = offloaded().await?;
        assert_eq!(file.metadata().await?.len(), LEN as u64);
        assert_eq!(file.seek(SeekFrom::End(-3)).await?, LEN as u64 - 3);
        assert_eq!(file.seek(SeekFrom::Current(1)).await?, LEN as u64 - 2);
        Ok(())
    });
}

#[test]
fn paths_are_read() {
    on_both(async || {
        let root = Dir::open("/").await?;
        root.create_dir("directory").await?;
        root.rename("file", "directory/file").await?;
        assert_eq!(root.metadata("directory/file").await?.len(), LEN as u64);
        let mut entries = root.read_dir("directory").await?;
        let entry = entries.next_entry().await?.expect("the directory is empty");
        assert_eq!(entry.file_name(), "file");
        root.remove_file("directory/file").await?;
        assert!(fs::metadata("/directory/file").await.is_err());
        Ok(())
    });
}

#[test]
fn a_dropped_call_keeps_its_memory() {
    on_both(async || {
        let file = offloaded().await?;
        start_and_drop(file.read_at(vec![0; LEN].into_boxed_slice(), 0)).await;
        start_and_drop(file.metadata()).await;
        let pieces = vec![vec![0; 10].into_boxed_slice(), vec![0; 10].into_boxed_slice()];
        start_and_drop(file.read_vectored_at(pieces, 0)).await;
        start_and_drop(offloaded()).await;
        assert_eq!(file.read_at(vec![0; LEN], 0).await.1, [7; LEN]);
        Ok(())
    });
}

#[test]
fn a_call_outlives_its_runtime() {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let sim = Sim::builder(1).faults(Faults::none()).build();
        let builder =
            Runtime::builder().driver(driver).stream_buffer_size(4096).stream_buffer_count(4);
        let kept = run_on(&sim, builder.sq_entries(16).cq_entries(32), async {
            let options = OpenOptions::new().read(true).write(true).create(true);
            let file = options.policy(Policy::Offload).open("/file").await?;
            let mut read =
                Box::pin(async move { file.read_at(vec![0; LEN].into_boxed_slice(), 0).await });
            _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            io::Result::Ok(read)
        });
        drop(kept);
    }
}

async fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    Ok((one, listener.accept().await?.0))
}

#[test]
fn sends_of_every_kind_of_memory_with_and_without_a_copy() {
    on_both(async || {
        let (mut one, mut other) = tcp_pair().await?;
        // The lengths are above and below the threshold for zero-copy sends. Chunks are sent one at
        // a time and several at once.
        for len in [500, 20] {
            let bytes = || vec![len as u8; len];
            let chunks = [
                Chunk::from(bytes()),
                Chunk::from(bytes().into_boxed_slice()),
                Chunk::from(Arc::<[u8]>::from(bytes())),
                Chunk::from(SharedBytes::from(bytes())),
                Chunk::from_owner(bytes().into_boxed_slice()),
                Chunk::from_buf(bytes().into_boxed_slice().slice(..)),
            ];
            let count = chunks.len();
            for chunk in chunks {
                one.send(chunk).await?;
                assert_eq!(*other.recv_exact(len).await?, bytes());
            }
            for _ in 0..count {
                one.send(bytes().into_boxed_slice()).await?;
            }
            assert_eq!(*other.recv_exact(count * len).await?, vec![len as u8; count * len]);
        }
        Ok(())
    });
}

#[test]
fn sends_that_wait_for_space() {
    on_both(async || {
        let (mut one, mut other) = tcp_pair().await?;
        let task = annulus::spawn(async move {
            for _ in 0..2 {
                one.send(vec![5; 10_000].into_boxed_slice()).await?;
                one.send("and").await?;
            }
            one.shutdown().await
        });
        let mut count = 0;
        while let Some(lease) = other.recv().await? {
            count += lease.len();
        }
        assert_eq!(count, 2 * 10_003);
        task.await.expect("the task panicked")
    });
}

#[test]
fn a_dropped_stream_keeps_bytes_in_flight() {
    on_both(async || {
        let (mut one, mut other) = tcp_pair().await?;
        one.send(vec![5; 10_000].into_boxed_slice()).await?;
        one.send(vec![6; 10_000].into_boxed_slice()).await?;
        drop(one);
        let mut count = 0;
        while let Some(lease) = other.recv().await? {
            count += lease.len();
        }
        assert_eq!(count, 20_000);
        let (mut one, other) = tcp_pair().await?;
        // More than fits into the buffer, so the send is still in flight.
        one.send(vec![5; 20_000].into_boxed_slice()).await?;
        yield_now().await;
        one.abort();
        drop(other);
        Ok(())
    });
}

#[test]
fn receives_into_lent_and_heap_memory() {
    on_both(async || {
        let mut leases = Vec::new();
        let (mut one, mut other) = UnixStream::pair()?;
        for byte in 0..8 {
            // The pool has four buffers; the rest are received into heap memory.
            one.send(vec![byte; 2048]).await?;
            leases.push(other.recv_exact(2048).await?);
        }
        for (byte, lease) in leases.iter().enumerate() {
            assert!(lease.iter().all(|got| usize::from(*got) == byte));
        }
        Ok(())
    });
}

#[test]
fn datagrams_in_both_directions() {
    on_both(async || {
        let one = UdpSocket::bind("127.0.0.1:0")?;
        let other = UdpSocket::bind("127.0.0.1:0")?;
        for round in 0..3 {
            for byte in 0..4 {
                let bytes = vec![byte; 100 + round].into_boxed_slice();
                one.send_to(bytes, other.local_addr()?).await?;
            }
            for byte in 0..4 {
                let (lease, from) = other.recv_from().await?;
                assert_eq!((&*lease, from), (&*vec![byte; 100 + round], one.local_addr()?));
            }
        }
        let (one, other) = UnixDatagram::pair()?;
        one.send(vec![9; 10].into_boxed_slice()).await?;
        assert_eq!(*other.recv().await?, [9; 10]);
        Ok(())
    });
}
