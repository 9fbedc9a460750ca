//! Chooses the quality on this node's legs each second: the oracle's plan, or a local choice for legs that it omits.

use crate::{
    Adapt, LegPlan, Measure, Plan, StreamStatus, Streams,
    levels::{AvailableRate, Levels, Measurement, RenditionRates, Sample},
    status::{ChildKind, LegStatus},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_units::Time;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{CLASSES, Level},
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

/// A measurement that the legs to a member need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NeededMeasurement {
    /// The rate to test, bit/s; `None`: the available bandwidth.
    pub test_bps: Option<f64>,
    /// How often the levels have been lowered. A measurement that began before the last such change is ignored.
    pub falls: u64,
}

/// The needed measurements, by member.
pub type NeededMeasurements = BTreeMap<Name, NeededMeasurement>;

/// The state of this node's adaptation.
#[derive(Debug)]
pub(crate) struct Adaptation {
    state: Mutex<State>,
    /// The measurements that the legs need now.
    needed: watch::Sender<NeededMeasurements>,
}

#[derive(Debug, Default)]
struct State {
    oracle: Plan,
    local: BTreeMap<Name, BTreeMap<Name, LegPlan>>,
    levels: BTreeMap<Name, Levels>,
    /// The members whose legs the oracle wants to have measured.
    requested: Vec<Name>,
}

impl State {
    /// Whether the oracle has a plan for the legs to the child.
    fn is_planned(&self, child: &Name) -> bool {
        self.oracle.streams.values().any(|stream| stream.children.contains_key(child))
    }
}

impl Default for Adaptation {
    fn default() -> Self {
        Self { state: Mutex::default(), needed: watch::channel(NeededMeasurements::new()).0 }
    }
}

impl Adaptation {
    /// Replaces the oracle's plan.
    pub fn set_oracle(&self, plan: Plan) {
        self.state.lock().oracle = plan;
    }

    /// Replaces the members whose legs the oracle wants to have measured.
    pub fn set_requested(&self, requested: Vec<Name>) {
        self.state.lock().requested = requested;
    }

    /// The oracle's plan, with this node's local choices for the legs that it omits.
    fn effective(&self) -> Plan {
        let state = self.state.lock();
        let mut plan = state.oracle.clone();
        for (stream, children) in &state.local {
            let stream_plan = plan.streams.entry(stream.clone()).or_default();
            for (child, leg_plan) in children {
                stream_plan.children.entry(child.clone()).or_insert_with(|| leg_plan.clone());
            }
        }
        plan
    }
}

