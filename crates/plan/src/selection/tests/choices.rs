//! Tests of which path is chosen, when and why.

use super::*;

fn last(outcome: &Outcome) -> (PathId, Reason) {
    choices(outcome).last().map(|c| (c.1, c.2)).unwrap()
}

#[test]
fn a_rival_in_slow_start_is_waited_for() {
    // Issue 2: 64 Mbit/s of short RTT leave slow start long before 74 of long RTT.
    let scripts = [Script::real(20.0, 30), Script::real(64.0, 20), Script::real(80.0, 150)];
    let outcome = run(Config::default(), &scripts, &[0..80 * MB]);
    assert_eq!(last(&outcome).0, PathId(2), "{:?}", choices(&outcome));
}

#[test]
fn a_clear_winner_ends_sampling_early() {
    let scripts = [Script::real(4.0, 40), Script::real(40.0, 40), Script::real(8.0, 40)];
    let outcome = run(Config::default(), &scripts, &[0..40 * MB]);
    let (at, path, reason) = first_choice(&outcome);
    assert_eq!((path, reason), (PathId(1), Reason::Clear));
    assert!(at < Duration::from_secs(2), "{at:?}");
}

#[test]
fn equal_paths_end_with_slow_start_and_direct_wins() {
    let scripts = [Script::real(20.0, 60), Script::real(20.8, 40), Script::real(20.4, 40)];
    let outcome = run(Config::default(), &scripts, &[0..40 * MB]);
    let (at, path, reason) = first_choice(&outcome);
    assert_eq!((path, reason), (PathId::DIRECT, Reason::DirectNotBeaten));
    assert!(at < Duration::from_secs(2), "{at:?}");
}

#[test]
fn a_path_that_is_done_early_takes_over_from_the_slowest() {
    // Path 2 has not joined yet, so its share can be taken over.
    let late = Script::real(50.0, 100).joining(60_000);
    let scripts = [Script::real(30.0, 40), Script::real(10.0, 40), late];
    let outcome = run(
        Config { window: Duration::from_secs(60), ..Config::default() },
        &scripts,
        &[0..3 * MB],
    );
    assert!(outcome.took < Duration::from_secs(2), "{:?}", outcome.took);
    assert_eq!(outcome.delivered[2], 0);
}

#[test]
fn direct_wins_among_paths_behind_one_access_link() {
    let network = Network { access: Some(Rate::from_mbps(20.0)), ..Network::default() };
    let shared = |rtt| Script { shared: true, ..Script::real(30.0, rtt) };
    let outcome = run_in(&network, Config::default(), &[shared(40), shared(80)], &[0..40 * MB]);
    assert_eq!(last(&outcome).0, PathId::DIRECT, "{:?}", choices(&outcome));
}

#[test]
fn several_paths_carry_the_rest_if_their_sum_is_better() {
    let scripts = [Script::real(20.0, 40), Script::real(20.0, 60), Script::real(1.0, 40)];
    let two = run(Config { lanes: 3, ..Config::default() }, &scripts, &[0..80 * MB]);
    let one = run(Config::default(), &scripts, &[0..80 * MB]);
    assert_eq!(last(&two).1, Reason::Sum);
    assert!(two.took < one.took.mul_f64(0.62), "{:?}, {:?}", two.took, one.took);
    assert!(two.delivered[2] < 2 * MB);
}

#[test]
fn several_paths_that_share_a_link_give_way_to_one() {
    // The access link gets slower once sampling is over: the sum is no better than one.
    let slow = |s: Script| s.drifting(&[(3_000, 0.45)]);
    let scripts = [slow(Script::real(20.0, 40)), slow(Script::real(20.0, 40))];
    let outcome = run(Config { lanes: 2, ..Config::default() }, &scripts, &[0..80 * MB]);
    assert!(choices(&outcome).iter().any(|c| c.2 == Reason::SumNotBetter));
}

fn prior(mbps: f64, ms: u64) -> Option<Prior> {
    Some(Prior { rate: Rate::from_mbps(mbps), setup: Duration::from_millis(ms) })
}

fn small(scripts: &[Script], priors: Vec<Option<Prior>>) -> (PathId, Reason, Duration) {
    let network = Network { priors, ..Network::default() };
    let outcome = run_in(&network, Config::default(), scripts, &[0..400_000]);
    let (at, path, reason) = first_choice(&outcome);
    (path, reason, at)
}

#[test]
fn history_decides_for_small_objects_and_otherwise_direct() {
    let scripts = [Script::real(10.0, 40).joining(50), Script::real(10.0, 40)];
    let (direct, fast) = (prior(2.0, 100), prior(40.0, 100));
    let chosen = |priors| {
        let (path, reason, _) = small(&scripts, priors);
        (path, reason)
    };
    assert_eq!(chosen(vec![]), (PathId::DIRECT, Reason::Small));
    assert_eq!(chosen(vec![None, fast]), (PathId::DIRECT, Reason::Small));
    assert_eq!(chosen(vec![direct, fast]), (PathId(1), Reason::History));
    assert_eq!(chosen(vec![fast, direct]), (PathId::DIRECT, Reason::Small));
}

