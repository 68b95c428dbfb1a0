//! Sizes on the command line: bytes, or a number with a unit.

/// Reads `128`, `16K`, `4M` or `1G`, each unit 1024 of the one before.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("'{text}' is not a number of bytes: write 4096, 16K, 4M or 1G"))
}

/// Reads a size that is not zero.
pub(super) fn some(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("0 bytes are nothing to measure: write 4096, 16K, 4M or 1G".into()),
        bytes => Ok(bytes),
    }
}

/// A size as people write it: in the largest unit that leaves no rest.
pub(super) fn shown(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let fits = |shift: u32| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let unit = units.into_iter().find(|&(shift, _)| fits(shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_shown() {
        for (text, bytes) in
            [("1", 1), ("1000", 1000), ("16K", 16 << 10), ("4M", 4 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
            assert_eq!(shown(bytes), text);
        }
        assert_eq!(parse("4k"), Ok(4096));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in ["", "K", "x", "-1", "1.5K", "99999999999G", "18446744073709551616"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("16K"), "{error}");
        }
        assert!(some("0K").unwrap_err().contains("0 bytes"));
    }
}
