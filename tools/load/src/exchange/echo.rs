//! Messages that the server sends back unchanged. Every byte is verified, and none is copied.

use super::{Answer, Exchange, OutgoingBuffer, SendBytes};
use crate::fault::Fault;
use crate::payload::Payload;

/// The messages of one client.
#[derive(Debug)]
pub(crate) struct EchoExchange {
    /// Bytes per message.
    length: usize,
    /// Payload of the messages that have not been written yet.
    to_send: Payload,
    /// Payload of the bytes that have not been received yet.
    expected: Payload,
    /// Number of bytes written but not yet received.
    outstanding: usize,
    /// Number of bytes received of the next reply.
    partial: usize,
}

impl EchoExchange {
    pub(crate) fn new(seed: u64, client: usize, length: usize) -> EchoExchange {
        let payload = Payload::new(seed, client, length);
        EchoExchange { length, to_send: payload, expected: payload, outstanding: 0, partial: 0 }
    }

    /// Returns the fault for a wrong byte at index `at` of the input.
    #[cold]
    fn wrong_byte(&self, at: usize) -> Fault {
        Fault::wrong_byte((self.partial + at) % self.length, self.length)
    }
}

impl Exchange for EchoExchange {
    type Out = Messages;

    fn request(&mut self, out: &mut Messages) -> usize {
        if out.length == 0 {
            out.payload = self.to_send;
        }
        out.length += self.length;
        self.to_send.advance(self.length);
        self.outstanding += self.length;
        0
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        if input.len() > self.outstanding {
            return Err(Fault::too_many_bytes(input.len() - self.outstanding));
        }
        if let Err(at) = self.expected.check(input) {
            let wrong = self.wrong_byte(at);
            self.outstanding -= input.len();
            return Err(wrong);
        }
        self.outstanding -= input.len();
        self.partial += input.len();
        while self.partial >= self.length {
            self.partial -= self.length;
            answered(Answer::OK);
        }
        Ok(input.len())
    }

    /// An echo server must not close first.
    fn on_close(&mut self, _answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        Err(Fault::closed_early(self.partial, self.length))
    }

    fn on_reconnect(&mut self) {
        (self.expected, self.outstanding, self.partial) = (self.to_send, 0, 0);
    }

    fn outstanding(&self) -> Option<usize> {
        Some(self.outstanding)
    }
}

/// Messages to send: consecutive parts of the payload.
#[derive(Debug)]
pub(crate) struct Messages {
    payload: Payload,
    length: usize,
}

impl Default for Messages {
    fn default() -> Messages {
        Messages { payload: Payload::new(0, 0, 1), length: 0 }
    }
}

impl OutgoingBuffer for Messages {
    fn len(&self) -> usize {
        self.length
    }

    fn bytes_from(&self, at: usize) -> SendBytes<'_> {
        let mut payload = self.payload;
        payload.advance(at);
        SendBytes::Static(payload.piece(self.length - at))
    }

    fn clear(&mut self) {
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the written bytes as the server would receive them.
    fn written(out: &mut Messages) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < out.len() {
            let bytes_from = out.bytes_from(bytes.len());
            bytes.extend_from_slice(bytes_from.bytes());
        }
        out.clear();
        bytes
    }

    fn receive(echo: &mut EchoExchange, bytes: &[u8]) -> Result<usize, Fault> {
        let mut answers = 0;
        echo.receive(bytes, &mut |_| answers += 1).map(|()| answers)
    }

    proptest! {
        /// Replies are split at any place and received over several connections.
        #[test]
        fn split_input_gives_the_same_answers(
            length in 1_usize..70_000,
            rounds in proptest::collection::vec((1_usize..5, 1_usize..70_000), 1..6),
        ) {
            let mut echo = EchoExchange::new(3, 4, length);
            let mut out = Messages::default();
            for (messages, cut) in rounds {
                (0..messages).for_each(|_| assert_eq!(echo.request(&mut out), 0));
                let bytes = written(&mut out);
                prop_assert_eq!(bytes.len(), messages * length);
                let mut answers = 0;
                for bytes_from in bytes.chunks(cut) {
                    answers += receive(&mut echo, bytes_from).unwrap();
                }
                prop_assert_eq!((answers, echo.outstanding()), (messages, Some(0)));
                // Messages in flight are discarded with their connection.
                echo.request(&mut out);
                out.clear();
                echo.on_reconnect();
            }
        }
    }

    #[test]
    fn wrong_and_surplus_bytes_are_detected() {
        let mut echo = EchoExchange::new(1, 0, 100);
        let mut out = Messages::default();
        (0..2).for_each(|_| _ = echo.request(&mut out));
        let mut bytes = written(&mut out);
        let fault = receive(&mut echo, &[&bytes[..], b"!"].concat()).unwrap_err();
        assert!(fault.detail.contains("1 bytes more arrived"), "{}", fault.detail);
        assert_eq!(receive(&mut echo, &bytes[..30]).unwrap(), 0);
        bytes[130] ^= 1;
        let fault = receive(&mut echo, &bytes[30..]).unwrap_err();
        assert!(fault.detail.contains("byte 30 of a reply of 100"), "{}", fault.detail);
        assert_eq!(echo.outstanding(), Some(0));
    }

    #[test]
    fn close_during_a_reply_reports_missing_bytes() {
        let mut echo = EchoExchange::new(1, 0, 10);
        let mut out = Messages::default();
        echo.request(&mut out);
        let bytes = written(&mut out);
        receive(&mut echo, &bytes[..4]).unwrap();
        let fault = echo.on_close(&mut |_| unreachable!()).unwrap_err();
        assert!(fault.detail.contains("after 4 of 10 bytes"), "{}", fault.detail);
    }
}
