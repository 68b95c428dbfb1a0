//! The path that a Unix socket is bound to. Binding replaces a path that a dead server left.
//! Dropping a [`BoundPath`] removes its path.

use super::super::socket::NewFd;
use crate::errors::with_text;
use crate::runtime::core::Core;
use annulus_kernel::file::{self, HeldPath};
use annulus_kernel::{Address, Domain, SocketType, UnixName};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// Maximum length of an abstract name in bytes.
const MAX_NAME_BYTES: usize = 107;

/// Removes a socket's path on drop, unless the path refers to something else by then.
pub(super) struct BoundPath {
    core: Rc<Core>,
    place: BoundPlace,
}

/// Where the socket was bound.
enum BoundPlace {
    /// A path in a directory that stays open, because the working directory may change. `inode` is
    /// the device and inode of the socket's file. No other file can have both while the socket is
    /// open.
    Held { path: HeldPath, inode: (u64, u64) },
    /// A path on a simulated kernel, which has no directories.
    Simulated(Address),
    /// The path was replaced while the socket was being bound, or led to another directory. It is
    /// not removed.
    Lost,
}

impl BoundPath {
    /// Binds a socket, then calls `make_ready`, in which a listener starts to listen. Replaces a
    /// path that a dead server left, but not the path of a server that is listening or starting.
    /// Returns `None` for an abstract name.
    ///
    /// # Errors
    /// `AddrInUse` if a server is listening or starting at the path, or the path is not a socket;
    /// `NotFound`, `PermissionDenied`, …; and the errors of `make_ready`.
    pub(super) fn bind(
        core: &Rc<Core>,
        socket: &NewFd,
        kind: SocketType,
        address: &Address,
        make_ready: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Option<Self>> {
        let lock = StartLock::take(core, address);
        let held = match real_path(core, address) {
            Some(path) => HeldPath::open(path)?,
            None => None,
        };
        match socket.bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if is_path(address) && is_dead(core, kind, address) {
                    lock.check()?;
                    core.kernel.unlink(address);
                }
                socket.bind(address).map_err(|e| in_use(e, address))?;
            }
            outcome => outcome?,
        }
        let bound =
            || Self { core: core.clone(), place: BoundPlace::of_bound(core, address, held) };
        let bound = is_path(address).then(bound);
        make_ready()?;
        Ok(bound)
    }
}

impl BoundPlace {
    /// Returns the place of a socket that was just bound.
    fn of_bound(core: &Core, address: &Address, held: Option<HeldPath>) -> Self {
        let Some(path) = real_path(core, address) else { return Self::Simulated(*address) };
        // If another thread has changed the working directory since `HeldPath::open`, the socket
        // may be in a different directory.
        match (held, file::identity(path)) {
            (Some(path), Ok(inode)) if path.identity() == Ok(inode) => Self::Held { path, inode },
            _ => Self::Lost,
        }
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        // In a forked child the path belongs to the parent.
        if !self.core.in_owner_process() {
            return;
        }
        match &self.place {
            BoundPlace::Held { path, inode } if path.identity() == Ok(*inode) => {
                // The call fails if the path was removed in the meantime or the directory became
                // read-only. There is nothing more to do then.
                _ = path.unlink();
            }
            BoundPlace::Simulated(address) => self.core.kernel.unlink(address),
            _ => {}
        }
    }
}

/// Mutual exclusion of servers that start at the same path. Between bind and listen, a server looks
/// dead, and without this lock another server could replace its path.
enum StartLock {
    /// Dropping the socket releases the lock.
    Held(#[expect(dead_code, reason = "held for its name")] NewFd),
    Busy,
    /// No lock name could be derived from the path, or the name could not be bound.
    Unknown,
}

impl StartLock {
    /// Binds an abstract name derived from the path. Only one socket can have the name. The kernel
    /// frees the name when the socket is closed, at the latest when the process ends.
    fn take(core: &Core, address: &Address) -> Self {
        let Some(name) = real_path(core, address).and_then(name_of_start) else {
            return Self::Unknown;
        };
        let socket = NewFd::new(&core.kernel, Domain::Unix, SocketType::Datagram);
        match socket.and_then(|socket| socket.bind(&name).map(|()| socket)) {
            Ok(socket) => Self::Held(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Self::Busy,
            Err(_) => Self::Unknown,
        }
    }

    fn check(&self) -> io::Result<()> {
        if !matches!(self, Self::Busy) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is starting there"))
    }
}

/// Returns an abstract name that is the same for all spellings of a path. It has the directory's
/// device and inode, and as much of the file name as fits.
fn name_of_start(path: &Path) -> Option<Address> {
    // With the dot, a link to a directory resolves to that directory, and an empty parent to the
    // current directory.
    let (device, inode) = file::identity(&path.parent()?.join(".")).ok()?;
    let mut name = format!("annulus starts {device:x}:{inode:x}/").into_bytes();
    name.extend_from_slice(path.file_name()?.as_bytes());
    name.truncate(MAX_NAME_BYTES);
    Address::unix(UnixName::Abstract(&name)).ok()
}

fn is_path(address: &Address) -> bool {
    matches!(address.to_unix(), Ok(UnixName::Path(_)))
}

/// Returns true if a connection is refused, because no server is listening. Any other outcome may
/// mean that there is a server.
fn is_dead(core: &Core, kind: SocketType, address: &Address) -> bool {
    let probe = NewFd::new(&core.kernel, Domain::Unix, kind)
        .and_then(|probe| core.kernel.connect(probe.fd(), address));
    probe.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns the path in the file system, or `None` for abstract names and under a simulated kernel.
pub(super) fn real_path<'a>(core: &Core, address: &'a Address) -> Option<&'a Path> {
    match address.to_unix() {
        Ok(UnixName::Path(path)) if core.kernel.real_descriptors() => {
            Some(Path::new(OsStr::from_bytes(path)))
        }
        _ => None,
    }
}

fn in_use(error: io::Error, address: &Address) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse || !is_path(address) {
        return error;
    }
    let text = "a server listens on this path, or the path is not a socket; choose another path, or stop that server";
    with_text(error, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::net::UnixListener;
    use std::os::unix::net;

    /// Returns a path for the test. If `stale`, it looks as if a dead server had left it.
    fn path(name: &str, stale: bool) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("annulus-{name}-{}", std::process::id()));
        if stale {
            drop(net::UnixListener::bind(&path).unwrap());
        }
        path
    }

    /// Starts a server, and a second one while the first is bound but not listening yet.
    fn start_two(path: &Path) {
        let core = crate::runtime::current::get().unwrap();
        let address = Address::unix(UnixName::Path(path.as_os_str().as_bytes())).unwrap();
        let socket = NewFd::new(&core.kernel, Domain::Unix, SocketType::Stream).unwrap();
        let make_ready = || {
            let error = UnixListener::bind(path).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("another server is starting"), "{error}");
            socket.listen(1)
        };
        let bound = BoundPath::bind(&core, &socket, SocketType::Stream, &address, make_ready);
        net::UnixStream::connect(path).unwrap();
        drop(bound.unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn starting_server_is_not_taken_for_dead() {
        let both = async {
            start_two(&path("fresh", false));
            start_two(&path("stale", true));
        };
        Runtime::new().unwrap().block_on(both);
    }
}