#[test]
fn a_small_object_does_not_wait_long_for_the_expected_path() {
    let scripts = [Script::real(10.0, 40).joining(9_000), Script::real(10.0, 40)];
    let (path, reason, at) = small(&scripts, vec![]);
    assert_eq!((path, reason), (PathId(1), Reason::FirstToJoin));
    assert!(at <= Duration::from_millis(1_010));
    let (path, _, at) = small(&scripts, vec![prior(9.0, 50), None]);
    assert!(path == PathId(1) && at <= Duration::from_millis(210), "{at:?}");
}

/// Two paths in sampling, of which the direct one has just completed its share of 20 MB.
fn one_share_complete() -> (Selection, Time) {
    let mut s = Selection::new(Config::default(), 2, &[0..40 * MB], Time::ZERO);
    for path in [PathId(0), PathId(1)] {
        s.joined(path, Time::ZERO);
        s.sent(path, Time::ZERO);
    }
    while s.next_action().is_some() {}
    let first = Time::ZERO + Duration::from_millis(20);
    s.received(PathId(1), MB, first);
    s.received(PathId(0), MB, first);
    let now = first + Duration::from_secs(1);
    s.received(PathId(0), 19 * MB, now);
    (s, now)
}

#[test]
fn a_path_with_a_complete_share_takes_the_late_part_of_the_slowest() {
    let (mut s, now) = one_share_complete();
    let ranges = vec![27_250_000..40 * MB];
    let stolen = Action::Fetch { path: PathId(0), ranges, hedge: false };
    assert_eq!(s.next_action(), Some(stolen));
    assert_eq!((s.phase(), s.owes(PathId(1))), (Phase::Sampling, 6_250_000));
    // The victim's own request continues up to that part, and no further.
    s.received(PathId(1), 6_250_000, now);
    let stop = Action::Stop { path: PathId(1), stalled: false };
    assert_eq!(s.next_action(), Some(stop));
}

#[test]
fn a_winners_request_continues_through_bytes_taken_from_it() {
    let (mut s, now) = one_share_complete();
    while s.next_action().is_some() {}
    s.failed(PathId(0), Failure::Refused, now);
    let chosen = Action::Chosen { path: PathId(1), reason: Reason::OnlyPath };
    assert_eq!((s.next_action(), s.next_action()), (Some(chosen), None));
    assert_eq!(s.owes(PathId(1)), 19 * MB);
}

#[test]
fn a_lane_that_becomes_slow_is_not_waited_for() {
    // Half of 80 MB at 2 Mbit/s would take 160 s; the other path alone needs 32 s for all.
    let slow = Script::real(20.0, 40).drifting(&[(3_000, 0.1)]);
    let config = Config { lanes: 2, ..Config::default() };
    let outcome = run(config, &[Script::real(24.0, 40), slow], &[0..80 * MB]);
    assert_eq!(first_choice(&outcome).2, Reason::Sum);
    assert!(outcome.took < Duration::from_secs(36), "{:?}", outcome.took);
}

#[test]
fn lanes_end_together() {
    // 8 s at 40 Mbit/s, then 40 MB at 30: 19 s. Waiting for the slower lane's half: 24 s.
    let slow = Script::real(20.0, 40).drifting(&[(8_000, 0.5)]);
    let config = Config { lanes: 2, ..Config::default() };
    let outcome = run(config, &[Script::real(20.0, 40), slow], &[0..80 * MB]);
    assert!(outcome.took < Duration::from_millis(21_500), "{:?}", outcome.took);
}

#[test]
fn a_slow_link_of_this_hosts_own_is_used() {
    // 240 Mbit at 22 Mbit/s take 10.9 s, at 20 alone 12.
    let scripts = [Script::real(20.0, 10), Script::real(2.0, 100)];
    let config = Config { lanes: 2, ..Config::default() };
    let own = Network { own_links: true, ..Network::default() };
    let outcome = run_in(&own, config, &scripts, &[0..30 * MB]);
    assert!(outcome.took < Duration::from_millis(11_300), "{:?}", outcome.took);
    assert!(outcome.delivered[1] > 2 * MB, "{:?}", outcome.delivered);
    let strangers = run(config, &scripts, &[0..30 * MB]);
    assert!(strangers.delivered[1] < MB, "{:?}", strangers.delivered);
}

#[test]
fn links_of_this_hosts_own_stay_in_use_through_a_dip_of_both() {
    let dips = || Script::real(20.0, 10).drifting(&[(2_000, 0.4), (5_000, 1.0)]);
    let config = Config { lanes: 2, ..Config::default() };
    let own = Network { own_links: true, ..Network::default() };
    let outcome = run_in(&own, config, &[dips(), dips()], &[0..60 * MB]);
    // 2 s and the rest at 40 Mbit/s, 3 s at 16: 13.8 s.
    assert!(outcome.took < Duration::from_millis(14_200), "{:?}", outcome.took);
    assert!(choices(&outcome).iter().all(|c| c.2 != Reason::SumNotBetter));
}
