//! Receiving: every byte is compared with the expected pattern.

use crate::sim::run::Run;
use crate::sim::writer::Writer;
use annulus::Lease;
use annulus::io::copy_at_most;
use annulus::net::RecvHalf;
use std::io;

/// Returns the byte of a pattern at an offset. Lost, moved or swapped bytes differ from it.
pub(crate) fn byte(key: u64, at: u64) -> u8 {
    ((at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ key << 17) >> 40) as u8
}

pub(crate) fn pattern(key: u64, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| byte(key, at)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Reset,
}

/// A receiving half and the leases that it has received.
pub(crate) struct Reader {
    run: Run,
    half: RecvHalf,
    /// Bytes received after the number.
    rest: Option<Lease>,
    /// Leases that are kept for some time, with the offsets of their bytes.
    held: Vec<(u64, Lease)>,
}

impl Reader {
    pub(crate) fn new(run: &Run, half: RecvHalf) -> Self {
        Self { run: run.clone(), half, rest: None, held: Vec::new() }
    }

    /// Receives the next bytes, after some receives that are dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Lease>> {
        if let Some(lease) = self.rest.take() {
            return Ok(Some(lease));
        }
        let Self { run, half, .. } = self;
        let lease = run.insist(async || half.recv().await).await?;
        if lease.as_ref().is_some_and(|lease| lease.is_empty()) {
            return Err(io::Error::other("an empty lease"));
        }
        Ok(lease)
    }

    /// Passes on everything up to the end with copies, some of which have a limit and some of which
    /// are dropped.
    pub(crate) async fn copy_to(&mut self, writer: &mut Writer) -> io::Result<()> {
        if let Some(lease) = self.rest.take() {
            writer.send(lease).await?;
        }
        let Self { run, half, .. } = self;
        loop {
            let limit = if run.below(2) == 0 { u64::MAX } else { run.between(1, 5000) };
            let copied =
                run.insist(async || copy_at_most(half, writer.half(), limit).await).await?;
            if copied < limit {
                return Ok(());
            }
        }
    }

    /// Receives the client's number of four bytes. Returns `None` if the stream ends before it.
    pub(crate) async fn number(&mut self) -> io::Result<Option<u32>> {
        let mut number = Vec::new();
        while number.len() < 4 {
            let Some(mut lease) = self.next().await? else { return Ok(None) };
            let rest = lease.split_off(lease.len().min(4 - number.len()));
            number.extend_from_slice(&lease);
            self.rest = Some(rest).filter(|rest| !rest.is_empty());
        }
        Ok(number.try_into().ok().map(u32::from_le_bytes))
    }

    /// Receives a whole payload and the end of the stream.
    pub(crate) async fn whole(&mut self, key: u64, len: u64) -> io::Result<()> {
        let (received, end) = self.up_to(key, 0, u64::MAX).await?;
        if (received, end) == (len, End::Clean) {
            return self.next().await.and_then(|more| match more {
                None => Ok(()),
                Some(_) => Err(io::Error::other("bytes behind the end of a stream")),
            });
        }
        Err(io::Error::other(format!("payload {key}: {received} of {len} bytes, then {end:?}")))
    }

    /// Receives a payload from one offset to at least another one, or to the end of the stream.
    /// Returns how far it got.
    pub(crate) async fn up_to(
        &mut self,
        key: u64,
        mut at: u64,
        enough: u64,
    ) -> io::Result<(u64, End)> {
        while at < enough {
            let lease = match self.next().await {
                Ok(Some(lease)) => lease,
                Ok(None) => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok((at, End::Reset));
                }
                Err(e) => return Err(e),
            };
            let len = lease.len() as u64;
            self.take(key, at, lease)?;
            at += len;
        }
        self.held.drain(..).try_for_each(|(at, lease)| compare(key, at, &lease))?;
        Ok((at, End::Clean))
    }

    /// Compares a lease, and may keep it to compare it again later.
    fn take(&mut self, key: u64, at: u64, lease: Lease) -> io::Result<()> {
        compare(key, at, &lease)?;
        self.run.count_bytes(lease.len());
        self.held.push((at, lease));
        while self.held.len() as u64 > self.run.below(8) {
            let which = self.run.below(self.held.len() as u64) as usize;
            let (at, mut lease) = self.held.swap_remove(which);
            compare(key, at, &lease)?;
            // A lease may be written to.
            lease.fill(0xEE);
        }
        Ok(())
    }
}

fn compare(key: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
    let wrong = (at..).zip(bytes).find(|(at, got)| byte(key, *at) != **got);
    wrong.map_or(Ok(()), |(at, got)| {
        Err(io::Error::other(format!("payload {key}: byte {at} is {got:#x}")))
    })
}
