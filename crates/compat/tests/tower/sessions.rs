//! Upgraded connections at a graceful shutdown.

use super::limits::about;
use crate::tower::*;
use annulus::io::AsyncRecv;
use annulus_compat::SendStream;
use annulus_compat::tower::{Sessions, WebSocketUpgrade};
use axum::routing::any;
use futures_util::future::{Either, select};
use hyper_util::rt::TokioIo;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// How the read of a task that the server does not know has ended.
type Ended = Result<usize, (io::ErrorKind, String)>;

type Client = WebSocketStream<SendStream<TcpStream>>;

const SESSION_COUNT: usize = 20;
const LIMIT: Duration = Duration::from_secs(30);

/// Says goodbye when the server shuts down, and waits for the client's answer.
async fn polite(upgrade: WebSocketUpgrade) -> Response {
    let shutdown = upgrade.sessions().shutting_down();
    upgrade.on_upgrade(async move |mut socket| {
        let mut shutdown = pin!(shutdown);
        while let Either::Left((Some(Ok(message)), _)) = select(socket.next(), &mut shutdown).await
        {
            socket.send(message).await.unwrap();
        }
        let reason = CloseFrame { code: CloseCode::Away, reason: "restart".into() };
        _ = socket.close(Some(reason)).await;
        while let Some(Ok(_)) = socket.next().await {}
    })
}

/// Never looks at its socket again.
async fn deaf(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |_socket| pending().await)
}

/// Drops its socket, and then works for a while.
async fn late(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |socket| {
        drop(socket);
        sleep(SECOND * 7).await;
    })
}

/// An upgrade whose task the server does not know. `sender` gets the kind of the error that ends
/// it.
async fn unknown_task(mut request: axum::extract::Request) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    let sender = request.extensions().get::<tokio::sync::mpsc::UnboundedSender<Ended>>().cloned();
    annulus::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let ended = stream.read(&mut [0]).await;
        sender.unwrap().send(ended.map_err(|error| (error.kind(), error.to_string()))).unwrap();
    });
    switching_protocols()
}

fn switching_protocols() -> Response {
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    let key = [("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")];
    axum::response::IntoResponse::into_response((StatusCode::SWITCHING_PROTOCOLS, headers, key))
}

/// Streams of upgraded connections that no task reads.
type Streams = Arc<Mutex<Vec<hyper::upgrade::Upgraded>>>;

async fn keep_stream(
    Extension(streams): Extension<Streams>,
    mut request: axum::extract::Request,
) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    annulus::spawn(async move {
        let stream = upgraded.await.unwrap();
        streams.lock().unwrap().push(stream);
    });
    switching_protocols()
}

struct Server {
    running: Running,
    sessions: Sessions,
}

fn start_server(address: &str, drain: Option<Duration>, router: Router) -> Server {
    start_with(address, drain, router, || {})
}

/// `on_error` is called after each error has been recorded.
fn start_with(
    address: &str,
    drain: Option<Duration>,
    router: Router,
    on_error: impl Fn() + 'static,
) -> Server {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, errors) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
    let reported = errors.clone();
    let mut server = serve(listener, router)
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .on_error(move |error| {
            reported.borrow_mut().push(chain(&error));
            on_error();
        });
    if let Some(limit) = drain {
        server = server.drain_timeout(limit);
    }
    let sessions = server.sessions();
    let ended = annulus::spawn(server.into_future());
    Server { running: Running { address, stop, ended, errors }, sessions }
}

async fn connect(address: SocketAddr) -> Result<Client, common::Failure> {
    let stream = SendStream::new(TcpStream::connect(address).await?);
    Ok(tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream).await?.0)
}

/// Upgrades a connection without a WebSocket library.
async fn upgrade(address: SocketAddr) -> Result<TcpStream, common::Failure> {
    let mut client = TcpStream::connect(address).await?;
    let request =
        "GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    client.send(request).await?;
    while client.recv_until(b'\n', 1000).await?.expect("the head ended early").len() > 2 {}
    Ok(client)
}

