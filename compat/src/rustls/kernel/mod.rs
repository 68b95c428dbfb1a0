//! Sessions whose records the kernel makes (kernel TLS), in the sending direction: docs/adr/0041 says why only there.

mod about;
mod alert;
mod handshake;
mod keys;
mod opener;
mod records;
mod sealer;
mod secrets;
mod sending;
mod server_name;
mod session;
#[cfg(test)]
mod tests;

pub(super) use handshake::Handshake;
pub(super) use session::KernelSession;

use annulus::net::TcpStream;
use std::any::Any;
use std::io;

/// Whether the kernel encrypts what sessions send (kernel TLS): [`TlsAcceptor::kernel`](super::TlsAcceptor::kernel),
/// [`TlsConnector::kernel`](super::TlsConnector::kernel).
///
/// Then [`io::copy`](annulus::io::copy()) of a file sends its pages to the peer, and none of them is read into the program. What is received is
/// decrypted by rustls in any case.
///
/// It needs a kernel with `CONFIG_TLS`, whose module, if it is one, was loaded (`modprobe tls`, as root), and streams that are an
/// [`annulus::net::TcpStream`].
///
/// ```
/// use annulus::fs::File;
/// use annulus::io::{AsyncSend, copy};
/// use annulus::net::TcpStream;
/// use annulus_compat::rustls::{KernelTls, TlsAcceptor};
///
/// async fn answer(stream: TcpStream, acceptor: TlsAcceptor, page: &mut File) -> std::io::Result<()> {
///     let acceptor = acceptor.kernel(KernelTls::IfAvailable);
///     let mut session = acceptor.accept(stream).await?;
///     println!("{} encrypts", if session.is_kernel() { "the kernel" } else { "rustls" });
///     copy(page, &mut session).await?;
///     session.shutdown().await
/// }
/// # drop(answer);
/// ```
///
/// # What differs
/// - Keys for sending cannot be changed: kernels before 6.14 do not take others. If the peer asks for new ones (`KeyUpdate` with
///   `update_requested`, which hardly a program sends), receiving goes on, while the next send is an error that says so, and the peer gets an
///   alert. Peers may change their own keys.
/// - With the same keys no more than 2^24 records of AES-GCM are sent, some 256 GB in full records: then sends are an error of the kind
///   `QuotaExceeded`, and the session should be shut down. There is no such limit for ChaCha20-Poly1305.
/// - If a record that was received is wrong, the session fails as with rustls. The alert that tells the peer is sent if the socket has space for
///   it; it is not waited for.
/// - [`TlsStream::state`](super::TlsStream::state) is `None`: rustls gives up what it knows with its keys.
/// - The ciphers are those of TLS 1.3, and of TLS 1.2 those with AES-GCM and ChaCha20-Poly1305. If the kernel lacks the one that was agreed on
///   (ChaCha20-Poly1305 is a module of its own), `IfAvailable` encrypts it in the program, and `Required` is an error.
/// - Early data (0-RTT) is neither offered nor accepted, whatever the settings of rustls say.
/// - An end of the stream that is dropped without [`shutdown`](annulus::io::AsyncSend::shutdown) may take up to a record with it that the kernel
///   has accepted and the socket had no space for, besides what every dropped session loses: `close_notify`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelTls {
    /// rustls encrypts.
    #[default]
    Off,
    /// The kernel encrypts if it can, else the program does, by rustls: [`TlsStream::is_kernel`](super::TlsStream::is_kernel) tells.
    IfAvailable,
    /// The kernel encrypts; if it cannot, there is no session but an error that says what is missing.
    Required,
}

impl KernelTls {
    /// Whether the kernel is to encrypt what this stream sends, which it is made ready for.
    ///
    /// # Errors
    /// If it must and cannot.
    pub(super) fn prepare<S: 'static>(self, stream: &mut S) -> io::Result<bool> {
        if self == Self::Off {
            return Ok(false);
        }
        let prepared = match tcp_mut(stream) {
            Some(stream) => stream.prepare_kernel_tls(),
            None => Err(other_stream(std::any::type_name::<S>())),
        };
        match prepared {
            Ok(()) => Ok(true),
            Err(_) if self == Self::IfAvailable => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn other_stream(name: &str) -> io::Error {
    let text = format!(
        "kernel TLS is for sessions over an annulus::net::TcpStream; this one is over {name}: choose KernelTls::IfAvailable or KernelTls::Off"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// The stream, if it is one of TCP.
fn tcp_mut<S: 'static>(stream: &mut S) -> Option<&mut TcpStream> {
    (stream as &mut dyn Any).downcast_mut()
}

fn tcp_ref<S: 'static>(stream: &S) -> Option<&TcpStream> {
    (stream as &dyn Any).downcast_ref()
}
