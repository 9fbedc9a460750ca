//! The ledger, on both databases.

use super::{Home, on_both};
use crate::store::{
    Batch, Disagreement, NodeChange, NodeState, Sample, Store, Topic,
    ledger::{KEPT, SAMPLES_KEPT, WINDOW},
};
use std::time::Duration;
use thalweg_measure::{Bound, Method, Metric};
use thalweg_units::{NodeId, WallTime};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn host(n: u8) -> NodeId {
    NodeId::from_bytes([n; 32])
}

/// A date relative to the beginning of a window.
fn at(after: Duration) -> WallTime {
    let begin = 80_000 * WINDOW.as_nanos() as u64;
    WallTime::from_unix_nanos(begin + after.as_nanos() as u64)
}

fn topic(from: u8, to: u8) -> Topic {
    Topic {
        from: host(from),
        to: host(to),
        metric: Metric::Throughput,
        method: Method::Transfer,
        bound: Bound::Exact,
        reporter: host(from),
    }
}

fn sample(from: u8, to: u8, value: f64, after: Duration) -> Sample {
    Sample {
        topic: topic(from, to),
        order: None,
        value,
        spread: Some(3.0),
        bytes: 1000,
        measured: at(after),
        seen: Some(value - 1.0),
    }
}

fn of(samples: Vec<Sample>) -> Batch {
    Batch { samples, ..Batch::default() }
}

async fn recent(store: &Store, age: Duration, now: Duration) -> Vec<Sample> {
    store.load_recent(at(now.saturating_sub(age))).await.unwrap().samples
}

on_both!(
    a_recorded_batch_is_read_back_unchanged,
    second_answers_to_an_order_are_ignored,
    the_latest_recorded_sample_of_a_topic_wins,
    every_oracle_reads_what_another_recorded,
    rows_become_visible_in_the_order_of_their_numbers,
    old_samples_are_merged_by_topic_and_window,
    concurrent_compactions_count_each_sample_once,
    a_late_sample_is_merged_into_its_summary,
    old_rows_expire_and_a_clock_ahead_deletes_little,
    a_batch_of_many_pages_is_read_completely,
);

async fn a_recorded_batch_is_read_back_unchanged(home: Home) {
    let store = home.open().await;
    let rtt = Topic { metric: Metric::RoundTrip, method: Method::TcpInfo, ..topic(1, 2) };
    let loss = Topic { metric: Metric::Loss, bound: Bound::AtLeast, ..topic(2, 1) };
    let exact = Sample { order: Some(7), ..sample(1, 2, 123_456_789_012.0, HOUR) };
    let bare =
        Sample { spread: None, seen: None, topic: rtt, value: 0.012_345_678, ..exact.clone() };
    let bare = Sample { order: Some(u64::from(u32::MAX) << 31), ..bare };
    let lost = Sample { topic: loss, value: 0.25, spread: Some(0.125), ..sample(2, 1, 1.0, HOUR) };
    let lost = Sample { seen: None, ..lost };
    let change =
        |state, why: &str| NodeChange { node: host(2), state, why: why.into(), at: at(HOUR) };
    let disagreement = Disagreement {
        from: host(1),
        to: host(2),
        by: host(1),
        claimed: 1e12,
        seen: Some(1e6),
        believed: None,
        at: at(HOUR),
    };
    let batch = Batch {
        samples: vec![exact, bare, lost],
        changes: vec![
            change(NodeState::Down, "no answer, \"really\" – 'so'"),
            change(NodeState::Up, ""),
        ],
        disagreements: vec![disagreement],
    };
    let done = store.record(&batch).await.unwrap();
    assert_eq!((done.samples, done.duplicates), (3, 0));
    let mut read = store.load_since(0).await.unwrap();
    assert_eq!(read.samples, batch.samples);
    assert_eq!(read.changes, batch.changes);
    assert_eq!(read.disagreements, batch.disagreements);
    assert!(store.load_since(read.cursor).await.unwrap().samples.is_empty());
    let again = store.load_recent(at(Duration::ZERO)).await.unwrap();
    let by_topic = |s: &Sample| s.topic;
    read.samples.sort_by_key(by_topic);
    assert_eq!(again, read);
}

