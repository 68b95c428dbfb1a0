//! Owned memory for calls that may continue after their future has been dropped.
#![allow(unsafe_code)]

use crate::bytes::lease::Lease;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Bound, Deref, DerefMut, RangeBounds};

/// Owned bytes that can be written to a file or sent. They convert into a [`Chunk`](crate::Chunk),
/// by `From` or by [`Chunk::from_buf`](crate::Chunk::from_buf), and a chunk can be written to a
/// file as well.
///
/// ```
/// use annulus::fs::{self, File, IoBuf};
///
/// /// Writes a header of 4 bytes and then the content, whatever owns it.
/// async fn store<B: IoBuf>(file: &File, content: B) -> std::io::Result<()> {
///     let length = (content.bytes_init() as u32).to_be_bytes();
///     file.write_all_at(length.to_vec(), 0).await.0?;
///     file.write_all_at(content, 4).await.0
/// }
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-iobuf-{}", std::process::id()));
/// let file = File::create(&path).await?;
/// store(&file, "static text").await?;
/// store(&file, vec![7; 100].slice(..10)).await?;
/// assert_eq!(file.metadata().await?.len(), 4 + 11);
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Safety
/// The first `bytes_init` bytes at `as_ptr` must be initialised, must not change while the value is
/// not used, and must not move when the value is moved.
// All implementations are `do_not_recommend`. Otherwise the compiler would show a few of them, or
// the macro with most of them, after these notes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a file: a write uses the bytes even after its future has been dropped",
    label = "not owned bytes",
    note = "pass owned bytes, such as a `Vec<u8>`; they come back with the result: `let (result, bytes) = file.write(bytes).await;`",
    note = "to keep borrowed bytes, pass a copy: `bytes.to_vec()`"
)]
pub unsafe trait IoBuf: Unpin + 'static {
    /// Returns a pointer to the first byte.
    fn as_ptr(&self) -> *const u8;

    /// Returns the number of initialised bytes. A write writes all of them.
    fn bytes_init(&self) -> usize;

    /// Returns a part of the buffer, without copying.
    ///
    /// # Panics
    /// If the range begins past the initialised bytes, or ends before it begins.
    fn slice(self, range: impl RangeBounds<usize>) -> Slice<Self>
    where
        Self: Sized,
    {
        Slice::new(self, range)
    }
}

/// Owned memory that a file can be read into.
///
/// A read overwrites the buffer from its beginning. To keep a part of it, pass a
/// [slice](IoBuf::slice):
///
/// ```
/// use annulus::fs::{self, File, IoBuf};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-iobufmut-{}", std::process::id()));
/// # fs::write(&path, "content").await?;
/// let file = File::open(&path).await?;
/// let mut page = Vec::with_capacity(64);
/// page.extend_from_slice(b"read: ");
/// let (read, part) = file.read_at(page.slice(6..), 0).await;
/// let page = part.into_inner();
/// assert_eq!((read?, &page[..]), (7, &b"read: content"[..]));
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Safety
/// The requirements of [`IoBuf`] apply. In addition, the `bytes_total` bytes at `as_mut_ptr` must
/// be writable, and no other code may use them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read into: a read uses the memory even after its future has been dropped",
    label = "not owned memory",
    note = "pass owned memory, such as a `Vec<u8>`; it comes back with the result: `let (result, buffer) = file.read(buffer).await;`"
)]
pub unsafe trait IoBufMut: IoBuf {
    /// Returns a pointer to the first byte, for writing.
    fn as_mut_ptr(&mut self) -> *mut u8;

    /// Returns the number of bytes that fit. For a `Vec`, this is its capacity.
    fn bytes_total(&mut self) -> usize;

    /// Records that the first `count` bytes are initialised. It never shortens the value.
    ///
    /// # Safety
    /// These bytes must be initialised, and `count` must be at most `bytes_total`.
    unsafe fn set_init(&mut self, count: usize);
}

// SAFETY: only the vector owns its capacity, which is on the heap.
unsafe impl IoBufMut for Vec<u8> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        Self::as_mut_ptr(self)
    }

    fn bytes_total(&mut self) -> usize {
        self.capacity()
    }

    unsafe fn set_init(&mut self, count: usize) {
        if count > self.len() {
            // SAFETY: the contract of `set_init` guarantees that these bytes are initialised and
            // within the capacity.
            unsafe { self.set_len(count) };
        }
    }
}

macro_rules! fixed_mut {
    ($($type:ty),*) => {$(
        // SAFETY: only the value may use these bytes, which are initialised and do not move with
        // it.
        unsafe impl IoBufMut for $type {
            fn as_mut_ptr(&mut self) -> *mut u8 {
                let bytes: &mut [u8] = self;
                bytes.as_mut_ptr()
            }

            fn bytes_total(&mut self) -> usize {
                self.bytes_init()
            }

            unsafe fn set_init(&mut self, _count: usize) {}
        }
    )*};
}