/// Opens sessions that are all known to the server.
async fn connect_all(server: &Server) -> Result<Vec<Client>, common::Failure> {
    let mut clients = Vec::new();
    for _ in 0..SESSION_COUNT {
        clients.push(connect(server.running.address).await?);
    }
    assert_eq!(server.sessions.open(), SESSION_COUNT);
    Ok(clients)
}

async fn sessions_end_in_order(address: &str, drain: Option<Duration>) -> Outcome {
    let server = start_server(address, drain, Router::new().route("/ws", any(polite)));
    let mut clients = connect_all(&server).await?;
    for client in &mut clients {
        client.send("hello".into()).await?;
        assert_eq!(client.next().await.expect("the session ended")?.into_text()?, "hello");
    }
    // One session ends before the shutdown.
    clients.pop().unwrap().close(None).await?;
    assert!(!server.sessions.is_shutting_down());
    server.running.stop.cancel();
    for client in &mut clients {
        let Message::Close(Some(frame)) = client.next().await.expect("the session was cut")? else {
            panic!("the session did not say goodbye");
        };
        assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Away, "restart"));
        // Reading on answers the frame.
        assert!(client.next().await.is_none());
    }
    server.running.ended.await??;
    assert!(server.sessions.is_shutting_down());
    assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 0));
    assert!(server.running.errors.borrow().is_empty(), "{:?}", server.running.errors.borrow());
    Ok(())
}

#[test]
fn sessions_are_told_of_a_shutdown_and_awaited() {
    for drain in [None, Some(LIMIT)] {
        everywhere(|| sessions_end_in_order("127.0.0.1:0", drain));
        simulated(async |_| sessions_end_in_order("10.0.0.1:80", drain).await);
    }
}

#[test]
fn sessions_that_do_not_end_are_cut_and_counted() {
    for (drain, seconds) in [(None, 5), (Some(LIMIT), 30)] {
        simulated(async |_| {
            let server = start_server("10.0.0.1:80", drain, Router::new().route("/ws", any(deaf)));
            let mut clients = connect_all(&server).await?;
            let begun = Instant::now();
            server.running.stop.cancel();
            // Their streams end with them.
            for client in &mut clients {
                assert!(!matches!(client.next().await, Some(Ok(_))));
                assert!(about(seconds, begun.elapsed()), "{:?}", begun.elapsed());
            }
            server.running.ended.await??;
            assert!(about(seconds, begun.elapsed()), "{:?}", begun.elapsed());
            assert_eq!((server.sessions.open(), server.sessions.cut()), (0, SESSION_COUNT));
            let errors = server.running.errors.borrow();
            assert_eq!(errors.len(), SESSION_COUNT);
            let text = format!("upgraded connection did not end within {seconds}s");
            assert!(errors.iter().all(|error| error.contains(&text)), "{errors:?}");
            Ok(())
        });
    }
}

#[test]
fn sessions_are_cut_on_real_drivers() {
    everywhere(async || {
        let limit = Some(Duration::from_millis(50));
        let server = start_server("127.0.0.1:0", limit, Router::new().route("/ws", any(deaf)));
        let mut clients = connect_all(&server).await?;
        server.running.stop.cancel();
        server.running.ended.await??;
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, SESSION_COUNT));
        for client in &mut clients {
            assert!(!matches!(client.next().await, Some(Ok(_))));
        }
        Ok(())
    });
}

#[test]
fn session_that_has_dropped_its_socket_is_awaited() {
    simulated(async |_| {
        let router = Router::new().route("/ws", any(late));
        let server = start_server("10.0.0.1:80", Some(LIMIT), router);
        let begun = Instant::now();
        let mut client = connect(server.running.address).await?;
        assert!(!matches!(client.next().await, Some(Ok(_))));
        assert_eq!(server.sessions.open(), 1);
        server.running.stop.cancel();
        server.running.ended.await??;
        assert!(about(7, begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 0));
        Ok(())
    });
}

