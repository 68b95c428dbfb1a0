//! Unpatched tonic: its services and clients on annulus alone, and its own server and channel as a
//! guest of tokio.

mod chaos;
mod deadlines;
mod failures;
#[allow(unused, unreachable_pub, reason = "the tests use only parts of the example")]
#[path = "../../examples/grpc/greeter.rs"]
pub(crate) mod greeter;
mod transport;
mod trouble;

use crate::common;
use annulus::net::{TcpListener, TcpStream};
use annulus_compat::tonic::{Channel, Deadlines, serve};
use annulus_compat::tower;
use common::{Outcome, everywhere, simulated};
use futures_util::{StreamExt, TryStreamExt, stream};
use greeter::{Client, Greeter, HelloReply, HelloRequest};
use std::future::IntoFuture;
use std::io;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::service::Routes;
use trouble::Trouble;

/// A server of `Greeter` and `Trouble`, which runs until `stop` is cancelled.
pub(crate) struct Running {
    pub(crate) origin: String,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: annulus::task::JoinHandle<io::Result<()>>,
}

pub(crate) fn start(address: &str) -> Running {
    let listener = TcpListener::bind(address).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let server = serve(listener, Routes::new(Greeter).add_service(Trouble))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    Running { origin, stop, ended: annulus::spawn(server.into_future()) }
}

pub(crate) fn channel(server: &Running) -> Channel {
    Channel::new(server.origin.parse().unwrap()).unwrap()
}

pub(crate) fn hello(name: &str) -> HelloRequest {
    HelloRequest { name: name.into() }
}

/// Makes all kinds of calls over a channel.
pub(crate) async fn converse<T>(channel: T) -> Outcome
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody<Data = bytes::Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut client = Client::new(channel);
    for round in 0..20 {
        let name = "n".repeat(round * 1000 + 1);
        let reply = client.say(hello(&name)).await?.into_inner();
        assert_eq!(reply.message, format!("hello, {name}"));
    }
    let replies: Vec<_> = client.say_many(hello("you")).await?.into_inner().try_collect().await?;
    let texts: Vec<_> = replies.iter().map(|reply| reply.message.as_str()).collect();
    assert_eq!(texts, ["hello, you (1 of 3)", "hello, you (2 of 3)", "hello, you (3 of 3)"]);
    let names = ["one", "two", "three"].map(hello);
    let reply = client.gather(stream::iter(names)).await?.into_inner();
    assert_eq!(reply.message, "hello, one and two and three");
    let many = 2_000;
    let names = stream::iter(0..many).map(|n| hello(&format!("{n:0>500}")));
    let mut replies = client.chat(names).await?.into_inner();
    for n in 0..many {
        let expected = HelloReply { message: format!("hello, {n:0>500}") };
        assert_eq!(replies.message().await?, Some(expected));
    }
    assert_eq!(replies.message().await?, None);
    let status = client.say(hello("")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "a name is needed"));
    // An invalid name in the middle of a stream.
    let names = stream::iter(["fine", "", "not reached"].map(hello));
    let mut replies = client.chat(names).await?.into_inner();
    assert_eq!(replies.message().await?.unwrap().message, "hello, fine");
    assert_eq!(replies.message().await.unwrap_err().code(), Code::InvalidArgument);
    Ok(())
}

async fn all_kinds_of_calls(address: &str) -> Outcome {
    let server = start(address);
    let channel = channel(&server);
    converse(channel.clone()).await?;
    drop(channel);
    server.stop.cancel();
    server.ended.await??;
    Ok(())
}

#[test]
fn unary_and_streaming_calls() {
    everywhere(|| all_kinds_of_calls("127.0.0.1:0"));
    simulated(|_| all_kinds_of_calls("10.0.0.1:80"));
}

#[test]
fn calls_share_a_connection() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let channel = channel(&server);
        Client::new(channel.clone()).say(hello("first")).await?;
        let streams = annulus::stats().expect("in a runtime").resources.streams;
        let calls = (0..50).map(|n| {
            let mut client = Client::new(channel.clone());
            async move { client.say(hello(&n.to_string())).await }
        });
        for (n, reply) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
            assert_eq!(reply?.into_inner().message, format!("hello, {n}"));
        }
        assert_eq!(annulus::stats().expect("in a runtime").resources.streams, streams);
        Ok(())
    });
}

/// One server for browsers and gRPC, with an axum router around both.
#[test]
fn a_router_and_a_service_share_a_port() {
    everywhere(async || {
        let hello_page = axum::routing::get(async || "a page");
        let router = Routes::new(Greeter).into_axum_router().route("/", hello_page);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(tower::serve(listener, Deadlines::new(router)).into_future());
        converse(Channel::new(format!("http://{address}").parse()?)?).await?;
        let mut browser = TcpStream::connect(address).await?;
        browser.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        while let Some(lease) = browser.recv().await? {
            answer.extend_from_slice(&lease);
        }
        assert!(answer.ends_with(b"a page"));
        Ok(())
    });
}

#[test]
fn invalid_origins_are_refused() {
    for wrong in ["/path", "127.0.0.1:80", "http://a.example/path", "http://a.example/?query"] {
        let error = Channel::new(wrong.parse().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with(wrong.trim_end_matches('/')), "{error}");
        assert!(error.to_string().contains("scheme://host:port"), "{error}");
    }
}
