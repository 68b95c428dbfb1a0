//! Listening: every byte is compared with the text.

use crate::scene::Scene;
use annulus::Lease;
use annulus::net::RecvHalf;
use std::io;

/// The byte at a place of a text. Shifts, swaps and losses show.
pub(crate) fn byte(key: u64, place: u64) -> u8 {
    ((place + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ key << 17) >> 40) as u8
}

/// A stretch of a text.
pub(crate) fn stretch(key: u64, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|place| byte(key, place)).collect()
}

/// How a stream came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Reset,
}

/// A receiving half, and what of it was looked at.
pub(crate) struct Reader {
    scene: Scene,
    half: RecvHalf,
    /// What came with the name and behind it.
    spare: Option<Lease>,
    /// Leases that are kept for a while, with the place where their bytes stand.
    held: Vec<(u64, Lease)>,
}

impl Reader {
    pub(crate) fn new(scene: &Scene, half: RecvHalf) -> Self {
        Self { scene: scene.clone(), half, spare: None, held: Vec::new() }
    }

    /// The next bytes, whoever gave up waiting for them before.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Lease>> {
        if let Some(lease) = self.spare.take() {
            return Ok(Some(lease));
        }
        let Self { scene, half, .. } = self;
        let lease = scene.insist(async || half.recv().await).await?;
        if lease.as_ref().is_some_and(|lease| lease.is_empty()) {
            return Err(io::Error::other("an empty lease"));
        }
        Ok(lease)
    }

    /// The four bytes by which a client says who it is; none where it left before.
    pub(crate) async fn name(&mut self) -> io::Result<Option<u32>> {
        let mut name = Vec::new();
        while name.len() < 4 {
            let Some(mut lease) = self.next().await? else { return Ok(None) };
            let rest = lease.split_off(lease.len().min(4 - name.len()));
            name.extend_from_slice(&lease);
            self.spare = Some(rest).filter(|rest| !rest.is_empty());
        }
        Ok(name.try_into().ok().map(u32::from_le_bytes))
    }

    /// Listens to the end of a text.
    pub(crate) async fn whole(&mut self, key: u64, len: u64) -> io::Result<()> {
        let (heard, end) = self.up_to(key, 0, u64::MAX).await?;
        if (heard, end) == (len, End::Clean) {
            return self.next().await.and_then(|more| match more {
                None => Ok(()),
                Some(_) => Err(io::Error::other("bytes behind the end of a stream")),
            });
        }
        Err(io::Error::other(format!("text {key}: {heard} of {len} bytes, then {end:?}")))
    }

    /// Listens to a text from one place to another at least, or to its end. Answers how far it came.
    pub(crate) async fn up_to(
        &mut self,
        key: u64,
        mut place: u64,
        enough: u64,
    ) -> io::Result<(u64, End)> {
        while place < enough {
            let lease = match self.next().await {
                Ok(Some(lease)) => lease,
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok((place, End::Reset));
                }
                Err(e) => return Err(e),
            };
            let len = lease.len() as u64;
            self.take(key, place, lease)?;
            place += len;
        }
        self.held.drain(..).try_for_each(|(place, lease)| compare(key, place, &lease))?;
        Ok((place, End::Clean))
    }

    /// Compares a lease, and perhaps keeps it: it must still be the same later.
    fn take(&mut self, key: u64, place: u64, lease: Lease) -> io::Result<()> {
        compare(key, place, &lease)?;
        self.scene.heard(lease.len());
        self.held.push((place, lease));
        while self.held.len() as u64 > self.scene.below(8) {
            let which = self.scene.below(self.held.len() as u64) as usize;
            let (place, mut lease) = self.held.swap_remove(which);
            compare(key, place, &lease)?;
            // It is ours to change until it goes.
            lease.fill(0xEE);
        }
        Ok(())
    }
}

fn compare(key: u64, place: u64, bytes: &[u8]) -> io::Result<()> {
    let wrong = (place..).zip(bytes).find(|(place, got)| byte(key, *place) != **got);
    wrong.map_or(Ok(()), |(place, got)| {
        Err(io::Error::other(format!("text {key}: byte {place} is {got:#x}")))
    })
}
