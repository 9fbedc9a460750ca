use super::{
    Bulk, BulkEnd, BulkLimits, BulkResult, BulkStatus,
    flows::{Control, SimulatedBottleneck, Weather, received},
};
use crate::Bound;
use proptest::prelude::*;
use std::time::Duration;
use thalweg_units::ByteSize;

const FIVE: Duration = Duration::from_secs(5);
const LIMITS: BulkLimits = BulkLimits { time: FIVE, bytes: ByteSize::from_bytes(u64::MAX) };

/// The result of a test on a flow with these bytes received after each millisecond.
fn judge(got: &[u64], rtt_ms: usize, limits: BulkLimits) -> Option<BulkResult> {
    let mut bulk = Bulk::new(limits, Duration::from_millis(rtt_ms as u64));
    let first = got.iter().position(|bytes| *bytes > 0)?;
    for (ms, bytes) in got[first..].iter().enumerate() {
        if let BulkStatus::Done(found) = bulk.sample(Duration::from_millis(ms as u64), *bytes) {
            return Some(found);
        }
    }
    bulk.finish(BulkEnd::Sender)
}

/// The rate between two milliseconds, bit/s.
fn rate(got: &[u64], from: usize, to: usize) -> f64 {
    (got[to - 1] - got[from]) as f64 * 8.0 * 1000.0 / (to - 1 - from) as f64
}

/// A test of the path, and its relative error against the flow's mean from 2 to 10 s.
fn tried(path: &SimulatedBottleneck) -> (BulkResult, f64) {
    let got = received(path, 10_000);
    let found = judge(&got, path.rtt_ms, LIMITS).unwrap();
    let truth = rate(&got, 2_000, 10_000);
    (found, found.bps / truth - 1.0)
}

const CONTROLS: [Control; 4] = [
    Control::Cubic { hystart: true },
    Control::Cubic { hystart: false },
    Control::Reno,
    Control::Bbr,
];

fn paths(weather: Weather) -> Vec<SimulatedBottleneck> {
    let mut all = Vec::new();
    for mbps in [2.0, 20.0, 200.0] {
        for rtt_ms in [10, 40, 100, 200] {
            for queue in [0.2, 1.0, 5.0] {
                for control in CONTROLS {
                    all.push(SimulatedBottleneck { mbps, rtt_ms, queue, control, weather });
                }
            }
        }
    }
    all
}

