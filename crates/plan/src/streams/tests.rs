//! Plans of small problems: the paper's figures, trees, transcoders, hysteresis; random ones are compared with the
//! exact optimum and the independent check.

use super::*;
use crate::draw::{below, unit};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// Table 2: the rates that I, P and B frames add, bit/s.
const TABLE_2: [u64; 3] = [216_000, 488_000, 456_000];

fn seeded(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn table2(publisher: u32) -> Stream {
    let parts = TABLE_2.map(|bps| Part { bps, made: None }).to_vec();
    Stream { publisher, parts, relays: None }
}

/// All frames; without B; I only.
fn levels() -> Vec<Preference> {
    let of = |(parts, utility)| Preference { parts, utility };
    [(0b111, 1.0), (0b011, 0.6), (0b001, 0.2)].map(of).to_vec()
}

fn subscriber(stream: u32, node: u32) -> Subscriber {
    Subscriber {
        stream,
        node,
        preferences: levels(),
        weight: 1.0,
        latency: Duration::from_secs(1),
        is_held: false,
    }
}

fn leg(from: u32, to: u32, kbps: u64) -> Leg {
    Leg {
        from,
        to,
        limit: Some(kbps * 1000),
        is_unknown: false,
        may_lift: true,
        delay: Duration::from_millis(20),
    }
}

fn relays(count: usize) -> Vec<Node> {
    vec![Node { relays: true, ..Node::default() }; count]
}

fn problem(
    nodes: Vec<Node>,
    legs: Vec<Leg>,
    streams: Vec<Stream>,
    who: Vec<Subscriber>,
) -> Problem {
    Problem::new(nodes, legs, streams, who, Terms::default()).unwrap()
}

/// With fewer moves than the product uses, because the problems are small.
fn plan(problem: &Problem) -> Planned {
    plan_with(problem, problem.moves() / 16)
}

fn plan_with(problem: &Problem, moves: u32) -> Planned {
    let planned = problem.plan(moves, &mut seeded(1));
    let flows = Flows::checked(problem, &planned.configuration);
    assert_eq!(flows.as_ref(), Ok(&planned.flows));
    planned
}

/// Simulates three streams of Table 2 over one bottleneck (Fig. 15), second by second. `room` lists spans of seconds
/// with the leg's rate in Mbit/s; every `every` seconds a measurement of three seconds ends. Returns for each span the
/// final sum of utilities and the number of level changes.
fn run(room: &[(u64, f64)], every: Option<u64>) -> Vec<(f64, u32)> {
    let rules = Rules::default();
    let (mut view, mut present, mut lowered) = (LegView::default(), Configuration::default(), None);
    let (mut now, mut ends) = (0, Vec::new());
    let mut load = 0;
    for (seconds, mbps) in room {
        let bps = (mbps * 1e6) as u64;
        let (mut utility, mut changes) = (0.0, 0);
        for second in 0..*seconds {
            now += 1;
            let sent = load.min(bps);
            view.report(Sent { bps: sent, is_limited: load > bps, at: at(now) }, &rules);
            if every.is_some_and(|every| second > 3 && now.is_multiple_of(every)) {
                let (began, ended) = (at(now - 3), at(now));
                view.add_trains(Trains { free: bps - sent, at_least: false, began, ended });
            }
            let leg = Leg {
                limit: view.limit(load, at(now), &rules),
                is_unknown: view.is_unknown(at(now), &rules),
                may_lift: view.may_lift(at(now), &rules),
                ..leg(0, 1, 0)
            };
            let is_held = lowered.is_some_and(|then| at(now).since(then) < rules.hold);
            let who = (0..3).map(|stream| Subscriber { is_held, ..subscriber(stream, 1) });
            let problem = problem(relays(2), vec![leg], vec![table2(0); 3], who.collect());
            let planned = plan(&problem.with_present(present.clone()));
            if planned.configuration != present {
                changes += 1;
                view.changed(at(now));
                if planned.flows.loads[0] < load {
                    lowered = Some(at(now));
                }
            }
            (load, utility) = (planned.flows.loads[0], planned.flows.utility);
            present = planned.configuration;
        }
        ends.push((utility, changes));
    }
    ends
}

#[test]
fn first_routes_avoid_legs_without_any_estimate() {
    let unknown = Leg { limit: None, is_unknown: true, ..leg(0, 1, 0) };
    let legs = vec![unknown, leg(0, 2, 5000), leg(2, 1, 5000)];
    let problem = problem(relays(3), legs, vec![table2(0)], vec![subscriber(0, 1)]);
    let planned = problem.complete(problem.present());
    assert_eq!(planned.configuration.parents[0], [(1, 2), (2, 0)].into());
}

#[test]
fn without_active_measurement_it_never_goes_up() {
    // Fig. 17.
    let ends = run(&[(40, 6.0), (30, 2.0), (40, 6.0), (30, 3.0), (40, 6.0)], None);
    assert!((ends[0].0 - 3.0).abs() < 1e-9 && ends[1].0 < 2.0, "{ends:?}");
    assert!(ends[2..].iter().all(|(utility, changes)| *utility <= ends[1].0 && *changes == 0));
}

#[test]
fn with_active_measurement_it_follows_the_peaks() {
    // Fig. 19: PEAKS leaves 6, 2, 6, 3, 6, 2 and 6 Mbit/s of the bottleneck's 10.
    let room = [(40, 6.0), (30, 2.0), (40, 6.0), (30, 3.0), (40, 6.0), (30, 2.0), (40, 6.0)];
    let ends = run(&room, Some(5));
    let expected = [3.0, 1.4, 3.0, 2.2, 3.0, 1.4, 3.0];
    for ((utility, changes), expected) in ends.iter().zip(expected) {
        assert!((utility - expected).abs() < 1e-9, "{ends:?}");
        assert!(*changes <= 3, "levels oscillate: {ends:?}");
    }
}

#[test]
fn a_leg_carries_a_stream_once_at_the_highest_level_beneath() {
    // 0 → 1 carries one whole stream; behind 1 are three nodes with 1.2, 0.8 and 0.3 Mbit/s.
    let legs = vec![leg(0, 1, 1200), leg(1, 2, 1200), leg(1, 3, 800), leg(1, 4, 300)];
    let who = (2..5).map(|node| subscriber(0, node)).collect();
    let planned = plan(&problem(relays(5), legs, vec![table2(0)], who));
    assert_eq!(planned.configuration.choices, [Some(0), Some(1), Some(2)]);
    assert_eq!(planned.flows.loads, [1_160_000, 1_160_000, 704_000, 216_000]);
    // Nothing that no subscriber wants is sent: without the first node, P frames end at the publisher.
    let legs = vec![leg(0, 1, 1200), leg(1, 3, 800), leg(1, 4, 300)];
    let who = [3, 4].map(|node| subscriber(0, node)).to_vec();
    let planned = plan(&problem(relays(5), legs, vec![table2(0)], who));
    assert_eq!(planned.flows.loads, [704_000, 704_000, 216_000]);
}

#[test]
fn a_transcoder_runs_at_the_first_node_that_has_it() {
    let mut stream = table2(0);
    let made = Made { transcoder: 3, from: 0b111 };
    stream.parts.push(Part { bps: 100_000, made: Some(made) });
    let wants = |node| Subscriber {
        preferences: vec![Preference { parts: 0b1000, utility: 0.5 }],
        ..subscriber(0, node)
    };
    let with = |at: &[usize]| {
        let mut nodes = relays(4);
        at.iter().for_each(|node| nodes[*node].transcoders = 1 << 3);
        let legs = vec![leg(0, 1, 2000), leg(1, 2, 2000), leg(2, 3, 2000)];
        plan(&problem(nodes, legs, vec![stream.clone()], vec![wants(3)]))
    };
    let loads = |at: &[usize]| with(at).flows.loads;
    assert_eq!(loads(&[0]), [100_000; 3]);
    assert_eq!(loads(&[1, 2]), [1_160_000, 100_000, 100_000]);
    assert_eq!(loads(&[3]), [1_160_000; 3]);
    let made = Transcoding { stream: 0, node: 1, part: 3 };
    assert_eq!(with(&[1, 2]).flows.transcodings, [made]);
    assert_eq!(with(&[]).configuration.choices, [None], "no node has the transcoder");
}

#[test]
fn a_second_way_is_taken_when_the_first_has_no_room_and_not_before() {
    let legs = |direct| vec![leg(0, 2, direct), leg(0, 1, 5000), leg(1, 2, 5000)];
    let of = |direct, present: Option<Configuration>| {
        let problem = problem(relays(3), legs(direct), vec![table2(0)], vec![subscriber(0, 2)]);
        plan(&problem.with_present(present.unwrap_or_default()))
    };
    let direct = of(2000, None).configuration;
    assert_eq!(direct.parents[0], BTreeMap::from([(2, 0)]));
    assert_eq!(of(1200, Some(direct.clone())).configuration, direct, "the direct route has room");
    let round = of(800, Some(direct)).configuration;
    assert_eq!((round.choices[0], &round.parents[0]), (Some(0), &BTreeMap::from([(1, 0), (2, 1)])));
    assert_eq!(
        of(2000, Some(round.clone())).configuration,
        round,
        "a shorter route alone causes no change"
    );
}

#[test]
fn nobody_is_lifted_by_what_is_not_known_of_late_but_who_is_new_begins() {
    let present = Configuration {
        choices: vec![Some(1), None],
        parents: vec![BTreeMap::from([(1, 0)]), BTreeMap::new()],
    };
    let of = |may_lift, is_held| {
        let legs = vec![Leg { may_lift, ..leg(0, 1, 5000) }];
        let old = Subscriber { is_held, ..subscriber(0, 1) };
        let streams = vec![table2(0), table2(0)];
        let problem = problem(relays(2), legs, streams, vec![old, subscriber(1, 1)]);
        plan(&problem.with_present(present.clone())).configuration.choices
    };
    assert_eq!(of(true, false), [Some(0), Some(0)]);
    assert_eq!(of(false, false), [Some(1), Some(0)]);
    assert_eq!(of(true, true), [Some(1), Some(0)], "the subscriber was lowered recently");
}

#[test]
fn who_shares_a_leg_with_a_better_level_is_lifted_without_an_estimate() {
    // Frames that reach node 1 anyway cost nothing there.
    let legs = vec![Leg { may_lift: false, ..leg(0, 1, 1200) }, leg(1, 2, 2000)];
    let who = vec![subscriber(0, 1), subscriber(0, 2)];
    let present = Configuration {
        choices: vec![Some(0), Some(1)],
        parents: vec![BTreeMap::from([(1, 0), (2, 1)])],
    };
    let problem = problem(relays(3), legs, vec![table2(0)], who).with_present(present);
    assert_eq!(plan(&problem).configuration.choices, [Some(0), Some(0)]);
}

#[test]
fn relays_send_no_more_than_they_may_and_only_what_they_may() {
    let legs = || vec![leg(0, 1, 9000), leg(1, 2, 9000), leg(1, 3, 9000)];
    let who = || vec![subscriber(0, 2), subscriber(0, 3)];
    let mut nodes = relays(4);
    nodes[1].egress = Some(1_900_000);
    let planned = plan(&problem(nodes.clone(), legs(), vec![table2(0)], who()));
    assert_eq!(planned.flows.egress[1], 1_864_000);
    let stream = Stream { relays: Some(vec![2, 3]), ..table2(0) };
    let planned = plan(&problem(nodes, legs(), vec![stream], who()));
    assert_eq!(
        planned.configuration.choices,
        [None, None],
        "the publisher does not allow this relay"
    );
}

#[test]
fn what_is_gone_from_the_problem_is_passed_over() {
    let present = Configuration {
        choices: vec![Some(7), Some(0)],
        parents: vec![BTreeMap::from([(1, 9), (2, 1), (9, 9)])],
    };
    let legs = vec![leg(0, 1, 2000), leg(0, 2, 2000)];
    let who = vec![subscriber(0, 1), subscriber(0, 2)];
    let problem = problem(relays(3), legs, vec![table2(0)], who).with_present(present);
    assert_eq!(plan(&problem).configuration.choices, [Some(0), Some(0)]);
}

#[test]
fn problems_that_cannot_be_are_refused() {
    let of = |legs, streams: Vec<Stream>, who| {
        Problem::new(relays(2), legs, streams, who, Terms::default()).unwrap_err().to_string()
    };
    assert!(of(vec![leg(0, 2, 1)], vec![], vec![]).starts_with("leg 0 names a node"));
    let twice = vec![leg(0, 1, 1), leg(0, 1, 2)];
    assert_eq!(of(twice, vec![], vec![]), "there are two legs from node 0 to node 1");
    assert!(of(vec![], vec![table2(2)], vec![]).starts_with("stream 0 names"));
    let none = Subscriber { preferences: vec![], ..subscriber(0, 1) };
    assert!(of(vec![], vec![table2(0)], vec![none]).starts_with("subscriber 0 has no preference"));
    let parts = vec![Preference { parts: 0b1000, utility: 1.0 }];
    let odd = Subscriber { preferences: parts, ..subscriber(0, 1) };
    assert!(of(vec![], vec![table2(0)], vec![odd]).starts_with("subscriber 0 names"));
}

/// Three to five nodes with legs between most of them, one to three streams, up to six subscribers.
fn random(seed: u64, terms: Terms) -> Problem {
    let random = &mut seeded(seed);
    let nodes = 3 + below(3, random);
    let mut legs = Vec::new();
    for from in 0..nodes as u32 {
        for to in (0..nodes as u32).filter(|to| *to != from) {
            if below(5, random) > 0 {
                legs.push(leg(from, to, 200 + below(2600, random) as u64));
            }
        }
    }
    let streams = 1 + below(3, random);
    let streams = (0..streams).map(|_| table2(below(nodes, random) as u32)).collect::<Vec<_>>();
    let wants = |_| {
        let (stream, node) = (below(streams.len(), random) as u32, below(nodes, random) as u32);
        Subscriber { weight: 0.5 + 1.5 * unit(random), ..subscriber(stream, node) }
    };
    let who: Vec<Subscriber> = (0..2 + seed % 5).map(wants).collect();
    Problem::new(relays(nodes), legs, streams, who, terms).unwrap()
}

#[test]
fn small_problems_are_solved_nearly_as_well_as_can_be() {
    let (mut sum, mut most, mut worst) = (0.0, 0.0, 1.0_f64);
    for seed in 0..24 {
        let exact = random(seed, Terms::none()).exact();
        let (optimum, _) = exact.unwrap_or_else(|| panic!("seed {seed}: too large to try"));
        let problem = random(seed, Terms::default());
        let planned = plan_with(&problem, problem.moves());
        let share = if optimum > 0.0 { planned.flows.utility / optimum } else { 1.0 };
        assert!(share <= 1.0 + 1e-9, "seed {seed}: better than the best");
        assert!(share >= 0.98, "seed {seed}: {share} of {optimum}");
        (sum, most, worst) = (sum + planned.flows.utility, most + optimum, worst.min(share));
    }
    assert!(sum / most >= 0.995, "{} of the optimum, {worst} at worst", sum / most);
}

#[test]
fn the_same_seed_gives_the_same_plan_and_a_plan_is_kept() {
    for seed in 200..240 {
        let problem = random(seed, Terms::default());
        let first = plan(&problem);
        assert_eq!(plan(&problem), first, "seed {seed}");
        let again = problem.clone().with_present(first.configuration.clone());
        let kept = again.plan(again.moves() / 16, &mut seeded(99));
        assert_eq!(kept.configuration.choices, first.configuration.choices, "seed {seed}");
        assert_eq!(kept.flows, first.flows, "seed {seed}: nothing has changed");
    }
}

#[test]
fn plans_break_no_rule_whatever_changes() {
    // `plan` checks each of them independently.
    for seed in 300..340 {
        let random_numbers = &mut seeded(seed);
        let mut present = Configuration::default();
        for _ in 0..4 {
            let mut changed = random(seed, Terms::default());
            for leg in &mut changed.legs {
                leg.limit =
                    leg.limit.map(|limit| (limit as f64 * (0.4 + unit(random_numbers))) as u64);
                leg.may_lift = below(3, random_numbers) > 0;
                leg.is_unknown = below(6, random_numbers) == 0;
            }
            for who in &mut changed.subscribers {
                who.is_held = below(4, random_numbers) == 0;
            }
            present = plan(&changed.with_present(present)).configuration;
        }
    }
}

#[test]
fn what_trains_found_while_the_leg_was_too_slow_counts_for_nothing() {
    let rules = Rules::default();
    let mut view = LegView::default();
    assert!(view.is_unknown(at(0), &rules) && view.limit(0, at(0), &rules).is_none());
    view.report(Sent { bps: 3_000_000, is_limited: false, at: at(1) }, &rules);
    assert!(!view.is_unknown(at(1), &rules) && view.known(at(1), &rules).is_none());
    view.report(Sent { bps: 2_000_000, is_limited: true, at: at(10) }, &rules);
    let found = |began, ended| Trains {
        free: 1_000_000,
        at_least: false,
        began: at(began),
        ended: at(ended),
    };
    view.add_trains(found(9, 12));
    assert_eq!(view.known(at(12), &rules).map(|known| known.bps), Some(2_000_000));
    view.report(Sent { bps: 1_600_000, is_limited: false, at: at(14) }, &rules);
    view.add_trains(found(12, 14));
    let known = view.known(at(14), &rules).unwrap();
    assert_eq!((known.bps, known.source), (2_600_000, Source::Active));
    assert!(
        view.may_lift(at(14), &rules) && !view.may_lift(at(40), &rules),
        "the estimate becomes too old"
    );
    assert_eq!(view.limit(0, at(14), &rules), Some(2_288_000));
    assert_eq!(
        view.limit(2_400_000, at(14), &rules),
        Some(2_400_000),
        "the leg keeps its present load"
    );
    assert_eq!(view.limit(2_600_000, at(14), &rules), Some(2_418_000), "below the headroom");
}

#[test]
fn reports_of_the_time_just_after_a_change_lower_nothing() {
    let rules = Rules { forget: Some(Duration::from_secs(60)), ..Rules::default() };
    let mut view = LegView::default();
    view.changed(at(10));
    view.report(Sent { bps: 900_000, is_limited: true, at: at(11) }, &rules);
    assert_eq!(view.known(at(11), &rules), None);
    view.report(Sent { bps: 900_000, is_limited: true, at: at(12) }, &rules);
    assert!(view.known(at(71), &rules).is_some() && view.known(at(72), &rules).is_none());
    view.report(Sent { bps: 5, is_limited: true, at: at(12) }, &rules);
    assert_eq!(
        view.known(at(12), &rules).map(|known| known.bps),
        Some(900_000),
        "the repeated report is ignored"
    );
}

#[test]
fn a_leg_whose_plan_changes_all_the_time_is_found_too_slow_all_the_same() {
    let (mut view, rules) = (LegView::default(), Rules::default());
    let trains = Trains { free: 5_350_000, at_least: false, began: at(0), ended: at(1) };
    view.add_trains(trains);
    for second in 2..6 {
        view.changed(at(second));
        view.report(Sent { bps: 2_000_000, is_limited: true, at: at(second) }, &rules);
    }
    let known = view.known(at(6), &rules).unwrap();
    assert_eq!((known.bps, known.source), (2_000_000, Source::Passive));
    // Only a measurement that began after the limit raises it again.
    view.add_trains(Trains { began: at(3), ended: at(7), ..trains });
    assert_eq!(view.known(at(7), &rules), Some(known));
    view.add_trains(Trains { began: at(6), ended: at(8), ..trains });
    assert!(view.known(at(8), &rules).unwrap().bps > 5_000_000 && view.may_lift(at(9), &rules));
}

#[test]
fn new_subscribers_get_first_routes_and_the_others_keep_theirs() {
    // Each of two relays has room for two whole streams; the direct leg has room for one.
    let legs =
        vec![leg(0, 1, 2600), leg(0, 2, 2600), leg(0, 3, 1300), leg(1, 3, 2600), leg(2, 3, 2600)];
    let streams = vec![table2(0); 4];
    let who: Vec<_> = (0..4).map(|stream| subscriber(stream, 3)).collect();
    let present = Configuration {
        choices: vec![Some(0), Some(1), None, None],
        parents: vec![[(3, 0)].into(), [(3, 1), (1, 0)].into(), BTreeMap::new(), BTreeMap::new()],
    };
    let problem = problem(relays(4), legs, streams, who).with_present(present.clone());
    let first = problem.complete(problem.present());
    assert_eq!(Flows::checked(&problem, &first.configuration).as_ref(), Ok(&first.flows));
    assert_eq!(first.configuration.choices, [Some(0), Some(1), Some(0), Some(0)]);
    assert_eq!(first.configuration.parents[..2], present.parents[..2]);
    assert_eq!(plan(&problem).configuration.choices, [Some(0); 4], "a search improves it");
}
