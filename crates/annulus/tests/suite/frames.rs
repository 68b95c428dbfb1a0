//! Frames sent in pieces of any size arrive whole. A frame that lies in one piece is a lease on the
//! received bytes.

use annulus::io::AsyncRecv;
use annulus::net::UnixStream;
use annulus::sim::{Sim, run_on};
use annulus::time::{sleep, timeout};
use annulus::{Runtime, spawn};
use proptest::prelude::*;
use std::io;
use std::time::Duration;

const LIMIT: usize = 40_000;

/// Returns the length of a frame: a length in three bytes, followed by that many bytes.
fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[a, b, c]) = bytes.first_chunk() else { return Ok(None) };
    Ok(Some(3 + usize::from(a) * 65_536 + usize::from(b) * 256 + usize::from(c)))
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    let [_, head @ ..] = u32::try_from(len).unwrap().to_be_bytes();
    head.into_iter().chain((0..len).map(|at| (at * 7 + number) as u8)).collect()
}

/// Sends the frames in pieces of these sizes, cyclically. A pause after each piece lets the reader
/// take it.
async fn send(mut stream: UnixStream, frames: Vec<Vec<u8>>, pieces: Vec<usize>) -> io::Result<()> {
    let bytes = frames.concat();
    let (mut rest, mut sizes) = (&bytes[..], pieces.into_iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
        stream.send(piece.to_vec()).await?;
        sleep(Duration::from_millis(1)).await;
        rest = behind;
    }
    stream.shutdown().await
}

/// Receives the frames. The first waits end early, after these many microseconds.
async fn receive(stream: &mut UnixStream, waits: Vec<u64>) -> io::Result<Vec<Vec<u8>>> {
    let mut waits = waits.into_iter();
    let mut got = Vec::new();
    loop {
        let reading = stream.read_frame(LIMIT, length);
        let read = match waits.next() {
            Some(wait) => match timeout(Duration::from_micros(wait), reading).await {
                Ok(read) => read?,
                Err(_) => continue,
            },
            None => reading.await?,
        };
        match read {
            Some(frame) => got.push(frame.to_vec()),
            None => return Ok(got),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn frames_arrive_whole_however_they_are_split(
        lens in proptest::collection::vec(prop_oneof![0..10_usize, 0..300_usize, 0..30_000_usize], 1..20),
        pieces in proptest::collection::vec(prop_oneof![1..5_usize, 1..500_usize, 1..40_000_usize], 1..10),
        waits in proptest::collection::vec(0..3_000_u64, 0..30),
    ) {
        let frames: Vec<_> = lens.iter().enumerate().map(|(at, len)| frame(at, *len)).collect();
        let sent = frames.clone();
        // A long transfer in tiny pieces takes long, and shows nothing that a short one does not
        // show.
        let total: usize = frames.iter().map(Vec::len).sum();
        prop_assume!(total / (pieces.iter().sum::<usize>() / pieces.len()).max(1) < 5_000);
        let got = run_on(&Sim::builder(1).build(), Runtime::builder(), async move {
            let (client, mut server) = UnixStream::pair()?;
            let sender = spawn(send(client, sent, pieces));
            let got = receive(&mut server, waits).await?;
            sender.await.expect("the task panicked")?;
            io::Result::Ok(got)
        });
        prop_assert!(got.unwrap() == frames);
    }
}
