//! Descriptors that were registered, so that the kernel need not look them up for each entry.

use super::Uring;
use annulus_kernel::Fd;
use annulus_ring::{Entry, FileTable, Ring};

/// Indices of the table: most descriptors that are registered at once. An empty one takes 8 bytes of kernel memory.
const CAPACITY: u8 = 64;

/// The ring's table of files, made at the first registration.
///
/// A registered file stays open: each is removed before its descriptor is closed or handed out.
#[derive(Debug, Default)]
pub(super) struct FixedFiles {
    table: Option<FileTable>,
    /// For each descriptor, its index in the table plus one; zero if it has none.
    indices: Vec<u8>,
    /// Indices in use, a bit each.
    used: u64,
    /// The kernel has refused the table.
    refused: bool,
}

const _: () = assert!(CAPACITY as u32 == u64::BITS);

impl FixedFiles {
    /// Registers a descriptor, unless the table is full, or the kernel will not have it.
    fn add(&mut self, ring: &Ring, fd: Fd) {
        let index = self.used.trailing_ones();
        let Ok(place) = usize::try_from(fd.raw()) else { return };
        if self.refused || index >= CAPACITY.into() {
            return;
        }
        if self.table.is_none() {
            self.table = FileTable::register(ring, CAPACITY.into()).ok();
            self.refused = self.table.is_none();
        }
        let set = self.table.as_ref().map(|table| table.set(ring, index, fd));
        if let Some(Ok(())) = set {
            self.used |= 1 << index;
            self.indices.resize(self.indices.len().max(place + 1), 0);
            self.indices[place] = index as u8 + 1;
        }
    }

    /// Removes a descriptor, if it is registered: entries made from now on do not name it.
    #[inline]
    pub(super) fn remove(&mut self, ring: &Ring, fd: Fd) {
        if let Some(index) = self.index(fd.raw()) {
            self.clear(ring, fd, index);
        }
    }

    #[cold]
    fn clear(&mut self, ring: &Ring, fd: Fd, index: u8) {
        self.indices[fd.raw() as usize] = 0;
        let cleared = self.table.as_ref().map(|table| table.clear(ring, index.into()));
        // An index that could not be cleared holds its file, and is not used again.
        if let Some(Ok(())) = cleared {
            self.used &= !(1 << index);
        }
    }

    /// The entry with its descriptor named by index, if that is registered.
    #[inline]
    pub(super) fn entry(&self, entry: Entry) -> Entry {
        self.index(entry.fd).map_or(entry, |index| entry.of_file(index.into()))
    }

    #[inline]
    fn index(&self, fd: i32) -> Option<u8> {
        self.indices.get(fd as usize)?.checked_sub(1)
    }
}

impl Uring {
    /// See [`Driver::register_socket`](crate::Driver::register_socket).
    pub(crate) fn register_socket(&mut self, fd: Fd) {
        self.fixed_files.add(&self.ring, fd);
    }

    /// The descriptor is about to be closed or handed out.
    #[inline]
    pub(crate) fn unregister_socket(&mut self, fd: Fd) {
        self.fixed_files.remove(&self.ring, fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::{Domain, Kernel, Linux, SocketType};
    use annulus_ring::{EntryFlags, opcode};

    #[allow(unsafe_code)]
    fn socket() -> Fd {
        let number = Linux.socket(Domain::Inet, SocketType::Datagram, true).unwrap();
        // SAFETY: the socket is new, and the test that asked for it closes it once.
        unsafe { Fd::from_raw(number) }
    }

    #[test]
    fn a_registered_descriptor_is_named_by_index_until_it_is_removed() {
        let Ok(ring) = Ring::builder().build() else {
            return eprintln!("skipped: io_uring is blocked here");
        };
        let mut files = FixedFiles::default();
        let sockets: Vec<Fd> = (0..=CAPACITY).map(|_| socket()).collect();
        sockets.iter().for_each(|fd| files.add(&ring, *fd));
        let named = |files: &FixedFiles, fd: Fd| {
            let entry = files.entry(Entry::new(opcode::SEND, fd));
            (entry.flags == EntryFlags::FIXED_FILE.bits()).then_some(entry.fd)
        };
        assert_eq!(named(&files, sockets[0]), Some(0));
        assert_eq!(named(&files, sockets[63]), Some(63));
        assert_eq!(named(&files, sockets[64]), None, "the table is full");
        files.remove(&ring, sockets[5]);
        assert_eq!(named(&files, sockets[5]), None);
        files.add(&ring, sockets[64]);
        assert_eq!(named(&files, sockets[64]), Some(5), "the first free index");
        sockets.into_iter().for_each(|fd| Linux.close(fd));
    }
}
