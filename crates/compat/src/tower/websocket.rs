//! WebSockets with axum's extractor and tokio-tungstenite, without a tokio runtime.

use super::sessions::Sessions;
use axum::extract::{self, FromRequestParts};
use axum::http::{HeaderValue, StatusCode, Version, header, request::Parts};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::borrow::Cow;
use std::future::Future;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Size of a session's read buffer. It is in use while the session waits, so it bounds the memory
/// of idle sessions. tungstenite's default is 128 KiB.
const READ_BUFFER_BYTES: usize = 4096;

/// A WebSocket session: a `Stream` and a `Sink` of tungstenite's `Message`.
pub type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Like axum's extractor of the same name, but sessions are annulus tasks. They need no tokio
/// runtime and need not be `Send`, so they may use everything in annulus. A request that axum's
/// extractor rejects gets axum's response; a request over HTTP/2 gets 505 with the reason.
///
/// An idle session holds about 8 KiB of memory, mostly its read buffer of 4 KiB and its task.
/// Messages may be larger than the buffer.
///
/// ```
/// use annulus_compat::tower::WebSocketUpgrade;
/// use axum::{Router, response::Response, routing::any};
/// use futures_util::{SinkExt, StreamExt};
///
/// async fn echo(upgrade: WebSocketUpgrade) -> Response {
///     upgrade.protocols(["echo"]).on_upgrade(async |mut socket| {
///         while let Some(Ok(message)) = socket.next().await {
///             let is_data = message.is_text() || message.is_binary();
///             if is_data && socket.send(message).await.is_err() {
///                 break;
///             }
///         }
///     })
/// }
///
/// let router: Router = Router::new().route("/", any(echo));
/// ```
#[derive(Debug)]
#[must_use]
pub struct WebSocketUpgrade {
    request: extract::WebSocketUpgrade,
    upgrade: OnUpgrade,
    accept: String,
    config: WebSocketConfig,
    sessions: Sessions,
}

impl<S: Send + Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let upgrade = parts.extensions.get::<OnUpgrade>().cloned();
        let key = parts.headers.get(header::SEC_WEBSOCKET_KEY).cloned();
        if parts.version > Version::HTTP_11 {
            let text = "WebSockets are served over HTTP/1.1 only";
            return Err((StatusCode::HTTP_VERSION_NOT_SUPPORTED, text).into_response());
        }
        let request = extract::WebSocketUpgrade::from_request_parts(parts, state).await;
        let request = request.map_err(IntoResponse::into_response)?;
        let (upgrade, key) =
            upgrade.zip(key).expect("axum's extractor did not check the upgrade and the key");
        let accept = derive_accept_key(key.as_bytes());
        // Another server, such as `axum::serve`, has no sessions. They then never have to end.
        let sessions = parts.extensions.get().cloned().unwrap_or_else(Sessions::new);
        let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER_BYTES);
        Ok(Self { request, upgrade, accept, config, sessions })
    }
}

