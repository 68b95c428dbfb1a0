//! Connections that throw a message each to and fro on the simulated kernel, for `cargo xtask instructions` to count what a
//! message costs: both ends do what an echo server does, and a played kernel batches the same way every time.
//! `cargo run --release -p annulus --features sim --example instructions -- 50 128 10000`
//!
//! The numbers: connections, bytes a message, messages in all.

use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Sim, run_on};
use annulus::{JoinHandle, Runtime, spawn};
use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

const USAGE: &str = "usage: instructions CONNECTIONS BYTES MESSAGES";

fn main() -> ExitCode {
    let numbers: Result<Vec<usize>, _> =
        std::env::args().skip(1).map(|text| text.parse()).collect();
    let Ok(&[connections, bytes, messages]) = numbers.as_deref() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run_on(&Sim::builder(1).build(), Runtime::builder(), play(connections, bytes, messages)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn play(connections: usize, bytes: usize, messages: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    let left = Rc::new(Cell::new(messages));
    let mut players = Vec::new();
    for _ in 0..connections {
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (server, _) = listener.accept().await?;
        client.send(vec![7; bytes]).await?;
        players.extend([throw_back(client, &left), throw_back(server, &left)]);
    }
    for player in players {
        // Whoever plays on when the other has left is reset.
        _ = player.await;
    }
    Ok(())
}

/// Sends back what comes until enough was thrown.
fn throw_back(mut stream: TcpStream, left: &Rc<Cell<usize>>) -> JoinHandle<io::Result<()>> {
    let left = left.clone();
    spawn(async move {
        while let Some(lease) = stream.recv().await? {
            let Some(fewer) = left.get().checked_sub(1) else { break };
            left.set(fewer);
            stream.send(lease).await?;
        }
        Ok(())
    })
}
