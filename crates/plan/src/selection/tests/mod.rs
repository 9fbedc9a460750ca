#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

mod access;
mod choices;
mod early;
mod faults;
mod random;

use super::simulation::{Network, Outcome, Script, run, run_in};
use super::*;
use std::time::Duration;

const MB: u64 = 1_000_000;

fn with(ending: Ending) -> Config {
    Config { ending, ..Config::default() }
}

/// Every choice, as (time, path, reason).
fn choices(outcome: &Outcome) -> Vec<(Duration, PathId, Reason)> {
    let chosen = |(t, a): &(Duration, Action)| match a {
        Action::Chosen { path, reason } => Some((*t, *path, *reason)),
        _ => None,
    };
    outcome.actions.iter().filter_map(chosen).collect()
}

fn first_choice(outcome: &Outcome) -> (Duration, PathId, Reason) {
    choices(outcome)[0]
}

#[test]
fn the_fastest_path_takes_the_remainders() {
    let scripts = [Script::steady(8.0), Script::steady(40.0), Script::steady(16.0)];
    for (ending, why) in [(Ending::Paper, Reason::Window), (Ending::Clear, Reason::Clear)] {
        let outcome = run(with(ending), &scripts, &[0..40 * MB]);
        let (_, path, reason) = first_choice(&outcome);
        assert_eq!((path, reason), (PathId(1), why));
        assert_eq!(outcome.delivered.iter().sum::<u64>(), 40 * MB);
    }
}

#[test]
fn our_rule_ends_at_the_first_complete_share_and_the_papers_at_the_last_or_5_s() {
    // Shares of 10 MB: 2 s at 40 Mbit/s, 10 s at 8 Mbit/s.
    let scripts = [Script::steady(8.0), Script::steady(40.0)];
    let early = run(with(Ending::Clear), &scripts, &[0..20 * MB]);
    let paper = run(with(Ending::Paper), &scripts, &[0..20 * MB]);
    let (at_early, at_paper) = (first_choice(&early).0, first_choice(&paper).0);
    assert!(at_early < Duration::from_millis(2200), "{at_early:?}");
    assert_eq!(at_paper, Duration::from_secs(5));
    assert!(early.took < paper.took);
    // Shares of 2.5 MB are complete on both after 2.5 s, and the paper's rule ends there too.
    let paper = run(with(Ending::Paper), &scripts, &[0..5 * MB]);
    assert!(choices(&paper).is_empty() && paper.took < Duration::from_secs(5));
}

#[test]
fn direct_wins_over_equal_and_slower_detours() {
    for detour in [20.0, 10.0] {
        let outcome = run(
            with(Ending::Paper),
            &[Script::steady(20.0), Script::steady(detour)],
            &[0..40 * MB],
        );
        let (_, path, reason) = first_choice(&outcome);
        assert_eq!((path, reason), (PathId::DIRECT, Reason::DirectNotBeaten));
    }
}

#[test]
fn the_winners_own_request_is_not_stopped() {
    let outcome =
        run(with(Ending::Clear), &[Script::steady(4.0), Script::steady(8.0)], &[0..40 * MB]);
    let stopped = |(_, a): &(Duration, Action)| matches!(a, Action::Stop { path: PathId(1), .. });
    assert!(!outcome.actions.iter().any(stopped));
}

