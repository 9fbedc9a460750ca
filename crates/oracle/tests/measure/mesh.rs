//! A whole mesh: measured legs, skipped nodes, and the resulting ranking.

use crate::fake::{BYTES, Fake, graph, number, rate, settings};
use std::time::Duration;
use thalweg_oracle::{Event, MeasureConfig, MeasureEvent, Pace};
use thalweg_plan::ranking::{ROBUST_MOST_GAIN, Ranking};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::measure::Strategy;

const NODES: usize = 20;
const DARK: usize = 13;

fn all(nodes: usize, dark: usize) -> impl Iterator<Item = (usize, usize)> {
    let lit = move || (0..nodes).filter(move |n| *n != dark);
    lit().flat_map(move |i| lit().map(move |j| (i, j))).filter(|(i, j)| i != j)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mesh_is_measured_and_ranked_and_a_silent_node_is_skipped_and_shown() {
    let pace = Pace { silent: Duration::from_secs(25), ..settings().pace };
    let mesh = Fake::start(NODES, MeasureConfig { pace, ..settings() }).await;
    mesh.work((0..NODES).filter(|n| *n != DARK), u64::MAX, rate);
    let wanted = all(NODES, DARK).count();
    let paths = mesh.until("all but the silent one", |p| p.legs.len() >= wanted).await;
    for leg in &paths.legs {
        let (from, to) = (&paths.nodes[leg.from as usize], &paths.nodes[leg.to as usize]);
        assert_eq!(leg.bps, rate(number(from.as_str()), number(to.as_str())), "{from} → {to}");
        assert!(!leg.at_least && leg.method == "transfer");
    }
    assert_eq!(paths.legs.len(), wanted, "no leg of the silent node");
    assert_eq!(paths.disagreements, vec![]);
    let paths = mesh.until("the silent one is named", |p| !p.down.is_empty()).await;
    let down: Vec<_> = paths.down.iter().map(|d| d.node.to_string()).collect();
    assert_eq!(down, [format!("n{DARK}")]);

    let ranking = Ranking::robust(&graph(NODES, all(NODES, DARK)), ROBUST_MOST_GAIN, |_, _| None);
    let expected: Vec<_> = ranking.scores().iter().filter(|s| s.relay != DARK).collect();
    let told = loop {
        let told = mesh.candidates(DARK, "strategy=oblivious&m=64").await;
        let shown = told.candidates.iter().map(|c| c.evidence).sum::<u64>();
        if shown == expected.iter().map(|s| s.evidence).sum::<u64>() {
            break told;
        }
    };
    assert_eq!(told.candidates.len(), NODES - 1, "neither itself nor who is down");
    assert_eq!((told.measured, told.pairs), (wanted as u64, (NODES * (NODES - 1)) as u64));
    for (candidate, score) in told.candidates.iter().zip(expected) {
        let name = format!("n{}", score.relay);
        assert_eq!((candidate.relay.as_str(), candidate.evidence), (name.as_str(), score.evidence));
        // JSON parsing rounds the last digit.
        assert!((candidate.score - score.score).abs() < 1e-12, "{candidate:?} {score:?}");
    }
    let events = mesh.stop().await;
    let named = |e: &Event| matches!(e, Event::Measuring(MeasureEvent::Down { node, .. }) if *node == format!("n{DARK}"));
    assert!(events.iter().any(named), "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_measures_beyond_its_daily_bytes() {
    let (nodes, turns) = (6, 4);
    let bytes_per_day = ByteSize::from_bytes(turns * BYTES);
    let mesh = Fake::start(nodes, MeasureConfig { bytes_per_day, ..settings() }).await;
    // Each worker fails at an order beyond its budget.
    mesh.work(0..nodes, turns, rate);
    mesh.until("most of what the budgets allow", |p| p.legs.len() >= 9).await;
    assert!(mesh.turns().iter().all(|t| *t <= turns), "{:?}", mesh.turns());
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_strategy_offers_relays_of_the_roster_other_than_the_client() {
    let mesh = Fake::start(8, settings()).await;
    mesh.work(0..8, u64::MAX, rate);
    mesh.until("all", |p| p.legs.len() == 56).await;
    for strategy in ["oblivious", "balanced", "specific", "load_aware"] {
        let told = mesh.candidates(3, &format!("strategy={strategy}&m=3")).await;
        let names: Vec<_> = told.candidates.iter().map(|c| c.relay.as_str()).collect();
        assert!(names.len() == 3 && !names.contains(&"n3"), "{strategy}: {names:?}");
        assert!(told.valid_for > Duration::ZERO);
    }
    assert_eq!(mesh.candidates(3, "").await.strategy, Strategy::LoadAware, "the default");
    mesh.stop().await;
}
