//! Words in braces, in command lines and configurations, and the splitting of command lines.

use anyhow::{Result, anyhow, bail};

/// A name, and what takes its place.
pub(super) type Word = (&'static str, String);

/// The text with every `{name}` and `{NAME}` of a known name replaced by its value, and with `{{name}}` replaced by `{name}`. All else
/// is left as it is.
pub(super) fn filled(text: &str, words: &[Word]) -> String {
    let mut filled = String::with_capacity(text.len());
    for piece in Pieces(text) {
        match piece {
            Piece::Text(text) => filled += text,
            Piece::Quoted(name) => filled += &format!("{{{name}}}"),
            Piece::Word(name) => {
                match words.iter().find(|word| word.0.eq_ignore_ascii_case(name)) {
                    Some((_, value)) => filled += value,
                    None => filled += &format!("{{{name}}}"),
                }
            }
        }
    }
    filled
}

/// The names that stand in braces.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    Pieces(text).filter_map(|piece| match piece {
        Piece::Word(name) => Some(name),
        _ => None,
    })
}

/// Whether any of the texts has this name in braces.
pub(super) fn has<S: AsRef<str>>(texts: &[S], name: &str) -> bool {
    texts.iter().any(|text| names(text.as_ref()).any(|known| known.eq_ignore_ascii_case(name)))
}

/// Refuses names in braces that are not known.
///
/// # Errors
/// Names the first, and the known ones.
pub(super) fn check(texts: &[String], known: &[&str]) -> Result<()> {
    let is_unknown = |name: &&str| !known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some(name) = texts.iter().flat_map(|text| names(text)).find(is_unknown) else {
        return Ok(());
    };
    let known = known.iter().map(|known| format!("{{{known}}}")).collect::<Vec<_>>().join(", ");
    bail!(
        "{{{name}}} is not known: there are {known}; for a literal {{{name}}} write {{{{{name}}}}}"
    )
}

/// The words of a command line, as a shell splits it.
///
/// # Errors
/// If it has no word, or a quotation without an end.
pub(super) fn split(line: &str) -> Result<Vec<String>> {
    let words = shlex::split(line)
        .ok_or_else(|| anyhow!("`{line}` has a quotation or an escape without an end"))?;
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => bail!("a command line is empty: write a program and its arguments"),
    }
}

/// A part of a text.
enum Piece<'a> {
    Text(&'a str),
    /// In braces.
    Word(&'a str),
    /// In doubled braces.
    Quoted(&'a str),
}

/// The parts of a text that is left.
struct Pieces<'a>(&'a str);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.0;
        if text.is_empty() {
            return None;
        }
        if let Some((name, rest)) = braced(text, "{{", "}}") {
            self.0 = rest;
            return Some(Piece::Quoted(name));
        }
        if let Some((name, rest)) = braced(text, "{", "}") {
            self.0 = rest;
            return Some(Piece::Word(name));
        }
        let first = text.chars().next().map_or(0, char::len_utf8);
        let length = text[first..].find('{').map_or(text.len(), |at| first + at);
        let (piece, rest) = text.split_at(length);
        self.0 = rest;
        Some(Piece::Text(piece))
    }
}

/// The name at the start of a text, between these, and what follows.
fn braced<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    let (name, rest) = text.strip_prefix(open)?.split_once(close)?;
    let is_plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_plain)).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_are_replaced_and_all_else_stays() {
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
    fn unknown_words_are_refused() {
        let texts = |text: &str| vec!["x".to_owned(), text.to_owned()];
        check(&texts("{port} {{prot}} {1}"), &["port"]).expect("known");
        let error = check(&texts("{prot}"), &["port", "dir"]).expect_err("unknown").to_string();
        assert!(error.starts_with("{prot} is not known: there are {port}, {dir};"), "{error}");
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(split("a 'b c' \"d\"e\\ f").expect("words"), ["a", "b c", "de f"]);
        for line in ["a 'b", "  ", "''", "a \\"] {
            split(line).expect_err(line);
        }
    }
}
