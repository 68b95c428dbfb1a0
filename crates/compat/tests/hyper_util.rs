//! Unpatched hyper-util: its pooled client, its server for both versions, and its graceful
//! shutdown.

use crate::common;

use annulus::net::{ConnectOptions, TcpListener, TcpStream, UnixListener};
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Runtime};
use annulus_compat::OnThread;
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::hyper_util::{ConnectionInfo, Connector, UnixConnector};
use bytes::Bytes;
use common::{Outcome, everywhere, on_drivers, simulated, simulated_with};
use futures_util::future::{join, join_all};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::oneshot;
use tower_service::Service;

type Pooled<C = Connector> = Client<C, Full<Bytes>>;

fn builder() -> Builder {
    let mut builder = Client::builder(Executor);
    builder.timer(Timer::new()).pool_timer(Timer::new());
    builder
}

fn post(uri: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(uri).body(Full::new(body.into())).unwrap()
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::new(body)))
}

/// Echoes over both versions, and counts accepted and open connections.
fn serve(listener: TcpListener) -> Rc<(Cell<usize>, Cell<usize>)> {
    let counts = Rc::new((Cell::new(0), Cell::new(0)));
    let counted = counts.clone();
    annulus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counts = counted.clone();
            counts.0.update(|count| count + 1);
            counts.1.update(|count| count + 1);
            annulus::spawn(async move {
                let stream = Io::new(stream);
                _ = auto::Builder::new(Executor).serve_connection(stream, service_fn(echo)).await;
                counts.1.update(|count| count - 1);
            });
        }
    });
    counts
}

async fn ask<C>(client: &Pooled<C>, uri: &str, body: &[u8]) -> Result<Version, common::Failure>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let response = client.request(post(uri, body.to_vec())).await?;
    let version = response.version();
    assert_eq!(response.into_body().collect().await?.to_bytes(), body);
    Ok(version)
}

async fn requests_in_turn_share_a_connection(address: &str) -> Outcome {
    let listener = TcpListener::bind(address)?;
    let uri = format!("http://{}/", listener.local_addr()?);
    let counts = serve(listener);
    let client: Pooled = builder().build(Connector::new());
    for round in 0..20_u8 {
        let version = ask(&client, &uri, &vec![round; 5_000 * usize::from(round)]).await?;
        assert_eq!(version, Version::HTTP_11);
    }
    // The client may open a second connection if the first is not back in the pool yet.
    assert!(counts.0.get() <= 2, "{}", counts.0.get());
    // Five concurrent requests need a connection each.
    let responses = join_all((0..5).map(|_| ask(&client, &uri, b"at once"))).await;
    assert!(responses.iter().all(Result::is_ok));
    assert!((2..=6).contains(&counts.0.get()), "{}", counts.0.get());
    Ok(())
}

#[test]
fn a_pool_reuses_connections() {
    everywhere(|| requests_in_turn_share_a_connection("127.0.0.1:0"));
    simulated(|_| requests_in_turn_share_a_connection("10.0.0.1:80"));
}

async fn many_at_once_over_one_connection(address: &str) -> Outcome {
    let listener = TcpListener::bind(address)?;
    let uri = format!("http://{}/", listener.local_addr()?);
    let counts = serve(listener);
    let client: Pooled = builder().http2_only(true).build(Connector::new());
    assert_eq!(ask(&client, &uri, b"first").await?, Version::HTTP_2);
    let bodies: Vec<_> = (0..50_u8).map(|i| vec![i; 3_000 * usize::from(i)]).collect();
    for asked in join_all(bodies.iter().map(|body| ask(&client, &uri, body))).await {
        assert_eq!(asked?, Version::HTTP_2);
    }
    assert_eq!(counts.0.get(), 1);
    Ok(())
}

#[test]
fn http_2_multiplexes() {
    everywhere(|| many_at_once_over_one_connection("127.0.0.1:0"));
    simulated(|_| many_at_once_over_one_connection("10.0.0.1:80"));
}

#[test]
fn idle_connection_is_closed_at_its_timeout() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let counts = serve(listener);
        let client: Pooled =
            builder().pool_idle_timeout(Duration::from_secs(90)).build(Connector::new());
        ask(&client, "http://10.0.0.1/", b"one").await?;
        sleep(Duration::from_secs(80)).await;
        ask(&client, "http://10.0.0.1/", b"two").await?;
        assert_eq!((counts.0.get(), counts.1.get()), (1, 1));
        sleep(Duration::from_secs(300)).await;
        assert_eq!(counts.1.get(), 0, "the client did not close the idle connection");
        ask(&client, "http://10.0.0.1/", b"three").await?;
        assert_eq!(counts.0.get(), 2);
        Ok(())
    });
}

