//! Messages over a stream, by a decoder and an encoder of `tokio-util` (feature `codec`).

use super::frame::above;
use super::recv::AsyncRecv;
use super::send::AsyncSend;
use crate::bytes::chunk::Chunk;
use bytes::BytesMut;
use futures_core::Stream;
use futures_sink::Sink;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::codec::{Decoder, Encoder};

/// Unsent bytes from which on a sink flushes before it takes another message.
const UNSENT: usize = 8 * 1024;

/// A stream of messages, which a [`Decoder`] makes of received bytes, and a sink of messages, which an [`Encoder`] makes bytes of.
///
/// Received bytes are copied once, to the `BytesMut` that decoders ask for. Encoded bytes are not copied: they are sent as they are. A
/// receiving half makes a stream only, a sending half a sink only. Code that asks for tokio's own `Framed` gets it over the
/// feature `tokio-io`, with one more copy of what is sent. Protocols that need no `BytesMut` are parsed without a copy by
/// [`AsyncRecv::read_frame`].
///
/// ```
/// use annulus::io::Framed;
/// use annulus::net::UnixStream;
/// use tokio_util::codec::LinesCodec;
///
/// # annulus::run(async {
/// let (client, server) = UnixStream::pair()?;
/// annulus::spawn(async move {
///     let mut lines = Framed::new(server, LinesCodec::new_with_max_length(1024));
///     while let Some(line) = lines.next().await {
///         lines.send(line?.to_uppercase()).await?;
///     }
///     Ok::<_, tokio_util::codec::LinesCodecError>(())
/// });
/// let mut client = Framed::new(client, LinesCodec::new());
/// client.send("hello").await?;
/// assert_eq!(client.next().await.transpose()?.as_deref(), Some("HELLO"));
/// # Ok::<_, tokio_util::codec::LinesCodecError>(())
/// # }).unwrap();
/// ```
pub struct Framed<S, C> {
    stream: S,
    codec: C,
    limit: usize,
    received: BytesMut,
    state: State,
    encoded: BytesMut,
    /// Encoded before, and not accepted by the stream yet.
    leaving: Chunk,
}

/// What reading does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What has been received is not a whole message: more bytes are needed.
    Empty,
    /// The decoder has not said that it needs more.
    Decoding,
    /// The stream has ended; the decoder is asked for what is left.
    Ended,
    /// An error was returned, behind which a loop over the messages ends.
    Failed,
}

impl<S, C> Framed<S, C> {
    /// The most bytes of a message, unless another limit is set: 16 MiB.
    pub const LIMIT: usize = 16 << 20;

    /// Messages over a stream, each of at most [`LIMIT`](Self::LIMIT) bytes as they are received.
    pub fn new(stream: S, codec: C) -> Self {
        Self {
            stream,
            codec,
            limit: Self::LIMIT,
            received: BytesMut::new(),
            state: State::Decoding,
            encoded: BytesMut::new(),
            leaving: Chunk::EMPTY,
        }
    }

    /// Another limit. A message of more bytes is an error (`InvalidData`, naming both numbers), as soon as more have come without its
    /// end. A lower limit of the decoder gives the decoder's error.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// The stream. Bytes that it has received may be in the buffer of this value already.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The decoder and encoder.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// The stream, the codec, and received bytes of which no message was made yet. Messages that were not flushed are lost.
    pub fn into_parts(self) -> (S, C, BytesMut) {
        (self.stream, self.codec, self.received)
    }
}

impl<S: AsyncRecv, C: Decoder> Framed<S, C> {
    /// The next message; `None` at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// Those of receiving, those of the decoder, and `InvalidData` for a message above the limit. After an error the next call returns
    /// `None`, so that a loop over the messages ends; the one after that goes on. A loop that answers an error and continues takes
    /// that `None` first.
    pub async fn next(&mut self) -> Option<Result<C::Item, C::Error>> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<C::Item, C::Error>>> {
        let message = match self.state {
            State::Failed => Ok(None),
            _ => ready!(self.poll_decoded(cx)),
        };
        match &message {
            Err(_) => self.state = State::Failed,
            Ok(None) => self.state = State::Decoding,
            Ok(Some(_)) => {}
        }
        Poll::Ready(message.transpose())
    }

    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<C::Item>, C::Error>> {
        loop {
            match self.state {
                State::Ended => return Poll::Ready(self.codec.decode_eof(&mut self.received)),
                State::Decoding if !self.received.is_empty() => {
                    if let Some(message) = self.codec.decode(&mut self.received)? {
                        return Poll::Ready(Ok(Some(message)));
                    }
                    let there = self.received.len();
                    if there > self.limit {
                        let what = format!("a message of {there} bytes or more");
                        return Poll::Ready(Err(above(&what, self.limit).into()));
                    }
                }
                _ => {}
            }
            self.state = State::Empty;
            let shown = ready!(self.stream.poll_fill_buf(cx))?;
            self.received.extend_from_slice(shown);
            let count = shown.len();
            self.stream.consume(count);
            self.state = if count == 0 { State::Ended } else { State::Decoding };
        }
    }
}

impl<S: AsyncSend, C> Framed<S, C> {
    /// Encodes a message and sends it. If the future is dropped after its first poll, the message is encoded, and the next call sends
    /// it.
    ///
    /// # Errors
    /// Those of the encoder and of sending.
    pub async fn send<M>(&mut self, message: M) -> Result<(), C::Error>
    where
        C: Encoder<M>,
    {
        self.codec.encode(message, &mut self.encoded)?;
        poll_fn(|cx| self.poll_leave(cx)).await.map_err(C::Error::from)
    }

    /// Ready once the stream has accepted all that was encoded, and sends it without further calls.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            if !self.leaving.is_empty() {
                ready!(self.stream.poll_send(cx, &mut self.leaving))?;
            }
            if self.encoded.is_empty() {
                return self.stream.poll_flush(cx);
            }
            self.leaving = self.encoded.split().freeze().into();
        }
    }
}

// Nothing in it is pinned.
impl<S, C> Unpin for Framed<S, C> {}

impl<S: AsyncRecv, C: Decoder> Stream for Framed<S, C> {
    type Item = Result<C::Item, C::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_message(cx)
    }
}

impl<S: AsyncSend, C: Encoder<M>, M> Sink<M> for Framed<S, C> {
    type Error = C::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        let this = self.get_mut();
        if this.encoded.len() < UNSENT {
            return Poll::Ready(Ok(()));
        }
        this.poll_leave(cx).map_err(C::Error::from)
    }

    fn start_send(self: Pin<&mut Self>, message: M) -> Result<(), C::Error> {
        let this = self.get_mut();
        this.codec.encode(message, &mut this.encoded)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.get_mut().poll_leave(cx).map_err(C::Error::from)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        let this = self.get_mut();
        ready!(this.poll_leave(cx))?;
        this.stream.poll_shutdown(cx).map_err(C::Error::from)
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for Framed<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framed")
            .field("stream", &self.stream)
            .field("codec", &self.codec)
            .field("received", &self.received.len())
            .field("unsent", &(self.leaving.len() + self.encoded.len()))
            .finish_non_exhaustive()
    }
}
