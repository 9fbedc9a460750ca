//! Tests of predictions of unmeasured legs.

use crate::world::{normal, rates, seeded, unit};
use thalweg_plan::{
    Graph,
    completion::{self, Completion, LegRtts},
    schedule::Pair,
};
use thalweg_units::Rate;

#[derive(Debug)]
struct Line(Vec<f64>);

impl LegRtts for Line {
    fn rtt_s(&self, (i, j): Pair) -> Option<f64> {
        Some(0.002 + (self.0[i] - self.0[j]).abs() / 10.0)
    }
}

#[test]
fn factors_and_distance_are_found_from_few_legs() {
    let mut random = seeded(31);
    let line = Line((0..40).map(|_| unit(&mut random)).collect());
    let quality: Vec<f64> = (0..40).map(|_| 0.5 * normal(&mut random)).collect();
    let truth = |i: usize, j: usize| {
        let far = line.rtt_s((i, j)).unwrap() / 0.05;
        20.0 * (quality[i] + quality[j]).exp() * far.powf(-0.7)
    };
    let mut graph = Graph::new(40);
    for (i, step) in (0..40).flat_map(|i| [1, 7, 18, 26, 33].map(|step| (i, step))) {
        let j = (i + step) % 40;
        graph.set(i, j, Some(Rate::from_mbps(truth(i, j))));
    }
    let completion = Completion::new(&graph, Some(&line));
    assert!((completion.slope() + 0.7).abs() < 0.1, "slope {}", completion.slope());
    let error = |completion: &Completion<'_>| {
        let unmeasured = (0..40).flat_map(|i| (0..40).map(move |j| (i, j)));
        let unmeasured = unmeasured.filter(|(i, j)| i != j && graph.rate(*i, *j).is_none());
        let off = unmeasured
            .map(|(i, j)| (completion.rate(i, j).unwrap().as_mbps() / truth(i, j)).ln().abs());
        let off: Vec<f64> = off.collect();
        off.iter().sum::<f64>() / off.len() as f64
    };
    let (with, without) = (error(&completion), error(&Completion::new(&graph, None)));
    assert!(with < 0.2 && with < without / 2.0, "off by {with} with RTTs, {without} without");
}

#[test]
fn measured_legs_stay_as_they_are_and_a_whole_mesh_ranks_by_clipped_equation_3() {
    let mut random = seeded(32);
    let rates = rates(30, 0.7, &mut random);
    let mut graph = Graph::new(30);
    for (i, j) in (0..30).flat_map(|i| (0..30).map(move |j| (i, j))) {
        graph.set(i, j, Some(rates[i][j]));
    }
    let score = |l: usize| {
        let pairs = (0..30).flat_map(|i| (0..30).map(move |j| (i, j)));
        let pairs = pairs.filter(|(i, j)| i != j && *i != l && *j != l);
        let gains = pairs.map(|(i, j)| graph.detour_gain(i, l, j).unwrap());
        gains.map(|gain| gain.min(completion::MOST_GAIN)).sum::<f64>() / (29.0 * 28.0)
    };
    let ours = completion::ranking(&graph, None);
    assert!(ours.scores().windows(2).all(|two| two[0].score >= two[1].score));
    for s in ours.scores() {
        assert!((s.score - score(s.relay)).abs() < 1e-6, "{s:?}, should be {}", score(s.relay));
        assert_eq!(s.evidence, 29 * 28);
    }
    assert_eq!(Completion::new(&graph, None).graph(), graph);
}

#[test]
fn without_measurements_nothing_is_predicted_and_dead_legs_do_not_decide() {
    let empty = Graph::new(6);
    assert_eq!(Completion::new(&empty, None).rate(0, 1), None);
    assert!(completion::ranking(&empty, None).scores().iter().all(|s| s.score == 0.0));
    let mut graph = Graph::new(6);
    for (i, j) in (0..6).flat_map(|i| (0..6).map(move |j| (i, j))).filter(|(i, j)| i + j != 5) {
        graph.set(i, j, Some(Rate::from_mbps(10.0)));
    }
    let before = Completion::new(&graph, None).rate(0, 5).unwrap().as_mbps();
    graph.set(0, 1, Some(Rate::ZERO));
    graph.set(2, 5, Some(Rate::from_bps(u64::MAX)));
    let after = Completion::new(&graph, None).rate(0, 5).unwrap().as_mbps();
    assert!((before - 10.0).abs() < 0.1, "{before}");
    assert!((1.0..100.0).contains(&after), "{after}");
}

#[test]
fn large_meshes_are_ranked_on_a_sample_without_bias() {
    let mut random = seeded(33);
    let rates = rates(300, 0.3, &mut random);
    let mut graph = Graph::new(300);
    for (i, j) in (0..300).flat_map(|i| (1..20).map(move |step| (i, (i + 7 * step) % 300))) {
        graph.set(i, j, Some(rates[i][j]));
    }
    // The true order, as far as there is one: by both factors of a node.
    let sum = |l: usize| {
        let out: f64 = (0..300).map(|j| rates[l][j].as_mbps().ln()).sum();
        let into: f64 = (0..300).map(|i| rates[i][l].as_mbps().ln()).sum();
        out.min(into)
    };
    let mut best: Vec<usize> = (0..300).collect();
    best.sort_by(|a, b| sum(*b).total_cmp(&sum(*a)));
    let ours = completion::ranking(&graph, None).top(30);
    let found = ours.iter().filter(|l| best[..60].contains(l)).count();
    assert!(found >= 27, "of the first 30, {found} are among the best 60 of 300");
}
