//! Placeholders in command lines and configurations, and the splitting of command lines.

use std::sync::LazyLock;

use anyhow::{Result, anyhow, bail};
use regex_lite::{Captures, Regex};

/// The name of a placeholder, and its value.
pub(crate) type Placeholder = (&'static str, String);

/// A name in double braces or in single braces.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{([A-Za-z_]+)\}\}|\{([A-Za-z_]+)\}")
        .expect("the constant expression is invalid")
});

/// Replaces every `{name}` whose name is known, in upper or lower case, by its value, and
/// `{{name}}` by `{name}`. Everything else stays as it is.
pub(crate) fn filled(text: &str, words: &[Placeholder]) -> String {
    let value = |found: &Captures<'_>| match (found.get(1), found.get(2)) {
        (_, Some(name)) => {
            let word = words.iter().find(|word| word.0.eq_ignore_ascii_case(name.as_str()));
            word.map_or_else(|| found[0].to_owned(), |(_, value)| value.clone())
        }
        _ => format!("{{{}}}", &found[1]),
    };
    PLACEHOLDER.replace_all(text, value).into_owned()
}

/// Returns the names in single braces.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    PLACEHOLDER.captures_iter(text).filter_map(|found| Some(found.get(2)?.as_str()))
}

/// Returns true if any of the texts contains this placeholder.
pub(crate) fn has<S: AsRef<str>>(texts: &[S], name: &str) -> bool {
    texts.iter().any(|text| names(text.as_ref()).any(|known| known.eq_ignore_ascii_case(name)))
}

/// Refuses unknown placeholders.
///
/// # Errors
/// If a placeholder is unknown; the error contains it and the known placeholders.
pub(crate) fn check(texts: &[String], known: &[&str]) -> Result<()> {
    let is_unknown = |name: &&str| !known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some(name) = texts.iter().flat_map(|text| names(text)).find(is_unknown) else {
        return Ok(());
    };
    let known = known.iter().map(|known| format!("{{{known}}}")).collect::<Vec<_>>().join(", ");
    bail!(
        "unknown placeholder {{{name}}}: known placeholders are {known}; for a literal {{{name}}} write {{{{{name}}}}}"
    )
}

/// Prefixes of words that need a shell. A word such as `A=b` before the program also needs a shell.
const SHELL_PREFIXES: [&str; 7] = ["&", "|", ";", ">", "<", "1>", "2>"];

/// Splits a command line into words like a shell.
///
/// # Errors
/// If it is empty, has an unterminated quote, or needs a shell.
pub(crate) fn split(line: &str) -> Result<Vec<String>> {
    let words = shlex::split(line)
        .ok_or_else(|| anyhow!("`{line}` has an unterminated quote or escape"))?;
    let is_variable = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let first = words.first().filter(|word| is_variable(word));
    let others =
        words.iter().find(|word| SHELL_PREFIXES.iter().any(|start| word.starts_with(start)));
    if let Some(word) = first.or(others) {
        bail!(
            "`{word}` in `{line}` needs a shell, but commands run without one: write sh -c '…' around it"
        );
    }
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => bail!("a command line is empty: write a program and its arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_placeholders_are_replaced_and_the_rest_stays() {
        let words = [("port", "80".to_owned()), ("dir", "/a{port}".to_owned())];
        for (text, expected) in [
            ("-p{port} {DIR}/{port}", "-p80 /a{port}/80"),
            ("{{port}} {other} {}{ é{port}", "{port} {other} {}{ é80"),
            ("{ port } {port", "{ port } {port"),
            ("", ""),
        ] {
            assert_eq!(filled(text, &words), expected);
        }
        assert!(has(&["x", "a{PORT}"], "port") && !has(&["{{port}}"], "port"));
    }

    #[test]
    fn unknown_placeholders_are_refused() {
        let texts = |text: &str| vec!["x".to_owned(), text.to_owned()];
        check(&texts("{port} {{prot}} {1}"), &["port"]).expect("a known placeholder was refused");
        let error = check(&texts("{prot}"), &["port", "dir"])
            .expect_err("an unknown placeholder was accepted")
            .to_string();
        assert!(
            error.starts_with("unknown placeholder {prot}: known placeholders are {port}, {dir};"),
            "{error}"
        );
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(
            split("a 'b c' \"d\"e\\ f").expect("the line was not split"),
            ["a", "b c", "de f"]
        );
        for line in ["a 'b", "  ", "''", "a \\"] {
            split(line).expect_err(line);
        }
    }

    #[test]
    fn shell_syntax_is_refused_by_name() {
        for (line, word) in [
            ("FOO=1 cmd", "FOO=1"),
            ("cd x && cmd", "&&"),
            ("cmd > out", ">"),
            ("cmd 2>/dev/null", "2>/dev/null"),
            ("a | b", "|"),
            ("cmd &", "&"),
        ] {
            let error = split(line).expect_err(line).to_string();
            assert!(error.starts_with(&format!("`{word}` in ")), "{error}");
            assert!(error.ends_with("write sh -c '…' around it"), "{error}");
        }
        for line in ["sh -c 'a > b && c'", "wrk http://a/?b=1&c=2", "cmd --a=1 b=2", "a '' '-p|q'"]
        {
            split(line).expect(line);
        }
    }
}
