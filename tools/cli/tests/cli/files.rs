//! The files that commands read and write: what they replace, keep and refuse.

use crate::common::{Scratch, Server, annulus};
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};

#[test]
fn file_of_results_is_kept_until_there_are_results() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("kept-results"));
    let (old, missing) = (scratch.path("old.json"), scratch.path("missing.json"));
    fs::write(&old, "old results").unwrap();
    let address = server.address.to_string();
    for file in [&old, &missing] {
        let echo = ["echo", "--listen", &address, "--stats", file];
        annulus(echo).fails_with(1, &["another program listens there"]);
        let load = ["load", &address, "--pin", "100000", "--json", file];
        annulus(load).fails_with(1, &["CPU 100000"]);
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "old results");
    assert!(!fs::exists(&missing).unwrap(), "an empty file is left");
}

#[test]
fn results_replace_the_contents_of_a_file_and_keep_links() {
    let scratch = Scratch::new("replaced-results");
    let (file, link) = (scratch.path("file.json"), scratch.path("link"));
    fs::write(&file, "x".repeat(1 << 20)).unwrap();
    symlink("file.json", &link).unwrap();
    let dangling = scratch.path("dangling");
    symlink("new.json", &dangling).unwrap();
    for (target, written) in [(&link, &file), (&dangling, &scratch.path("new.json"))] {
        let finished = annulus(["doctor", "--json", target]);
        assert_eq!(finished.stderr, "", "{finished:?}");
        let text = fs::read_to_string(written).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        assert!(fs::symlink_metadata(target).unwrap().is_symlink(), "{target} was replaced");
    }
    let finished = annulus(["doctor", "--json", "/dev/null"]);
    assert_eq!(finished.stderr, "", "{finished:?}");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn files_without_an_end_are_refused() {
    let http = "http://127.0.0.1:1/";
    for args in [
        &["load", http, "--body-file", "/dev/zero"][..],
        &["load", http, "--request", "@/dev/zero"],
        &["load", http, "--expect", "@/dev/zero"],
        &["load", http, "--data", "/dev/zero"],
        &["load", "--targets", "/dev/zero"],
    ] {
        annulus(args).fails_with(2, &["cannot read /dev/zero", "more than 268435456 bytes"]);
    }
    annulus(["load", "https://127.0.0.1:1/", "--tls-ca", "/dev/zero"])
        .fails_with(2, &["/dev/zero", "more than 16777216 bytes"]);
}

#[test]
fn number_that_a_file_must_not_have_is_refused_in_plain_words() {
    let scratch = Scratch::new("bad-number");
    let (load, bench) = (scratch.path("load.toml"), scratch.path("bench.toml"));
    fs::write(&load, "connections = -1\n").unwrap();
    fs::write(&bench, "title = \"t\"\n[site]\na = -1\n").unwrap();
    for (command, file) in [("load", &load), ("bench", &bench)] {
        annulus([command, file]).fails_with(2, &[file, "`-1`, expected a whole number from 0"]);
    }
}

#[test]
fn suite_without_a_table_is_refused() {
    let scratch = Scratch::new("no-table");
    let file = scratch.path("kind.toml");
    fs::write(&file, "title = \"t\"\nkind = \"echo\"\n").unwrap();
    annulus(["bench", &file]).fails_with(2, &[&file, "there is no table: add [[table]]"]);
}

#[test]
fn file_that_is_not_utf8_is_named_with_its_line() {
    let scratch = Scratch::new("not-utf8");
    let file = scratch.path("bad.toml");
    fs::write(&file, b"title = \"t\"\nx = \"\xff\"\n").unwrap();
    for command in ["load", "bench"] {
        annulus([command, &file]).fails_with(2, &[&file, "line 2 is not UTF-8 text"]);
    }
}
