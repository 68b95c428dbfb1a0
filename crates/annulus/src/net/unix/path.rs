//! A path that a Unix socket is bound to: taken over from a dead server, removed at the end.

use super::super::socket::NewFd;
use crate::core::Core;
use annulus_ring::{Address, Domain, SocketType, UnixName};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// Removes the path on drop, unless it names another socket by then.
pub(super) struct BoundPath {
    core: Rc<Core>,
    address: Address,
    /// Device and inode, where paths are the process's own.
    identity: Option<(u64, u64)>,
}

impl BoundPath {
    /// Binds a socket. A path that a dead server left is taken over; one of a living server is not. Nothing is kept for
    /// names that are no paths.
    ///
    /// # Errors
    /// `AddrInUse`, where somebody listens there, or where the path is no socket; `NotFound`, `PermissionDenied`, ….
    pub(super) fn bind(
        core: &Rc<Core>,
        socket: &NewFd,
        kind: SocketType,
        address: &Address,
    ) -> io::Result<Option<Self>> {
        match socket.bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if is_path(address) && is_dead(core, kind, address) {
                    core.kernel.unlink(address);
                }
                socket.bind(address).map_err(|e| in_use(e, address))?;
            }
            outcome => outcome?,
        }
        let bound =
            || Self { core: core.clone(), identity: identity(core, address), address: *address };
        Ok(is_path(address).then(bound))
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        // A forked child has no say in its parent's paths.
        if self.core.at_home() && identity(&self.core, &self.address) == self.identity {
            self.core.kernel.unlink(&self.address);
        }
    }
}

fn is_path(address: &Address) -> bool {
    matches!(address.to_unix(), Ok(UnixName::Path(_)))
}

/// Nobody listens: a connection is refused. Whatever else comes of it, somebody may.
fn is_dead(core: &Core, kind: SocketType, address: &Address) -> bool {
    let probe = NewFd::new(&core.kernel, Domain::Unix, kind)
        .and_then(|probe| core.kernel.connect(probe.raw(), address));
    probe.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn identity(core: &Core, address: &Address) -> Option<(u64, u64)> {
    let Ok(UnixName::Path(path)) = address.to_unix() else { return None };
    // Simulated paths are in no file system.
    let path = Some(OsStr::from_bytes(path)).filter(|_| core.kernel.real_descriptors())?;
    let about = std::fs::symlink_metadata(path).ok()?;
    Some((about.dev(), about.ino()))
}

fn in_use(error: io::Error, address: &Address) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse || !is_path(address) {
        return error;
    }
    let text =
        "somebody listens there, or it is no socket; take another path, or end the other server";
    io::Error::new(error.kind(), text)
}
