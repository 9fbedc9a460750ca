use super::*;
use crate::simulated_path::{BusyHosts, CrossTraffic, SimulatedPath};
use crate::train::{OVERHEAD, OVERHEAD_IPV6, Stamp};
use thalweg_units::Rate;

fn settings() -> PathloadSettings {
    let us = Duration::from_micros;
    let host = Calibration {
        send_latency: us(4),
        receive_latency: us(2),
        gap_error: [us(1), us(5)],
        honest: Rate::from_mbps(900.0),
        is_valid: true,
    };
    let (rtt, largest, overhead) = (Duration::from_millis(40), 1472, OVERHEAD);
    PathloadSettings { pace: Pace::Fast, rtt, largest, overhead, host, may_carry: true }
}

/// Pathload's finding on a path, and the time it took.
fn run(
    settings: PathloadSettings,
    path: &mut SimulatedPath,
) -> (Result<Finding, EstimatorError>, Duration) {
    let (result, took) = path.run(&mut Pathload::new(settings));
    (result.map(|found| found[0]), took)
}

/// The medians of the absolute and of the signed relative errors on forty paths.
fn errors(capacity: f64, used: f64) -> [f64; 2] {
    let truth = capacity * (1.0 - used) * 1e6;
    let mut all: Vec<f64> = (0..40)
        .map(|seed| {
            let mut path =
                SimulatedPath::new(capacity, CrossTraffic::poisson(capacity * used), seed);
            run(settings(), &mut path).0.unwrap().value / truth - 1.0
        })
        .collect();
    let median = |all: &mut Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let signed = median(&mut all);
    all.iter_mut().for_each(|off| *off = off.abs());
    [median(&mut all), signed]
}

#[test]
fn available_bandwidth_is_found_from_10_to_100_mbits_and_up_to_80_percent_use() {
    for capacity in [10.0, 50.0, 100.0] {
        for used in [0.0, 0.2, 0.4, 0.6, 0.8] {
            let [off, signed] = errors(capacity, used);
            println!("{capacity} Mbit/s, {used} used: off by {off:.3}, {signed:+.3}");
            // At 80 % a stream is short compared with random variations: 10 ms at 50 Mbit/s.
            assert!(off <= if used > 0.7 { 0.15 } else { 0.1 }, "{capacity} {used}: {off}");
            assert!(signed.abs() <= 0.1, "{capacity} {used}: {signed}");
        }
    }
}

/// In probes of 200 bytes headers matter: those of IPv6 are 20 bytes longer, a tenth of the probe.
#[test]
fn small_probes_over_ipv6_find_the_available_bandwidth() {
    let (largest, overhead) = (200, OVERHEAD_IPV6);
    let mut path = SimulatedPath::new(10.0, CrossTraffic::even(0.0), 3).with_overhead(overhead);
    let found = run(PathloadSettings { largest, overhead, ..settings() }, &mut path).0.unwrap();
    assert!((found.value / 1e7 - 1.0).abs() < 0.03, "{found:?}");
}

/// Hosts like two shared processors: the sender pauses for a millisecond now and then; the receiver polls every 0.3 ms
/// and sometimes pauses for longer.
const BUSY: BusyHosts = BusyHosts { pauses: (0.02, 1e-3), looks: 0.3e-3, rests: (0.02, 2e-3) };

