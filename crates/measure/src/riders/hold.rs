//! Packets that wait for a probe.
//!
//! They wait where probes that may carry them leave in time, and as many as those take: what comes on top is to go by
//! itself, the oldest first, so that the newest, which have longest to wait, fill what comes. None overtakes another, but
//! for one whose rest rides in the next probe, shortly.

use super::{FRAGMENT_HEADER, Fragment, LONGEST_RIDER, Schedule, Seat, Trip};
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_units::Time;

/// How long and how much is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// The longest a packet waits (10 ms; §2.3).
    pub longest: Duration,
    /// Bytes that wait at most; what comes on top goes at once.
    pub most_bytes: usize,
    /// Whether all packets wait so long, also those that no probe takes: the paper's way, which delays them for
    /// nothing where none comes.
    pub is_unconditional: bool,
    /// Whether padding that is left carries again what the train carried before.
    pub repeats: bool,
}

impl Default for HoldSettings {
    fn default() -> Self {
        let (longest, most_bytes) = (Duration::from_millis(10), 256 << 10);
        Self { longest, most_bytes, is_unconditional: false, repeats: false }
    }
}

/// No smaller piece is cut off a rider: headers would weigh more.
const LEAST_PIECE: usize = 32;

/// The newest packet goes at once as well where less than this part of it finds room: it would wait to be cut for nothing. Of half,
/// a fifth of pk1's probes would be empty beside 4 Mbit/s; with this a fiftieth at the most.
const LEAST_SHARE: usize = 4;

/// The rest of a packet that was cut waits for the next probe past others that go by themselves if that leaves within this
/// part of the longest wait: 2.5 ms of 10. TCP waits for what was overtaken a quarter of its round trip (RFC 8985 §6.2),
/// which is as long on paths of 10 ms.
const OVERTAKEN: u32 = 4;

/// So much of what a train carried is kept to be repeated.
const MOST_REPEATED: usize = 64 << 10;

#[derive(Clone, Debug)]
struct Waiting {
    rider: u32,
    packet: Vec<u8>,
    /// How much of it went already.
    gone: usize,
    since: Time,
}

impl Waiting {
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

/// The riders that wait, the oldest first.
#[derive(Clone, Debug)]
pub struct Hold {
    settings: HoldSettings,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    next: u32,
    schedule: Schedule,
    /// What the train carried, to be repeated.
    carried: VecDeque<Fragment>,
    repeated: usize,
}

impl Hold {
    /// Nothing waits; riders are numbered from `first`.
    pub fn new(settings: HoldSettings, first: u32) -> Self {
        let (waiting, schedule, carried) = Default::default();
        let (bytes, repeated) = (0, 0);
        Self { settings, waiting, bytes, next: first, schedule, carried, repeated }
    }

    /// A train with these seats is to begin then.
    pub fn due(&mut self, begins: Time, seats: Vec<Seat>) {
        self.schedule.due(begins, seats);
    }

    /// A train begins: the first of those that were due, or another one.
    pub fn begin(&mut self, now: Time, seats: Vec<Seat>) -> Trip {
        self.carried.clear();
        self.repeated = 0;
        self.schedule.begin(now, seats)
    }

    /// It is over.
    pub fn end(&mut self, trip: Trip) {
        self.schedule.end(trip);
    }

    /// Takes a packet; what is to go at once, by itself: those that no probe will take, the oldest first.
    pub fn offer(&mut self, packet: Vec<u8>, now: Time) -> Vec<Fragment> {
        if packet.is_empty() || packet.len() > LONGEST_RIDER {
            return Vec::new();
        }
        let rider = self.next;
        self.next = self.next.wrapping_add(1);
        self.bytes += packet.len();
        self.waiting.push_back(Waiting { rider, packet, gone: 0, since: now });
        let which = match self.bytes <= self.settings.most_bytes {
            true => self.surplus(now),
            // Never before what came earlier.
            false => 0..self.waiting.len(),
        };
        self.release(which)
    }

    /// Which of the oldest will find no room within the time that the newest may wait, or too little.
    fn surplus(&mut self, now: Time) -> Range<usize> {
        if self.settings.is_unconditional {
            return 0..0;
        }
        let mut room = self.schedule.room(now, now + self.settings.longest);
        let mut left = self.bytes;
        let cut = self.rests_shortly(now);
        room = room.saturating_sub(cut.unwrap_or(0));
        left -= cut.unwrap_or(0);
        let is_surplus = |one: &&Waiting| {
            left -= one.left();
            left >= room || one.gone + left == 0 && room < one.left() / LEAST_SHARE
        };
        let first = usize::from(cut.is_some());
        let count = self.waiting.iter().skip(first).take_while(is_surplus).count();
        first..first + count
    }

    /// The rest of the oldest packet, bytes, if a part of it has gone and the next probe takes all of that soon.
    fn rests_shortly(&mut self, now: Time) -> Option<usize> {
        let rest = self.waiting.front().filter(|first| first.gone > 0)?.left();
        let (at, room) = self.schedule.soonest(now)?;
        (rest <= room && at.since(now) <= self.settings.longest / OVERTAKEN).then_some(rest)
    }

    /// Takes a packet that may not ride: it goes at once, past those that wait.
    pub fn pass(&mut self, packet: Vec<u8>) -> Option<Fragment> {
        let length = packet.len();
        let mut one = Waiting { rider: self.next, packet, gone: 0, since: Time::ZERO };
        let fits = (1..=LONGEST_RIDER).contains(&length);
        self.next = if fits { self.next.wrapping_add(1) } else { self.next };
        fits.then(|| one.cut(LONGEST_RIDER))
    }

    /// What rides in the probe of this train at this place, which has this padding.
    pub fn board(&mut self, trip: Trip, place: usize, padding: usize, now: Time) -> Vec<Fragment> {
        self.schedule.reach(trip, place, now);
        self.fill(padding)
    }

    /// What rides in a probe with this padding.
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

    /// Puts what the train carried before into what is left of a padding, and remembers what is new.
    fn repeat(&mut self, mut room: usize, fragments: &mut Vec<Fragment>) {
        if !self.settings.repeats {
            return;
        }
        let new = fragments.len();
        // Each fragment is repeated once at most: it leaves the list.
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

    /// What has waited long enough, or for probes that do not come; each is to go by itself.
    pub fn let_go(&mut self, now: Time) -> Vec<Fragment> {
        let is_late = |one: &&Waiting| now.since(one.since) >= self.settings.longest;
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

    /// When [`Hold::let_go`] is to be asked next; `None`: nothing waits.
    pub fn deadline(&self) -> Option<Time> {
        Some(self.waiting.front()?.since + self.settings.longest)
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets that wait.
    pub fn packets(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