fixed_mut!(Box<[u8]>, Lease);

/// A part of owned memory; see [`IoBuf::slice`].
///
/// ```
/// use annulus::fs::{IoBuf, Slice};
///
/// let part: Slice<Vec<u8>> = b"head and body".to_vec().slice(9..);
/// assert_eq!(part.bytes_init(), 4);
/// assert_eq!(part.into_inner(), b"head and body"); // Nothing was cut off.
/// ```
#[derive(Debug)]
pub struct Slice<B> {
    buf: B,
    begin: usize,
    end: usize,
}

impl<B: IoBuf> Slice<B> {
    fn new(buf: B, range: impl RangeBounds<usize>) -> Self {
        let begin = match range.start_bound() {
            Bound::Included(&begin) => begin,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => usize::MAX,
        };
        assert!(begin <= end, "a slice from {begin} to {end} ends before it begins");
        assert!(
            begin <= buf.bytes_init(),
            "a slice from {begin} begins after the {} initialised bytes",
            buf.bytes_init()
        );
        Self { buf, begin, end }
    }

    /// Returns the whole memory.
    pub fn into_inner(self) -> B {
        self.buf
    }
}

// SAFETY: the slice is within the bounds of memory that fulfils the contract.
#[diagnostic::do_not_recommend]
unsafe impl<B: IoBuf> IoBuf for Slice<B> {
    fn as_ptr(&self) -> *const u8 {
        self.buf.as_ptr().wrapping_add(self.begin)
    }

    fn bytes_init(&self) -> usize {
        self.buf.bytes_init().min(self.end).saturating_sub(self.begin)
    }
}

// SAFETY: the slice is within the bounds of memory that fulfils the contract.
unsafe impl<B: IoBufMut> IoBufMut for Slice<B> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.buf.as_mut_ptr().wrapping_add(self.begin)
    }

    fn bytes_total(&mut self) -> usize {
        self.buf.bytes_total().min(self.end).saturating_sub(self.begin)
    }

    unsafe fn set_init(&mut self, count: usize) {
        // SAFETY: the bytes before `begin` have been initialised since the slice was created, and
        // the contract of `set_init` guarantees the next `count` bytes.
        unsafe { self.buf.set_init(self.begin + count) };
    }
}

/// A value that may be moved while the kernel, or another thread, uses memory that it owns.
///
/// Moving a `Box` asserts that no other pointer to its content is in use. So a value that contains
/// a box must not be moved while an operation uses that content. `MaybeUninit` makes no such
/// assertion about its content.
///
/// Take the address of the memory through this value. A pointer taken before the value was moved
/// into this one would be invalid.
pub(crate) struct Parked<T>(MaybeUninit<T>);

impl<T> Parked<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(MaybeUninit::new(value))
    }

    /// Returns the value. No operation may still use its memory.
    #[inline]
    pub(crate) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is initialised, and is not dropped here.
        unsafe { this.0.assume_init_read() }
    }
}

impl<T> Deref for Parked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised until it is dropped or taken out.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> DerefMut for Parked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the value is initialised until it is dropped or taken out.
        unsafe { self.0.assume_init_mut() }
    }
}

impl<T> Drop for Parked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is initialised, and dropped once.
        unsafe { self.0.assume_init_drop() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the buffer as a read does.
    fn fill<B: IoBufMut>(mut buf: B, byte: u8) -> B {
        let count = buf.bytes_total();
        // SAFETY: `bytes_total` bytes are writable, and all of them are written before `set_init`.
        unsafe {
            buf.as_mut_ptr().write_bytes(byte, count);
            buf.set_init(count);
        }
        buf
    }

    #[test]
    fn a_slice_is_filled_in_place_and_the_rest_is_kept() {
        let buf = fill(vec![1; 6].slice(2..4), 9).into_inner();
        assert_eq!(buf, [1, 1, 9, 9, 1, 1]);
        let mut room = Vec::with_capacity(8);
        room.extend([1, 2]);
        let capacity = room.capacity();
        let filled = fill(room.slice(1..), 7).into_inner();
        assert_eq!((filled[0], filled.len()), (1, capacity));
        assert!(filled[1..].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn slice_of_a_slice_has_the_right_bytes() {
        let part = b"0123456789".slice(2..8).slice(1..=2);
        // SAFETY: `bytes_init` bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(part.as_ptr(), part.bytes_init()) };
        assert_eq!(bytes, b"34");
        assert_eq!("abc".slice(3..).bytes_init(), 0);
    }

    #[test]
    #[should_panic(expected = "a slice from 4 begins after the 3 initialised bytes")]
    fn a_slice_beyond_the_end_panics() {
        _ = b"abc".slice(4..);
    }
}
