//! Requests that the API refuses, entirely or in part.

use crate::{
    fake::{Fake, done, received, settings},
    harness::{Host, get, peer, post},
};
use std::time::Duration;
use thalweg_oracle::{Caller, Event, MeasureConfig, MeasureEvent, Pace};
use thalweg_wire::{
    Signer as _,
    mesh::measure::{
        CandidatesReply, Load, OrderReport, Outcome, PassiveReport, Reports, TrainReport,
    },
};

fn watched(from: &str, to: &str, bps: f64) -> Reports {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    let age = Duration::from_secs(1);
    let watched = PassiveReport { id: 0, from, to, bps, at_least: false, bytes: 5_000_000, age };
    Reports { passive: vec![watched], ..Reports::default() }
}

#[tokio::test]
async fn only_members_report_and_invalid_queries_are_refused() {
    let mesh = Fake::start(2, settings()).await;
    let stranger = peer(Host::new("x").node.id());
    for path in ["/v1/measure/orders", "/v1/candidates", "/v1/paths"] {
        let refused = get(&mesh.oracle, stranger, path).await.refusal();
        assert_eq!(refused, (403, "not_member".into()), "{path}");
    }
    let local = post(&mesh.oracle, Caller::Local, "/v1/measure/reports", &Reports::default()).await;
    assert_eq!(local.refusal(), (403, "not_member".into()));
    for path in ["/v1/candidates?strategy=best", "/v1/candidates?m=-1", "/v1/paths?after=x"] {
        assert_eq!(mesh.ask(0, path).await.refusal(), (400, "bad_request".into()), "{path}");
    }
    mesh.stop().await;
}

#[tokio::test]
async fn a_member_reports_only_its_own_legs_and_unknown_names_are_refused() {
    let mesh = Fake::start(3, settings()).await;
    let reply = mesh.report(0, &watched("n1", "n2", 1e6)).await;
    assert!(reply.accepted == 0 && reply.refused[0].contains("n1 → n2"), "{reply:?}");
    let reply = mesh.report(0, &watched("n0", "nobody", 1e6)).await;
    assert_eq!(reply.refused, ["no member is named nobody"]);
    let reply = mesh.report(0, &done(77, 1e6)).await;
    assert!(reply.refused[0].contains("order 77 is not known"), "{reply:?}");
    let reply = mesh.report(0, &watched("n0", "n1", 2e11)).await;
    assert!(reply.refused[0].contains("2e11 bit/s"), "{reply:?}");
    let old = Duration::from_secs(15 * 24 * 3600);
    let mut aged = watched("n0", "n1", 1e6);
    aged.passive[0].age = old;
    assert!(mesh.report(0, &aged).await.refused[0].contains("two weeks"));
    assert_eq!(mesh.paths(0).await.legs, vec![], "nothing entered");
    let events = mesh.stop().await;
    let told = |e: &Event| matches!(e, Event::Measuring(MeasureEvent::Refused { .. }));
    assert!(events.iter().any(told), "{events:?}");
}

#[tokio::test]
async fn a_passive_claim_is_a_lower_bound_until_the_other_end_agrees() {
    let mesh = Fake::start(2, settings()).await;
    assert_eq!(mesh.report(0, &watched("n0", "n1", 8e6)).await.accepted, 1);
    let paths = mesh.paths(0).await;
    assert!(paths.legs.len() == 1 && paths.legs[0].at_least, "{paths:?}");
    mesh.report(1, &watched("n0", "n1", 7e6)).await;
    let paths = mesh.paths(0).await;
    assert_eq!((paths.legs[0].at_least, paths.legs[0].bps), (false, 7e6));
    mesh.stop().await;
}

fn probed(to: &str, low: f64, high: f64) -> Reports {
    let (to, age) = (to.parse().unwrap(), Duration::ZERO);
    let (low_bps, high_bps) = (low * 1e6, high * 1e6);
    let found = TrainReport { id: 7, to, low_bps, high_bps, at_least: false, bytes: 500_000, age };
    Reports { probed: vec![found], ..Reports::default() }
}

