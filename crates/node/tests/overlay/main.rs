//! The measurement overlay: two nodes on loopback, and an oracle that gets the results of one of them.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod calm;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../fixtures/members.rs"]
mod members;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../prober/oracle.rs"]
mod oracle;
mod scene;

use scene::{Host, PER_DAY, Scene, busy, calm, quick};
use thalweg_measure::overlay::OverlaySettings;
use thalweg_probe::overlay::OverlayRunSettings;
use thalweg_wire::mesh::measure::TrainReport;

/// What trains reported to the oracle.
async fn heard(scene: &Scene) -> TrainReport {
    loop {
        if let Some(probed) = scene.oracle.report().await.probed.pop() {
            return probed;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_use_is_measured_and_reported_to_the_oracle() {
    let scene = Scene::start(Host::Uses, calm(), quick()).await;
    let found = heard(&scene).await;
    println!("{found:?}\n{}", scene.counts.report());
    assert_eq!(found.to, members::name(1));
    assert!(found.id > 0 && found.high_bps >= found.low_bps && found.high_bps > 0.0);
    // Pathload's trains, because a link in use needs a range.
    assert!(found.bytes > 10_000, "{found:?}");
    let spent = PER_DAY - scene.purse.left().as_bytes();
    assert!(spent >= found.bytes, "{spent} of the day's bytes were paid");
    let report = scene.counts.report();
    let ended = report["measured"].as_u64().unwrap() + report["at_least"].as_u64().unwrap();
    assert!(ended >= 1 && report["bytes"].as_u64().unwrap() >= found.bytes, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_over_which_the_daemon_serves_files_is_in_use() {
    // A link without traffic gets no share of the bytes, and is not measured.
    let core = OverlaySettings { share: 0.0, ..OverlaySettings::default() };
    let scene = Scene::start(Host::Serves, calm(), OverlayRunSettings { core, ..quick() }).await;
    scene.until_by("Trains").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_without_traffic_are_measured_as_well() {
    let scene = Scene::start(Host::Idles, calm(), quick()).await;
    assert_eq!(heard(&scene).await.to, members::name(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_calm_sends_nothing() {
    let run = OverlayRunSettings { accepts_busy: false, ..quick() };
    let scene = Scene::start(Host::Uses, busy(), run).await;
    scene.until("it was too busy", |report| report["busy"] == 1).await;
    assert_eq!(scene.counts.report()["bytes"], 0);
    assert_eq!(scene.purse.left().as_bytes(), PER_DAY);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_member_is_a_failure_and_costs_nothing() {
    let mut scene = Scene::start(Host::Uses, calm(), quick()).await;
    scene.far_leaves().await;
    scene.until("it failed", |report| report["failed"].as_u64() >= Some(1)).await;
}
