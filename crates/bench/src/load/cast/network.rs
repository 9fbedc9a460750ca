//! The rates, delays and losses of the lab's links.

use super::legs::{Leg, LegRates, Legs};
use anyhow::Context as _;
use std::path::Path;
use thalweg_lab::{client::Lab, stats::Stats};
use thalweg_plan::{
    Graph,
    tree::{Host, Overlay, SeveralParents, model::Hop},
};
use thalweg_units::Rate;

/// The share of a link's rate that is left for data: 1448 of 1500 bytes of each packet.
const DATA: f64 = 1448.0 / 1500.0;

/// A lab and its links' rates at one moment.
pub struct LabNetwork {
    pub lab: Lab,
    stats: Stats,
}

impl LabNetwork {
    /// Attaches to the lab and reads its links' rates.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn attach(socket: &Path) -> anyhow::Result<Self> {
        let lab = Lab::attach(socket)?;
        let stats = lab.stats(false)?;
        Ok(Self { lab, stats })
    }

    /// The data rate of the slowest link of a path, bit/s; `None` if no link has a limit.
    pub fn leg(&self, from: &str, to: &str) -> Option<f64> {
        let all = self.lab.resolved();
        let first = |name: &str| {
            all.hosts.iter().find(|host| host.name == name)?.interfaces.first().copied()
        };
        let path = all.table.get(first(from)?, first(to)?)?;
        let links = all.paths.get(path)?.iter().filter_map(|at| all.links.get(*at));
        let rates = links.filter_map(|link| self.rate(&link.name));
        rates.reduce(f64::min)
    }

    /// The model's parameters of a path: its round-trip time and the loss of packets towards `to`. `None` without loss,
    /// because then the model has no bound.
    pub fn hop(&self, from: &str, to: &str) -> Option<Hop> {
        let all = self.lab.resolved();
        let first = |name: &str| {
            all.hosts.iter().find(|host| host.name == name)?.interfaces.first().copied()
        };
        let (from, to) = (first(from)?, first(to)?);
        let losses = all.path_links(from, to)?.iter().filter_map(|at| all.links.get(*at));
        let kept: f64 = losses.map(|link| 1.0 - link.config.loss.mean()).product();
        (kept < 1.0).then_some(Hop { rtt: all.rtt(from, to)?, loss: 1.0 - kept })
    }

    /// The data rate of half a link, bit/s.
    fn rate(&self, half: &str) -> Option<f64> {
        let rate = self.stats.link(half)?.rate?;
        Some(rate.as_bps() as f64 * DATA)
    }

    /// The rates of those legs whose links have rates.
    pub fn rates(&self, legs: &Legs) -> LegRates {
        let rate = |(from, to): &Leg| Some(((from.clone(), to.clone()), self.leg(from, to)?));
        legs.0.iter().filter_map(rate).collect()
    }

    /// The paper's tree over legs of these rates (§VI-C), with the first host as its root.
    pub fn widest(&self, hosts: &[String], rates: &LegRates) -> Legs {
        let mut graph = Graph::new(hosts.len());
        for ((from, to), rate) in rates {
            let at = |name: &String| hosts.iter().position(|host| host == name);
            if let (Some(from), Some(to)) = (at(from), at(to)) {
                graph.set(from, to, Some(bps(*rate)));
            }
        }
        let all = vec![Host::RECEIVER; hosts.len()];
        let tree = Overlay { graph: &graph, source: 0, hosts: &all }.widest().tree;
        let leg = |(at, host): (usize, &String)| {
            Some((hosts.get(tree.parent(at)?)?.clone(), host.clone()))
        };
        Legs(hosts.iter().enumerate().filter_map(leg).collect())
    }

    /// The best simultaneous rates of all hosts but the first, in their order. Their access links are called
    /// `NAME.access`.
    ///
    /// # Errors
    /// When the linear program has no solution.
    pub fn several(&self, hosts: &[String]) -> anyhow::Result<SeveralParents> {
        let mut graph = Graph::new(hosts.len());
        for (i, from) in hosts.iter().enumerate() {
            for (j, to) in hosts.iter().enumerate().filter(|(j, _)| *j != i) {
                graph.set(i, j, self.leg(from, to).map(bps));
            }
        }
        let access = |name: &String| {
            let half = |half: &str| self.rate(&format!("{name}.access.{half}")).map(bps);
            Host::RECEIVER.with_access(half("fwd"), half("rev"))
        };
        let hosts: Vec<Host> = hosts.iter().map(access).collect();
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        overlay.several(hosts.len(), None).context("cannot compute the best simultaneous rates")
    }
}

fn bps(rate: f64) -> Rate {
    // A cast of a positive number rounds down.
    Rate::from_bps(rate as u64)
}
