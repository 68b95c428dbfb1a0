//! Completions and manual pages.

use crate::common::annulus;
use std::path::Path;

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let finished = annulus(["completions", shell]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        for word in ["echo", "load", "bench", "doctor", "pipeline"] {
            assert!(finished.stdout.contains(word), "no {word} for {shell}");
        }
    }
    annulus(["completions", "cmd"]).fails_with(2, &["cmd", "bash"]);
}

#[test]
fn every_command_has_a_page() {
    let pages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manual/man1");
    let finished = annulus(["man".as_ref(), pages.as_os_str()]);
    assert_eq!((finished.code, &*finished.stdout), (Some(0), ""), "{finished:?}");
    for (page, part) in [
        ("annulus", "annulus\\-load(1)"),
        ("annulus-load", ".nf"),
        ("annulus-bench-page", "Markdown"),
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(
            text.contains(".TH ") && text.contains(part),
            "'{part}' is not in {page}.1: {text}"
        );
    }
    assert!(!pages.join("annulus-help.1").exists());
    let printed = annulus(["man"]);
    assert!(printed.stdout.contains(".TH annulus 1"), "{printed:?}");
}

#[test]
fn directory_that_cannot_be_created_is_named() {
    annulus(["man", "/dev/null/man1"]).fails_with(1, &["/dev/null/man1", "choose another"]);
}
