//! Pieces of memory that the network stack owns and has filled: see
//! [`Uring`](crate::Uring). They are lent like buffers, under ids that follow the ids of the buffers.
#![allow(unsafe_code)]

use super::{BufferState, Buffers, Pool};

/// The memory that the network stack fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaSize {
    /// Size in bytes: whole pages of the system.
    pub(crate) bytes: usize,
    /// Maximum number of pieces that are lent at once.
    pub(crate) pieces: u32,
    /// Whether each piece has a page for itself, so that more bytes may be written after it.
    pub(crate) has_whole_pages: bool,
}

/// A lent piece.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Offset in the area.
    offset: u64,
    len: u32,
}

/// The pieces of a pool's area.
pub(super) struct Pieces {
    size: AreaSize,
    /// The id of the first piece.
    first: u16,
    lent: Box<[Piece]>,
    free: Vec<u16>,
    /// Pieces given back since the last refill.
    returned: Vec<u16>,
}

impl Pieces {
    pub(super) fn new(first: u32, size: AreaSize) -> Self {
        Self {
            size,
            first: first as u16,
            lent: vec![Piece::default(); size.pieces as usize].into_boxed_slice(),
            free: (first..first + size.pieces).rev().map(|id| id as u16).collect(),
            returned: Vec::new(),
        }
    }

    fn at(&self, id: u16) -> Piece {
        self.lent[usize::from(id - self.first)]
    }

    /// Returns true if the next leases should own heap memory, because most pieces are lent.
    pub(super) fn are_short(&self) -> bool {
        self.free.len() < self.lent.len() / 4
    }
}

impl Pool {
    /// Lends a piece of the area that the kernel has filled. Returns its id, or `None` if too many
    /// pieces are lent.
    ///
    /// # Panics
    /// Panics if the piece is not inside the area: the kernel returned a wrong offset.
    pub(crate) fn lend_piece(&self, offset: u64, len: u32) -> Option<u16> {
        let buffers = &mut *self.buffers.borrow_mut();
        let pieces = buffers.pieces.as_mut().expect("a pool without an area received a piece");
        let end = offset.checked_add(u64::from(len));
        assert!(
            end.is_some_and(|end| end <= pieces.size.bytes as u64),
            "the kernel returned an offset outside the area"
        );
        let id = pieces.free.pop()?;
        pieces.lent[usize::from(id - pieces.first)] = Piece { offset, len };
        buffers.state[usize::from(id)] = BufferState::LentPiece;
        Some(id)
    }

    /// Returns the number of pieces lent to users now.
    pub fn lent_pieces(&self) -> u32 {
        let buffers = self.buffers.borrow();
        let lent = buffers
            .pieces
            .as_ref()
            .map_or(0, |pieces| pieces.lent.len() - pieces.free.len() - pieces.returned.len());
        lent as u32
    }

    /// Passes the offset and length of returned pieces to `take`, as long as it returns true.
    pub(crate) fn take_pieces(&self, mut take: impl FnMut(u64, u32) -> bool) {
        let buffers = &mut *self.buffers.borrow_mut();
        let Some(pieces) = &mut buffers.pieces else { return };
        while let Some(&id) = pieces.returned.last() {
            let Piece { offset, len } = pieces.at(id);
            if !take(offset, len) {
                break;
            }
            pieces.returned.pop();
            pieces.free.push(id);
        }
    }

    /// Returns the address of a lent piece.
    #[cold]
    pub(super) fn piece_address(&self, id: u16) -> *mut u8 {
        let buffers = self.buffers.borrow();
        let pieces = buffers.pieces.as_ref().expect("a pool without an area has no pieces");
        let area = self.memory.area.as_ref().expect("a pool with pieces has no area");
        // SAFETY: `lend_piece` has checked that the piece lies inside the area.
        unsafe { area.as_ptr().add(pieces.at(id).offset as usize) }
    }

