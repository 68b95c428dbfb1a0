//! Options of TLS.

use super::target::Target;
use crate::usage::UsageError;
use annulus_load::{Tls, Trust};
use clap::Args;
use std::path::PathBuf;

/// Encryption
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS, for targets https://, rediss:// and tls://, and with --tls")]
pub(super) struct TlsArgs {
    /// Encrypt, whatever the target's scheme
    #[arg(long)]
    tls: bool,
    /// Trust the certificates of this file (PEM), and no others [default:
    /// those that this system trusts]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Check no certificate: neither its issuer, nor its name, nor its dates
    #[arg(long, conflicts_with = "tls_ca")]
    tls_skip_certificate_check: bool,
    /// The name to ask for, and that the certificate must be for [default:
    /// the target's host]
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
}

impl TlsArgs {
    /// Whether connections to this target are encrypted.
    pub(super) fn is_on(&self, target: &Target) -> bool {
        self.tls || target.scheme.is_encrypted()
    }

    /// The options that need TLS, and which of them were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 3] {
        [
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-skip-certificate-check", self.tls_skip_certificate_check),
            ("--tls-server-name", self.tls_server_name.is_some()),
        ]
    }

    /// How connections to a target are encrypted.
    pub(super) fn settings(self, target: &Target) -> Result<Tls, UsageError> {
        let trust = match (self.tls_skip_certificate_check, self.tls_ca) {
            (true, _) => Trust::Unchecked,
            (false, Some(path)) => Trust::Roots(path),
            (false, None) => Trust::System,
        };
        let server_name = match self.tls_server_name {
            Some(name) => name,
            None if target.host.is_empty() => {
                let text = format!(
                    "{target} has no name that a certificate is for: add --tls-server-name"
                );
                return Err(UsageError(text));
            }
            None => name(&target.host).to_owned(),
        };
        let tls = Tls { server_name, trust };
        tls.validate().map_err(|error| UsageError(error.to_string()))?;
        Ok(tls)
    }
}

/// The host as it stands in certificates: without brackets and zone.
fn name(host: &str) -> &str {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.split('%').next().unwrap_or(host)
}
