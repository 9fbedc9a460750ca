//! Forecasts on a mesh in which s1 is the best intermediate for s3.

use super::*;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::{
    Graph,
    collection::{Direct, Grid},
};

/// The mesh of the paper's Figure 1, with rates in Mbit/s: S1, S2, S3 and, last, D.
fn overlay(rates: [[f64; 4]; 4]) -> Overlay {
    let rate = |mbps: f64| (mbps > 0.0).then(|| Rate::from_mbps(mbps));
    let rows: Vec<Vec<_>> = rates.iter().map(|row| row.map(rate).to_vec()).collect();
    let names = ["s1", "s2", "s3", "d"].map(|n| n.parse().unwrap()).to_vec();
    let rates = Graph::from_matrix(&rows);
    Overlay { names, sources: 3, rates, rtts: BTreeMap::new() }
}

/// The leg from s3 to d is slow, but s3 → s1 and s1 → d are fast.
const RATES: [[f64; 4]; 4] =
    [[0.0, 0.0, 0.0, 80.0], [0.0, 0.0, 0.0, 8.0], [80.0, 0.0, 0.0, 8.0], [0.0; 4]];

fn plan(rates: [[f64; 4]; 4], method: Method, limit: Option<f64>) -> Result<Plan, ForecastError> {
    priced(rates, method, limit, None)
}

/// Plans with a price per GB from s3 to s1 and a budget.
fn priced(
    rates: [[f64; 4]; 4],
    method: Method,
    limit: Option<f64>,
    cost: Option<(f64, f64)>,
) -> Result<Plan, ForecastError> {
    let overlay = overlay(rates);
    let amounts = [10, 10, 50, 0].map(|mb| ByteSize::from_bytes(mb * 1_000_000));
    let grid = Grid { slot: Duration::from_millis(500), unit: ByteSize::from_bytes(10_000) };
    let limit = limit.map(Rate::from_mbps);
    let list = cost
        .map(|(per_gb, _)| PriceList::parse(&format!("from,to,per_gb\ns3,s1,{per_gb}\n")).unwrap());
    let outset = ForecastInput {
        overlay: &overlay,
        amounts: &amounts,
        method,
        grid,
        limit,
        prices: list.as_ref(),
        budget: cost.map(|(_, budget)| budget),
    };
    outset.plan()
}

#[test]
fn the_fluid_plan_equals_its_bound_and_its_paths_carry_all_data() {
    let plan = plan(RATES, Method::Fluid, None).unwrap();
    // s2 needs 10 s alone; the 60 MB of s1 and s3 arrive at 88 Mbit/s in 5.5 s.
    assert!((plan.forecast.makespan_seconds.unwrap() - 10.0).abs() < 0.01);
    assert_eq!(plan.forecast.bound_seconds, plan.forecast.makespan_seconds);
    let carried: u64 = plan.forecast.paths.iter().map(|p| p.bytes).sum();
    assert!(carried.abs_diff(70_000_000) < 100, "{carried}");
    assert!(plan.forecast.paths.iter().any(|p| p.via == ["s1".parse().unwrap()]));
}

#[test]
fn no_method_beats_the_bound_and_each_reports_its_name() {
    let seconds = Duration::from_secs;
    for (method, name, expected) in [
        (Method::Fluid, "fluid", 10.0..10.1),
        (Method::PATH_SYNC_95, "path-sync=95", 10.0..11.1),
        (Method::BestPath, "best-path", 10.0..12.0),
        (Method::Direct(Direct::AllAtOnce), "all-at-once", 49.9..50.1),
        (Method::Direct(Direct::OneByOne), "one-by-one", 60.9..61.1),
        (Method::Direct(Direct::Concurrent(2)), "concurrent=2", 50.9..51.1),
        (
            Method::Direct(Direct::SpreadInTime { group: 1, slot: seconds(7) }),
            "spread-in-time=1,7s",
            63.9..64.1,
        ),
    ] {
        let forecast = plan(RATES, method, None).unwrap().forecast;
        assert_eq!(forecast.method, name);
        let took = forecast.makespan_seconds.unwrap();
        assert!(expected.contains(&took), "{name}: {took}");
        assert!(took >= forecast.bound_seconds.unwrap() - 1e-6, "{name}");
        let carried: u64 = forecast.paths.iter().map(|p| p.bytes).sum();
        assert!(carried.abs_diff(70_000_000) < 100, "{name}: {carried}");
    }
}