impl Streams {
    /// Chooses levels each second; runs until the future is dropped.
    pub async fn adapt(self) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.choose();
        }
    }

    /// The measurements that legs need now. Measure these members in turn as long as they are listed.
    pub fn needed_measurements(&self) -> watch::Receiver<NeededMeasurements> {
        self.0.adaptation.needed.subscribe()
    }

    /// Records a measurement of the path to `to`.
    pub fn record_measurement(&self, to: &Name, room: AvailableRate, began: Instant) {
        let ended = self.0.clock.now();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let began = Time::from_nanos(ended.as_nanos().saturating_sub(took));
        let mut state = self.0.adaptation.state.lock();
        if let Some(levels) = state.levels.get_mut(to) {
            levels.add_measurement(Measurement { room, began, ended });
        }
        drop(state);
        self.choose();
    }

    /// Reports to the oracle that at least `low` bit/s were available on the path to `to`, beside all present traffic.
    pub fn report_measurement(&self, to: &Name, low: f64, is_lower_bound: bool, began: Instant) {
        self.0.adaptation.state.lock().requested.retain(|requested| requested != to);
        self.0.link.add_measurement(to, low, is_lower_bound, began.elapsed());
    }

    /// Reports to the oracle that there is no connection to `to`.
    pub fn report_unreachable(&self, to: &Name) {
        self.0.adaptation.state.lock().requested.retain(|requested| requested != to);
        self.0.link.add_unreachable(to);
    }

    fn choose(&self) {
        let now = self.0.clock.now();
        let mut samples: BTreeMap<Name, Vec<Sample>> = BTreeMap::new();
        for stream in self.status() {
            for leg in stream.legs.iter().filter(|leg| leg.taker == ChildKind::Member) {
                if let (Some(name), Ok(child)) = (&stream.name, leg.to.parse::<Name>()) {
                    let sample = sample(name, &stream, leg, self.0.settings.get().adapt);
                    samples.entry(child).or_default().push(sample);
                }
            }
        }
        let settings = self.0.settings.get();
        let mut state = self.0.adaptation.state.lock();
        state.levels.retain(|child, _| samples.contains_key(child));
        let (mut local, mut needed_measurements) = (BTreeMap::new(), NeededMeasurements::new());
        let planned: Vec<Name> =
            samples.keys().filter(|child| state.is_planned(child)).cloned().collect();
        for (child, samples) in &samples {
            let levels = state.levels.entry(child.clone()).or_default();
            let chosen = levels.tick(now, samples);
            let falls = levels.falls();
            match settings.measure {
                Measure::Off => {}
                // The oracle requests the measurements that it needs.
                Measure::Degraded if planned.contains(child) => {}
                // The queue sends whatever fits, so a measurement would change nothing.
                Measure::Degraded if !samples.iter().any(has_options) => {}
                Measure::Degraded => {
                    if let Some(free) = levels.rate_to_test(now, samples) {
                        needed_measurements.insert(
                            child.clone(),
                            NeededMeasurement { test_bps: Some(free), falls },
                        );
                    }
                }
                Measure::Always => {
                    needed_measurements
                        .insert(child.clone(), NeededMeasurement { test_bps: None, falls });
                }
            }
            let is_chosen =
                |stream: &Name| samples.iter().any(|s| s.stream == *stream && has_options(s));
            for (stream, quality) in
                chosen.qualities.into_iter().filter(|(stream, _)| is_chosen(stream))
            {
                let (why, estimate) = (chosen.why.clone(), chosen.estimate);
                let leg_plan = LegPlan { quality, why, estimate };
                let of_stream: &mut BTreeMap<Name, LegPlan> = local.entry(stream).or_default();
                of_stream.insert(child.clone(), leg_plan);
            }
        }
        if settings.measure != Measure::Off {
            let falls = |to: &Name| state.levels.get(to).map_or(0, Levels::falls);
            let needed =
                |to: &Name| (to.clone(), NeededMeasurement { test_bps: None, falls: falls(to) });
            needed_measurements.extend(state.requested.iter().map(needed));
        }
        state.local = local;
        drop(state);
        self.0.adaptation.needed.send_if_modified(|old| {
            let is_new = *old != needed_measurements;
            *old = needed_measurements;
            is_new
        });
        self.apply();
    }

    /// Publishes the effective plan to the legs.
    pub(crate) fn apply(&self) {
        let plan = self.0.adaptation.effective();
        self.0.plan.send_if_modified(|old| {
            let is_new = **old != plan;
            if is_new {
                *old = Arc::new(plan);
            }
            is_new
        });
    }
}

/// Whether the leg can have more than one quality.
fn has_options(sample: &Sample) -> bool {
    sample.options.len() > 1
}

fn sample(name: &Name, stream: &StreamStatus, leg: &LegStatus, adapt: Adapt) -> Sample {
    let levels: Vec<Level> = match adapt {
        // The queue sends whatever fits, so a lower level would change nothing.
        Adapt::Queue => vec![leg.wants.level],
        Adapt::Levels => Level::ALL.into_iter().filter(|level| *level <= leg.wants.level).collect(),
    };
    Sample {
        stream: name.clone(),
        options: Sample::options(&renditions(stream, leg), &levels),
        sent: leg.sent_bps,
        is_limited: leg.is_limited,
    }
}

/// The renditions among which this node chooses for the leg; all at once if it does not choose.
fn renditions(stream: &StreamStatus, leg: &LegStatus) -> Vec<RenditionRates> {
    let is_coming = |track: &u8| {
        let rates = stream.rates.get(usize::from(*track));
        rates.is_some_and(|rates| rates[2..].iter().any(|rate| *rate > 0))
    };
    let tracks: Vec<u8> = leg.tracks.iter().copied().filter(is_coming).collect();
    if tracks.len() > 1 && stream.has_all_renditions {
        return tracks.into_iter().map(|track| (Some(track), rates(stream, Some(track)))).collect();
    }
    vec![(leg.wants.track, rates(stream, leg.wants.track))]
}

/// The rates of a rendition by class; `None`: of all together. All renditions share tables and audio.
fn rates(stream: &StreamStatus, wanted: Option<u8>) -> [u64; CLASSES] {
    let mut rates = [0; CLASSES];
    for (track, of_track) in (0_u8..).zip(&stream.rates) {
        for (class, rate) in of_track.iter().enumerate() {
            if class < 2 || wanted.is_none_or(|wanted| wanted == track) {
                rates[class] += rate;
            }
        }
    }
    rates
}
