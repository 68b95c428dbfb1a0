//! What one client asks of a server.

use super::client::Client;
use crate::bench::Cell;

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// The client.
    pub client: Client,
    /// What servers are told to speak, if they speak several protocols.
    pub service: &'static str,
    /// What is asked for: the path of a file, or a command.
    pub request: &'static str,
    /// Bytes of a message of ours, or of the file that is asked for; 0 if servers have that of their own.
    pub bytes: u64,
    /// Connections of the client.
    pub connections: u64,
    /// Requests in flight on each connection; in an open loop the most of them.
    pub depth: u64,
    /// Of an open loop by our load: its rate, as a multiple of what the baseline answers in a closed one with a request in flight on
    /// each connection.
    pub rate: Option<f64>,
}

impl Load {
    /// Its parameters.
    pub(super) fn cell(&self) -> Cell {
        Cell::new([
            ("load", self.name.into()),
            ("connections", self.connections.into()),
            ("depth", self.depth.into()),
        ])
    }

    /// What is asked of an HTTP server at this address; over TLS if its service begins as that does.
    pub(super) fn url(&self, address: &str) -> String {
        let scheme = if self.service.starts_with("https") { "https" } else { "http" };
        format!("{scheme}://{address}{}", self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::COMPARISONS;

    #[test]
    fn services_over_tls_are_asked_over_tls() {
        let loads = COMPARISONS.iter().flat_map(|comparison| comparison.loads);
        let urls: Vec<_> = loads.map(|load| (load.service, load.url("a:1"))).collect();
        assert!(urls.contains(&("http2", "http://a:1/".into())), "{urls:?}");
        assert!(urls.contains(&("https2", "https://a:1/".into())), "{urls:?}");
    }
}
