// SPDX-License-Identifier: Apache-2.0
//! From values to pixels, and the marks of an axis.

/// A range of values on a length of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    at: f64,
    length: f64,
}

impl Scale {
    /// `from..to` on the pixels from `at` on; a negative length goes up.
    pub fn new(from: f64, to: f64, at: f64, length: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Scale {
            from,
            to,
            at,
            length,
        }
    }

    /// The pixel of a value.
    pub fn of(&self, value: f64) -> f64 {
        self.at + (value - self.from) / (self.to - self.from) * self.length
    }

    /// Values of about `count` marks, at round distances, and the distance.
    pub fn marks(&self, count: f64) -> (Vec<f64>, f64) {
        let rough = (self.to - self.from) / count.max(1.0);
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.from / step).ceil();
        let values = (0..100).map(|n| (first + f64::from(n)) * step);
        let inside = values.take_while(|v| *v <= self.to).collect();
        (inside, step)
    }
}

/// A number with a decimal prefix and a unit.
pub(super) fn quantity(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut prefix) = (value, 0);
    while value >= 1000.0 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    format!("{} {}{unit}", short(value), PREFIXES[prefix])
}

/// A duration in seconds with its unit.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        s if s >= 1.0 => format!("{} s", short(s)),
        s if s >= 1e-3 => format!("{} ms", short(s * 1e3)),
        s => format!("{} \u{b5}s", short(s * 1e6)),
    }
}

/// Up to four digits, no zeros at the end.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

/// Digits in groups of three.
pub(super) fn grouped(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_inside() {
        let (marks, step) = Scale::new(-0.3, 1.9, 0.0, 100.0).marks(5.0);
        assert_eq!(step, 0.5);
        assert_eq!(marks, [0.0, 0.5, 1.0, 1.5]);
        let up = Scale::new(0.0, 10.0, 100.0, -100.0);
        assert_eq!(up.of(2.5), 75.0);
        // A range of nothing is no division by zero.
        assert!(Scale::new(3.0, 3.0, 0.0, 10.0).of(3.0).is_finite());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(quantity(1_500_000.0, "bit/s"), "1.5 Mbit/s");
        assert_eq!(quantity(20.0, "B"), "20 B");
        assert_eq!(duration(0.0123), "12.3 ms");
        assert_eq!(grouped(-1_234_567.0), "-1\u{202f}234\u{202f}567");
    }
}
