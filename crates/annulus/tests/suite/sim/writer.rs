//! Sending: a payload in pieces of any size, with every method. Some sends are dropped before they
//! are ready.

use crate::sim::faulty::send_faulty;
use crate::sim::reader::pattern;
use crate::sim::run::Run;
use annulus::Chunk;
use annulus::io::AsyncSend;
use annulus::net::SendHalf;
use std::io::{self, IoSlice};

pub(crate) struct Writer {
    run: Run,
    half: SendHalf,
    /// Whether a dropped send may still fill the queue. The stream would then not accept another
    /// send, whose bytes would be lost if it was dropped too.
    full: bool,
}

impl Writer {
    pub(crate) fn new(run: &Run, half: SendHalf) -> Self {
        Self { run: run.clone(), half, full: false }
    }

    pub(crate) async fn whole(&mut self, key: u64, len: u64) -> io::Result<()> {
        let mut at = 0;
        while at < len {
            let piece = self.run.between(1, self.run.plan().write.min(len - at));
            self.write(pattern(key, at, piece)).await?;
            at += piece;
        }
        Ok(())
    }

    pub(crate) fn half(&mut self) -> &mut SendHalf {
        &mut self.half
    }

    /// Sends received bytes without copying them.
    pub(crate) async fn send(&mut self, chunk: impl Into<Chunk>) -> io::Result<()> {
        self.half.send(chunk).await
    }

    /// Ends the sending side.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        let Self { run, half, .. } = &mut self;
        match run.below(3) {
            0 => run.insist(async || half.shutdown().await).await,
            1 => run.insist(async || half.drain().await).await,
            _ => Ok(()),
        }
    }

    /// Sends a piece with one of the methods.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self.run.below(5) {
            0 => self.copy(&bytes).await?,
            1 => return self.send_and_drop(bytes).await,
            2 => {
                let (head, tail) = bytes.split_at(self.run.below(bytes.len() as u64) as usize);
                self.half.send_vectored([head.to_vec(), tail.to_vec()]).await?;
            }
            3 if self.run.plan().panics > 0 => {
                let Self { run, half, .. } = self;
                send_faulty(run, bytes, |bytes| half.send(bytes)).await?;
            }
            _ => self.half.send(bytes).await?,
        }
        self.full = false;
        Ok(())
    }

    /// Starts a send that may be dropped before it is ready. Bytes that the stream has accepted are
    /// still sent.
    async fn send_and_drop(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let Self { run, half, full } = self;
        if *full {
            run.insist(async || half.drain().await).await?;
        }
        let outcome = run.give_up(half.send(bytes)).await;
        *full = outcome.is_none();
        outcome.unwrap_or(Ok(()))
    }

    /// Copies as many bytes at a time as there is space for, from one slice or two.
    async fn copy(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { run, half, .. } = self;
        while !bytes.is_empty() {
            let (head, tail) = bytes.split_at(run.below(bytes.len() as u64 + 1) as usize);
            let slices = [IoSlice::new(head), IoSlice::new(tail)];
            let written = match run.below(2) {
                0 => run.insist(async || half.write(bytes).await).await?,
                _ => run.insist(async || half.write_vectored(&slices).await).await?,
            };
            half.flush().await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}
