//! Formats rates, gains and shares for tables.

use thalweg_units::Rate;

/// Mbit/s with two or three digits: `0.4`, `9.7`, `94`, `1200`.
pub fn mbps(bps: f64) -> String {
    let mbps = bps / 1e6;
    if mbps < 9.95 { format!("{mbps:.1}") } else { format!("{mbps:.0}") }
}

/// As [`mbps`], or a dash.
pub fn maybe(rate: Option<Rate>) -> String {
    rate.map_or("-".to_owned(), |rate| mbps(rate.as_bps() as f64))
}

/// A gain as a percentage: `+50 %`.
pub fn gain(fraction: f64) -> String {
    format!("+{:.0} %", fraction * 100.0)
}

/// A part of a whole as a percentage.
pub fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.0} %", part as f64 * 100.0 / whole as f64),
    }
}

/// The median, the lower one of two; `None` without values.
pub fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_formatted_briefly() {
        let render = [4e5, 9.7e6, 9.96e6, 94.4e6, 1.2e9].map(mbps);
        assert_eq!(render, ["0.4", "9.7", "10", "94", "1200"]);
        assert_eq!(
            (gain(0.5), share(1, 8), share(0, 0)),
            ("+50 %".into(), "12 %".into(), "-".into())
        );
        assert_eq!((median(vec![3, 1, 2]), median::<u8>(vec![])), (Some(2), None));
    }
}
