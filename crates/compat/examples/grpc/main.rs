//! A gRPC service and its client with tonic, on annulus alone.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example grpc -- server 127.0.0.1:50051`,
//! and in another terminal `… --example grpc -- client http://127.0.0.1:50051 you them`. The limits
//! are those of `tonic::serve`, which does not limit the number of clients. Each call has its
//! client's deadline. On SIGINT or SIGTERM the server exits once its calls have ended, within ten
//! seconds.

mod greeter;

use annulus::net::{KeepAlive, ListenOptions};
use annulus::signal::{Signal, signals};
use annulus_compat::tonic::{Channel, serve};
use greeter::{Client, Greeter, HelloRequest};
use std::error::Error;
use std::time::Duration;
use tonic::codegen::tokio_stream;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    annulus::run(async {
        match *arguments {
            ["server", address] => server(address).await,
            ["client", origin, ref names @ ..] if !names.is_empty() => client(origin, names).await,
            _ => Err("usage: grpc server ADDRESS | grpc client ORIGIN NAME...".into()),
        }
    })
}

async fn server(address: &str) -> Outcome {
    let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let mut stop = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
    serve(listener, Greeter)
        .with_graceful_shutdown(async move { _ = stop.recv().await })
        .drain_timeout(Duration::from_secs(10))
        .await?;
    Ok(())
}

async fn client(origin: &str, names: &[&str]) -> Outcome {
    let channel = Channel::new(origin.parse()?)?.timeout(Duration::from_secs(5));
    let mut client = Client::new(channel).max_decoding_message_size(64 * 1024);
    let requests: Vec<_> = names.iter().map(|name| HelloRequest { name: (*name).into() }).collect();
    let reply = client.say(requests[0].clone()).await?;
    println!("{}", reply.into_inner().message);
    let mut replies = client.say_many(requests[0].clone()).await?.into_inner();
    while let Some(reply) = replies.message().await? {
        println!("{}", reply.message);
    }
    let reply = client.gather(tokio_stream::iter(requests.clone())).await?;
    println!("{}", reply.into_inner().message);
    let mut replies = client.chat(tokio_stream::iter(requests)).await?.into_inner();
    while let Some(reply) = replies.message().await? {
        println!("{}", reply.message);
    }
    Ok(())
}
