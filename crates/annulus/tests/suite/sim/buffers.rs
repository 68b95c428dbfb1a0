//! A kernel that reports a lack of buffers although all are published. Linux 6.1 does this, since
//! each waiting read holds a buffer.

use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Fault, Faults, Sim, run_on};
use annulus::time::timeout;
use annulus::{Runtime, counters, spawn};
use std::io;
use std::time::Duration;

const LEN: usize = 100_000;

async fn there_and_back() -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (mut server, _) = listener.accept().await?;
    let echo = spawn(async move {
        while let Some(lease) = server.recv().await? {
            server.send(lease).await?;
        }
        io::Result::Ok(())
    });
    client.send(vec![7; LEN]).await?;
    let mut received = 0;
    while received < LEN {
        received += client.recv().await?.expect("the stream ended too early").len();
    }
    drop(client);
    echo.await.unwrap()?;
    let counters = counters().unwrap();
    assert!(counters.heap_receives > 0);
    Ok(counters.enobufs / counters.heap_receives)
}

#[test]
fn a_receive_that_repeatedly_finds_no_buffer_uses_the_heap() {
    let faults = Faults::none().with(Fault::NoBuffers, 1000);
    let sim = Sim::builder(1).faults(faults).build();
    let ran = run_on(&sim, Runtime::builder(), async {
        let served = timeout(Duration::from_millis(100), there_and_back()).await;
        served.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    });
    let tries = ran.expect("the client was not served");
    assert!(tries <= 2, "{tries} tries per receive");
}
