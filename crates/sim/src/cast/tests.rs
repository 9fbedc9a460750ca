use super::*;
use thalweg_plan::tree::depth::{ChainLoss, Shape};
use thalweg_units::{ByteSize, Rate};

fn settings(arm: CastArm, receivers: usize) -> Settings {
    let length = ByteSize::from_bytes(256 << 20);
    Settings { arm, receivers, length, effort: 300_000, ..Settings::default() }
}

/// The claim of `cast-scale`: from 50 receivers to 400, the source sends no more, and no receiver sends more messages.
#[test]
fn the_source_s_cost_is_flat_and_control_is_bounded() {
    let reports = [50, 400].map(|receivers| run(&settings(CastArm::Bounded, receivers)));
    for report in &reports {
        assert_eq!(report.done, report.receivers);
        // The source sends as many objects as its egress exceeds the slowest rate, and no more than it has children.
        assert!(report.source.objects_sent <= report.source.children as f64 + 1e-3, "{report:?}");
        assert!(report.of_min_hop.max <= 1.001 && report.of_widest.max <= 1.001, "{report:?}");
    }
    let [few, many] = &reports;
    assert!(many.source.objects_sent <= 2.0 * few.source.objects_sent, "{reports:?}");
    assert!(many.messages.median <= 2.0 * few.messages.median, "{reports:?}");
    assert!(many.control.max <= 1.0, "more than a hundredth of the object: {many:?}");
    let unicast = run(&settings(CastArm::Unicast, 400));
    assert!((unicast.source.objects_sent - 400.0).abs() < 1e-3, "{unicast:?}");
    assert!(unicast.took_s.max > 5.0 * many.took_s.max, "{unicast:?} {many:?}");
}

/// A tree that considers egress is done before one that does not.
#[test]
fn the_bounded_tree_is_done_before_the_widest() {
    let [bounded, widest] = [CastArm::Bounded, CastArm::Widest].map(|arm| run(&settings(arm, 60)));
    assert!(bounded.took_s.max < 0.8 * widest.took_s.max, "{bounded:?} {widest:?}");
}

/// Rings lose what the model says: with the same tree shape, they are slower and never faster than stores.
#[test]
fn rings_lose_what_the_model_says_and_late_joiners_finish() {
    let ring = ByteSize::from_bytes(1 << 20);
    let loss =
        ChainLoss { shape: Shape::Exponential, dispersion: ChainLoss::dispersion(0.08, ring) };
    let store = run(&settings(CastArm::Bounded, 60));
    let rings = run(&Settings { ring: Some(ring), loss, ..settings(CastArm::Bounded, 60) });
    assert!(rings.took_s.max >= store.took_s.max * 0.99, "{rings:?} {store:?}");
    let late = run(&Settings { late: 0.2, ..settings(CastArm::Bounded, 60) });
    assert_eq!(late.done, 60);
    assert!(late.took_s.max <= 1.6 * store.took_s.max, "{late:?} {store:?}");
}

#[test]
fn messages_are_counted_at_both_ends() {
    // 16 MiB are 1024 symbols and 2 blocks. From the source: the leg's four messages, what it has once, a request for
    // each symbol, and two messages for each block's page. Below node 1, which receives for 3 s: what it has, at most
    // 100 times a second.
    let control = Control::default();
    let tree = thalweg_plan::tree::Tree::from_parents(0, vec![None, Some(0), Some(1)]);
    let count = |keeps: thalweg_plan::tree::Storage| {
        let length = ByteSize::from_bytes(16 << 20);
        control.count_messages(&tree.layout(), |_| keeps, &[0.0, 3.0, 6.0], length)
    };
    let messages = count(thalweg_plan::tree::Storage::Store);
    let legs = [&messages[1], &messages[2]].map(|one| one.with_parent.messages);
    assert_eq!(legs, [4 + 1024 + 1 + 2 * 2, 4 + 1024 + 300 + 2 * 2]);
    // Nine messages once; an account each second, and every five seconds that the source is there.
    let source = [&messages[1], &messages[2]].map(|one| one.with_source.messages);
    assert_eq!(source, [9 + 3 + 1, 9 + 6 + 2]);
    assert_eq!(messages[0].with_children, messages[1].with_parent);
    assert_eq!(messages[1].total().messages, legs[0] + legs[1] + source[0]);
    // With rings nothing is asked for: six messages for each block; the source's leg is as all others.
    let messages = count(thalweg_plan::tree::Storage::Ring(ByteSize::from_bytes(1 << 20)));
    let legs = [&messages[1], &messages[2]].map(|one| one.with_parent.messages);
    assert_eq!(legs, [4 + 1 + 6 * 2; 2]);
    // Two pages for each block, 512 digests of 32 bytes each, are most of it.
    assert!((4 * 16384..6 * 16384).contains(&messages[1].with_parent.bytes));
}

#[test]
fn the_same_seed_gives_the_same_population() {
    let population = |seed| Population::new(20, 5, Rate::from_mbps(100.0), None, seed);
    assert_eq!(population(3).graph, population(3).graph);
    assert_ne!(population(3).graph, population(4).graph);
    assert!((1..=20).all(|node| (5..=6).contains(&population(3).graph.in_degree(node))));
}
