//! The network of the evaluation of coordinated collection.

use super::{super::route, generated};
use std::time::Duration;
use thalweg_units::Rate;

fn rate(net: &crate::topology::Resolved, link: &str) -> Rate {
    let found = net.links.iter().find(|l| l.name == link).unwrap();
    found.config.rate.unwrap()
}

#[test]
fn the_network_has_the_rates_and_round_trips_of_the_paper() {
    let net = generated("kind = \"collection\"");
    assert_eq!(rate(&net, "a0_b0.rev"), Rate::from_bps(5_000_000));
    assert_eq!(rate(&net, "a1_b1.fwd"), Rate::from_bps(5_000_000));
    assert_eq!(rate(&net, "a0_a0s1n0.fwd"), Rate::from_bps(2_500_000));
    let (from, to) = (net.interface_named("s4").unwrap(), net.interface_named("d").unwrap());
    assert_eq!(net.physical_limit(from, to), Some(Rate::from_bps(2_500_000)));
    let rtt = net.rtt(from, to).unwrap();
    assert!(rtt > Duration::from_millis(5) && rtt <= Duration::from_millis(81), "{rtt:?}");
}

#[test]
fn a_faster_pace_scales_rates_and_delays_only() {
    let (once, tenfold) = ("kind = \"collection\"", "kind = \"collection\"\npace = 10.0");
    let (once, tenfold) = (generated(once), generated(tenfold));
    assert_eq!(rate(&tenfold, "a0_b0.rev"), Rate::from_bps(50_000_000));
    let rtt = |net: &crate::topology::Resolved| net.rtt(0, 7).unwrap().as_secs_f64();
    assert!((rtt(&once) / rtt(&tenfold) - 10.0).abs() < 0.2);
    assert_eq!(once.table, tenfold.table);
}

#[test]
fn background_ends_cross_their_own_peering_point() {
    let net = generated("kind = \"collection\"");
    for end in 0..24 {
        let links = route(&net, &format!("bg-b:{end}"), &format!("bg-a:{end}"));
        let (own, other) =
            if end < 12 { ("a0_b0.rev", "a1_b1.rev") } else { ("a1_b1.rev", "a0_b0.rev") };
        assert!(links.contains(&own) && !links.contains(&other), "{links:?}");
    }
}

#[test]
fn bistros_share_no_stub_domain_with_each_other_or_the_background() {
    let net = generated("kind = \"collection\"");
    let bistros = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "d"];
    let stub = |links: Vec<&str>| -> Vec<String> {
        links.into_iter().filter(|l| l.contains('s')).map(|l| l[..l.len() - 4].to_owned()).collect()
    };
    for (at, bistro) in bistros.iter().enumerate() {
        let own = stub(route(&net, bistro, bistros[(at + 1) % 8]));
        let background = stub(route(&net, "bg-b:0", "bg-a:0"));
        assert!(own.iter().all(|link| !background.contains(link)), "{own:?}");
    }
}
