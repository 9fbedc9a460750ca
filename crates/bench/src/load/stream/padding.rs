//! The padding prober, for comparison: viewers choose the level of their streams themselves, and test the rate of the
//! next level with datagrams of padding beside the streams, as senders of conference systems do.
//!
//! It follows the signals, shares and pauses of `thalweg_stream::Levels`: a leg that is too slow in two of three seconds
//! lowers the level; from 3 s later a test may raise it again, first to the highest level and then, if that does not
//! fit, to the next one. A test is about as long as one with trains. Unlike there, all streams have the same level.

use super::{super::mgrp::program::Program, media, outcome::LegMeasurement};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;
use thalweg_wire::stream::leg::Level;
use tokio::sync::watch;

/// The sink's port.
const PORT: u16 = 9099;

/// The share of the path's rate that streams use, as `Rules::fill`.
const FILL: f64 = 0.88;

/// Tested rates are higher by this factor, as in `thalweg_stream::Levels`.
const MARGIN: f64 = 1.04;

/// A level is not judged for this long after a change.
const SETTLE: Duration = Duration::from_secs(2);

/// A lowered level is not raised for this long.
const HOLD: Duration = Duration::from_secs(3);

/// The pause after a test that found too little room.
const PAUSE: Duration = Duration::from_millis(600);

/// The duration of a test, about that of a test with trains.
const TEST: Duration = Duration::from_millis(600);

/// How long the sink waits for late padding: a round trip and the bottleneck's queue.
const LATE: Duration = Duration::from_millis(100);

/// The largest loss of padding at which a rate counts as available.
const MAX_LOSS: f64 = 0.01;

/// The prober.
pub struct Padding {
    state: Arc<Mutex<State>>,
    level: watch::Sender<Level>,
    address: String,
    _sink: Program,
}

struct State {
    limited: VecDeque<bool>,
    changed: Instant,
    lowered: Option<Instant>,
    /// When the highest level last failed a test, and when the next one did.
    refused: [Option<Instant>; 2],
    is_testing: bool,
    /// The tests and when they ended.
    found: Vec<(Instant, LegMeasurement)>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
}

/// The rate of all streams at this level, bit/s.
fn rate(level: Level) -> f64 {
    let frames = (0..media::GROUP).map(media::shape);
    let bytes: usize =
        frames.filter(|(class, _)| level.takes(*class as u8)).map(|(_, bytes)| bytes).sum();
    let group = media::PERIOD.as_secs_f64() * media::GROUP as f64;
    bytes as f64 * 8.0 / group * media::STREAMS.len() as f64
}

/// The level to test: the highest, else the next one; a level that failed recently is skipped.
fn next_above(level: Level, refused: [bool; 2]) -> Option<Level> {
    match (level, refused) {
        (Level::Keys | Level::NoDisposable, [false, _]) => Some(Level::All),
        (Level::Keys, [true, false]) => Some(Level::NoDisposable),
        (Level::Keys | Level::NoDisposable | Level::All, _) => None,
    }
}

fn next_below(level: Level) -> Level {
    match level {
        Level::All => Level::NoDisposable,
        Level::NoDisposable | Level::Keys => Level::Keys,
    }
}

impl Padding {
    /// Starts the sink of the padding at m5.
    ///
    /// # Errors
    /// When the sink does not start.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        let address = format!("{}:{PORT}", lab.address("m5"));
        let mut sink = Program::tool(lab, "m5", &["train-sink", "--listen", &address])?;
        sink.ready()?;
        let state = State {
            limited: VecDeque::new(),
            changed: Instant::now(),
            lowered: None,
            refused: [None; 2],
            is_testing: false,
            found: Vec::new(),
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            level: watch::channel(Level::All).0,
            address,
            _sink: sink,
        })
    }

    /// The level that viewers request.
    pub fn level(&self) -> watch::Receiver<Level> {
        self.level.subscribe()
    }

    /// The tests that ended after this instant, with times relative to it.
    pub fn measurements(&self, counts_from: Instant) -> Vec<LegMeasurement> {
        let since = |(ended, one): &(Instant, LegMeasurement)| {
            let at = ended.checked_duration_since(counts_from)?.as_secs_f64();
            Some(LegMeasurement { at, ..*one })
        };
        lock(&self.state).found.iter().filter_map(since).collect()
    }

    /// Processes the parent's report of the last second: lowers the level, or begins a test.
    ///
    /// # Errors
    /// When the test does not start.
    pub fn tick(&self, lab: &Lab, status: &Value) -> anyhow::Result<()> {
        let streams = status["streams"].as_array().into_iter().flatten();
        let mut legs = streams.flat_map(|stream| stream["legs"].as_array().into_iter().flatten());
        let is_limited = legs.any(|leg| leg["is_limited"] == true);
        let (level, now) = (*self.level.borrow(), Instant::now());
        let mut state = lock(&self.state);
        state.limited.push_back(is_limited);
        if state.limited.len() > 3 {
            state.limited.pop_front();
        }
        let is_settled = now - state.changed >= SETTLE;
        if is_settled && state.limited.iter().filter(|is| **is).count() >= 2 {
            if level > Level::Keys {
                state.change(now);
                state.lowered = Some(now);
                self.level.send_replace(next_below(level));
            }
            return Ok(());
        }
        let passed = |since: Option<Instant>, pause| since.is_none_or(|at| now - at >= pause);
        let may = passed(state.lowered, HOLD) && !state.is_testing;
        let refused = state.refused.map(|at| !passed(at, PAUSE));
        let Some(above) = next_above(level, refused).filter(|_| may) else { return Ok(()) };
        state.is_testing = true;
        drop(state);
        self.test(lab, above, MARGIN * rate(above) / FILL - rate(level))
    }

    fn test(&self, lab: &Lab, above: Level, bps: f64) -> anyhow::Result<()> {
        let bits = format!("{bps:.0} bit/s");
        let [time, late] = [TEST, LATE].map(|time| format!("{} ms", time.as_millis()));
        let args = ["udp-blast", "--to", &self.address, "--rate", &bits, "--size", "1200"];
        let args = [&args[..], &["--for", &time, "--settle", &late]].concat();
        let blast = Program::tool(lab, "m3", &args)?;
        let (state, level) = (Arc::clone(&self.state), self.level.clone());
        let began = Instant::now();
        tokio::task::spawn_blocking(move || {
            let lost = blast.report().ok().and_then(|report| report["loss"]["value"].as_f64());
            let fits = lost.is_some_and(|lost| lost <= MAX_LOSS);
            let now = Instant::now();
            let mut state = lock(&state);
            state.is_testing = false;
            // If the level was lowered during the test, another test is needed.
            let is_stale = state.lowered.is_some_and(|at| at > began);
            let (took, bytes) = (began.elapsed().as_secs_f64(), bps / 8.0 * TEST.as_secs_f64());
            let found = fits.then_some((bps, bps));
            state.found.push((now, LegMeasurement { at: 0.0, took, bytes, found }));
            if fits && !is_stale {
                state.change(now);
                level.send_replace(above);
            } else {
                state.refused[usize::from(above != Level::All)] = Some(now);
            }
        });
        Ok(())
    }
}

impl State {
    fn change(&mut self, now: Instant) {
        self.changed = now;
        self.limited.clear();
    }
}
