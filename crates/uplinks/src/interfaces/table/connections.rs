//! What becomes of connections that were assigned.

use super::{Decision, Open, RESTS, Table, UNBOUND};
use std::time::Duration;
use thalweg_units::Time;

impl Table {
    /// The connection stands, by this interface, with this round trip.
    pub fn stands(&mut self, id: u64, interface: u32, rtt: Option<Duration>, now: Time) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let assigned = std::mem::replace(&mut open.interface, interface);
        let missed = assigned != interface;
        (open.stands, open.active) = (true, now);
        let is_routeless = open.is_routeless;
        let (application, destination) = (open.application.clone(), open.destination.clone());
        let server = open.server();
        self.affinity.went(&destination, interface, now);
        self.doubts.serves(interface);
        if let (Some(rtt), Some(name)) = (rtt, self.name(interface)) {
            self.estimates.entry(name).or_default().round_trip(rtt, now);
        }
        if missed {
            let why = match is_routeless {
                true => "by what was tried before it no route leads there",
                false => {
                    self.doubts.missed(assigned, server, now);
                    "what was tried before it did not answer"
                }
            };
            let why = why.to_owned();
            self.decide(&application, &destination, interface, why, now);
        }
    }

    /// No route to the connection's destination leaves by this interface: that is no fault of it.
    pub fn leads_not_by(&mut self, id: u64, interface: u32) {
        if let Some(open) = self.open.get_mut(&id) {
            open.is_routeless |= open.interface == interface;
        }
    }

    /// Whom the connection was meant for has answered.
    pub fn proven(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.get(&id) {
            self.doubts.proven(open.interface, Some(open.server()), now);
        }
    }

    /// Somebody else answered the connection than whom it was meant for, or the server is at fault: the destination need
    /// not keep to its interface, which is left out for a while once another destination or another interface tells
    /// whose fault it is.
    pub fn answered_falsely(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.get(&id) {
            self.affinity.free(&open.destination, open.interface);
            self.doubts.answered_falsely(open.interface, open.server(), now);
        }
    }

    /// The connection waits for its program's next request, or has one: a link that is kept.
    pub fn rests(&mut self, id: u64, rests: bool) {
        if let Some(open) = self.open.get_mut(&id) {
            open.rests = rests;
        }
    }

    /// The connection has moved so many bytes by now, to and from this host. How many more than
    /// before.
    pub fn moved(&mut self, id: u64, down: u64, up: u64, now: Time) -> u64 {
        let Some(open) = self.open.get_mut(&id) else { return 0 };
        let more = (down.saturating_sub(open.moved.0), up.saturating_sub(open.moved.1));
        let all = more.0.saturating_add(more.1);
        if all == 0 {
            return 0;
        }
        open.moved = (down.max(open.moved.0), up.max(open.moved.1));
        open.active = now;
        let interface = open.interface;
        let since = now.since(self.ticked);
        self.second.entry(interface).or_default().add(more, since);
        all
    }

    /// The connection stands, but by none of the interfaces: only the kernel's own choice led there,
    /// and the next ones to this destination go that way at once.
    pub fn stands_free(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.remove(&id) {
            self.affinity.went(&open.destination, UNBOUND, now);
            // What was decided came to nothing.
            let of = |d: &Decision| {
                d.destination == open.destination && d.application == open.application
            };
            if let Some(at) = self.decisions.iter().rposition(of) {
                self.decisions.remove(at);
            }
        }
    }

    /// The interface that a connection goes by.
    pub fn interface_of(&self, id: u64) -> Option<String> {
        self.open.get(&id).and_then(|open| self.name(open.interface))
    }

    /// What TCP said of the connection: its round trip, and what it sent again of how many bytes
    /// since that was told last.
    pub fn saw(&mut self, id: u64, rtt: Duration, resent: Option<(u64, u64)>, now: Time) {
        if let Some(name) = self.interface_of(id) {
            self.heard_of(name, rtt, resent, now);
        }
    }

    /// The connection has ended, or came to nothing.
    pub fn ended(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id).filter(|open| open.stands) {
            let bytes = open.moved.0.saturating_add(open.moved.1);
            self.kept.applications.ended(&open.application, bytes);
            self.addition.ended(&open.application, bytes);
        }
    }

    /// What is expected still, of programs' connections and of what flows beside them. Who has moved more than was expected is expected to go on as
    /// long again: ours; by Eq. (1) alone a long flow would weigh nothing from then on.
    pub(super) fn load(&self, index: u32) -> u64 {
        let left = |open: &Open| {
            let moved = open.moved.0.saturating_add(open.moved.1);
            open.expected.checked_sub(moved).filter(|left| *left > 0).unwrap_or(moved)
        };
        let is_active = |open: &Open| !open.rests && self.ticked.since(open.active) < RESTS;
        let active = self.by(index).filter(|open| is_active(open));
        active.fold(self.flow(index), |sum: u64, open| sum.saturating_add(left(open)))
    }

    pub(super) fn by(&self, index: u32) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.interface == index)
    }
}
