//! Connects to a Unix socket, whatever the URI.

use super::connector::Connecting;
use crate::OnThread;
use crate::hyper::Io;
use annulus::net::UnixStream;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// Connects to one Unix socket, for hyper-util's client. The URI only provides the path and the
/// `host` header.
///
/// ```
/// use annulus_compat::hyper_util::UnixConnector;
/// use tower_service::Service;
///
/// annulus::run(async {
///     let path = std::env::temp_dir().join(format!("annulus-compat-doc-{}", std::process::id()));
///     let listener = annulus::net::UnixListener::bind(&path)?;
///     let mut connector = UnixConnector::new(&path);
///     let _stream = connector.call("http://localhost/".parse()?).await?;
///     listener.accept().await?;
///     std::fs::remove_file(path)?;
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct UnixConnector(Arc<PathBuf>);

impl UnixConnector {
    /// Creates a connector for the socket at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(path.into()))
    }
}

impl Service<Uri> for UnixConnector {
    type Response = Io<OnThread<UnixStream>>;
    type Error = io::Error;
    type Future = Connecting<UnixStream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Connecting<UnixStream> {
        let path = self.0.clone();
        Connecting::new(async move {
            let stream = UnixStream::connect(path.as_path()).await?;
            Ok(Io::new(OnThread::new(stream)).await_early_answer())
        })
    }
}

impl Connection for Io<OnThread<UnixStream>> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
