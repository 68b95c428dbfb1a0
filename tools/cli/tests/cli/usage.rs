//! An error is one line with the value, the limit and the remedy. The exit status is 2 for usage
//! errors and 1 for failures. Help is complete and fits 80 columns.

use crate::common::annulus;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Arguments, and the parts that their help must contain, separated by `|`.
const HELP_PARTS: [(&str, &str); 8] = [
    ("--help", "echo|load|bench|doctor|Examples:|Exit status"),
    (
        "echo --help",
        "--listen|--driver|--workers|--spread|--pin|--max-connections|--idle-timeout|\
     --shutdown-timeout|--memory-limit|--recv-buffers|--outstanding|\
     --socket-buffer|--stats|Examples:",
    ),
    (
        "load --help",
        "-c, --connections|-l, --length|-d, --duration|-t, --threads|--warm-up|--pin|--json|\
     --reply-timeout|--driver|udp://|{client}|id={hex 8}|Examples:",
    ),
    ("load -h", "-c, --connections|--rate|--json|--help has all options"),
    (
        "bench --help",
        "NAME|FILE|COMMAND|--quick|--rounds|--max-time|--precision|--only|--out|--verbose|--load|\
     --connections|list|build|compare|page|serve|Examples:|Exit status",
    ),
    ("bench echo --help", "--transport|--pipeline|Examples:"),
    ("contender --help", "nop|file|Examples:"),
    ("doctor --help", "--require|--json|Examples:"),
];

#[test]
fn help_is_complete_and_fits_80_columns() {
    for (args, parts) in HELP_PARTS {
        let finished = annulus(args.split(' '));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{args}");
        for part in parts.split('|') {
            assert!(
                finished.stdout.contains(part),
                "'{part}' is not in {args}:\n{}",
                finished.stdout
            );
        }
        for line in finished.stdout.lines() {
            assert!(line.chars().count() <= 80, "{args}: {line}");
        }
    }
}

#[test]
fn brief_load_help_omits_protocol_options() {
    let brief = annulus(["load", "-h"]).stdout;
    for option in ["--arrivals", "--tls-ca", "--reply-until"] {
        assert!(!brief.contains(option), "{option}: {brief}");
    }
}

#[test]
fn missing_command_prints_the_help_and_fails() {
    let finished = annulus::<&str>([]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("annulus echo"), "{finished:?}");
}

#[test]
fn usage_error_is_one_line_and_exits_2() {
    for (args, parts) in [
        (&["sing"][..], &["sing"][..]),
        (&["echo", "--loud"], &["--loud"]),
        (&["echo", "--listen", "127.0.0.1"], &["'127.0.0.1'", "HOST:PORT"]),
        (&["echo", "--listen", "127.0.0.1:99999"], &["'99999' is not a valid port", "65535"]),
        (&["echo", "--listen", "300.0.0.1:7000"], &["'300.0.0.1' is not an IPv4 address"]),
        (&["echo", "--driver", "kqueue"], &["'kqueue'", "auto, uring, epoll, threads"]),
        (&["echo", "--max-connections", "0"], &["'0'", "--max-connections", "1..=2147483647"]),
        (
            &["echo", "--memory-limit", "1000"],
            &["--memory-limit", "1000 bytes is below the minimum of 1048576 bytes"],
        ),
        (&["echo", "--memory-limit", "16777215G"], &["bytes is above", "iB", "set a lower limit"]),
        (&["echo", "--memory-limit", "-1"], &["'-1'"]),
        (&["echo", "--memory-limit", "much"], &["'much' is not a number of bytes"]),
        (&["echo", "--memory-limit", "8M", "--driver", "threads"], &["--memory-limit", "threads"]),
        (&["echo", "--idle-timeout", "0"], &["idle timeout must be above zero", "30s"]),
        (&["echo", "--spread", "hash"], &["--spread does nothing without several --workers"]),
        (&["echo", "--outstanding", "2"], &["--outstanding does nothing without", "datagrams"]),
        (&["echo", "--socket-buffer", "9"], &["--socket-buffer does nothing without"]),
        (
            &["echo", "--max-connections", "5", "--listen", "udp://127.0.0.1:0"],
            &["--max-connections does nothing without a --listen for streams"],
        ),
        (
            &["echo", "--shutdown-timeout", "5", "--listen", "unix-datagram:/x"],
            &["--shutdown-timeout does nothing without"],
        ),
        (
            &["echo", "--idle-timeout", "5", "--listen", "unix-datagram:/x"],
            &["--idle-timeout does nothing without"],
        ),
        (&["load", "-c", "5", "udp"], &["no port"]),
        (&["echo", "--shutdown-timeout", "soon"], &["'soon'", "--shutdown-timeout", "unit"]),
        (&["load", "--length", "0"], &["'0'", "--length", "1 to 67108864"]),
        (&["load", "--length", "67108865"], &["'67108865'", "1 to 67108864"]),
        (&["load", "--connections", "0"], &["connections must be", "1 to 1000000, not 0"]),
        (&["load", "-t", "30s"], &["'30s'", "from 1 to 256", "-d the duration"]),
        (&["load", "-d", "{}"], &["'{}' is not a time", "-b the body"]),
        (&["load", "--duration", "0"], &["the duration must be above zero"]),
        (&["load", "--reply-timeout", "0"], &["the reply timeout must be above zero"]),
        (&["load", "nowhere"], &["'nowhere'", "HOST:PORT"]),
        (&["load", "127.0.0.1:0"], &["127.0.0.1:0", "port 0"]),
        (&["load", "--driver", "kqueue"], &["'kqueue'", "auto", "uring"]),
        (&["doctor", "--require", "kqueue"], &["'kqueue'", "auto", "uring"]),
    ] {
        annulus(args).fails_with(2, parts);
    }
}

