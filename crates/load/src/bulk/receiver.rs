//! The receiving end: counts datagrams and acknowledges them.

use super::plan::BulkPlan;
use super::state::{ClockSample, EDGES, TransferState};
use super::{BUFFER, BulkReport, END, NUMBER_LEN, unless_stalled};
use annulus::net::{Datagram, Transmit, UdpOptions, UdpSocket};
use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UdpSocket,
    length: usize,
    /// Datagrams per acknowledgement.
    ack_every: u64,
    stall_timeout: Duration,
    state: Arc<TransferState>,
    received: Rc<Cell<u64>>,
    /// The next number expected.
    next: u64,
    unacknowledged: u64,
    /// The counters at the edges of the measured time.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    sample: ClockSample,
    received: u64,
    next: u64,
}

impl Receiver {
    /// Opens a socket; returns its address, too.
    pub(super) fn open(
        plan: &BulkPlan,
        state: Arc<TransferState>,
    ) -> io::Result<(Receiver, SocketAddr)> {
        let socket = UdpOptions::new().recv_buffer(BUFFER).bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_coalescing(plan.segments)?;
        let address = socket.local_addr()?;
        let receiver = Receiver {
            socket,
            length: plan.length,
            ack_every: plan.window.div_ceil(8) as u64,
            stall_timeout: plan.stall_timeout,
            state,
            received: Rc::default(),
            next: 0,
            unacknowledged: 0,
            marks: Vec::with_capacity(EDGES),
        };
        Ok((receiver, address))
    }

    /// Receives until the sender ends the transfer.
    pub(super) async fn run(mut self) -> io::Result<BulkReport> {
        let (received, limit) = (Rc::clone(&self.received), self.stall_timeout);
        let stalled = "the sender has stopped: no datagram arrived";
        unless_stalled(self.receive_all(), &received, limit, stalled).await
    }

    async fn receive_all(&mut self) -> io::Result<BulkReport> {
        loop {
            let datagram = self.socket.recv_datagram().await?;
            self.mark_edge();
            if !self.count_segments(&datagram)? {
                break;
            }
            if self.unacknowledged >= self.ack_every {
                self.acknowledge(datagram.source)?;
            }
        }
        self.state.finish();
        self.report()
    }

    /// Marks an edge that the sender has passed. The sender passes the second only after the first is seen here.
    fn mark_edge(&mut self) {
        if self.state.passed() > self.marks.len() {
            let mark =
                Mark { sample: ClockSample::now(), received: self.received.get(), next: self.next };
            self.marks.push(mark);
            self.state.see();
        }
    }

    /// Counts one datagram, or several that were coalesced; false at the end of the transfer.
    fn count_segments(&mut self, datagram: &Datagram) -> io::Result<bool> {
        let size = datagram.segment_size.unwrap_or(self.length);
        for segment in datagram.bytes.chunks(size) {
            match segment.first_chunk::<NUMBER_LEN>().map(|number| u64::from_le_bytes(*number)) {
                Some(END) => return Ok(false),
                Some(number) if segment.len() == self.length => self.count(number),
                _ => return Err(unexpected(segment.len(), self.length)),
            }
        }
        Ok(true)
    }

    fn count(&mut self, number: u64) {
        self.received.set(self.received.get() + 1);
        self.unacknowledged += 1;
        self.next = self.next.max(number + 1);
    }

    fn acknowledge(&mut self, sender: SocketAddr) -> io::Result<()> {
        self.unacknowledged = 0;
        self.socket.try_send(&self.next.to_le_bytes(), &Transmit::to(sender))
    }

    /// The counts between the edges, without the sender's CPU time.
    fn report(&self) -> io::Result<BulkReport> {
        let [opened, closed] = self.marks[..] else {
            return Err(io::Error::other("no datagram arrived within the measured time"));
        };
        let received = closed.received - opened.received;
        Ok(BulkReport {
            received,
            lost: (closed.next - opened.next).saturating_sub(received),
            time: closed.sample.time - opened.sample.time,
            sender_cpu: Duration::ZERO,
            receiver_cpu: closed.sample.cpu - opened.sample.cpu,
        })
    }
}

fn unexpected(received: usize, sent: usize) -> io::Error {
    let text = format!("received a datagram of {received} bytes, but all have {sent}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_numbers_are_lost_in_any_order_of_arrival() {
        annulus::run(async {
            let (mut receiver, _) = Receiver::open(&BulkPlan::new(), Arc::default())?;
            receiver.state.pass();
            receiver.count(0);
            receiver.mark_edge();
            [1, 3, 2, 7].into_iter().for_each(|number| receiver.count(number));
            receiver.state.pass();
            receiver.mark_edge();
            let report = receiver.report()?;
            assert_eq!((report.received, report.lost), (4, 3));
            Ok::<_, io::Error>(())
        })
        .expect("a runtime");
    }

    #[test]
    fn a_sender_that_stops_is_an_error_within_the_limit() {
        let plan = BulkPlan { stall_timeout: Duration::from_millis(30), ..BulkPlan::new() };
        let ended = annulus::run(async {
            let (receiver, address) = Receiver::open(&plan, Arc::default()).expect("a socket");
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let mut datagram = vec![0; plan.length];
            datagram[..NUMBER_LEN].copy_from_slice(&0_u64.to_le_bytes());
            sender.send_to(&datagram, address).expect("loopback accepts a datagram");
            receiver.run().await
        });
        let error = ended.expect_err("a transfer that never ends");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = "the sender has stopped: no datagram arrived for 30ms, after 1 in all";
        assert_eq!(error.to_string(), text);
    }
}
