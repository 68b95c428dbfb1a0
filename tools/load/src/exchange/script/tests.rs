use super::*;
use crate::exchange::cuts::{assert_same_in_pieces, feed};
use crate::fault::FaultKind;
use proptest::prelude::*;

const OK: Outcome = Outcome::Ok;
const ERROR: Outcome = Outcome::ErrorReply;

fn script(framing: Framing, expected: Option<&[u8]>) -> Script {
    let (request, expected) = (Template::constant("x"), expected.map(Template::constant));
    let requests = Mix::new([(1.0, ScriptRequest { request, expected, check: None })]).unwrap();
    Script { requests, framing, data: None }
}

fn exchange(script: &Script) -> ScriptExchange {
    ScriptExchange::new(
        &Rc::new(script.clone()),
        FieldValues::new(1, 0, 1),
        &FirstRefusal::default(),
    )
}

fn until(delimiter: &str) -> Framing {
    Framing::Delimiter(delimiter.into())
}

fn field(text: &str) -> Framing {
    Framing::LengthField(text.parse().unwrap())
}

#[track_caller]
fn outcomes(script: &Script, requests: usize, bytes: &[u8]) -> (Vec<Outcome>, Option<FaultKind>) {
    let make = || exchange(script);
    let all = [1, 2, 3, 5, 50].map(|size| assert_same_in_pieces(make, requests, bytes, size));
    all[0].clone()
}

#[test]
fn replies_end_where_the_framing_says() {
    let answered = |framing: Framing, bytes: &[u8]| {
        assert_eq!(outcomes(&script(framing, None), 2, bytes), (vec![OK, OK], None));
    };
    answered(until("\n"), b"one\n\n");
    answered(until("\r\n"), b"o\rn\ne\r\r\n\r\n");
    answered(until("aab"), b"aaaabaab");
    answered(Framing::Fixed(3), b"abcdef");
    answered(field("u8"), b"\x02ab\0");
    answered(field("u16be"), b"\0\x02ab\0\x01a");
    answered(field("u32le@1"), b"!\x02\0\0\0ab!\0\0\0\0");
    answered(field("u64be-8"), b"\0\0\0\0\0\0\0\x0aab\0\0\0\0\0\0\0\x08");
    answered(field("u8+1"), b"\0a\x01ab");
}

#[test]
fn replies_are_compared_whole() {
    let compared = |framing: Framing, expected: &[u8], bytes: &[u8], outcome: &[Outcome]| {
        let script = script(framing, Some(expected));
        assert_eq!(script.validate(), Ok(()));
        assert_eq!(outcomes(&script, outcome.len(), bytes), (outcome.to_vec(), None));
    };
    compared(until("\n"), b"PONG\n", b"PONG\nPING\nPON\nPONG\n", &[OK, ERROR, ERROR, OK]);
    compared(Framing::Fixed(3), b"abc", b"abcabdabc", &[OK, ERROR, OK]);
    compared(
        field("u8"),
        b"\x02ab",
        b"\x02ab\x02ac\x01a\x03abc\x02ab",
        &[OK, ERROR, ERROR, ERROR, OK],
    );
}

#[test]
fn expected_reply_uses_the_field_values_of_its_request() {
    let request = script_template(r"{n} {hex 8}\n", None).unwrap();
    let expected = Some(script_template(r"{n} {hex 8}!\n", None).unwrap());
    let requests = Mix::new([(1.0, ScriptRequest { request, expected, check: None })]).unwrap();
    let mut exchange = exchange(&Script { requests, framing: until("\n"), data: None });
    let mut out = Vec::new();
    (0..3).for_each(|_| _ = exchange.request(&mut out));
    let mut lines: Vec<_> =
        out.split(|byte| *byte == b'\n').map(|line| [line, b"!\n"].concat()).collect();
    lines[1][3] ^= 1;
    let mut outcomes = Vec::new();
    exchange.receive(&lines[..3].concat(), &mut |answer| outcomes.push(answer.outcome)).unwrap();
    assert_eq!(outcomes, [OK, ERROR, OK]);
}

#[test]
fn framing_errors_have_their_fault_kind() {
    let fails = |framing: Framing, bytes: &[u8], kind| {
        assert_eq!(outcomes(&script(framing, None), 1, bytes), (vec![], Some(kind)));
    };
    fails(until("\n"), b"abc", FaultKind::CLOSED_EARLY);
    fails(Framing::Fixed(3), b"ab", FaultKind::CLOSED_EARLY);
    fails(field("u16be"), b"\0", FaultKind::CLOSED_EARLY);
    fails(field("u16be"), b"\0\x02a", FaultKind::CLOSED_EARLY);
    fails(field("u16be-4"), b"\0\x03", FaultKind::WRONG_LENGTH);
    fails(field("u32be"), b"\xff\0\0\0", FaultKind::TOO_LONG);
    fails(field("u64be+1"), b"\xff\xff\xff\xff\xff\xff\xff\xff", FaultKind::WRONG_LENGTH);
    let script = script(Framing::Fixed(1), None);
    assert_eq!(outcomes(&script, 1, b"ab"), (vec![OK], Some(FaultKind::TOO_MANY_BYTES)));
}

