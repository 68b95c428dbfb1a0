//! SPDX licence expressions: `MIT OR (Apache-2.0 AND BSD-3-Clause)`, and the older `MIT/Apache-2.0`.

/// Whether the licences that are allowed satisfy an expression. `WITH` belongs to the licence before it: a licence with an
/// exception is allowed by name.
///
/// # Errors
/// If it is not an expression, with the position of the error.
pub(crate) fn satisfies(
    expression: &str,
    is_allowed: &dyn Fn(&str) -> bool,
) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, is_allowed };
    let satisfied = parser.any()?;
    match parser.words {
        [] => Ok(satisfied),
        [word, ..] => Err(format!("'{word}' is not expected in '{expression}'")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    /// One of several.
    fn any(&mut self) -> Result<bool, String> {
        let mut satisfied = self.every()?;
        while self.take("OR") {
            satisfied |= self.every()?;
        }
        Ok(satisfied)
    }

    /// All of several: `AND` binds closer than `OR`.
    fn every(&mut self) -> Result<bool, String> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let satisfied = self.any()?;
            return if self.take(")") { Ok(satisfied) } else { Err("a ')' is missing".into()) };
        }
        let licence = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok((self.is_allowed)(&format!("{licence} WITH {exception}")));
        }
        Ok((self.is_allowed)(licence))
    }

    fn name(&mut self) -> Result<&'a str, String> {
        match self.words {
            [word, rest @ ..] if !["OR", "AND", "WITH", "(", ")"].contains(word) => {
                self.words = rest;
                Ok(word)
            }
            [word, ..] => Err(format!("'{word}' is not a licence")),
            [] => Err("a licence is missing".into()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words {
            [first, rest @ ..] if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fine(expression: &str) -> Result<bool, String> {
        let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"];
        satisfies(expression, &|licence| allowed.contains(&licence))
    }

    #[test]
    fn expressions_are_read_with_their_precedence() {
        for (expression, fine) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT OR GPL-3.0 AND Zlib", true),
            ("(MIT OR GPL-3.0) AND Zlib", true),
            ("(MIT OR GPL-3.0) AND BSL-1.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(is_fine(expression), Ok(fine), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT Zlib", "AND", "MIT WITH"] {
            assert!(is_fine(expression).is_err(), "{expression}");
        }
    }
}