async fn second_answers_to_an_order_are_ignored(home: Home) {
    let store = home.open().await;
    let first = Sample { order: Some(1), ..sample(1, 2, 10.0, HOUR) };
    let lie = Sample { value: 99.0, ..first.clone() };
    let by_other_end =
        Sample { topic: Topic { reporter: host(2), ..first.topic }, value: 9.0, ..first.clone() };
    let batch = of(vec![first.clone(), lie.clone(), by_other_end.clone()]);
    let done = store.record(&batch).await.unwrap();
    assert_eq!((done.samples, done.duplicates), (2, 1));
    let done = store.record(&of(vec![lie])).await.unwrap();
    assert_eq!((done.samples, done.duplicates), (0, 1));
    assert_eq!(store.load_since(0).await.unwrap().samples, [first, by_other_end]);
    // Unsolicited samples each count.
    let free = sample(1, 2, 5.0, HOUR);
    let done = store.record(&of(vec![free.clone(), free])).await.unwrap();
    assert_eq!((done.samples, done.duplicates), (2, 0));
}

async fn the_latest_recorded_sample_of_a_topic_wins(home: Home) {
    let store = home.open().await;
    // Recorded first, by a clock that was ahead by a year.
    let ahead = sample(1, 2, 1.0, 400 * DAY);
    let right = sample(1, 2, 2.0, HOUR);
    let other = Sample { topic: Topic { bound: Bound::AtLeast, ..topic(1, 2) }, ..right.clone() };
    store.record(&of(vec![ahead, right.clone(), other.clone()])).await.unwrap();
    assert_eq!(recent(&store, DAY, DAY).await, [right, other]);
    assert!(recent(&store, HOUR, DAY).await.is_empty(), "too old");
}

async fn every_oracle_reads_what_another_recorded(home: Home) {
    let (a, b) = (home.open().await, home.open().await);
    let mut cursor = b.load_since(0).await.unwrap().cursor;
    for n in 0..5 {
        let one = sample(1, n + 2, f64::from(n), HOUR);
        a.record(&of(vec![one.clone()])).await.unwrap();
        let new = b.load_since(cursor).await.unwrap();
        assert_eq!(new.samples, [one]);
        cursor = new.cursor;
    }
    let history = b.history(&host(1), &host(4), at(Duration::ZERO)).await.unwrap();
    let [one] = &history[..] else { panic!("{history:?}") };
    assert_eq!((one.median, one.count, one.start), (2.0, 1, at(HOUR)));
    assert!(b.history(&host(4), &host(1), at(Duration::ZERO)).await.unwrap().is_empty());
}

/// A reader that continues from its cursor misses no row of several writers.
async fn rows_become_visible_in_the_order_of_their_numbers(home: Home) {
    let reader = home.open().await;
    let mut writers = Vec::new();
    for n in 1..=4 {
        let store = home.open().await;
        writers.push(tokio::spawn(async move {
            for k in 0..20 {
                store.record(&of(vec![sample(n, n + 10, f64::from(k), HOUR)])).await.unwrap();
            }
        }));
    }
    let (mut seen, mut cursor) = (Vec::new(), 0);
    loop {
        let is_over = writers.iter().all(|writer| writer.is_finished());
        let new = reader.load_since(cursor).await.unwrap();
        cursor = new.cursor;
        seen.extend(new.samples.iter().map(|s| (s.topic.from, s.value as u32)));
        if is_over && new.samples.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 80);
    for n in 1..=4 {
        let of_one: Vec<_> = seen.iter().filter(|s| s.0 == host(n)).map(|s| s.1).collect();
        assert_eq!(of_one, (0..20).collect::<Vec<_>>());
    }
}

async fn old_samples_are_merged_by_topic_and_window(home: Home) {
    let store = home.open().await;
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let mut samples: Vec<_> =
        [9.0, 1.0, 5.0].iter().zip(1..).map(|(v, n)| sample(1, 2, *v, minutes(n))).collect();
    samples.push(sample(1, 2, 100.0, WINDOW + minutes(1)));
    samples.push(sample(2, 1, 7.0, minutes(1)));
    let young = sample(1, 2, 50.0, SAMPLES_KEPT + 2 * WINDOW);
    samples.push(young.clone());
    store.record(&of(samples)).await.unwrap();
    // A window is old enough two days after its end.
    let early = store.compact(at(SAMPLES_KEPT + WINDOW - minutes(1))).await.unwrap();
    assert_eq!((early.merged, early.dropped), (0, 0));
    let done = store.compact(at(SAMPLES_KEPT + WINDOW)).await.unwrap();
    assert_eq!((done.merged, done.dropped), (4, 0));
    let history = store.history(&host(1), &host(2), at(minutes(2))).await.unwrap();
    let told: Vec<_> = history.iter().map(|p| (p.median, p.least, p.most, p.count)).collect();
    assert_eq!(told, [(5.0, 1.0, 9.0, 3), (100.0, 100.0, 100.0, 1), (50.0, 50.0, 50.0, 1)]);
    assert_eq!(history[0].start, at(Duration::ZERO));
    let known = recent(&store, 4 * DAY, 3 * DAY).await;
    let back = known.iter().find(|s| s.topic.from == host(2)).unwrap();
    assert_eq!((back.value, back.measured), (7.0, at(WINDOW / 2)));
    assert_eq!(known.iter().find(|s| s.topic.from == host(1)), Some(&young));
    assert_eq!(store.compact(at(SAMPLES_KEPT + WINDOW)).await.unwrap().merged, 0);
}

