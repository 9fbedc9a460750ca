//! Finds the narrowest link, with trains whose first and last probes expire on the path (pathneck, Hu et al., 2004).
//!
//! A *load* of long probes goes to the destination. Short probes with hop limits of one, two, and so on precede it; the
//! same ones follow it in reverse order. So one probe at each end of the train expires at each router, which notifies
//! the sender: the time between its two notices is the train's length when it arrived there. The train grows at each
//! link that is narrower than all links before it, and never shrinks. So the narrowest link leads into the first hop at
//! which the train has its final length.

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{Expired, Flight, Probe, Train, bits_of};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    num::NonZeroU8,
    time::Duration,
};

/// Bytes of a probe that expires: the minimum that each probe needs.
const SHORT: u16 = 64;

/// The maximum distance of routers that are looked for, hops.
const FARTHEST: u8 = 30;

/// The number of trains after which the tool ends if no router answered.
const TRIES: u32 = 2;

/// A train within this share of the longest counts as equally long.
const SAME: f64 = 0.1;

/// The share of the conclusive trains that must agree on the narrowest hop.
const AGREE: f64 = 0.5;

/// Settings of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopsSettings {
    /// Bytes of a probe in the load.
    pub size: u16,
    /// IP and UDP header bytes per probe.
    pub overhead: u32,
    /// The number of probes in the load.
    pub load: usize,
    /// The total number of trains.
    pub trains: u32,
    /// The pause between two trains: routers limit their notices to one host (Linux to one a second, after six).
    pub pause: Duration,
}

impl HopsSettings {
    /// Ten trains with a load of sixty probes, as in pathneck, two seconds apart because each router sends two notices
    /// per train.
    pub fn new(size: u16, overhead: u32) -> Self {
        Self { size, overhead, load: 60, trains: 10, pause: Duration::from_secs(2) }
    }
}

/// Finds the narrowest link.
#[derive(Clone, Debug)]
pub struct Hops {
    settings: HopsSettings,
    sent: u32,
    /// The present maximum distance of routers, hops.
    farthest: u8,
    /// The rates at which trains arrived, bit/s, by hop; the destination is the last.
    rates: BTreeMap<u8, (Option<IpAddr>, Vec<f64>)>,
    /// The hop at which each train first had its final length.
    narrowest: Vec<u8>,
}

impl Hops {
    /// Creates the tool before its first train.
    pub fn new(settings: HopsSettings) -> Self {
        let (rates, narrowest) = Default::default();
        Self { settings, sent: 0, farthest: FARTHEST, rates, narrowest }
    }

    /// The hop limit of each probe: those before the load, none for the load, those behind it.
    fn limits(&self) -> Vec<Option<NonZeroU8>> {
        let ahead = (1..=self.farthest).map(NonZeroU8::new);
        let load = std::iter::repeat_n(None, self.settings.load);
        ahead.clone().chain(load).chain(ahead.rev()).collect()
    }

    fn train(&self) -> Option<Train> {
        let limits = self.limits();
        let probe = |limit: &Option<NonZeroU8>| {
            let size = if limit.is_some() { SHORT } else { self.settings.size };
            Probe { size, header: 0, gap: Duration::ZERO, may_carry: false }
        };
        let train = Train::new(limits.iter().map(probe).collect()).ok()?;
        train.with_overhead(self.settings.overhead).limited(limits).ok()
    }

    /// The rates at which this train arrived, bit/s, by hop, with the router.
    fn came_out(&self, flight: &Flight) -> BTreeMap<u8, (Option<IpAddr>, f64)> {
        let Some(train) = self.train() else { return BTreeMap::new() };
        let far = usize::from(self.farthest);
        let word = |place: usize| flight.expired.get(place).copied().flatten();
        let mut out = BTreeMap::new();
        for hop in 1..=self.farthest {
            let [first, last] =
                [usize::from(hop) - 1, 2 * far + self.settings.load - usize::from(hop)];
            let rate = self.rate(&train, hop, (first, last), (word(first), word(last)));
            out.extend(rate.map(|(router, rate)| (hop, (Some(router), rate))));
        }
        let end = self.at_the_end(flight).zip(self.distance(flight));
        out.extend(end.map(|(rate, hop)| (hop, (None, rate))));
        out
    }

    /// The number of hops to the destination: the lowest hop limit with which a probe reached it. If none did, the hop
    /// behind the last router that answered.
    fn distance(&self, flight: &Flight) -> Option<u8> {
        let place = |hop: u8| usize::from(hop) - 1;
        let came = |hop: &u8| flight.arrived.get(place(*hop)).is_some_and(Option::is_some);
        let spoke = |hop: &u8| flight.expired.get(place(*hop)).is_some_and(Option::is_some);
        let behind = || (1..=self.farthest).rev().find(spoke).map(|last| last + 1);
        (1..=self.farthest).find(came).or_else(behind)
    }