#[tokio::test]
async fn train_results_are_shown_with_their_range_and_invalid_ones_refused() {
    let mesh = Fake::start(2, settings()).await;
    for (bad, why) in [
        (probed("n0", 1.0, 2.0), "there is no leg"),
        (probed("nobody", 1.0, 2.0), "no member"),
        (probed("n1", 3.0, 2.0), "ends before it begins"),
        (probed("n1", 3.0, 2e5), "bit/s"),
    ] {
        let reply = mesh.report(0, &bad).await;
        assert!(reply.accepted == 0 && reply.refused[0].contains(why), "{reply:?}");
    }
    let mut old = probed("n1", 1.0, 2.0);
    old.probed[0].age = Duration::from_secs(3601);
    assert!(mesh.report(0, &old).await.refused[0].contains("an hour"));
    assert_eq!(mesh.report(0, &probed("n1", 4.0, 6.0)).await.accepted, 1);
    assert_eq!(mesh.report(0, &probed("n1", 4.0, 6.0)).await.accepted, 0, "told again");
    let paths = mesh.paths(0).await;
    let leg = &paths.legs[0];
    assert_eq!((leg.method.as_str(), leg.at_least, leg.bps), ("train", true, 5e6));
    let found = leg.available.as_ref().unwrap();
    assert_eq!((found.bps, found.spread_bps, found.at_least), (5e6, Some(1e6), false));
    assert_eq!(mesh.candidates(0, "").await.measured, 0, "one end's word is no rate");
    assert_eq!((mesh.oracle.measured().probed, mesh.oracle.measured().repeated), (1, 1));
    mesh.stop().await;
}