fn at(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// Results over many paths: absolute errors of tests that may end early, those of whole tests (from 1 to 5 s), and
/// durations in seconds.
struct TestRuns {
    errors: Vec<f64>,
    whole: Vec<f64>,
    took: Vec<f64>,
}

impl TestRuns {
    fn of(paths: &[SimulatedBottleneck]) -> Self {
        let mut all = Self { errors: vec![], whole: vec![], took: vec![] };
        for path in paths {
            let (found, error) = tried(path);
            let got = received(path, 10_000);
            let whole = rate(&got, 1_000, 5_000) / rate(&got, 2_000, 10_000) - 1.0;
            all.errors.push(error.abs());
            all.whole.push(whole.abs());
            all.took.push(found.took.as_secs_f64());
        }
        for v in [&mut all.errors, &mut all.whole, &mut all.took] {
            v.sort_by(f64::total_cmp);
        }
        all.show();
        all
    }

    fn show(&self) {
        let parts = [("error", &self.errors), ("of 5 s", &self.whole), ("took", &self.took)];
        for (what, v) in parts {
            let [half, nine, most, worst] = [0.5, 0.9, 0.95, 1.0].map(|q| at(v, q));
            println!("{what}: median {half:.3}, 90 % {nine:.3}, 95 % {most:.3}, worst {worst:.3}");
        }
        println!("took in the mean {:.2} s", self.seconds());
    }

    fn seconds(&self) -> f64 {
        self.took.iter().sum::<f64>() / self.took.len() as f64
    }
}

#[test]
fn on_calm_paths_the_error_is_that_of_five_seconds_in_half_the_time() {
    let tried = TestRuns::of(&paths(Weather::Calm));
    for (q, most) in [(0.5, 0.02), (0.9, 0.15), (0.95, 0.25)] {
        let (error, whole) = (at(&tried.errors, q), at(&tried.whole, q));
        assert!(error <= most, "{q}: {error}");
        assert!(q < 0.9 || error <= whole, "{q}: {error}, and {whole} after 5 s");
    }
    assert!(tried.seconds() <= 2.7, "{}", tried.seconds());
}

#[test]
fn both_ends_report_the_same_rate_for_the_same_time() {
    let mut worst: f64 = 1.0;
    for path in paths(Weather::Calm) {
        let got = received(&path, 6_000);
        let found = judge(&got, path.rtt_ms, LIMITS).unwrap();
        let first = got.iter().position(|bytes| *bytes > 0).unwrap();
        // Acknowledged bytes are the received ones; they are sampled more seldom, and at other times.
        let mut other = Bulk::new(LIMITS, Duration::from_millis(path.rtt_ms as u64));
        let end = found.took.as_millis() as usize;
        let looks = (7..end).step_by(10).chain([end]);
        let samples: Vec<_> =
            looks.map(|ms| (Duration::from_millis(ms as u64), got[first + ms])).collect();
        for (at, bytes) in &samples {
            _ = other.sample(*at, *bytes);
        }
        let other = other.beside(&samples, found.is_steady()).unwrap();
        let apart = found.bps.max(other.bps) / found.bps.min(other.bps);
        if apart > 1.1 {
            println!("{path:?}: {found:?} {other:?}");
        }
        worst = worst.max(apart);
    }
    println!("{worst:.2} times as much at worst");
    // Results that differ by a quarter would count as contradictory.
    assert!(worst <= 1.2, "{worst}");
}

#[test]
fn after_a_verdict_that_is_too_early_the_other_end_has_a_lower_bound() {
    let mut bulk = Bulk::new(LIMITS, Duration::ZERO);
    assert_eq!(bulk.beside(&[], true), None);
    // Three bins of a flow that doubles: the other end calls it steady, or stops.
    let samples: Vec<_> =
        (1..=350).map(|ms| (Duration::from_millis(ms), 1000 << (ms / 50))).collect();
    for (at, bytes) in &samples {
        _ = bulk.sample(*at, *bytes);
    }
    for is_steady in [true, false] {
        let found = bulk.beside(&samples, is_steady).unwrap();
        assert_eq!((found.end, found.bound), (BulkEnd::Sender, Bound::AtLeast));
    }
}

/// Paths of 100 Mbit/s and 40 ms with a queue of one bandwidth-delay product, one for each congestion control.
fn usual(weather: Weather) -> Vec<SimulatedBottleneck> {
    let path =
        |control| SimulatedBottleneck { mbps: 100.0, rtt_ms: 40, queue: 1.0, control, weather };
    CONTROLS.map(path).into()
}

#[test]
fn a_policer_is_detected_unless_its_bucket_outlasts_the_test() {
    let policed = |bucket| {
        println!("bucket of {bucket} B");
        TestRuns::of(&usual(Weather::Policed { share: 0.2, bucket }))
    };
    for bucket in [32e3, 256e3, 1e6, 4e6] {
        let tried = policed(bucket);
        assert!(at(&tried.errors, 0.5) <= 0.15 && at(&tried.errors, 1.0) <= 0.4);
    }
    // 16 MB last for 1.6 s at 80 Mbit/s: the module's documentation says that this is not detected.
    assert!(at(&policed(16e6).errors, 0.0) > 1.0);
}

#[test]
fn alternating_cross_traffic_is_averaged() {
    for (period, most) in [(100, 0.06), (400, 0.06), (1000, 0.06), (3000, 0.35)] {
        println!("period of {period} ms");
        let tried = TestRuns::of(&usual(Weather::OnOff { share: 0.5, period }));
        assert!(at(&tried.errors, 1.0) <= most);
    }
}

#[test]
fn the_limits_end_a_test_that_is_not_steady() {
    // The flow doubles every tenth of a second: permanent slow start.
    let doubling = |ms: usize| 1000 * (1 << (ms / 100));
    let got: Vec<u64> = (0..2_000).map(doubling).collect();
    let limits = BulkLimits { bytes: ByteSize::from_bytes(1_000_000), ..LIMITS };
    let found = judge(&got, 10, limits).unwrap();
    assert_eq!((found.end, found.bytes), (BulkEnd::Bytes, 1_024_000));
    assert_eq!(found.bound, Bound::AtLeast);
    let slow: Vec<u64> = (0..6_000).map(|ms| 1 << (ms / 300)).collect();
    let found = judge(&slow, 200, LIMITS).unwrap();
    assert_eq!((found.end, found.took), (BulkEnd::Time, FIVE));
    assert!(!found.is_steady());
    assert_eq!(found.bound, Bound::AtLeast, "slow start to the end");
}

#[test]
fn an_unsteady_rate_is_exact_at_the_time_limit_and_a_lower_bound_at_the_byte_limit() {
    // Alternates between a second at 16 and a second at 80 Mbit/s.
    let step = |ms: usize| if (ms / 1000).is_multiple_of(2) { 2_000 } else { 10_000 };
    let got: Vec<u64> = (0..6_000)
        .scan(0, |all, ms| {
            *all += step(ms);
            Some(*all)
        })
        .collect();
    let found = judge(&got, 300, LIMITS).unwrap();
    assert_eq!((found.end, found.bound), (BulkEnd::Time, Bound::Exact));
    let few = BulkLimits { bytes: ByteSize::from_bytes(14_000_000), ..LIMITS };
    let found = judge(&got, 300, few).unwrap();
    assert_eq!((found.end, found.bound), (BulkEnd::Bytes, Bound::AtLeast));
}

/// A path of 1 Gbit/s under each congestion control, with a limit of this many megabytes.
fn gigabit(rtt_ms: usize, cap: u64) -> Vec<BulkResult> {
    let limits = BulkLimits { bytes: ByteSize::from_bytes(cap * 1_000_000), ..LIMITS };
    let found = |control| {
        let path = SimulatedBottleneck {
            mbps: 1000.0,
            rtt_ms,
            queue: 1.0,
            control,
            weather: Weather::Calm,
        };
        judge(&received(&path, 6_000), rtt_ms, limits).unwrap()
    };
    CONTROLS.map(found).into()
}

#[test]
fn a_byte_limit_gives_a_lower_bound_and_256_mb_are_enough_for_a_gigabit() {
    for rtt_ms in [2, 10, 40] {
        for found in gigabit(rtt_ms, 256) {
            assert_eq!((found.end, found.bound), (BulkEnd::Steady, Bound::Exact), "{rtt_ms} ms");
            assert!((found.bps / 1e9 - 1.0).abs() <= 0.06 && found.bytes <= 126_000_000);
        }
    }
    for rtt_ms in [100, 200] {
        for found in gigabit(rtt_ms, 256) {
            assert_eq!(found.bound == Bound::Exact, found.is_steady(), "{rtt_ms} ms");
            assert!((0.75e9..=1.02e9).contains(&found.bps), "{rtt_ms} ms: {}", found.bps);
        }
    }
    // Nine bins of 100 ms do not fit into less than 112 MB.
    for found in [2, 10, 40, 100, 200].into_iter().flat_map(|rtt_ms| gigabit(rtt_ms, 64)) {
        assert_eq!((found.end, found.bound), (BulkEnd::Bytes, Bound::AtLeast));
        assert!(found.bps >= 0.5e9, "{}", found.bps);
    }
}

#[test]
fn data_that_arrives_at_once_or_never_gives_a_lower_bound_or_nothing() {
    let mut bulk = Bulk::new(LIMITS, Duration::ZERO);
    assert_eq!(bulk.finish(BulkEnd::Sender), None);
    assert_eq!(bulk.sample(Duration::ZERO, 0), BulkStatus::GoOn);
    assert_eq!(bulk.sample(Duration::from_millis(8), 1000), BulkStatus::GoOn);
    let found = bulk.finish(BulkEnd::Sender).unwrap();
    assert_eq!((found.bps, found.spread_bps, found.end), (1e6, None, BulkEnd::Sender));
    // A stall to the end counts.
    let end = Duration::from_secs(5);
    let BulkStatus::Done(found) = bulk.sample(end, 1000) else { panic!("5 s are over") };
    assert!(found.bps <= 1600.0 && !found.is_steady(), "{found:?}");
}

proptest! {
    #[test]
    fn a_constant_rate_is_found_as_soon_as_nine_bins_are_there(
        per_ms in 1_u64..10_000_000, rtt_ms in 0_usize..2_000,
    ) {
        let got: Vec<u64> = (1..=6_000).map(|ms| ms * per_ms).collect();
        let found = judge(&got, rtt_ms, LIMITS).unwrap();
        prop_assert!(found.is_steady());
        let bps = per_ms as f64 * 8000.0;
        prop_assert!((found.bps / bps - 1.0).abs() < 1e-9, "{} for {bps}", found.bps);
        let bin = (rtt_ms as u128 * 3 / 2).clamp(100, 300);
        prop_assert!(found.took.as_millis().abs_diff(9 * bin) <= 9, "{:?}", found.took);
    }

    #[test]
    fn any_input_ends_in_time_with_finite_numbers(
        steps in proptest::collection::vec((0_u64..400, 0_u64..5_000_000), 1..400),
        rtt_ms in 0_u64..5_000,
    ) {
        let limits = BulkLimits { time: FIVE, bytes: ByteSize::from_bytes(50_000_000) };
        let mut bulk = Bulk::new(limits, Duration::from_millis(rtt_ms));
        let (mut at, mut all) = (0, 0);
        for (ms, bytes) in steps {
            (at, all) = (at + ms, all + bytes);
            match bulk.sample(Duration::from_millis(at), all) {
                BulkStatus::GoOn => {
                    prop_assert!((at < 5_000 && all < 50_000_000) || all == 0);
                }
                BulkStatus::Done(found) => {
                    prop_assert!(found.bps.is_finite() && found.bps >= 0.0);
                    prop_assert!(found.spread_bps.is_none_or(|s| s.is_finite() && s >= 0.0));
                    prop_assert_eq!((found.bytes, found.took.as_millis()), (all, at.into()));
                    return Ok(());
                }
            }
        }
        let found = bulk.finish(BulkEnd::Sender);
        prop_assert!(found.is_none_or(|f| f.bps.is_finite() && f.end == BulkEnd::Sender));
    }

    #[test]
    fn times_and_counts_that_go_back_are_tolerated(
        samples in proptest::collection::vec((0_u64..6_000, any::<u64>()), 1..200),
    ) {
        let mut bulk = Bulk::new(LIMITS, Duration::from_millis(50));
        for (ms, bytes) in samples {
            if let BulkStatus::Done(found) = bulk.sample(Duration::from_millis(ms), bytes) {
                prop_assert!(found.bps.is_finite() && found.bps >= 0.0);
                break;
            }
        }
    }
}