    /// Returns how many bytes may be written from the start of a lent buffer or piece on.
    #[inline]
    pub fn room(&self, id: u16) -> u32 {
        if u32::from(id) < self.size.count { self.size.buffer } else { self.room_of_piece(id) }
    }

    #[cold]
    fn room_of_piece(&self, id: u16) -> u32 {
        let buffers = self.buffers.borrow();
        let pieces = buffers.pieces.as_ref().expect("a pool without an area has no pieces");
        let Piece { offset, len } = pieces.at(id);
        if !pieces.size.has_whole_pages {
            return len;
        }
        let page = u64::from(self.page_bytes());
        (page - offset % page) as u32
    }
}

impl Buffers {
    /// Takes back a piece, or panics if the id is not lent.
    #[cold]
    pub(super) fn take_back_piece(&mut self, id: u16) {
        let state = &mut self.state[usize::from(id)];
        assert_eq!(*state, BufferState::LentPiece, "buffer {id} was returned twice");
        *state = BufferState::Idle;
        if let Some(pieces) = &mut self.pieces {
            pieces.returned.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolSize;
    use annulus_kernel::Linux;
    use std::rc::Rc;

    fn pool(has_whole_pages: bool) -> Rc<Pool> {
        let page = rustix::param::page_size();
        let area = AreaSize { bytes: 8 * page, pieces: 8, has_whole_pages };
        Pool::with_area(PoolSize { buffer: 4096, count: 4 }, Rc::new(Linux), area).unwrap()
    }

    fn returned(pool: &Pool, most: usize) -> Vec<(u64, u32)> {
        let mut taken = Vec::new();
        pool.take_pieces(|offset, len| {
            let has_space = taken.len() < most;
            if has_space {
                taken.push((offset, len));
            }
            has_space
        });
        taken
    }

    #[test]
    fn pieces_are_lent_and_returned_apart_from_buffers() {
        let pool = pool(true);
        let (one, other) = (pool.lend_piece(4096, 7).unwrap(), pool.lend_piece(0, 9).unwrap());
        assert!(one >= 4 && other >= 4 && one != other);
        // SAFETY: both pieces are lent.
        let distance = unsafe { pool.address(one).offset_from(pool.address(other)) };
        assert_eq!((distance, pool.lent(), pool.lent_pieces()), (4096, 0, 2));
        pool.give_back(one);
        assert_eq!(pool.lent_pieces(), 1);
        pool.memory().give_back_remotely(other);
        pool.refill(|_, _, id| assert!(id < 4, "piece {id} went to the buffer ring"));
        assert_eq!(returned(&pool, 1), [(0, 9)], "more pieces were taken than there was space for");
        assert_eq!(returned(&pool, 9), [(4096, 7)]);
        assert_eq!(returned(&pool, 9), []);
    }

    #[test]
    fn the_room_of_a_piece_ends_with_its_page_or_with_the_piece() {
        let page = rustix::param::page_size() as u32;
        for (has_whole_pages, room) in [(true, page - 100), (false, 7)] {
            let pool = pool(has_whole_pages);
            let id = pool.lend_piece(u64::from(page) + 100, 7).unwrap();
            assert_eq!((pool.room(id), pool.room(0)), (room, 4096));
        }
    }

    #[test]
    fn leases_are_copied_out_once_most_pieces_are_lent() {
        let pool = pool(true);
        let lent: Vec<u16> = (0..8).map(|number| pool.lend_piece(number, 1).unwrap()).collect();
        assert_eq!(pool.lend_piece(0, 1), None);
        assert!(pool.should_copy_out(lent[0], 1));
        lent[..4].iter().for_each(|id| pool.give_back(*id));
        returned(&pool, 4);
        assert!(!pool.should_copy_out(lent[7], 1));
    }

    #[test]
    #[should_panic(expected = "was returned twice")]
    fn piece_that_is_returned_twice_panics() {
        let pool = pool(true);
        let id = pool.lend_piece(0, 1).unwrap();
        pool.give_back(id);
        pool.give_back(id);
    }
}
