//! Streams over the HTTP API: reports and plans.

use crate::{
    fake::{Fake, settings},
    harness::{Host, get, peer, post},
};
use std::time::Duration;
use thalweg_oracle::Caller;
use thalweg_wire::{
    Signer as _,
    mesh::{
        Name,
        measure::{Reports, TrainReport},
    },
    stream::{
        leg::Track,
        plan::{LegReport, Plan, Preference, Published, Reason, Reply, Report, Subscription},
    },
};

const REPORT: &str = "/v1/streams/report";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn publishes(allow: &str) -> Report {
    let track = Track { label: String::new(), rates: [0, 0, 216_000, 488_000, 456_000] };
    let allow = vec![allow.to_owned()];
    let published =
        Published { stream: name("stage"), tracks: vec![track], allow, age: Duration::ZERO };
    Report { published: vec![published], ..Report::default() }
}

fn wants() -> Report {
    let wanted = Subscription {
        id: 4,
        stream: name("stage"),
        preferences: Preference::defaults(),
        weight: 1.0,
        latency: Duration::from_secs(1),
        tracks: Vec::new(),
        gets: None,
        gets_track: None,
    };
    Report { subscriptions: vec![wanted], ..Report::default() }
}

async fn send_report(mesh: &Fake, n: usize, report: &Report) -> Reply {
    post(&mesh.oracle, mesh.caller(n), REPORT, report).await.result().unwrap()
}

/// The next plan of this node that meets the condition. Both nodes continue to report meanwhile.
async fn next_plan(mesh: &Fake, n: usize, reports: &[Report], is: impl Fn(&Plan) -> bool) -> Plan {
    let mut version = 0;
    loop {
        for (n, report) in reports.iter().enumerate() {
            send_report(mesh, n, report).await;
        }
        let answer = mesh.ask(n, &format!("/v1/streams/plan?after={version}&wait_s=1")).await;
        if answer.status == 204 {
            continue;
        }
        let plan: Plan = answer.result().unwrap();
        version = plan.version;
        if is(&plan) {
            return plan;
        }
    }
}

fn preference_with_reason(plan: &Plan, reason: Reason) -> Option<u8> {
    let given = &plan.streams.first()?.subscriptions.first()?;
    (given.why.reason == reason).then_some(given.preference).flatten()
}

#[tokio::test]
async fn a_subscriber_gets_a_parent_and_is_lowered_and_raised_by_train_results() {
    let mesh = Fake::start(2, settings()).await;
    let mut reports = [publishes("n1"), wants()];
    let plan = next_plan(&mesh, 1, &reports, |plan| {
        preference_with_reason(plan, Reason::Begun) == Some(0)
    })
    .await;
    assert_eq!(plan.streams[0].parent, Some(name("n0")));
    let reply = send_report(&mesh, 1, &Report { version: plan.version, ..wants() }).await;
    assert_eq!((reply.version, reply.plan), (plan.version, None));
    reports[0].legs = vec![LegReport {
        to: name("n1"),
        sent_bps: 800_000,
        wanted_bps: 1_160_000,
        is_limited: true,
        is_down: false,
        dropped: [0, 0, 0, 0, 9],
        delay: None,
        span: Duration::from_secs(1),
        age: Duration::ZERO,
        measured: None,
    }];
    let plan = next_plan(&mesh, 1, &reports, |plan| {
        preference_with_reason(plan, Reason::Lowered) == Some(1)
    })
    .await;
    let why = &plan.streams[0].subscriptions[0].why;
    assert_eq!(why.leg, Some((name("n0"), name("n1"))));
    // Results of trains arrive in the reports of measurements.
    reports[0].legs[0].is_limited = false;
    let mut id = 0;
    loop {
        id += 1;
        let found = TrainReport {
            id,
            to: name("n1"),
            low_bps: 2e6,
            high_bps: 2.5e6,
            at_least: false,
            bytes: 500_000,
            age: Duration::ZERO,
        };
        mesh.report(0, &Reports { probed: vec![found], ..Reports::default() }).await;
        send_report(&mesh, 0, &reports[0]).await;
        let plan = send_report(&mesh, 1, &reports[1]).await.plan.unwrap();
        if preference_with_reason(&plan, Reason::Raised) == Some(0) {
            let why = &plan.streams[0].subscriptions[0].why;
            assert!(why.estimate.unwrap().is_measured);
            break;
        }
        tokio::task::yield_now().await;
    }
    mesh.stop().await;
}

#[tokio::test]
async fn invalid_reports_are_refused_and_strangers_get_nothing() {
    let mesh = Fake::start(2, settings()).await;
    let stranger = peer(Host::new("x").node.id());
    for caller in [stranger, Caller::Local] {
        let refused = post(&mesh.oracle, caller, REPORT, &Report::default()).await.refusal();
        assert_eq!(refused, (403, "not_member".into()));
        let refused = get(&mesh.oracle, caller, "/v1/streams/plan").await.refusal();
        assert_eq!(refused, (403, "not_member".into()));
    }
    let mut twice = publishes("*");
    twice.published.push(twice.published[0].clone());
    let refused = post(&mesh.oracle, mesh.caller(0), REPORT, &twice).await;
    assert_eq!(refused.refusal(), (400, "bad_request".into()));
    let refused = mesh.ask(0, "/v1/streams/plan?after=x").await.refusal();
    assert_eq!(refused, (400, "bad_request".into()));
    assert!(send_report(&mesh, 0, &publishes("*")).await.refused.is_empty());
    let reply = send_report(&mesh, 1, &publishes("*")).await;
    assert_eq!(reply.refused, ["`stage` is already published at n0"]);
    assert_eq!(mesh.ask(0, "/v1/streams/plan?wait_s=0").await.status, 204);
    mesh.stop().await;
}
