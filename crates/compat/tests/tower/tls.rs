//! The server and hyper-util's client over TLS.

use crate::tower::*;
use annulus_compat::hyper_util::{Connector, HttpsConnector};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector, TlsInfo};
use annulus_compat::tonic::Channel;
use hyper_util::client::legacy::Client;
use rustls::{ClientConfig, RootCertStore};

/// Creates an acceptor, and the settings of a client that trusts it.
fn acceptor(alpn: &[&str]) -> (TlsAcceptor, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let acceptor = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), alpn).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    (acceptor, config.unwrap().with_root_certificates(roots).with_no_client_auth())
}

fn client(config: &ClientConfig, alpn: &[&str]) -> Client<HttpsConnector, Full<Bytes>> {
    let mut config = config.clone();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Client::builder(Executor)
        .timer(Timer::new())
        .build(HttpsConnector::new(TlsConnector::new(config)).connector(Connector::new()))
}

#[test]
fn the_version_is_negotiated() {
    on_drivers(async || {
        let (acceptor, config) = acceptor(&["h2", "http/1.1"]);
        let server = start("127.0.0.1:0", |server| server.tls(acceptor));
        let uri = format!("https://localhost:{}/echo", server.address.port());
        let versions: [(&[&str], _); 3] = [
            (&["h2", "http/1.1"], hyper::Version::HTTP_2),
            (&["http/1.1"], hyper::Version::HTTP_11),
            (&[], hyper::Version::HTTP_11),
        ];
        for (alpn, version) in versions {
            let body = vec![b'x'; 300_000];
            let request = hyper::Request::post(&uri).body(Full::new(Bytes::from(body.clone())))?;
            let response = client(&config, alpn).request(request).await?;
            assert_eq!(response.version(), version);
            assert!(text(response).await? == body);
        }
        // A client that does not trust the certificate; the server keeps running.
        let (_, other) = self::acceptor(&[]);
        let request = hyper::Request::post(&uri).body(Full::default())?;
        let error = client(&other, &[]).request(request).await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        // Without TLS, on a separate port.
        let plain = start("127.0.0.1:0", |server| server);
        let uri = format!("http://{}/", plain.address).parse()?;
        assert_eq!(text(client(&config, &["h2"]).get(uri).await?).await?, "hello");
        Ok(())
    });
}

/// The handler gets the server name that the client requested, the client's certificate, and the
/// protocol.
#[test]
fn handler_gets_the_handshake_results() {
    on_drivers(async || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
        let key = || rustls::pki_types::PrivateKeyDer::try_from(key.clone());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            roots.clone().into(),
            provider.clone(),
        );
        let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier.build()?)
            .with_single_cert(vec![certificate.clone()], key()?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let show = async |Extension(tls): Extension<std::sync::Arc<TlsInfo>>| {
            let certificates = tls.peer_certificates.as_deref().unwrap_or_default();
            format!(
                "{:?} {:?} {:?}",
                tls.server_name,
                tls.alpn_protocol.as_deref().map(String::from_utf8_lossy),
                certificates.iter().map(|one| one.len()).collect::<Vec<_>>()
            )
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri: hyper::Uri =
            format!("https://localhost:{}/", listener.local_addr()?.port()).parse()?;
        let server =
            serve(listener, Router::new().route("/", get(show))).tls(TlsAcceptor::new(config));
        annulus::spawn(server.into_future());
        let length = certificate.len();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key()?)?;
        for alpn in ["h2", "http/1.1"] {
            let seen = text(client(&config, &[alpn]).get(uri.clone()).await?).await?;
            assert_eq!(seen, format!("Some(\"localhost\") Some({alpn:?}) [{length}]"));
        }
        Ok(())
    });
}

/// A client that sends nothing after the handshake is disconnected, whichever version it
/// negotiated.
#[test]
fn a_silent_client_is_cut_off() {
    simulated(async |_| {
        let (acceptor, mut config) = acceptor(&["h2", "http/1.1"]);
        let server =
            start("10.0.0.1:443", |server| server.header_read_timeout(SECOND * 20).tls(acceptor));
        for alpn in ["h2", "http/1.1"] {
            config.alpn_protocols = vec![alpn.into()];
            let stream = TcpStream::connect(server.address).await?;
            let mut silent = TlsConnector::new(config.clone()).connect("localhost", stream).await?;
            let begun = Instant::now();
            while let Ok(Some(_)) = annulus::io::AsyncRecv::recv(&mut silent).await {}
            assert!(limits::about(20, begun.elapsed()), "{alpn}: {:?}", begun.elapsed());
        }
        Ok(())
    });
}

#[test]
fn https_only_refuses_plain_uris() {
    on_drivers(async || {
        let (_, config) = acceptor(&[]);
        let only = HttpsConnector::new(TlsConnector::new(config)).https_only(true);
        let only: Client<_, Full<Bytes>> = Client::builder(Executor).build(only);
        let error = only.get("http://localhost:1/".parse()?).await.unwrap_err();
        assert!(chain(&error).contains("http://localhost:1/: this connector accepts"), "{error:?}");
        Ok(())
    });
}

#[test]
fn a_grpc_channel_over_tls() {
    on_drivers(async || {
        let (acceptor, mut config) = acceptor(&["h2"]);
        let server = start("127.0.0.1:0", |server| server.tls(acceptor));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let origin = format!("https://localhost:{}", server.address.port()).parse()?;
        let connector = HttpsConnector::new(TlsConnector::new(config));
        let mut channel = Channel::with(origin, connector, |_| ())?;
        let request = hyper::Request::post("/echo").body(tonic::body::Body::empty())?;
        let response = tower_service::Service::call(&mut channel, request).await?;
        assert_eq!((response.status().as_u16(), response.version()), (200, hyper::Version::HTTP_2));
        Ok(())
    });
}
