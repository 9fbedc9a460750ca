//! Packets that wait for a probe.
//!
//! Packets wait only if probes that may carry them leave in time, and only as many as those probes take. Excess packets
//! are sent by themselves, oldest first, so that the newest packets, which may wait longest, fill the next probes. A
//! packet overtakes an earlier one only if the rest of the earlier one rides in the next probe shortly.

use super::{FRAGMENT_HEADER, Fragment, LONGEST_RIDER, Schedule, Seat, TrainId};
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_units::Time;

/// How long and how much is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// The longest time that a packet waits (10 ms; §2.3).
    pub longest: Duration,
    /// The maximum of waiting bytes; packets beyond it are sent at once.
    pub most_bytes: usize,
    /// Whether all packets wait this long, even if no probe will take them. This is the paper's way; without trains it
    /// delays packets for nothing.
    pub is_unconditional: bool,
    /// Whether unused padding repeats what the train carried before.
    pub repeats: bool,
}

impl Default for HoldSettings {
    fn default() -> Self {
        let (longest, most_bytes) = (Duration::from_millis(10), 256 << 10);
        Self { longest, most_bytes, is_unconditional: false, repeats: false }
    }
}

/// The smallest piece that is cut off a rider: in smaller ones the headers would weigh too much.
const LEAST_PIECE: usize = 32;

/// The newest packet is sent at once as well if less than this part of it finds room, a quarter: it would wait for
/// nothing and be cut. With a half, a fifth of pk1's probes would be empty beside 4 Mbit/s; with a quarter, at most a
/// fiftieth.
const LEAST_SHARE: usize = 4;

/// The rest of a packet that was cut waits for the next probe, while later packets overtake it, if the probe leaves
/// within this part of the longest wait: 2.5 ms of 10. TCP tolerates reordering within a quarter of its round trip
/// (RFC 8985 §6.2), which is as long on paths of 10 ms.
const OVERTAKEN: u32 = 4;

/// Bytes that a train carried and that are kept to be repeated.
const MOST_REPEATED: usize = 64 << 10;

#[derive(Clone, Debug)]
struct WaitingPacket {
    rider: u32,
    packet: Vec<u8>,
    /// The bytes that were sent already.
    gone: usize,
    since: Time,
}

impl WaitingPacket {
    fn cut(&mut self, most: usize) -> Fragment {
        let end = (self.gone + most).min(self.packet.len());
        let fragment = Fragment {
            rider: self.rider,
            total: self.packet.len() as u16,
            offset: self.gone as u16,
            bytes: self.packet[self.gone..end].to_vec(),
        };
        self.gone = end;
        fragment
    }

    fn left(&self) -> usize {
        self.packet.len() - self.gone
    }
}

/// The waiting riders, oldest first.
#[derive(Clone, Debug)]
pub struct Hold {
    settings: HoldSettings,
    waiting: VecDeque<WaitingPacket>,
    bytes: usize,
    next: u32,
    schedule: Schedule,
    /// The fragments that the train carried, to be repeated.
    carried: VecDeque<Fragment>,
    repeated: usize,
}

impl Hold {
    /// Creates an empty hold; riders are numbered from `first`.
    pub fn new(settings: HoldSettings, first: u32) -> Self {
        let (waiting, schedule, carried) = Default::default();
        let (bytes, repeated) = (0, 0);
        Self { settings, waiting, bytes, next: first, schedule, carried, repeated }
    }

    /// Announces a train with these seats that begins at `begins`.
    pub fn announce(&mut self, begins: Time, seats: Vec<Seat>) {
        self.schedule.announce(begins, seats);
    }

    /// Begins a train: the first announced one, or an unannounced one.
    pub fn begin(&mut self, now: Time, seats: Vec<Seat>) -> TrainId {
        self.carried.clear();
        self.repeated = 0;
        self.schedule.begin(now, seats)
    }

    /// Removes the probes of this train from the schedule.
    pub fn end(&mut self, trip: TrainId) {
        self.schedule.end(trip);
    }

    /// Takes a packet. Returns the packets that no probe will take, oldest first; they are to be sent at once, by
    /// themselves.
    pub fn offer(&mut self, packet: Vec<u8>, now: Time) -> Vec<Fragment> {
        if packet.is_empty() || packet.len() > LONGEST_RIDER {
            return Vec::new();
        }
        let rider = self.next;
        self.next = self.next.wrapping_add(1);
        self.bytes += packet.len();
        self.waiting.push_back(WaitingPacket { rider, packet, gone: 0, since: now });
        let which = match self.bytes <= self.settings.most_bytes {
            true => self.surplus(now),
            // No packet is sent before an earlier one.
            false => 0..self.waiting.len(),
        };
        self.release(which)
    }

