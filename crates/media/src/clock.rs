//! The program clock of a joined stream (ISO/IEC 13818-1, 2.4.2.2). Inserts clock references where those of the input
//! were dropped with their frames.

use crate::{
    PACKET,
    dts_timeline::{CLOCK, WRAP, wrapping_difference},
    packet::{Packet, RawPacket, SYNC},
};

/// A reference is inserted if the newest one is this old, ticks. The standard allows 0.1 s (2.7.2), but streams of five
/// pictures a second exceed that and pass unchanged.
const MAX_GAP: i64 = CLOCK / 4;

/// Inserted references are earlier by this much, ticks: audio may be ahead of the next picture, which is complete only
/// when the following one starts.
const RESERVE: i64 = CLOCK / 10;

/// How far the clock is behind decoding times before the input has a reference, ticks: the buffer that encoders usually
/// assume.
const USUAL_DELAY: i64 = CLOCK / 2;

/// A longer delay is a fault of the input.
const MAX_DELAY: i64 = 4 * CLOCK;

/// A reference this far from the one before belongs to a restarted clock.
const JUMP: i64 = 10 * CLOCK;

/// The clock of one program of the output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramClock {
    /// The newest reference, ticks.
    newest: Option<i64>,
    /// Whether the newest reference was inserted.
    is_inserted: bool,
    /// The DTS of the first unit, if no reference precedes it.
    first_dts: Option<i64>,
    /// How far references of the input are behind decoding times, ticks.
    delay: Option<i64>,
}

impl ProgramClock {
    /// Measures the delay by a reference of the input in a unit with this DTS.
    pub(crate) fn observe(&mut self, reference: u64, dts: u64) {
        let delay = wrapping_difference(dts as i64, reference as i64);
        if (0..=MAX_DELAY).contains(&delay) {
            self.delay = Some(delay);
        }
    }

    /// Returns the reference to write for one of the input. It is higher than the inserted one before it.
    pub(crate) fn adjust(&mut self, reference: u64) -> u64 {
        let inserted = self.newest.filter(|_| self.is_inserted);
        let next = match inserted {
            Some(newest) if (0..JUMP).contains(&wrapping_difference(newest, reference as i64)) => {
                (newest + 1).rem_euclid(WRAP)
            }
            _ => reference as i64,
        };
        self.is_inserted &= next != reference as i64;
        self.newest = Some(next);
        next as u64
    }

    /// Returns the reference to insert before a unit with this DTS, and whether the clock was restarted; `None` if the
    /// newest reference is recent.
    pub(crate) fn due_reference(&mut self, dts: u64) -> Option<(u64, bool)> {
        let delay = self.delay.unwrap_or(USUAL_DELAY) + RESERVE;
        let next = (dts as i64 - delay).rem_euclid(WRAP);
        let passed = match self.newest {
            Some(newest) => wrapping_difference(next, newest),
            // The input's first reference may still follow.
            None => wrapping_difference(dts as i64, *self.first_dts.get_or_insert(dts as i64)),
        };
        let is_restarted = passed.abs() > JUMP;
        (passed > MAX_GAP || is_restarted).then(|| {
            (self.newest, self.is_inserted) = (Some(next), true);
            (next as u64, is_restarted)
        })
    }
}

/// The base of the packet's reference, ticks of 90 kHz (2.4.3.5).
pub(crate) fn read_reference(packet: Packet<'_>) -> Option<u64> {
    let bytes = packet.0;
    let has_reference = bytes[3] & 0x20 != 0 && bytes[4] >= 7 && bytes[5] & 0x10 != 0;
    let [a, b, c, d, e] = *bytes[6..].first_chunk::<5>()?;
    has_reference.then_some(u64::from(u32::from_be_bytes([a, b, c, d])) << 1 | u64::from(e >> 7))
}

/// Replaces the packet's reference.
pub(crate) fn set_reference(packet: &mut RawPacket, reference: u64) {
    packet[6..10].copy_from_slice(&((reference >> 1) as u32).to_be_bytes());
    packet[10..12].copy_from_slice(&[((reference & 1) as u8) << 7 | 0x7e, 0]);
}

/// Reduces a packet to its clock reference (2.4.3.4); `None` if it has none.
pub(crate) fn clock_packet(packet: &[u8; PACKET]) -> Option<[u8; PACKET]> {
    let has_clock = packet[0] == 0x47 && packet[3] & 0x20 != 0 && packet[4] >= 7;
    if !has_clock || packet[5] & 0x10 == 0 {
        return None;
    }
    let mut clock = [0xff; PACKET];
    clock[..12].copy_from_slice(&packet[..12]);
    // Clears the start indicator, the payload, and all flags but discontinuity and PCR.
    clock[1] &= 0x1f;
    clock[3] = 0x20 | packet[3] & 0x0f;
    clock[4] = (PACKET - 5) as u8;
    clock[5] &= 0x90;
    Some(clock)
}

/// Creates a packet without payload that carries this reference.
pub(crate) fn reference_packet(pid: u16, reference: u64, is_restarted: bool) -> RawPacket {
    let mut packet = [0xff; PACKET];
    let [high, low] = pid.to_be_bytes();
    packet[..4].copy_from_slice(&[SYNC, high & 0x1f, low, 0x20]);
    packet[4] = (PACKET - 5) as u8;
    packet[5] = if is_restarted { 0x90 } else { 0x10 };
    set_reference(&mut packet, reference);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_written_as_they_are_read() {
        for value in [0, 1, 90_000, (1 << 33) - 1, 0x1_2345_6789] {
            assert_eq!(read_reference(Packet(&reference_packet(0x101, value, false))), Some(value));
        }
        assert_eq!(Packet(&reference_packet(0x101, 1, true)).pid(), 0x101);
        assert_eq!(read_reference(Packet(&[0; PACKET])), None);
    }

    #[test]
    fn references_are_inserted_where_they_are_missing() {
        let mut clock = ProgramClock::default();
        clock.observe(10_000, 73_000);
        assert_eq!(clock.adjust(10_000), 10_000);
        assert_eq!(clock.due_reference(76_000), None);
        assert_eq!(clock.due_reference(110_000), Some((38_000, false)));
        assert_eq!(clock.due_reference(111_000), None, "recent");
        assert_eq!(clock.due_reference(80_000), None, "an audio unit that is earlier");
        assert_eq!(
            [clock.adjust(37_000), clock.adjust(37_100), clock.adjust(50_000)],
            [38_001, 38_002, 50_000]
        );
        assert_eq!(clock.adjust(49_000), 49_000, "the input's own fault");
        assert_eq!(clock.due_reference(90_000_000), Some((90_000_000 - 72_000, true)));
        let mut wraps = ProgramClock::default();
        wraps.observe((1 << 33) - 100, 400);
        wraps.adjust((1 << 33) - 100);
        assert_eq!(wraps.due_reference(40_000), Some((30_500, false)));
        let mut without = ProgramClock::default();
        assert_eq!([without.due_reference(1000), without.due_reference(20_000)], [None, None]);
        assert_eq!(without.due_reference(24_000), Some(((1 << 33) - 30_000, false)));
    }
}