#[test]
fn response_carries_the_addresses_of_its_connection() {
    on_drivers(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        serve(listener);
        let options = ConnectOptions::new().source([127, 0, 0, 5].into());
        let client: Pooled = builder().build(Connector::new().options(options));
        let response = client.request(post(&format!("http://{address}/"), "")).await?;
        let ends = response.extensions().get::<ConnectionInfo>().expect("no connection info");
        assert_eq!(ends.peer_addr, address);
        assert_eq!(ends.local_addr.ip().to_string(), "127.0.0.5");
        Ok(())
    });
}

#[test]
fn client_connects_over_a_unix_socket() {
    everywhere(async || {
        let path = std::env::temp_dir().join(format!("annulus-compat-{}", std::process::id()));
        let listener = UnixListener::bind(&path)?;
        annulus::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let server = auto::Builder::new(Executor);
            _ = server.serve_connection(Io::new(stream), service_fn(echo)).await;
        });
        let client: Pooled<UnixConnector> = builder().build(UnixConnector::new(&path));
        let asked = ask(&client, "http://localhost/", b"by path").await;
        std::fs::remove_file(path)?;
        asked.map(drop)
    });
}

fn hosts(addresses: &'static [&'static str]) -> annulus::Builder {
    let resolve = |_: &str| Ok(addresses.iter().map(|address| address.parse().unwrap()).collect());
    Runtime::builder().resolver(resolve)
}

#[test]
fn next_address_is_tried_when_one_refuses() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let mut runtime = hosts(&["127.0.0.4", "127.0.0.2"]).driver(driver).build().unwrap();
        let connected = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.2:0")?;
            let port = listener.local_addr()?.port();
            serve(listener);
            let client: Pooled = builder().build(Connector::new());
            ask(&client, &format!("http://two.example:{port}/"), b"second").await.map(drop)
        });
        connected.unwrap();
    }
}

#[test]
fn error_names_every_failed_address() {
    let mut runtime = hosts(&["127.0.0.3", "127.0.0.4"]).build().unwrap();
    runtime.block_on(async {
        // A port without a listener.
        let uri = "http://two.example:1/".parse().unwrap();
        let error = Connector::new().call(uri).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let text = error.to_string();
        for named in ["two.example", "127.0.0.3", "127.0.0.4"] {
            assert!(text.contains(named), "{text}");
        }
    });
}

/// Connects to a host with two addresses, with no route to the `silent` ones. Returns the result,
/// and the time that the attempt took.
fn beside_a_silent_address(
    connector: Connector,
    options: ConnectOptions,
    silent: &'static [&'static str],
) -> (io::Result<IpAddr>, Duration) {
    let mut result = None;
    simulated_with(hosts(&["10.0.0.9", "10.0.0.1"]), async |sim| {
        let _silent = TcpListener::bind("10.0.0.9:80")?;
        let _listener = TcpListener::bind("10.0.0.1:80")?;
        let source: IpAddr = "10.0.0.7".parse()?;
        silent.iter().for_each(|address| sim.partition(source, address.parse().unwrap()));
        let begun = Instant::now();
        let connected =
            connector.options(options.source(source)).call("http://two.example/".parse()?).await;
        let peer = connected.and_then(|io| Ok(io.inner().try_ref()?.peer_addr()?.ip()));
        result = Some((peer, begun.elapsed()));
        Ok(())
    });
    result.unwrap()
}

#[test]
fn second_address_is_tried_after_the_attempt_delay() {
    let connect = |options, silent| beside_a_silent_address(Connector::new(), options, silent);
    let (peer, took) = connect(ConnectOptions::new(), &["10.0.0.9"]);
    assert_eq!(peer.unwrap().to_string(), "10.0.0.1");
    assert!(took >= Duration::from_millis(250) && took < Duration::from_secs(1), "{took:?}");
    let patient = ConnectOptions::new().attempt_delay(Duration::from_secs(2));
    let (peer, took) = connect(patient, &["10.0.0.9"]);
    assert_eq!(peer.unwrap().to_string(), "10.0.0.1");
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3), "{took:?}");
    // No second attempt starts if the first address answers.
    let (peer, took) = connect(ConnectOptions::new(), &["10.0.0.1"]);
    assert_eq!(peer.unwrap().to_string(), "10.0.0.9");
    assert!(took < Duration::from_millis(250), "{took:?}");
}

#[test]
fn connect_fails_at_its_timeout() {
    let limited = Connector::new().timeout(Duration::from_secs(3));
    let (peer, took) =
        beside_a_silent_address(limited, ConnectOptions::new(), &["10.0.0.9", "10.0.0.1"]);
    let error = peer.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("two.example:80"), "{error}");
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn polling_a_connect_on_another_thread_is_an_error() {
    on_drivers(async || {
        let mut connecting = Connector::new().call("http://127.0.0.1:1/".parse()?);
        let text = std::thread::spawn(move || {
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut connecting).poll(&mut cx) {
                std::task::Poll::Ready(Err(error)) => error.to_string(),
                other => panic!("{other:?}"),
            }
        });
        assert!(text.join().unwrap().contains("a thread other than"));
        Ok(())
    });
}

