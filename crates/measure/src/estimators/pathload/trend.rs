//! Whether delays grow along a train of pathload: PCT and PDT (Jain and Dovrolis, as the public tool has
//! them).

use super::segment::Segment;
use std::time::Duration;

/// Of PCT, the share of groups whose median is above the one before: above the first delays grow, below the second they do not.
const PCT: (f64, f64) = (0.605, 0.495);

/// Of PDT, what remains of all ups and downs from the first group to the last.
const PDT: (f64, f64) = (0.44, 0.36);

/// Delays that rise by less than this share of the time that passed are even, whatever their order: a rate so little above what is
/// available is within the tool's resolution, and what a host's own clockwork does to delays, tens of microseconds, is not the path's.
/// The public tool has no such limit, and takes slow beats of two timers for growth.
pub const LEAST_GROWTH: f64 = 0.02;

/// What a stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// Delays grow: the rate is above what is available.
    Growing,
    /// They do not.
    None,
    /// Its two signs say different things, or neither says anything.
    Unclear,
}

/// Of a segment of a stream with this gap. One whose delays do not rise is [`Trend::None`], also where they fall.
pub fn trend(segment: &Segment, gap: Duration) -> Trend {
    let delays: Vec<f64> = segment.delays().iter().map(|(_, late)| *late).collect();
    let medians = medians(&delays);
    let (Some(first), Some(last)) = (medians.first(), medians.last()) else { return Trend::None };
    // From the first group's middle to the last one's.
    let between = segment.packets() as f64 * (1.0 - 1.0 / medians.len() as f64);
    match last - first >= LEAST_GROWTH * gap.as_secs_f64() * between {
        true => shape(&medians),
        false => Trend::None,
    }
}

/// Of delays that rose by what is worth a look.
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

/// Of groups of √n delays each: single delays are noise.
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

/// Pairwise difference test; 0 where nothing changes.
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
        super::segment::{Asked, usable},
        *,
    };
    use crate::train::{Flight, Stamp};
    use thalweg_units::Time;

    const GAP: Duration = Duration::from_micros(100);
    const ASKED: Asked = Asked { gap: GAP, count: 100, receive_latency: Duration::from_micros(1) };

    fn trends(flight: &Flight, asked: Asked) -> Vec<Trend> {
        usable(flight, asked).iter().map(|segment| trend(segment, asked.gap)).collect()
    }

    /// A stream whose delays, µs, are these.
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
    fn growing_and_even_delays_are_told_apart() {
        assert_eq!(trends(&stream(|i| 1000 + 3 * i), ASKED), [Trend::Growing]);
        assert_eq!(trends(&stream(|i| 1000 + i * i * 7919 % 13), ASKED), [Trend::None]);
        assert_eq!(trends(&stream(|i| 5000 - 3 * i), ASKED), [Trend::None]);
    }

    /// Beats of two timers: tens of microseconds in one direction.
    #[test]
    fn a_rise_of_less_than_the_resolution_is_none() {
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

    /// The same, taken in batches: each has its last one's stamp.
    fn batched(of: usize, delays: impl Fn(u64) -> u64) -> Flight {
        let mut batched = stream(delays);
        for batch in batched.arrived.chunks_mut(of) {
            let last = batch[batch.len() - 1];
            batch.fill(last);
        }
        batched
    }

    #[test]
    fn of_batches_the_ends_count_and_few_say_nothing() {
        assert_eq!(trends(&batched(5, |i| 1000 + 3 * i), ASKED), [Trend::Growing]);
        assert_eq!(trends(&batched(5, |i| 1000 + i * i * 7919 % 13), ASKED), [Trend::None]);
        assert_eq!(trends(&batched(10, |i| 1000 + 30 * i), ASKED), [Trend::Growing]);
        assert!(trends(&batched(25, |i| 1000 + 3 * i), ASKED).is_empty());
    }
}
