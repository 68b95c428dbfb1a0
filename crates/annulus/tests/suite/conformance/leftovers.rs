//! A forgotten or dropped future leaves state in its stream. These tests then free the stream's
//! slot in every way. No byte may reach a connection that it was not sent on, and the next stream
//! in the slot must work.

use crate::common::{pair, receive, touch};
use annulus::io::copy_bidirectional;
use annulus::net::{TcpListener, TcpStream, UnixOptions, UnixStream};
use annulus::task::{JoinHandle, yield_now};
use annulus::time::timeout;
use annulus::{pipe, spawn};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Waker};
use std::time::Duration;

/// Far more than the stream's queues and the sockets hold.
const MUCH: usize = 200_000;
/// Bytes that the stream sends itself.
const OWN: u8 = b'o';
/// Bytes that a copy sends on the stream.
const COPIED: u8 = b'c';
/// Bytes of other connections.
const FOREIGN: u8 = b'f';

/// The operation that was started on a stream and is waiting.
#[derive(Clone, Copy, Debug)]
enum Begun {
    Nothing,
    Receive,
    Send,
    Drain,
    CopyToIt,
    CopyFromIt,
}

/// How the future was abandoned.
#[derive(Clone, Copy, Debug)]
enum Left {
    Forgotten,
    Dropped,
}

/// The call that ends the stream.
#[derive(Clone, Copy, Debug)]
enum Freed {
    Drop,
    Abort,
    Shutdown,
    IntoParts,
    DroppedIntoParts,
    Reunite,
}

const BEGUN: [Begun; 6] =
    [Begun::Nothing, Begun::Receive, Begun::Send, Begun::Drain, Begun::CopyToIt, Begun::CopyFromIt];
const LEFT: [Left; 2] = [Left::Forgotten, Left::Dropped];
const FREED: [Freed; 6] = [
    Freed::Drop,
    Freed::Abort,
    Freed::Shutdown,
    Freed::IntoParts,
    Freed::DroppedIntoParts,
    Freed::Reunite,
];

impl Left {
    /// Polls a future once, and then drops or forgets it.
    fn leave<F: Future>(self, future: F) {
        match self {
            Self::Dropped => drop(touch(future)),
            Self::Forgotten => {
                let mut future = Box::pin(future);
                _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                std::mem::forget(future);
            }
        }
    }
}

/// Lets the loop take turns, in which it processes incoming events.
async fn a_few_turns() {
    for _ in 0..8 {
        yield_now().await;
    }
}

fn send_copied(mut client: TcpStream) -> JoinHandle<io::Result<()>> {
    spawn(async move {
        for _ in 0..64 {
            client.send(vec![COPIED; MUCH / 64]).await?;
        }
        client.shutdown().await
    })
}

async fn begin(begun: Begun, left: Left, stream: &mut UnixStream, near: &mut TcpStream) {
    match begun {
        Begun::Nothing => {}
        Begun::Receive => left.leave(stream.recv()),
        Begun::Send => left.leave(stream.send(vec![OWN; MUCH])),
        Begun::Drain => {
            _ = touch(stream.send(vec![OWN; MUCH]));
            left.leave(stream.drain());
        }
        Begun::CopyToIt => left.leave(copy_bidirectional(near, stream)),
        Begun::CopyFromIt => left.leave(copy_bidirectional(stream, near)),
    }
}

/// Ends the stream in this way. What is then left of it is dropped on return.
async fn free(freed: Freed, mut stream: UnixStream) {
    match freed {
        Freed::Drop => drop(stream),
        Freed::Abort => stream.abort(),
        Freed::Shutdown => _ = stream.shutdown().await,
        Freed::IntoParts => _ = stream.into_parts().await,
        Freed::DroppedIntoParts => _ = touch(stream.into_parts()),
        Freed::Reunite => {
            let (receiving, sending) = stream.into_split();
            drop(UnixStream::reunite(receiving, sending));
        }
    }
}

/// Checks that new connections, which take the free slots, carry what is sent in both directions,
/// and nothing else.
async fn others_work() -> io::Result<()> {
    for _ in 0..3 {
        let (mut one, mut other) = pair().await?;
        for len in [1, 6_000] {
            one.send(vec![FOREIGN; len]).await?;
            assert!(receive(&mut other, len).await? == vec![FOREIGN; len]);
            other.send(vec![FOREIGN; len]).await?;
            assert!(receive(&mut one, len).await? == vec![FOREIGN; len]);
        }
    }
    Ok(())
}

