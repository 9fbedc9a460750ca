//! Stretches of a stream that left without a pause; delays are judged within one.

use crate::train::{ArrivedProbe, Flight, SHORTEST_GAP};
use std::time::Duration;

/// The minimum number of packets of a conclusive segment.
const MIN_PACKETS: usize = 37;

/// The minimum number of batches of a conclusive segment if the host takes packets in batches; the public tool's
/// minimum for coalesced interrupts.
const BATCHES: usize = 5;

/// What was requested of a stream, and the resolution of the receiving host.
#[derive(Clone, Copy, Debug)]
pub struct RequestedStream {
    pub gap: Duration,
    /// The number of packets.
    pub count: usize,
    /// The time to receive one packet.
    pub receive_latency: Duration,
}

/// A stretch of a stream that left without a pause.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// The packets that arrived, in order.
    passed: Vec<ArrivedProbe>,
    /// When packets left, s after the first one, and their delays, s, plus a constant. Packets whose successor arrived
    /// together with them are left out: their stamps say when the host polled, not when they arrived.
    delays: Vec<(f64, f64)>,
}

/// The conclusive segments of a stream; none if nothing usable arrived.
pub fn usable(flight: &Flight, asked: RequestedStream) -> Vec<Segment> {
    let needed = MIN_PACKETS.min(asked.count.saturating_sub(1));
    // In a segment with enough packets, a few ends of batches suffice.
    let is_usable =
        |one: &Segment| one.passed.len() >= needed && one.delays.len() >= BATCHES.min(needed);
    let mut segments = segments(flight, asked);
    segments.retain(is_usable);
    segments
}

/// Packets that arrive closer together than this came in one poll of a host that needs this time to receive one.
pub fn together(receive_latency: Duration) -> Duration {
    SHORTEST_GAP.max(receive_latency * 5 / 2)
}

/// The minimum gap at which a stream is split: the sending host paused.
pub fn pause(gap: Duration) -> Duration {
    (2 * gap).max(gap + Duration::from_millis(1))
}

fn segments(flight: &Flight, asked: RequestedStream) -> Vec<Segment> {
    let pause = pause(asked.gap);
    let together = together(asked.receive_latency);
    let passed: Vec<ArrivedProbe> = flight.arrived_probes().collect();
    let mut segments = vec![Segment::default()];
    for (at, probe) in passed.iter().enumerate() {
        let next = passed.get(at + 1);
        let is_stamped = next.is_none_or(|next| next.arrived.since(probe.arrived) >= together);
        if let Some(segment) = segments.last_mut() {
            segment.add(*probe, is_stamped);
        }
        let steps = next.map_or(1, |next| (next.place - probe.place) as u32);
        // A lost probe is not a pause: its gap was kept.
        if next.is_some_and(|next| next.sent.since(probe.sent) > pause + asked.gap * (steps - 1)) {
            segments.push(Segment::default());
        }
    }
    segments
}

impl Segment {
    fn add(&mut self, probe: ArrivedProbe, is_stamped: bool) {
        self.passed.push(probe);
        let first = self.passed[0];
        let at = probe.sent.since(first.sent).as_secs_f64();
        let late = (probe.delay() - first.delay()) as f64 * 1e-9;
        self.delays.extend(is_stamped.then_some((at, late)));
    }

    /// The number of packets that arrived.
    pub fn packets(&self) -> usize {
        self.passed.len()
    }

    /// When packets left and their delays, s; without packets whose successor arrived together with them.
    pub fn delays(&self) -> &[(f64, f64)] {
        &self.delays
    }

    /// The mean gap, s; lost packets kept theirs. `None`: there is one packet, or all left at the same time.
    pub fn gap(&self) -> Option<f64> {
        let (first, last) = (self.passed.first()?, self.passed.last()?);
        let took = last.sent.since(first.sent).as_secs_f64();
        (took > 0.0).then(|| took / (last.place - first.place) as f64)
    }
}
