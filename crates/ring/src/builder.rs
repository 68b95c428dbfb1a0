//! Sets up a ring, with the best set-up flags that the kernel has.
#![allow(unsafe_code)]

use crate::error::SetupError;
use crate::params::{SetupFlags, SqPoll};
use crate::restrictions::restrict;
use crate::ring::Ring;
use annulus_kernel::{Fd, Kernel, Linux, Params};
use std::rc::Rc;

/// Most submission entries the kernel allows.
const MAX_ENTRIES: u32 = 32_768;

/// Flags of every ring.
const ALWAYS: SetupFlags =
    SetupFlags::SUBMIT_ALL.union(SetupFlags::CQSIZE).union(SetupFlags::R_DISABLED);

/// Flags of every ring without a kernel thread.
const BASE: SetupFlags = ALWAYS.union(SetupFlags::TASKRUN_FLAG);

/// The flags to try, from the newest kernel to the oldest that has buffer rings. Only `EINVAL` leads to the next.
const FLAGS: [SetupFlags; 3] = [
    BASE.union(SetupFlags::SINGLE_ISSUER)
        .union(SetupFlags::DEFER_TASKRUN)
        .union(SetupFlags::NO_SQARRAY),
    BASE.union(SetupFlags::SINGLE_ISSUER).union(SetupFlags::DEFER_TASKRUN),
    BASE.union(SetupFlags::COOP_TASKRUN),
];

/// The same with a kernel thread, which runs task work itself: there is none to defer or to report.
const SQPOLL_FLAGS: [SetupFlags; 3] = [
    ALWAYS.union(SetupFlags::SQPOLL).union(SetupFlags::SINGLE_ISSUER).union(SetupFlags::NO_SQARRAY),
    ALWAYS.union(SetupFlags::SQPOLL).union(SetupFlags::SINGLE_ISSUER),
    ALWAYS.union(SetupFlags::SQPOLL),
];

/// Sets up a ring. The thread that builds it is the one that may submit.
pub struct Builder {
    kernel: Rc<dyn Kernel>,
    entries: u32,
    completions: u32,
    workers: Option<[u32; 2]>,
    without: SetupFlags,
    sq_poll: Option<SqPoll>,
    only: Option<Vec<u8>>,
}

impl Ring {
    /// A builder with the defaults of a network runtime.
    pub fn builder() -> Builder {
        Builder {
            kernel: Rc::new(Linux),
            entries: 256,
            completions: 4096,
            workers: Some([4, 4]),
            without: SetupFlags::empty(),
            sq_poll: None,
            only: None,
        }
    }
}

impl Builder {
    /// The kernel; Linux by default.
    pub fn kernel(mut self, kernel: Rc<dyn Kernel>) -> Self {
        self.kernel = kernel;
        self
    }

    /// Submission entries: 1 to 32,768, rounded up to a power of two. 256 by default.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Completion entries: at least as many as submission entries, at most 65,536. 4096 by default.
    pub fn completions(mut self, completions: u32) -> Self {
        self.completions = completions;
        self
    }

    /// Most kernel workers for bounded (files) and unbounded work. 4 of each by default, since the kernel's default is tens of
    /// thousands, which `None` keeps.
    pub fn workers(mut self, bounded_and_unbounded: Option<[u32; 2]>) -> Self {
        self.workers = bounded_and_unbounded;
        self
    }

    /// Set-up flags not to use, as on an older kernel.
    pub fn without(mut self, flags: SetupFlags) -> Self {
        self.without = flags;
        self
    }

    /// Lets a kernel thread poll the submission queue.
    pub fn sq_poll(mut self, polls: Option<SqPoll>) -> Self {
        self.sq_poll = polls;
        self
    }

    /// Restricts the ring to these operations, permanently. Any other fails with EACCES, and so do registrations that this crate
    /// does not need. Entries may select a buffer and skip their completion, and have no other flag.
    pub fn only(mut self, operations: &[u8]) -> Self {
        self.only = Some(operations.to_vec());
        self
    }

    /// Sets the ring up, registers its descriptor with this thread, and enables it.
    ///
    /// # Errors
    /// [`SetupError`], which names the step that failed.
    pub fn build(self) -> Result<Ring, SetupError> {
        in_range("a submission queue", self.entries, MAX_ENTRIES)?;
        in_range("a completion queue", self.completions, 2 * MAX_ENTRIES)?;
        let (fd, params) = self.set_up()?;
        // `Ring::open` takes the descriptor over, even if it fails.
        let mut ring = Ring::open(self.kernel, fd, &params)?;
        if let Some(operations) = self.only {
            restrict(&ring, &operations)?;
        }
        ring.enable()?;
        if let Some(workers) = self.workers {
            ring.limit_workers(workers)?;
        }
        Ok(ring)
    }

    fn set_up(&self) -> Result<(Fd, Params), SetupError> {
        let mut refusal = std::io::Error::from(rustix::io::Errno::INVAL);
        let candidates = if self.sq_poll.is_some() { SQPOLL_FLAGS } else { FLAGS };
        for flags in candidates.into_iter().filter(|flags| !flags.intersects(self.without)) {
            let mut params = self.params(flags);
            // SAFETY: `params` names neither memory nor another ring. The descriptor that is returned is new: the ring owns it,
            // and closes it once.
            let fd =
                unsafe { self.kernel.setup(self.entries, &mut params).map(|fd| Fd::from_raw(fd)) };
            match fd {
                Ok(fd) => return Ok((fd, params)),
                Err(error) => refusal = error,
            }
            if refusal.raw_os_error() != Some(rustix::io::Errno::INVAL.raw_os_error()) {
                break;
            }
        }
        Err(match self.sq_poll {
            None => SetupError::Refused(refusal),
            Some(SqPoll { cpu, .. }) => SetupError::SqPoll(cpu, refusal),
        })
    }

    fn params(&self, flags: SetupFlags) -> Params {
        let mut params = Params {
            flags: flags.bits(),
            cq_entries: self.completions.max(self.entries),
            ..Params::default()
        };
        if let Some(polls) = self.sq_poll {
            params.sq_thread_idle = polls.idle_millis();
            params.sq_thread_cpu = polls.cpu.unwrap_or_default();
            params.flags |= polls.cpu.map_or(0, |_| SetupFlags::SQ_AFF.bits());
        }
        params
    }
}

fn in_range(what: &'static str, given: u32, limit: u32) -> Result<(), SetupError> {
    if (1..=limit).contains(&given) { Ok(()) } else { Err(SetupError::Size { what, given, limit }) }
}
