//! Numbers of bytes on the command line.

/// Bytes: `128`, `16K`, `4M` or `1G`; each unit is 1024 of the one before.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("'{text}' is not a number of bytes: write 4096, 16K, 4M or 1G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in
            [("1", 1), ("1000", 1000), ("16K", 16 << 10), ("4m", 4 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "x", "-1", "1.5K", "99999999999G", "18446744073709551616"] {
            let error = bytes(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("16K"), "{error}");
        }
    }
}
