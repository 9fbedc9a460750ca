//! What goes over this node's legs, second by second: the oracle's plan, and where it has none, this node's own choice.

use crate::{
    Adapt, Measure, Ordered, Plan, Quality, StreamStatus, Streams,
    levels::{Levels, Measured, Sample},
    status::{LegStatus, Taker},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_units::Time;
use thalweg_wire::{mesh::Name, stream::leg::CLASSES};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

/// Members to whom legs are to be measured: whether so many bit/s are free, or (`None`) what is.
pub type ToMeasure = BTreeMap<Name, Option<f64>>;

/// This node's part in choosing.
#[derive(Debug)]
pub(crate) struct Adaptation {
    state: Mutex<State>,
    /// Members to whom the legs are to be measured, and what is to be found free; `None`: whatever is.
    measured: watch::Sender<ToMeasure>,
}

#[derive(Debug, Default)]
struct State {
    oracle: Plan,
    own: BTreeMap<Name, BTreeMap<Name, Ordered>>,
    levels: BTreeMap<Name, Levels>,
}

impl Default for Adaptation {
    fn default() -> Self {
        Self { state: Mutex::default(), measured: watch::channel(ToMeasure::new()).0 }
    }
}

impl Adaptation {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What is in it is whole between any two statements that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oracle's newest word.
    pub fn set_oracle(&self, plan: Plan) {
        self.lock().oracle = plan;
    }

    /// The oracle's plan, and this node's own choices for the legs that it does not speak of.
    fn effective(&self) -> Plan {
        let state = self.lock();
        let mut plan = state.oracle.clone();
        for (stream, children) in &state.own {
            let planned = plan.streams.entry(stream.clone()).or_default();
            for (child, ordered) in children {
                planned.children.entry(child.clone()).or_insert_with(|| ordered.clone());
            }
        }
        plan
    }
}

impl Streams {
    /// Chooses each second, for ever; drop the future to end it.
    pub async fn adapt(self) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.choose();
        }
    }

    /// Members to whom the legs are to be measured, one after the other, as long as they are in it.
    pub fn to_measure(&self) -> watch::Receiver<ToMeasure> {
        self.0.adaptation.measured.subscribe()
    }

    /// Trains found so much to be free on the way to this member, bit/s, beside all that travels there; or not to be free.
    pub fn measured(&self, to: &Name, free: f64, is_free: bool, began: Instant) {
        let ended = self.0.clock.now();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let began = Time::from_nanos(ended.as_nanos().saturating_sub(took));
        let mut state = self.0.adaptation.lock();
        if let Some(levels) = state.levels.get_mut(to) {
            levels.measured(Measured { free, is_free, began, ended });
        }
        drop(state);
        self.choose();
    }

    fn choose(&self) {
        let now = self.0.clock.now();
        let mut samples: BTreeMap<Name, Vec<Sample>> = BTreeMap::new();
        for stream in self.status() {
            for leg in stream.legs.iter().filter(|leg| leg.taker == Taker::Member) {
                if let (Some(name), Ok(child)) = (&stream.name, leg.to.parse::<Name>()) {
                    samples.entry(child).or_default().push(sample(name, &stream, leg));
                }
            }
        }
        let settings = &self.0.settings;
        let mut state = self.0.adaptation.lock();
        state.levels.retain(|child, _| samples.contains_key(child));
        let (mut own, mut to_measure) = (BTreeMap::new(), ToMeasure::new());
        for (child, samples) in &samples {
            let levels = state.levels.entry(child.clone()).or_default();
            let chosen = levels.tick(now, samples);
            match settings.measure {
                Measure::Off => {}
                // Where all is tried anyway, nothing is to be learned.
                Measure::Degraded if settings.adapt == Adapt::Queue => {}
                Measure::Degraded => {
                    if let Some(free) = levels.wish(now, samples) {
                        to_measure.insert(child.clone(), Some(free));
                    }
                }
                Measure::Always => {
                    to_measure.insert(child.clone(), None);
                }
            }
            for (stream, level) in chosen.levels {
                let quality = Quality { track: None, level };
                let (why, estimate) = (chosen.why.clone(), chosen.estimate);
                let ordered = Ordered { quality, why, estimate };
                let of_stream: &mut BTreeMap<Name, Ordered> = own.entry(stream).or_default();
                of_stream.insert(child.clone(), ordered);
            }
        }
        state.own = if settings.adapt == Adapt::Levels { own } else { BTreeMap::new() };
        drop(state);
        self.0.adaptation.measured.send_if_modified(|old| {
            let is_new = *old != to_measure;
            *old = to_measure;
            is_new
        });
        self.apply();
    }

    /// Has the legs do what is chosen.
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

fn sample(name: &Name, stream: &StreamStatus, leg: &LegStatus) -> Sample {
    let mut rates = [0; CLASSES];
    for (track, of_track) in stream.rates.iter().enumerate() {
        for (class, rate) in of_track.iter().enumerate() {
            let is_its = leg.wants.track.is_none_or(|wanted| usize::from(wanted) == track);
            // Tables and sound belong to all renditions.
            if is_its || class < 2 {
                rates[class] += rate;
            }
        }
    }
    Sample {
        stream: name.clone(),
        wants: leg.wants,
        rates,
        sent: leg.sent_bps,
        is_limited: leg.is_limited,
    }
}
