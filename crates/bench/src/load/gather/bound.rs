//! Lower bounds of a run: the least time in which its data could have been collected beside a background.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};
use thalweg_lab::emu::LinkTruth;
use thalweg_sim::collection::{Topology, bistros, shortest};

/// Classes of the topology whose bytes belong to the background have this prefix.
const BACKGROUND: &str = "background";

/// Bytes on a link per byte of data: TCP over IPv4 with timestamps carries at most 1448 bytes in 1500.
const ON_THE_LINK: f64 = 1500.0 / 1448.0;

/// By this share a run may seem faster than its own bound, because queues were full before it began.
const SLACK: f64 = 0.02;

/// The share of its throughput that the paper's methods left to the background (§VI: a loss of 16 %).
pub const LEFT_TO_OTHERS: f64 = 0.84;

/// The rates of the background on all links while nothing else is sent.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct QuietBackground {
    /// The network's seed.
    seed: u64,
    /// Bytes per second, in the network's order of links.
    rates: Vec<f64>,
}

impl QuietBackground {
    /// Reads a record that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// When it cannot be read or belongs to another network.
    pub fn read(file: &Path, seed: u64) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let quiet: Self = serde_json::from_str(&text).with_context(|| {
            format!("{} is not a valid record of background traffic", file.display())
        })?;
        ensure!(
            quiet.seed == seed,
            "{} belongs to the network of seed {}",
            file.display(),
            quiet.seed
        );
        Ok(quiet)
    }

    /// Writes the record.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        fs::write(file, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

/// The lab's records of all links during a run.
#[derive(Debug)]
pub struct LinkRecords {
    seed: u64,
    /// The hosts of the sources, and the destination last.
    hosts: Vec<usize>,
    links: Vec<LinkRecord>,
}

#[derive(Debug)]
struct LinkRecord {
    ends: (usize, usize),
    /// Bytes per second.
    capacity: f64,
    /// The width of a bin, s.
    bin: f64,
    /// Time from the first bin's start to the run's start, s.
    skip: f64,
    /// Bytes of the background by bin, from the bin of the run's start on.
    taken: Vec<f64>,
}

impl LinkRecords {
    /// Creates the records of the network of `seed` for a run that began at `begun`, s in the lab's time.
    ///
    /// # Errors
    /// When the lab has another network or its topology has no class for the background.
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
            links.push(LinkRecord::new(net.ends(link), truth, begun)?);
        }
        Ok(Self { seed, hosts: bistros(&net, seed), links })
    }

    /// The least time T, s, such that the bytes that the links could carry until T, less those of the background, admit
    /// the flow of `amounts` from the sources to the destination.
    ///
    /// # Errors
    /// When the run was faster than that, so the records belong to another run.
    pub fn least_time(&self, amounts: &[u64], makespan: f64) -> anyhow::Result<f64> {
        let left = |seconds: f64| self.links.iter().map(|link| link.left(seconds)).collect();
        let bound = self.search(amounts, left, makespan);
        let bin = self.links.iter().map(|link| link.bin).fold(0.0, f64::max);
        ensure!(
            bound <= makespan * (1.0 + SLACK) + bin,
            "by the lab's records the data cannot have arrived before {bound:.2} s, but the collection took \
             {makespan:.2} s: the records belong to another run"
        );
        Ok(bound)
    }

    /// The least time T, s, beside a background that keeps this share of its undisturbed rates; infinite if there is
    /// none.
    ///
    /// # Errors
    /// When the background was recorded in another network.
    pub fn least_time_beside(
        &self,
        quiet: &QuietBackground,
        share: f64,
        amounts: &[u64],
    ) -> anyhow::Result<f64> {
        let same = quiet.seed == self.seed && quiet.rates.len() == self.links.len();
        ensure!(same, "the background was recorded in another network");
        let rates: Vec<f64> = quiet.rates.iter().map(|rate| rate * share).collect();
        let left = |seconds: f64| {
            let links = self.links.iter().zip(&rates);
            links.map(|(link, taken)| (link.capacity - taken) * seconds).collect()
        };
        Ok(self.search(amounts, left, 1.0))
    }

    /// The mean rates of the background in the first `seconds` of the run.
    pub fn quiet(&self, seconds: f64) -> QuietBackground {
        let rate = |link: &LinkRecord| link.taken(seconds) / seconds.max(f64::MIN_POSITIVE);
        QuietBackground { seed: self.seed, rates: self.links.iter().map(rate).collect() }
    }

    fn search(&self, amounts: &[u64], left: impl Fn(f64) -> Vec<f64>, guess: f64) -> f64 {
        let links: Vec<_> = self.links.iter().map(|link| link.ends).collect();
        let bytes: Vec<f64> = amounts.iter().map(|bytes| *bytes as f64 * ON_THE_LINK).collect();
        shortest(&links, &self.hosts, &bytes, left, guess)
    }
}

