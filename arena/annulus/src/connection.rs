//! The state of a connection, which turns received bytes into answers without I/O of its own.

use crate::answer::{self, Dataset};
use crate::refusal::Refusal;
use crate::request::{Request, Target};
use std::sync::Arc;

/// Answers are sent once they have this many bytes, even if further requests have arrived.
const MAX_BATCH_BYTES: usize = 64 << 10;
/// Maximum length of a body that is a number.
const MAX_NUMBER_BYTES: usize = 64;

pub(crate) struct Connection {
    dataset: Arc<Dataset>,
    /// The request whose body is arriving.
    request: Option<Request>,
    /// The body of a request for a sum. Also holds JSON until its length is known.
    text: Vec<u8>,
    is_open: bool,
}

impl Connection {
    pub(crate) fn new(dataset: Arc<Dataset>) -> Self {
        Self { dataset, request: None, text: Vec::new(), is_open: true }
    }

    /// Returns false once a request was invalid or asked to close the connection.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Appends the answers to the requests in `received`. Returns the number of bytes used, which
    /// is 0 if more are needed.
    pub(crate) fn answer(&mut self, received: &[u8], answers: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while self.is_open && used < received.len() && answers.len() < MAX_BATCH_BYTES {
            match self.step(&received[used..], answers) {
                Ok(0) => break,
                Ok(count) => used += count,
                Err(refusal) => {
                    self.is_open = false;
                    answer::refuse(answers, refusal, false);
                }
            }
        }
        used
    }

    /// Takes a request's head, or a part of its body, and answers the request if it is complete.
    fn step(&mut self, received: &[u8], answers: &mut Vec<u8>) -> Result<usize, Refusal> {
        let Some(mut request) = self.request.take() else {
            let Some((request, length)) = Request::parse(received)? else { return Ok(0) };
            self.text.clear();
            if request.framing.is_done() {
                self.respond(&request, answers);
            } else {
                if request.is_patient && received.len() == length {
                    answers.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.request = Some(request);
            }
            return Ok(length);
        };
        let used = self.take_body(&mut request, received)?;
        match request.framing.is_done() {
            true => self.respond(&request, answers),
            false => self.request = Some(request),
        }
        Ok(used)
    }

    /// Takes what has arrived of a body. Returns the number of bytes used.
    fn take_body(&mut self, request: &mut Request, received: &[u8]) -> Result<usize, Refusal> {
        let mut used = 0;
        while !request.framing.is_done() {
            let Some((length, content)) = request.framing.next(&received[used..])? else { break };
            used += length;
            match &mut request.target {
                Target::Upload { bytes } => *bytes += content.len(),
                Target::Sum(_) if self.text.len() + content.len() > MAX_NUMBER_BYTES => {
                    return Err(Refusal::CONTENT_TOO_LARGE);
                }
                Target::Sum(_) => self.text.extend_from_slice(content),
                _ => {}
            }
        }
        Ok(used)
    }

    fn respond(&mut self, request: &Request, answers: &mut Vec<u8>) {
        let Request { target, keep_alive, has_body, .. } = request;
        match target {
            Target::Sum(sum) if *has_body => match number(&self.text) {
                Some(number) => answer::number(answers, sum.wrapping_add(number), *keep_alive),
                None => answer::refuse(answers, Refusal::BAD_REQUEST, *keep_alive),
            },
            Target::Sum(sum) => answer::number(answers, *sum, *keep_alive),
            Target::Ok => answer::text(answers, b"ok", *keep_alive),
            Target::Upload { bytes } => answer::number(answers, *bytes as i64, *keep_alive),
            Target::Json { count, factor } => {
                self.text.clear();
                self.dataset.write(*count, *factor, &mut self.text);
                answer::json(answers, &self.text, *keep_alive);
            }
            Target::Refused(refusal) => answer::refuse(answers, *refusal, *keep_alive),
        }
        self.is_open = *keep_alive;
    }
}

/// Parses a body that is a number.
fn number(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GET, a POST with a length and one in chunks, each for a sum, and one for `ok`.
    const REQUESTS: &[u8] = b"GET /baseline11?a=13&b=42 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /baseline11?a=13&b=42 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n20\
        POST /baseline11?a=1&b=2 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n\
        1;x=y\r\n2\r\n1\r\n0\r\n0\r\nTrailer: 1\r\n\r\n\
        GET /pipeline HTTP/1.1\r\nHost: a\r\n\r\n";
    const BODIES: [&str; 4] = ["55", "75", "23", "ok"];

    fn connection() -> Connection {
        Connection::new(Arc::default())
    }

    /// Returns the answers to requests of which the first part is received before the rest.
    fn answers(connection: &mut Connection, requests: &[u8], cut: usize) -> String {
        let (mut answers, mut used) = (Vec::new(), 0);
        for end in [cut, requests.len()] {
            loop {
                let count = connection.answer(&requests[used..end], &mut answers);
                used += count;
                if count == 0 {
                    break;
                }
            }
        }
        String::from_utf8(answers).expect("an answer is not text")
    }

    #[test]
    fn requests_cut_anywhere_are_answered_in_order() {
        for cut in 0..REQUESTS.len() {
            let mut connection = connection();
            let text = answers(&mut connection, REQUESTS, cut);
            let found: Vec<_> = text.split("HTTP/1.1 200 OK\r\n").skip(1).collect();
            assert_eq!(found.len(), BODIES.len(), "cut at {cut}: {text}");
            for (answer, body) in found.iter().zip(BODIES) {
                assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "cut at {cut}: {answer}");
            }
            assert!(connection.is_open());
        }
    }

