const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
/// The flags END_STREAM and PADDED. A DATA frame with either is passed on.
const MEANINGFUL_FLAGS: u8 = 0x1 | 0x8;

/// Removes empty DATA frames that do not end a stream. Some servers send one with each reply, but
/// h2 closes a connection after a hundred of them.
#[derive(Debug, Default)]
pub(super) struct FrameFilter {
    /// The received part of a frame's header.
    header: [u8; HEADER_BYTES],
    received: usize,
    /// Number of missing bytes of the current frame's payload.
    payload: usize,
}

impl FrameFilter {
    /// Passes received bytes to `take`, without the removed frames.
    pub(super) fn pass(&mut self, mut input: &[u8], mut take: impl FnMut(&[u8])) {
        while !input.is_empty() {
            let payload = self.payload.min(input.len());
            if payload > 0 {
                take(&input[..payload]);
                self.payload -= payload;
                input = &input[payload..];
                continue;
            }
            let part = (HEADER_BYTES - self.received).min(input.len());
            self.header[self.received..][..part].copy_from_slice(&input[..part]);
            self.received += part;
            input = &input[part..];
            if self.received == HEADER_BYTES {
                self.received = 0;
                let [high, middle, low, kind, flags, stream @ ..] = self.header;
                self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
                let is_empty = self.payload == 0 && kind == DATA && stream != [0; 4];
                if !is_empty || flags & MEANINGFUL_FLAGS != 0 {
                    take(&self.header);
                }
            }
        }
    }

    /// Returns the bytes of an incomplete header.
    pub(super) fn partial(&self) -> &[u8] {
        &self.header[..self.received]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame on stream 1.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn only_empty_data_frames_are_removed() {
        let kept = [
            frame(DATA, 0, b"hello"),
            frame(1, 4, b"headers"),
            frame(DATA, 1, b""),
            frame(4, 1, b""),
            frame(DATA, 8, b"\0"),
        ];
        let empty = frame(DATA, 0, b"");
        let input =
            [&empty, &kept[0], &empty, &empty, &kept[1], &kept[2], &empty, &kept[3], &kept[4]];
        let input: Vec<u8> = input.into_iter().flatten().copied().collect();
        for size in 1..=input.len() {
            let (mut filter, mut output) = (FrameFilter::default(), Vec::new());
            for piece in input.chunks(size) {
                filter.pass(piece, |bytes| output.extend_from_slice(bytes));
            }
            assert_eq!(output, kept.concat(), "in pieces of {size}");
            assert_eq!(filter.partial(), b"");
        }
    }

    #[test]
    fn incomplete_header_is_available_at_the_end() {
        let mut filter = FrameFilter::default();
        filter.pass(b"+PONG", |_| unreachable!());
        assert_eq!(filter.partial(), b"+PONG");
    }
}
