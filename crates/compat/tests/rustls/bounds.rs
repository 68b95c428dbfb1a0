//! A peer that stops reading.

use crate::rustls::certificates::session;
use crate::rustls::worlds::{Session, World};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::time::timeout;
use std::io;
use std::time::Duration;

/// Number of bytes that a blocked session must not exceed: more than the buffers of both sockets,
/// the stream's queue and rustls's buffers together.
const MAX_ACCEPTED_BYTES: usize = 8 << 20;

/// Writes for ten seconds of virtual time to a peer that reads nothing, and returns the number of
/// bytes accepted.
async fn fill(server: &mut Session) -> io::Result<usize> {
    let mut accepted = 0;
    let fills = async {
        loop {
            accepted += server.write(&[7; 10_000]).await?;
            assert!(accepted <= MAX_ACCEPTED_BYTES, "{accepted} bytes were accepted");
        }
    };
    let filled: Result<io::Result<()>, _> = timeout(Duration::from_secs(10), fills).await;
    assert!(filled.is_err(), "the writes did not block");
    Ok(accepted)
}

#[test]
fn sender_waits_while_its_peer_does_not_read() {
    World::Simulated.run(async |world| {
        let (mut client, mut server) = session(world).await?;
        let accepted = fill(&mut server).await?;
        let ends = annulus::spawn(async move {
            server.flush().await?;
            server.shutdown().await
        });
        let mut bytes = Vec::new();
        AsyncRecv::read_to_end(&mut client, &mut bytes, MAX_ACCEPTED_BYTES).await?;
        assert_eq!(bytes.len(), accepted, "accepted bytes are missing");
        assert!(bytes.iter().all(|byte| *byte == 7));
        ends.await??;
        Ok(())
    });
}

/// Bytes queued in the session are sent while its task only receives.
#[test]
fn queued_data_is_sent_while_the_task_receives() {
    World::Simulated.run(async |world| {
        let (mut client, mut server) = session(world).await?;
        let mut accepted = fill(&mut server).await?;
        assert!(server.state().wants_write(), "nothing is queued in the session");
        let answers = annulus::spawn(async move {
            while accepted > 0 {
                accepted -= client.recv().await?.expect("the bytes ended early").len();
            }
            client.send("all").await
        });
        assert_eq!(*server.recv_exact(3).await?, *b"all");
        answers.await??;
        Ok(())
    });
}