async fn concurrent_compactions_count_each_sample_once(home: Home) {
    let (a, b) = (home.open().await, home.open().await);
    let many = (0..600).map(|n| sample(1, (n % 60) as u8 + 2, f64::from(n), HOUR)).collect();
    a.record(&of(many)).await.unwrap();
    let now = at(10 * DAY);
    let (x, y) = tokio::join!(a.compact(now), b.compact(now));
    // If both came to the same topics, one of them merged them; the next call merges the rest.
    let rest = a.compact(now).await.unwrap().merged;
    assert_eq!(x.unwrap().merged + y.unwrap().merged + rest, 600);
    for n in 0..60 {
        let history = a.history(&host(1), &host(n + 2), at(Duration::ZERO)).await.unwrap();
        assert_eq!(history.iter().map(|p| p.count).collect::<Vec<_>>(), [10], "{n}");
    }
}

async fn a_late_sample_is_merged_into_its_summary(home: Home) {
    let store = home.open().await;
    let three = [10.0, 20.0, 30.0].map(|value| sample(1, 2, value, HOUR));
    store.record(&of(three.into())).await.unwrap();
    store.compact(at(10 * DAY)).await.unwrap();
    store.record(&of(vec![sample(1, 2, 60.0, HOUR)])).await.unwrap();
    assert_eq!(store.compact(at(10 * DAY)).await.unwrap().merged, 1);
    let history = store.history(&host(1), &host(2), at(Duration::ZERO)).await.unwrap();
    let [past] = &history[..] else { panic!("{history:?}") };
    assert_eq!((past.median, past.least, past.most, past.count), (30.0, 10.0, 60.0, 4));
}

async fn old_rows_expire_and_a_clock_ahead_deletes_little(home: Home) {
    let store = home.open().await;
    let windows = 8;
    let samples = (0..windows).map(|n| sample(1, 2, 5.0, n * WINDOW + HOUR)).collect();
    let change =
        NodeChange { node: host(1), state: NodeState::Down, why: "x".into(), at: at(HOUR) };
    let batch = Batch { changes: vec![change], ..of(samples) };
    store.record(&batch).await.unwrap();
    for _ in 0..windows {
        store.compact(at(SAMPLES_KEPT + windows * WINDOW)).await.unwrap();
    }
    let all = || async { store.history(&host(1), &host(2), at(Duration::ZERO)).await.unwrap() };
    assert_eq!(all().await.len(), windows as usize);
    assert_eq!(store.compact(at(KEPT)).await.unwrap().dropped, 0);
    let done = store.compact(at(KEPT + WINDOW)).await.unwrap();
    assert_eq!((done.dropped, all().await.len()), (1 + 1, windows as usize - 1));
    // A clock a year ahead: two windows are deleted, not all.
    assert_eq!(store.compact(at(365 * DAY)).await.unwrap().dropped, 2);
    assert_eq!(all().await.len(), windows as usize - 3);
}

async fn a_batch_of_many_pages_is_read_completely(home: Home) {
    let store = home.open().await;
    let count = 12_345;
    let samples: Vec<_> =
        (0..count).map(|n| sample((n % 200) as u8, (n / 200) as u8, f64::from(n), HOUR)).collect();
    let done = store.record(&of(samples.clone())).await.unwrap();
    assert_eq!((done.samples, done.duplicates), (count as usize, 0));
    let (mut read, mut cursor) = (Vec::new(), 0);
    loop {
        let page = store.load_since(cursor).await.unwrap();
        if page.samples.is_empty() {
            break;
        }
        cursor = page.cursor;
        read.extend(page.samples);
    }
    assert_eq!(read, samples);
    assert_eq!(recent(&store, DAY, DAY).await.len(), count as usize);
}
