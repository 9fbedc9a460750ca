//! Pathload (Jain and Dovrolis, 2002), as the public tool does it, with MGRP's two paces (§4.1) and its correction for
//! hidden traffic (§2.4).
//!
//! A burst gives a first rate. A *fleet* of twelve streams of a hundred probes shows whether delays grow at its rate;
//! the search over rates ends when the range is narrow. Differences from the public tool:
//! - a fleet with too few conclusive streams is repeated once; after that its streams are judged together;
//! - a fleet ends when its remaining streams cannot change the verdict;
//! - if two verdicts contradict each other, the newer one counts, because the path changed or one of them was noise;
//! - if the host misses a rate, the next request is corrected by the same factor;
//! - delays that rise by less than 2 % of a stream's duration count as even ([`mod@trend`]);
//! - the value comes from the growth of delays ([`growth`]), not from the middle of the range;
//! - the hidden traffic is the mean over the fleets that the value comes from; the paper uses the last train, but one
//!   train is short compared with a rider's bursts.

mod fleet;
mod growth;
mod rate_test;
mod search;
mod segment;
mod trend;

pub use rate_test::RateTest;

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{Calibration, Flight, Probe, Train, bits_of, rate_of};
use fleet::{Fleet, STREAM};
use search::{RateVerdict, Search};
use segment::together;
use std::time::Duration;

/// The probes of the burst that gives the first rate; fewer each time that a burst lost a probe.
const BURSTS: [usize; 5] = [51, 35, 20, 5, 3];

/// The width at which the range is narrow enough, as a share of the burst's rate; the second value applies if the
/// receiving host takes arrivals in batches.
const RESOLUTION: f64 = 0.02;
const COALESCED: f64 = 0.05;

/// The host takes arrivals in batches if more than this share of the burst's probes came together with the previous
/// one, as in the public tool.
const BATCHED: f64 = 0.6;

/// The same for the ends of the grey region; at most [`MOST_GREY`].
const GREY: f64 = 0.05;
const MOST_GREY: f64 = 12e6;

/// The minimum size of probes: smaller ones are mostly headers.
const LEAST_SIZE: u16 = 200;

/// The maximum gap: slower streams take too long to judge.
const LONGEST_GAP: Duration = Duration::from_millis(200);

/// The usual gap: shorter ones are requested only if the rate needs them.
const USUAL_GAP: Duration = Duration::from_micros(80);

/// Up to the first rate probes grow with the rate, above it gaps shrink; above the second rate probes have their
/// maximum size.
const SMALL_PROBES: f64 = 150e6;
const TUNED_PROBES: f64 = 600e6;

/// The bytes that the tool needs of each probe.
const HEADER: u16 = 12;

/// The limits of the factor by which the rate is corrected if the host misses it.
const MISSED: (f64, f64) = (0.8, 1.25);

/// The maximum number of trains: sixty fleets find any stable rate, because each halves the range.
const MOST_TRAINS: u32 = 720;

/// The pause between trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// RTT + 9 · TX, as in the public tool: a tenth of the rate on average (pSLOW).
    Slow,
    /// One RTT, as in its paper (pFAST).
    Fast,
}

/// Settings of the tool: what pathload knows of hosts and path.
#[derive(Clone, Copy, Debug)]
pub struct PathloadSettings {
    /// The pause between trains.
    pub pace: Pace,
    /// The round trip of the path.
    pub rtt: Duration,
    /// The largest probe that is not fragmented: the MTU without IP and UDP headers.
    pub largest: u16,
    /// IP and UDP header bytes per probe.
    pub overhead: u32,
    /// The calibration of both hosts, the lesser value of each.
    pub host: Calibration,
    /// Whether streams may carry riders; the first burst never does (§4.2.2).
    pub may_carry: bool,
}

/// Finds the available bandwidth as a range.
#[derive(Clone, Debug)]
pub struct Pathload {
    settings: PathloadSettings,
    state: State,
    trains: u32,
    /// The duration of the last train, on which the pause depends.
    took: Duration,
    /// The rate at which the burst arrived, bit/s: the capacity, or a little less if other traffic was in between.
    burst: f64,
}

#[derive(Clone, Debug)]
enum State {
    /// The number of bursts that lost a probe.
    Burst(usize),
    Fleet {
        search: Box<Search>,
        rate: f64,
        fleet: Fleet,
        is_retry: bool,
    },
    Done(Result<Vec<Finding>, EstimatorError>),
}

