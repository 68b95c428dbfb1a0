//! Kernel TLS: sessions if the kernel has it, and what is said if it has not.

use crate::certificates::{NAME, authority};
use crate::worlds::{Session, World};
use annulus::fs::File;
use annulus::io::{AsyncRecv, AsyncSend, copy};
use annulus::net::{TcpStream, TlsCipher, TlsKeys, TlsVersion, UnixStream};
use annulus_compat::rustls::{KernelTls, TlsAcceptor, TlsConnector};
use rustls::{HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Poll;

/// Those with sockets of this kernel.
const REAL: [World; 3] = [World::Uring, World::Epoll, World::Guest];

/// Both ends of a session, with the kernel at the server's or at both.
async fn session(
    (client, server): (TcpStream, TcpStream),
    at_client: KernelTls,
    at_server: KernelTls,
) -> io::Result<(Session, Session)> {
    let connector = TlsConnector::new(authority().client()).kernel(at_client);
    let acceptor = TlsAcceptor::new(authority().server()).kernel(at_server);
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}

/// Why this kernel has no TLS; `None` if it has.
async fn missing(world: World) -> io::Result<Option<io::Error>> {
    let (stream, _peer) = world.pair().await?;
    match stream.prepare_kernel_tls() {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Whether this kernel has TLS. A line says that a test is skipped if it has not.
async fn has_kernel_tls(world: World) -> io::Result<bool> {
    let missing = missing(world).await?;
    Ok(missing.inspect(|error| println!("skipped: {error}")).is_none())
}

#[test]
fn required_makes_a_session_or_says_what_is_missing() {
    for world in REAL {
        world.run(async |world| {
            let has = missing(world).await?.is_none();
            let made = session(world.pair().await?, KernelTls::Off, KernelTls::Required).await;
            match made {
                Ok((client, server)) => {
                    assert!(has && server.is_kernel() && !client.is_kernel());
                }
                Err(error) => {
                    assert!(!has, "{error}");
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    let text = error.to_string();
                    assert!(
                        text.contains("CONFIG_TLS") && text.contains("`modprobe tls`"),
                        "{text}"
                    );
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_client_may_require_it_too() {
    World::Uring.run(async |world| {
        let has = missing(world).await?.is_none();
        let made = session(world.pair().await?, KernelTls::Required, KernelTls::Off).await;
        assert_eq!(made.is_ok_and(|(client, _)| client.is_kernel()), has);
        Ok(())
    });
}

#[test]
fn if_available_goes_on_without() {
    for world in World::ALL {
        world.run(async |world| {
            let has = world != World::Simulated && missing(world).await?.is_none();
            let choice = KernelTls::IfAvailable;
            let (mut client, mut server) = session(world.pair().await?, choice, choice).await?;
            assert_eq!([client.is_kernel(), server.is_kernel()], [has; 2]);
            client.send("question").await?;
            assert_eq!(*server.recv_exact(8).await?, *b"question");
            server.send("answer").await?;
            server.shutdown().await?;
            assert_eq!(*client.recv_exact(6).await?, *b"answer");
            assert!(client.recv().await?.is_none());
            client.shutdown().await?;
            assert!(server.recv().await?.is_none());
            Ok(())
        });
    }
}

#[test]
fn a_simulated_kernel_has_none() {
    World::Simulated.run(async |world| {
        let made = session(world.pair().await?, KernelTls::Off, KernelTls::Required).await;
        let error = made.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.to_string(), "kernel TLS: a simulated kernel has none");
        Ok(())
    });
}

#[test]
fn other_streams_have_none() {
    World::Uring.run(async |_| {
        let acceptor = TlsAcceptor::new(authority().server()).kernel(KernelTls::Required);
        let (_client, server) = UnixStream::pair()?;
        let error = acceptor.accept(server).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("UnixStream"), "{error}");

        let acceptor = acceptor.kernel(KernelTls::IfAvailable);
        let connector = TlsConnector::new(authority().client());
        let (client, server) = UnixStream::pair()?;
        let ends = tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))?;
        assert!(!ends.1.is_kernel());
        Ok(())
    });
}

// From here on with kernel TLS only.

/// Bytes of a transfer: more than the buffers of sockets have that were made [small](narrow).
const TOTAL: usize = 1 << 20;

/// Streams with buffers of this size.
async fn narrow(world: World, size: usize) -> io::Result<(TcpStream, TcpStream)> {
    let (client, server) = world.pair().await?;
    for stream in [&client, &server] {
        stream.set_send_buffer(size)?;
        stream.set_recv_buffer(size)?;
    }
    Ok((client, server))
}

fn bytes() -> Vec<u8> {
    (0..TOTAL).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect()
}

/// Each version with each of its ciphers.
fn suites() -> impl Iterator<Item = SupportedCipherSuite> {
    let all = rustls::crypto::ring::ALL_CIPHER_SUITES.iter().copied();
    // The key of the server is none of RSA.
    all.filter(|suite| !format!("{suite:?}").contains("_RSA_"))
}

/// Both ends with this suite, both with kernel TLS.
async fn session_with(world: World, suite: SupportedCipherSuite) -> io::Result<(Session, Session)> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![suite];
    let (certificate, key) = authority().sign(NAME);
    let server = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[suite.version()])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(io::Error::other)?;
    let acceptor = TlsAcceptor::new(server).kernel(KernelTls::Required);
    let connector = TlsConnector::new(authority().client()).kernel(KernelTls::Required);
    let (client, server) = narrow(world, 128 * 1024).await?;
    tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))
}

#[test]
fn all_bytes_arrive_and_the_end_is_known() {
    for world in REAL {
        world.run(async |world| {
            if !has_kernel_tls(world).await? {
                return Ok(());
            }
            let sent = bytes().split_off(TOTAL / 2);
            // What the kernel encrypts does not depend on the driver.
            let count = if world == World::Uring { usize::MAX } else { 1 };
            for suite in suites().take(count) {
                let (mut client, mut server) = session_with(world, suite).await?;
                assert_eq!(client.protocol_version(), Some(suite.version().version));
                let copied = sent.clone();
                let sends = annulus::spawn(async move {
                    client.send("head").await?;
                    client.write_all(&copied).await?;
                    client.send(copied).await?;
                    // Dropped at once: what was accepted arrives all the same.
                    client.shutdown().await
                });
                let mut received = Vec::new();
                AsyncRecv::read_to_end(&mut server, &mut received, 3 * TOTAL).await?;
                assert!(received == [b"head", &sent[..], &sent[..]].concat(), "{suite:?}");
                sends.await.expect("no panic")?;
            }
            Ok(())
        });
    }
}

#[test]
fn files_are_copied_to_a_peer_that_decrypts_by_rustls() {
    let file = Temporary::new("copied", &bytes());
    for world in REAL {
        world.run(async |world| {
            if !has_kernel_tls(world).await? {
                return Ok(());
            }
            let (mut client, mut server) = at_server(narrow(world, 256 * 1024).await?).await?;
            assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
            let mut from = File::open(&file.0).await?;
            let sends = annulus::spawn(async move {
                server.send("head").await?;
                assert_eq!(copy(&mut from, &mut server).await?, TOTAL as u64);
                server.send("tail").await?;
                server.shutdown().await
            });
            let mut received = Vec::new();
            AsyncRecv::read_to_end(&mut client, &mut received, 2 * TOTAL).await?;
            assert!(received == [b"head", &bytes()[..], b"tail"].concat());
            sends.await.expect("no panic")?;
            Ok(())
        });
    }
}

#[test]
fn small_buffers_of_the_socket_lose_nothing_at_the_end() {
    for world in REAL {
        world.run(async |world| {
            if !has_kernel_tls(world).await? {
                return Ok(());
            }
            for size in [8 * 1024, 32 * 1024] {
                let ends = world.pair().await?;
                ends.1.set_send_buffer(size)?;
                let (mut client, mut server) = at_server(ends).await?;
                let sent = &bytes()[..TOTAL / 8];
                let copied = sent.to_vec();
                let sends = annulus::spawn(async move {
                    server.send(copied).await?;
                    server.shutdown().await
                });
                let mut received = Vec::new();
                AsyncRecv::read_to_end(&mut client, &mut received, TOTAL).await?;
                assert!(received == sent, "{} bytes with {size}", received.len());
                sends.await.expect("no panic")?;
            }
            Ok(())
        });
    }
}

/// A file of these bytes for one test.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("annulus-kernel-tls-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Only the server's end is of the kernel.
async fn at_server(ends: (TcpStream, TcpStream)) -> io::Result<(Session, Session)> {
    session(ends, KernelTls::Off, KernelTls::Required).await
}

#[test]
fn a_file_that_shrinks_is_sent_as_far_as_it_goes() {
    let (kept, all) = (TOTAL / 2 + 12_345, bytes());
    for world in REAL {
        let file = Temporary::new("shrinks", &all);
        world.run(async |world| {
            if !has_kernel_tls(world).await? {
                return Ok(());
            }
            let (mut client, mut server) = at_server(narrow(world, 64 * 1024).await?).await?;
            let mut from = File::open(&file.0).await?;
            let sends = annulus::spawn(async move {
                let copied = copy(&mut from, &mut server).await?;
                // Nothing is sent behind it, and the session goes on.
                Ok::<_, io::Error>((copied, server))
            });
            let mut received = client.recv_exact(20_000).await?.to_vec();
            // The copy waits for this end: the buffers have less than half of the file.
            let cut = std::fs::OpenOptions::new().write(true).open(&file.0)?;
            cut.set_len(kept as u64)?;
            received.extend_from_slice(&client.recv_exact(kept - received.len()).await?);
            assert!(received == all[..kept]);
            let (copied, mut server) = sends.await.expect("no panic")?;
            assert_eq!(copied, kept as u64);
            server.send("tail").await?;
            assert_eq!(*client.recv_exact(4).await?, *b"tail");
            Ok(())
        });
    }
}

#[test]
fn what_a_dropped_copy_has_sent_leaves() {
    let all = bytes();
    let file = Temporary::new("dropped", &all);
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let (mut client, mut server) = at_server(narrow(world, 64 * 1024).await?).await?;
        let mut from = File::open(&file.0).await?;
        let mut copies = Box::pin(copy(&mut from, &mut server));
        let copied = poll_fn(|cx| Poll::Ready(copies.as_mut().poll(cx))).await;
        assert!(copied.is_pending(), "it waits for the peer");
        drop(copies);
        let sent = from.seek(io::SeekFrom::Current(0)).await? as usize;
        assert!((1..TOTAL).contains(&sent), "{sent}");
        assert!(*client.recv_exact(sent).await? == all[..sent]);
        Ok(())
    });
}

