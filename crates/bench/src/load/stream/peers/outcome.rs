//! What the viewers saw, in the same figures for all systems.

use super::{
    media::{EncodedStream, FPS},
    viewer::PictureArrivals,
};
use crate::load::report::Report;
use std::time::{Duration, Instant};

/// A picture may arrive this long after the latency: programs need time to pass it on.
const GRACE: Duration = Duration::from_millis(100);

/// The time without a new picture from which on the picture counts as frozen, s.
const FROZEN: f64 = 0.2;

/// The state of a player at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    /// What it shows, s of the stream.
    pub position: f64,
    pub rendition: usize,
    /// Pictures that it decoded but did not show.
    pub dropped: f64,
}

/// What a viewer saw.
#[derive(Debug, Default)]
pub struct ViewerOutcome {
    span: Duration,
    /// Pictures that were due.
    expected: usize,
    /// Pictures that were shown, and arrived too late.
    shown: usize,
    late: usize,
    bytes: usize,
    /// Pictures shown by rendition.
    renditions: Vec<usize>,
    switches: usize,
    /// The time with a frozen picture, s.
    frozen: f64,
    /// Latencies of all pictures that arrived, ms.
    latencies: Vec<f64>,
    /// Pictures that the player decoded but did not show for lack of CPU time.
    dropped: Option<f64>,
    /// The lost share of PEAKS, %.
    pub cross_lost: Option<f64>,
    /// Times of the stream, s, with the latency, ms.
    ages: Vec<[f64; 2]>,
}

/// What arrived of the pictures that were due in `span` from `counts_from` on; the first one was due at `first`.
pub fn of_arrivals(
    source: &EncodedStream,
    arrivals: &PictureArrivals,
    (first, counts_from, span): (Instant, Instant, Duration),
    latency: Duration,
) -> ViewerOutcome {
    let mut outcome = ViewerOutcome { span, ..ViewerOutcome::default() };
    let since = counts_from - first;
    let (mut newest, mut previous) = (0.0, None);
    for (dts, picture) in &source.pictures {
        if picture.due < since || picture.due >= since + span {
            continue;
        }
        outcome.expected += 1;
        let Some(arrival) = arrivals.get(dts) else { continue };
        let age = arrival.at.saturating_duration_since(first + picture.due);
        // A player shows it no earlier than the stream's latency after its due time, as SRT hands it over.
        outcome.latencies.push(age.max(latency).as_secs_f64() * 1e3);
        if age > latency + GRACE {
            outcome.late += 1;
            continue;
        }
        let at = (picture.due - since).as_secs_f64();
        outcome.freeze(at - newest);
        newest = at;
        // The output has other packet heads and tables than the source: the nearest size tells the rendition.
        let differs = |n: &usize| picture.sizes[*n].abs_diff(arrival.bytes);
        let rendition = (0..picture.sizes.len()).min_by_key(differs).unwrap_or_default();
        outcome.show(rendition, picture.sizes[rendition], &mut previous);
        if outcome.expected.is_multiple_of(FPS as usize) {
            outcome.ages.push([at, age.as_secs_f64() * 1e3]);
        }
    }
    outcome.freeze(span.as_secs_f64() - newest);
    outcome
}

/// The samples between these times, with interpolated ones at both.
fn clip(samples: &[Sample], from: Instant, to: Instant) -> Vec<Sample> {
    let at = |when: Instant| {
        let pair = samples.windows(2).find(|pair| pair[0].at <= when && when < pair[1].at)?;
        let (before, after) = (pair[0], pair[1]);
        let share = (when - before.at).as_secs_f64() / (after.at - before.at).as_secs_f64();
        let position = before.position + (after.position - before.position) * share;
        Some(Sample { at: when, position, ..after })
    };
    let within = samples.iter().filter(|sample| sample.at > from && sample.at < to).copied();
    at(from).into_iter().chain(within).chain(at(to)).collect()
}

/// What a player showed in `span` from `counts_from` on; the first picture was due at `first`.
pub fn of_player(
    source: &EncodedStream,
    samples: &[Sample],
    (first, counts_from, span): (Instant, Instant, Duration),
    segment: Duration,
) -> ViewerOutcome {
    let expected = (span.as_secs_f64() * f64::from(FPS)) as usize;
    let mut outcome = ViewerOutcome { span, expected, ..ViewerOutcome::default() };
    let (mut previous, mut newest) = (None, 0.0);
    let samples = clip(samples, counts_from, counts_from + span);
    for pair in samples.windows(2) {
        let [before, now] = pair else { continue };
        let at = now.at.saturating_duration_since(counts_from).as_secs_f64();
        let shown = source.pictures.values().filter(|picture| {
            let due = picture.due.as_secs_f64();
            due >= before.position && due < now.position
        });
        let count = outcome.shown;
        // A seek to the live edge shows nothing of what it skips.
        let passed = (now.at - before.at).as_secs_f64();
        let is_seek = now.position - before.position > passed + segment.as_secs_f64() / 2.0;
        shown.filter(|_| !is_seek).for_each(|picture| {
            outcome.show(now.rendition, picture.sizes[now.rendition], &mut previous);
        });
        if outcome.shown > count {
            outcome.freeze(at - newest - passed);
            newest = at;
        }
        let latency = (now.at - first).as_secs_f64() - now.position;
        outcome.latencies.push(latency * 1e3);
        outcome.ages.push([at, latency * 1e3]);
    }
    outcome.freeze(span.as_secs_f64() - newest);
    let ends = samples.first().zip(samples.last());
    outcome.dropped = ends.map(|(first, last)| last.dropped - first.dropped);
    outcome
}

