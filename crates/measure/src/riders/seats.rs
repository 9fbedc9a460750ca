//! When and where riders have room: the probes of trains that are due or under way.

use super::{FRAGMENT_HEADER, FlowState, Regulator, Ride};
use crate::train::{Probe, Train, bits_of};
use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// A gap of at least this length lets the queue on the path drain, so regulators treat the probes after it as a new
/// train. No longer than the shortest pause of Table 1's trains (pk3).
const PAUSE: Duration = Duration::from_millis(10);

/// An announced train that has not begun after this delay is not expected any more.
const LATE: Duration = Duration::from_millis(20);

/// The maximum number of announced and running trains. Beyond it the oldest is forgotten, and packets no longer wait
/// for it.
const TRIPS: usize = 64;

/// A probe that may carry riders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The place of the probe in the train.
    pub place: usize,
    /// Time from the beginning of the train.
    pub after: Duration,
    /// Bytes of riders that fit as one fragment.
    pub room: usize,
}

/// The properties of each probe by which regulators judge; `None`: the probe has no padding or may not carry riders.
///
/// `padding` returns the padding of a probe, in bytes. Each stretch between pauses counts as a train.
pub fn rides(train: &Train, padding: impl Fn(&Probe) -> Option<usize>) -> Vec<Option<Ride>> {
    let mut rides = Vec::with_capacity(train.probes().len());
    for stretch in train.probes().chunk_by(|_, next| next.gap < PAUSE) {
        let (rate, of) = (rate(stretch, train.overhead()), stretch.len());
        let mut after = Duration::ZERO;
        rides.extend(stretch.iter().enumerate().map(|(place, probe)| {
            after += if place == 0 { Duration::ZERO } else { probe.gap };
            let padding = padding(probe).filter(|_| probe.may_carry)?;
            Some(Ride { place, of, padding, after, rate })
        }));
    }
    rides
}

/// The seats of a train with these rides under these regulators.
pub fn seats(
    train: &Train,
    rides: &[Option<Ride>],
    regulators: &[Regulator],
    flow: &FlowState,
) -> Vec<Seat> {
    let mut after = Duration::ZERO;
    let mut seats = Vec::new();
    for (place, (probe, ride)) in train.probes().iter().zip(rides).enumerate() {
        after += probe.gap;
        let Some(ride) = ride else { continue };
        let room = ride.padding.saturating_sub(FRAGMENT_HEADER);
        if room > 0 && regulators.iter().all(|one| one.allows(*ride, flow)) {
            seats.push(Seat { place, after, room });
        }
    }
    seats
}

/// The rate of a stretch, bit/s; for a single probe, the rate at which it follows the previous one.
fn rate(stretch: &[Probe], overhead: u32) -> f64 {
    let all: f64 = stretch.iter().map(|probe| bits_of(probe.size, overhead)).sum();
    let timed = if stretch.len() > 1 { &stretch[1..] } else { stretch };
    let takes: Duration = timed.iter().map(|probe| probe.gap).sum();
    if takes.is_zero() { f64::INFINITY } else { all / takes.as_secs_f64() }
}

/// A train, by its number in this schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainId(u64);

#[derive(Clone, Debug)]
struct Entry {
    trip: TrainId,
    begins: Time,
    has_begun: bool,
    seats: VecDeque<Seat>,
}

impl Entry {
    /// When the train began or will begin: now at the earliest.
    fn from(&self, now: Time) -> Time {
        if self.has_begun { self.begins } else { self.begins.max(now) }
    }
}

/// The seats of announced and running trains.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    entries: VecDeque<Entry>,
    next: u64,
}

impl Schedule {
    /// Announces a train that begins at `begins`.
    pub fn announce(&mut self, begins: Time, seats: Vec<Seat>) {
        self.push(begins, false, seats);
    }

    /// Begins a train: the first announced one, or an unannounced one.
    pub fn begin(&mut self, now: Time, seats: Vec<Seat>) -> TrainId {
        self.forget(now);
        // Trains never begin early, so one that is due later is a different train.
        let is_it = |entry: &Entry| !entry.has_begun && entry.begins <= now;
        if let Some(due) = self.entries.iter().position(is_it) {
            self.entries.remove(due);
        }
        self.push(now, true, seats)
    }

    fn push(&mut self, begins: Time, has_begun: bool, seats: Vec<Seat>) -> TrainId {
        if self.entries.len() >= TRIPS {
            self.entries.pop_front();
        }
        let trip = TrainId(self.next);
        self.next += 1;
        self.entries.push_back(Entry { trip, begins, has_begun, seats: seats.into() });
        trip
    }

