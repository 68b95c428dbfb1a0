//! Clients and a server that echo messages to each other on the simulated kernel, so that `cargo
//! xtask instructions` can count the instructions per message. Both ends do the work of an echo
//! server, and the simulated kernel batches in the same way every time. Run it with `cargo run
//! --release -p annulus-instructions -- tcp 50 128 10000`. The arguments are tcp or udp, clients,
//! bytes per message, and total messages. Over UDP, one socket serves all clients. `tcp-measured`
//! is tcp on a runtime that measures its turns; reading the clock is part of the simulated kernel
//! and not counted.

use annulus::net::{TcpListener, TcpStream, UdpOptions, UdpSocket};
use annulus::sim::{Sim, run_on};
use annulus::task::JoinHandle;
use annulus::{MemoryLimit, Runtime, spawn};
use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

const USAGE: &str = "usage: instructions tcp|tcp-measured|udp CLIENTS BYTES MESSAGES";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let numbers: Result<Vec<usize>, _> = words.iter().skip(1).map(|text| text.parse()).collect();
    let (Some(way @ ("tcp" | "tcp-measured" | "udp")), Ok(&[clients, bytes, messages])) =
        (words.first().map(String::as_str), numbers.as_deref())
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // Unlike other runtimes, simulations have no memory limit by default. This limit is never
    // reached.
    let builder = Runtime::builder()
        .memory_limit(Some(MemoryLimit::new(1 << 30)))
        .measure(way == "tcp-measured");
    let result = run_on(&Sim::builder(1).build(), builder, async {
        match way {
            "udp" => echo_datagrams(clients, bytes, messages).await,
            _ => echo_over_streams(clients, bytes, messages).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn echo_over_streams(clients: usize, bytes: usize, messages: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    let left = Rc::new(Cell::new(messages));
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (server, _) = listener.accept().await?;
        client.send(vec![7; bytes]).await?;
        tasks.extend([send_back(client, &left), send_back(server, &left)]);
    }
    for task in tasks {
        // Fails with a reset if the client is still sending after its peer has ended.
        _ = task.await;
    }
    Ok(())
}

/// Sends received messages back until the number of messages is used up.
fn send_back(mut stream: TcpStream, left: &Rc<Cell<usize>>) -> JoinHandle<io::Result<()>> {
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

/// Ends when the server has ended; clients that wait for an answer are dropped with the runtime.
async fn echo_datagrams(clients: usize, bytes: usize, messages: usize) -> io::Result<()> {
    let server = UdpOptions::new().recv_buffer_size(1 << 22).bind("127.0.0.1:7000")?;
    for _ in 0..clients {
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.send_to(vec![7; bytes], server.local_addr()?).await?;
        drop(spawn(async move { return_datagrams(&client, usize::MAX).await }));
    }
    return_datagrams(&server, messages / 2).await
}

/// Receives `count` datagrams and sends each back.
async fn return_datagrams(socket: &UdpSocket, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let (lease, from) = socket.recv_from().await?;
        socket.send_to(lease, from).await?;
    }
    Ok(())
}