impl Pathload {
    /// Creates the tool before its first train.
    pub fn new(settings: PathloadSettings) -> Self {
        Self { settings, state: State::Burst(0), trains: 0, took: Duration::ZERO, burst: 0.0 }
    }

    fn pause(&self) -> Duration {
        match (self.trains, self.settings.pace) {
            (0, _) => Duration::ZERO,
            (_, Pace::Slow) => self.settings.rtt + 9 * self.took,
            (_, Pace::Fast) => self.settings.rtt,
        }
    }

    fn probe(&self, size: u16, gap: Duration, may_carry: bool) -> Probe {
        Probe { size, header: HEADER, gap, may_carry }
    }

    fn train(&self) -> Option<Train> {
        let train = match &self.state {
            State::Burst(lost) => {
                let probe = self.probe(self.settings.largest, Duration::ZERO, false);
                Train::uniform(probe, *BURSTS.get(*lost)?)
            }
            State::Fleet { rate, .. } => {
                let (size, gap) = packets(*rate, &self.settings);
                Train::uniform(self.probe(size, gap, self.settings.may_carry), STREAM)
            }
            State::Done(_) => return None,
        };
        Some(train.ok()?.with_overhead(self.settings.overhead))
    }

    /// The state after a burst that arrived at this rate.
    fn begin(&self, burst: f64, is_coalesced: bool) -> State {
        let share = if is_coalesced { COALESCED } else { RESOLUTION };
        let grey = (GREY * burst).min(MOST_GREY);
        let PathloadSettings { largest, overhead, host, .. } = self.settings;
        let most = host.highest(largest, overhead).as_bps() as f64;
        let least = rate_of(LEAST_SIZE, overhead, LONGEST_GAP).as_bps() as f64;
        let search = Box::new(Search::new(share * burst, grey, least, most));
        let is_within = (least..=most).contains(&burst);
        let rate = if is_within { burst } else { f64::midpoint(least, most) };
        State::Fleet { search, rate, fleet: Fleet::default(), is_retry: false }
    }

    fn record_burst(&mut self, lost: usize, flight: &Flight) -> State {
        match rate_of_burst(flight, bits_of(self.settings.largest, self.settings.overhead)) {
            Some(rate) => {
                self.burst = rate;
                self.begin(rate, is_coalesced(flight, self.settings.host.receive_latency))
            }
            None if lost + 1 < BURSTS.len() => State::Burst(lost + 1),
            None => State::Done(Err(EstimatorError::Lost(BURSTS.len() as u32))),
        }
    }

    fn record_stream(
        &self,
        (search, rate, is_retry): (Box<Search>, f64, bool),
        mut fleet: Fleet,
        flight: &Flight,
    ) -> State {
        let (size, gap) = packets(rate, &self.settings);
        let bits = bits_of(size, self.settings.overhead);
        fleet.add(flight, bits, gap, self.settings.host.receive_latency);
        if !fleet.is_over() {
            return State::Fleet { search, rate, fleet, is_retry };
        }
        match fleet.verdict() {
            None if !is_retry => {
                State::Fleet { search, rate, fleet: Fleet::default(), is_retry: true }
            }
            verdict => match verdict.or_else(|| fleet.at_large()) {
                Some(verdict) => self.next_state(search, rate, &fleet, verdict),
                None => State::Done(Err(EstimatorError::Unclear)),
            },
        }
    }

    fn next_state(
        &self,
        mut search: Box<Search>,
        rate: f64,
        fleet: &Fleet,
        verdict: RateVerdict,
    ) -> State {
        let probed = fleet.rate().unwrap_or(rate);
        search.learn(probed, verdict, fleet.growth());
        let missed = (rate / probed).clamp(MISSED.0, MISSED.1);
        match search.next(probed) {
            Some(next) => {
                let (rate, fleet) = (search.sendable(next * missed), Fleet::default());
                State::Fleet { search, rate, fleet, is_retry: false }
            }
            None => State::Done(Ok(vec![found(&search, self.burst, fleet.hidden())])),
        }
    }
}

