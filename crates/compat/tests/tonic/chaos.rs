//! Calls over failing networks and kernels, derived from a seed. Each call ends within its
//! deadline, with success or a status.

use crate::tonic::greeter::{Client, Greeter};
use crate::tonic::trouble::Trouble;
use crate::tonic::{common, hello};
use annulus::net::TcpListener;
use annulus::time::{Instant, sleep, timeout};
use annulus_compat::hyper_util::Connector;
use annulus_compat::tonic::{Channel, serve};
use futures_util::stream;
use std::time::Duration;
use tonic::Status;
use tonic::service::Routes;

const SECOND: Duration = Duration::from_secs(1);

/// Serves forever, and retries when the kernel refuses to listen.
async fn listen() {
    loop {
        match TcpListener::bind("10.0.0.1:80") {
            Err(_) => sleep(SECOND / 1000).await,
            Ok(listener) => {
                _ = serve(listener, Routes::new(Greeter).add_service(Trouble)).await;
            }
        }
    }
}

async fn call(client: &mut Client<Channel>, n: usize) -> Result<(), Status> {
    let name = "n".repeat(n * 3000 + 1);
    let reply = client.say(hello(&name)).await?.into_inner();
    assert_eq!(reply.message, format!("hello, {name}"));
    let names: Vec<_> = (0..20).map(|n| hello(&format!("{n:0>700}"))).collect();
    let mut replies = client.chat(stream::iter(names.clone())).await?.into_inner();
    for name in names {
        let reply = replies.message().await?.ok_or(Status::data_loss("too few"))?;
        assert_eq!(reply.message, format!("hello, {}", name.name));
    }
    assert_eq!(replies.message().await?, None);
    Ok(())
}

async fn calls() -> common::Outcome {
    annulus::spawn(listen());
    let connector = Connector::new().timeout(SECOND * 5);
    let channel = Channel::with("http://10.0.0.1".parse()?, connector, |http| {
        http.http2_keep_alive_interval(SECOND * 10).http2_keep_alive_timeout(SECOND * 10);
    })?;
    let mut client = Client::new(channel.timeout(SECOND * 20));
    let (begun, mut succeeded) = (Instant::now(), 0);
    while succeeded < 5 {
        // `call` makes two calls, each with a deadline of 20 s.
        let ended = timeout(SECOND * 41, call(&mut client, succeeded)).await;
        match ended.expect("a call outlived its deadline") {
            Ok(()) => succeeded += 1,
            Err(_) => sleep(SECOND / 10).await,
        }
        assert!(begun.elapsed() < SECOND * 3600, "no success for an hour");
    }
    Ok(())
}

#[test]
fn every_call_ends_despite_faults() {
    for seed in 0..100 {
        annulus::sim::run(seed, calls()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
