//! Comparing the clock of this machine with that of another one, by the exchange of SNTP (RFC 4330).
//!
//! The other one can be any NTP server, or [`serve`] on a machine of the run. Four times are exchanged: when the question was
//! sent and the answer received, by this clock, and when the question was received and the answer sent, by the other one. The
//! difference of the clocks follows from them, up to half of the round trip.

mod packet;

use crate::clock;
use crate::recording::ClockReading;
use packet::{Answer, LENGTH, NtpTime};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Questions of a comparison; the answer with the shortest round trip counts.
const QUESTIONS: u32 = 8;
/// How often [`serve`] asks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why clocks were not compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClockError {
    /// The exchange failed.
    #[error("cannot compare clocks with {0}: {1}; does a server of NTP run there?")]
    Io(SocketAddr, #[source] io::Error),
    /// No answer came in time.
    #[error(
        "cannot compare clocks with {0}: no answer came for {1:?}; name a server of NTP, or run `annulus load clock` there"
    )]
    Silent(SocketAddr, Duration),
    /// The server refuses, with this code.
    #[error(
        "cannot compare clocks with {0}: it refuses ({1}); ask it less often, or name another server"
    )]
    Refused(SocketAddr, String),
}

/// Compares the clock of this machine with that of the server at `reference`; waits this long for each of up to eight
/// answers, and ends at the first that does not come. Blocks the thread.
///
/// # Errors
/// If no answer comes, or the server refuses.
///
/// ```
/// use annulus_load::reference_clock::{compare, serve};
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
/// let address = socket.local_addr().unwrap();
/// let (stop, stopped) = std::sync::mpsc::channel::<()>();
/// let server = std::thread::spawn(move || serve(&socket, || stopped.try_recv().is_ok()));
/// let reading = compare(address, Duration::from_secs(10)).unwrap();
/// assert!(reading.ahead.abs() <= reading.uncertainty + 0.001, "both have the same clock");
/// stop.send(()).unwrap();
/// server.join().unwrap().unwrap();
/// ```
pub fn compare(reference: SocketAddr, patience: Duration) -> Result<ClockReading, ClockError> {
    let failed = |error| ClockError::Io(reference, error);
    let any: SocketAddr =
        if reference.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).map_err(failed)?;
    socket.connect(reference).map_err(failed)?;
    let mut best: Option<ClockReading> = None;
    for _ in 0..QUESTIONS {
        match ask(&socket, reference, patience) {
            Ok(reading)
                if best.as_ref().is_none_or(|best| reading.uncertainty < best.uncertainty) =>
            {
                best = Some(reading);
            }
            Ok(_) => {}
            // A server that answers each client a few times only has answered before.
            Err(error) => return best.ok_or(error),
        }
    }
    Ok(best.expect("an answer to each question"))
}

/// Asks once.
fn ask(
    socket: &UdpSocket,
    reference: SocketAddr,
    patience: Duration,
) -> Result<ClockReading, ClockError> {
    let failed = |error| ClockError::Io(reference, error);
    let sent = NtpTime::now();
    socket.send(&packet::question(sent)).map_err(failed)?;
    let asked = clock::now();
    let mut buffer = [0; 2 * LENGTH];
    loop {
        let left = patience.saturating_sub(clock::now() - asked);
        if left.is_zero() {
            return Err(ClockError::Silent(reference, patience));
        }
        socket.set_read_timeout(Some(left)).map_err(failed)?;
        let received = match socket.recv(&mut buffer) {
            Ok(received) => received,
            Err(error) if is_time_out(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
        let now = NtpTime::now();
        match packet::answer(&buffer[..received], sent) {
            // Of another question, or no answer at all.
            None => {}
            Some(Answer::Refused(code)) => return Err(ClockError::Refused(reference, code)),
            Some(Answer::Times { received, replied }) => {
                let there = received.seconds_since(sent);
                let back = now.seconds_since(replied);
                // A clock that was set during the exchange can make it negative.
                let uncertainty = (there + back).max(0.0) / 2.0;
                let ahead = (back - there) / 2.0;
                return Ok(ClockReading { reference: reference.to_string(), ahead, uncertainty });
            }
        }
    }
}

/// Answers such questions with the clock of this machine, until `stop` says so; it is asked ten times a second, and after
/// each question. Blocks the thread. What is no question is ignored.
///
/// # Errors
/// If the socket fails.
pub fn serve(socket: &UdpSocket, stop: impl Fn() -> bool) -> io::Result<()> {
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut buffer = [0; 2 * LENGTH];
    while !stop() {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if is_time_out(&error) => continue,
            // An answer to a client that has gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        let received = NtpTime::now();
        if let Some(question) = packet::read_question(&buffer[..length]) {
            // A client that cannot be reached asks again.
            let _ = socket.send_to(&packet::reply(question, received, NtpTime::now()), from);
        }
    }
    Ok(())
}

fn is_time_out(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A server that answers each question with what `reply` makes of it, and ends with the process.
    fn server(reply: fn(NtpTime) -> Vec<Vec<u8>>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; LENGTH];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = packet::read_question(&buffer[..length]).unwrap();
                reply(question).iter().for_each(|reply| _ = socket.send_to(reply, from).unwrap());
            }
        });
        address
    }

    fn late(seconds: f64) -> NtpTime {
        NtpTime::now().plus(seconds)
    }

    #[test]
    fn a_clock_that_is_ahead_is_found_to_be() {
        let address =
            server(|question| vec![packet::reply(question, late(-5.0), late(-5.0)).to_vec()]);
        let reading = compare(address, PATIENCE).unwrap();
        assert_eq!(reading.reference, address.to_string());
        assert!((reading.ahead - 5.0).abs() <= reading.uncertainty + 1e-6, "{reading:?}");
    }

    /// Old answers, cut ones, and other packets come first.
    #[test]
    fn what_is_no_answer_is_ignored() {
        let address = server(|question| {
            let good = packet::reply(question, late(0.0), late(0.0)).to_vec();
            let old = packet::reply(question.plus(1.0), late(9.0), late(9.0)).to_vec();
            let mut no_answer = good.clone();
            no_answer[0] = 0x23;
            vec![b"hello".to_vec(), good[..47].to_vec(), old, no_answer, good]
        });
        let reading = compare(address, PATIENCE).unwrap();
        assert!(reading.ahead.abs() <= reading.uncertainty + 1e-6, "{reading:?}");
    }

    #[test]
    fn a_refusal_is_named() {
        let address = server(|question| {
            let mut refusal = packet::reply(question, late(0.0), late(0.0)).to_vec();
            refusal[1] = 0;
            refusal[12..16].copy_from_slice(b"RATE");
            vec![refusal]
        });
        let error = compare(address, PATIENCE).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("(RATE)"), "{error}");
    }

    #[test]
    fn a_server_that_does_not_answer_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let error = compare(address, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("for 20ms"), "{error}");
        assert!(error.contains("annulus load clock"), "{error}");
    }
}
