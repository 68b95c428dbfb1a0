//! annulus files for tower-http's `ServeDir`.

use crate::OnThread;
use annulus::fs;
use std::future::{Ready, ready};
use std::io::{self, ErrorKind, SeekFrom};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tower_http::services::fs::{Backend, File, Metadata};

/// Makes tower-http's [`ServeDir`](tower_http::services::ServeDir) read files with annulus instead
/// of tokio. It then needs no tokio runtime, and data in the page cache is read without a thread.
/// `ServeDir` still handles ranges, conditional requests and precompressed files.
///
/// ```
/// use annulus_compat::Files;
/// use axum::Router;
/// use tower_http::services::ServeDir;
///
/// let files = ServeDir::with_backend("assets", Files).precompressed_gzip();
/// let router: Router = Router::new().nest_service("/assets", files);
/// ```
///
/// Each file must be read on the thread that opened it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Backend for Files {
    type File = ServedFile;
    type Metadata = FileMetadata;
    type OpenFuture = OnThread<dyn Future<Output = io::Result<ServedFile>>>;
    type MetadataFuture = OnThread<dyn Future<Output = io::Result<FileMetadata>>>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        OnThread::boxed(Box::pin(async move {
            let file = fs::File::open(path).await.map_err(as_not_found)?;
            let metadata = FileMetadata(file.metadata().await?);
            Ok(ServedFile { stream: OnThread::new(file.into_stream()), metadata })
        }))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        OnThread::boxed(Box::pin(async {
            Ok(FileMetadata(fs::metadata(path).await.map_err(as_not_found)?))
        }))
    }
}

/// Turns `NotADirectory` into `NotFound`. `ServeDir` responds with 404 if a path uses a file as a
/// directory, but it recognises that error only by its OS error number. annulus errors have no OS
/// error number because they also carry the failed operation.
fn as_not_found(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::NotADirectory => io::Error::new(ErrorKind::NotFound, error),
        _ => error,
    }
}

/// An open file of [`Files`].
#[derive(Debug)]
pub struct ServedFile {
    stream: OnThread<fs::FileStream>,
    metadata: FileMetadata,
}

impl File for ServedFile {
    type Metadata = FileMetadata;
    type MetadataFuture<'a> = Ready<io::Result<FileMetadata>>;

    /// Returns the metadata that was read when the file was opened.
    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.metadata))
    }
}

impl AsyncRead for ServedFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.stream.try_mut()?).poll_read(cx, buf)
    }
}

impl AsyncSeek for ServedFile {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        AsyncSeek::start_seek(Pin::new(self.stream.try_mut()?), to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        AsyncSeek::poll_complete(Pin::new(self.stream.try_mut()?), cx)
    }
}

/// The metadata of a file of [`Files`].
#[derive(Clone, Copy, Debug)]
pub struct FileMetadata(fs::Metadata);

impl Metadata for FileMetadata {
    fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    fn modified(&self) -> io::Result<SystemTime> {
        Ok(self.0.modified())
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}
