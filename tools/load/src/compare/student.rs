//! Student's t distribution for a whole number of degrees of freedom.

/// More degrees than this make no difference that could be seen.
const MOST_DEGREES: u32 = 1000;

/// The `t` that a value of Student's distribution with so many degrees of freedom exceeds in size with this probability.
///
/// `degrees` is 1 at least, `probability` between 0 and 1.
pub(super) fn two_sided(degrees: u32, probability: f64) -> f64 {
    let degrees = degrees.clamp(1, MOST_DEGREES);
    let exceeds = |t: f64| 1.0 - within(t, degrees) > probability;
    let mut high = 1.0;
    while exceeds(high) && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if exceeds(middle) { low = middle } else { high = middle }
    }
    high
}

/// The probability of a size of at most `t`: the finite series for whole degrees of freedom (Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.7.3 and 26.7.4).
fn within(t: f64, degrees: u32) -> f64 {
    let angle = (t / f64::from(degrees).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    // Odd: 1, 2/3, 2·4/(3·5), … times cosine, cosine³, …; even: 1, 1/2, 1·3/(2·4), … times 1, cosine², ….
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    let first = if is_odd { 3 } else { 2 };
    for next in (first..=degrees).step_by(2) {
        sum += term;
        term *= f64::from(next - 1) / f64::from(next) * cosine * cosine;
    }
    match is_odd {
        true => (angle + sine * sum) * std::f64::consts::FRAC_2_PI,
        false => sine * sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the usual tables.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, probability, wanted) in [
            (1, 0.05, 12.706),
            (2, 0.05, 4.303),
            (3, 0.01, 5.841),
            (4, 0.05, 2.776),
            (5, 0.05, 2.571),
            (9, 0.01, 3.250),
            (10, 0.05, 2.228),
            (30, 0.05, 2.042),
            (1000, 0.05, 1.962),
        ] {
            let found = two_sided(degrees, probability);
            assert!(
                (found - wanted).abs() < 6e-4,
                "{degrees} degrees, {probability}: {found}, not {wanted}"
            );
        }
    }

    #[test]
    fn any_degrees_and_probabilities_have_a_quantile() {
        for degrees in [0, 1, 2, 5000] {
            for probability in [1e-6, 0.5, 0.999_999] {
                let t = two_sided(degrees, probability);
                assert!(t.is_finite() && t >= 0.0, "{degrees} degrees, {probability}: {t}");
            }
        }
    }
}