#[test]
fn busy_hosts_find_the_available_bandwidth_within_a_minute() {
    let mut errors = Vec::new();
    for pace in [Pace::Fast, Pace::Slow] {
        for (n, used) in [0.0, 0.2, 0.4, 0.6, 0.8].into_iter().enumerate() {
            for seed in 0..2 {
                let cross = CrossTraffic::poisson(10.0 * used);
                let mut path =
                    SimulatedPath::new(10.0, cross, 100 * seed + n as u64).with_busy_hosts(BUSY);
                let (found, took) = run(PathloadSettings { pace, ..settings() }, &mut path);
                let truth = 10.0 * (1.0 - used);
                println!("{pace:?} {used}: {took:?} {found:?}");
                let error = found.as_ref().map_or(9.0, |it| (it.value / 1e6 - truth).abs() / truth);
                errors.push(error + f64::from(took > Duration::from_secs(60)));
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    println!("{errors:?}");
    assert!(errors[errors.len() / 2] <= 0.1, "{errors:?}");
    assert!(errors[errors.len() * 9 / 10] <= 1.0, "nine of ten within a minute: {errors:?}");
}

#[test]
fn the_slow_pace_finds_the_same_value_later() {
    let path = || SimulatedPath::new(10.0, CrossTraffic::even(4.0), 3);
    let (fast, soon) = run(settings(), &mut path());
    let (slow, late) = run(PathloadSettings { pace: Pace::Slow, ..settings() }, &mut path());
    let (fast, slow) = (fast.unwrap().value, slow.unwrap().value);
    assert!((fast / slow - 1.0).abs() < 0.15, "{fast} {slow}");
    assert!(late > 2 * soon, "{soon:?} {late:?}");
}

#[test]
fn hidden_traffic_is_subtracted() {
    let hide = |path: SimulatedPath, mbps| path.with_hidden_rate(mbps);
    let mut path = hide(SimulatedPath::new(10.0, CrossTraffic::even(3.0), 5), 2.0);
    let found = run(settings(), &mut path).0.unwrap();
    assert!((found.hidden / 1e6 - 2.0).abs() < 0.1, "{found:?}");
    assert!((found.value / 1e6 - 5.0).abs() < 0.6, "{found:?}");
}

#[test]
fn streams_carry_riders_and_the_burst_does_not() {
    let mut tool = Pathload::new(settings());
    let mut path = SimulatedPath::new(10.0, CrossTraffic::even(0.0), 1);
    let may = |step: Step| match step {
        Step::Send { train, .. } => train.probes().iter().any(|probe| probe.may_carry),
        Step::Done(_) => panic!("done"),
    };
    assert!(!may(tool.next()));
    path.send_next_train(&mut tool);
    assert!(may(tool.next()));
}

#[test]
fn a_dead_path_is_an_error_and_a_slow_host_gives_a_lower_bound() {
    let mut dead = SimulatedPath::new(10.0, CrossTraffic::even(0.0), 1).with_loss(1.0);
    assert_eq!(run(settings(), &mut dead).0, Err(EstimatorError::Lost(5)));
    let host = Calibration { honest: Rate::from_mbps(20.0), ..settings().host };
    let mut wide = SimulatedPath::new(100.0, CrossTraffic::even(0.0), 1);
    let found = run(PathloadSettings { host, ..settings() }, &mut wide).0.unwrap();
    assert!(found.is_lower_bound && found.low / 1e6 > 18.0, "{found:?}");
}

#[test]
fn probes_and_gaps_are_those_of_the_public_tool() {
    let of = |mbps: f64| packets(mbps * 1e6, &settings());
    let us = Duration::from_micros;
    assert_eq!(of(100.0), (972, us(80)));
    assert_eq!(of(10.0), (200, Duration::from_nanos(182_400)));
    assert_eq!(of(300.0), (1472, us(40)));
    assert_eq!(of(700.0), (1472, us(17)));
}

/// A burst whose probes arrived at these times, µs.
fn burst(came: impl Fn(u64) -> u64) -> Flight {
    let arrived = (0..51).map(|n| Some(Stamp::from_unix_nanos(1000 * came(n))));
    let sent = vec![Some(thalweg_units::Time::ZERO); 51];
    Flight { sent, arrived: arrived.collect(), ..Flight::default() }
}

#[test]
fn the_burst_detects_a_host_that_takes_arrivals_in_batches() {
    let took = Duration::from_micros(2);
    assert!(!is_coalesced(&burst(|n| 120 * n), took), "100 Mbit/s, each by itself");
    assert!(!is_coalesced(&burst(|n| 240 * (n / 2)), took), "two at a time are half");
    assert!(is_coalesced(&burst(|n| 960 * (n / 8)), took), "eight at a time");
    assert!(is_coalesced(&burst(|n| 120 * n), Duration::from_micros(50)), "a slow host");
}

#[test]
fn batched_arrivals_end_the_search_at_a_wider_range() {
    let width = |came: fn(u64) -> u64| {
        let mut tool = Pathload::new(settings());
        tool.record(&burst(came));
        let State::Fleet { search, rate, .. } = tool.state else { panic!("{tool:?}") };
        let (least, most) =
            (rate_of(LEAST_SIZE, OVERHEAD, LONGEST_GAP), settings().host.highest(1472, OVERHEAD));
        let [least, most] = [least, most].map(|rate| rate.as_bps() as f64);
        let of = |share: f64| Search::new(share * rate, GREY * rate, least, most);
        [RESOLUTION, COALESCED].map(|share| *search == of(share))
    };
    assert_eq!(width(|n| 120 * n), [true, false]);
    assert_eq!(width(|n| 960 * (n / 8)), [false, true]);
}