#[test]
fn a_peer_that_asks_for_new_keys_is_refused() {
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let (client, server) = world.pair().await?;
        let acceptor = TlsAcceptor::new(authority().server()).kernel(KernelTls::Required);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(authority().client()));
        let name = rustls::pki_types::ServerName::try_from(NAME)?;
        let (mut client, mut server) =
            tokio::try_join!(connector.connect(name, client), acceptor.accept(server))?;
        client.get_mut().1.refresh_traffic_keys()?;
        let mut client = Session::from(client);
        client.send("with the new keys").await?;
        assert_eq!(*server.recv_exact(17).await?, *b"with the new keys");
        let error = server.send("answer").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("KeyUpdate"), "{error}");
        let error = client.recv().await.map(drop).unwrap_err();
        assert!(error.to_string().contains("InternalError"), "{error}");
        Ok(())
    });
}

#[test]
fn the_peer_is_told_of_a_bad_record() {
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let (mut client, mut server) = at_server(world.pair().await?).await?;
        let record = [&[23, 3, 3, 0, 64][..], &[7; 64]].concat();
        client.get_mut().send(record).await?;
        assert_eq!(server.recv().await.map(drop).unwrap_err().kind(), ErrorKind::InvalidData);
        let error = client.recv().await.map(drop).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        Ok(())
    });
}