#[test]
fn all_remainders_are_asked_for_together() {
    let scripts = [Script::steady(4.0), Script::steady(40.0), Script::steady(8.0)];
    let outcome = run(with(Ending::Clear), &scripts, &[0..40 * MB]);
    let asked = outcome.actions.iter().filter_map(|(_, a)| match a {
        Action::Fetch { path: PathId(1), ranges, .. } => Some(ranges.len()),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_dead_winner_is_replaced_by_the_next_best() {
    let scripts = [
        Script::steady(8.0),
        Script::steady(40.0).failing(6_000, Failure::Refused),
        Script::steady(16.0),
    ];
    let outcome = run(with(Ending::Clear), &scripts, &[0..60 * MB]);
    let paths: Vec<_> = choices(&outcome).iter().map(|c| (c.1, c.2)).collect();
    assert_eq!(paths, [(PathId(1), Reason::Clear), (PathId(2), Reason::Failover)]);
    assert_eq!(outcome.phase, Phase::Done);
}

#[test]
fn a_stalled_winner_is_given_up_after_the_stall_time() {
    let scripts = [Script::steady(8.0), Script::steady(40.0).failing(6_000, Failure::Stalled)];
    let outcome = run(with(Ending::Clear), &scripts, &[0..80 * MB]);
    let (at, path, reason) = choices(&outcome)[1];
    assert_eq!((path, reason), (PathId::DIRECT, Reason::Failover));
    assert!((10_900..11_100).contains(&at.as_millis()), "{at:?}");
    assert_eq!(outcome.phase, Phase::Done);
}

#[test]
fn a_single_path_may_break_a_few_times_and_no_more() {
    let script = [Script::steady(8.0).failing(1_000, Failure::Broken)];
    let outcome = run(Config::default(), &script, &[0..40 * MB]);
    assert_eq!(outcome.phase, Phase::Failed);
    let asked = outcome.actions.iter().filter(|(_, a)| matches!(a, Action::Fetch { .. })).count();
    assert_eq!(asked, 3);
}

#[test]
fn progress_forgives_earlier_strikes() {
    let config = Config { strikes: 2, ..Config::default() };
    let mut s = Selection::new(config, 1, &[0..10 << 20], Time::ZERO);
    s.joined(PathId::DIRECT, Time::ZERO);
    for _ in 0..5 {
        s.received(PathId::DIRECT, 1 << 20, Time::ZERO);
        s.failed(PathId::DIRECT, Failure::Broken, Time::ZERO);
        assert_eq!(s.phase(), Phase::Completing(Some(PathId::DIRECT)));
    }
}

#[test]
fn the_last_path_may_break_as_often_as_it_brings_bytes() {
    let zero = Time::ZERO;
    let progress = |paths: u32, bytes: u64| {
        let mut s = Selection::new(Config::default(), paths, &[0..400_000], zero);
        (0..paths).for_each(|p| s.joined(PathId(p), zero));
        if paths > 1 {
            s.failed(PathId(1), Failure::Refused, zero);
        }
        for n in 1..30 {
            s.received(PathId::DIRECT, bytes, zero);
            s.failed(PathId::DIRECT, Failure::Broken, zero);
            if matches!(s.phase(), Phase::Failed | Phase::Done) {
                return (s.phase(), n);
            }
        }
        (s.phase(), 30)
    };
    assert_eq!(progress(1, 40_000), (Phase::Done, 10));
    assert_eq!(progress(2, 40_000), (Phase::Done, 10));
    assert_eq!(progress(1, 16_000), (Phase::Failed, 3));
    assert_eq!(progress(1, 0), (Phase::Failed, 3));
}

#[test]
fn without_missing_bytes_it_is_done_and_with_all_paths_dead_it_fails() {
    assert_eq!(Selection::new(Config::default(), 2, &[], Time::ZERO).phase(), Phase::Done);
    let dead = Script { joins: None, ..Script::steady(1.0) };
    let outcome = run(Config::default(), &[dead.clone(), dead], &[0..40 * MB]);
    assert_eq!(outcome.phase, Phase::Failed);
}

#[test]
fn a_pause_of_the_caller_does_not_count_against_a_path() {
    let mut s = Selection::new(Config::default(), 2, &[0..40 * MB], Time::ZERO);
    for path in [PathId(0), PathId(1)] {
        s.joined(path, Time::ZERO);
        s.sent(path, Time::ZERO);
    }
    let late = Time::ZERO + Duration::from_secs(6);
    s.paused(Duration::from_secs(6));
    s.tick(late);
    assert_eq!(s.phase(), Phase::Sampling);
    s.tick(late + Duration::from_secs(5));
    assert_ne!(s.phase(), Phase::Sampling);
}
