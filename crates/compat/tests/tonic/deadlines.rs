//! Deadlines and cancellation.

use crate::tonic::trouble::{Trouble, handlers, streaming, unary};
use crate::tonic::{channel, common, hello, start};
use annulus::net::TcpListener;
use annulus::time::{Instant, sleep};
use annulus_compat::tonic::{Channel, Deadlines};
use annulus_compat::tower;
use common::{everywhere, simulated};
use futures_util::future::{Either, select};
use std::future::IntoFuture;
use std::time::Duration;
use tonic::service::Routes;
use tonic::{Code, Request};

const SECOND: Duration = Duration::from_secs(1);

fn within(limit: Duration, name: &str) -> Request<crate::tonic::HelloRequest> {
    let mut request = Request::new(hello(name));
    request.set_timeout(limit);
    request
}

/// Returns true if a call took about as long as its limit.
fn about(took: Duration, limit: Duration) -> bool {
    took >= limit && took < limit + SECOND
}

#[test]
fn a_call_ends_at_its_deadline() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let begun = Instant::now();
        let request = within(SECOND * 5, "100");
        let status = unary(channel(&server), "/test.Trouble/Wait", request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(about(begun.elapsed(), SECOND * 5), "{:?}", begun.elapsed());
        sleep(SECOND).await;
        assert_eq!(handlers(), (1, 0), "the handler was not dropped");
        // Test a deadline that is set on the channel, and one that is met.
        let begun = Instant::now();
        let channel = channel(&server).timeout(SECOND * 7);
        let request = Request::new(hello("100"));
        let status = unary(channel.clone(), "/test.Trouble/Wait", request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(status.message().contains("7s"), "{status}");
        assert!(about(begun.elapsed(), SECOND * 7), "{:?}", begun.elapsed());
        let request = within(SECOND * 200, "100");
        let reply = unary(channel, "/test.Trouble/Wait", request).await?;
        assert_eq!(reply.into_inner().message, "waited");
        Ok(())
    });
}

#[test]
fn a_stream_ends_at_its_deadline() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let request = within(SECOND * 11 / 2, "");
        let mut ticks = streaming(channel(&server), "/test.Trouble/Tick", request).await?;
        for n in 0..=5 {
            assert_eq!(ticks.message().await?.unwrap().message, n.to_string());
        }
        assert_eq!(ticks.message().await.unwrap_err().code(), Code::DeadlineExceeded);
        drop(ticks);
        sleep(SECOND).await;
        assert_eq!(handlers(), (1, 0), "the stream was not dropped");
        Ok(())
    });
}

/// The server enforces its own limit, even if the client sets no deadline.
#[test]
fn a_server_ends_calls_at_their_deadline() {
    simulated(async |_| {
        let listener = TcpListener::bind("10.0.0.1:80")?;
        let limited = Deadlines::new(Routes::new(Trouble)).limit(SECOND * 4);
        let server = tower::serve(listener, limited).http2_only();
        annulus::spawn(server.into_future());
        let channel = Channel::new("http://10.0.0.1".parse()?)?;
        let begun = Instant::now();
        let request = Request::new(hello("100"));
        let status = unary(channel.clone(), "/test.Trouble/Wait", request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(about(begun.elapsed(), SECOND * 4), "{:?}", begun.elapsed());
        let begun = Instant::now();
        let request = Request::new(hello(""));
        let mut ticks = streaming(channel.clone(), "/test.Trouble/Tick", request).await?;
        let status = loop {
            match ticks.message().await {
                Ok(tick) => assert!(tick.is_some()),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(status.message().contains("4s"), "{status}");
        assert!(about(begun.elapsed(), SECOND * 4), "{:?}", begun.elapsed());
        assert_eq!(handlers(), (2, 0));
        // The client's deadline is shorter.
        let begun = Instant::now();
        let request = within(SECOND, "100");
        assert!(unary(channel, "/test.Trouble/Wait", request).await.is_err());
        assert!(about(begun.elapsed(), SECOND), "{:?}", begun.elapsed());
        Ok(())
    });
}

#[test]
fn invalid_deadline_is_an_error() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let mut request = Request::new(hello("1"));
        request.metadata_mut().insert("grpc-timeout", "soon".parse()?);
        let status = unary(channel(&server), "/test.Trouble/Wait", request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("\"soon\""), "{status}");
        Ok(())
    });
}

/// The client sends the invalid header without a check, unlike `Channel`.
#[test]
fn server_rejects_an_invalid_deadline() {
    use annulus_compat::hyper::{Executor, Io};
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let address = server.origin.trim_start_matches("http://").to_owned();
        let stream = Io::new(annulus::net::TcpStream::connect(address).await?);
        let (mut client, connection) =
            hyper::client::conn::http2::handshake(Executor, stream).await?;
        annulus::spawn(connection);
        let request = hyper::Request::post("http://x/test.Trouble/Wait")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "soon")
            .body(http_body_util::Empty::<bytes::Bytes>::new())?;
        let response = client.send_request(request).await?;
        assert_eq!(response.headers()["grpc-status"], "3");
        let text = response.headers()["grpc-message"].to_str()?;
        assert!(text.contains("soon"), "{text}");
        Ok(())
    });
}

/// Waits until this many handlers have begun on this thread, and this many are running.
async fn until(begun: usize, running: usize) {
    while handlers() != (begun, running) {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn dropped_calls(address: &str) -> common::Outcome {
    let (before, _) = handlers();
    let server = start(address);
    let channel = channel(&server);
    let hour = Request::new(hello("3600"));
    let call = Box::pin(unary(channel.clone(), "/test.Trouble/Wait", hour));
    match select(call, Box::pin(until(before + 1, 1))).await {
        Either::Left((reply, _)) => panic!("{reply:?}"),
        Either::Right(((), call)) => drop(call),
    }
    until(before + 1, 0).await;
    let mut ticks = streaming(channel, "/test.Trouble/Tick", Request::new(hello(""))).await?;
    assert_eq!(ticks.message().await?.unwrap().message, "0");
    until(before + 2, 1).await;
    drop(ticks);
    until(before + 2, 0).await;
    Ok(())
}

#[test]
fn dropped_call_is_cancelled() {
    everywhere(|| dropped_calls("127.0.0.1:0"));
    simulated(|_| dropped_calls("10.0.0.1:80"));
}
