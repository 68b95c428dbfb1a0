//! The end that sends: as much as the window allows.

use super::plan::BulkPlan;
use super::stage::{EDGES, Reading, Stage};
use super::{BUFFER, END, HEAD, PATIENCE};
use crate::datagrams::MAX_DATAGRAM;
use annulus::net::{Transmit, UdpOptions, UdpSocket};
use annulus::time;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Datagrams that leave as one, at most: what every kernel with segmentation takes.
const MOST_TOGETHER: usize = 64;
/// How often the end is told, to a receiver that may have missed it.
const LAST_WORDS: usize = 100;

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender {
    socket: UdpSocket,
    /// Datagrams that leave together.
    batch: Vec<u8>,
    length: usize,
    how: Transmit,
    window: u64,
    /// When to pass each edge of the measured time, since the beginning.
    edges: [Duration; EDGES],
    stage: Arc<Stage>,
    readings: Vec<Reading>,
    sent: u64,
    /// Those before this number are acknowledged, or given up.
    settled: u64,
}

impl Sender {
    /// Opens a socket that is connected to the receiver.
    pub(super) fn open(
        plan: &BulkPlan,
        receiver: SocketAddr,
        stage: Arc<Stage>,
    ) -> io::Result<Sender> {
        let options = UdpOptions::new().send_buffer(BUFFER);
        let socket = options.bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(receiver)?;
        let together = together(plan);
        let how = match u16::try_from(plan.length) {
            Ok(size) if together > 1 => Transmit::connected().segment_size(size),
            _ => Transmit::connected(),
        };
        Ok(Sender {
            socket,
            batch: vec![0; plan.length * together],
            length: plan.length,
            how,
            window: plan.window as u64,
            edges: [plan.warm_up(), plan.warm_up() + plan.duration],
            stage,
            readings: Vec::with_capacity(EDGES),
            sent: 0,
            settled: 0,
        })
    }

    /// Sends until the time is over; returns the CPU time between the edges.
    pub(super) async fn run(mut self) -> io::Result<Duration> {
        let began = Reading::now().time;
        while self.goes_on(began) {
            while self.has_room() {
                self.send_batch().await?;
            }
            self.hear().await?;
        }
        self.end().await?;
        let [opened, closed] = self.readings[..] else { unreachable!("both edges were passed") };
        Ok(closed.cpu - opened.cpu)
    }

    /// Passes the edges whose time has come; false after the last.
    fn goes_on(&mut self, began: Duration) -> bool {
        let now = Reading::now();
        if self.edges.get(self.readings.len()).is_some_and(|edge| now.time - began >= *edge) {
            self.stage.pass();
            self.readings.push(now);
        }
        self.readings.len() < EDGES
    }

    fn has_room(&self) -> bool {
        let batch = (self.batch.len() / self.length) as u64;
        self.sent - self.settled + batch <= self.window
    }

    async fn send_batch(&mut self) -> io::Result<()> {
        for letter in self.batch.chunks_mut(self.length) {
            letter[..HEAD].copy_from_slice(&self.sent.to_le_bytes());
            self.sent += 1;
        }
        poll_fn(|cx| self.socket.poll_send_ready(cx)).await?;
        self.socket.try_send(&self.batch, &self.how)
    }

    /// Waits for an acknowledgement; where none comes, what is under way is given up.
    async fn hear(&mut self) -> io::Result<()> {
        self.settled = match time::timeout(PATIENCE, self.socket.recv()).await {
            Ok(came) => match came?.first_chunk::<HEAD>() {
                Some(head) => self.settled.max(u64::from_le_bytes(*head)),
                None => self.settled,
            },
            Err(_) => self.sent,
        };
        Ok(())
    }

    /// Tells the receiver that there will be no more, until it has heard that.
    async fn end(&self) -> io::Result<()> {
        for _ in 0..LAST_WORDS {
            match self.socket.try_send(&END.to_le_bytes(), &Transmit::connected()) {
                // The queue is still full of the last batches: later, then.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                told => told?,
            }
            time::sleep(PATIENCE / 4).await;
            if self.stage.has_received_all() {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the receiver has stopped"))
    }
}

/// How many datagrams leave together: not more than half a window, so that the next ones are ready before the last are
/// acknowledged.
fn together(plan: &BulkPlan) -> usize {
    match plan.segments {
        true => (MAX_DATAGRAM / plan.length).min(MOST_TOGETHER).min(plan.window.div_ceil(2)),
        false => 1,
    }
}
