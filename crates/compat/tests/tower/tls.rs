//! The server and hyper-util's client over TLS.

use crate::*;
use annulus_compat::hyper_util::{Connector, HttpsConnector};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use annulus_compat::tonic::Channel;
use hyper_util::client::legacy::Client;
use rustls::{ClientConfig, RootCertStore};

/// An acceptor, and settings of a client that trusts it.
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
        // One that is not trusted; the server reports it and goes on.
        let (_, other) = self::acceptor(&[]);
        let request = hyper::Request::post(&uri).body(Full::default())?;
        let error = client(&other, &[]).request(request).await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        // Without TLS, in a port of its own.
        let plain = start("127.0.0.1:0", |server| server);
        let uri = format!("http://{}/", plain.address).parse()?;
        assert_eq!(text(client(&config, &["h2"]).get(uri).await?).await?, "hello");
        Ok(())
    });
}

#[test]
fn plain_uris_are_refused_on_demand() {
    on_drivers(async || {
        let (_, config) = acceptor(&[]);
        let only = HttpsConnector::new(TlsConnector::new(config)).https_only(true);
        let only: Client<_, Full<Bytes>> = Client::builder(Executor).build(only);
        let error = only.get("http://localhost:1/".parse()?).await.unwrap_err();
        assert!(chain(&error).contains("http://localhost:1/: this connector takes"), "{error:?}");
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
