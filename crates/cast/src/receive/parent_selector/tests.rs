//! Parents that fail, are slow, come back.

use super::*;
use std::sync::atomic::Ordering::Relaxed;

fn who(name: &str) -> ParentName {
    (name != "source").then(|| name.parse().unwrap())
}

fn wanted(names: &[(&str, u64)], at_once: usize) -> Parents {
    let candidate = |(name, mbps): &(&str, u64)| Candidate {
        name: who(name),
        bps: Some(mbps * 1_000_000),
        want: ServiceMode::Pull,
    };
    Parents { candidates: names.iter().map(candidate).collect(), at_once }
}

fn begin(selector: &mut ParentSelector, wanted: &Parents) -> Vec<(ParentName, Arc<ReceivedBytes>)> {
    let next = selector.next(wanted);
    let begun = next.iter().map(|candidate| {
        let got = Arc::new(ReceivedBytes::default());
        selector.begin(candidate, got.clone(), CancellationToken::new());
        (candidate.name.clone(), got)
    });
    begun.collect()
}

fn names(begun: &[(ParentName, Arc<ReceivedBytes>)]) -> Vec<ParentName> {
    begun.iter().map(|(who, _)| who.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failed_parent_is_replaced_until_it_may_be_tried_again() {
    let (mut selector, wanted) =
        (ParentSelector::default(), wanted(&[("a", 9), ("b", 5), ("source", 1)], 1));
    assert_eq!(names(&begin(&mut selector, &wanted)), [who("a")]);
    selector.end(&who("a"));
    selector.fail(who("a"), false);
    let b = begin(&mut selector, &wanted);
    assert_eq!(names(&b), [who("b")]);
    assert_eq!(begin(&mut selector, &wanted).len(), 0);
    tokio::time::advance(FIRST_WAIT).await;
    // It starts beside `b`, which stays until `a` delivers something.
    let a = begin(&mut selector, &wanted);
    assert_eq!(names(&a), [who("a")]);
    assert_eq!(selector.review(&wanted), []);
    assert!(!selector.now[&who("b")].end.is_cancelled());
    a[0].1.bytes.store(1, Relaxed);
    assert_eq!(selector.review(&wanted), []);
    assert!(
        selector.now[&who("b")].end.is_cancelled() && !selector.now[&who("a")].end.is_cancelled()
    );
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_does_not_know_the_cast_keeps_its_place_for_a_while() {
    let (mut selector, wanted) = (ParentSelector::default(), wanted(&[("a", 9), ("source", 1)], 1));
    let began = Instant::now();
    let mut tries = 0;
    let other = loop {
        let begun = names(&begin(&mut selector, &wanted));
        if begun == [who("source")] {
            break began.elapsed();
        }
        if begun == [who("a")] {
            tries += 1;
            selector.end(&who("a"));
            selector.wait_for(who("a"));
        }
        tokio::time::advance(Duration::from_millis(100)).await;
    };
    assert!(other >= MAX_AWAITED && tries >= 10, "{other:?}, {tries}");
}

#[tokio::test(start_paused = true)]
async fn corrupt_parents_are_banned_and_slow_ones_are_replaced() {
    let (mut selector, wanted) =
        (ParentSelector::default(), wanted(&[("a", 9), ("b", 8), ("c", 1)], 1));
    begin(&mut selector, &wanted);
    selector.end(&who("a"));
    selector.fail(who("a"), true);
    tokio::time::advance(10 * LONGEST_WAIT).await;
    let b = begin(&mut selector, &wanted);
    assert_eq!(names(&b), [who("b")]);
    tokio::time::advance(FIRST_SPAN).await;
    b[0].1.bytes.store(50_000, Relaxed);
    // 100 kbit/s of 8 Mbit/s.
    let left = selector.review(&wanted);
    assert_eq!(left.len(), 1);
    assert_eq!((&left[0].0, left[0].1.0), (&who("b"), Fault::Slow));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_parent_is_left_sooner_than_a_new_one() {
    let (mut selector, wanted) = (ParentSelector::default(), wanted(&[("a", 9), ("b", 8)], 1));
    let a = begin(&mut selector, &wanted);
    tokio::time::advance(LATER_SPAN).await;
    assert_eq!(selector.review(&wanted), []);
    tokio::time::advance(FIRST_SPAN - LATER_SPAN).await;
    a[0].1.bytes.store(4_500_000, Relaxed);
    assert_eq!(selector.review(&wanted), []);
    tokio::time::advance(LATER_SPAN).await;
    assert_eq!(selector.review(&wanted)[0].0, who("a"));
}

/// Lets a span pass in which each parent delivers at its rate in kbit/s.
async fn pass(begun: &[&[(ParentName, Arc<ReceivedBytes>)]], kbps: &[u64]) {
    tokio::time::advance(FIRST_SPAN).await;
    for ((_, got), kbps) in begun.iter().copied().flatten().zip(kbps) {
        got.bytes.fetch_add(kbps * 1000 / 8 * FIRST_SPAN.as_secs(), Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_parent_waits_and_is_on_trial_when_it_returns() {
    let (mut selector, wanted) =
        (ParentSelector::default(), wanted(&[("a", 9), ("b", 8), ("source", 1)], 1));
    let a = begin(&mut selector, &wanted);
    pass(&[&a], &[100]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("a"));
    selector.fail(who("a"), false);
    selector.end(&who("a"));
    let b = begin(&mut selector, &wanted);
    assert_eq!(names(&b), [who("b")]);
    pass(&[&b], &[8000]).await;
    assert_eq!((selector.review(&wanted), begin(&mut selector, &wanted).len()), (vec![], 0));
    // The wait takes five spans.
    for _ in 0..3 {
        pass(&[&b], &[8000]).await;
        assert_eq!((selector.review(&wanted), begin(&mut selector, &wanted).len()), (vec![], 0));
    }
    pass(&[&b], &[8000]).await;
    assert_eq!(selector.review(&wanted), []);
    let again = begin(&mut selector, &wanted);
    assert_eq!(names(&again), [who("a")]);
    // It delivers something, but that no longer suffices.
    pass(&[&again, &b], &[200, 8000]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("a"));
    selector.end(&who("a"));
    assert!(!selector.now[&who("b")].end.is_cancelled());
    // The second wait is twice as long.
    for _ in 0..9 {
        pass(&[&b], &[8000]).await;
        assert_eq!((selector.review(&wanted), begin(&mut selector, &wanted).len()), (vec![], 0));
    }
    pass(&[&b], &[8000]).await;
    assert_eq!(selector.review(&wanted), []);
    // Now it delivers as expected.
    let third = begin(&mut selector, &wanted);
    assert_eq!(names(&third), [who("a")]);
    pass(&[&third, &b], &[9000, 8000]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("b"));
    assert!(selector.now[&who("b")].end.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_slow_parent_is_better_than_none() {
    let (mut selector, wanted) = (ParentSelector::default(), wanted(&[("a", 9), ("b", 8)], 1));
    let a = begin(&mut selector, &wanted);
    pass(&[&a], &[100]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("a"));
    selector.end(&who("a"));
    assert_eq!(names(&begin(&mut selector, &wanted)), [who("b")]);
    selector.end(&who("b"));
    selector.fail(who("b"), false);
    assert_eq!(names(&begin(&mut selector, &wanted)), [who("a")]);
}

#[tokio::test(start_paused = true)]
async fn parents_that_share_this_host_s_line_are_not_slow() {
    let all = [("a", 40), ("b", 40), ("c", 40), ("d", 40), ("e", 40), ("source", 30)];
    let (mut selector, wanted) = (ParentSelector::default(), wanted(&all, 5));
    let begun = begin(&mut selector, &wanted);
    assert_eq!(begun.len(), 5);
    pass(&[&begun], &[8000, 9000, 8000, 7000, 8000]).await;
    assert_eq!(selector.review(&wanted), []);
    pass(&[&begun], &[8000, 9000, 8000, 7000, 80]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("e"));
}

#[tokio::test(start_paused = true)]
async fn without_a_plan_candidates_are_tried_and_the_better_one_stays() {
    let mut wanted = wanted(&[("source", 0), ("a", 0), ("b", 0)], 1);
    wanted.candidates.iter_mut().for_each(|candidate| candidate.bps = None);
    let mut selector = ParentSelector::default();
    let source = begin(&mut selector, &wanted);
    assert_eq!(names(&source), [who("source")]);
    pass(&[&source], &[1000]).await;
    assert_eq!(selector.review(&wanted), []);
    let a = begin(&mut selector, &wanted);
    assert_eq!(names(&a), [who("a")]);
    pass(&[&a, &source], &[1200, 1000]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("a"), "not by much");
    selector.end(&who("a"));
    assert_eq!(begin(&mut selector, &wanted).len(), 0, "not at once");
    for _ in 0..3 {
        pass(&[&source], &[1000]).await;
        assert_eq!(selector.review(&wanted), []);
    }
    let b = begin(&mut selector, &wanted);
    assert_eq!(names(&b), [who("b")]);
    pass(&[&b, &source], &[9000, 1000]).await;
    assert_eq!(selector.review(&wanted)[0].0, who("source"));
}
