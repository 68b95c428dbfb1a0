//! Sessions that end.

use crate::rustls::certificates::session;
use crate::rustls::worlds::{Session, everywhere};
use annulus::io::{AsyncRecv, AsyncSend};
use std::io::{self, ErrorKind};

#[test]
fn shutdown_ends_only_one_direction() {
    everywhere(async |world| {
        let (mut client, mut server) = session(world).await?;
        client.send("question").await?;
        client.shutdown().await?;
        assert_eq!(*server.recv_exact(8).await?, *b"question");
        assert!(server.recv().await?.is_none());
        for _ in 0..100 {
            server.send(vec![7; 1000]).await?;
        }
        server.shutdown().await?;
        let mut answer = Vec::new();
        assert_eq!(AsyncRecv::read_to_end(&mut client, &mut answer, 200_000).await?, 100_000);
        Ok(())
    });
}

/// Returns the errors of two receives in a row.
async fn twice(stream: &mut Session) -> [io::Error; 2] {
    [stream.recv().await.unwrap_err(), stream.recv().await.unwrap_err()]
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    everywhere(async |world| {
        let (mut client, mut server) = session(world).await?;
        client.send("half of").await?;
        // The client shuts down its socket without `close_notify`. Later, the server drops its
        // session, which sends no `close_notify` either.
        client.get_mut().shutdown().await?;
        assert_eq!(*server.recv_exact(7).await?, *b"half of");
        for error in twice(&mut server).await {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        }
        drop(server);
        assert_eq!(client.recv().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        Ok(())
    });
}

#[test]
fn truncated_record_is_an_error() {
    everywhere(async |world| {
        let (mut client, mut server) = session(world).await?;
        client.send("whole").await?;
        // The first bytes of a 256-byte record.
        client.get_mut().send(b"\x17\x03\x03\x01\x00only a part").await?;
        client.get_mut().shutdown().await?;
        assert_eq!(*server.recv_exact(5).await?, *b"whole");
        for error in twice(&mut server).await {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        }
        Ok(())
    });
}

#[test]
fn forged_record_fails_the_session_and_alerts_the_peer() {
    everywhere(async |world| {
        let (mut client, mut server) = session(world).await?;
        let mut forged = b"\x17\x03\x03\x00\x30".to_vec();
        forged.extend([0x55; 0x30]);
        client.get_mut().send(forged).await?;
        for error in twice(&mut server).await {
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().contains("decrypt"), "{error}");
        }
        let error = client.recv().await.unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        Ok(())
    });
}

#[test]
fn peer_of_a_dropped_session_gets_unexpected_eof() {
    everywhere(async |world| {
        let (mut client, server) = session(world).await?;
        drop(server);
        let error = client.recv().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        Ok(())
    });
}