impl ViewerOutcome {
    fn show(&mut self, rendition: usize, bytes: usize, previous: &mut Option<usize>) {
        self.shown += 1;
        self.bytes += bytes;
        if self.renditions.len() <= rendition {
            self.renditions.resize(rendition + 1, 0);
        }
        self.renditions[rendition] += 1;
        self.switches += usize::from(previous.is_some_and(|previous| previous != rendition));
        *previous = Some(rendition);
    }

    /// Counts the time since the last new picture, s.
    fn freeze(&mut self, gap: f64) {
        if gap > FROZEN {
            self.frozen += gap;
        }
    }
}

/// Builds the report.
pub fn report(outcome: &ViewerOutcome) -> Report {
    let mut report = Report::default();
    let (seconds, expected) = (outcome.span.as_secs_f64(), outcome.expected as f64);
    report.add("rate", "Mbit/s", outcome.bytes as f64 * 8e-6 / seconds);
    report.add("shown", "%", 100.0 * outcome.shown as f64 / expected);
    report.add("lost", "frames", outcome.expected.saturating_sub(outcome.shown) as f64);
    report.add("late", "frames", outcome.late as f64);
    report.add("frozen", "s", outcome.frozen);
    let mut latencies = outcome.latencies.clone();
    latencies.sort_by(f64::total_cmp);
    for percent in [50, 99] {
        let at = (percent * latencies.len()).div_ceil(100).saturating_sub(1);
        report.add(
            format!("latency_p{percent}"),
            "ms",
            latencies.get(at).copied().unwrap_or(f64::NAN),
        );
    }
    for (n, count) in outcome.renditions.iter().enumerate() {
        report.add(format!("rendition_{n}"), "%", 100.0 * *count as f64 / expected);
    }
    report.add("switches", "", outcome.switches as f64);
    report.add("undisplayed", "frames", outcome.dropped.unwrap_or(f64::NAN));
    report.add("cross_lost", "%", outcome.cross_lost.unwrap_or(f64::NAN));
    report.series("latency_ms", outcome.ages.clone());
    report
}

#[cfg(test)]
mod tests {
    use super::{
        super::{media::Picture, viewer::PictureArrival},
        *,
    };

    const FRAME: Duration = Duration::from_nanos(33_333_334);

    /// Ten seconds of two renditions, with pictures of 1000 and 100 bytes.
    fn source() -> EncodedStream {
        let picture = |n: u32| Picture { due: FRAME * n, sizes: vec![1000, 100] };
        let pictures = (0..300).map(|n| (u64::from(n), picture(n))).collect();
        EncodedStream { frames: Vec::new(), pictures }
    }

    #[test]
    fn pictures_that_arrive_late_or_never_are_lost_and_gaps_are_frozen() {
        let (source, first) = (source(), Instant::now());
        let arrival = |n: u32, after: u64, bytes| PictureArrival {
            at: first + FRAME * n + Duration::from_millis(after),
            bytes,
        };
        let mut arrivals: PictureArrivals =
            (0..300).map(|n| (u64::from(n), arrival(n, 200, 1040))).collect();
        // The second second: 10 pictures too late, 20 never; the third one in the other rendition.
        arrivals.extend((30..40).map(|n| (u64::from(n), arrival(n, 1101, 1040))));
        arrivals.retain(|n, _| !(40..60).contains(n));
        arrivals.extend((60..90).map(|n| (u64::from(n), arrival(n, 300, 130))));
        let window = (first, first, Duration::from_secs(5));
        let outcome = of_arrivals(&source, &arrivals, window, Duration::from_secs(1));
        assert_eq!((outcome.expected, outcome.shown, outcome.late), (150, 120, 10));
        assert_eq!((outcome.bytes, outcome.switches), (93_000, 2));
        assert_eq!(outcome.renditions, [90, 30]);
        assert!((outcome.frozen - 31.0 / 30.0).abs() < 0.01, "{}", outcome.frozen);
        let report = report(&outcome);
        assert_eq!(report.value("lost").unwrap(), 30.0);
        // A player shows them at the stream's latency.
        assert!((report.value("latency_p50").unwrap().as_f64().unwrap() - 1000.0).abs() < 0.1);
    }

    #[test]
    fn a_player_that_stalls_and_seeks_has_shown_less() {
        let (source, first) = (source(), Instant::now());
        let sample = |at: f64, position: f64, rendition| Sample {
            at: first + Duration::from_secs_f64(at),
            position,
            rendition,
            dropped: 0.0,
        };
        // It plays three seconds late, stalls from 5 to 6 s, and then seeks two seconds on.
        let position = |at: f64| match at {
            at if at <= 5.0 => at - 3.0,
            at if at <= 6.0 => 2.0,
            at => at - 2.0,
        };
        let steps = (14..40).map(|n| f64::from(n) * 0.25 + 0.1);
        let samples: Vec<Sample> = steps.map(|at| sample(at, position(at), 1)).collect();
        let counts_from = first + Duration::from_secs(4);
        let window = (first, counts_from, Duration::from_secs(5));
        let outcome = of_player(&source, &samples, window, Duration::from_secs(2));
        // One second before the stall, three after it; what the seek skips is not shown.
        assert_eq!(outcome.expected, 150);
        assert!((110..=125).contains(&outcome.shown), "{}", outcome.shown);
        assert_eq!(outcome.renditions, [0, outcome.shown]);
        assert!((0.8..1.6).contains(&outcome.frozen), "{}", outcome.frozen);
        assert!(outcome.latencies.iter().all(|latency| (1990.0..4010.0).contains(latency)));
    }
}
