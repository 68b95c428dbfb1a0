use super::*;
use crate::exchange::http::{Http, HttpRequest};
use crate::exchange::script::Framing;
use crate::mix::Template;
use clap::Parser;

fn resolve(args: &[&str]) -> Result<Plan, String> {
    let line = CommandLine::try_parse_from(args).map_err(|error| error.to_string())?;
    line.options.plan().map_err(|error| error.to_string())
}

fn http(args: &[&str]) -> Http {
    match resolve(args).unwrap().protocol {
        Protocol::Http(http) | Protocol::Http2(http) => http,
        other => panic!("{other:?}"),
    }
}

const SKIP_CHECK: &str = "--insecure";

#[test]
fn target_and_options_select_the_protocol() {
    for (args, name) in [
        (&["127.0.0.1:7"][..], "echo"),
        (&["unix:/x"], "echo"),
        (&["unix-datagram:/x"], "echo"),
        (&["udp://127.0.0.1:7", "--pipeline", "4"], "echo"),
        (&["http://127.0.0.1"], "HTTP/1.1"),
        (&["https://127.0.0.1", "--h2", SKIP_CHECK], "HTTP/2"),
        (&["tls://127.0.0.1:1", "--send", r"x\n", "--reply-until", r"\n", SKIP_CHECK], "script"),
    ] {
        let plan = resolve(args).unwrap();
        assert_eq!(plan.protocol.name(), name, "{args:?}");
        assert_eq!(plan.tls.is_some(), args.contains(&SKIP_CHECK));
    }
    let datagrams = resolve(&["udp://127.0.0.1:7"]).unwrap();
    assert_eq!(datagrams.reply_timeout, Duration::from_millis(200));
}

