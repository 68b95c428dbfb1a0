//! The sending end: sends as much as the window allows.

use super::plan::BulkPlan;
use super::state::{ClockSample, EDGES, TransferState};
use super::{BUFFER, END, NUMBER_LEN, unless_stalled};
use crate::plan::segments_that_fit;
use annulus::net::{Transmit, UdpOptions, UdpSocket};
use annulus::time;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often to repeat the end of the transfer until the receiver has seen it.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender {
    socket: UdpSocket,
    /// The datagrams of one send.
    batch: Vec<u8>,
    length: usize,
    transmit: Transmit,
    window: u64,
    warm_up: Duration,
    duration: Duration,
    ack_timeout: Duration,
    stall_timeout: Duration,
    state: Arc<TransferState>,
    /// The clocks at the edges that were passed.
    samples: Vec<ClockSample>,
    /// When the receiver was found to measure.
    measuring_since: Option<Duration>,
    sent: u64,
    /// Numbers below this are acknowledged or given up.
    settled: u64,
    acknowledgements: Rc<Cell<u64>>,
}

impl Sender {
    /// Opens a socket that is connected to the receiver.
    pub(super) async fn open(
        plan: &BulkPlan,
        receiver: SocketAddr,
        state: Arc<TransferState>,
    ) -> io::Result<Sender> {
        let socket = UdpOptions::new().send_buffer(BUFFER).bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(receiver).await?;
        let segments = segments_per_send(plan);
        let transmit = match u16::try_from(plan.length) {
            Ok(size) if segments > 1 => Transmit::connected().segment_size(size),
            _ => Transmit::connected(),
        };
        Ok(Sender {
            socket,
            batch: vec![0; plan.length * segments],
            length: plan.length,
            transmit,
            window: plan.window as u64,
            warm_up: plan.warm_up(),
            duration: plan.duration,
            ack_timeout: plan.ack_timeout,
            stall_timeout: plan.stall_timeout,
            state,
            samples: Vec::with_capacity(EDGES),
            measuring_since: None,
            sent: 0,
            settled: 0,
            acknowledgements: Rc::default(),
        })
    }

    /// Sends until the measured time is over; returns the CPU time between the edges.
    pub(super) async fn run(mut self) -> io::Result<Duration> {
        let (acknowledgements, limit) = (Rc::clone(&self.acknowledgements), self.stall_timeout);
        let stalled = "the receiver has stopped: no acknowledgement arrived";
        unless_stalled(self.send_all(), &acknowledgements, limit, stalled).await
    }

    async fn send_all(&mut self) -> io::Result<Duration> {
        let began = ClockSample::now().time;
        while self.pass_edges(began) {
            while self.has_room() {
                self.send_batch().await?;
            }
            self.receive_ack().await?;
        }
        self.end().await?;
        let [opened, closed] = self.samples[..] else { unreachable!("both edges were passed") };
        Ok(closed.cpu - opened.cpu)
    }

    /// Passes an edge that is due; false after the last. The measured time starts once the receiver has seen the first
    /// edge, so that it is never shorter than planned, however late the receiver runs.
    fn pass_edges(&mut self, began: Duration) -> bool {
        let now = ClockSample::now();
        if self.measuring_since.is_none() && self.state.seen() > 0 {
            self.measuring_since = Some(now.time);
        }
        let is_due = match (self.samples.len(), self.measuring_since) {
            (0, _) => now.time - began >= self.warm_up,
            (1, Some(since)) => now.time - since >= self.duration,
            _ => false,
        };
        if is_due {
            self.state.pass();
            self.samples.push(now);
        }
        self.samples.len() < EDGES
    }

    fn has_room(&self) -> bool {
        let batch = (self.batch.len() / self.length) as u64;
        self.sent - self.settled + batch <= self.window
    }

    async fn send_batch(&mut self) -> io::Result<()> {
        for datagram in self.batch.chunks_mut(self.length) {
            datagram[..NUMBER_LEN].copy_from_slice(&self.sent.to_le_bytes());
            self.sent += 1;
        }
        poll_fn(|cx| self.socket.poll_send_ready(cx)).await?;
        self.socket.try_send(&self.batch, &self.transmit)
    }

    /// Waits for an acknowledgement. If none arrives in time, everything in flight is given up.
    async fn receive_ack(&mut self) -> io::Result<()> {
        let Ok(received) = time::timeout(self.ack_timeout, self.socket.recv()).await else {
            self.settled = self.sent;
            return Ok(());
        };
        if let Some(next) = received?.first_chunk::<NUMBER_LEN>() {
            self.settled = self.settled.max(u64::from_le_bytes(*next));
            self.acknowledgements.set(self.acknowledgements.get() + 1);
        }
        Ok(())
    }

    /// Repeats the end of the transfer until the receiver has seen it.
    async fn end(&self) -> io::Result<()> {
        while !self.state.is_finished() {
            match self.socket.try_send(&END.to_le_bytes(), &Transmit::connected()) {
                // The last batches still fill the queue.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The receiver has seen the end and closed its socket.
                Err(_) if self.state.is_finished() => {}
                sent => sent?,
            }
            time::sleep(END_INTERVAL).await;
        }
        Ok(())
    }
}

/// Segments in one send: at most half a window, so that the next batch is ready before the last is acknowledged.
fn segments_per_send(plan: &BulkPlan) -> usize {
    match plan.segments {
        true => segments_that_fit(plan.length).min(plan.window.div_ceil(2)),
        false => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_to(receiver: SocketAddr) -> io::Error {
        let plan = BulkPlan {
            duration: Duration::from_millis(1),
            stall_timeout: Duration::from_millis(30),
            ..BulkPlan::new()
        };
        annulus::run(async { Sender::open(&plan, receiver, Arc::default()).await?.run().await })
            .expect_err("a transfer without a receiver")
    }

    #[test]
    fn a_receiver_that_stops_reading_is_an_error_within_the_limit() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let error = send_to(receiver.local_addr().expect("its address"));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = "the receiver has stopped: no acknowledgement arrived for 30ms, after 0 in all";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_receiver_that_is_gone_is_an_error() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = receiver.local_addr().expect("its address");
        drop(receiver);
        assert_eq!(send_to(address).kind(), io::ErrorKind::ConnectionRefused);
    }
}
