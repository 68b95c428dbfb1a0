//! Names of Unix sockets: paths, which outlive their sockets, and abstract names, which do not.

use super::socket::SocketId;
use annulus_kernel::{Address, UnixName};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

#[derive(Debug, Default)]
pub(crate) struct UnixNames {
    /// A path without a socket is stale: it exists, but connecting to it is refused.
    paths: BTreeMap<Vec<u8>, Option<SocketId>>,
    /// Streams (false) and datagram sockets (true) have separate abstract names.
    abstracts: BTreeMap<(bool, Vec<u8>), SocketId>,
    /// The next automatic name.
    next: u32,
}

impl UnixNames {
    /// Binds a socket and returns its address. For the unnamed address it chooses a free abstract
    /// name.
    pub(crate) fn bind(
        &mut self,
        to: &Address,
        socket: SocketId,
        datagram: bool,
    ) -> Result<Address, Errno> {
        match to.to_unix().map_err(|_| Errno::INVAL)? {
            UnixName::Path(path) => claim(&mut self.paths, path.to_vec(), Some(socket))?,
            UnixName::Abstract(name) => {
                claim(&mut self.abstracts, (datagram, name.to_vec()), socket)?
            }
            UnixName::Unnamed => return self.bind_free_name(socket, datagram),
        }
        Ok(*to)
    }

    /// Binds a free abstract name of five hexadecimal digits, like Linux.
    fn bind_free_name(&mut self, socket: SocketId, datagram: bool) -> Result<Address, Errno> {
        loop {
            let name = format!("{:05x}", self.next % (1 << 20));
            self.next += 1;
            let address =
                Address::unix(UnixName::Abstract(name.as_bytes())).map_err(|_| Errno::INVAL)?;
            match self.bind(&address, socket, datagram) {
                Err(Errno::ADDRINUSE) => {}
                bound => return bound,
            }
        }
    }

    pub(crate) fn find(&self, name: &Address, datagram: bool) -> Result<SocketId, Errno> {
        match name.to_unix().map_err(|_| Errno::INVAL)? {
            UnixName::Path(path) => {
                self.paths.get(path).ok_or(Errno::NOENT)?.ok_or(Errno::CONNREFUSED)
            }
            UnixName::Abstract(name) => {
                self.abstracts.get(&(datagram, name.to_vec())).copied().ok_or(Errno::CONNREFUSED)
            }
            UnixName::Unnamed => Err(Errno::INVAL),
        }
    }

    /// Releases the name of a socket that is closed. Its path becomes stale, unless another socket
    /// owns it by now.
    pub(crate) fn release(&mut self, name: &Address, socket: SocketId) {
        match name.to_unix() {
            Ok(UnixName::Path(path)) => {
                if let Some(bound) =
                    self.paths.get_mut(path).filter(|bound| **bound == Some(socket))
                {
                    *bound = None;
                }
            }
            Ok(UnixName::Abstract(_)) => self.abstracts.retain(|_, bound| *bound != socket),
            _ => {}
        }
    }

    pub(crate) fn unlink(&mut self, name: &Address) {
        if let Ok(UnixName::Path(path)) = name.to_unix() {
            self.paths.remove(path);
        }
    }
}

fn claim<K: Ord, V>(names: &mut BTreeMap<K, V>, name: K, socket: V) -> Result<(), Errno> {
    match names.entry(name) {
        Entry::Vacant(free) => drop(free.insert(socket)),
        Entry::Occupied(_) => return Err(Errno::ADDRINUSE),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Address {
        Address::unix(UnixName::Path(text.as_bytes())).unwrap()
    }

    #[test]
    fn path_outlives_its_socket_until_unlinked() {
        let mut names = UnixNames::default();
        assert_eq!(names.find(&path("/a"), true), Err(Errno::NOENT));
        names.bind(&path("/a"), 1, true).unwrap();
        assert_eq!(names.find(&path("/a"), true), Ok(1));
        names.release(&path("/a"), 1);
        assert_eq!(names.find(&path("/a"), true), Err(Errno::CONNREFUSED));
        assert_eq!(names.bind(&path("/a"), 2, true).unwrap_err(), Errno::ADDRINUSE);
        names.unlink(&path("/a"));
        names.bind(&path("/a"), 2, true).unwrap();
        names.release(&path("/a"), 1);
        assert_eq!(
            names.find(&path("/a"), true),
            Ok(2),
            "a socket released a path that another socket owns"
        );
    }

    #[test]
    fn abstract_name_is_released_with_its_socket() {
        let mut names = UnixNames::default();
        let any = Address::unix(UnixName::Unnamed).unwrap();
        let first = names.bind(&any, 1, false).unwrap();
        let second = names.bind(&any, 2, false).unwrap();
        assert_ne!(first.to_unix().unwrap(), second.to_unix().unwrap());
        assert_eq!(
            (names.find(&first, false), names.bind(&first, 3, false).unwrap_err()),
            (Ok(1), Errno::ADDRINUSE)
        );
        names.release(&first, 1);
        assert_eq!(names.find(&first, false), Err(Errno::CONNREFUSED));
        names.bind(&first, 3, false).unwrap();
        names.bind(&first, 4, true).unwrap();
        assert_eq!((names.find(&first, false), names.find(&first, true)), (Ok(3), Ok(4)));
    }
}
