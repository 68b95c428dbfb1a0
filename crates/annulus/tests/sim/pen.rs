//! Writing: a text in pieces of any size, in every way there is, some of them dropped half way.

use crate::faulty::send_faulty;
use crate::reader::stretch;
use crate::scene::Scene;
use annulus::Chunk;
use annulus::net::SendHalf;
use std::future::poll_fn;
use std::io;

/// A sending half.
pub(crate) struct Pen {
    scene: Scene,
    half: SendHalf,
    /// A dropped send may still fill the queue: only then does dropping a second one send nothing.
    full: bool,
}

impl Pen {
    pub(crate) fn new(scene: &Scene, half: SendHalf) -> Self {
        Self { scene: scene.clone(), half, full: false }
    }

    /// Writes a whole text.
    pub(crate) async fn whole(&mut self, key: u64, len: u64) -> io::Result<()> {
        let mut place = 0;
        while place < len {
            let piece = self.scene.between(1, self.scene.plan().write.min(len - place));
            self.write(stretch(key, place, piece)).await?;
            place += piece;
        }
        Ok(())
    }

    /// Sends what was received, the memory it came in.
    pub(crate) async fn pass_on(&mut self, chunk: impl Into<Chunk>) -> io::Result<()> {
        self.half.send(chunk).await
    }

    /// Ends the sending side.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        let Self { scene, half, .. } = &mut self;
        match scene.below(3) {
            0 => scene.insist(async || half.shutdown().await).await,
            1 => scene.insist(async || half.flush().await).await,
            _ => Ok(()),
        }
    }

    /// Writes a piece, in one way or another.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self.scene.below(5) {
            0 => self.copy(&bytes).await?,
            1 => return self.send_and_leave(bytes).await,
            2 => {
                let (head, tail) = bytes.split_at(self.scene.below(bytes.len() as u64) as usize);
                self.half.send_vectored([head.to_vec(), tail.to_vec()]).await?;
            }
            3 if self.scene.plan().panics > 0 => {
                let Self { scene, half, .. } = self;
                send_faulty(scene, bytes, |bytes| half.send(bytes)).await?;
            }
            _ => self.half.send(bytes).await?,
        }
        self.full = false;
        Ok(())
    }

    /// A send that is dropped before it resolves: what it took is sent all the same.
    async fn send_and_leave(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let Self { scene, half, full } = self;
        if *full {
            scene.insist(async || half.flush().await).await?;
        }
        let outcome = scene.give_up(half.send(bytes)).await;
        *full = outcome.is_none();
        outcome.unwrap_or(Ok(()))
    }

    /// Copies, as much at a time as there is room for.
    async fn copy(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Self { scene, half, .. } = self;
        while !bytes.is_empty() {
            let write = async || poll_fn(|cx| half.poll_write(cx, bytes)).await;
            let written = scene.insist(write).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}
