//! Failures of calls and connections.

use crate::tonic::greeter::{Client, Greeter, HelloRequest};
use crate::tonic::trouble::{flooded, streaming, unary};
use crate::tonic::{channel, common, hello, start};
use annulus::net::TcpListener;
use annulus::sim::Sim;
use annulus::time::sleep;
use annulus_compat::tonic::{Channel, serve};
use common::{everywhere, simulated};
use std::future::IntoFuture;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tonic::{Code, Request};

/// The type of an HTTP/2 frame with the head of a request.
const HEADERS: u8 = 1;
const SETTINGS_FRAME: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const GOAWAY_FRAME_BEFORE_STREAM_1: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn message_sizes_are_limited() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let large = |bytes: usize| Request::new(hello(&bytes.to_string()));
        let reply = unary(channel(&server), "/test.Trouble/Large", large(4_000_000)).await?;
        assert_eq!(reply.into_inner().message.len(), 4_000_000);
        let status = unary(channel(&server), "/test.Trouble/Large", large(5_000_000)).await;
        assert_eq!(
            status.unwrap_err().code(),
            Code::OutOfRange,
            "the client did not reject the message"
        );
        let mut client = Client::new(channel(&server));
        let status = client.say(hello(&"x".repeat(5_000_000))).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "the server did not reject the message");
        let mut client = Client::new(channel(&server)).max_decoding_message_size(10);
        assert_eq!(client.say(hello("a longer one")).await.unwrap_err().code(), Code::OutOfRange);
        Ok(())
    });
}

#[test]
fn unknown_methods_and_services_are_unimplemented() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        for method in ["/test.Trouble/Nothing", "/no.Service/Nothing"] {
            let status = unary(channel(&server), method, Request::new(hello(""))).await;
            assert_eq!(status.unwrap_err().code(), Code::Unimplemented, "{method}");
        }
        Ok(())
    });
}

#[test]
fn panicking_handler_ends_only_its_call() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let channel = channel(&server);
        let mut other = Client::new(channel.clone());
        other.say(hello("before")).await?;
        let request = Request::new(hello(""));
        let status = unary(channel.clone(), "/test.Trouble/Panic", request).await.unwrap_err();
        assert!(matches!(status.code(), Code::Cancelled | Code::Internal), "{status:?}");
        assert_eq!(other.say(hello("after")).await?.into_inner().message, "hello, after");
        Ok(())
    });
}

/// A server that shuts down sends GOAWAY without an error, with the last stream that it serves.
#[test]
fn call_that_a_server_does_not_begin_before_its_end_is_unavailable() {
    everywhere(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.send(SETTINGS_FRAME).await?;
            stream.recv_exact(24).await?; // The preface.
            loop {
                let head = stream.recv_exact(9).await?;
                let len = usize::from(head[1]) << 8 | usize::from(head[2]);
                stream.recv_exact(len).await?;
                if head[3] == HEADERS {
                    break;
                }
            }
            stream.send(GOAWAY_FRAME_BEFORE_STREAM_1).await?;
            // The connection stays open.
            while stream.recv().await?.is_some() {}
            io::Result::Ok(())
        });
        let mut client = Client::new(Channel::new(format!("http://{address}").parse()?)?);
        let status = client.say(hello("late")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        drop((client, server));
        Ok(())
    });
}

#[test]
fn channel_reconnects_when_the_server_comes_back() {
    everywhere(async || {
        // A std listener closes at once; an annulus listener closes at the end of the turn. No
        // other test uses an address like this.
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = std::net::SocketAddr::from(([127, 64, high, low], 0));
        let address = std::net::TcpListener::bind(own)?.local_addr()?;
        let mut client = Client::new(Channel::new(format!("http://{address}").parse()?)?);
        let status = client.say(hello("one")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains(&address.to_string()), "{status}");
        for round in ["two", "three"] {
            // The previous listener is closed at the end of a turn.
            let listener = loop {
                match TcpListener::bind(address) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        annulus::task::yield_now().await
                    }
                    other => break other?,
                }
            };
            let server = serve(listener, Greeter);
            let server = annulus::spawn(server.into_future());
            // Calls fail until the client has received the end of the previous connection.
            let reply = loop {
                match client.say(hello(round)).await {
                    Err(status) if status.code() == Code::Unavailable => {
                        annulus::task::yield_now().await
                    }
                    other => break other?,
                }
            };
            assert_eq!(reply.into_inner().message, format!("hello, {round}"));
            server.abort();
            _ = server.await;
        }
        Ok(())
    });
}

/// The connection ends while a call waits.
#[test]
fn call_fails_when_its_connection_ends() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let request = Request::new(hello(""));
        let mut ticks = streaming(channel(&server), "/test.Trouble/Tick", request).await?;
        assert_eq!(ticks.message().await?.unwrap().message, "0");
        server.ended.abort();
        let status = ticks.message().await.unwrap_err();
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
        Ok(())
    });
}

#[test]
fn a_graceful_shutdown_finishes_calls() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let request = Request::new(hello("100"));
        let channel = channel(&server);
        let call = unary(channel, "/test.Trouble/Wait", request);
        let call = annulus::spawn(call);
        sleep(Duration::from_secs(1)).await;
        server.stop.cancel();
        assert_eq!(call.await??.into_inner().message, "waited");
        server.ended.await??;
        Ok(())
    });
}

/// The client takes only one message, so HTTP/2's windows and the stream's bound stop the server.
#[test]
fn server_memory_is_bounded_while_the_client_does_not_read() {
    simulated(async |_: Rc<Sim>| {
        let server = start("10.0.0.1:80");
        let request = Request::new(HelloRequest::default());
        let mut flood = streaming(channel(&server), "/test.Trouble/Flood", request).await?;
        flood.message().await?;
        sleep(Duration::from_secs(10)).await;
        let sent = flooded();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(flooded(), sent);
        let held = annulus::stats().expect("in a runtime").memory.held;
        assert!(sent > 10_000 && sent < 8_000_000, "{sent}");
        assert!(held < 4_000_000, "{held}");
        // The server continues when the client reads.
        for _ in 0..1000 {
            flood.message().await?;
        }
        Ok(())
    });
}
