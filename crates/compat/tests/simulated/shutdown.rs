//! The service of the example `all_cores` on the simulated network: the program that `main` runs on
//! each shard, here on one. A signal arrives in the middle of a request while the network is
//! disturbed.

#[path = "../../examples/all_cores.rs"]
#[expect(
    dead_code,
    reason = "a simulation has one thread, so it runs the program of one shard instead of `main`"
)]
mod all_cores;

use all_cores::{Shared, serve};
use annulus::Runtime;
use annulus::net::{TcpListener, TcpStream};
use annulus::signal::Signal;
use annulus::sim::{Disturbance, Disturbances, Network, Random, Sim, check};
use annulus::time::sleep;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// Number of seeds; `ANNULUS_SIM_SEEDS` overrides it.
const SEED_COUNT: u64 = 100;
/// Maximum number of bytes of the note whose request the signal interrupts.
const MAX_NOTE_BYTES: u64 = 100_000;

/// Sends a request, and reads until the response ends with `end`.
async fn ask(stream: &mut TcpStream, request: &str, end: &str) -> io::Result<String> {
    stream.send(request.to_owned()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        answer.extend_from_slice(&stream.recv().await?.ok_or(ErrorKind::UnexpectedEof)?);
    }
    Ok(String::from_utf8(answer).expect("the answer is not text"))
}

/// Starts disturbances that neither break a connection nor delay a request beyond its timeout.
fn disturb(network: &Network) {
    let kinds = &[Disturbance::Partition, Disturbance::Delay];
    let pause = SECOND / 100..SECOND;
    network.disturb(Disturbances { kinds, pause, length: SECOND / 1000..SECOND });
}

async fn client(network: Network, ended: Rc<Cell<u32>>, seed: u64) -> io::Result<()> {
    let mut random = Random::new(seed);
    let mut stream = TcpStream::connect("server:80").await?;
    disturb(&network);
    let hello = ask(&mut stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n", "from shard 0\n").await?;
    assert!(hello.starts_with("HTTP/1.1 200"), "{hello}");
    network.calm();
    sleep(3 * SECOND).await;

    let text = "x".repeat(random.between(2, MAX_NOTE_BYTES) as usize);
    let (first, rest) = text.split_at(random.below(text.len() as u64) as usize);
    let length = text.len();
    let request =
        format!("PUT /notes/last HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.send(request + first).await?;
    // Wait until the first part has arrived.
    sleep(SECOND).await;
    network.signal("server", Signal::SIGTERM)?;
    disturb(&network);
    // Calm the network early enough that the request meets its ten-second timeout even with
    // retransmissions.
    let calms = network.clone();
    annulus::spawn(async move {
        sleep(3 * SECOND).await;
        calms.calm();
    });
    sleep(Duration::from_millis(random.below(2000))).await;
    let answer = ask(&mut stream, rest, "\r\n\r\n").await?;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    assert!(stream.recv().await?.is_none(), "the connection is still open");
    sleep(4 * SECOND).await;
    let refused = TcpStream::connect("server:80").await.unwrap_err();
    assert_eq!((refused.kind(), ended.get()), (ErrorKind::ConnectionRefused, 1));

    network.bounce("server")?;
    sleep(SECOND).await;
    let mut stream = TcpStream::connect("server:80").await?;
    let note = ask(&mut stream, "GET /notes/last HTTP/1.1\r\nhost: x\r\n\r\n", &text).await?;
    assert!(note.starts_with("HTTP/1.1 200"), "{note}");
    let square = ask(&mut stream, "GET /square/7 HTTP/1.1\r\nhost: x\r\n\r\n", "\n").await?;
    assert!(square.starts_with("HTTP/1.1 503"), "a simulation has no database: {square}");
    Ok(())
}

#[test]
fn request_in_progress_is_answered_after_the_signal() {
    check(0..SEED_COUNT, |seed| {
        let sim = Sim::builder(seed).build();
        let network = Network::on(
            &sim,
            seed,
            Runtime::builder().stream_buffer_size(16 * 1024).stream_buffer_count(64),
        );
        let shared = Shared::new(1, "/nowhere".into(), "user".into());
        let ended = Rc::new(Cell::new(0));
        let ends = ended.clone();
        network.host("server", move || {
            let (ends, shared) = (ends.clone(), shared.clone());
            async move {
                let (listener, stop) = (TcpListener::bind("0.0.0.0:80")?, CancellationToken::new());
                let served = serve(listener, 0, &[annulus::handle()?], stop, shared).await;
                ends.set(ends.get() + 1);
                served.map_err(io::Error::other)
            }
        })?;
        network.client("client", client(network.clone(), ended, seed))?;
        network.run()
    });
}
