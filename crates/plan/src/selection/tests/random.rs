//! Tests with random paths. The model itself asserts most: see [`run_in`].

use super::*;
use proptest::prelude::*;

fn script() -> impl Strategy<Value = Script> {
    let failure =
        prop_oneof![Just(Failure::Refused), Just(Failure::Broken), Just(Failure::Stalled)];
    let fails = proptest::option::weighted(0.3, (0u64..20_000, failure));
    let ms = |range: std::ops::Range<u64>| proptest::option::weighted(0.2, (range, 1u64..4_000));
    let drifts = proptest::collection::vec((0u64..20_000, 0.05..2.0f64), 0..3);
    let path = (proptest::option::weighted(0.8, 0u64..3_000), 1.0..50.0f64, 0u64..300);
    (path, fails, ms(0..10_000), ms(0..10_000), drifts, any::<bool>(), any::<bool>()).prop_map(
        |((joins, mbps, rtt), fails, silent, busy, mut drifts, slow_start, shared)| {
            drifts.sort_by_key(|d| d.0);
            let duration = Duration::from_millis;
            Script {
                joins: joins.map(duration),
                rtt: duration(rtt),
                fails: fails.map(|(at, f)| (duration(at), f)),
                silent: silent.map(|(at, d)| (duration(at), duration(at + d))),
                busy: busy.map(|(at, d)| (duration(at), duration(d))),
                slow_start,
                shared,
                ..Script::steady(mbps).drifting(&drifts)
            }
        },
    )
}

fn prior() -> impl Strategy<Value = Option<Prior>> {
    proptest::option::of((1.0..50.0f64, 1u64..500).prop_map(|(mbps, ms)| Prior {
        rate: Rate::from_mbps(mbps),
        setup: Duration::from_millis(ms),
    }))
}

fn network() -> impl Strategy<Value = Network> {
    let access = proptest::option::of((2.0..60.0f64).prop_map(Rate::from_mbps));
    (access, proptest::collection::vec(prior(), 0..6), any::<bool>())
        .prop_map(|(access, priors, own_links)| Network { access, priors, own_links })
}

/// Disjoint ascending ranges from gaps and lengths.
fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    proptest::collection::vec((0u64..3, 1u64..12 * MB), 0..6).prop_map(|parts| {
        let mut at = 0;
        let lay = |(gap, len): (u64, u64)| {
            let start = at + gap;
            at = start + len;
            start..at
        };
        parts.into_iter().map(lay).collect()
    })
}

proptest! {
    #[test]
    fn every_byte_arrives_whatever_fails(
        scripts in proptest::collection::vec(script(), 1..6),
        network in network(),
        missing in ranges(),
        paper in any::<bool>(),
        lanes in 1u32..4,
    ) {
        let ending = if paper { Ending::Paper } else { Ending::Clear };
        let config = Config { lanes, ..with(ending) };
        let outcome = run_in(&network, config, &scripts, &missing);
        let sound = |s: &Script| s.joins.is_some() && s.fails.is_none();
        if scripts.iter().any(sound) {
            prop_assert_eq!(outcome.phase, Phase::Done);
        }
        if paper {
            prop_assert_eq!(outcome.twice, 0);
        }
    }

    /// Without failures and drift, the last choice is the best path, direct or not, or tied with it. Paths are tied if
    /// sampling cannot tell them apart: within a tenth, and what noise does to the few draws that sampling sees.
    #[test]
    fn steady_paths_are_ranked_correctly(
        paths in proptest::collection::vec((2.0..50.0f64, 20u64..200, 0u64..300), 2..6),
        direct_best in any::<bool>(),
        noise in 0.0..0.3f64,
    ) {
        let mut paths = paths;
        let best = paths.iter().map(|p| p.0).fold(0.0, f64::max);
        if direct_best {
            paths[0].0 = best;
        }
        let script = |(r, rtt, at): &(f64, u64, u64)| Script {
            noise,
            ..Script::real(*r, *rtt).joining(*at)
        };
        let scripts: Vec<_> = paths.iter().map(script).collect();
        let outcome = run(with(Ending::Clear), &scripts, &[0..100 * MB]);
        let (_, path, _) = *choices(&outcome).last().unwrap();
        let (chosen, tied) = (paths[path.0 as usize].0, best * (0.9 - 0.6 * noise));
        prop_assert!(chosen >= tied, "{chosen} of {best}: {:?}", choices(&outcome));
        // The chosen path alone, with its set-up, slow start and a second of sampling by mistake.
        let ideal = 800.0 / chosen;
        let took = outcome.took.as_secs_f64();
        prop_assert!(took <= 1.1 * ideal + 1.0, "{took} s, ideal {ideal} s");
    }
}
