//! A service whose methods wait, never end, panic or send large messages.

use crate::tonic::greeter::{HelloReply, HelloRequest, Method};
use annulus::time::{interval, sleep};
use annulus_compat::OnThread;
use futures_util::stream;
use std::cell::Cell;
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, BoxStream, Service, http};
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

thread_local! {
    static BEGUN_HANDLERS: Cell<usize> = const { Cell::new(0) };
    static RUNNING_HANDLERS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the numbers of handlers that have begun on this thread, and that are still running.
pub(crate) fn handlers() -> (usize, usize) {
    (BEGUN_HANDLERS.get(), RUNNING_HANDLERS.get())
}

/// Counts a handler as running until it is dropped.
struct Handler;

impl Handler {
    fn begin() -> Self {
        BEGUN_HANDLERS.set(BEGUN_HANDLERS.get() + 1);
        RUNNING_HANDLERS.set(RUNNING_HANDLERS.get() + 1);
        Self
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        RUNNING_HANDLERS.set(RUNNING_HANDLERS.get() - 1);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Trouble;

type Reply = Result<Response<HelloReply>, Status>;

/// Waits for the number of seconds in the request.
async fn wait(request: Request<HelloRequest>) -> Reply {
    let handler = Handler::begin();
    let seconds = request.into_inner().name.parse().map_err(|_| Status::internal("seconds"))?;
    OnThread::new(sleep(Duration::from_secs(seconds))).await;
    drop(handler);
    Ok(Response::new(HelloReply { message: "waited".into() }))
}

/// Sends one message per second, forever.
async fn tick(_: Request<HelloRequest>) -> Result<Response<BoxStream<HelloReply>>, Status> {
    let seconds = (Handler::begin(), interval(Duration::from_secs(1)), 0);
    let ticks = stream::unfold(seconds, async |(handler, mut interval, n)| {
        interval.tick().await;
        Some((Ok(HelloReply { message: n.to_string() }), (handler, interval, n + 1)))
    });
    Ok(Response::new(Box::pin(OnThread::new(ticks))))
}

/// Sends messages as fast as possible, forever.
async fn flood(_: Request<HelloRequest>) -> Result<Response<BoxStream<HelloReply>>, Status> {
    let handler = Handler::begin();
    let messages = stream::repeat_with(move || {
        _ = &handler;
        SENT_BYTES.set(SENT_BYTES.get() + 10_000);
        Ok(HelloReply { message: "x".repeat(10_000) })
    });
    Ok(Response::new(Box::pin(messages)))
}

thread_local! {
    static SENT_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of bytes that floods have produced on this thread.
pub(crate) fn flooded() -> usize {
    SENT_BYTES.get()
}

async fn large(request: Request<HelloRequest>) -> Reply {
    let bytes = request.into_inner().name.parse().map_err(|_| Status::internal("bytes"))?;
    Ok(Response::new(HelloReply { message: "x".repeat(bytes) }))
}

async fn panics(_: Request<HelloRequest>) -> Reply {
    panic!("panics on request")
}

/// Returns the peer's address, as tonic's own server provides it.
async fn peer(request: Request<HelloRequest>) -> Reply {
    let message = request.remote_addr().map_or("unknown".into(), |peer| peer.to_string());
    Ok(Response::new(HelloReply { message }))
}

impl NamedService for Trouble {
    const NAME: &'static str = "test.Trouble";
}

impl Service<http::Request<Body>> for Trouble {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                "/test.Trouble/Wait" => grpc.unary(Method(wait), request).await,
                "/test.Trouble/Large" => grpc.unary(Method(large), request).await,
                "/test.Trouble/Panic" => grpc.unary(Method(panics), request).await,
                "/test.Trouble/Peer" => grpc.unary(Method(peer), request).await,
                "/test.Trouble/Tick" => grpc.server_streaming(Method(tick), request).await,
                "/test.Trouble/Flood" => grpc.server_streaming(Method(flood), request).await,
                path => Status::unimplemented(format!("no method {path}")).into_http(),
            })
        })
    }
}

pub(crate) async fn unary<T>(
    channel: T,
    method: &'static str,
    request: Request<HelloRequest>,
) -> Reply
where
    T: tonic::client::GrpcService<Body>,
    T::ResponseBody: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError>,
{
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = http::uri::PathAndQuery::from_static(method);
    grpc.unary(request, path, ProstCodec::default()).await
}

pub(crate) async fn streaming(
    channel: annulus_compat::tonic::Channel,
    method: &'static str,
    request: Request<HelloRequest>,
) -> Result<tonic::Streaming<HelloReply>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let path = http::uri::PathAndQuery::from_static(method);
    let response = grpc.server_streaming(request, path, ProstCodec::default()).await?;
    Ok(response.into_inner())
}