    /// The oldest packets that will find no room, or too little, within the time that the newest may wait.
    fn surplus(&mut self, now: Time) -> Range<usize> {
        if self.settings.is_unconditional {
            return 0..0;
        }
        let mut room = self.schedule.room(now, now + self.settings.longest);
        let mut left = self.bytes;
        let cut = self.rest_for_next_probe(now);
        room = room.saturating_sub(cut.unwrap_or(0));
        left -= cut.unwrap_or(0);
        let is_surplus = |one: &&WaitingPacket| {
            left -= one.left();
            left >= room || one.gone + left == 0 && room < one.left() / LEAST_SHARE
        };
        let first = usize::from(cut.is_some());
        let count = self.waiting.iter().skip(first).take_while(is_surplus).count();
        first..first + count
    }

    /// The bytes left of the oldest packet, if a part of it was sent and the next probe soon takes all of the rest.
    fn rest_for_next_probe(&mut self, now: Time) -> Option<usize> {
        let rest = self.waiting.front().filter(|first| first.gone > 0)?.left();
        let (at, room) = self.schedule.soonest(now)?;
        (rest <= room && at.since(now) <= self.settings.longest / OVERTAKEN).then_some(rest)
    }

    /// Takes a packet that may not ride: it is sent at once, before those that wait. `None`: it is empty or too long.
    pub fn send_alone(&mut self, packet: Vec<u8>) -> Option<Fragment> {
        let length = packet.len();
        let mut one = WaitingPacket { rider: self.next, packet, gone: 0, since: Time::ZERO };
        let fits = (1..=LONGEST_RIDER).contains(&length);
        self.next = if fits { self.next.wrapping_add(1) } else { self.next };
        fits.then(|| one.cut(LONGEST_RIDER))
    }

    /// The fragments that ride in the probe at this place of the train, which has this padding.
    pub fn board(
        &mut self,
        trip: TrainId,
        place: usize,
        padding: usize,
        now: Time,
    ) -> Vec<Fragment> {
        self.schedule.reach(trip, place, now);
        self.fill(padding)
    }

    /// The fragments that ride in a probe with this padding.
    pub fn fill(&mut self, padding: usize) -> Vec<Fragment> {
        let mut room = padding;
        let mut fragments = Vec::new();
        while let Some(first) = self.waiting.front_mut() {
            let most = room.saturating_sub(FRAGMENT_HEADER);
            if most < LEAST_PIECE.min(first.left()) {
                break;
            }
            let fragment = first.cut(most);
            room -= fragment.cost();
            self.bytes -= fragment.bytes.len();
            if first.left() == 0 {
                self.waiting.pop_front();
            }
            fragments.push(fragment);
        }
        self.repeat(room, &mut fragments);
        fragments
    }

    /// Fills the rest of a padding with what the train carried before, and remembers the new fragments.
    fn repeat(&mut self, mut room: usize, fragments: &mut Vec<Fragment>) {
        if !self.settings.repeats {
            return;
        }
        let new = fragments.len();
        // Removing the fragment from the list bounds its repetitions to one.
        while self.carried.front().is_some_and(|first| first.cost() <= room) {
            let Some(first) = self.carried.pop_front() else { break };
            self.repeated -= first.bytes.len();
            room -= first.cost();
            fragments.push(first);
        }
        for fragment in &fragments[..new] {
            if self.repeated + fragment.bytes.len() <= MOST_REPEATED {
                self.repeated += fragment.bytes.len();
                self.carried.push_back(fragment.clone());
            }
        }
    }

    /// The packets that have waited long enough, or whose probes do not come; each is to be sent by itself.
    pub fn release_due(&mut self, now: Time) -> Vec<Fragment> {
        let is_late = |one: &&WaitingPacket| now.since(one.since) >= self.settings.longest;
        let late = self.waiting.iter().take_while(is_late).count();
        let which = match late {
            0 => self.surplus(now),
            late => 0..self.surplus(now).end.max(late),
        };
        self.release(which)
    }

    fn release(&mut self, which: Range<usize>) -> Vec<Fragment> {
        let released = self.waiting.drain(which).map(|mut one| one.cut(LONGEST_RIDER));
        let released: Vec<_> = released.collect();
        self.bytes -= released.iter().map(|fragment| fragment.bytes.len()).sum::<usize>();
        released
    }

    /// When [`Hold::release_due`] is to be called next; `None`: nothing waits.
    pub fn deadline(&self) -> Option<Time> {
        Some(self.waiting.front()?.since + self.settings.longest)
    }

    /// The number of waiting bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of waiting packets.
    pub fn packets(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
