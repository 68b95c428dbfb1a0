//! The name that a client asks for, which the form of rustls that gives out keys does not show.

use std::fmt;
use std::sync::{Arc, OnceLock};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Chooses certificates as the settings do, and notes the name.
pub(in crate::rustls) struct NotesName {
    chooses: Arc<dyn ResolvesServerCert>,
    name: OnceLock<Option<String>>,
}

impl NotesName {
    /// The settings for one session, with what will know the name.
    pub(super) fn within(config: &ServerConfig) -> (ServerConfig, Arc<Self>) {
        let mut config = config.clone();
        let notes = Arc::new(Self { chooses: config.cert_resolver.clone(), name: OnceLock::new() });
        config.cert_resolver = notes.clone();
        (config, notes)
    }

    /// The name, once the client has said hello.
    pub(super) fn name(&self) -> Option<String> {
        self.name.get().cloned().flatten()
    }
}

impl ResolvesServerCert for NotesName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.name.get_or_init(|| hello.server_name().map(str::to_owned));
        self.chooses.resolve(hello)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.chooses.only_raw_public_keys()
    }
}

impl fmt::Debug for NotesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotesName").field("name", &self.name).finish_non_exhaustive()
    }
}
