//! Fig. 1: how much of the improvement smaller random sets of detours keep (Eq. 2).

use super::{Report, gain};
use crate::{input::Input, matrix::Matrix, stats};

/// The paper's sizes of the set, of 201 nodes.
const SIZES: [usize; 9] = [5, 10, 20, 25, 50, 75, 100, 125, 150];

/// The mean improvement over `draws` random sets of each size.
///
/// Differs: for all sizes, the clients are those outside the largest set, and a smaller set is the beginning of a
/// larger one. In the mean that is the same; it costs a ninth, and the sizes are compared on the same paths.
pub fn compute(input: &Input, seed: u64, draws: u64) -> Report {
    let sizes = SIZES.map(|size| input.scale_count(size));
    let mut sums = vec![0.0; sizes.len()];
    for draw in 0..draws {
        let roles = input.draw_roles(seed, draw, sizes[sizes.len() - 1]);
        let means = means(input, &roles.detours, &roles.others, &sizes);
        sums.iter_mut().zip(means).for_each(|(sum, mean)| *sum += mean);
    }
    let means: Vec<f64> = sums.iter().map(|sum| 100.0 * sum / draws as f64).collect();
    report(&sizes, &means)
}

fn report(sizes: &[usize], means: &[f64]) -> Report {
    let mut report = Report::default();
    let whole = means[means.len() - 1];
    for ((paper, size), mean) in SIZES.iter().zip(sizes).zip(means) {
        report.add(format!("kept_{paper}"), "%", 100.0 * (mean / whole));
        report.add(format!("improvement_{paper}"), "%", *mean);
        report.add(format!("size_{paper}"), "nodes", *size as f64);
    }
    let points = sizes.iter().zip(means).map(|(size, mean)| (*size as f64, *mean));
    report.curve("improvement", points.collect());
    report
}

/// Eq. 2 for each beginning of the set: detours are chosen by the planning data, and valued by the judging data.
fn means(input: &Input, detours: &[usize], clients: &[usize], sizes: &[usize]) -> Vec<f64> {
    let mut values = vec![Vec::new(); sizes.len()];
    for (i, j) in super::pairs(clients) {
        if input.judged.get(i, j).is_none() {
            continue;
        }
        let running = running_gains(&input.planned, &input.judged, detours, (i, j));
        for (value, &size) in values.iter_mut().zip(sizes) {
            value.push(running[size.min(running.len()) - 1]);
        }
    }
    values.iter().map(|values| stats::mean(values)).collect()
}

/// The gain by the best of the first 1, 2, 3 … detours.
fn running_gains(
    planned: &Matrix,
    judged: &Matrix,
    detours: &[usize],
    (i, j): (usize, usize),
) -> Vec<f64> {
    let (mut best, mut now) = (0.0, 0.0);
    let mut gains = Vec::with_capacity(detours.len());
    for &l in detours {
        let promised = gain(planned, i, l, j);
        if promised > best {
            best = promised;
            let real = gain(judged, i, l, j);
            now = if real.is_nan() { 0.0 } else { real };
        }
        gains.push(now);
    }
    gains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_detours_never_lose_on_the_data_they_were_chosen_by() {
        let input = Input::planetlab(3, 0);
        let report = compute(&input, 3, 3);
        let points = &report.series["improvement"];
        assert!(points.windows(2).all(|two| two[0].1 <= two[1].1), "{points:?}");
        assert_eq!(report.value("kept_150"), Some(100.0));
        assert_eq!(report.value("size_50"), Some(50.0));
    }
}