    /// The router and the rate at a hop, from the notices on the train's probes at these two places.
    fn rate(
        &self,
        train: &Train,
        hop: u8,
        (first, last): (usize, usize),
        words: (Option<Expired>, Option<Expired>),
    ) -> Option<(IpAddr, f64)> {
        let (before, behind) = words.0.zip(words.1)?;
        let took = behind.at.since(before.at).as_secs_f64();
        // Probes that expired at an earlier hop are no longer part of the train.
        let is_there = |place: &usize| train.hops(*place).is_none_or(|limit| limit.get() >= hop);
        let sizes = (first + 1..=last).filter(is_there).map(|place| train.probes()[place].size);
        let bits: f64 = sizes.map(|size| bits_of(size, self.settings.overhead)).sum();
        let is_one = before.by == behind.by && took > 0.0;
        is_one.then_some((before.by, bits / took))
    }

    /// The rate at the destination, from the arrival of the load.
    fn at_the_end(&self, flight: &Flight) -> Option<f64> {
        let far = usize::from(self.farthest);
        let load = flight.arrived.get(far..far + self.settings.load)?;
        let (first, last) = (load.iter().flatten().next()?, load.iter().flatten().next_back()?);
        let took = last.since(*first).as_secs_f64();
        let bits = bits_of(self.settings.size, self.settings.overhead);
        // Lost probes used the path up to the point where they were lost, so only the ends count.
        let between =
            load.iter().rposition(Option::is_some)? - load.iter().position(Option::is_some)?;
        (took > 0.0).then(|| bits * between as f64 / took)
    }

    fn learn(&mut self, out: BTreeMap<u8, (Option<IpAddr>, f64)>) {
        let least = out.values().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        let narrowest = out.iter().find(|(_, (_, rate))| *rate <= least * (1.0 + SAME));
        self.narrowest.extend(narrowest.map(|(hop, _)| *hop));
        for (hop, (router, rate)) in out {
            let (known, rates) = self.rates.entry(hop).or_default();
            *known = router.or(*known);
            rates.push(rate);
        }
    }

    /// Whether no router answered.
    fn is_mute(&self) -> bool {
        self.rates.values().all(|(router, _)| router.is_none())
    }

    fn result(&self) -> Result<Vec<Finding>, EstimatorError> {
        if self.is_mute() {
            return Err(if self.rates.is_empty() {
                EstimatorError::Lost(self.sent)
            } else {
                EstimatorError::Silent
            });
        }
        let mut found = Vec::new();
        for (hop, (router, rates)) in &self.rates {
            let mut rates = rates.clone();
            rates.sort_by(f64::total_cmp);
            let at = |part: usize| rates[(rates.len() - 1) * part / 4];
            let of = Quantity::RateAtHop { hop: *hop, router: *router };
            let range = Finding::corrected(of, at(1), at(3), 0.0);
            found.push(Finding { value: at(2), ..range });
        }
        found.extend(self.named());
        Ok(found)
    }

    /// The hop on which enough trains agree. The range begins after the last router before it that is not silent.
    fn named(&self) -> Option<Finding> {
        let hops: BTreeSet<u8> = self.narrowest.iter().copied().collect();
        let count = |hop: u8| self.narrowest.iter().filter(|one| **one == hop).count();
        let best = hops.into_iter().max_by_key(|hop| count(*hop))?;
        let agree = count(best) as f64 >= AGREE * self.narrowest.len() as f64;
        let before = self.rates.keys().copied().rfind(|hop| *hop < best).unwrap_or(0);
        let range = Finding::plain(Quantity::NarrowestHop, f64::from(best));
        agree.then_some(Finding { low: f64::from(before + 1), ..range })
    }
}

impl Estimator for Hops {
    fn name(&self) -> &'static str {
        "hops"
    }

    fn next(&mut self) -> Step {
        let after = if self.sent == 0 { Duration::ZERO } else { self.settings.pause };
        let is_over = self.sent >= self.settings.trains || (self.sent >= TRIES && self.is_mute());
        match self.train() {
            Some(train) if !is_over => Step::Send { train, after },
            _ => Step::Done(self.result()),
        }
    }

    fn record(&mut self, flight: &Flight) {
        self.sent += 1;
        self.learn(self.came_out(flight));
        if self.sent == 1 {
            self.farthest = self.distance(flight).unwrap_or(FARTHEST).min(FARTHEST);
        }
    }

    fn partial_findings(&self) -> Option<Vec<Finding>> {
        self.result().ok().filter(|_| self.sent > TRIES)
    }

    fn progress(&self) -> Progress {
        let least = |rates: &Vec<f64>| rates.iter().copied().fold(f64::INFINITY, f64::min);
        let rates = self.rates.values().map(|(_, rates)| least(rates));
        let least = rates.fold(f64::INFINITY, f64::min);
        let between = least.is_finite().then_some((least, None));
        Progress { trains: self.sent, between, phase: "trains that expire on the way" }
    }
}

#[cfg(test)]
#[path = "hops_tests.rs"]
mod tests;
