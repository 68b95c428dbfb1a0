//! Headers and vectors of sends that carry several chunks, in boxes that do not move.

use annulus_kernel::{IoVec, MsgHeader};
use std::ptr;

/// Most chunks a send carries.
pub(crate) const MOST: usize = 64;

/// A `struct msghdr` with the vectors it points to.
pub(crate) struct Vector {
    header: MsgHeader,
    parts: [IoVec; MOST],
}

/// The vectors of this turn's sends. The kernel has read them once it has taken the entries that name them; then all of
/// them are free again.
#[expect(clippy::vec_box, reason = "a vector in use must not move when the list grows")]
#[derive(Default)]
pub(crate) struct Vectors {
    free: Vec<Box<Vector>>,
    busy: Vec<Box<Vector>>,
}

impl Vectors {
    /// Puts a send's parts into a vector, with a control message, which must last as long as the send; the address is that of its header.
    pub(super) fn describe(
        &mut self,
        parts: impl Iterator<Item = IoVec>,
        control: &[u8],
    ) -> *const u8 {
        let mut vector = self.free.pop().unwrap_or_else(Vector::empty);
        let mut count = 0;
        for (place, part) in vector.parts.iter_mut().zip(parts) {
            *place = part;
            count += 1;
        }
        vector.header.vectors = vector.parts.as_ptr();
        vector.header.vector_count = count;
        (vector.header.control, vector.header.control_len) = (control.as_ptr(), control.len());
        let address = ptr::from_ref(&vector.header).cast();
        self.busy.push(vector);
        address
    }

    /// Takes out the vector that was described last: it must last longer.
    pub(super) fn keep(&mut self) -> Box<Vector> {
        self.busy.pop().expect("a vector was described")
    }

    /// The kernel is done with a vector that was kept.
    pub(super) fn free(&mut self, vector: Box<Vector>) {
        self.free.push(vector);
    }

    /// The kernel may still read some of them.
    #[inline]
    pub(super) fn are_lent(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Everything submitted so far has been taken by the kernel.
    pub(super) fn free_all(&mut self) {
        self.free.append(&mut self.busy);
    }
}

impl Vector {
    fn empty() -> Box<Self> {
        Box::new(Self {
            header: MsgHeader::EMPTY,
            parts: [IoVec { base: ptr::null(), len: 0 }; MOST],
        })
    }
}
