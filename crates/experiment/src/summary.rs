//! Summary statistics: medians, percentiles, confidence intervals.

use crate::plan::Aggregate;

/// Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The value for more degrees of freedom: that of the normal distribution.
const Z95: f64 = 1.96;

/// The middle value, or the mean of the two middle ones; `None` for an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// The smallest value; `None` for an empty slice.
pub fn min(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// The largest value; `None` for an empty slice.
pub fn max(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

/// The mean; `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The smallest value that at least a share `p` of all values do not exceed (nearest rank); `None` for an empty slice.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (p * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

/// Half the width of the 95 % confidence interval of the mean; `None` for fewer than two values.
pub fn ci95_half(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let mean = mean(values).filter(|_| n >= 2)?;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let t = T95.get(n - 2).copied().unwrap_or(Z95);
    Some(t * (variance / n as f64).sqrt())
}

/// Reduces `values` to one number; `None` for [`Aggregate::Fraction`], which needs a condition, and for
/// [`Aggregate::RatioOfMeans`], which needs pairs of values.
pub fn aggregate(values: &[f64], how: Aggregate) -> Option<f64> {
    match how {
        Aggregate::Median => median(values),
        Aggregate::Min => min(values),
        Aggregate::Max => max(values),
        Aggregate::Mean => mean(values),
        Aggregate::P95 => percentile(values, 0.95),
        Aggregate::P99 => percentile(values, 0.99),
        Aggregate::Ci95Low => Some(mean(values)? - ci95_half(values)?),
        Aggregate::Ci95High => Some(mean(values)? + ci95_half(values)?),
        Aggregate::Fraction | Aggregate::RatioOfMeans => None,
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statistics_match_textbook_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(percentile(&ten, 0.95), Some(10.0));
        assert_eq!(percentile(&ten, 0.5), Some(5.0));
        // n = 10, mean 5.5, s = 3.0277, t = 2.262: ± 2.1657
        assert!((ci95_half(&ten).unwrap() - 2.1657).abs() < 1e-3);
        assert_eq!(ci95_half(&[1.0]), None);
    }

    proptest! {
        #[test]
        fn every_aggregate_lies_between_min_and_max(values in prop::collection::vec(-1e6..1e6f64, 1..40)) {
            let (low, high) = (min(&values).unwrap(), max(&values).unwrap());
            for how in [Aggregate::Median, Aggregate::P95, Aggregate::P99] {
                let v = aggregate(&values, how).unwrap();
                prop_assert!((low..=high).contains(&v), "{:?} {}", how, v);
            }
            let mean = mean(&values).unwrap();
            prop_assert!((low - 1e-6..=high + 1e-6).contains(&mean));
        }
    }
}
