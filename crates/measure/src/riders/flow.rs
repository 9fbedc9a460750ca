//! Observes the TCP flows that ride: how much each has in flight, and when it loses packets.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// The maximum number of flows that are followed; beyond it the one that was idle longest is dropped.
const FLOWS: usize = 64;

/// How long a loss halves what may be in flight.
const LOSS_MEMORY: Duration = Duration::from_secs(2);

/// The time constant over which a flow's rate is averaged.
const RATE_MEMORY: Duration = Duration::from_millis(500);

/// A flow that sent nothing for this long does not count.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// What [`super::Regulator::Flow`] needs to know of the riding flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowState {
    /// Bytes that may ride back to back; there is no bound if there is no TCP flow.
    pub window: usize,
    /// Bytes per second that may ride in addition over time: the rate at which the flows sent by themselves.
    pub rate: f64,
}

impl Default for FlowState {
    fn default() -> Self {
        Self { window: usize::MAX, rate: 0.0 }
    }
}

/// The addresses and ports of a flow, in the direction in which it rides.
type FlowKey = (Vec<u8>, u16, u16);

#[derive(Clone, Debug)]
struct TrackedFlow {
    key: FlowKey,
    /// The byte after the last one sent, and the byte after the last one acknowledged.
    sent: u32,
    acknowledged: u32,
    /// The recent maximum of bytes in flight.
    peak: u32,
    /// Bytes that were sent recently, the older ones with decaying weight.
    recent: f64,
    lost: Option<Time>,
    seen: Time,
}

impl TrackedFlow {
    fn decayed(&self, now: Time) -> f64 {
        self.recent * (-now.since(self.seen).as_secs_f64() / RATE_MEMORY.as_secs_f64()).exp()
    }
}

/// The flows that ride.
#[derive(Clone, Debug, Default)]
pub struct FlowWatch(VecDeque<TrackedFlow>);

/// A TCP segment in an IP packet.
struct TcpSegment {
    key: FlowKey,
    back: FlowKey,
    sequence: u32,
    /// Bytes of content, plus one each for SYN and FIN.
    length: u32,
    acknowledges: Option<u32>,
}

impl FlowWatch {
    /// Records a packet that is about to ride.
    pub fn observe_sent(&mut self, packet: &[u8], now: Time) {
        let Some(segment) = TcpSegment::read(packet).filter(|segment| segment.length > 0) else {
            return;
        };
        let end = segment.sequence.wrapping_add(segment.length);
        let mut known = self.0.iter_mut().find(|flow| flow.key == segment.key);
        if let Some(flow) = &mut known {
            flow.recent = flow.decayed(now) + f64::from(segment.length);
            flow.seen = now;
        }
        match known {
            Some(flow) if is_before(end, flow.sent.wrapping_add(1)) => flow.lost = Some(now),
            Some(flow) => {
                flow.sent = end;
                let under_way = end.wrapping_sub(flow.acknowledged);
                flow.peak = flow.peak.max(under_way.min(1 << 30));
            }
            None => {
                self.forget();
                let (acknowledged, peak, recent) = (segment.sequence, segment.length, 0.0);
                self.0.push_back(TrackedFlow {
                    key: segment.key,
                    sent: end,
                    acknowledged,
                    peak,
                    recent,
                    lost: None,
                    seen: now,
                });
            }
        }
    }

    /// Drops the flow that was idle longest if there is no room for another one.
    fn forget(&mut self) {
        let all = self.0.iter().enumerate();
        let longest = all.min_by_key(|(_, flow)| flow.seen).map(|(at, _)| at);
        if let Some(at) = longest.filter(|_| self.0.len() >= FLOWS) {
            self.0.remove(at);
        }
    }

    /// Records a packet from the peer, which may acknowledge data.
    pub fn observe_received(&mut self, packet: &[u8]) {
        let Some(segment) = TcpSegment::read(packet) else { return };
        let flow = self.0.iter_mut().find(|flow| flow.key == segment.back);
        if let Some((flow, to)) = flow.zip(segment.acknowledges)
            && is_before(flow.acknowledged, to)
            && !is_before(flow.sent, to)
        {
            let before = flow.sent.wrapping_sub(flow.acknowledged);
            flow.acknowledged = to;
            // Older maxima count less with each acknowledgement.
            flow.peak = flow.peak.saturating_sub(flow.peak / 64).max(before.min(1 << 30));
        }
    }

    /// The sum over all flows that are not idle.
    pub fn state(&self, now: Time) -> FlowState {
        let state = |flow: &TrackedFlow| {
            let has_lost_recently = flow.lost.is_some_and(|at| now.since(at) < LOSS_MEMORY);
            let part = if has_lost_recently { 2 } else { 1 };
            let rate = flow.decayed(now) / RATE_MEMORY.as_secs_f64() / part as f64;
            FlowState { window: flow.peak as usize / part, rate }
        };
        let active = self.0.iter().filter(|flow| now.since(flow.seen) < MAX_IDLE);
        let both = |a: FlowState, b: FlowState| FlowState {
            window: a.window + b.window,
            rate: a.rate + b.rate,
        };
        active.map(state).reduce(both).unwrap_or_default()
    }
}

