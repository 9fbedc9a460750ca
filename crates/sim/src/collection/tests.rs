//! Tests that the network is the paper's, and that the methods come out in its order.

use super::{background::Background, run::Scenario, topology::bistros, *};
use thalweg_plan::collection::Direct;

#[test]
fn a_network_has_152_nodes_that_all_reach_each_other() {
    let net = Topology::transit_stub(3);
    let longest = (0..152)
        .map(|to| net.route(0, to).map(|links| net.rtt(&links)))
        .map(|rtt| rtt.expect("a way to every node"))
        .fold(0.0, f64::max);
    assert!(longest <= 0.080 + 1e-9, "{longest}");
    assert!(net.peering(0).is_some() && net.peering(1).is_some());
}

#[test]
fn background_flows_cross_their_own_peering_point() {
    let net = Topology::transit_stub(5);
    for point in 0..2 {
        let (from, to) = (net.stub_node(1, point, 1, 2), net.stub_node(0, point, 2, 3));
        let links = net.route(from, to).unwrap();
        assert!(links.contains(&net.peering(point).unwrap()));
    }
}

#[test]
fn a_lone_flow_gets_its_slowest_link() {
    let net = Topology::transit_stub(7);
    let hosts = bistros(&net, 7);
    let background = Background::new(&net, 7, 0, (1, 3));
    let scenario = Scenario { net, hosts, background };
    let rate = scenario.measure_rate(0, 7, 40.0, 3, 1e3);
    assert!(rate > 2.2 && rate <= 2.5, "{rate}");
}

#[test]
fn coordination_beats_direct_where_a_peering_point_is_full() {
    let settings = Settings { bytes: 17e6, ..Settings::paper(24) };
    let evaluation = Evaluation::new(11, settings).unwrap();
    let sync = evaluation.run(MethodKind::PathSync(0.95)).unwrap();
    let direct = evaluation.run(MethodKind::Direct(Direct::AllAtOnce)).unwrap();
    assert!(sync.makespan < direct.makespan, "{sync:?} {direct:?}");
    assert!(evaluation.background(&direct) <= 101.0);
}

#[test]
fn the_fluid_plan_is_near_its_bound_even_with_wrong_estimates() {
    // Data for two minutes: the first trials take a part of it.
    let settings = Settings { bytes: 40e6, ..Settings::paper(120) };
    for (wrong_by, most) in [(0.0, 1.15), (0.7, 1.3)] {
        let evaluation = Evaluation::new(3, Settings { wrong_by, ..settings.clone() }).unwrap();
        let fluid = evaluation.run(MethodKind::Fluid(4)).unwrap();
        let bound = evaluation.bound(&fluid);
        assert!(fluid.makespan <= bound * most, "{} over {bound}", fluid.makespan);
        let sync = evaluation.run(MethodKind::PathSync(0.95)).unwrap();
        assert!(fluid.makespan <= sync.makespan, "{} {}", fluid.makespan, sync.makespan);
    }
}

#[test]
fn no_method_is_faster_than_the_bound_of_its_run() {
    let evaluation = Evaluation::new(5, Settings { bytes: 17e6, ..Settings::paper(24) }).unwrap();
    let direct = MethodKind::Direct(Direct::AllAtOnce);
    for kind in [MethodKind::PathSync(0.95), MethodKind::PathDelay, direct, MethodKind::Fluid(3)] {
        let outcome = evaluation.run(kind).unwrap();
        let bound = evaluation.bound(&outcome);
        assert!(outcome.makespan >= bound * 0.999, "{kind:?}: {} {bound}", outcome.makespan);
    }
}
