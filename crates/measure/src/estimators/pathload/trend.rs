//! Whether delays grow along a train of pathload: PCT and PDT (Jain and Dovrolis, as in the public tool).

use super::segment::Segment;
use std::time::Duration;

/// The limits of PCT, the share of groups whose median exceeds the previous one: above the first delays grow, below the
/// second they do not.
const PCT: (f64, f64) = (0.605, 0.495);

/// The limits of PDT, the change from the first group to the last relative to the sum of all ups and downs.
const PDT: (f64, f64) = (0.44, 0.36);

/// Delays that rise by less than this share of the elapsed time are even, whatever their order: a rate so little above
/// the available bandwidth is within the tool's resolution, and a host's own timers, which change delays by tens of
/// microseconds, are not the path's. The public tool has no such limit, and takes slow beats of two timers for growth.
pub const LEAST_GROWTH: f64 = 0.02;

/// The trend of delays in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// Delays grow: the rate is above the available bandwidth.
    Growing,
    /// Delays do not grow.
    None,
    /// The two tests contradict each other, or neither is conclusive.
    Unclear,
}

/// The trend of a segment of a stream with this gap. [`Trend::None`] if delays do not rise, even if they fall.
pub fn trend(segment: &Segment, gap: Duration) -> Trend {
    let delays: Vec<f64> = segment.delays().iter().map(|(_, late)| *late).collect();
    let medians = medians(&delays);
    let (Some(first), Some(last)) = (medians.first(), medians.last()) else { return Trend::None };
    // The number of packets from the middle of the first group to the middle of the last one.
    let between = segment.packets() as f64 * (1.0 - 1.0 / medians.len() as f64);
    match last - first >= LEAST_GROWTH * gap.as_secs_f64() * between {
        true => shape(&medians),
        false => Trend::None,
    }
}

/// The trend of delays that rose enough to be judged.
fn shape(medians: &[f64]) -> Trend {
    let pct = judge(pct(medians), PCT);
    let pdt = judge(pdt(medians), PDT);
    match (pct, pdt) {
        (same, other) if same == other => same,
        (Trend::Unclear, decided) | (decided, Trend::Unclear) => decided,
        _ => Trend::Unclear,
    }
}

fn judge(value: f64, (grows, not): (f64, f64)) -> Trend {
    match value {
        _ if value > grows => Trend::Growing,
        _ if value < not => Trend::None,
        _ => Trend::Unclear,
    }
}

/// The medians of groups of √n delays each: single delays are noise.
fn medians(delays: &[f64]) -> Vec<f64> {
    let size = delays.len().isqrt().max(1);
    delays.chunks_exact(size).map(|group| median(group.to_vec())).collect()
}

fn median(mut group: Vec<f64>) -> f64 {
    group.sort_by(f64::total_cmp);
    let middle = group.len() / 2;
    match group.len() % 2 {
        0 => f64::midpoint(group[middle - 1], group[middle]),
        _ => group[middle],
    }
}

/// Pairwise comparison test.
fn pct(medians: &[f64]) -> f64 {
    let up = medians.windows(2).filter(|pair| pair[0] < pair[1]).count();
    up as f64 / medians.len().max(1) as f64
}

/// Pairwise difference test; 0 if nothing changes.
fn pdt(medians: &[f64]) -> f64 {
    let changes: f64 = medians.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
    match (medians.first(), medians.last()) {
        (Some(first), Some(last)) if changes > 0.0 => (last - first) / changes,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::segment::{RequestedStream, usable},
        *,
    };
    use crate::train::{Flight, Stamp};
    use thalweg_units::Time;

    const GAP: Duration = Duration::from_micros(100);
    const ASKED: RequestedStream =
        RequestedStream { gap: GAP, count: 100, receive_latency: Duration::from_micros(1) };

    fn trends(flight: &Flight, asked: RequestedStream) -> Vec<Trend> {
        usable(flight, asked).iter().map(|segment| trend(segment, asked.gap)).collect()
    }

    /// A stream with these delays, µs.
    fn stream(delays: impl Fn(u64) -> u64) -> Flight {
        let sent = |i: u64| Time::from_nanos(i * 100_000);
        let came = |i: u64, us| Stamp::from_unix_nanos(i * 100_000) + Duration::from_micros(us);
        Flight {
            sent: (0..100).map(|i| Some(sent(i))).collect(),
            arrived: (0..100).map(|i| Some(came(i, delays(i)))).collect(),
            ..Flight::default()
        }
    }

    #[test]
    fn growing_and_even_delays_are_distinguished() {
        assert_eq!(trends(&stream(|i| 1000 + 3 * i), ASKED), [Trend::Growing]);
        assert_eq!(trends(&stream(|i| 1000 + i * i * 7919 % 13), ASKED), [Trend::None]);
        assert_eq!(trends(&stream(|i| 5000 - 3 * i), ASKED), [Trend::None]);
    }

    /// Beats of two timers: tens of microseconds in one direction.
    #[test]
    fn a_rise_below_the_resolution_is_no_growth() {
        assert_eq!(trends(&stream(|i| 1000 + i), ASKED), [Trend::None], "0.1 ms in 10");
        assert_eq!(trends(&stream(|i| 1000 + 3 * i), ASKED), [Trend::Growing], "0.3 ms");
    }

    #[test]
    fn a_pause_of_the_sender_begins_a_new_segment_and_a_loss_does_not() {
        let mut paused = stream(|i| 1000 + 3 * i);
        let long = Duration::from_millis(9);
        paused.sent[50..].iter_mut().for_each(|time| *time = time.map(|at| at + long));
        paused.arrived[50..].iter_mut().for_each(|stamp| *stamp = stamp.map(|at| at + long));
        assert_eq!(trends(&paused, ASKED), [Trend::Growing, Trend::Growing]);
        let mut lossy = stream(|i| 1000 + 3 * i);
        lossy.arrived[50..55].fill(None);
        assert_eq!(trends(&lossy, ASKED), [Trend::Growing]);
    }

    /// The same stream, received in batches: all packets of a batch have the stamp of its last one.
    fn batched(of: usize, delays: impl Fn(u64) -> u64) -> Flight {
        let mut batched = stream(delays);
        for batch in batched.arrived.chunks_mut(of) {
            let last = batch[batch.len() - 1];
            batch.fill(last);
        }
        batched
    }

    #[test]
    fn the_ends_of_batches_count_and_few_batches_are_inconclusive() {
        assert_eq!(trends(&batched(5, |i| 1000 + 3 * i), ASKED), [Trend::Growing]);
        assert_eq!(trends(&batched(5, |i| 1000 + i * i * 7919 % 13), ASKED), [Trend::None]);
        assert_eq!(trends(&batched(10, |i| 1000 + 30 * i), ASKED), [Trend::Growing]);
        assert!(trends(&batched(25, |i| 1000 + 3 * i), ASKED).is_empty());
    }
}