#[test]
fn missing_delimiter_ends_at_the_length_limit() {
    let mut exchange = exchange(&script(until("\n"), None));
    exchange.request(&mut Vec::new());
    let bytes_from = vec![b'x'; 1 << 20];
    let received = (0..65).try_for_each(|_| exchange.receive(&bytes_from, &mut |_| ()));
    assert_eq!(received.unwrap_err().kind, FaultKind::TOO_LONG);
}

#[test]
fn invalid_scripts_are_rejected() {
    let refused = |script: Script, part: &str| {
        let error = script.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(Script::new(Template::constant(""), until("\n")), "a request is empty");
    refused(script(until(""), None), "the delimiter is empty");
    refused(
        script(Framing::Fixed(0), None),
        "a reply length of 0 bytes is out of range: use 1 to 67108864",
    );
    refused(script(until("\n"), Some(b"a")), "\"a\" is not exactly one reply");
    refused(script(until("\n"), Some(b"a\nb\n")), "not exactly one reply");
    refused(script(Framing::Fixed(2), Some(b"abc")), "not exactly one reply");
    refused(script(field("u8"), Some(b"")), "not exactly one reply");
    let data = |rows: &str| Some(Arc::new(DataRows::parse(rows.as_bytes()).unwrap()));
    let template = |text: &str, data: &Option<Arc<DataRows>>| {
        Template::parse_with_data(text, data.as_deref()).unwrap()
    };
    let rows = data("key,other\na,1\n\"\",2\n");
    let empty = Script::new(template("{key}", &rows), until("\n"));
    refused(Script { data: rows, ..empty }, "with row 2 of the data, a request is empty");
    let rows = data("key\na\n\"b\nc\"\n");
    let mut two = script(until("\n"), None);
    two.requests = two
        .requests
        .try_map(|request| {
            let expected = Some(template("{key}\n", &rows));
            Ok::<_, InvalidValue>(ScriptRequest { expected, ..request })
        })
        .unwrap();
    refused(
        Script { data: rows, ..two },
        "with row 2 of the data, the expected reply \"b\\nc\\n\"",
    );
    let field = LengthField { offset: 5000, width: 1, is_little: false, added: 0 };
    refused(script(Framing::LengthField(field), None), "5000 bytes from the start");
}

#[test]
fn length_fields_round_trip_through_display() {
    for text in ["u8", "u16be", "u16le@2", "u32be-4", "u64le@4096+1", "u32le"] {
        assert_eq!(text.parse::<LengthField>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "u",
        "u8be",
        "u16",
        "u24be",
        "u32xe",
        "u32be@",
        "u32be@4097",
        "u32be-",
        "u32be-x",
        "ü8",
        "uüü",
    ] {
        let error = text.parse::<LengthField>().unwrap_err().to_string();
        assert!(error.contains(&format!("'{text}' is not a length field")), "{error}");
    }
}

#[test]
fn escapes_are_decoded_to_bytes() {
    assert_eq!(script_bytes(r"a\n\r\t\0\\\x7F\xff").unwrap(), b"a\n\r\t\0\\\x7f\xff");
    for (text, part) in [
        (r"a\q", r"\q is not an escape"),
        (r"\x1", r"\x is not an escape"),
        ("a\\", "ends with a backslash"),
    ] {
        assert!(script_bytes(text).unwrap_err().to_string().contains(part), "{text}");
        assert!(script_template(text, None).unwrap_err().to_string().contains(part), "{text}");
    }
}

proptest! {
    #[test]
    fn split_input_gives_the_same_replies(
        bytes in proptest::collection::vec(0_u8..4, 0..200),
        size in 1_usize..40,
        which in 0_usize..5,
        expected in proptest::option::of(proptest::collection::vec(0_u8..4, 1..4)),
    ) {
        let framings = [until("\0\u{1}"), until("\u{1}\u{1}\u{2}"), Framing::Fixed(3), field("u8@1"), field("u16be-2")];
        let script = script(framings[which].clone(), expected.as_deref());
        let make = || exchange(&script);
        let at_once = feed(make(), 1000, [&bytes[..]]);
        prop_assert_eq!(feed(make(), 1000, bytes.chunks(size)), at_once);
    }
}
