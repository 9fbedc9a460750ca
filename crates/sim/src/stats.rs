//! Statistics of many values.

/// The value below which this share (0 to 1) of the values lies; NaN without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Equal neighbours may be infinite, and their difference NaN.
    if low == high { low } else { low + (high - low) * at.fract() }
}

/// The median; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The mean; NaN without values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The percentage of values for which `holds` is true; NaN without values.
pub fn percent(values: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    100.0 * values.iter().filter(|&&value| holds(value)).count() as f64 / values.len() as f64
}

/// The distribution as (value, share of values up to it), at 101 evenly spaced shares.
pub fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    if values.is_empty() {
        return Vec::new();
    }
    (0..=100)
        .map(|at| f64::from(at) / 100.0)
        .map(|share| (quantile(values, share), share))
        .collect()
}

/// The non-decreasing values that are closest to these by squares: falling neighbours are pooled into their mean
/// (isotonic regression).
pub fn rising(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &value in values {
        let mut last = (value, 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean > last.0) {
            let all = count + last.1;
            last = ((mean * count as f64 + last.0 * last.1 as f64) / all as f64, all);
        }
        pools.push(last);
    }
    pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falling_values_are_pooled() {
        assert_eq!(rising(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(rising(&[1.0, 5.0, 3.0, 1.0, 9.0]), [1.0, 3.0, 3.0, 3.0, 9.0]);
        assert_eq!(rising(&[4.0, 3.0, 2.0]), [3.0; 3]);
        assert!(rising(&[]).is_empty());
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 2.0, 3.0];
        assert_eq!(
            (median(&values), quantile(&values, 0.0), quantile(&values, 1.0)),
            (2.5, 1.0, 4.0)
        );
        assert_eq!(quantile(&[1.0, f64::INFINITY, f64::INFINITY], 0.75), f64::INFINITY);
        assert!(median(&[]).is_nan() && mean(&[]).is_nan());
        assert_eq!(percent(&values, |x| x > 3.5), 25.0);
        assert_eq!(distribution(&values).len(), 101);
    }
}
