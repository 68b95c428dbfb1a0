//! Replies of every type, whole and in pieces.

use super::*;
use crate::exchange::cuts::{assert_same_in_pieces, replies};
use proptest::prelude::*;

const OK: Outcome = Outcome::Ok;
const ERROR: Outcome = Outcome::ErrorReply;

fn exchange(redis: &Redis) -> RedisExchange {
    RedisExchange::new(
        &Rc::new(Commands::new(redis).unwrap()),
        Fill::new(1, 0, 1),
        &FirstRefusal::default(),
    )
}

#[track_caller]
fn outcomes(requests: usize, bytes: &str) -> (Vec<Outcome>, Option<Kind>) {
    let ping = || exchange(&Redis::new("PING"));
    let sizes = [1, 2, 3, 5, 50];
    let all = sizes.map(|size| assert_same_in_pieces(ping, requests, bytes.as_bytes(), size));
    all[0].clone()
}

#[track_caller]
fn answered(bytes: &str, expected: &[Outcome]) {
    assert_eq!(outcomes(expected.len(), bytes), (expected.to_vec(), None), "{bytes}");
}

#[track_caller]
fn fails(bytes: &str, kind: Kind) {
    assert_eq!(outcomes(1, bytes), (vec![], Some(kind)), "{bytes}");
}

#[test]
fn replies_of_every_type_are_recognized() {
    for reply in [
        "+OK\r\n",
        ":-12\r\n",
        "$5\r\nhe\r\no\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "_\r\n",
        "#t\r\n",
        "#f\r\n",
        ",1.5e3\r\n",
        ",-inf\r\n",
        ",nan\r\n",
        "(123456789012345678901234567890\r\n",
        "=7\r\ntxt:a\nb\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n",
        "~1\r\n_\r\n",
        "|1\r\n+ttl\r\n:5\r\n$1\r\na\r\n",
        "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n",
    ] {
        answered(reply, &[OK]);
        answered(&[reply, reply].concat(), &[OK, OK]);
        // A push answers no command.
        answered(&[">2\r\n+invalidate\r\n*1\r\n+k\r\n", reply].concat(), &[OK]);
    }
}

#[test]
fn errors_are_counted_also_within_a_reply() {
    answered(
        "-ERR unknown\r\n+OK\r\n!9\r\nERR other\r\n*2\r\n+OK\r\n-WRONGTYPE x\r\n$-1\r\n",
        &[ERROR, OK, ERROR, ERROR, OK],
    );
    answered(">1\r\n-ERR\r\n+OK\r\n", &[OK]);
}

#[test]
fn a_deep_reply_takes_no_memory() {
    let depth = 100_000;
    answered(&format!("{}:1\r\n", "*1\r\n".repeat(depth)), &[OK]);
}

#[test]
fn what_is_not_of_redis_is_named() {
    for bytes in [
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        "+a\n",
        ":x\r\n",
        "$x\r\n",
        "$-2\r\n",
        "*-2\r\n",
        "_x\r\n",
        "#x\r\n",
        ",x\r\n",
        "(x\r\n",
        "(\r\n",
        "!-1\r\n",
        "%-1\r\n",
        "$?\r\n",
        "*1\r\n>1\r\n+x\r\n",
    ] {
        fails(bytes, Kind::Malformed);
    }
    fails("$2\r\nabc\r\n", Kind::WrongLength);
    fails("$2\r\nab\rc", Kind::WrongLength);
}

#[test]
fn replies_have_limits() {
    fails(&format!("+{}", "x".repeat(66_000)), Kind::TooLong);
    fails("$536870913\r\n", Kind::TooLong);
    fails("*4294967297\r\n", Kind::TooLong);
    fails("*4294967296\r\n*4294967296\r\n", Kind::TooLong);
    fails("%9223372036854775807\r\n", Kind::TooLong);
}

