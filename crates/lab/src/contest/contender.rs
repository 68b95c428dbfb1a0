//! A program that answers questions.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::server::{END_PATIENCE, Process, ServerError, Spec};
use crate::words::Words;

/// A running contender; dropping it ends it.
#[derive(Debug)]
pub struct Contender {
    name: String,
    process: Process,
    words: Words,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Contender {
    /// Starts it; it says nothing until asked.
    pub fn start(spec: &Spec) -> Result<Contender, ServerError> {
        let mut command = spec.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spec.spawn(command)?;
        let questions = child.stdin.take().expect("the command pipes it");
        let answers = lines(child.stdout.take().expect("the command pipes it"));
        let words = Words::of(child.stderr.take().expect("the command pipes it"));
        let name = spec.name.clone();
        let watch = |error| ServerError::Watch { name: name.clone(), error };
        let process = Process::new(child).map_err(watch)?;
        Ok(Contender { name, process, words, questions, answers })
    }

    /// Asks it and waits for its answer, each a line without its end.
    pub fn ask(&mut self, question: &str, patience: Duration) -> Result<String, ServerError> {
        let asked = writeln!(self.questions, "{question}");
        let answer = self.answers.recv_timeout(patience);
        match (asked, answer) {
            (Ok(()), Ok(answer)) => Ok(answer),
            (Ok(()), Err(RecvTimeoutError::Timeout)) => {
                Err(self.unanswered(question, format!("nothing within {patience:?}")))
            }
            _ if self.process.ends_within(END_PATIENCE) => {
                Err(self.process.obituary(&self.name, &self.words))
            }
            _ => Err(self.unanswered(question, "it closed its input or output".into())),
        }
    }

    /// That what came is no answer to the question.
    pub(super) fn unanswered(&self, question: &str, instead: String) -> ServerError {
        ServerError::Unanswered { name: self.name.clone(), asked: question.into(), instead }
    }
}

/// The lines of a pipe, read by a thread, so that nobody waits for one longer than he likes.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut all = BufReader::new(pipe).lines().map_while(io::Result::ok);
        // It ends with the pipe, or when nobody listens any more.
        all.try_for_each(|line| sender.send(line))
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A shell that runs this script.
    fn shell(script: &str) -> Contender {
        let arguments = vec!["-c".into(), script.into()];
        let name = "shell".into();
        Contender::start(&Spec { name, program: "/bin/sh".into(), arguments, pin: None })
            .expect("a shell")
    }

    #[test]
    fn questions_are_answered_one_by_one() {
        let mut twice = shell("while read n; do echo $((n * 2)); done");
        for n in [1, 20, 300] {
            assert_eq!(
                twice.ask(&n.to_string(), PATIENCE).expect("an answer"),
                (n * 2).to_string()
            );
        }
    }

    #[test]
    fn one_that_falls_over_is_named_with_its_last_words() {
        let mut faller = shell("read n; echo no ring here >&2; exit 1");
        let error = faller.ask("64 0.1", PATIENCE).expect_err("it ends").to_string();
        assert_eq!(error, "server shell ended (exit status: 1); its last words: no ring here");
    }

    #[test]
    fn one_that_says_nothing_does_not_hang_us() {
        let mut mute = shell("while read n; do :; done");
        let error = mute.ask("64 0.1", Duration::from_millis(1)).expect_err("nothing").to_string();
        assert_eq!(error, "server shell: no answer to `64 0.1`: nothing within 1ms");
    }
}
