//! Tests of Algorithm 2: what always holds, whatever is drawn and learnt.

use super::meshes::seeded;
use proptest::prelude::*;
use std::collections::BTreeSet;
use thalweg_plan::{
    adaptive::{AdaptiveRelays, Draw, KnownRelay, MOST_KNOWN},
    ranking::MOST_GAIN,
};

fn list(scores: &[f64]) -> Vec<(String, f64)> {
    scores.iter().enumerate().map(|(at, score)| (format!("r{at}"), *score)).collect()
}

fn following(scores: &[f64]) -> AdaptiveRelays {
    let mut adaptive = AdaptiveRelays::default();
    adaptive.follow(&list(scores));
    adaptive
}

fn score(adaptive: &AdaptiveRelays, relay: &str) -> Option<f64> {
    adaptive.known().iter().find(|k| k.relay == relay).map(|k| k.score)
}

fn gain() -> impl Strategy<Value = f64> {
    let odd = prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0, 1e300]);
    prop_oneof![3 => Just(0.0), 6 => 0.0..3.0, 1 => odd]
}

#[derive(Clone, Debug)]
enum Step {
    Follow(Vec<f64>),
    Candidates(usize, Draw),
    Learn(Vec<f64>),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let draw = prop::sample::select(vec![Draw::Proportional, Draw::Top]);
    prop_oneof![
        1 => prop::collection::vec(gain(), 0..12).prop_map(Step::Follow),
        3 => (0_usize..8, draw).prop_map(|(s, draw)| Step::Candidates(s, draw)),
        3 => prop::collection::vec(gain(), 9).prop_map(Step::Learn),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn the_list_is_always_ranked_and_the_candidates_are_distinct_and_known(
        seed in any::<u64>(), steps in prop::collection::vec(step(), 0..40),
    ) {
        let mut random = seeded(seed);
        let mut adaptive = following(&[0.5, 0.2, 0.9]);
        let mut tried: Vec<String> = vec![];
        for step in steps {
            match step {
                Step::Follow(scores) => {
                    adaptive.follow(&list(&scores));
                    prop_assert_eq!(adaptive.known().len(), scores.len());
                }
                Step::Candidates(s, draw) => {
                    tried = adaptive.candidates(s, draw, &mut random);
                    prop_assert_eq!(tried.len(), (s + 1).min(adaptive.known().len()));
                    prop_assert_eq!(tried.iter().collect::<BTreeSet<_>>().len(), tried.len());
                    prop_assert!(tried.iter().all(|t| score(&adaptive, t).is_some()));
                    let last = tried.last().map(String::as_str);
                    prop_assert!(last == adaptive.test() || tried.len() == adaptive.known().len());
                }
                Step::Learn(gains) => {
                    let seen: Vec<_> = tried.iter().cloned().zip(gains).collect();
                    adaptive.learn(&seen, &mut random);
                }
                Step::Restart => {
                    let text = serde_json::to_string(&adaptive).unwrap();
                    let read: AdaptiveRelays = serde_json::from_str(&text).unwrap();
                    prop_assert_eq!(read.test(), adaptive.test());
                    prop_assert_eq!(read.known().len(), adaptive.known().len());
                    for (a, b) in read.known().iter().zip(adaptive.known()) {
                        // JSON may cost the last bit of a score.
                        prop_assert!((a.score - b.score).abs() <= 1e-12 * b.score);
                        prop_assert_eq!((&a.relay, a.tried), (&b.relay, b.tried));
                    }
                    adaptive = read;
                }
            }
            prop_assert!(adaptive.known().is_sorted_by(|a, b| a.score >= b.score));
            let valid = |k: &KnownRelay| (0.0..=MOST_GAIN).contains(&k.score);
            prop_assert!(adaptive.known().iter().all(valid));
            prop_assert!(adaptive.test().is_none_or(|t| score(&adaptive, t).is_some()));
        }
    }
}

#[test]
fn a_score_becomes_the_mean_of_itself_and_the_measured_gain() {
    let mut random = seeded(1);
    let mut adaptive = following(&[1.0, 0.5]);
    let seen = |relay: &str, gain| vec![(relay.to_owned(), gain)];
    adaptive.learn(&seen("r1", 2.5), &mut random);
    assert_eq!(score(&adaptive, "r1"), Some(1.5), "(0.5 + 2.5)/2");
    adaptive.learn(&seen("r1", 0.0), &mut random);
    let first = KnownRelay { relay: "r0".into(), score: 1.0, tried: 0 };
    let second = KnownRelay { relay: "r1".into(), score: 0.75, tried: 2 };
    assert_eq!(adaptive.known(), [first, second]);
    adaptive.learn(&seen("r7", 9.0), &mut random);
    adaptive.learn(&seen("r0", f64::NAN), &mut random);
    assert_eq!((score(&adaptive, "r7"), score(&adaptive, "r0")), (None, Some(1.0)));
    adaptive.learn(&seen("r0", f64::INFINITY), &mut random);
    assert_eq!(score(&adaptive, "r0"), Some(f64::midpoint(1.0, MOST_GAIN)));
}

#[test]
fn the_test_detour_stays_until_it_loses() {
    let mut random = seeded(2);
    for draw in [Draw::Proportional, Draw::Top] {
        let mut adaptive = following(&[5.0, 4.0, 0.1, 0.1, 0.1]);
        adaptive.candidates(2, draw, &mut random);
        let test = adaptive.test().unwrap().to_owned();
        for _ in 0..20 {
            adaptive.learn(&[(test.clone(), 0.01)], &mut random);
            adaptive.candidates(2, draw, &mut random);
            assert_eq!(adaptive.test(), Some(&*test), "{draw:?}: it beat the direct path");
        }
        adaptive.learn(&[(test.clone(), 0.0)], &mut random);
        assert_ne!(adaptive.test(), Some(&*test), "{draw:?}: it lost");
    }
}

#[test]
fn line_6_takes_the_top_and_promotes_a_test_detour_that_rose() {
    let mut random = seeded(3);
    let mut adaptive = following(&[0.9, 0.8, 0.1, 0.1]);
    assert_eq!(adaptive.candidates(2, Draw::Top, &mut random)[..2], ["r0", "r1"]);
    let test = adaptive.test().unwrap().to_owned();
    adaptive.learn(&[(test.clone(), 8.0)], &mut random);
    let next = adaptive.candidates(2, Draw::Top, &mut random);
    assert_eq!(next[..2], [&*test, "r0"]);
    assert_ne!(adaptive.test(), Some(&*test), "the place for tests is free again");
}

#[test]
fn the_text_draws_in_proportion_to_score() {
    let mut random = seeded(4);
    let mut first = [0_u32; 3];
    for _ in 0..20_000 {
        let drawn = following(&[6.0, 3.0, 0.0]).candidates(1, Draw::Proportional, &mut random);
        first[drawn[1][1..].parse::<usize>().unwrap()] += 1;
    }
    // The test detour is the first draw: weights 6.15, 3.15 and 0.15 of 9.45, see EXPLORE.
    for (count, wanted) in first.iter().zip([13_016, 6_667, 317]) {
        assert!(count.abs_diff(wanted) < 300, "{first:?}");
    }
}

#[test]
fn scores_of_zero_do_not_end_exploration() {
    let mut random = seeded(5);
    for draw in [Draw::Proportional, Draw::Top] {
        let mut adaptive = following(&[0.0; 30]);
        let mut tried = BTreeSet::new();
        for _ in 0..300 {
            let drawn = adaptive.candidates(2, draw, &mut random);
            adaptive
                .learn(&drawn.iter().map(|d| (d.clone(), 0.0)).collect::<Vec<_>>(), &mut random);
            tried.extend(drawn);
        }
        assert_eq!(tried.len(), 30, "{draw:?}");
        // Also beside a relay that does well.
        let mut adaptive = following(&[1.0, 0.0, 0.0, 0.0]);
        let mut tried = BTreeSet::new();
        for _ in 0..2_000 {
            let drawn = adaptive.candidates(1, draw, &mut random);
            let gain = |d: &String| if d == "r0" { 1.0 } else { 0.0 };
            adaptive.learn(
                &drawn.iter().map(|d| (d.clone(), gain(d))).collect::<Vec<_>>(),
                &mut random,
            );
            tried.extend(drawn);
        }
        assert_eq!(tried.len(), 4, "{draw:?}");
    }
}

#[test]
fn the_oracle_adds_and_removes_relays_and_learnt_scores_stay() {
    let mut random = seeded(6);
    let mut adaptive = following(&[0.5, 0.4, 0.3]);
    adaptive.learn(&[("r1".into(), 2.0)], &mut random);
    adaptive.follow(&[("r1".into(), 0.1), ("r2".into(), 0.7), ("new".into(), 0.6)]);
    let now: Vec<_> = adaptive.known().iter().map(|k| (&*k.relay, k.score, k.tried)).collect();
    assert_eq!(now, [("r1", 1.2, 1), ("r2", 0.7, 0), ("new", 0.6, 0)]);
    adaptive.candidates(0, Draw::Top, &mut random);
    adaptive.follow(&[]);
    assert_eq!((adaptive.known().len(), adaptive.test()), (0, None));
    assert!(adaptive.candidates(3, Draw::Proportional, &mut random).is_empty());
    let long: Vec<f64> = (0..2_000).map(f64::from).collect();
    let kept = following(&long);
    assert_eq!((kept.known().len(), &*kept.known()[0].relay), (MOST_KNOWN, "r100"));
}

#[test]
fn a_damaged_file_is_repaired() {
    let text = r#"{"known":[{"relay":"a","score":-3.0,"tried":1},{"relay":"b","score":1e300,"tried":2},
        {"relay":"a","score":1.0,"tried":9}],"test":"gone"}"#;
    let adaptive: AdaptiveRelays = serde_json::from_str(text).unwrap();
    let known: Vec<_> = adaptive.known().iter().map(|k| (&*k.relay, k.score)).collect();
    assert_eq!((known, adaptive.test()), (vec![("b", MOST_GAIN), ("a", 0.0)], None));
    assert!(serde_json::from_str::<AdaptiveRelays>(r#"{"known":7}"#).is_err());
    assert_eq!(serde_json::from_str::<AdaptiveRelays>("{}").unwrap(), AdaptiveRelays::default());
}
