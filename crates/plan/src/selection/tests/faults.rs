//! Tests of paths that slow down, fall silent, are late at the end, or belong to a busy server.

use super::*;

fn hedges(outcome: &Outcome) -> Vec<(Duration, PathId)> {
    let hedge = |(t, a): &(Duration, Action)| match a {
        Action::Fetch { path, hedge: true, .. } => Some((*t, *path)),
        _ => None,
    };
    outcome.actions.iter().filter_map(hedge).collect()
}

#[test]
fn a_winner_that_becomes_slow_is_replaced() {
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).drifting(&[(6_000, 0.1)])];
    let outcome = run(Config::default(), &scripts, &[0..100 * MB]);
    let paths: Vec<_> = choices(&outcome).iter().map(|c| (c.1, c.2)).collect();
    assert_eq!(paths, [(PathId(1), Reason::Clear), (PathId::DIRECT, Reason::Drift)]);
    // 25 MB until then at 40 Mbit/s, the rest at 20: 6 + 30 s.
    assert!(outcome.took < Duration::from_secs(40), "{:?}", outcome.took);
}

#[test]
fn swinging_paths_are_not_left_again_and_again() {
    let swings: Vec<_> = (0..60).map(|i| (4_000 * i, if i % 2 == 0 { 1.0 } else { 0.1 })).collect();
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).drifting(&swings)];
    let outcome = run(Config::default(), &scripts, &[0..200 * MB]);
    assert!(choices(&outcome).len() <= 7, "{:?}", choices(&outcome));
}

#[test]
fn no_new_sampling_begins_shortly_before_the_end() {
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).drifting(&[(6_000, 0.3)])];
    let outcome = run(Config::default(), &scripts, &[0..32 * MB]);
    assert!(choices(&outcome).iter().all(|c| c.2 != Reason::Drift), "{:?}", choices(&outcome));
}

#[test]
fn a_silent_winner_is_helped_long_before_it_counts_as_stalled() {
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).silent(6_000, 60_000)];
    let outcome = run(Config::default(), &scripts, &[0..100 * MB]);
    let (at, by) = hedges(&outcome)[0];
    assert_eq!(by, PathId::DIRECT);
    assert!(at < Duration::from_millis(7_100), "{at:?}");
    let (at, path, reason) = choices(&outcome)[1];
    assert_eq!((path, reason), (PathId::DIRECT, Reason::Stalled));
    assert!(at < Duration::from_secs(12));
}

#[test]
fn a_short_silence_costs_no_path_and_few_bytes() {
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).silent(6_000, 7_300)];
    let outcome = run(Config::default(), &scripts, &[0..100 * MB]);
    assert_eq!(choices(&outcome).len(), 1, "{:?}", choices(&outcome));
    assert!(outcome.twice > 0 && outcome.twice < 8 * MB);
}

#[test]
fn the_only_path_may_be_silent_for_longer() {
    let dead = Script { joins: None, ..Script::steady(1.0) };
    // Silent for 6 s, and later for longer than three times 5 s.
    for (until, others, is_given_up) in
        [(12_000, vec![], false), (12_000, vec![dead], false), (60_000, vec![], true)]
    {
        let scripts = [vec![Script::steady(40.0).silent(6_000, until)], others].concat();
        let outcome = run(Config { alone: 3, ..Config::default() }, &scripts, &[0..40 * MB]);
        let is_stall =
            |(_, a): &(Duration, Action)| matches!(a, Action::Stop { stalled: true, .. });
        let stall = outcome.actions.iter().find(|a| is_stall(a)).map(|(at, _)| at.as_millis());
        assert_eq!(stall.is_some(), is_given_up, "{until}: {:?}", outcome.actions);
        assert!(stall.is_none_or(|at| (20_900..21_100).contains(&at)), "{stall:?}");
    }
    let two = [Script::steady(20.0), Script::steady(40.0).failing(6_000, Failure::Stalled)];
    let outcome = run(Config { alone: 3, ..Config::default() }, &two, &[0..80 * MB]);
    assert!(choices(&outcome)[1].0 < Duration::from_millis(11_100), "{:?}", choices(&outcome));
}

