//! The trace of a run: a hash to compare runs and, on request, text. It contains no addresses,
//! which differ between runs.

use crate::descriptors::FIRST_DESCRIPTOR;
use crate::faults::Fault;
use crate::random::mix;
use crate::timeline::Nanos;
use annulus_ring::{Completion, Entry, opcode};

#[derive(Clone, Copy)]
pub(crate) enum TraceEvent<'a> {
    Submitted(&'a Entry),
    Completed(&'a Completion),
    Fault(Fault),
    /// epoll has reported this descriptor with these flags.
    Edge(i32, u32),
}

pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(text: bool) -> Self {
        Self { hash: 0, lines: text.then(Vec::new) }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn record(&mut self, now: Nanos, note: TraceEvent<'_>) {
        self.hash = note.words().into_iter().fold(self.hash ^ now, |hash, word| mix(hash ^ word));
        if let Some(lines) = &mut self.lines {
            lines.push(format!(
                "{}.{:09} {}",
                now / 1_000_000_000,
                now % 1_000_000_000,
                note.text()
            ));
        }
    }
}

/// Returns a simulated descriptor as it is, and zero for a real one, whose number differs between
/// runs.
fn descriptor(fd: i32) -> u32 {
    if (0..FIRST_DESCRIPTOR).contains(&fd) { 0 } else { fd as u32 }
}

/// Returns the target of a cancel. It is in the address field, but it is not an address.
fn target(entry: &Entry) -> u64 {
    if entry.opcode == opcode::ASYNC_CANCEL { entry.addr } else { 0 }
}

impl TraceEvent<'_> {
    #[inline]
    fn words(&self) -> [u64; 3] {
        match *self {
            Self::Submitted(entry) => {
                let what = u64::from(entry.opcode) | u64::from(entry.flags) << 8;
                let how =
                    what | u64::from(entry.ioprio) << 16 | u64::from(descriptor(entry.fd)) << 32;
                let much = u64::from(entry.len) | u64::from(entry.op_flags) << 32;
                [1 ^ how, entry.user_data ^ target(entry), much ^ u64::from(entry.file_index)]
            }
            Self::Completed(done) => {
                let outcome = u64::from(done.result as u32) | u64::from(done.flags) << 32;
                [2, done.user_data, outcome]
            }
            Self::Fault(fault) => [3, fault as u64, 0],
            Self::Edge(fd, flags) => [4, descriptor(fd).into(), flags.into()],
        }
    }

    fn text(&self) -> String {
        match *self {
            Self::Submitted(entry) => {
                let name = opcode::operation(entry.opcode).map_or("?", |row| row.name);
                let mut line =
                    format!("{:x} {name} fd {} len {}", entry.user_data, entry.fd, entry.len);
                if entry.opcode == opcode::ASYNC_CANCEL {
                    line = format!("{:x} {name} of {:x}", entry.user_data, entry.addr);
                }
                line
            }
            Self::Completed(done) => {
                format!("{:x} = {} flags {:x}", done.user_data, done.result, done.flags)
            }
            Self::Fault(fault) => format!("fault {fault:?}"),
            Self::Edge(fd, flags) => format!("edge of fd {fd} flags {flags:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_order_time_and_content_but_not_addresses() {
        let hash = |notes: &[(u64, TraceEvent<'_>)]| {
            let mut trace = Trace::new(false);
            notes.iter().for_each(|(now, note)| trace.record(*now, *note));
            trace.hash()
        };
        let send = Entry { opcode: opcode::SEND, addr: 0x1000, ..Entry::default() };
        let elsewhere = Entry { addr: 0x2000, ..send };
        let done = Completion { user_data: 1, result: 5, flags: 0 };
        let (a, b) = ((1, TraceEvent::Submitted(&send)), (2, TraceEvent::Completed(&done)));
        assert_eq!(hash(&[a, b]), hash(&[(1, TraceEvent::Submitted(&elsewhere)), b]));
        assert_ne!(hash(&[a, b]), hash(&[b, a]));
        assert_ne!(hash(&[a, b]), hash(&[a, (3, b.1)]));
        assert_ne!(hash(&[a]), hash(&[(1, TraceEvent::Fault(Fault::Shuffle))]));
    }

    #[test]
    fn text_is_recorded_on_request() {
        let mut trace = Trace::new(true);
        trace.record(
            1_000_000_002,
            TraceEvent::Completed(&Completion { user_data: 16, result: -4, flags: 2 }),
        );
        assert_eq!(trace.lines(), ["1.000000002 10 = -4 flags 2"]);
    }
}