#[tokio::test]
async fn a_ranking_uses_recent_train_results() {
    let mesh = Fake::start(3, settings()).await;
    // The detour by n2 is no faster than the direct leg.
    mesh.work(0..3, u64::MAX, |_, _| 10e6);
    mesh.until("all is measured", |p| p.legs.len() == 6).await;
    while mesh.candidates(0, "").await.measured < 6 {
        tokio::task::yield_now().await;
    }
    let score = |reply: &CandidatesReply| {
        reply.candidates.iter().find(|c| c.relay.as_str() == "n2").map_or(0.0, |c| c.score)
    };
    assert_eq!(score(&mesh.candidates(0, "strategy=oblivious").await), 0.0);
    // The direct leg fills with other traffic. TCP, which is measured again now and then, measured it before.
    for id in 1.. {
        let mut found = probed("n1", 1.9, 2.1);
        found.probed[0].id = id;
        assert_eq!(mesh.report(0, &found).await.accepted, 1);
        if score(&mesh.candidates(0, "strategy=oblivious").await) > 0.0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    mesh.stop().await;
}

#[tokio::test]
async fn a_repeated_passive_report_counts_once() {
    let mesh = Fake::start(2, settings()).await;
    let mut reports = watched("n0", "n1", 8e6);
    reports.passive[0].id = 77;
    assert_eq!(mesh.report(0, &reports).await.accepted, 1);
    let again = mesh.report(0, &reports).await;
    assert_eq!((again.accepted, again.refused), (0, vec![]), "told again, it is no mistake");
    let mut other = watched("n0", "n1", 7e6);
    other.passive[0].id = 77;
    assert_eq!(mesh.report(1, &other).await.accepted, 1, "another member's number");
    let counts = mesh.oracle.measured();
    assert_eq!((counts.passive, counts.repeated), (2, 1));
    mesh.stop().await;
}

#[tokio::test]
async fn a_measurement_ended_by_its_byte_limit_is_a_planned_lower_bound() {
    let mesh = Fake::start(2, settings()).await;
    let (from, order) = tokio::select! {
        order = mesh.order(0) => (0, order),
        order = mesh.order(1) => (1, order),
    };
    let (mut sent, mut seen) = (done(order.id, 9e8), received(order.id, &format!("n{from}"), 8e8));
    // One limited end suffices: the other saw only what that one let through.
    seen.received[0].at_least = true;
    mesh.report(from, &sent).await;
    mesh.report(1 - from, &seen).await;
    let paths = mesh.until("it enters", |p| !p.legs.is_empty()).await;
    let leg = &paths.legs[0];
    assert_eq!((leg.at_least, leg.bps, leg.method.as_str()), (true, 8e8, "transfer"));
    while mesh.candidates(0, "").await.measured != 1 {
        tokio::task::yield_now().await;
    }
    // The other direction, where neither end was limited.
    let order = mesh.order(1 - from).await;
    sent.done[0].id = order.id;
    mesh.report(1 - from, &sent).await;
    mesh.report(from, &received(order.id, &format!("n{}", 1 - from), 9e8)).await;
    let paths = mesh.until("both", |p| p.legs.len() == 2).await;
    assert_eq!(paths.legs.iter().filter(|leg| leg.at_least).count(), 1);
    let counts = mesh.oracle.measured();
    assert_eq!((counts.agreed, counts.at_least, counts.ordered), (2, 1, 2), "{counts:?}");
    mesh.stop().await;
}

#[tokio::test]
async fn the_lower_report_is_believed_and_the_disagreement_shown() {
    let mesh = Fake::start(2, settings()).await;
    // Both wait for orders, so both count as present; one gets the first order.
    let (from, order) = tokio::select! {
        order = mesh.order(0) => (0, order),
        order = mesh.order(1) => (1, order),
    };
    let (sender, to) = (format!("n{from}"), 1 - from);
    let wrong = mesh.report(from, &received(order.id, &sender, 5e6)).await;
    assert!(wrong.refused[0].contains("belongs to another member"), "{wrong:?}");
    assert_eq!(mesh.report(from, &done(order.id, 9e10)).await.accepted, 1);
    assert_eq!(mesh.report(from, &done(order.id, 1e6)).await.accepted, 0, "a second report");
    assert_eq!(mesh.report(to, &received(order.id, &sender, 5e6)).await.accepted, 1);
    let again = mesh.report(to, &received(order.id, &sender, 8e6)).await;
    assert_eq!((again.accepted, again.refused), (0, vec![]), "a second report");
    let paths = mesh.paths(0).await;
    assert_eq!(paths.legs.iter().map(|leg| leg.bps).collect::<Vec<_>>(), [5e6]);
    let shown = &paths.disagreements[0];
    assert_eq!(shown.by.as_str(), sender);
    assert_eq!(
        (shown.claimed_bps, shown.seen_bps, shown.believed_bps),
        (9e10, Some(5e6), Some(5e6))
    );
    mesh.stop().await;
}

#[tokio::test]
async fn a_report_by_one_end_enters_late_and_only_as_a_lower_bound() {
    let pace = Pace { settle: Duration::ZERO, ..settings().pace };
    let mesh = Fake::start(2, MeasureConfig { pace, ..settings() }).await;
    let (from, order) = tokio::select! {
        order = mesh.order(0) => (0, order),
        order = mesh.order(1) => (1, order),
    };
    mesh.report(from, &done(order.id, 9e10)).await;
    let paths = mesh.until("it enters", |p| !p.legs.is_empty()).await;
    assert!(paths.legs[0].at_least, "{paths:?}");
    mesh.stop().await;
}

#[tokio::test]
async fn one_members_report_that_another_is_down_is_not_enough() {
    let mesh = Fake::start(2, settings()).await;
    let (from, order) = tokio::select! {
        order = mesh.order(0) => (0, order),
        order = mesh.order(1) => (1, order),
    };
    let outcome = Outcome::Failed { why: "refused".into(), is_down: true, bytes: 0 };
    let reports =
        Reports { done: vec![OrderReport { id: order.id, outcome }], ..Reports::default() };
    assert_eq!(mesh.report(from, &reports).await.accepted, 1);
    assert_eq!(mesh.paths(0).await.down, vec![]);
    mesh.stop().await;
}

#[tokio::test]
async fn a_relay_near_its_limit_is_shown_with_its_load_and_offered_last() {
    let mesh = Fake::start(4, settings()).await;
    mesh.work(0..4, u64::MAX, |i, j| if i == 1 || j == 1 { 5e7 } else { 1e7 });
    mesh.until("all", |p| p.legs.len() == 12).await;
    let first = loop {
        let told = mesh.candidates(0, "strategy=oblivious&m=3").await;
        if told.measured == 12 {
            break told;
        }
    };
    assert_eq!(first.candidates[0].relay.as_str(), "n1");
    let score = first.candidates[0].score;
    let load = Load { bps: 1e9, limit_bps: Some(1e9), sessions: 1, max_sessions: 100 };
    mesh.report(1, &Reports { load: Some(load), ..Reports::default() }).await;
    let loaded = loop {
        let told = mesh.candidates(0, "strategy=oblivious&m=3").await;
        let found = told.candidates.iter().find(|c| c.relay.as_str() == "n1").cloned().unwrap();
        if found.load.is_some() {
            break found;
        }
    };
    assert_eq!(loaded.load, Some(1.0));
    assert!(loaded.score < score / 5.0, "{} of {score}", loaded.score);
    let bad = Load { bps: f64::MAX, ..load };
    let reply = mesh.report(1, &Reports { load: Some(bad), ..Reports::default() }).await;
    assert_eq!(reply.accepted, 0, "{reply:?}");
    mesh.stop().await;
}
