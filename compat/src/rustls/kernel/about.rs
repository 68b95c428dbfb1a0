//! What stays known of a session when its keys are with the kernel.

use tokio_rustls::rustls::{CommonState, ProtocolVersion, pki_types::CertificateDer};

#[derive(Debug)]
pub(in crate::rustls) struct About {
    pub(in crate::rustls) alpn: Option<Vec<u8>>,
    pub(in crate::rustls) version: Option<ProtocolVersion>,
    pub(in crate::rustls) peer: Option<Vec<CertificateDer<'static>>>,
    pub(in crate::rustls) server_name: Option<String>,
}

impl About {
    pub(super) fn new(state: &CommonState, server_name: Option<String>) -> Self {
        Self {
            alpn: state.alpn_protocol().map(<[u8]>::to_vec),
            version: state.protocol_version(),
            peer: state.peer_certificates().map(<[_]>::to_vec),
            server_name,
        }
    }
}