#[test]
fn the_ingress_limit_extends_the_makespan() {
    for method in [Method::Fluid, Method::PATH_SYNC_95, Method::BestPath] {
        let forecast = plan(RATES, method, Some(20.0)).unwrap().forecast;
        assert!(forecast.makespan_seconds.unwrap() >= 27.9, "{forecast:?}");
    }
    let forecast = plan(RATES, Method::Direct(Direct::AllAtOnce), Some(1.0)).unwrap().forecast;
    assert!((forecast.makespan_seconds.unwrap() - 560.0).abs() < 0.1, "{forecast:?}");
}

#[test]
fn unmeasured_sources_are_reported_and_stop_only_timetables() {
    let mut rates = RATES;
    rates[1] = [0.0; 4];
    let forecast = plan(rates, Method::Fluid, None).unwrap().forecast;
    assert_eq!(forecast.unmeasured, ["s2".parse().unwrap()]);
    assert_eq!((forecast.makespan_seconds, forecast.bound_seconds), (None, None));
    assert!(!forecast.paths.is_empty(), "the others are planned");
    let forecast = plan(rates, Method::Direct(Direct::OneByOne), None).unwrap().forecast;
    assert_eq!(forecast.makespan_seconds, None);
    let refused = plan(rates, Method::PATH_SYNC_95, None).unwrap_err();
    assert_eq!(refused, ForecastError::NoPath("s2".parse().unwrap()));
    assert!(plan(rates, Method::BestPath, None).is_err());
}

#[test]
fn a_smaller_budget_costs_time() {
    // The leg from s3 to s1 costs 100 per GB. 50 MB sent directly take 50 s; each MB sent through s1 costs 0.1.
    let of = |method, budget| priced(RATES, method, None, Some((100.0, budget)));
    let free = of(Method::Fluid, 1e9).unwrap().forecast;
    assert!((free.makespan_seconds.unwrap() - 10.0).abs() < 0.01, "{free:?}");
    assert!((3.9..4.6).contains(&free.price.unwrap()), "40 MB or a little more: {free:?}");
    for method in [Method::Fluid, Method::PATH_SYNC_95] {
        let half = of(method, 2.0).unwrap().forecast;
        // 20 MB go through s1, 30 MB directly.
        assert!((29.9..31.1).contains(&half.makespan_seconds.unwrap()), "{half:?}");
        assert!(half.price.unwrap() <= 2.0 * 1.001, "{half:?}");
        let nothing = of(method, 0.0).unwrap().forecast;
        assert!((49.9..51.1).contains(&nothing.makespan_seconds.unwrap()), "{nothing:?}");
    }
    let (first, last) = (free.curve[0], free.curve[free.curve.len() - 1]);
    assert!(first.seconds < last.seconds && first.price > last.price, "{:?}", free.curve);
    assert!((last.seconds - 50.0).abs() < 0.1 && last.price.abs() < 1e-6, "{:?}", free.curve);
}

#[test]
fn a_plan_over_budget_is_refused_with_its_price() {
    let mut rates = RATES;
    rates[2][3] = 0.0;
    let refused = priced(rates, Method::Fluid, None, Some((100.0, 1.0))).unwrap_err();
    assert!(refused.to_string().contains("the cheapest plan costs 5.0000"), "{refused}");
    let refused = priced(rates, Method::BestPath, None, Some((100.0, 6.0)));
    assert!((refused.unwrap().forecast.price.unwrap() - 5.0).abs() < 0.1);
}