    #[test]
    fn malformed_requests_are_refused_and_end_the_connection() {
        let post = "POST /baseline11?a=1&b=1 HTTP/1.1\r\nHost: a\r\n";
        for (text, status) in [
            ("GET\r\n\r\n".to_owned(), 400),
            ("GET /base\0line11 HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
            ("GET /pipeline HTTP/1.1\r\n\r\n".into(), 400),
            (format!("{post}Content-Length: two\r\n\r\n"), 400),
            (format!("{post}Content-Length: +2\r\n\r\n"), 400),
            (format!("{post}Content-Length: 2\r\nContent-Length: 2\r\n\r\n"), 400),
            (format!("{post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
            (format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n"), 501),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\nz\r\n"), 400),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n\r\n\r\n"), 400),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n;x=y\r\n\r\n"), 400),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n1\r\n200\r\n"), 400),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n1;\nx\r\n2\r\n0\r\n\r\n"), 400),
            (format!("{post}Transfer-Encoding: chunked\r\n\r\n1;{}\r\n", "x".repeat(2000)), 400),
            (format!("{post}Content-Length: 100\r\n\r\n{}", "1".repeat(100)), 413),
            (format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)), 431),
            (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000)), 431),
        ] {
            let mut connection = connection();
            let answer = answers(&mut connection, text.as_bytes(), 0);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text}: {answer}");
            assert!(answer.contains("Connection: close\r\n") && !connection.is_open(), "{answer}");
        }
    }

    #[test]
    fn a_refusal_that_leaves_the_framing_intact_keeps_the_connection() {
        let text = b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
            HEAD /pipeline HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /baseline11 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\
            GET /pipeline HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n";
        let mut connection = connection();
        let answers = answers(&mut connection, text, 0);
        let statuses = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]);
        assert_eq!(statuses.collect::<Vec<_>>(), ["404", "405", "400", "200"]);
        assert!(!connection.is_open());
    }

    #[test]
    fn a_patient_client_is_told_to_continue() {
        let text = b"POST /upload HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
        let head = text.len() - 3;
        let continued = answers(&mut connection(), text, head);
        assert!(continued.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{continued}");
        assert!(continued.ends_with("\r\n\r\n3"), "{continued}");
        assert!(answers(&mut connection(), text, 0).starts_with("HTTP/1.1 200"));
        let old = b"POST /upload HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
        let found = answers(&mut connection(), old, old.len() - 3);
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
    }

    #[test]
    fn a_target_may_have_a_host() {
        for (target, body) in [
            ("http://a/baseline11?a=1&b=2", "3"),
            ("HTTP://a:80/pipeline", "ok"),
            ("/baseline11?a=1&b=2&c=http://b/", "3"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = answers(&mut connection(), text.as_bytes(), 0);
            assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{target}: {answer}");
        }
    }
}