/// Compares sequence numbers, which wrap.
fn is_before(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

impl TcpSegment {
    /// Parses a packet (RFC 791; RFC 8200 without extension headers; RFC 9293). Only first fragments and whole packets
    /// have ports.
    fn read(packet: &[u8]) -> Option<Self> {
        let (addresses, payload) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                let total = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
                let is_later = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x1fff != 0;
                let is_tcp = *packet.get(9)? == 6;
                (is_tcp && !is_later && header >= 20).then_some(())?;
                (packet.get(12..20)?, packet.get(header..total)?)
            }
            6 => {
                let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
                (*packet.get(6)? == 6).then_some(())?;
                (packet.get(8..40)?, packet.get(40..40 + length)?)
            }
            _ => return None,
        };
        let two = |at: usize| Some(u16::from_be_bytes(payload.get(at..at + 2)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        let (from, to, flags) = (two(0)?, two(2)?, *payload.get(13)?);
        let header = usize::from(payload.get(12)? >> 4) * 4;
        let content = payload.len().checked_sub(header)? as u32;
        let (here, there) = addresses.split_at(addresses.len() / 2);
        let key = |a: &[u8], b: &[u8], from, to| ([a, b].concat(), from, to);
        Some(Self {
            key: key(here, there, from, to),
            back: key(there, here, to, from),
            sequence: four(4)?,
            length: content + u32::from(flags & 1) + u32::from(flags >> 1 & 1),
            acknowledges: if flags & 16 == 0 { None } else { Some(four(8)?) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A segment in the flow's direction, or back, with this sequence number, length and acknowledgement.
    fn packet(is_back: bool, sequence: u32, length: usize, acknowledges: u32) -> Vec<u8> {
        let ends =
            if is_back { [[10, 0, 0, 2], [10, 0, 0, 1]] } else { [[10, 0, 0, 1], [10, 0, 0, 2]] };
        let ports: [u16; 2] = if is_back { [80, 5000] } else { [5000, 80] };
        let mut bytes = vec![0x45, 0];
        bytes.extend((40 + length as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend(ends.concat());
        ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(acknowledges.to_be_bytes());
        bytes.extend([0x50, 16, 0, 0, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + length, 0);
        bytes
    }

    #[test]
    fn the_window_is_the_bytes_in_flight_and_a_loss_halves_it_for_a_while() {
        let mut watch = FlowWatch::default();
        let first = u32::MAX - 1500;
        for n in 0..4 {
            watch.observe_sent(&packet(false, first.wrapping_add(n * 1000), 1000, 1), at(0));
        }
        assert_eq!(watch.state(at(0)).window, 4000);
        watch.observe_received(&packet(true, 1, 0, first.wrapping_add(2000)));
        watch.observe_sent(&packet(false, first.wrapping_add(4000), 1000, 1), at(1));
        assert!((3900..=4000).contains(&watch.state(at(1)).window));
        watch.observe_sent(&packet(false, first.wrapping_add(2000), 1000, 1), at(2));
        assert!(watch.state(at(2)).window <= 2000);
        assert!(watch.state(at(2002)).window > 3000);
    }

    #[test]
    fn the_flow_that_was_idle_longest_is_dropped_first() {
        let mut watch = FlowWatch::default();
        let of = |port: u16, sequence, length| {
            let mut bytes = packet(false, sequence, length, 1);
            bytes[20..22].copy_from_slice(&port.to_be_bytes());
            bytes
        };
        for port in 0..FLOWS as u16 {
            watch.observe_sent(&of(port, 0, 10), at(port.into()));
        }
        // The flow that began first is active again.
        watch.observe_sent(&of(0, 10, 5000), at(100));
        (1000..1060).for_each(|port| watch.observe_sent(&of(port, 0, 10), at(200)));
        assert_eq!(watch.0.len(), FLOWS);
        assert!(watch.state(at(200)).window >= 5010, "{:?}", watch.state(at(200)));
    }

    #[test]
    fn the_rate_covers_the_last_half_second_and_a_loss_halves_it() {
        let mut watch = FlowWatch::default();
        // 500 kB/s.
        for n in 0..1000_u32 {
            let packet = packet(false, n * 1000, 1000, 1);
            watch.observe_sent(&packet, at(u64::from(n) * 2));
        }
        let rate = |watch: &FlowWatch, ms| watch.state(at(ms)).rate;
        assert!((rate(&watch, 1998) / 500e3 - 1.0).abs() < 0.05, "{}", rate(&watch, 1998));
        assert!(rate(&watch, 3000) < 100e3);
        watch.observe_sent(&packet(false, 0, 1000, 1), at(2000));
        assert!((rate(&watch, 2000) / 250e3 - 1.0).abs() < 0.05, "{}", rate(&watch, 2000));
    }

    #[test]
    fn other_packets_are_ignored_and_flows_are_bounded() {
        let mut watch = FlowWatch::default();
        for bytes in [&[][..], &[0x45; 19], &[0x60; 41], &[0x45, 0, 255, 255, 0, 0, 0, 0, 64, 6]] {
            watch.observe_sent(bytes, at(0));
            watch.observe_received(bytes);
        }
        assert_eq!(watch.state(at(0)), FlowState::default());
        for port in 0..500_u16 {
            let mut bytes = packet(false, 1, 10, 1);
            bytes[20..22].copy_from_slice(&port.to_be_bytes());
            watch.observe_sent(&bytes, at(0));
        }
        assert_eq!(watch.0.len(), FLOWS);
        // An acknowledgement of bytes that were never sent.
        watch.observe_received(&packet(true, 1, 0, 77_777));
        assert!(watch.state(at(0)).window <= 640);
        assert_eq!(watch.state(at(10_000)), FlowState::default(), "they rest");
    }
}
