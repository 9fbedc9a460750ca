//! Meshes too small for a detour, and clocks that jump.

use crate::{
    fake::{Fake, rate, settings},
    harness::Hand,
};
use std::time::Duration;
use thalweg_oracle::{MeasureConfig, Order};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_measure_each_other_both_ways_by_whichever_schedule() {
    for schedule in [Order::Algorithm1, Order::Thrifty, Order::Random] {
        let mesh = Fake::start(2, MeasureConfig { schedule, p: 0.4, ..settings() }).await;
        mesh.work(0..2, u64::MAX, rate);
        mesh.until("both ways", |p| p.legs.len() == 2).await;
        mesh.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_two_that_are_there_measure_each_other_while_the_third_is_silent() {
    for schedule in [Order::Algorithm1, Order::Thrifty, Order::Random] {
        let mesh = Fake::start(3, MeasureConfig { schedule, p: 0.1, ..settings() }).await;
        mesh.work([0, 2].into_iter(), u64::MAX, rate);
        let paths = mesh.until("both ways", |p| p.legs.len() == 2).await;
        // As the senders of these reports have it.
        assert!(paths.legs.iter().all(|leg| leg.rtt_s == Some(0.05)), "{:?}", paths.legs);
        let ends: Vec<_> = paths.legs.iter().map(|leg| (leg.from, leg.to)).collect();
        assert!(ends == [(0, 2), (2, 0)], "{schedule:?}: {ends:?}");
        mesh.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_a_year_loses_nothing_and_stops_nothing() {
    let mesh = Fake::start(4, settings()).await;
    mesh.work(0..3, u64::MAX, rate);
    mesh.until("all that are there", |p| p.legs.len() == 6).await;
    for jump in [Hand::forward, Hand::back, Hand::back] {
        jump(&mesh.hand, YEAR);
        let paths = mesh.paths(0).await;
        assert_eq!(paths.legs.len(), 6);
        let oldest = paths.legs.iter().map(|leg| leg.age).max().unwrap();
        assert!(oldest < Duration::from_secs(3600), "{oldest:?}");
        assert!(!mesh.candidates(0, "strategy=oblivious").await.candidates.is_empty());
    }
    // Measuring goes on under the wrong date.
    mesh.work(3..4, u64::MAX, rate);
    mesh.until("the fourth as well", |p| p.legs.len() == 12).await;
    mesh.stop().await;
}