#[test]
fn keys_are_not_used_too_often() {
    let file = Temporary::new("keys", &bytes());
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let (_client, mut server) = world.pair().await?;
        server.prepare_kernel_tls()?;
        server.check_keys()?;
        let (key, nonce) = ([7; 16], [9; TlsKeys::NONCE]);
        let used = TlsCipher::Aes128Gcm.record_limit() - 2;
        let keys = TlsKeys::new(TlsVersion::V1_3, TlsCipher::Aes128Gcm, &key, nonce, used)?;
        server.encrypt_sends(&keys)?;
        for _ in 0..2 {
            server.check_keys()?;
            server.send("a record").await?;
            server.drain().await?;
        }
        let error = server.check_keys().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        let error = copy(&mut File::open(&file.0).await?, &mut server).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        Ok(())
    });
}

#[test]
fn tickets_of_a_server_are_kept() {
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let connector = TlsConnector::new(authority().client()).kernel(KernelTls::Required);
        let acceptor = TlsAcceptor::new(authority().server());
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (client, server) = world.pair().await?;
            let (mut client, mut server) =
                tokio::try_join!(connector.connect(NAME, client), acceptor.accept(server))?;
            assert_eq!(server.state().and_then(|state| state.handshake_kind()), Some(kind));
            server.send("behind the tickets").await?;
            assert_eq!(*client.recv_exact(18).await?, *b"behind the tickets");
        }
        Ok(())
    });
}

#[test]
fn an_end_without_close_notify_is_an_error_here_too() {
    World::Uring.run(async |world| {
        if !has_kernel_tls(world).await? {
            return Ok(());
        }
        let (mut client, mut server) = at_server(world.pair().await?).await?;
        client.send("half of").await?;
        client.get_mut().shutdown().await?;
        assert_eq!(*server.recv_exact(7).await?, *b"half of");
        assert_eq!(server.recv().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        Ok(())
    });
}
