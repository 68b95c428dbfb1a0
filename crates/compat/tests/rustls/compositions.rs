//! Sessions in larger programs: a proxy that terminates TLS, axum WebSockets, and networks with
//! faults.

use crate::rustls::certificates::{NAME, authority, session};
use crate::rustls::worlds::{World, everywhere};
use annulus::Runtime;
use annulus::io::{AsyncRecv, AsyncSend, copy_bidirectional};
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Fault, Faults, Sim};
use annulus::time::timeout;
use annulus_compat::rustls::{TlsAcceptor, TlsConnector, TlsListener};
use annulus_compat::{Incoming, SendStream};
use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// TLS on one side, plaintext on the other. The end of each direction is passed on.
#[test]
fn proxy_terminates_tls() {
    everywhere(async |world| {
        let (mut client, mut front) = session(world).await?;
        let (mut back, mut server) = annulus::net::UnixStream::pair()?;
        let proxy = annulus::spawn(async move { copy_bidirectional(&mut front, &mut back).await });
        let request = vec![1; 300_000];
        client.send(request.clone()).await?;
        client.shutdown().await?;
        let mut received = Vec::new();
        server.read_to_end(&mut received, 1 << 20).await?;
        assert!(received == request);
        server.send(vec![2; 200_000]).await?;
        server.shutdown().await?;
        let mut answer = Vec::new();
        AsyncRecv::read_to_end(&mut client, &mut answer, 1 << 20).await?;
        assert!(answer == [2; 200_000]);
        assert_eq!(proxy.await??, (300_000, 200_000));
        Ok(())
    });
}

#[test]
fn a_websocket_over_tls_echoes() {
    World::Guest.run(async |world| {
        let listener: TcpListener = world.listen()?;
        let address = listener.local_addr()?;
        let upgrade = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| {
                while let Some(Ok(message)) = socket.recv().await {
                    _ = socket.send(message).await;
                }
            })
        };
        let acceptor = TlsAcceptor::new(authority().server());
        let incoming = Incoming::new(TlsListener::new(listener, acceptor));
        let router = Router::new().route("/", get(upgrade));
        tokio::spawn(async move { axum::serve(incoming, router).await });

        let stream = TcpStream::connect(address).await?;
        let session = TlsConnector::new(authority().client()).connect(NAME, stream).await?;
        let stream = SendStream::new(session);
        let (mut socket, _) = tokio_tungstenite::client_async("wss://server.test/", stream).await?;
        for round in 0..50 {
            let text = "x".repeat(round * 1000);
            socket.send(text.clone().into()).await?;
            assert_eq!(
                socket.next().await.expect("no answer arrived")?.into_text()?.as_str(),
                text
            );
        }
        Ok(())
    });
}

/// Number of bytes in each direction on a network with faults.
const EXCHANGED_BYTES: usize = 200_000;

/// Sends bytes to an echo server, and compares the echo.
async fn exchange() -> io::Result<()> {
    let (mut client, mut server) = session(World::Simulated).await?;
    let echoes = annulus::spawn(async move {
        while let Some(lease) = server.recv().await? {
            server.send(lease).await?;
        }
        server.shutdown().await
    });
    let sent: Vec<u8> = (0..EXCHANGED_BYTES).map(|at| (at % 251) as u8).collect();
    for part in sent.chunks(20_000) {
        client.send(part.to_vec()).await?;
        assert!(*client.recv_exact(part.len()).await? == *part, "the echo differs");
    }
    client.shutdown().await?;
    assert!(client.recv().await?.is_none());
    echoes.await.expect("the server panicked")
}

/// Number of seeds for each kind of fault.
const SEED_COUNT: u64 = 40;

/// Returns the number of sessions that transferred all bytes. The rest end with an error, and none
/// may hang.
fn whole(faults: impl Fn(u64) -> Rc<Sim>) -> usize {
    let limit = Duration::from_secs(600);
    let ends_whole = |seed: &u64| {
        let ran = annulus::sim::run_on(&faults(*seed), Runtime::builder(), async {
            timeout(limit, exchange())
                .await
                .unwrap_or_else(|_| panic!("seed {seed}: the session hangs"))
        });
        ran.inspect_err(|error| println!("seed {seed}: {error}")).is_ok()
    };
    (0..SEED_COUNT).filter(ends_whole).count()
}

#[test]
fn kernel_faults_are_errors() {
    let whole = whole(|seed| Sim::builder(seed).chaos().build());
    assert!(
        (1..SEED_COUNT as usize).contains(&whole),
        "{whole} of {SEED_COUNT} sessions were complete"
    );
}

#[test]
fn resets_are_errors() {
    let faults = Faults::none().with(Fault::Reset, 2).with(Fault::ShortRead, 300);
    let faults = faults.with(Fault::ShortWrite, 300);
    let whole = whole(|seed| Sim::builder(seed).faults(faults.clone()).build());
    assert!(
        (1..SEED_COUNT as usize).contains(&whole),
        "{whole} of {SEED_COUNT} sessions were complete"
    );
}
