//! tonic's own server and channel, as a guest of tokio.

use crate::tonic::greeter::{Client, Greeter};
use crate::tonic::trouble::{Trouble, unary};
use crate::tonic::{channel, common, converse, hello, start};
use annulus::net::{TcpListener, TcpStream};
use annulus::time::Instant;
use annulus_compat::hyper_util::Connector;
use annulus_compat::tonic::Channel;
use annulus_compat::{Incoming, Listen};
use common::as_guest;
use futures_util::Stream;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};

/// Time after which a server that does not end fails the test.
const MAX_SHUTDOWN_TIME: Duration = Duration::from_secs(60);

#[test]
fn tonics_own_server_and_channel_as_a_guest() {
    as_guest(async {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", incoming.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(Greeter).add_service(Trouble);
        let stopped = async { _ = stopped.await };
        let served = tokio::spawn(server.serve_with_incoming_shutdown(incoming, stopped));
        let endpoint = Endpoint::try_from(origin)?.connect_timeout(Duration::from_secs(10));
        let channel = endpoint.connect_with_connector(Connector::new()).await?;
        converse(channel.clone()).await?;
        let request = Request::new(hello(""));
        let peer = unary(channel.clone(), "/test.Trouble/Peer", request).await?;
        assert!(peer.into_inner().message.starts_with("127.0.0.1:"));
        let mut request = Request::new(hello("3600"));
        request.set_timeout(Duration::from_millis(10));
        let status = unary(channel, "/test.Trouble/Wait", request).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
        stop.send(()).unwrap();
        served.await??;
        Ok(())
    });
}

/// annulus's channel with tonic's server, and the reverse.
#[test]
fn annulus_and_tonic_transports_interoperate() {
    as_guest(async {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", incoming.local_addr()?);
        tokio::spawn(Server::builder().add_service(Greeter).serve_with_incoming(incoming));
        converse(Channel::new(origin.parse()?)?).await?;
        let server = start("127.0.0.1:0");
        let endpoint = Endpoint::try_from(server.origin.clone())?;
        converse(endpoint.connect_with_connector(Connector::new()).await?).await?;
        let mut client = Client::new(channel(&server));
        client.say(hello("all")).await?;
        Ok(())
    });
}

/// tonic retries immediately after an error, so the listener must end.
#[test]
fn server_ends_when_the_runtime_of_its_listener_ends() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let entered = annulus_tokio::enter().unwrap();
        let incoming = Incoming::bind("127.0.0.1:0").unwrap();
        let server = Server::builder().add_service(Greeter).serve_with_incoming(incoming);
        let served = tokio::spawn(server);
        tokio::task::yield_now().await;
        drop(entered);
        tokio::time::timeout(MAX_SHUTDOWN_TIME, served)
            .await
            .expect("the server did not end")
            .unwrap()
            .unwrap();
    });
}

#[test]
fn server_ends_when_its_listener_is_polled_on_another_thread() {
    as_guest(async {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let other = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let server = Server::builder().add_service(Greeter).serve_with_incoming(incoming);
            tokio
                .block_on(async { tokio::time::timeout(MAX_SHUTDOWN_TIME, server).await })
                .expect("the server did not end")
        });
        other.join().unwrap()?;
        Ok(())
    });
}

/// A listener that first returns `errors` errors.
struct Failing {
    listener: TcpListener,
    errors: usize,
}

impl Listen for Failing {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        if self.errors == 0 {
            return self.listener.poll_accept(cx);
        }
        self.errors -= 1;
        Poll::Ready(Err(io::Error::other("no connection can be accepted now")))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Like errors of annulus, which carry a text, these have no `raw_os_error`.
#[test]
fn server_continues_after_listener_errors() {
    as_guest(async {
        let listener = Failing { listener: TcpListener::bind("127.0.0.1:0")?, errors: 2 };
        let incoming = Incoming::new(listener);
        let origin = format!("http://{}", incoming.local_addr()?);
        let begun = Instant::now();
        tokio::spawn(Server::builder().add_service(Greeter).serve_with_incoming(incoming));
        converse(Channel::new(origin.parse()?)?).await?;
        assert!(begun.elapsed() >= Duration::from_secs(2), "the server did not pause");
        Ok(())
    });
}

/// The pause after an error is a timer of the runtime, which has to end with it.
#[test]
fn server_ends_when_the_runtime_ends_after_a_listener_error() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let entered = annulus_tokio::enter().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let incoming = Incoming::new(Failing { listener, errors: usize::MAX });
        let server = Server::builder().add_service(Greeter).serve_with_incoming(incoming);
        let served = tokio::spawn(server);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(entered);
        tokio::time::timeout(MAX_SHUTDOWN_TIME, served)
            .await
            .expect("the server did not end")
            .unwrap()
            .unwrap();
    });
}

/// The listener reports the error once and then ends; otherwise tonic's loop would never end.
#[test]
fn listener_polled_on_another_thread_reports_one_error() {
    as_guest(async {
        let mut incoming = Incoming::bind("127.0.0.1:0")?;
        let other = std::thread::spawn(move || {
            let mut cx = Context::from_waker(Waker::noop());
            let mut next = || Pin::new(&mut incoming).poll_next(&mut cx);
            assert!(matches!(next(), Poll::Ready(Some(Err(_)))));
            assert!(matches!(next(), Poll::Ready(None)));
            assert!(matches!(next(), Poll::Ready(None)));
        });
        other.join().unwrap();
        Ok(())
    });
}
