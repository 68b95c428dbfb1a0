// A service and its client, written by hand but similar to what tonic generates from this
// description:
//
// ```proto
// package hello;
// service Greeter {
//   rpc Say (HelloRequest) returns (HelloReply);
//   rpc SayMany (HelloRequest) returns (stream HelloReply);
//   rpc Gather (stream HelloRequest) returns (HelloReply);
//   rpc Chat (stream HelloRequest) returns (stream HelloReply);
// }
// message HelloRequest { string name = 1; }
// message HelloReply { string message = 1; }
// ```

use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{Stream, StreamExt};
use tonic::codegen::{BoxFuture, BoxStream, Service, http};
use tonic::server::{
    ClientStreamingService, NamedService, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloReply {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Greeter;

fn greet(request: HelloRequest) -> Result<HelloReply, Status> {
    match request.name.as_str() {
        "" => Err(Status::invalid_argument("a name is needed")),
        name => Ok(HelloReply { message: format!("hello, {name}") }),
    }
}

impl Greeter {
    async fn say(request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        greet(request.into_inner()).map(Response::new)
    }

    /// Sends three greetings.
    async fn say_many(
        request: Request<HelloRequest>,
    ) -> Result<Response<BoxStream<HelloReply>>, Status> {
        let reply = greet(request.into_inner())?;
        let replies = (1..=3)
            .map(move |n| Ok(HelloReply { message: format!("{} ({n} of 3)", reply.message) }));
        Ok(Response::new(Box::pin(tonic::codegen::tokio_stream::iter(replies))))
    }

    /// Sends one greeting for all names.
    async fn gather(
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<HelloReply>, Status> {
        let mut requests = request.into_inner();
        let mut names = Vec::new();
        while let Some(request) = requests.message().await? {
            names.push(request.name);
        }
        greet(HelloRequest { name: names.join(" and ") }).map(Response::new)
    }

    /// Sends a greeting for each name as it arrives.
    async fn chat(
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<BoxStream<HelloReply>>, Status> {
        let replies = request.into_inner().map(|request| greet(request?));
        Ok(Response::new(Box::pin(replies)))
    }
}

impl NamedService for Greeter {
    const NAME: &'static str = "hello.Greeter";
}

impl<B> Service<http::Request<B>> for Greeter
where
    B: tonic::codegen::Body<Data = prost::bytes::Bytes> + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send,
{
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                "/hello.Greeter/Say" => grpc.unary(Method(Self::say), request).await,
                "/hello.Greeter/SayMany" => {
                    grpc.server_streaming(Method(Self::say_many), request).await
                }
                "/hello.Greeter/Gather" => {
                    grpc.client_streaming(Method(Self::gather), request).await
                }
                "/hello.Greeter/Chat" => grpc.streaming(Method(Self::chat), request).await,
                path => Status::unimplemented(format!("no method {path}")).into_http(),
            })
        })
    }
}

/// Adapts a function to a service method.
pub(crate) struct Method<F>(pub(crate) F);

impl<F, Fut, Q, R> UnaryService<Q> for Method<F>
where
    F: FnMut(Request<Q>) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    type Response = R;
    type Future = Fut;

    fn call(&mut self, request: Request<Q>) -> Fut {
        (self.0)(request)
    }
}

impl<F, Fut, Q, R, S> ServerStreamingService<Q> for Method<F>
where
    F: FnMut(Request<Q>) -> Fut,
    Fut: Future<Output = Result<Response<S>, Status>>,
    S: Stream<Item = Result<R, Status>>,
{
    type Response = R;
    type ResponseStream = S;
    type Future = Fut;

    fn call(&mut self, request: Request<Q>) -> Fut {
        (self.0)(request)
    }
}

impl<F, Fut, Q, R> ClientStreamingService<Q> for Method<F>
where
    F: FnMut(Request<Streaming<Q>>) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    type Response = R;
    type Future = Fut;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Fut {
        (self.0)(request)
    }
}

impl<F, Fut, Q, R, S> StreamingService<Q> for Method<F>
where
    F: FnMut(Request<Streaming<Q>>) -> Fut,
    Fut: Future<Output = Result<Response<S>, Status>>,
    S: Stream<Item = Result<R, Status>>,
{
    type Response = R;
    type ResponseStream = S;
    type Future = Fut;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Fut {
        (self.0)(request)
    }
}

/// A client of the service, over any channel.
#[derive(Clone, Debug)]
pub(crate) struct Client<T> {
    grpc: tonic::client::Grpc<T>,
}

impl<T> Client<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: tonic::codegen::Body<Data = prost::bytes::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    pub(crate) fn new(channel: T) -> Self {
        Self { grpc: tonic::client::Grpc::new(channel) }
    }

    /// A larger message fails the call.
    pub(crate) fn max_decoding_message_size(mut self, bytes: usize) -> Self {
        self.grpc = self.grpc.max_decoding_message_size(bytes);
        self
    }

    pub(crate) async fn say(
        &mut self,
        request: impl tonic::IntoRequest<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let path = self.ready("/hello.Greeter/Say").await?;
        self.grpc.unary(request.into_request(), path, ProstCodec::default()).await
    }

    pub(crate) async fn say_many(
        &mut self,
        request: impl tonic::IntoRequest<HelloRequest>,
    ) -> Result<Response<Streaming<HelloReply>>, Status> {
        let path = self.ready("/hello.Greeter/SayMany").await?;
        self.grpc.server_streaming(request.into_request(), path, ProstCodec::default()).await
    }

    pub(crate) async fn gather(
        &mut self,
        requests: impl tonic::IntoStreamingRequest<Message = HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let path = self.ready("/hello.Greeter/Gather").await?;
        let requests = requests.into_streaming_request();
        self.grpc.client_streaming(requests, path, ProstCodec::default()).await
    }

    pub(crate) async fn chat(
        &mut self,
        requests: impl tonic::IntoStreamingRequest<Message = HelloRequest>,
    ) -> Result<Response<Streaming<HelloReply>>, Status> {
        let path = self.ready("/hello.Greeter/Chat").await?;
        let requests = requests.into_streaming_request();
        self.grpc.streaming(requests, path, ProstCodec::default()).await
    }

    /// Waits until the channel accepts calls, and returns the method's path.
    async fn ready(&mut self, path: &'static str) -> Result<PathAndQuery, Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(PathAndQuery::from_static(path))
    }
}
