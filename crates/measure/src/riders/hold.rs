//! Packets that wait for a probe.

use super::{FRAGMENT_HEADER, Fragment, LONGEST_RIDER};
use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// How long and how much is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// The longest a packet waits (10 ms; §2.3).
    pub longest: Duration,
    /// Bytes that wait at most; what comes on top goes at once.
    pub most_bytes: usize,
    /// Whether packets wait also while no train is under way or due: the paper's way, which delays them for
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
    /// Until when a train is under way or due; `None`: there is none.
    train_until: Option<Time>,
    /// What the train carried, to be repeated.
    carried: VecDeque<Fragment>,
    repeated: usize,
}

impl Hold {
    /// Nothing waits; riders are numbered from `first`.
    pub fn new(settings: HoldSettings, first: u32) -> Self {
        let (waiting, carried) = Default::default();
        let (bytes, repeated, train_until) = (0, 0, None);
        Self { settings, waiting, bytes, next: first, train_until, carried, repeated }
    }

    /// A train is under way, or due, until then.
    pub fn train(&mut self, until: Time) {
        if self.train_until.is_none() {
            self.carried.clear();
            self.repeated = 0;
        }
        self.train_until = Some(until);
    }

    /// It is over.
    pub fn no_train(&mut self) {
        self.train_until = None;
    }

    /// Takes a packet; what is to go at once, by itself: this one where nothing is held, or all of it if too
    /// much waits.
    pub fn offer(&mut self, packet: Vec<u8>, now: Time) -> Vec<Fragment> {
        if packet.is_empty() || packet.len() > LONGEST_RIDER {
            return Vec::new();
        }
        let is_held =
            self.settings.is_unconditional || self.train_until.is_some_and(|end| now < end);
        let rider = self.next;
        self.next = self.next.wrapping_add(1);
        self.bytes += packet.len();
        self.waiting.push_back(Waiting { rider, packet, gone: 0, since: now });
        match is_held && self.bytes <= self.settings.most_bytes {
            true => Vec::new(),
            // Never before what came earlier.
            false => self.release(self.waiting.len()),
        }
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

    /// What has waited long enough, or for a train that is over; each is to go by itself.
    pub fn due(&mut self, now: Time) -> Vec<Fragment> {
        if self.train_until.is_some_and(|end| now >= end) {
            self.no_train();
        }
        let holds = self.settings.is_unconditional || self.train_until.is_some();
        let is_due = |one: &Waiting| !holds || now.since(one.since) >= self.settings.longest;
        let count = self.waiting.iter().take_while(|one| is_due(one)).count();
        self.release(count)
    }

    fn release(&mut self, count: usize) -> Vec<Fragment> {
        let released = self.waiting.drain(..count).map(|mut one| one.cut(LONGEST_RIDER));
        let released: Vec<_> = released.collect();
        self.bytes -= released.iter().map(|fragment| fragment.bytes.len()).sum::<usize>();
        released
    }

    /// When [`Hold::due`] is to be asked next; `None`: nothing waits.
    pub fn deadline(&self) -> Option<Time> {
        let oldest = self.waiting.front()?.since + self.settings.longest;
        let is_bound = !self.settings.is_unconditional;
        Some(self.train_until.filter(|_| is_bound).map_or(oldest, |end| oldest.min(end)))
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
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn hold(repeats: bool) -> Hold {
        let mut hold = Hold::new(HoldSettings { repeats, ..HoldSettings::default() }, 7);
        hold.train(at(100));
        hold
    }

    fn shown(fragments: &[Fragment]) -> Vec<(u32, u16, usize)> {
        fragments.iter().map(|f| (f.rider, f.offset, f.bytes.len())).collect()
    }

    #[test]
    fn figure_2_a_rider_is_cut_to_the_padding_and_its_rest_goes_by_itself() {
        let mut hold = hold(false);
        assert!(hold.offer(vec![1; 1000], at(0)).is_empty());
        assert_eq!(shown(&hold.fill(410)), [(7, 0, 400)]);
        assert_eq!(shown(&hold.fill(410)), [(7, 400, 400)]);
        assert!(hold.due(at(9)).is_empty());
        assert_eq!(hold.deadline(), Some(at(10)));
        assert_eq!(shown(&hold.due(at(10))), [(7, 800, 200)]);
        assert_eq!((hold.bytes(), hold.packets(), hold.deadline()), (0, 0, None));
    }

    #[test]
    fn several_riders_share_a_probe() {
        let mut hold = hold(false);
        for _ in 0..3 {
            assert!(hold.offer(vec![1; 60], at(0)).is_empty());
        }
        assert_eq!(shown(&hold.fill(200)), [(7, 0, 60), (8, 0, 60), (9, 0, 50)]);
        assert_eq!(shown(&hold.fill(200)), [(9, 50, 10)]);
        // A piece of 20 bytes would be a third header.
        hold.offer(vec![1; 60], at(0));
        assert!(hold.fill(30).is_empty());
    }

    #[test]
    fn without_a_train_packets_go_at_once_unless_the_papers_way_is_wanted() {
        let mut idle = Hold::new(HoldSettings::default(), 0);
        assert_eq!(shown(&idle.offer(vec![1; 60], at(0))), [(0, 0, 60)]);
        let settings = HoldSettings { is_unconditional: true, ..HoldSettings::default() };
        let mut papers = Hold::new(settings, 0);
        assert!(papers.offer(vec![1; 60], at(0)).is_empty());
        assert!(papers.due(at(9)).is_empty());
        assert_eq!(papers.due(at(10)).len(), 1);
    }

    #[test]
    fn with_its_train_a_wait_ends_in_order() {
        let mut hold = hold(false);
        hold.offer(vec![1; 60], at(95));
        assert_eq!(hold.deadline(), Some(at(100)));
        assert_eq!(hold.due(at(100)).len(), 1);
        hold.train(at(300));
        hold.offer(vec![1; 60], at(200));
        hold.no_train();
        assert_eq!(shown(&hold.offer(vec![1; 61], at(201))), [(8, 0, 60), (9, 0, 61)]);
    }

    #[test]
    fn too_much_is_not_held() {
        let mut hold = hold(false);
        let (mut went, mut waits) = (0, 0);
        for _ in 0..300 {
            went += hold.offer(vec![1; 1000], at(0)).len();
            waits = waits.max(hold.bytes());
        }
        assert!(went >= 262 && waits <= 256 << 10, "{went} {waits}");
        assert!(hold.offer(vec![1; 70_000], at(0)).is_empty() && hold.packets() < 300);
    }

    #[test]
    fn what_is_left_of_padding_repeats_each_fragment_once() {
        let mut hold = hold(true);
        hold.offer(vec![1; 100], at(0));
        assert_eq!(shown(&hold.fill(110)), [(7, 0, 100)]);
        assert_eq!(shown(&hold.fill(100)), []);
        assert_eq!(shown(&hold.fill(200)), [(7, 0, 100)]);
        assert_eq!(shown(&hold.fill(200)), []);
    }
}
