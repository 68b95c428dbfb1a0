//! WebSockets with axum's extractor and tokio-tungstenite, without a tokio runtime.

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

/// A WebSocket session: a `Stream` and a `Sink` of tungstenite's `Message`.
pub type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Like axum's extractor of the same name, but sessions are annulus tasks. They need no tokio
/// runtime and need not be `Send`, so they may use everything in annulus. A request that axum's
/// extractor rejects gets axum's response; a request over HTTP/2 gets 505 with the reason.
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
        Ok(Self { request, upgrade, accept, config: WebSocketConfig::default() })
    }
}

impl WebSocketUpgrade {
    /// Sets limits for messages and frames, and buffer sizes. The defaults are 64 MiB per message
    /// and 16 MiB per frame.
    pub fn config(mut self, config: WebSocketConfig) -> Self {
        self.config = config;
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

    /// Returns the response, which the handler must return. Once it has been sent, `session` runs
    /// in a task on this thread's runtime. It does not run if the client disconnects first.
    pub fn on_upgrade<F>(self, session: impl FnOnce(WebSocket) -> F + 'static) -> Response
    where
        F: Future<Output = ()> + 'static,
    {
        annulus::spawn(async move {
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
