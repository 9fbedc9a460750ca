//! The bound of a run: the least time in which its data could have come beside that background.

use anyhow::{Context as _, ensure};
use thalweg_lab::emu::LinkTruth;
use thalweg_plan::maxflow::MaxFlow;
use thalweg_sim::collection::{Topology, bistros};

/// Classes of the topology whose bytes are the background's begin with this.
const BACKGROUND: &str = "background";

/// What data takes on a link: no TCP over IPv4 with time stamps carries more than 1448 bytes in 1500.
const ON_THE_LINK: f64 = 1500.0 / 1448.0;

/// Steps of the search, each of which halves the interval: to a millionth of a run.
const STEPS: u32 = 20;

/// The lab's records of all links during a run.
#[derive(Debug)]
pub struct Records {
    nodes: usize,
    /// Of the sources, the destination last.
    hosts: Vec<usize>,
    links: Vec<Record>,
}

#[derive(Debug)]
struct Record {
    ends: (usize, usize),
    /// Bytes a second.
    capacity: f64,
    /// Width of a bin, s.
    bin: f64,
    /// From the first bin's start to the run's, s.
    skip: f64,
    /// Bytes of the background by bin, from that of the run's start on.
    taken: Vec<f64>,
}

impl Records {
    /// Those of the network of `seed`, for a run that began at `begun`, s in the lab's time.
    ///
    /// # Errors
    /// When the lab has another network, or its topology has no classes for the background.
    pub fn new(seed: u64, truths: &[LinkTruth], begun: f64) -> anyhow::Result<Self> {
        let net = Topology::transit_stub(seed);
        let mut links = Vec::with_capacity(net.capacity.len());
        for link in 0..net.capacity.len() as u32 {
            // Links come in pairs, the forward half first.
            let (from, to) = net.ends(link & !1);
            let half = if link % 2 == 0 { "fwd" } else { "rev" };
            let name = format!("{}_{}.{half}", net.name(from), net.name(to));
            let truth = truths.iter().find(|truth| truth.name == name);
            let truth = truth.with_context(|| format!("the lab has no link {name}"))?;
            links.push(Record::new(net.ends(link), truth, begun)?);
        }
        Ok(Self { nodes: net.nodes(), hosts: bistros(&net, seed), links })
    }

    /// The least T at which what the links could carry until then, less what the background did, admits the
    /// flow of these bytes by source to the destination; s, at most `makespan`.
    ///
    /// Any routes over the links are allowed, not only those of IP between hosts, and links save up
    /// what they do not use: no method is faster beside that background.
    pub fn shortest(&self, amounts: &[u64], makespan: f64) -> f64 {
        let (mut low, mut high) = (0.0, makespan);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            if self.admits(amounts, middle) { high = middle } else { low = middle }
        }
        high
    }

    fn admits(&self, amounts: &[u64], seconds: f64) -> bool {
        let Some((destination, sources)) = self.hosts.split_last() else { return true };
        let arc = |link: &Record| (link.ends.0 as u32, link.ends.1 as u32, link.left(seconds));
        let mut arcs: Vec<(u32, u32, u64)> = self.links.iter().map(arc).collect();
        let all = self.nodes as u32;
        let on_the_link = |bytes: u64| (bytes as f64 * ON_THE_LINK).ceil() as u64;
        let supply = sources.iter().zip(amounts);
        arcs.extend(supply.map(|(host, bytes)| (all, *host as u32, on_the_link(*bytes))));
        let wanted: u64 = amounts.iter().map(|bytes| on_the_link(*bytes)).sum();
        MaxFlow::new(self.nodes + 1, &arcs).run(all, *destination as u32) >= wanted
    }
}

impl Record {
    fn new(ends: (usize, usize), truth: &LinkTruth, begun: f64) -> anyhow::Result<Self> {
        let rate = truth.rate.with_context(|| format!("{} has no rate", truth.name))?;
        let background: Vec<bool> =
            truth.classes.iter().map(|class| class.starts_with(BACKGROUND)).collect();
        ensure!(background.contains(&true), "the topology has no class for the background");
        let first = (begun / truth.bin_s).max(0.0) as usize;
        let taken = |bin: &thalweg_lab::emu::Bin| {
            let own = bin.bytes.iter().zip(&background).filter(|(_, own)| **own);
            own.map(|(bytes, _)| *bytes as f64).sum()
        };
        Ok(Self {
            ends,
            capacity: rate.as_bps() as f64 / 8.0,
            bin: truth.bin_s,
            skip: begun.max(0.0) - first as f64 * truth.bin_s,
            taken: truth.bins.iter().skip(first).map(taken).collect(),
        })
    }

    /// Bytes it had left for others until so many seconds after the run's start; a bin's bytes
    /// are spread evenly over it.
    fn left(&self, seconds: f64) -> u64 {
        let until = |seconds: f64| -> f64 {
            let whole = (seconds / self.bin) as usize;
            let part = seconds / self.bin - whole as f64;
            let sum: f64 = self.taken.iter().take(whole).sum();
            sum + self.taken.get(whole).map_or(0.0, |bytes| bytes * part)
        };
        let taken = until(self.skip + seconds) - until(self.skip);
        (self.capacity * seconds - taken).max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ends: (usize, usize), capacity: f64, taken: &[f64]) -> Record {
        Record { ends, capacity, bin: 0.5, skip: 0.25, taken: taken.to_vec() }
    }

    #[test]
    fn what_the_background_took_is_not_left() {
        let link = record((0, 1), 1000.0, &[100.0, 200.0, 400.0]);
        assert_eq!(link.left(0.25), 250 - 50);
        assert_eq!(link.left(1.0), 1000 - (50 + 200 + 200));
    }

    #[test]
    fn the_bound_is_that_of_the_narrowest_cut() {
        // Two sources share a link of 1000 B/s to the destination; the background has half of it.
        let shared: Vec<f64> = vec![250.0; 100];
        let links = vec![
            record((0, 2), 1000.0, &[]),
            record((1, 2), 1000.0, &[]),
            record((2, 3), 1000.0, &shared),
        ];
        let records = Records { nodes: 4, hosts: vec![0, 1, 3], links };
        let shortest = records.shortest(&[724, 724], 30.0);
        assert!((shortest - 3.0).abs() < 0.01, "{shortest}");
        assert!(records.shortest(&[72_400, 72_400], 30.0) >= 29.99);
    }
}
