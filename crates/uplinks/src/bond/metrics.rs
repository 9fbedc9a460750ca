//! OpenMetrics gauges of bonds.

use super::{registry::BondStatus, status::LinkLife};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use std::{collections::BTreeMap, fmt};

/// Collects `thalweg_bond_…` on each scrape, from the bonds that the function returns. Labels name the interface, never
/// the member: links by the same interface are taken together, of whatever bond.
pub struct BondMetrics(pub Box<dyn Fn() -> Vec<BondStatus> + Send + Sync>);

/// The links by one interface, taken together.
#[derive(Clone, Copy, Debug, Default)]
struct LinkSums {
    links: f64,
    alive: f64,
    /// Bits per second.
    rate: f64,
    rtt: f64,
    sent: f64,
    received: f64,
}

/// A gauge's name, help text and value.
type BondColumn = (&'static str, &'static str, fn(&LinkSums) -> f64);

const COLUMNS: [BondColumn; 6] = [
    ("thalweg_bond_links", "Links of bonds over the interface.", |by| by.links),
    ("thalweg_bond_links_alive", "Links that are not silent.", |by| by.alive),
    ("thalweg_bond_rate_bytes_per_second", "Rate that the links deliver.", |by| by.rate / 8.0),
    ("thalweg_bond_rtt_seconds", "Longest round-trip time of the links.", |by| by.rtt),
    ("thalweg_bond_sent_bytes", "Bytes of chunks sent by the present links.", |by| by.sent),
    ("thalweg_bond_received_bytes", "Bytes of chunks received by the present links.", |by| {
        by.received
    }),
];

const STREAMS: &str = "Streams that are open or not yet settled.";

impl fmt::Debug for BondMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BondMetrics")
    }
}

/// The links by interface, and the number of streams.
fn sums(all: &[BondStatus]) -> (BTreeMap<&str, LinkSums>, f64) {
    let (mut links, mut streams): (BTreeMap<&str, LinkSums>, f64) = Default::default();
    for bond in all {
        streams += bond.streams as f64;
        for link in &bond.links {
            let interface = link.interface.as_deref().unwrap_or_default();
            let by = links.entry(interface).or_default();
            by.links += 1.0;
            by.alive += f64::from(u8::from(link.life != LinkLife::Silent));
            by.rate += link.rate.as_bps() as f64;
            by.rtt = by.rtt.max(link.rtt.as_secs_f64());
            by.sent += link.sent as f64;
            by.received += link.received as f64;
        }
    }
    (links, streams)
}

impl Collector for BondMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = (self.0)();
        let (links, streams) = sums(&all);
        let kind = || ConstGauge::new(0.0).metric_type();
        ConstGauge::new(streams).encode(encoder.encode_descriptor(
            "thalweg_bond_streams",
            STREAMS,
            None,
            kind(),
        )?)?;
        for (name, help, value) in COLUMNS {
            let mut family = encoder.encode_descriptor(name, help, None, kind())?;
            for (interface, by) in &links {
                let label = [("interface", *interface)];
                ConstGauge::new(value(by)).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::status::LinkStatus, *};
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use std::time::Duration;
    use thalweg_units::Rate;

    fn link(interface: &str, life: LinkLife, received: u64) -> LinkStatus {
        LinkStatus {
            link: 0,
            interface: Some(interface.to_owned()),
            via: None,
            life,
            rate: Rate::from_mbps(8.0),
            rtt: Duration::from_millis(20),
            loss: 0.0,
            sent: 5,
            received,
            may_duplicate: true,
        }
    }

    #[test]
    fn links_of_an_interface_are_taken_together() {
        let links = vec![
            link("wan0", LinkLife::Alive, 70),
            link("wan0", LinkLife::Silent, 30),
            link("wan1", LinkLife::Late, 9),
        ];
        let fra = BondStatus { member: "fra".to_owned(), streams: 2, links };
        let links = vec![link("wan1", LinkLife::Alive, 1)];
        let nyc = BondStatus { member: "nyc".to_owned(), streams: 3, links };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(BondMetrics(Box::new(move || {
            vec![fra.clone(), nyc.clone()]
        }))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "thalweg_bond_streams 5.0",
            "thalweg_bond_links{interface=\"wan0\"} 2.0",
            "thalweg_bond_links_alive{interface=\"wan0\"} 1.0",
            "thalweg_bond_links_alive{interface=\"wan1\"} 2.0",
            "thalweg_bond_rate_bytes_per_second{interface=\"wan0\"} 2000000.0",
            "thalweg_bond_rtt_seconds{interface=\"wan1\"} 0.02",
            "thalweg_bond_received_bytes{interface=\"wan0\"} 100.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
