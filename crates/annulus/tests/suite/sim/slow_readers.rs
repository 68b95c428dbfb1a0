//! The example `static_files` in virtual time: a client that does not read loses its connection,
//! and a slow reader does not.

#[path = "../../../examples/static_files.rs"]
#[expect(dead_code, reason = "its `main` is the test")]
mod static_files;

use annulus::io::AsyncRecv;
use annulus::net::TcpStream;
use annulus::sim::{Sim, run_on};
use annulus::time::{Instant, sleep};
use annulus::{Runtime, fs, spawn};
use std::io;
use std::time::Duration;

const SERVER: &str = "10.0.0.1:80";
const SECOND: Duration = Duration::from_secs(1);
const LENGTH: usize = 8 << 20;

/// Returns a client that has asked for a file.
async fn ask(target: &str) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect(SERVER).await?;
    client.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")).await?;
    Ok(client)
}

/// Returns the first line of a reply.
async fn status(client: &mut TcpStream) -> io::Result<String> {
    let line = client.recv_until(b'\n', 1000).await?.expect("the stream ended too early");
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_a_slow_reader_is_not() -> io::Result<()> {
    run_on(&Sim::builder(1).build(), Runtime::builder(), async {
        fs::write("/big", vec![7; LENGTH]).await?;
        fs::write("/small", "small").await?;
        spawn(static_files::server(SERVER.into(), "/".into(), 1));
        sleep(SECOND).await;

        let began = Instant::now();
        let silent = ask("/big").await?;
        let refused = loop {
            let mut client = ask("/small").await?;
            if status(&mut client).await?.contains("200") {
                break began.elapsed();
            }
            drop(client);
            sleep(SECOND).await;
        };
        assert!((60 * SECOND..62 * SECOND).contains(&refused), "{refused:?}");
        drop(silent);
        sleep(SECOND).await;

        // The client makes one receive every two seconds, which is fast enough for the minute that
        // each part of the reply may take.
        let mut slow = ask("/big").await?;
        assert!(status(&mut slow).await?.contains("200"));
        let (mut read, began) = (0, Instant::now());
        while read < LENGTH {
            read += slow.recv().await?.expect("the stream ended too early").len();
            sleep(2 * SECOND).await;
        }
        assert!(began.elapsed() > 60 * SECOND, "the reader was not slow: {:?}", began.elapsed());
        Ok(())
    })
}
