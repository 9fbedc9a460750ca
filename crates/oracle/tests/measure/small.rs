//! Meshes too small for a detour, and clocks that jump.

use crate::{
    fake::{Fake, rate, settings},
    harness::ManualClock,
};
use std::time::Duration;
use thalweg_oracle::{MeasureConfig, ScheduleKind};
use thalweg_wire::mesh::measure::{LegEntry, PathsReply};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_measure_each_other_both_ways_with_each_schedule() {
    for schedule in [ScheduleKind::Algorithm1, ScheduleKind::Thrifty, ScheduleKind::Random] {
        let mesh = Fake::start(2, MeasureConfig { schedule, p: 0.4, ..settings() }).await;
        mesh.work(0..2, u64::MAX, rate);
        mesh.until("both ways", |p| p.legs.len() == 2).await;
        mesh.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_present_nodes_measure_each_other_while_a_third_is_silent() {
    for schedule in [ScheduleKind::Algorithm1, ScheduleKind::Thrifty, ScheduleKind::Random] {
        let mesh = Fake::start(3, MeasureConfig { schedule, p: 0.1, ..settings() }).await;
        mesh.work([0, 2].into_iter(), u64::MAX, rate);
        // With the round-trip times that the senders of these reports have seen.
        let is_far = |leg: &LegEntry| leg.rtt_s == Some(0.05);
        let both = |p: &PathsReply| p.legs.len() == 2 && p.legs.iter().all(is_far);
        let paths = mesh.until("both ways", both).await;
        let ends: Vec<_> = paths.legs.iter().map(|leg| (leg.from, leg.to)).collect();
        assert!(ends == [(0, 2), (2, 0)], "{schedule:?}: {ends:?}");
        mesh.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_jump_of_a_year_neither_loses_data_nor_stops_measuring() {
    let mesh = Fake::start(4, settings()).await;
    mesh.work(0..3, u64::MAX, rate);
    mesh.until("all that are there", |p| p.legs.len() == 6).await;
    for jump in [ManualClock::forward, ManualClock::back, ManualClock::back] {
        jump(&mesh.hand, YEAR);
        let paths = mesh.paths(0).await;
        assert_eq!(paths.legs.len(), 6);
        let oldest = paths.legs.iter().map(|leg| leg.age).max().unwrap();
        assert!(oldest < Duration::from_secs(3600), "{oldest:?}");
        assert!(!mesh.candidates(0, "strategy=oblivious").await.candidates.is_empty());
    }
    // Measuring continues under the wrong date.
    mesh.work(3..4, u64::MAX, rate);
    mesh.until("the fourth as well", |p| p.legs.len() == 12).await;
    mesh.stop().await;
}
