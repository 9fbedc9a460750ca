//! The stretches of a stream that left without a pause: of them delays are judged.

use crate::train::{Flight, Passed, SHORTEST_GAP};
use std::time::Duration;

/// One says something from so many packets on.
const LEAST: usize = 37;

/// Where the host takes packets in batches, from so many batches on; the public tool's least for coalesced interrupts.
const BATCHES: usize = 5;

/// What was asked for of a stream, and the receiving host's resolution.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The gap.
    pub gap: Duration,
    /// Packets.
    pub count: usize,
    /// What receiving one takes.
    pub receive_latency: Duration,
}

/// A stretch of a stream that left without a pause.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// That came through, in order.
    passed: Vec<Passed>,
    /// When packets left, s after the first, and their delays, s, plus a constant; without those whose successor arrived together
    /// with them: their stamps say when the host looked, not when they came.
    delays: Vec<(f64, f64)>,
}

/// The segments of a stream that say something; none: nothing usable came through.
pub fn usable(flight: &Flight, asked: Asked) -> Vec<Segment> {
    let needed = LEAST.min(asked.count.saturating_sub(1));
    // A segment's ends of batches say as much as its packets where these were many.
    let is_usable =
        |one: &Segment| one.passed.len() >= needed && one.delays.len() >= BATCHES.min(needed);
    let mut segments = segments(flight, asked);
    segments.retain(is_usable);
    segments
}

/// What arrives within less came with one look of the host's, where receiving one takes so long.
pub fn together(receive_latency: Duration) -> Duration {
    SHORTEST_GAP.max(receive_latency * 5 / 2)
}

/// The least gap by which a stream is cut in two: the sending host paused.
pub fn pause(gap: Duration) -> Duration {
    (2 * gap).max(gap + Duration::from_millis(1))
}

fn segments(flight: &Flight, asked: Asked) -> Vec<Segment> {
    let pause = pause(asked.gap);
    let together = together(asked.receive_latency);
    let passed: Vec<Passed> = flight.passed().collect();
    let mut segments = vec![Segment::default()];
    for (at, probe) in passed.iter().enumerate() {
        let next = passed.get(at + 1);
        let is_stamped = next.is_none_or(|next| next.arrived.since(probe.arrived) >= together);
        if let Some(segment) = segments.last_mut() {
            segment.add(*probe, is_stamped);
        }
        let steps = next.map_or(1, |next| (next.place - probe.place) as u32);
        // A lost probe is no pause: its gap was kept.
        if next.is_some_and(|next| next.sent.since(probe.sent) > pause + asked.gap * (steps - 1)) {
            segments.push(Segment::default());
        }
    }
    segments
}

impl Segment {
    fn add(&mut self, probe: Passed, is_stamped: bool) {
        self.passed.push(probe);
        let first = self.passed[0];
        let at = probe.sent.since(first.sent).as_secs_f64();
        let late = (probe.delay() - first.delay()) as f64 * 1e-9;
        self.delays.extend(is_stamped.then_some((at, late)));
    }

    /// Packets that came through.
    pub fn packets(&self) -> usize {
        self.passed.len()
    }

    /// See the field.
    pub fn delays(&self) -> &[(f64, f64)] {
        &self.delays
    }

    /// The mean gap, s; lost packets kept theirs. `None`: of one packet, or of none that left after another.
    pub fn gap(&self) -> Option<f64> {
        let (first, last) = (self.passed.first()?, self.passed.last()?);
        let took = last.sent.since(first.sent).as_secs_f64();
        (took > 0.0).then(|| took / (last.place - first.place) as f64)
    }
}
