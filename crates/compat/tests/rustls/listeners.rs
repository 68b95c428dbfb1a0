//! Concurrent handshakes of one listener.

use crate::rustls::certificates::{NAME, authority};
use crate::rustls::worlds::{Failure, Session, World, everywhere};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::TcpStream;
use annulus::time::timeout;
use annulus_compat::rustls::{TlsAcceptor, TlsConnector, TlsListener};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

async fn connect(address: SocketAddr) -> io::Result<Session> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::new(authority().client()).connect(NAME, stream).await
}

fn listener(world: World) -> io::Result<TlsListener> {
    let acceptor = TlsAcceptor::new(authority().server());
    Ok(TlsListener::new(world.listen()?, acceptor))
}

#[test]
fn silent_client_does_not_delay_others() {
    everywhere(async |world| {
        let mut listener = listener(world)?;
        let address = listener.local_addr()?;
        let _silent = TcpStream::connect(address).await?;
        for _ in 0..3 {
            let client = annulus::spawn(connect(address));
            let (mut server, _) = listener.accept().await?;
            let mut client = client.await??;
            client.send("hello").await?;
            assert_eq!(*server.recv_exact(5).await?, *b"hello");
        }
        Ok(())
    });
}

#[test]
fn failed_handshake_is_reported_and_the_listener_keeps_accepting() {
    everywhere(async |world| {
        let failures = Rc::new(RefCell::new(Vec::new()));
        let noted = failures.clone();
        let note = move |peer, error: io::Error| noted.borrow_mut().push((peer, error.to_string()));
        let mut listener = listener(world)?.on_failure(note);
        let address = listener.local_addr()?;
        let mut plain = TcpStream::connect(address).await?;
        let peer = plain.local_addr()?;
        plain.send("this is not a TLS record").await?;
        let ends = annulus::spawn(async move {
            while let Some(_alert) = plain.recv().await? {}
            connect(address).await
        });
        let _session = listener.accept().await?;
        ends.await??;
        let failures = failures.take();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].0, peer);
        assert!(
            failures[0].1.contains("InvalidMessage") || failures[0].1.contains("corrupt"),
            "{failures:?}"
        );
        Ok(())
    });
}

/// With a limit of one handshake, a silent client delays the next one until its own handshake times
/// out.
#[test]
fn concurrent_handshakes_are_limited() {
    World::Simulated.run(async |world| {
        let mut listener = listener(world)?.handshakes(1);
        let address = listener.local_addr()?;
        let _silent = TcpStream::connect(address).await?;
        let client = annulus::spawn(connect(address));
        assert!(timeout(Duration::from_secs(9), listener.accept()).await.is_err());
        timeout(Duration::from_secs(2), listener.accept()).await??;
        client.await??;
        Ok(())
    });
}

/// Dropping the listener also closes connections that `accept` has not returned yet.
#[test]
fn dropped_listener_closes_its_connections() {
    everywhere(async |world| {
        let mut listener = listener(world)?;
        let mut silent = TcpStream::connect(listener.local_addr()?).await?;
        // The listener accepts the silent client before this one.
        let client = annulus::spawn(connect(listener.local_addr()?));
        let _session = listener.accept().await?;
        client.await??;
        drop(listener);
        assert!(silent.recv().await?.is_none());
        Ok::<_, Failure>(())
    });
}
