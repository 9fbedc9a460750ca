//! Members that lie in their reports, or respond again after an outage.

use crate::fake::{BYTES, Claims, Fake, done, number, rate, received, settings};
use std::time::Duration;
use thalweg_oracle::{MeasureConfig, Pace};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::measure::{CandidatesReply, OrderReport, Orders, Outcome, Reports};

fn failed(id: u64, is_down: bool, bytes: u64) -> Reports {
    let outcome = Outcome::Failed { why: "no route\n to it".into(), is_down, bytes };
    Reports { done: vec![OrderReport { id, outcome }], ..Reports::default() }
}

/// Serves each order by one member at a time, until the condition holds.
async fn serve(mesh: &Fake, nodes: usize, unreached: usize, is_down: bool) {
    let what = async {
        while mesh.paths(0).await.down.is_empty() == is_down {
            for n in 0..nodes {
                let path = "/v1/measure/orders?wait_s=0";
                let answer: Orders = mesh.ask(n, path).await.result().unwrap();
                for order in answer.orders {
                    let to = number(order.to.as_str());
                    if to == unreached {
                        mesh.report(n, &failed(order.id, true, 0)).await;
                        continue;
                    }
                    let seen = received(order.id, &format!("n{n}"), rate(n, to));
                    mesh.report(to, &seen).await;
                    mesh.report(n, &done(order.id, rate(n, to))).await;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("never down");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_relay_is_probed_and_comes_up_again() {
    let pace = Pace { rest: Duration::from_millis(500), ..settings().pace };
    let mesh = Fake::start(4, MeasureConfig { pace, ..settings() }).await;
    for n in 0..4 {
        mesh.report(n, &Reports::default()).await;
    }
    serve(&mesh, 4, 3, true).await;
    let down = mesh.paths(0).await.down;
    assert_eq!(down.iter().map(|d| d.node.as_str()).collect::<Vec<_>>(), ["n3"]);
    // The firewall is repaired.
    mesh.work(0..4, u64::MAX, rate);
    let paths = mesh.until("it is up", |p| p.down.is_empty()).await;
    assert!(paths.legs.iter().any(|leg| leg.to == 3), "{:?}", paths.legs);
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_byte_count_costs_the_other_end_at_most_what_was_ordered() {
    let mesh = Fake::start(4, settings()).await;
    mesh.work(1..4, u64::MAX, rate);
    let order = mesh.order(0).await;
    let victim = number(order.to.as_str()) as u32;
    assert_eq!(mesh.report(0, &failed(order.id, false, u64::MAX)).await.accepted, 1);
    mesh.work(0..1, u64::MAX, rate);
    mesh.until("the victim is measured", |p| {
        p.legs.iter().filter(|leg| leg.from == victim || leg.to == victim).count() >= 6
    })
    .await;
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_hides_bytes_is_charged_what_the_receiver_reports() {
    // A day's budget is two measurements.
    let bytes_per_day = ByteSize::from_bytes(2 * BYTES);
    let mesh = Fake::start(2, MeasureConfig { bytes_per_day, ..settings() }).await;
    for first in [true, false] {
        let (from, order) = tokio::select! {
            order = mesh.order(0) => (0, order),
            order = mesh.order(1) => (1, order),
        };
        let mut sent = done(order.id, 1e6);
        let Outcome::Measured { bytes, .. } = &mut sent.done[0].outcome else { unreachable!() };
        *bytes = 0;
        let seen = received(order.id, &format!("n{from}"), 1e6);
        // The receiver reports first, and the second time last.
        if first {
            mesh.report(1 - from, &seen).await;
        }
        mesh.report(from, &sent).await;
        if !first {
            mesh.report(1 - from, &seen).await;
        }
    }
    let measuring = mesh.paths(0).await.measuring.unwrap();
    let spent: Vec<_> = measuring.spent.iter().map(|s| s.node.as_str()).collect();
    assert!(measuring.enabled && spent == ["n0", "n1"], "{measuring:?}");
    let day = Duration::from_secs(24 * 3600);
    assert!(measuring.spent.iter().all(|s| s.free_in.is_some_and(|free| free >= day - LEEWAY)));
    mesh.stop().await;
}

/// The budget is accounted by the hour.
const LEEWAY: Duration = Duration::from_secs(3600);

const LIAR: usize = 11;

fn truth(i: usize, j: usize) -> f64 {
    match (i, j) {
        (_, LIAR) => 2e5,
        (LIAR, _) => 5e7,
        _ => rate(i, j),
    }
}

/// Senders report what they counted; the liar reports any number.
fn boasting_receiver(i: usize, j: usize) -> (f64, f64) {
    (truth(i, j), if j == LIAR { 9e10 } else { truth(i, j) })
}

async fn ranked(says: Claims) -> (Fake, CandidatesReply) {
    let mesh = Fake::start(12, settings()).await;
    mesh.work_saying(0..12, u64::MAX, says);
    mesh.until("all", |p| p.legs.len() == 132).await;
    loop {
        let told = mesh.candidates(0, "strategy=oblivious&m=11").await;
        if told.measured == 132 {
            return (mesh, told);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boasting_receiver_is_blamed_and_does_not_rise_in_the_ranking() {
    let place = |told: &CandidatesReply| {
        let liar = format!("n{LIAR}");
        told.candidates.iter().position(|c| c.relay.as_str() == liar).unwrap()
    };
    let (honest, before) = ranked(Claims::Alike(truth)).await;
    honest.stop().await;
    let (mesh, after) = ranked(Claims::Each(boasting_receiver)).await;
    assert!(place(&after) >= place(&before), "{before:?} {after:?}");
    let paths = mesh.paths(0).await;
    assert_eq!(paths.disagreements.len(), 11);
    for shown in &paths.disagreements {
        assert_eq!((shown.by.as_str(), shown.to.as_str()), ("n11", "n11"));
        assert_eq!((shown.seen_bps, shown.believed_bps), (Some(2e5), Some(2e5)));
    }
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invented_measurement_is_contradicted_by_a_silent_receiver() {
    let pace = Pace { settle: Duration::from_millis(300), ..settings().pace };
    let mesh = Fake::start(6, MeasureConfig { pace, ..settings() }).await;
    for n in 1..6 {
        mesh.report(n, &Reports::default()).await;
    }
    // The node has shown 50 Mbit/s to several peers.
    mesh.work(1..6, u64::MAX, |_, j| if j == 0 { 5e7 } else { 1e6 });
    let contradicted = async {
        loop {
            let path = "/v1/measure/orders?wait_s=1";
            let answer: Orders = mesh.ask(0, path).await.result().unwrap();
            for order in answer.orders {
                mesh.report(0, &done(order.id, 9e10)).await;
            }
            let paths = mesh.paths(1).await;
            if paths.disagreements.len() >= 3 {
                return paths;
            }
        }
    };
    let paths = tokio::time::timeout(Duration::from_secs(120), contradicted).await.unwrap();
    for shown in &paths.disagreements {
        assert_eq!((shown.by.as_str(), shown.claimed_bps), ("n0", 9e10));
        assert_eq!((shown.seen_bps, shown.believed_bps), (None, None));
    }
    let own = paths.legs.iter().filter(|leg| leg.from == 0);
    assert!(own.clone().count() > 0 && own.clone().all(|leg| leg.at_least), "{paths:?}");
    mesh.stop().await;
}

#[tokio::test]
async fn a_busy_end_is_no_failure_and_the_last_failure_is_shown_with_its_reason() {
    let mesh = Fake::start(3, settings()).await;
    mesh.work(1..3, u64::MAX, rate);
    let order = mesh.order(0).await;
    let busy = OrderReport { id: order.id, outcome: Outcome::Busy };
    mesh.report(0, &Reports { done: vec![busy], ..Reports::default() }).await;
    assert_eq!(mesh.oracle.measured().failed, 0);
    assert_eq!(mesh.paths(0).await.measuring.unwrap().failed, None);
    let order = mesh.order(0).await;
    mesh.report(0, &failed(order.id, false, 0)).await;
    assert_eq!(mesh.oracle.measured().failed, 1);
    let told = mesh.paths(0).await.measuring.unwrap().failed.unwrap();
    assert_eq!((told.from.as_str(), &told.to), ("n0", &order.to));
    assert_eq!(told.why, "no route to it", "without control characters");
    mesh.stop().await;
}

#[tokio::test]
async fn disabled_measuring_is_reported() {
    let mesh = Fake::start(2, MeasureConfig { enabled: false, ..settings() }).await;
    let measuring = mesh.paths(0).await.measuring.unwrap();
    assert!(!measuring.enabled && measuring.spent.is_empty() && measuring.failed.is_none());
    mesh.stop().await;
}