#[test]
fn invalid_number_is_refused_with_its_limits_or_a_remedy() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["echo", "--workers", "x"], &["'x'", "--workers", "write a whole number"]),
        (&["echo", "--pin", ""], &["'' is not the number of a CPU", "write 0"]),
        (&["echo", "--max-connections", "18446744073709551615"], &["1..=2147483647"]),
        (&["load", "-c", "abc"], &["'abc' is not a number of connections from 1 to 1000000"]),
        (&["load", "-c", "-1"], &["'-1' is not a number of connections from 1 to 1000000"]),
        (&["load", "--pin", "-1"], &["'-1' is not the number of a CPU", "write 0"]),
        (&["load", "-n", "1e20"], &["'1e20'", "from 1 to 9007199254740992"]),
        (&["load", "-d", "-1"], &["'-1' is not a time", "'--duration <TIME>'", "1.5h"]),
        (&["load", "--rate", "-5"], &["a rate of -5 messages per second is out of range"]),
        (&["load", "--interval", "1ns"], &["the recorded interval must be at least 1ms, not 1ns"]),
        (
            &["load", "--interval", "1ms", "-d", "2h"],
            &["7200000", "limit is 3000000", "at least 3 ms"],
        ),
        (&["load", "compare", "a", "b", "--margin", "x"], &["'x'", "write a number, such as 0.5"]),
        (&["bench", "compare", "a", "b", "--margin", "x"], &["'x'", "write a number"]),
        (&["bench", "map", "--rounds", "-1"], &["'-1'", "write a whole number without a sign"]),
    ];
    cases.iter().for_each(|(args, parts)| annulus(*args).fails_with(2, parts));
}

#[test]
fn argument_that_is_not_utf8_is_named() {
    let name = OsStr::from_bytes(b"a\xffb");
    let command = [OsStr::new("load"), OsStr::new("--label"), name];
    annulus(command).fails_with(2, &["'a\u{fffd}b'", "UTF-8"]);
}

#[test]
fn unwritable_path_is_a_usage_error_before_the_work() {
    let path = "/no/such/directory/file";
    for args in [
        &["echo", "--listen", "127.0.0.1:0", "--stats", path][..],
        &["load", "--json", path],
        &["bench", "echo", "--json", path],
        &["bench", "map", "--json", path],
        &["doctor", "--json", path],
    ] {
        annulus(args).fails_with(2, &["cannot write", path, "choose another file", "os error"]);
    }
}

#[test]
fn unresolvable_host_is_named() {
    // An empty label, which no resolver accepts.
    for args in [&["echo", "--listen", "a..b:7000"][..], &["load", "a..b:7000"]] {
        annulus(args).fails_with(1, &["cannot resolve 'a..b'", "127.0.0.1"]);
    }
}
