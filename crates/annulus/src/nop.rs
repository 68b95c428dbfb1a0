//! An operation that does nothing: what one costs in this runtime, and nothing else.
#![allow(unsafe_code)]

use crate::runtime::core::{Core, Inner};
use crate::runtime::current;
use annulus_driver::{Event, Kind, Op, Token};
use rustix::io::Errno;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Asks the kernel for nothing and waits for its answer: a slot, an entry, a completion and a wake, as every operation
/// has them. It measures the runtime, as `annulus bench nop` does. On epoll the driver answers, with the next turn.
///
/// Dropping it loses nothing: the answer comes all the same, and nobody is told.
///
/// # Errors
/// Outside a runtime, or where the kernel refuses.
pub fn nop() -> Nop {
    Nop(State::New)
}

/// The future of [`nop`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Nop(State);

enum State {
    New,
    Asked { core: Rc<Core>, slot: u32 },
    Done,
}

impl Future for Nop {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = match &self.0 {
            State::New => match ask(cx) {
                Ok(asked) => {
                    self.0 = asked;
                    return Poll::Pending;
                }
                Err(error) => Err(error),
            },
            State::Asked { core, slot } => match core.enter() {
                Ok(mut inner) => match inner.poll_nop(*slot, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => answer.map_err(io::Error::from),
                },
                Err(error) => Err(error),
            },
            State::Done => panic!("a nop was polled after it had been answered"),
        };
        self.0 = State::Done;
        Poll::Ready(answer)
    }
}

impl Drop for Nop {
    #[inline]
    fn drop(&mut self) {
        if let State::Asked { core, slot } = &self.0
            && let Ok(mut inner) = core.enter()
        {
            inner.drop_nop(*slot);
        }
    }
}

impl fmt::Debug for Nop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nop")
    }
}

fn ask(cx: &Context<'_>) -> io::Result<State> {
    let core = current::get()?;
    let slot = core.enter_running()?.start_nop(cx.waker().clone());
    Ok(State::Asked { core, slot })
}

/// A nop's slot, from its first poll until it was answered and the answer taken, or nobody wants it any more.
pub(crate) enum Question {
    Asked(Waker),
    Answered(Result<(), Errno>),
    Dropped,
}

impl Question {
    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        matches!(self, Self::Asked(waker) if waker.will_wake(task))
    }
}

impl Inner {
    #[inline]
    fn start_nop(&mut self, waker: Waker) -> u32 {
        let slot = self.nops.insert(Question::Asked(waker));
        let token = Token::new(Kind::Nop, self.nops.generation(slot), slot);
        self.start(token, Op::Nop);
        slot
    }

    /// The answer. The slot is gone once this is ready.
    #[inline]
    fn poll_nop(&mut self, slot: u32, cx: &Context<'_>) -> Poll<Result<(), Errno>> {
        let question = self.nops.get(slot);
        match question {
            Question::Answered(answer) => {
                let answer = *answer;
                self.nops.remove(slot);
                Poll::Ready(answer)
            }
            Question::Asked(waker) => {
                if !waker.will_wake(cx.waker()) {
                    self.after.drops.push(std::mem::replace(waker, cx.waker().clone()));
                }
                Poll::Pending
            }
            Question::Dropped => unreachable!("only its future polls it"),
        }
    }

    #[inline]
    pub(crate) fn on_nop(&mut self, event: Event) {
        let slot = event.token.slot();
        let Some(question) = self.nops.find(slot, event.token.generation()) else {
            return self.late(event);
        };
        self.in_flight -= 1;
        match std::mem::replace(question, Question::Answered(event.result.map(drop))) {
            Question::Asked(waker) => self.after.wakes.push(waker),
            Question::Dropped => drop(self.nops.remove(slot)),
            Question::Answered(_) => unreachable!("a nop is answered once"),
        }
    }

    fn drop_nop(&mut self, slot: u32) {
        match std::mem::replace(self.nops.get(slot), Question::Dropped) {
            Question::Asked(waker) => self.after.drops.push(waker),
            Question::Answered(_) => drop(self.nops.remove(slot)),
            Question::Dropped => unreachable!("a future is dropped once"),
        }
    }
}
