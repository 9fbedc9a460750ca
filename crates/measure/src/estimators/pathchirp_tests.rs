use super::*;
use crate::simulated_path::{BusyHosts, CrossTraffic, SimulatedPath};

fn run(capacity: f64, cross: CrossTraffic, seed: u64) -> Result<Vec<Finding>, EstimatorError> {
    let settings = PathchirpSettings::default();
    SimulatedPath::new(capacity, cross, seed).run(&mut Pathchirp::new(settings)).0
}

#[test]
fn beside_even_traffic_bandwidth_is_found_even_if_the_range_must_move() {
    for (capacity, cross) in [(10.0, 4.0), (50.0, 20.0), (100.0, 20.0), (400.0, 100.0)] {
        let found = run(capacity, CrossTraffic::even(cross), 3).unwrap();
        let over = found[0].value / 1e6 / (capacity - cross);
        println!("{capacity} {cross}: {found:?}");
        assert!((0.7..1.5).contains(&over), "{capacity} {cross}: {found:?}");
    }
}

/// The tool takes short queues of cross traffic for its own, and more often overlooks one that grows: it overestimates.
#[test]
fn beside_bursts_the_estimate_is_in_the_right_region() {
    let mut errors = Vec::new();
    for (capacity, used) in [(10.0, 0.0), (10.0, 0.4), (50.0, 0.2), (100.0, 0.5), (100.0, 0.8)] {
        let found = run(capacity, CrossTraffic::poisson(capacity * used), 3).unwrap();
        let truth = capacity * (1.0 - used);
        println!("{capacity} {used}: {found:?}");
        errors.push((found[0].value / 1e6 - truth).abs() / truth);
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[2] < 0.5 && errors[4] < 1.2, "{errors:?}");
}

/// The sender pauses; the receiver polls every 0.3 ms and sometimes pauses for longer.
#[test]
fn between_busy_hosts_the_estimate_is_no_worse() {
    let busy = BusyHosts { pauses: (0.02, 1e-3), looks: 0.3e-3, rests: (0.02, 2e-3) };
    let mut errors = Vec::new();
    for used in [0.0, 0.2, 0.4, 0.6] {
        for seed in 0..4 {
            let path = SimulatedPath::new(10.0, CrossTraffic::poisson(10.0 * used), seed);
            let mut tool = Pathchirp::new(PathchirpSettings::default());
            let (found, took) = path.with_busy_hosts(busy).run(&mut tool);
            let truth = 10.0 * (1.0 - used);
            println!("{used}: {took:?} {found:?}");
            errors.push((found.unwrap()[0].value / 1e6 - truth) / truth);
        }
    }
    errors.sort_by(f64::total_cmp);
    println!("{errors:.2?}");
    assert!(errors[8].abs() < 0.4 && errors[15] < 1.2, "{errors:?}");
}

#[test]
fn chirps_try_each_rate_of_the_range() {
    let tool = Pathchirp::new(PathchirpSettings::default());
    let chirp = tool.chirp().unwrap();
    assert_eq!(chirp.probes().len(), tool.rates().len() + 1);
    assert_eq!(chirp.probes()[1].gap, Duration::from_nanos(822_400));
    assert!((17..=18).contains(&chirp.probes().len()), "{}", chirp.probes().len());
    assert!(tool.pause(&chirp) > Duration::from_millis(400));
}

#[test]
fn the_rate_at_which_delays_begin_to_grow_counts() {
    let rates = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    let delays = [0.0, 0.0, 0.0, 5.0, 10.0, 20.0, 40.0];
    assert_eq!(weighted(&delays, &rates, 1.0), (4.0, true));
    // Delays never grow: the highest rate that was tried.
    assert_eq!(weighted(&[0.0; 7], &rates, 1.0), (32.0, false));
}

#[test]
fn a_path_with_heavy_loss_is_an_error() {
    let mut path = SimulatedPath::new(10.0, CrossTraffic::even(0.0), 1).with_loss(0.5);
    let result = path.run(&mut Pathchirp::new(PathchirpSettings::default())).0;
    assert_eq!(result, Err(EstimatorError::Lost(MOST_LOST)));
}