    /// The train has reached this probe. Earlier probes carry nothing any more; if the train is late, its later probes
    /// are as late.
    pub fn reach(&mut self, trip: TrainId, place: usize, now: Time) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.trip == trip) else { return };
        while let Some(seat) = entry.seats.front().copied().filter(|seat| seat.place <= place) {
            entry.seats.pop_front();
            if seat.place == place {
                entry.begins += now.since(entry.begins + seat.after);
            }
        }
    }

    /// Removes the probes of this train.
    pub fn end(&mut self, trip: TrainId) {
        self.entries.retain(|entry| entry.trip != trip);
    }

    /// Bytes of riders that fit into the probes from now until `until`.
    pub fn room(&mut self, now: Time, until: Time) -> usize {
        self.forget(now);
        let of = |entry: &Entry| {
            let begins = entry.from(now);
            let comes = entry.seats.iter().take_while(|seat| begins + seat.after <= until);
            comes.map(|seat| seat.room).sum::<usize>()
        };
        self.entries.iter().map(of).sum()
    }

    /// When the next probe with room leaves, and its room.
    pub fn soonest(&mut self, now: Time) -> Option<(Time, usize)> {
        self.forget(now);
        let of = |entry: &Entry| {
            let seat = entry.seats.front()?;
            Some((entry.from(now) + seat.after, seat.room))
        };
        self.entries.iter().filter_map(of).min_by_key(|(at, _)| *at)
    }

    fn forget(&mut self, now: Time) {
        self.entries.retain(|entry| entry.has_begun || now.since(entry.begins) <= LATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::{PK1, PK3};

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn own(probe: &Probe) -> Option<usize> {
        Some(probe.padding().into())
    }

    fn places(train: &Train, regulators: &[Regulator]) -> Vec<usize> {
        let all =
            seats(train, &rides(train, own), regulators, &FlowState { window: 1000, rate: 0.0 });
        all.iter().map(|seat| seat.place).collect()
    }

    #[test]
    fn regulators_start_anew_after_each_pause_of_a_train() {
        let pause = Duration::from_millis(20);
        let [one, two] = [PK1, PK3].map(|row| row.train().unwrap().probes().to_vec());
        let mut both = [one, two].concat();
        both[10].gap = pause;
        let train = Train::new(both).unwrap();
        assert_eq!(places(&train, &[]).len(), 20);
        assert_eq!(places(&train, &[Regulator::First(2)]), [0, 1, 10, 11]);
        assert_eq!(places(&train, &[Regulator::Share(0.1)]), [0, 10]);
        // pk1's ten probes are sent at 13 Mbit/s, pk3's as fast as possible: 1,000 bytes are four probes.
        let harmless = Regulator::Flow { harmless: 20e6 };
        assert_eq!(places(&train, &[harmless]), (0..14).collect::<Vec<_>>());
        let all = seats(&train, &rides(&train, own), &[], &FlowState::default());
        assert_eq!((all[9].after, all[10].after), (9 * PK1_GAP, 9 * PK1_GAP + pause));
        assert_eq!(all[0].room, 272 - 12 - FRAGMENT_HEADER);
    }

    const PK1_GAP: Duration = Duration::from_micros(200);

    fn seat(place: usize, after: u64) -> Seat {
        Seat { place, after: Duration::from_millis(after), room: 100 }
    }

    #[test]
    fn room_counts_only_probes_that_leave_in_time() {
        let mut all = Schedule::default();
        let three = || vec![seat(0, 0), seat(2, 5), seat(3, 30)];
        all.announce(at(100), three());
        assert_eq!((all.room(at(50), at(60)), all.room(at(92), at(102))), (0, 100));
        // The train is late, and then not expected any more.
        assert_eq!((all.room(at(110), at(120)), all.room(at(121), at(200))), (200, 0));
        all.announce(at(200), three());
        let trip = all.begin(at(203), three());
        assert_eq!(all.room(at(203), at(213)), 200, "once, although it was said before");
        all.reach(trip, 0, at(203));
        all.reach(trip, 1, at(204));
        assert_eq!(all.room(at(204), at(214)), 100);
        // A delay of one second applies to the later probes as well.
        all.reach(trip, 2, at(1208));
        assert_eq!((all.room(at(1208), at(1218)), all.room(at(1225), at(1235))), (0, 100));
        all.end(trip);
        assert_eq!(all.room(at(1225), at(9999)), 0);
    }

    #[test]
    fn the_end_of_one_train_keeps_announced_trains() {
        let mut all = Schedule::default();
        let first = all.begin(at(0), vec![seat(0, 0)]);
        all.announce(at(10), vec![seat(0, 0)]);
        let other = all.begin(at(1), vec![seat(0, 0)]);
        all.end(first);
        all.end(other);
        assert_eq!(all.room(at(1), at(11)), 100, "what is due is neither of them");
        (0..1000).for_each(|n| all.announce(at(n), vec![seat(0, 0)]));
        assert_eq!(all.entries.len(), TRIPS);
    }
}
