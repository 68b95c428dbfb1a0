//! TCP connections whose records of TLS the kernel makes.

use super::TcpStream;
use super::stream_handle::AsStream;
use annulus_kernel::{RECORD_ALERT, TlsCipher, TlsKeys};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll};

/// Kernel TLS, for libraries of TLS: after a handshake, which they make over the stream, the kernel encrypts what is sent. Pages of files
/// then go from [`io::copy`](crate::io::copy()) to the peer without being read into the program. Receiving stays as it is: what is received
/// are records.
impl TcpStream {
    /// Asks the kernel for its TLS (`TCP_ULP`), before the handshake, so that a program can still go without. Nothing changes for what is
    /// sent and received until there are [keys](Self::encrypt_sends).
    ///
    /// # Errors
    /// `Unsupported`, with what can be done, if the kernel has no TLS or its module is not loaded, or is a simulated one. `NotConnected` if
    /// the connection has ended. `AlreadyExists` if it was called before.
    pub fn prepare_kernel_tls(&self) -> io::Result<()> {
        self.handle().with_fd(|kernel, fd| kernel.tls_begin(fd)).map_err(explained)
    }

    /// From here on the kernel makes records of what is sent, with these keys. Everything that was sent before must have gone: call
    /// [`drain`](Self::drain). There is no way back.
    ///
    /// Such a stream sends by a system call for each turn in which it has something to send, also on io_uring, and never without a copy.
    /// Before more is sent, ask [`check_keys`](Self::check_keys).
    ///
    /// # Errors
    /// `ResourceBusy` if bytes are still to be sent. `InvalidInput` if the stream has keys already. `Unsupported` if the kernel does not have
    /// the cipher, or the stream was not [prepared](Self::prepare_kernel_tls); it can be used as before then.
    pub fn encrypt_sends(&mut self, keys: &TlsKeys) -> io::Result<()> {
        self.handle().encrypt_sends(keys).map_err(|error| refused(error, keys.cipher()))
    }

    /// Whether more may be encrypted with the keys that the kernel has: of AES-GCM 2^24 records, some 256 GB. [`io::copy`](crate::io::copy())
    /// of a file asks by itself; other sends are not refused. It is well for a stream without keys.
    ///
    /// # Errors
    /// `QuotaExceeded` if not: the session is to be ended.
    pub fn check_keys(&self) -> io::Result<()> {
        self.handle().check_keys()
    }

    /// Sends an alert at once, if the socket has space; in front of what is queued. For one that ends the session, with which nothing waits.
    ///
    /// # Errors
    /// `InvalidInput` if the stream has no [keys](Self::encrypt_sends). `WouldBlock` without space. Those of sending.
    pub fn try_send_alert(&mut self, level: u8, description: u8) -> io::Result<()> {
        self.handle().try_send_record(RECORD_ALERT, &[level, description])
    }

    /// Sends an alert, such as `close_notify` (1, 0), behind everything that was sent before. If it is dropped, the alert has left or has not,
    /// and the next call goes on with it.
    ///
    /// # Errors
    /// `InvalidInput` if the stream has no [keys](Self::encrypt_sends). Those of sending.
    pub fn poll_send_alert(
        &mut self,
        cx: &mut Context<'_>,
        level: u8,
        description: u8,
    ) -> Poll<io::Result<()>> {
        self.handle().poll_send_record(cx, RECORD_ALERT, &[level, description])
    }
}

/// What it means that the kernel does not take keys.
fn refused(error: io::Error, cipher: TlsCipher) -> io::Error {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    let text = if is(Errno::NOENT) {
        format!(
            "kernel TLS: the kernel has no {cipher:?}: load its module, such as by `modprobe chacha20poly1305`, or offer other ciphers"
        )
    } else if is(Errno::NOPROTOOPT) {
        "kernel TLS: the stream was not made ready for keys: call `prepare_kernel_tls` before"
            .into()
    } else {
        return error;
    };
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// What it means that the kernel has no such thing.
fn explained(error: io::Error) -> io::Error {
    let absent = [Errno::NOENT, Errno::NOPROTOOPT, Errno::OPNOTSUPP].map(Errno::raw_os_error);
    let is_absent = error.raw_os_error().is_some_and(|number| absent.contains(&number));
    if error.kind() == io::ErrorKind::Unsupported && !is_absent {
        let text = "kernel TLS: a simulated kernel has none";
        return io::Error::new(io::ErrorKind::Unsupported, text);
    }
    if !is_absent {
        return error;
    }
    let text = format!(
        "kernel TLS: this kernel offers none ({error}): it needs CONFIG_TLS, and if that is a module, `modprobe tls`, as root, once after the \
         start of the system; or do without"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}
