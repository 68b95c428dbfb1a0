//! Connections for tonic's own server.

use crate::OnThread;
use crate::send_stream::SendStream;
use annulus::net::{TcpListener, TcpStream, ToSocketAddrs};
use futures_core::Stream;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections of annulus for `tonic::transport::Server::serve_with_incoming`, inside a runtime of `annulus-tokio`. It accepts on the thread that
/// made it, until the runtime ends. Dropping it closes the listener.
///
/// ```standalone_crate
/// use annulus_compat::tonic::Incoming;
/// use tonic::transport::{Endpoint, Server};
/// # mod greeter { include!("../../examples/grpc/greeter.rs"); }
/// use greeter::{Client, Greeter, HelloRequest}; // As tonic's generator makes them.
///
/// annulus_tokio::run(async {
///     let incoming = Incoming::bind("127.0.0.1:0")?;
///     let origin = format!("http://{}", incoming.local_addr()?);
///     tokio::spawn(Server::builder().add_service(Greeter).serve_with_incoming(incoming));
///
///     # #[cfg(feature = "hyper-util")] {
///     let connector = annulus_compat::hyper_util::Connector::new();
///     let channel = Endpoint::try_from(origin)?.connect_with_connector(connector).await?;
///     let reply = Client::new(channel).say(HelloRequest { name: "tokio".into() }).await?;
///     assert_eq!(reply.into_inner().message, "hello, tokio");
///     # }
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?
/// # .unwrap();
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Incoming {
    listener: OnThread<TcpListener>,
    /// No connection can come any more.
    has_ended: bool,
}

impl Incoming {
    /// Listens on an address.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::new)
    }

    /// Accepts from a listener that has settings of its own.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener: OnThread::new(listener), has_ended: false }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// On another thread than the one that made it, or after the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.try_ref()?.local_addr()
    }
}

impl Stream for Incoming {
    type Item = io::Result<SendStream>;

    /// The next connection. After an error of the system, such as a want of descriptors, it goes on. It ends after the error that the runtime
    /// has ended, or that this is another thread than the one that made it.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let accepted = match self.listener.try_ref() {
            Ok(listener) => ready!(listener.poll_accept(cx)),
            Err(wrong) => Err(wrong.into()),
        };
        // Others than the system's would come again at each call.
        self.has_ended = matches!(&accepted, Err(error) if error.raw_os_error().is_none());
        Poll::Ready(Some(accepted.map(|(stream, _)| SendStream::new(stream))))
    }
}

impl Connected for SendStream<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        let stream = self.try_ref().ok();
        TcpConnectInfo {
            local_addr: stream.and_then(|stream| stream.local_addr().ok()),
            remote_addr: stream.and_then(|stream| stream.peer_addr().ok()),
        }
    }
}