impl LinkRecord {
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

    /// Bytes that the link left for others in the first `seconds` of the run.
    fn left(&self, seconds: f64) -> f64 {
        self.capacity * seconds - self.taken(seconds)
    }

    /// Bytes of the background in the first `seconds` of the run. A bin's bytes are spread evenly over it, and after
    /// the last bin the background continues with its mean rate.
    fn taken(&self, seconds: f64) -> f64 {
        let covered = self.taken.len() as f64 * self.bin;
        let until = |then: f64| -> f64 {
            let whole = (then / self.bin) as usize;
            let part = then / self.bin - whole as f64;
            let sum: f64 = self.taken.iter().take(whole).sum();
            sum + self.taken.get(whole).map_or(0.0, |bytes| bytes * part)
        };
        let then = self.skip + seconds;
        let beyond = (then - covered).max(0.0) / covered.max(self.bin);
        until(then) - until(self.skip) + until(covered) * beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ends: (usize, usize), capacity: f64, taken: &[f64]) -> LinkRecord {
        LinkRecord { ends, capacity, bin: 0.5, skip: 0.25, taken: taken.to_vec() }
    }

    /// Two sources that share a link of 1000 B/s to the destination.
    fn shared(taken: &[f64]) -> LinkRecords {
        let links = vec![
            record((0, 2), 1000.0, &[]),
            record((1, 2), 1000.0, &[]),
            record((2, 3), 1000.0, taken),
        ];
        LinkRecords { seed: 1, hosts: vec![0, 1, 3], links }
    }

    #[test]
    fn bytes_of_the_background_are_not_left_for_the_run() {
        let link = record((0, 1), 1000.0, &[100.0, 200.0, 400.0]);
        assert_eq!(link.left(0.25), 200.0);
        assert_eq!(link.left(1.0), 550.0);
        // After 1.5 s of records, which have 700 bytes, the mean rate continues.
        assert_eq!(link.taken(2.75), 50.0 + 200.0 + 400.0 + 700.0);
    }

    #[test]
    fn the_narrowest_cut_determines_the_bound() {
        // The background takes half of the shared link.
        let records = shared(&[250.0; 100]);
        let bound = records.least_time(&[724, 724], 30.0).unwrap();
        assert!((bound - 3.0).abs() < 0.01, "{bound}");
        let quiet = records.quiet(10.0);
        assert!((quiet.rates[2] - 500.0).abs() < 1e-9, "{quiet:?}");
        // With four fifths of its rate it leaves 600 B/s.
        let bound = records.least_time_beside(&quiet, 0.8, &[724, 724]).unwrap();
        assert!((bound - 2.5).abs() < 0.01, "{bound}");
    }

    #[test]
    fn a_run_faster_than_its_bound_is_invalid() {
        let records = shared(&[250.0; 20]);
        let error = records.least_time(&[7240, 7240], 12.0).unwrap_err().to_string();
        assert!(error.contains("cannot have arrived before 30.0"), "{error}");
    }

    #[test]
    fn a_background_that_fills_a_link_makes_the_bound_infinite() {
        let records = shared(&[500.0; 20]);
        let quiet = records.quiet(5.0);
        assert!(records.least_time_beside(&quiet, 1.0, &[724, 724]).unwrap().is_infinite());
        let other = QuietBackground { seed: 2, ..records.quiet(5.0) };
        assert!(records.least_time_beside(&other, 1.0, &[724, 724]).is_err());
    }

    #[test]
    fn the_record_of_a_background_is_read_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("quiet.json");
        let quiet = shared(&[250.0; 20]).quiet(5.0);
        quiet.write(&file).unwrap();
        assert_eq!(QuietBackground::read(&file, 1).unwrap(), quiet);
        assert!(QuietBackground::read(&file, 2).unwrap_err().to_string().contains("seed 1"));
    }
}
