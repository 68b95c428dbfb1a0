//! Contenders of others, built when asked for.

use annulus_lab::peer::{PeerError, Peers};
use anyhow::Result;
use std::env;
use std::path::PathBuf;

/// The peers of the folder `peers` here or above.
pub(super) fn peers_here() -> Option<Peers> {
    env::current_dir().ok().and_then(|here| Peers::find(&here))
}

/// A peer's program, or what is missing to have it.
pub(super) fn build(peers: Option<&Peers>, folder: &str) -> Result<Result<PathBuf, String>> {
    let Some(peers) = peers else {
        return Ok(Err(format!(
            "peer {folder} is left out: it is built from within the repository"
        )));
    };
    match peers.build(folder) {
        Ok(program) => Ok(Ok(program)),
        Err(missing @ PeerError::ToolMissing { .. }) => Ok(Err(missing.to_string())),
        Err(failed) => Err(failed.into()),
    }
}
