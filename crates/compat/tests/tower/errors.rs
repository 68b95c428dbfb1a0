//! Tests that errors of connections and of the listener are reported, with the peer if there is
//! one.

use crate::tower::*;
use annulus_compat::Listen;
use limits::about;
use std::task::{Context, Poll};

#[test]
fn errors_name_their_peer() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let mut no_http = TcpStream::connect(server.address).await?;
        no_http.send("SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n").await?;
        rest(&mut no_http).await;
        let stream = TcpStream::connect(server.address).await?;
        let panicking = stream.local_addr()?;
        let (mut client, connection) = http2::handshake(Executor, Io::new(stream)).await?;
        annulus::spawn(connection);
        assert!(client.send_request(to("/panic", b"")).await.is_err());
        drop(client);
        server.stop.cancel();
        server.ended.await??;
        let errors = server.errors.borrow();
        assert!(errors[0].starts_with(&format!("{}: ", no_http.local_addr()?)), "{errors:?}");
        let expected = format!("{panicking}: the service panicked: panics on request");
        assert_eq!(errors[1..], [expected]);
        Ok(())
    });
}

/// Fails once, like a process that has run out of descriptors.
struct FailsOnce(TcpListener, bool);

impl Listen for FailsOnce {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        if !std::mem::replace(&mut self.1, true) {
            return Poll::Ready(Err(io::Error::other("too many open files")));
        }
        self.0.poll_accept(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[test]
fn listener_errors_are_reported_and_accepting_is_retried() {
    simulated(async |_| {
        let listener = FailsOnce(TcpListener::bind("10.0.0.1:80")?, false);
        let errors = Rc::new(RefCell::new(Vec::new()));
        let reported = errors.clone();
        let server = serve(listener, router()).on_error(move |error| {
            assert_eq!(error.peer, None);
            reported.borrow_mut().push(error.to_string());
        });
        annulus::spawn(server.into_future());
        let begun = Instant::now();
        let mut client = client_1("10.0.0.1:80".parse()?).await?;
        assert_eq!(text(client.send_request(to("/", b"")).await?).await?, "hello");
        assert!(about(1, begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(*errors.borrow(), ["cannot accept connections: too many open files"]);
        Ok(())
    });
}