/// Leaves a future behind on a stream, and then frees the stream while its peer does not read.
/// Bytes that could be copied to the stream arrive before the freeing begins if `before` is true,
/// and after that otherwise.
async fn one_way(begun: Begun, left: Left, freed: Freed, before: bool) -> io::Result<()> {
    // The kernel accepts few bytes while nobody reads, so sends stay in flight for long.
    let (mut stream, mut outside) = UnixOptions::new().send_buffer_size(10_000).pair()?;
    let (client, mut near) = pair().await?;
    begin(begun, left, &mut stream, &mut near).await;
    a_few_turns().await;
    let sending = send_copied(client);
    if before {
        a_few_turns().await;
    }
    let mut freeing = Box::pin(free(freed, stream));
    let is_done = touch(freeing.as_mut()).is_some();
    a_few_turns().await;
    let freeing = spawn(async move {
        if !is_done {
            freeing.await;
        }
    });
    others_work().await?;
    let reading = spawn(async move {
        let mut got = [0_usize; 256];
        while let Ok(Some(lease)) = outside.recv().await {
            // Comparing slices is fast even in a debug build.
            let is_one = lease.len() > 1 && lease[1..] == lease[..lease.len() - 1];
            let counted = if is_one { lease.len() } else { 1 };
            lease.iter().step_by(counted).for_each(|byte| got[usize::from(*byte)] += counted);
        }
        got
    });
    freeing.await.expect("the task panicked");
    others_work().await?;
    drop(near);
    let got = reading.await.expect("the task panicked");
    let all: usize = got.iter().sum();
    let of = |byte: u8| got[usize::from(byte)];
    assert_eq!(of(FOREIGN), 0, "bytes of another connection arrived");
    assert_eq!(of(OWN) + of(COPIED), all, "bytes arrived that were not sent");
    assert!(of(OWN) == 0 || matches!(begun, Begun::Send | Begun::Drain));
    assert!(of(COPIED) == 0 || matches!(begun, Begun::CopyToIt | Begun::CopyFromIt));
    // Ignores the sender's error, which occurs if the connection was reset.
    _ = sending.await.expect("the task panicked");
    Ok(())
}

pub(crate) async fn every_way_to_free_a_stream_after_every_abandoned_future() -> io::Result<()> {
    for case in 0..BEGUN.len() * LEFT.len() * FREED.len() * 2 {
        let (before, case) = (case % 2 == 0, case / 2);
        let (freed, case) = (FREED[case % FREED.len()], case / FREED.len());
        let (left, begun) = (LEFT[case % LEFT.len()], BEGUN[case / LEFT.len()]);
        let text = format!("{begun:?}, {left:?}, {freed:?}, bytes before: {before}");
        timeout(Duration::from_secs(20), one_way(begun, left, freed, before))
            .await
            .unwrap_or_else(|_| panic!("{text}: still waiting"))
            .map_err(|error| io::Error::new(error.kind(), format!("{text}: {error}")))?;
    }
    Ok(())
}

/// The runtime ends while all of these futures are abandoned.
pub(crate) async fn the_runtime_ends_after_every_abandoned_future() -> io::Result<()> {
    for (begun, left) in BEGUN.into_iter().flat_map(|begun| LEFT.map(|left| (begun, left))) {
        let ((mut stream, outside), (mut client, mut near)) = (UnixStream::pair()?, pair().await?);
        begin(begun, left, &mut stream, &mut near).await;
        _ = touch(client.send(vec![COPIED; MUCH]));
        a_few_turns().await;
        // Some handles outlive the runtime's last turn in a task, some are dropped, and some never
        // are.
        match left {
            Left::Forgotten => std::mem::forget((stream, outside, client, near)),
            Left::Dropped => drop(spawn(async move {
                let _held = (stream, outside, client, near);
                std::future::pending::<()>().await;
            })),
        }
    }
    Ok(())
}

pub(crate) async fn abandoned_connects_and_accepts_leak_nothing() -> io::Result<()> {
    for left in LEFT {
        for _ in 0..4 {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            left.leave(TcpStream::connect(address));
            left.leave(listener.accept());
            a_few_turns().await;
            drop(listener);
            others_work().await?;
        }
    }
    Ok(())
}

pub(crate) async fn abandoned_descriptors_and_pipes_leak_nothing() -> io::Result<()> {
    for left in LEFT {
        for freed in [Freed::Drop, Freed::Abort, Freed::IntoParts] {
            let (mut stream, mut other) = UnixOptions::new().descriptors(true).pair()?;
            left.leave(stream.recv_with_descriptors());
            let file = || std::fs::File::open("/dev/null").map(|file| vec![OwnedFd::from(file)]);
            left.leave(stream.send_with_descriptors(vec![OWN; MUCH], file()?));
            _ = touch(other.send_with_descriptors(vec![OWN; 10], file()?));
            a_few_turns().await;
            let task = spawn(free(freed, stream));
            a_few_turns().await;
            others_work().await?;
            drop(other);
            task.await.expect("the task panicked");
            others_work().await?;
        }
        let (mut sender, mut receiver) = pipe::pipe()?;
        left.leave(receiver.recv());
        left.leave(sender.send(vec![OWN; MUCH]));
        a_few_turns().await;
        drop(receiver);
        others_work().await?;
        drop(sender);
        others_work().await?;
    }
    Ok(())
}