#[test]
fn truncated_body_is_an_error_for_the_client() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri = format!("http://{}/", listener.local_addr()?);
        annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.recv().await?;
            stream.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await?;
            stream.shutdown().await
        });
        let client: Pooled = builder().build(Connector::new());
        let response = client.request(post(&uri, "")).await?;
        assert!(response.into_body().collect().await.is_err());
        Ok(())
    });
}

/// The client does not reuse a connection that the server has closed.
#[test]
fn connection_closed_by_the_server_is_replaced() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri = format!("http://{}/", listener.local_addr()?);
        let (sender, closed) = oneshot::channel();
        annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.recv().await?;
            stream.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
            stream.shutdown().await?;
            // The client closes its side when it receives the end.
            while let Some(lease) = stream.recv().await? {
                drop(lease);
            }
            _ = sender.send(());
            serve(listener);
            io::Result::Ok(())
        });
        let client: Pooled = builder().build(Connector::new());
        client.request(post(&uri, "")).await?.into_body().collect().await?;
        closed.await?;
        ask(&client, &uri, b"again").await.map(drop)
    });
}

#[test]
fn graceful_shutdown_finishes_requests_in_progress() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri = format!("http://{}/", listener.local_addr()?);
        let graceful = GracefulShutdown::new();
        let watcher = graceful.watcher();
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let once = Rc::new(Cell::new(Some((begun, may_go_on))));
        annulus::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let slow = service_fn(move |request| {
                let (begun, may_go_on) = once.take().expect("a second request arrived");
                async move {
                    begun.send(()).unwrap();
                    may_go_on.await.unwrap();
                    echo(request).await
                }
            });
            let server = auto::Builder::new(Executor);
            let stream = Io::new(OnThread::new(stream));
            let connection = server.serve_connection_with_upgrades(stream, slow);
            watcher.watch(connection).await.unwrap();
        });
        let client: Pooled = builder().build(Connector::new());
        let asking = annulus::spawn(async move { ask(&client, &uri, b"slow").await.map(drop) });
        has_begun.await?;
        let ((), asked) = join(graceful.shutdown(), async {
            go_on.send(()).unwrap();
            asking.await
        })
        .await;
        asked?
    });
}

/// The server's memory stays bounded while its peer reads nothing.
#[test]
fn unread_response_data_is_bounded() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let sent = Rc::new(Cell::new(0_usize));
        let counted = sent.clone();
        annulus::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let endless = service_fn(move |_: Request<Incoming>| {
                let sent = counted.clone();
                let pieces = futures_util::stream::repeat_with(move || {
                    sent.update(|sent| sent + 100_000);
                    let piece = Bytes::from(vec![b'x'; 100_000]);
                    io::Result::Ok(hyper::body::Frame::data(piece))
                });
                let body = http_body_util::StreamBody::new(pieces);
                std::future::ready(io::Result::Ok(Response::new(body)))
            });
            let server = auto::Builder::new(Executor);
            _ = server.serve_connection(Io::new(stream), endless).await;
        });
        let mut client = TcpStream::connect("10.0.0.1:80").await?;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        sleep(Duration::from_secs(60)).await;
        let sent_until_then = sent.get();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(sent.get(), sent_until_then);
        let held = annulus::stats().expect("in a runtime").memory.held;
        assert!(sent.get() > 100_000 && sent.get() < 5_000_000, "{}", sent.get());
        assert!(held < 4_000_000, "{held}");
        Ok(())
    });
}

/// Requests over failing networks and kernels, derived from a seed: each request ends, and each
/// successful response is complete.
#[test]
fn every_request_ends_despite_faults() {
    async fn requests() -> Outcome {
        annulus::spawn(async {
            loop {
                match TcpListener::bind("10.0.0.1:80") {
                    Err(_) => sleep(Duration::from_millis(1)).await,
                    Ok(listener) => {
                        let server = annulus_compat::tower::serve_hyper(listener, service_fn(echo));
                        _ = server.idle_timeout(Duration::from_secs(5)).await;
                    }
                }
            }
        });
        let client: Pooled = builder()
            .pool_idle_timeout(Duration::from_secs(3))
            .build(Connector::new().timeout(Duration::from_secs(5)));
        let (begun, mut succeeded) = (Instant::now(), 0);
        while succeeded < 10 {
            let body = vec![succeeded; 7_000 * usize::from(succeeded)];
            let asked = ask(&client, "http://10.0.0.1/", &body);
            match annulus::time::timeout(Duration::from_secs(20), asked).await {
                Ok(Ok(_)) => succeeded += 1,
                _ => sleep(Duration::from_millis(100)).await,
            }
            assert!(begun.elapsed() < Duration::from_secs(3600), "no success for an hour");
        }
        Ok(())
    }
    for seed in 0..100 {
        annulus::sim::run(seed, requests()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
