//! A peer that stops reading.

use crate::rustls::certificates::session;
use crate::rustls::worlds::{Session, World};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::time::timeout;
use std::io;
use std::time::Duration;

/// More than the buffers of both sockets, the queue of the stream and what rustls keeps have together.
const MOST: usize = 8 << 20;

/// Writes for ten seconds of virtual time to a peer that reads nothing, until nothing more is accepted; how much was.
async fn fill(server: &mut Session) -> io::Result<usize> {
    let mut accepted = 0;
    let fills = async {
        loop {
            accepted += server.write(&[7; 10_000]).await?;
            assert!(accepted <= MOST, "{accepted} bytes were accepted");
        }
    };
    let filled: Result<io::Result<()>, _> = timeout(Duration::from_secs(10), fills).await;
    assert!(filled.is_err(), "it waits");
    Ok(accepted)
}

#[test]
fn a_peer_that_stops_reading_holds_the_sender() {
    World::Simulated.run(async |world| {
        let (mut client, mut server) = session(world).await?;
        let accepted = fill(&mut server).await?;
        let ends = annulus::spawn(async move {
            server.flush().await?;
            server.shutdown().await
        });
        let mut bytes = Vec::new();
        AsyncRecv::read_to_end(&mut client, &mut bytes, MOST).await?;
        assert_eq!(bytes.len(), accepted, "what was accepted arrives");
        assert!(bytes.iter().all(|byte| *byte == 7));
        ends.await??;
        Ok(())
    });
}

/// Bytes that wait in the session leave while its task only receives.
#[test]
fn what_was_written_leaves_without_a_flush_while_the_task_receives() {
    World::Simulated.run(async |world| {
        let (mut client, mut server) = session(world).await?;
        let mut accepted = fill(&mut server).await?;
        assert!(server.state().wants_write(), "some waits in the session");
        let answers = annulus::spawn(async move {
            while accepted > 0 {
                accepted -= client.recv().await?.expect("more").len();
            }
            client.send("all").await
        });
        assert_eq!(*server.recv_exact(3).await?, *b"all");
        answers.await??;
        Ok(())
    });
}
