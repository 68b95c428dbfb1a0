//! A QUIC echo server and client: the server sends each stream's bytes back on the same stream.
//!
//! ```sh
//! cargo build --manifest-path crates/compat/Cargo.toml --all-features --example quic_echo
//! quic_echo serve 127.0.0.1:4433 /tmp/quic.der &
//! quic_echo echo 127.0.0.1:4433 /tmp/quic.der 1000 1000000
//! ```
//!
//! The server writes its self-signed certificate to the file, and the client trusts it. The client
//! sends one stream of each size, all at once, and verifies the bytes that return. On Ctrl-C or
//! SIGTERM the server closes, and its clients get the reason. The limits are quinn's defaults: 30 s
//! of idle time, 100 streams, and a window of 1.25 MB per stream. The number of clients is not
//! limited.

use annulus::signal::{Signal, signals};
use annulus_compat::quinn::{client, server};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::{env, fs};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str =
    "usage: quic_echo serve ADDRESS CERTIFICATE\n       quic_echo echo ADDRESS CERTIFICATE BYTES…";

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address, certificate] => annulus::run(serve(address.parse()?, certificate)),
        ["echo", address, certificate, ref sizes @ ..] => {
            let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<_, _>>()?;
            annulus::run(echo(address.parse()?, certificate, sizes))
        }
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}

async fn serve(address: SocketAddr, certificate: &str) -> Outcome {
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![identity.cert.der().clone()], key.into())?;
    let endpoint = server(config, address)?;
    fs::write(certificate, identity.cert.der())?;
    println!("listening on {}", endpoint.local_addr()?);
    annulus::spawn(accept(endpoint.clone()));
    signals(&[Signal::SIGINT, Signal::SIGTERM])?.recv().await?;
    endpoint.close(0u32.into(), b"the server is shutting down");
    endpoint.wait_idle().await;
    Ok(())
}

async fn accept(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        annulus::spawn(async move {
            if let Err(error) = serve_connection(incoming).await {
                println!("{error}");
            }
        });
    }
}

/// Serves until the client closes the connection or disappears.
async fn serve_connection(incoming: Incoming) -> Outcome {
    let connection = incoming.await?;
    loop {
        let (send, recv) = connection.accept_bi().await?;
        annulus::spawn(send_back(send, recv));
    }
}

async fn send_back(mut send: SendStream, mut recv: RecvStream) -> Outcome {
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        send.write_chunk(chunk.bytes).await?;
    }
    send.finish()?;
    Ok(())
}

async fn echo(address: SocketAddr, certificate: &str, sizes: Vec<usize>) -> Outcome {
    let mut roots = RootCertStore::empty();
    roots.add(fs::read(certificate)?.into())?;
    let from = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let mut endpoint = client(from.parse()?)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = endpoint.connect(address, "localhost")?.await?;
    let streams = sizes.into_iter().map(|size| annulus::spawn(exchange(connection.clone(), size)));
    for stream in streams.collect::<Vec<_>>() {
        println!("{} bytes echoed", stream.await??);
    }
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

/// Sends `size` bytes and verifies the bytes that return.
async fn exchange(connection: Connection, size: usize) -> Outcome<usize> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let expected = bytes.clone();
    // Send and receive concurrently: the server echoes while it receives, and the stream's window
    // is limited.
    let sending = annulus::spawn(async move {
        send.write_all(&bytes).await?;
        send.finish()?;
        Outcome::Ok(())
    });
    let got = recv.read_to_end(size + 1).await?;
    sending.await??;
    if got == expected { Ok(size) } else { Err("the echo differs from the bytes sent".into()) }
}
