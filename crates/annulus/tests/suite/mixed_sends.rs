//! Sends of every kind on one stream, in any order, over a simulated network with faults. The bytes
//! arrive exactly in order; if the stream was reset, a prefix of them arrives.

use crate::common;

use annulus::fs::{self, File};
use annulus::io::{AsyncSend, copy};
use annulus::net::TcpStream;
use annulus::sim::{Fault, Faults, Link, Sim, run_on};
use annulus::{Builder, Runtime, SharedBytes, counters, spawn};
use annulus_sim::Random;
use common::{pair, pattern};
use std::cell::RefCell;
use std::io::{self, IoSlice, SeekFrom};
use std::rc::Rc;

/// Bytes of the file that is sent.
const FILE: usize = 50_000;
const SEEDS: u64 = 150;

/// The sending side of a run.
struct Sender {
    random: Random,
    stream: TcpStream,
    file: File,
    text: Vec<u8>,
    /// Everything that has been sent so far.
    sent: Rc<RefCell<Vec<u8>>>,
}

impl Sender {
    /// Returns a piece of up to 150,000 bytes, and records it as sent.
    fn piece(&mut self) -> Vec<u8> {
        let most = self.random.pick(&[16, 1000, 9000, 20_000, 150_000]);
        let len = self.random.between(1, most) as usize;
        let at = self.random.below((self.text.len() - len) as u64) as usize;
        let piece = self.text[at..at + len].to_vec();
        self.sent.borrow_mut().extend(&piece);
        piece
    }

    async fn step(&mut self) -> io::Result<()> {
        match self.random.below(9) {
            0 => self.send_file().await,
            1 => self.stream.drain().await,
            2 => self.stream.flush().await,
            3 => self.write_slices().await,
            4 => {
                let piece = self.piece();
                self.stream.send(piece).await
            }
            5 => {
                let piece = SharedBytes::from(self.piece());
                let halves = [piece.slice(..piece.len() / 2), piece.slice(piece.len() / 2..)];
                self.stream.send_vectored(halves).await
            }
            _ => {
                let piece = self.piece();
                self.stream.write_all(&piece).await
            }
        }
    }

    /// Sends the file from a random offset to its end.
    async fn send_file(&mut self) -> io::Result<()> {
        let at = self.random.below(FILE as u64);
        self.sent.borrow_mut().extend(&self.text[at as usize..FILE]);
        self.file.seek(SeekFrom::Start(at)).await?;
        copy(&mut self.file, &mut self.stream).await.map(drop)
    }

    /// Writes a piece in slices, with as many calls as it takes.
    async fn write_slices(&mut self) -> io::Result<()> {
        let piece = self.piece();
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len() / 7);
            let slices = [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)];
            rest = &rest[self.stream.write_vectored(&slices).await?..];
        }
        Ok(())
    }
}

/// Runs a sender to its end or its error. Returns the bytes that it sent and those that arrived.
async fn exchange(random: Random, sim: Rc<Sim>, faults: Faults) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let text = pattern(200_000);
    fs::write("/file", text[..FILE].to_vec()).await?;
    let (stream, mut remote) = pair().await?;
    let received = Rc::new(RefCell::new(Vec::new()));
    let into = received.clone();
    let receiver = spawn(async move {
        while let Ok(Some(lease)) = remote.recv().await {
            into.borrow_mut().extend_from_slice(&lease);
        }
    });
    let sent = Rc::new(RefCell::new(Vec::new()));
    let file = File::open("/file").await?;
    let mut sender = Sender { random, stream, file, text, sent: sent.clone() };
    sim.set_faults(faults);
    for _ in 0..sender.random.between(5, 50) {
        if sender.step().await.is_err() {
            break;
        }
    }
    drop(sender);
    receiver.await.expect("the task panicked");
    Ok((sent.take(), received.take()))
}

/// Chooses the settings of a run: small or usual bounds, and zero-copy or copied sends.
fn settings(random: &mut Random) -> Builder {
    let builder = Runtime::builder().unsent_limit(random.pick(&[1000, 30_000, 256 * 1024]));
    let threshold = random.pick(&[None, None, Some(1), Some(10_000)]);
    builder.zero_copy_threshold(threshold)
}

/// Runs many seeds. Returns the number of direct sends.
fn run_all(faults: impl Fn(&mut Random) -> Faults, check: impl Fn(u64, &[u8], &[u8])) -> u64 {
    let mut direct = 0;
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let (link, builder) = (Link::any(&mut random), settings(&mut random));
        let sim = Sim::builder(seed).link(link).build();
        let faults = faults(&mut random);
        let world = sim.clone();
        let (sent, received) = run_on(&sim, builder, async {
            let ends = exchange(random, world, faults).await;
            direct += counters().unwrap().direct_sends;
            ends
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        check(seed, &sent, &received);
        sim.check();
        assert_eq!(sim.leftovers(), [""; 0], "seed {seed}");
    }
    direct
}

#[test]
fn bytes_arrive_exactly_in_order() {
    let faults = |random: &mut Random| {
        let often = |random: &mut Random| random.pick(&[0, 50, 300]);
        Faults::none()
            .with(Fault::ShortWrite, often(random))
            .with(Fault::Defer, often(random))
            .with(Fault::PartialSubmit, often(random))
            .with(Fault::NoMemory, random.pick(&[0, 0, 20]))
    };
    let direct = run_all(faults, |seed, sent, received| {
        assert!(sent == received, "seed {seed}: {} sent, {} received", sent.len(), received.len());
    });
    assert!(direct > SEEDS, "only {direct} sends were direct");
}

#[test]
fn a_prefix_of_a_reset_stream_arrives() {
    let faults =
        |_: &mut Random| Faults::none().with(Fault::Reset, 20).with(Fault::ShortWrite, 100);
    let cut = std::cell::Cell::new(0);
    run_all(faults, |seed, sent, received| {
        assert!(sent.starts_with(received), "seed {seed}");
        cut.set(cut.get() + u32::from(received.len() < sent.len()));
    });
    assert!(cut.get() > 10, "only {} runs were cut off", cut.get());
}