/// The finding: from the growth of delays if the range allows it, otherwise the range's middle. The range extends
/// equally to both sides, as far as the rates that were tried, so that its ends alone give the value, too.
fn found(search: &Search, burst: f64, last_hidden: f64) -> Finding {
    let (low, high, is_lower_bound) = search.range();
    let grown = search.by_growth(burst).filter(|(value, _)| (low / 2.0..=high).contains(value));
    let (value, hidden) = grown.unwrap_or((f64::midpoint(low, high), last_hidden));
    let reach = (high - value).max(value - low);
    let finding =
        Finding::corrected(Quantity::AvailableBandwidth, value - reach, value + reach, hidden);
    Finding { value: (value - hidden).max(0.0), is_lower_bound, ..finding }
}

/// The rate at which a burst of probes of `bits` bits arrived, without its first probe, which may have waited for
/// something else; `None` if one was lost.
fn rate_of_burst(flight: &Flight, bits: f64) -> Option<f64> {
    let arrivals: Option<Vec<_>> = flight.arrived.iter().copied().collect();
    let (first, last) = arrivals.as_deref().and_then(|all| Some((all.get(1)?, all.last()?)))?;
    let took = last.since(*first).as_secs_f64();
    let bits = bits * (flight.arrived.len() - 2) as f64;
    (took > 0.0).then(|| bits / took)
}

/// Whether the receiving host took a burst in batches: because interrupts were coalesced, or because it polls seldom.
fn is_coalesced(burst: &Flight, receive_latency: Duration) -> bool {
    let together = together(receive_latency);
    let arrivals: Vec<_> = burst.arrived.iter().flatten().collect();
    let close = arrivals.windows(2).filter(|pair| pair[1].since(*pair[0]) < together).count();
    close as f64 > BATCHED * arrivals.len() as f64
}

/// The size of probes, and the gap between them, for this rate in bit/s.
fn packets(rate: f64, settings: &PathloadSettings) -> (u16, Duration) {
    let PathloadSettings { largest, overhead, .. } = *settings;
    let gap_for = |size: u16| Duration::from_secs_f64(bits_of(size, overhead) / rate.max(1.0));
    let whole = |gap: Duration| Duration::from_micros(gap.as_secs_f64().mul_add(1e6, 0.5) as u64);
    let size_for = |gap: Duration| rate * gap.as_secs_f64() / 8.0 - f64::from(overhead);
    match rate {
        _ if rate > TUNED_PROBES => (largest, whole(gap_for(largest))),
        _ if rate >= SMALL_PROBES => {
            let gap = whole(gap_for(largest));
            ((size_for(gap) as u16).clamp(LEAST_SIZE, largest), gap)
        }
        _ => {
            let gap = USUAL_GAP.max(settings.host.shortest_gap());
            match size_for(gap) {
                size if size < f64::from(LEAST_SIZE) => (LEAST_SIZE, gap_for(LEAST_SIZE)),
                size if size > f64::from(largest) => (largest, gap_for(largest)),
                size => (size as u16, gap),
            }
        }
    }
}

impl Estimator for Pathload {
    fn name(&self) -> &'static str {
        match self.settings.pace {
            Pace::Slow => "pathload-slow",
            Pace::Fast => "pathload-fast",
        }
    }

    fn next(&mut self) -> Step {
        if self.trains >= MOST_TRAINS && !matches!(self.state, State::Done(_)) {
            self.state = State::Done(Err(EstimatorError::Endless(self.trains)));
        }
        match (self.train(), &self.state) {
            (_, State::Done(result)) => Step::Done(result.clone()),
            (Some(train), _) => Step::Send { train, after: self.pause() },
            (None, _) => Step::Done(Err(EstimatorError::Unclear)),
        }
    }

    fn record(&mut self, flight: &Flight) {
        self.took = self.train().map_or(Duration::ZERO, |train| train.duration());
        self.trains += 1;
        let state = std::mem::replace(&mut self.state, State::Burst(0));
        self.state = match state {
            State::Burst(lost) => self.record_burst(lost, flight),
            State::Fleet { search, rate, fleet, is_retry } => {
                self.record_stream((search, rate, is_retry), fleet, flight)
            }
            done @ State::Done(_) => done,
        };
    }

    fn progress(&self) -> Progress {
        let (phase, between) = match &self.state {
            State::Burst(_) => ("a burst", None),
            State::Fleet { search, .. } => ("fleets of streams", Some(search.between())),
            State::Done(_) => ("done", None),
        };
        Progress { trains: self.trains, between, phase }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