#[test]
fn a_server_that_pauses_on_every_path_gets_more_time() {
    let config = Config { alone: 3, small: u64::MAX, ..Config::default() };
    for (paths, times) in [(1, [3, 6, 9, 12, 15]), (2, [1, 1, 2, 2, 3])] {
        let mut selection = Selection::new(config, paths, &[0..100 * MB], Time::ZERO);
        (0..paths).for_each(|path| selection.joined(PathId(path), Time::ZERO));
        let mut now = Time::ZERO;
        for (n, times) in times.into_iter().enumerate() {
            let mut asked = None;
            while let Some(action) = selection.next_action() {
                if let Action::Fetch { path, .. } = action {
                    selection.sent(path, now);
                    asked = Some(path);
                }
            }
            let path = asked.unwrap_or_else(|| panic!("{paths}, {n}: nobody is asked"));
            selection.received(path, 600_000, now);
            let stalls = |selection: &mut Selection, at| {
                selection.tick(at);
                selection.actions.contains(&Action::Stop { path, stalled: true })
            };
            let limit = times * config.stall;
            let before = now + (limit - Duration::from_millis(1));
            assert!(!stalls(&mut selection, before), "{paths}, {n}: too early");
            now += limit;
            assert!(stalls(&mut selection, now), "{paths}, {n}: too late");
        }
    }
    // A path that delivers nothing does not count as a pause of the server.
    let mut selection = Selection::new(config, 1, &[0..100 * MB], Time::ZERO);
    selection.joined(PathId::DIRECT, Time::ZERO);
    for n in 1..=3 {
        selection.sent(PathId::DIRECT, Time::ZERO + 3 * (n - 1) * config.stall);
        selection.tick(Time::ZERO + 3 * n * config.stall);
    }
    assert_eq!(selection.phase(), Phase::Failed);
}

#[test]
fn a_late_tail_is_asked_of_a_second_path() {
    // 40 Mbit/s: silent with about 1 MB left.
    let scripts = [Script::real(20.0, 40), Script::real(40.0, 40).silent(4_900, 60_000)];
    let silent = run(Config::default(), &scripts, &[0..25 * MB]);
    assert!(!hedges(&silent).is_empty());
    assert!(silent.took < Duration::from_millis(6_800), "{:?}", silent.took);
}

#[test]
fn a_busy_server_gets_one_request_at_a_time_and_none_before_its_time() {
    let scripts = [Script::real(20.0, 40).busy(300, 2_000), Script::real(20.0, 40)];
    let outcome = run(Config { lanes: 2, ..Config::default() }, &scripts, &[0..20 * MB]);
    assert_eq!(choices(&outcome)[0].1, PathId(1));
    assert_eq!(choices(&outcome)[0].2, Reason::Busy);
    assert_eq!(outcome.phase, Phase::Done);
}

#[test]
fn when_all_paths_are_busy_the_first_free_one_goes_on() {
    let scripts =
        [Script::real(20.0, 40).busy(300, 4_000), Script::real(20.0, 40).busy(500, 1_000)];
    let outcome = run(Config::default(), &scripts, &[0..20 * MB]);
    let asked = |(t, a): &(Duration, Action)| matches!(a, Action::Fetch { .. }).then_some(*t);
    let times: Vec<_> = outcome.actions.iter().filter_map(asked).collect();
    assert_eq!(outcome.phase, Phase::Done);
    assert!(times.iter().any(|t| (1_500..1_520).contains(&t.as_millis())), "{times:?}");
}

#[test]
fn a_path_chosen_after_a_long_silence_is_helped_at_once() {
    // Both fall silent before the first choice, made at the end of the window of 5 s.
    let silent =
        Script { rtt: Duration::ZERO, ..Script::steady(1.0).failing(11, Failure::Stalled) };
    let outcome = run(Config::default(), &[silent.clone(), silent], &[0..600_000]);
    let (chosen, path, reason) = first_choice(&outcome);
    assert_eq!((path, reason), (PathId::DIRECT, Reason::DirectNotBeaten));
    assert_eq!(hedges(&outcome)[0], (chosen, PathId(1)));
}

#[test]
fn a_helper_is_asked_for_taken_back_bytes_as_one_range() {
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let mut s = Selection::new(Config::default(), 2, &[0..2 * MB], Time::ZERO);
    for path in [PathId(0), PathId(1)] {
        s.joined(path, at(0));
        s.sent(path, at(0));
    }
    let actions = |s: &mut Selection| std::iter::from_fn(|| s.next_action()).collect::<Vec<_>>();
    for i in 1..=10 {
        s.received(PathId(1), MB / 100, at(10 * i));
        s.received(PathId(0), MB / 10, at(10 * i));
    }
    // Path 0 completes its share, takes over the end of path 1's, and breaks.
    let asked = actions(&mut s);
    assert!(
        matches!(asked.last(), Some(Action::Fetch { path: PathId(0), ranges, .. })
            if ranges[0].start > MB && ranges[0].end == 2 * MB),
        "{asked:?}"
    );
    s.sent(PathId(0), at(100));
    s.failed(PathId(0), Failure::Broken, at(110));
    // Path 1's request continues to its end. When that is late, path 0 is asked for it.
    assert_eq!(s.owes(PathId(1)), 9 * MB / 10);
    actions(&mut s);
    s.tick(at(2_000));
    let whole = vec![11 * MB / 10..2 * MB];
    let help = Action::Fetch { path: PathId(0), ranges: whole, hedge: true };
    assert_eq!(actions(&mut s), [help]);
}