impl WebSocketUpgrade {
    /// Replaces all settings, including the [size of the read buffer](Self::read_buffer_size),
    /// which is 128 KiB in tungstenite's default settings. To keep it small, use the methods below,
    /// or set it in `config`.
    pub fn config(mut self, config: WebSocketConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the size of the read buffer, which an idle session keeps. The default is 4 KiB. With a
    /// larger one, a session that receives much makes fewer reads.
    pub fn read_buffer_size(mut self, bytes: usize) -> Self {
        self.config.read_buffer_size = bytes;
        self
    }

    /// Sets how many bytes are collected before they are written without a flush. The default is
    /// 128 KiB. Idle sessions do not hold this buffer.
    pub fn write_buffer_size(mut self, bytes: usize) -> Self {
        self.config.write_buffer_size = bytes;
        self
    }

    /// Sets how many bytes may be waiting to be written before sending fails. It must exceed the
    /// [write buffer](Self::write_buffer_size), or [`on_upgrade`](Self::on_upgrade) panics. There
    /// is no limit by default.
    pub fn max_write_buffer_size(mut self, bytes: usize) -> Self {
        self.config.max_write_buffer_size = bytes;
        self
    }

    /// Sets the maximum size of a received message. The default is 64 MiB; `None` means no limit.
    pub fn max_message_size(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.config.max_message_size = bytes.into();
        self
    }

    /// Sets the maximum size of a received frame. The default is 16 MiB; `None` means no limit.
    pub fn max_frame_size(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.config.max_frame_size = bytes.into();
        self
    }

    /// Selects the first of these subprotocols that the client offers, if any.
    pub fn protocols<I>(mut self, protocols: I) -> Self
    where
        I: IntoIterator<Item: Into<Cow<'static, str>>>,
    {
        self.request = self.request.protocols(protocols);
        self
    }

    /// Returns the selected subprotocol.
    pub fn selected_protocol(&self) -> Option<&HeaderValue> {
        self.request.selected_protocol()
    }

    /// Returns the sessions of the server: see [`Sessions::shutting_down`].
    ///
    /// ```
    /// use annulus_compat::tower::WebSocketUpgrade;
    /// use axum::{Router, response::Response, routing::any};
    /// use futures_util::future::{Either, select};
    /// use futures_util::{SinkExt, StreamExt};
    /// use std::pin::pin;
    /// use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
    ///
    /// /// Echoes messages. When the server shuts down, tells the client to connect elsewhere.
    /// async fn echo(upgrade: WebSocketUpgrade) -> Response {
    ///     let mut shutdown = Box::pin(upgrade.sessions().shutting_down());
    ///     upgrade.on_upgrade(async move |mut socket| {
    ///         while let Either::Left((Some(Ok(message)), _)) =
    ///             select(socket.next(), &mut shutdown).await
    ///         {
    ///             let is_data = message.is_text() || message.is_binary();
    ///             if is_data && socket.send(message).await.is_err() {
    ///                 return;
    ///             }
    ///         }
    ///         let reason = CloseFrame { code: CloseCode::Away, reason: "restart".into() };
    ///         _ = socket.close(Some(reason)).await;
    ///         // The session ends once the client has answered.
    ///         while let Some(Ok(_)) = socket.next().await {}
    ///     })
    /// }
    ///
    /// # let router: Router = Router::new().route("/", any(echo));
    /// ```
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns the response, which the handler must return. Once it has been sent, `session` runs
    /// in a task on this thread's runtime. It does not run if the client disconnects first.
    ///
    /// A graceful shutdown of [`Serve`](super::Serve) waits for the session within
    /// [`drain_timeout`](super::Serve::drain_timeout), and then drops it.
    ///
    /// # Panics
    /// Panics if [`max_write_buffer_size`](Self::max_write_buffer_size) does not exceed
    /// [`write_buffer_size`](Self::write_buffer_size), and outside a runtime.
    pub fn on_upgrade<F>(self, session: impl FnOnce(WebSocket) -> F + 'static) -> Response
    where
        F: Future<Output = ()> + 'static,
    {
        // tungstenite makes the same check, but only once the session starts, after the client has
        // received its response.
        let WebSocketConfig { write_buffer_size, max_write_buffer_size, .. } = self.config;
        assert!(
            max_write_buffer_size > write_buffer_size,
            "max_write_buffer_size is {max_write_buffer_size}, but it must exceed \
             write_buffer_size, which is {write_buffer_size}"
        );
        self.sessions.spawn(async move {
            if let Ok(upgraded) = self.upgrade.await {
                let stream = TokioIo::new(upgraded);
                let config = Some(self.config);
                session(WebSocket::from_raw_socket(stream, Role::Server, config).await).await;
            }
        });
        let headers = [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, &self.accept),
        ];
        let mut response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
        if let Some(protocol) = self.request.selected_protocol() {
            response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        response
    }
}
