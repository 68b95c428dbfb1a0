//! The end that receives: counts numbers, and acknowledges them.

use super::plan::BulkPlan;
use super::stage::{EDGES, Reading, Stage};
use super::{BUFFER, BulkReport, END, HEAD};
use annulus::net::{Datagram, Transmit, UdpOptions, UdpSocket};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UdpSocket,
    length: usize,
    /// Datagrams to an acknowledgement.
    stride: u64,
    stage: Arc<Stage>,
    received: u64,
    /// The number expected.
    next: u64,
    unacknowledged: u64,
    /// How things stood at the edges of the measured time.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    reading: Reading,
    received: u64,
    next: u64,
}

impl Receiver {
    /// Opens a socket, and tells its address.
    pub(super) fn open(plan: &BulkPlan, stage: Arc<Stage>) -> io::Result<(Receiver, SocketAddr)> {
        let socket = UdpOptions::new().recv_buffer(BUFFER).bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_coalescing(plan.segments)?;
        let address = socket.local_addr()?;
        let receiver = Receiver {
            socket,
            length: plan.length,
            stride: plan.window.div_ceil(8) as u64,
            stage,
            received: 0,
            next: 0,
            unacknowledged: 0,
            marks: Vec::with_capacity(EDGES),
        };
        Ok((receiver, address))
    }

    /// Receives until the sender says that there will be no more.
    pub(super) async fn run(mut self) -> io::Result<BulkReport> {
        loop {
            let datagram = self.socket.recv_datagram().await?;
            self.look_at_stage();
            if !self.take(&datagram)? {
                break;
            }
            if self.unacknowledged >= self.stride {
                self.acknowledge(datagram.source)?;
            }
        }
        self.stage.receive_no_more();
        self.report()
    }

    /// Marks each edge of the measured time as it is passed.
    fn look_at_stage(&mut self) {
        if self.stage.passed() > self.marks.len() {
            let Receiver { received, next, .. } = *self;
            self.marks.push(Mark { reading: Reading::now(), received, next });
        }
    }

    /// Counts what has come, one or several together; false at the end.
    fn take(&mut self, datagram: &Datagram) -> io::Result<bool> {
        let size = datagram.segment_size.unwrap_or(self.length);
        for letter in datagram.bytes.chunks(size) {
            match letter.first_chunk::<HEAD>().map(|head| u64::from_le_bytes(*head)) {
                Some(END) => return Ok(false),
                Some(number) if letter.len() == self.length => self.count(number),
                _ => return Err(unexpected(letter.len(), self.length)),
            }
        }
        Ok(true)
    }

    fn count(&mut self, number: u64) {
        self.received += 1;
        self.unacknowledged += 1;
        self.next = self.next.max(number + 1);
    }

    fn acknowledge(&mut self, sender: SocketAddr) -> io::Result<()> {
        self.unacknowledged = 0;
        self.socket.try_send(&self.next.to_le_bytes(), &Transmit::to(sender))
    }

    /// What was received between the edges; the sender's part is missing.
    fn report(&self) -> io::Result<BulkReport> {
        let [opened, closed] = self.marks[..] else {
            return Err(io::Error::other("nothing came within the measured time"));
        };
        let received = closed.received - opened.received;
        Ok(BulkReport {
            received,
            lost: (closed.next - opened.next).saturating_sub(received),
            time: closed.reading.time - opened.reading.time,
            sender_cpu: Duration::ZERO,
            receiver_cpu: closed.reading.cpu - opened.reading.cpu,
        })
    }
}

fn unexpected(came: usize, sent: usize) -> io::Error {
    let text = format!("a datagram of {came} bytes came where {sent} were sent");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_left_out_are_lost_whatever_the_order_of_the_others() {
        annulus::run(async {
            let (mut receiver, _) = Receiver::open(&BulkPlan::new(), Arc::default())?;
            let mark = |it: &Receiver| Mark {
                reading: Reading::now(),
                received: it.received,
                next: it.next,
            };
            receiver.count(0);
            receiver.marks.push(mark(&receiver));
            [1, 3, 2, 7].into_iter().for_each(|number| receiver.count(number));
            receiver.marks.push(mark(&receiver));
            let report = receiver.report()?;
            assert_eq!((report.received, report.lost), (4, 3));
            Ok::<_, io::Error>(())
        })
        .expect("a runtime");
    }
}