#[test]
fn what_is_cut_off_or_unasked_for_is_named() {
    for bytes in ["+O", "$5\r\nhe", "$5\r\nhello\r", "*2\r\n:1\r\n", "|1\r\n+a\r\n+b\r\n"] {
        fails(bytes, Kind::ClosedEarly);
    }
    assert_eq!(outcomes(1, "+OK\r\n+OK\r\n"), (vec![OK], Some(Kind::TooManyBytes)));
}

#[test]
fn a_connection_logs_in_and_selects_first() {
    let mut redis = Redis::new("GET 'a b'");
    redis.resp = Resp::V3;
    redis.login = Some((Some("me".into()), "secret".into()));
    redis.database = Some(2);
    let mut exchange = exchange(&redis);
    let mut out = Vec::new();
    (0..2).for_each(|_| _ = exchange.request(&mut out));
    let get = "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n";
    let start = "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n";
    assert_eq!(String::from_utf8(out.clone()).unwrap(), format!("{start}{get}{get}"));
    let mut answers = Vec::new();
    let received = b"+OK\r\n%1\r\n+a\r\n+b\r\n+OK\r\n$-1\r\n";
    exchange.receive(received, &mut |answer| answers.push(answer.outcome)).unwrap();
    assert_eq!(answers, [OK]);
    // So does the next one.
    exchange.reconnected();
    out.clear();
    exchange.request(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{start}{get}"));
    let fault = exchange.receive(b"+OK\r\n-WRONGPASS no\r\n", &mut |_| ()).unwrap_err();
    assert_eq!(fault.kind, Kind::Login);
    assert!(fault.detail.contains("-WRONGPASS no"), "{}", fault.detail);
}

#[test]
fn fields_of_commands_are_replaced_and_their_words_counted() {
    let mut exchange = exchange(&Redis::new("SET key:{n} '{text 4} x'"));
    let mut out = Vec::new();
    (0..11).for_each(|_| assert_eq!(exchange.request(&mut out), 0));
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("*3\r\n$3\r\nSET\r\n$5\r\nkey:0\r\n$6\r\n"), "{text}");
    assert!(text.contains("\r\n$6\r\nkey:10\r\n$6\r\n"), "{text}");
}

#[test]
fn commands_that_cannot_be_sent_are_refused() {
    let refused = |command: &str, part: &str| {
        let error = Redis::new(command).validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(" ", "has no word");
    refused("GET 'a", "the command GET 'a: the quotation 'a at character 5 has no end");
    refused("GET {n", "has no end");
}

/// A reply of RESP3.
fn reply() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z]{0,6}".prop_map(|text| format!("+{text}\r\n")),
        "[A-Z]{1,6}".prop_map(|text| format!("-{text}\r\n")),
        any::<i64>().prop_map(|number| format!(":{number}\r\n")),
        "[a-z\r\n]{0,9}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
        Just("$-1\r\n".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_flat_map(|parts| {
            let array = format!("*{}\r\n{}", parts.len(), parts.concat());
            let pairs = parts.len() / 2;
            let map = format!("%{pairs}\r\n{}", parts[..pairs * 2].concat());
            prop_oneof![Just(array), Just(map)]
        })
    })
}

proptest! {
    /// Any cut of the input gives the same answers.
    #[test]
    fn any_cut_gives_the_same_replies(
        sent in proptest::collection::vec(reply(), 1..6),
        size in 1_usize..40,
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = sent.concat().into_bytes();
        if let Some((at, byte)) = damage {
            *at.get_mut(&mut bytes) = byte;
        }
        let ping = || exchange(&Redis::new("PING"));
        let at_once = replies(ping(), sent.len(), [&bytes[..]]);
        prop_assert_eq!(&replies(ping(), sent.len(), bytes.chunks(size)), &at_once);
        if damage.is_none() {
            prop_assert_eq!((at_once.0.len(), at_once.1), (sent.len(), None));
        }
    }
}
