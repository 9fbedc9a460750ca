//! Places for connections: bounded in total and for each party. When all are taken, the connection that has been idle
//! longest is evicted from the party that holds the most.

use crate::{Caller, limits::network};
use std::{
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_units::NodeId;
use tokio::sync::Notify;

/// A party, of which there are so many connections at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// The hosts at one IPv4 address, or in one IPv6 /64.
    Network(IpAddr),
    /// A member, by its principal: whichever of its keys it comes with.
    Member(NodeId),
}

impl Party {
    /// Where the caller is.
    pub fn network(caller: &Caller) -> Self {
        Self::Network(match caller {
            Caller::Local => Ipv6Addr::LOCALHOST.into(),
            Caller::Peer { address, .. } => network(*address),
        })
    }
}

/// The bounds of some connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of all together.
    pub all: usize,
    /// Of one party.
    pub each: usize,
    /// A connection is for one request: with it, it keeps its place to its end.
    pub once: bool,
}

/// The number of connections.
#[derive(Debug)]
pub(crate) struct Places {
    bounds: Bounds,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The last number given; numbers tell connections apart, and which is idle for longest.
    last: u64,
    of: HashMap<Party, Vec<Seat>>,
    all: usize,
}

#[derive(Debug)]
struct Seat {
    id: u64,
    /// The number of the event since which it is idle; `None` while a complete request is served.
    idle: Option<u64>,
    out: Arc<Notify>,
}

impl Taken {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn remove(&mut self, party: Party, id: u64) -> Option<Seat> {
        let seats = self.of.get_mut(&party)?;
        let at = seats.iter().position(|seat| seat.id == id)?;
        let seat = seats.swap_remove(at);
        if seats.is_empty() {
            self.of.remove(&party);
        }
        self.all -= 1;
        Some(seat)
    }

    /// Evicts the connection that has been idle longest, of the party that holds the most or of the given one. Returns
    /// false if none is idle.
    fn give_way(&mut self, of: Option<Party>) -> bool {
        let parties = self.of.iter().filter(|(party, _)| of.is_none_or(|of| of == **party));
        let seats = parties.flat_map(|(party, seats)| {
            seats.iter().map(|seat| (*party, seat, Reverse(seats.len())))
        });
        let idle =
            seats.filter_map(|(party, seat, most)| Some(((most, seat.idle?), party, seat.id)));
        let Some((_, party, id)) = idle.min_by_key(|(first, ..)| *first) else { return false };
        self.remove(party, id).iter().for_each(|seat| seat.out.notify_one());
        true
    }
}

impl Places {
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    pub fn len(&self) -> usize {
        self.lock().all
    }

    /// A place; none if there are too many and all have a request.
    pub fn enter(self: &Arc<Self>, party: Party) -> Option<Place> {
        let mut taken = self.lock();
        let own = taken.of.get(&party).map_or(0, Vec::len);
        if own >= self.bounds.each && !taken.give_way(Some(party)) {
            return None;
        }
        if taken.all >= self.bounds.all && !taken.give_way(None) {
            return None;
        }
        let (id, out) = (taken.next(), Arc::new(Notify::new()));
        let seat = Seat { id, idle: Some(id), out: out.clone() };
        taken.of.entry(party).or_default().push(seat);
        taken.all += 1;
        Some(Place { places: self.clone(), party, id, out })
    }
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    party: Party,
    id: u64,
    out: Arc<Notify>,
}

impl Place {
    /// Returns when the place is another's.
    pub async fn lost(&self) {
        self.out.notified().await;
    }

    /// Whether it is for one request.
    pub fn once(&self) -> bool {
        self.places.bounds.once
    }

    /// A request has arrived completely.
    pub fn request(self: &Arc<Self>) -> Busy {
        self.set(|_| None);
        Busy(self.clone())
    }

    fn set(&self, idle: impl Fn(&mut Taken) -> Option<u64>) {
        let mut taken = self.places.lock();
        let since = idle(&mut taken);
        let seats = taken.of.get_mut(&self.party).into_iter().flatten();
        seats.filter(|seat| seat.id == self.id).for_each(|seat| seat.idle = since);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // None if it was lost before.
        let _ = self.places.lock().remove(self.party, self.id);
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.0.once() {
            self.0.set(|taken| Some(taken.next()));
        }
    }
}