#[test]
fn options_without_effect_are_rejected() {
    for (args, part) in [
        (&["127.0.0.1:1", "-H", "a: b"][..], "--header does nothing without a target http://"),
        (&["tcp://127.0.0.1:1", "--h2"], "--h2 does nothing without a target http://"),
        (&["127.0.0.1:1", "--expect", "x"], "--expect does nothing without --send or a target"),
        (&["http://127.0.0.1", "--tls-server-name", "b"], "does nothing without a target https://"),
        (&["127.0.0.1:1", SKIP_CHECK], "does nothing without a target https://"),
        (&["http://127.0.0.1", "--cert", "a"], "--cert does nothing without a target https://"),
        (&["https://127.0.0.1", "--key", "a"], "--cert <FILE>"),
        (&["https://[::1]", SKIP_CHECK, "--cert", "/nowhere/x"], "certificates from /nowhere/x"),
        (&["http://127.0.0.1", "-l", "5"], "--length does nothing without echo"),
        (
            &["unix-datagram:/x", "--per-connection"],
            "--per-connection does nothing without a target over TCP",
        ),
        (&["udp://127.0.0.1:1", "--rate", "5"], "a schedule cannot be used with datagrams"),
        (
            &["http://127.0.0.1", "--send", "x"],
            "is an HTTP target, but --send defines another protocol",
        ),
        (&["udp://127.0.0.1:1", "--send", "x"], "uses datagrams, but --send is for connections"),
        (&["http://me:pw@a"], "add -H 'Authorization: …'"),
        (&["a:1", "--send", "x"], "the end of a reply is not defined"),
        (&["a:1", "--send", r"\q", "--reply-length", "1"], r"\q is not an escape"),
        (
            &["127.0.0.1:1", "--send", "x", "--expect", "y", "--reply-until", "z"],
            "not exactly one reply",
        ),
        (&["a:1", "--send", "x", "--reply-length-field", "u7"], "'u7' is not a length field"),
        (&["http://127.0.0.1", "-H", "ab"], "no colon"),
        (&["http://127.0.0.1", "-m", "G T"], "'G T' is not a method"),
        (&["http://127.0.0.1", "--request", "GET b"], "\"b\" is not a valid path"),
        (&["http://a", "--request", "GET"], "the request 'GET' has no path"),
        (
            &["http://a", "--request", "GET /a {n"],
            "the body is invalid: the field '{n' at character 1 is not closed",
        ),
        (&["http://a/b", "--request", "/a"], "http://a/b has a path, but so have the requests"),
        (&["http://127.0.0.1/{n"], "'{n' at character 2 is not closed"),
        (&["http://a", "--request", "0*/a"], "the weight 0"),
        (&["http://a", "--request", "@/nowhere/x"], "cannot read /nowhere/x"),
        (&["a:1", "--send", "x", "--expect", "{n}"], "the end of a reply is not defined"),
        (&["a:1", "--send", "x{n", "--reply-length", "1"], "'{n' at character 2 is not closed"),
        (
            &["a:1", "--send", "x", "--expect", "a", "--expect", "b"],
            "there are 2 --expect for 1 request:",
        ),
        (&["http://a", "--body-file", "/nowhere/x"], "cannot read /nowhere/x"),
        (&["https://127.0.0.1", "--tls-ca", "/nowhere/x"], "certificates from /nowhere/x"),
        (&["http://127.0.0.1", "--h2", "-H", "Connection: close"], "Connection is not allowed"),
        (&["--arrivals", "poisson"], "--rate"),
        (&["--burst", "5"], "--rate"),
        (&["--rate", "5", "--burst", "5", "--arrivals", "poisson"], "--arrivals"),
        (&["--rate", "5", "--burst", "0"], "'0' is not a burst"),
        (&["--rate", "5", "--burst", "2:one"], "does not fit on 1 connection with"),
        (&["--rate", "1", "--think", "1s"], "--think"),
        (&["--rate", "1", "--arrivals", "burst:0"], "a burst period of 0ns"),
        (&["--rate", "fast"], "'fast' is not a number: write 500, 10k"),
        (&["--length", "0"], "bytes per message must be from 1 to 67108864, not 0"),
        (&["-c", "0"], "connections must be from 1 to 1000000, not 0"),
    ] {
        let error = resolve(args).unwrap_err();
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

/// `-t`, `-c`, `-d` and `-H` have the same meaning as in wrk.
#[test]
fn short_options_are_those_of_other_load_generators() {
    let words = "-t4 -c40 -d30s -H a:b -m PUT -b {} -k https://127.0.0.1:8080/x";
    let plan = resolve(&words.split(' ').collect::<Vec<_>>()).unwrap();
    assert_eq!((plan.clients, plan.duration), (40, Duration::from_secs(30)));
    let Workload::Streams(streams) = plan.workload else { panic!("no streams") };
    assert_eq!((streams.threads, plan.tls.unwrap().trust), (4, Trust::Unchecked));
    let Protocol::Http(http) = plan.protocol else { panic!("no HTTP") };
    assert_eq!((http.requests.entries()[0].method.as_str(), http.headers.len()), ("PUT", 1));
}

#[test]
fn number_of_requests_replaces_the_time() {
    let plan = resolve(&["-n", "1.5k"]).unwrap();
    assert_eq!(
        (plan.requests, plan.warm_up, plan.duration),
        (Some(1500), Duration::ZERO, MAX_DURATION)
    );
    let both = resolve(&["-n", "5", "-d", "2"]).unwrap();
    assert_eq!((both.requests, both.duration), (Some(5), Duration::from_secs(2)));
    for (args, part) in [
        (&["-n", "0"][..], "'0' is not a number of requests"),
        (&["-n", "1.5"], "'1.5' is not a number of requests: use a whole number"),
        (&["-n", "5", "--warm-up", "1"], "leave the warm-up out"),
        (&["udp://127.0.0.1:1", "-n", "5"], "cannot be used with datagrams"),
    ] {
        let error = resolve(args).unwrap_err();
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn options_build_the_requests() {
    let http = self::http(&["http://127.0.0.1:8080/x?y#z", "-H", "Accept:  */*", "-b", "{}"]);
    assert_eq!(http.authority, "127.0.0.1:8080");
    let body = Some(Template::constant("{}"));
    let request = HttpRequest { body, ..HttpRequest::new("POST", "/x?y") };
    assert_eq!(http.requests.entries(), [request]);
    assert_eq!(http.headers, [("Accept".to_owned(), "*/*".to_owned())]);
    let head = self::http(&["http://127.0.0.1", "-m", "HEAD"]);
    assert_eq!(head.requests.entries()[0].method, "HEAD");
    let file = std::env::temp_dir().join(format!("annulus-load-requests-{}", std::process::id()));
    std::fs::write(&file, "# a comment\nPUT /{random 1 9} {{ {n} }\n\n").unwrap();
    let named = format!("@{}", file.display());
    let mixed = ["http://127.0.0.1", "--request", "3*/{random 1 9}", "--request", &named];
    let requests = self::http(&mixed).requests;
    std::fs::remove_file(&file).unwrap();
    assert_eq!(requests.shares().collect::<Vec<_>>(), [0.75, 0.25]);
    let body = Some("{{ {n} }".parse().unwrap());
    let put = HttpRequest { body, ..HttpRequest::new("PUT", "/{random 1 9}") };
    assert_eq!(requests.entries(), [HttpRequest::new("GET", "/{random 1 9}"), put]);

    let sent = ["127.0.0.1:1", "--send", r"x{n}\n", "--send", "y", "--expect", r"y\n"];
    let Protocol::Script(script) = resolve(&sent).unwrap().protocol else { panic!("no script") };
    assert_eq!((script.requests.entries().len(), script.framing), (2, Framing::Fixed(2)));
    let expected = script.requests.entries().iter().map(|request| request.expected.clone());
    assert!(expected.eq([Some(Template::constant("y\n")), Some(Template::constant("y\n"))]));
}

#[test]
fn certificate_name_defaults_to_the_host() {
    let tls = |args: &[&str]| resolve(args).unwrap().tls.unwrap();
    assert_eq!(tls(&["https://localhost:8443", SKIP_CHECK]).server_name, "localhost");
    assert_eq!(tls(&["https://[::1]", SKIP_CHECK]).server_name, "::1");
    assert_eq!(tls(&["tls://127.0.0.1:1", SKIP_CHECK]).server_name, "127.0.0.1");
    let named = tls(&["https://127.0.0.1", SKIP_CHECK, "--tls-server-name", "b"]);
    assert_eq!((named.server_name.as_str(), named.trust), ("b", Trust::Unchecked));
}

#[test]
fn toml_file_accepts_options_and_extra_keys() {
    let text = r#"
        target = "127.0.0.1:7"
        connections = 3
        length = "16K"
        duration = 0.5
        rate = "10k"
        arrivals = "poisson"
        driver = "epoll"
        reconnect = false
        pipeline = 2
        requests-per-connection = 5
        interval = "100ms"
    "#;
    let plan = toml::from_str::<Options>(text).unwrap().plan().unwrap();
    assert_eq!((plan.clients, plan.length), (3, 16 << 10));
    assert_eq!(plan.schedule.to_string(), "10000 per second, Poisson arrivals");
    assert_eq!([plan.duration, plan.interval], [500, 100].map(Duration::from_millis));
    let crate::Workload::Streams(streams) = plan.workload else { panic!("no streams") };
    assert_eq!((streams.reconnect, streams.requests_per_connection), (false, Some(5)));
    for (text, part) in [
        ("lenght = 5", "unknown field `lenght`"),
        ("rate = \"fast\"", "'fast' is not a number"),
        ("rate = true", "a number, or a string"),
        ("requests = 0", "'0' is not a number of requests"),
    ] {
        let error = toml::from_str::<Options>(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let named = Options { pin: Some(1), ..Options::default() };
    let named = Options { target: Some("/nowhere/x.toml".into()), ..named };
    assert!(named.clone().resolved().unwrap_err().to_string().contains("contains the whole load"));
    let alone = Options { pin: None, ..named };
    assert!(alone.resolved().unwrap_err().to_string().starts_with("cannot read /nowhere/x.toml"));
    let path = std::env::temp_dir().join(format!("annulus-load-{}.toml", std::process::id()));
    std::fs::write(&path, b"target = \"a:1\"\nsend = [\"\xff\"]\n").unwrap();
    let target = path.to_str().unwrap().to_owned();
    let error = Options { target: Some(target), ..Options::default() }.resolved().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let text = format!("cannot read {}: line 2 is not UTF-8 text", path.display());
    assert_eq!(error, OptionsError::Usage(text));
    for target in ["http://a:1/Cargo.toml", "unix:/run/x.toml", "unix-datagram:x.toml"] {
        let options = Options { target: Some(target.into()), ..Options::default() };
        assert_eq!(options.clone().resolved(), Ok(options), "{target}");
    }
}

#[test]
fn option_line_is_split_as_a_shell_does() {
    let options: Options = "http://127.0.0.1:1/ -H 'a: b c'".parse().unwrap();
    let Protocol::Http(http) = options.plan().unwrap().protocol else { panic!("no HTTP") };
    assert_eq!(http.headers, [("a".to_owned(), "b c".to_owned())]);
    let refused = |line: &str| line.parse::<Options>().unwrap_err().to_string();
    assert!(refused("'a").contains("a quotation"), "{}", refused("'a"));
    assert!(refused("a:1 --nothing").contains("unexpected argument '--nothing'"));
}
