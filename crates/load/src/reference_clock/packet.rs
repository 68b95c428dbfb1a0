//! Packets of SNTP.

use crate::clock;

/// Bytes of a packet without extensions.
pub(super) const LENGTH: usize = 48;

/// Version 4, and which side sends it, in the first byte.
const CLIENT: u8 = 0b00_100_011;
const SERVER: u8 = 0b00_100_100;
/// Where the times are: of the question, of its receipt, of the answer.
const ORIGINATE: usize = 24;
const RECEIVE: usize = 32;
const TRANSMIT: usize = 40;
/// The stratum of a clock that says nothing of its own source.
const STRATUM: u8 = 10;
/// The Unix epoch in seconds of NTP.
const UNIX_EPOCH: u64 = 2_208_988_800;

/// A time of NTP: seconds since 1900 in the upper half, which wraps around, and their fraction in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NtpTime(u64);

/// What a server says.
pub(super) enum Answer {
    /// When it received the question, and when it answered.
    Times { received: NtpTime, replied: NtpTime },
    /// It refuses, with this code.
    Refused(String),
}

impl NtpTime {
    pub(super) fn now() -> NtpTime {
        let now = clock::unix();
        let seconds = (now.as_secs() + UNIX_EPOCH) as u32;
        let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
        NtpTime(u64::from(seconds) << 32 | fraction)
    }

    /// The difference in seconds, also if the time has wrapped around between them.
    pub(super) fn seconds_since(self, before: NtpTime) -> f64 {
        self.0.wrapping_sub(before.0) as i64 as f64 / 2.0_f64.powi(32)
    }

    #[cfg(test)]
    pub(super) fn plus(self, seconds: f64) -> NtpTime {
        NtpTime(self.0.wrapping_add((seconds * 2.0_f64.powi(32)) as i64 as u64))
    }

    fn read(packet: &[u8; LENGTH], at: usize) -> NtpTime {
        let bytes = packet[at..at + 8].try_into().expect("eight bytes");
        NtpTime(u64::from_be_bytes(bytes))
    }

    fn write(self, packet: &mut [u8; LENGTH], at: usize) {
        packet[at..at + 8].copy_from_slice(&self.0.to_be_bytes());
    }
}

/// A question that is sent at this time.
pub(super) fn question(sent: NtpTime) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[0] = CLIENT;
    sent.write(&mut packet, TRANSMIT);
    packet
}

/// The time in a question; `None` if it is none. Versions 3 and 4 are answered.
pub(super) fn read_question(bytes: &[u8]) -> Option<NtpTime> {
    let packet = packet(bytes)?;
    let is_question =
        packet[0] & 0b111 == CLIENT & 0b111 && matches!(packet[0] >> 3 & 0b111, 3 | 4);
    is_question.then(|| NtpTime::read(packet, TRANSMIT))
}

/// The answer to a question.
pub(super) fn reply(question: NtpTime, received: NtpTime, now: NtpTime) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[0] = SERVER;
    packet[1] = STRATUM;
    packet[12..16].copy_from_slice(b"LOCL");
    // The time at which the clock was set last is not known.
    now.write(&mut packet, 16);
    question.write(&mut packet, ORIGINATE);
    received.write(&mut packet, RECEIVE);
    now.write(&mut packet, TRANSMIT);
    packet
}

/// What these bytes say, if they are an answer to the question of this time.
pub(super) fn answer(bytes: &[u8], question: NtpTime) -> Option<Answer> {
    let packet = packet(bytes)?;
    if packet[0] & 0b111 != SERVER & 0b111 || NtpTime::read(packet, ORIGINATE) != question {
        return None;
    }
    if packet[1] == 0 {
        let code = packet[12..16].iter().filter(|byte| byte.is_ascii_alphanumeric());
        return Some(Answer::Refused(code.map(|&byte| char::from(byte)).collect()));
    }
    let (received, replied) = (NtpTime::read(packet, RECEIVE), NtpTime::read(packet, TRANSMIT));
    Some(Answer::Times { received, replied })
}

/// The packet without extensions.
fn packet(bytes: &[u8]) -> Option<&[u8; LENGTH]> {
    bytes.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_hold_when_the_seconds_wrap_around() {
        let (before, after) = (NtpTime(u64::MAX), NtpTime(1 << 31));
        assert!((after.seconds_since(before) - 0.5).abs() < 1e-9);
        assert!((before.seconds_since(after) + 0.5).abs() < 1e-9);
        let now = NtpTime::now();
        assert!((now.plus(-2.5).seconds_since(now) + 2.5).abs() < 1e-9);
    }

    #[test]
    fn only_questions_are_answered() {
        let now = NtpTime::now();
        assert_eq!(read_question(&question(now)), Some(now));
        assert_eq!(read_question(&question(now)[..47]), None);
        assert_eq!(read_question(&reply(now, now, now)), None);
        let mut old = question(now);
        old[0] = 0b00_001_011;
        assert_eq!(read_question(&old), None);
    }
}