#[test]
fn stream_of_a_task_that_the_server_does_not_know_fails_when_it_is_cut() {
    simulated(async |_| {
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel::<Ended>();
        let router = Router::new().route("/ws", any(unknown_task)).layer(Extension(sender.clone()));
        drop(sender);
        let server = start_server("10.0.0.1:80", Some(LIMIT), router);
        let _client = upgrade(server.running.address).await?;
        assert_eq!(server.sessions.open(), 1);
        let begun = Instant::now();
        server.running.stop.cancel();
        let Err((kind, text)) = ended.recv().await.expect("the task has ended") else {
            panic!("the read succeeded");
        };
        assert_eq!(kind, io::ErrorKind::ConnectionAborted);
        assert!(text.contains("did not end within 30s"), "{text}");
        assert!(about(30, begun.elapsed()), "{:?}", begun.elapsed());
        server.running.ended.await??;
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 1));
        Ok(())
    });
}

#[test]
fn error_callback_may_drop_the_streams_of_sessions() {
    simulated(async |_| {
        let streams = Streams::default();
        let router = Router::new().route("/ws", any(keep_stream)).layer(Extension(streams.clone()));
        let drop_all = move || drop(std::mem::take(&mut *streams.lock().unwrap()));
        let server = start_with("10.0.0.1:80", Some(SECOND), router, drop_all);
        let address = server.running.address;
        let _clients = (upgrade(address).await?, upgrade(address).await?);
        assert_eq!(server.sessions.open(), 2);
        server.running.stop.cancel();
        server.running.ended.await??;
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 2));
        // The stream of the second session was dropped before its report.
        assert_eq!(server.running.errors.borrow().len(), 1);
        Ok(())
    });
}

#[test]
fn write_buffer_above_its_maximum_is_reported_before_the_upgrade() {
    simulated(async |_| {
        let small = async |upgrade: WebSocketUpgrade| {
            let upgrade = upgrade.write_buffer_size(1000).max_write_buffer_size(1000);
            upgrade.on_upgrade(async |_socket| {})
        };
        let server = start_server("10.0.0.1:80", None, Router::new().route("/ws", any(small)));
        assert!(connect(server.running.address).await.is_err());
        let errors = server.running.errors.borrow();
        assert_eq!(errors.len(), 1);
        let text =
            "max_write_buffer_size is 1000, but it must exceed write_buffer_size, which is 1000";
        assert!(errors[0].contains(text), "{errors:?}");
        Ok(())
    });
}

/// A refused upgrade and a client that leaves before its upgrade are not sessions.
#[test]
fn failed_upgrades_do_not_delay_a_shutdown() {
    simulated(async |_| {
        let refuses = async |_: WebSocketUpgrade| StatusCode::FORBIDDEN;
        let waits = async |upgrade: WebSocketUpgrade| {
            // The client leaves before the session begins, which finds the end of the stream.
            let response = upgrade.on_upgrade(
                async |mut socket| {
                    while let Some(Ok(_)) = socket.next().await {}
                },
            );
            OnThread::new(sleep(SECOND * 3)).await;
            response
        };
        let router = Router::new().route("/no", any(refuses)).route("/ws", any(waits));
        let server = start_server("10.0.0.1:80", None, router);
        let address = server.running.address;
        let stream = SendStream::new(TcpStream::connect(address).await?);
        assert!(
            tokio_tungstenite::client_async(format!("ws://{address}/no"), stream).await.is_err()
        );
        let stream = SendStream::new(TcpStream::connect(address).await?);
        let connecting = tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream);
        assert!(annulus::time::timeout(SECOND, connecting).await.is_err());
        let begun = Instant::now();
        server.running.stop.cancel();
        server.running.ended.await??;
        assert!(begun.elapsed() < SECOND * 4, "{:?}", begun.elapsed());
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 0));
        Ok(())
    });
}

/// A task that a program spawns on the value from `Serve::sessions` is a session of its own.
#[test]
fn task_of_the_program_is_awaited_and_cut_like_a_session() {
    simulated(async |_| {
        let server = start_server("10.0.0.1:80", Some(LIMIT), Router::new());
        let one = server.sessions.spawn(async {
            sleep(SECOND * 3).await;
            1
        });
        let two = server.sessions.spawn(pending::<()>());
        assert_eq!(server.sessions.open(), 2);
        server.running.stop.cancel();
        server.running.ended.await??;
        assert_eq!((one.await?, two.await?), (Some(1), None));
        assert_eq!((server.sessions.open(), server.sessions.cut()), (0, 1));
        Ok(())
    });
}
