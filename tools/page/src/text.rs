//! Short text forms of numbers, for labels and tables.

/// Formats a number with thousands separators: without decimals from 100 on, otherwise with at most
/// three significant digits: `84,120`, `3.14`, `0`. A number that is not finite becomes `–`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let decimals =
        if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 9) };
    let text = format!("{value:.0$}", decimals as usize);
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let rest = rest.trim_end_matches('0').trim_end_matches('.');
    separated(whole) + rest
}

/// Formats a number with thousands separators and this many decimals: `84,120.50`.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    separated(whole) + rest
}

/// Formats a number, from 10,000 on with a suffix: `84.1k`, `1.2M`.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => number(value / 1e9) + "G",
        size if size >= 1e6 => number(value / 1e6) + "M",
        size if size >= 1e4 => number(value / 1e3) + "k",
        _ => number(value),
    }
}

/// Formats nanoseconds in a suitable unit: `870 ns`, `12.3 µs`, `1.04 ms`, `2 s`.
pub fn nanoseconds(value: f64) -> String {
    let (divisor, unit) = match value {
        ..999.5 => (1.0, "ns"),
        ..999.5e3 => (1e3, "µs"),
        ..999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", number(value / divisor))
}

/// Formats a share as a percentage: `99.9 %`.
pub fn percent(value: f64) -> String {
    format!("{} %", number(value * 100.0))
}

/// Quotes a word for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn separated(whole: &str) -> String {
    let (sign, digits) = whole.split_at(whole.len() - whole.trim_start_matches('-').len());
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all() {
        let texts = [0.0, 1.0, 2.5, 0.125, 99.96, 84_120.4, -1234.0, 0.000_12].map(number);
        assert_eq!(texts, ["0", "1", "2.5", "0.125", "100", "84,120", "-1,234", "0.00012"]);
        assert_eq!(
            [84_120.0, 1_234_567.0, 9_999.0, 2e9].map(short),
            ["84.1k", "1.23M", "9,999", "2G"]
        );
        assert_eq!(number(f64::NAN), "–");
        assert_eq!([grouped(-1234.5, 0), grouped(84_120.0, 2)], ["-1,234", "84,120.00"]);
    }

    #[test]
    fn times_have_a_unit_that_suits_them() {
        let texts = [870.0, 12_345.0, 999_600.0, 1e9, 2.5e9].map(nanoseconds);
        assert_eq!(texts, ["870 ns", "12.3 µs", "1 ms", "1 s", "2.5 s"]);
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let words = ["annulus", "http://h:1/?a=1&b", "GET key", "it's", "", "99%"];
        let texts = words.map(quoted);
        assert_eq!(
            texts,
            ["annulus", "'http://h:1/?a=1&b'", "'GET key'", "'it'\\''s'", "''", "99%"]
        );
    }
}
