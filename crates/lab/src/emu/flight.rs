//! The packets on a link between entry and arrival, in order of arrival.

use super::server::Rescale;
use std::collections::VecDeque;

/// A packet in flight. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct InFlight<P> {
    pub(super) depart: u64,
    pub(super) arrive: u64,
    pub(super) packet: P,
    pub(super) corrupt: Option<u64>,
}

/// Packets in flight: a FIFO, and beside it the packets held back.
///
/// Bounded by the packets that the queue admits and the delay line holds. A link without a rate admits everything that
/// is sent within its delay.
#[derive(Clone, Debug)]
pub(super) struct Flight<P> {
    ordered: VecDeque<InFlight<P>>,
    /// Ascending by arrival.
    held: VecDeque<InFlight<P>>,
    /// The latest arrival of the FIFO: the next packet arrives no earlier.
    last: u64,
}

impl<P> Flight<P> {
    pub(super) fn new() -> Self {
        Self { ordered: VecDeque::new(), held: VecDeque::new(), last: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.ordered.len() + self.held.len()
    }

    /// Adds a packet in order: it arrives no earlier than the packets before it.
    pub(super) fn push(&mut self, mut packet: InFlight<P>) {
        packet.arrive = packet.arrive.max(self.last);
        self.last = packet.arrive;
        self.ordered.push_back(packet);
    }

    /// Adds a packet that others may overtake.
    pub(super) fn hold(&mut self, packet: InFlight<P>) {
        let place = self.held.partition_point(|p| p.arrive <= packet.arrive);
        self.held.insert(place, packet);
    }

    /// The time of the next arrival.
    pub(super) fn next(&self) -> Option<u64> {
        let heads = [self.ordered.front(), self.held.front()];
        heads.into_iter().flatten().map(|p| p.arrive).min()
    }

    /// Removes the next packet, if it has arrived. Of two packets with equal times, the one in order is first.
    pub(super) fn pop(&mut self, now: u64) -> Option<InFlight<P>> {
        let arrival = |q: &VecDeque<InFlight<P>>| q.front().map_or(u64::MAX, |p| p.arrive);
        let (ordered, held) = (arrival(&self.ordered), arrival(&self.held));
        match (ordered <= held, ordered.min(held) <= now) {
            (_, false) => None,
            (true, true) => self.ordered.pop_front(),
            (false, true) => self.held.pop_front(),
        }
    }

    /// Moves the departures that are still to come, and their arrivals by the same amount.
    pub(super) fn rescale(&mut self, rescale: Rescale) {
        let moved = |p: &mut InFlight<P>| {
            let depart = rescale.apply(p.depart);
            p.arrive = p.arrive.saturating_sub(p.depart).saturating_add(depart);
            p.depart = depart;
        };
        let mut last = 0;
        for packet in &mut self.ordered {
            moved(packet);
            packet.arrive = packet.arrive.max(last);
            last = packet.arrive;
        }
        if !self.ordered.is_empty() {
            self.last = last;
        }
        self.held.iter_mut().for_each(moved);
        self.held.make_contiguous().sort_by_key(|p| p.arrive);
    }

    /// Drops all packets. Returns their number.
    pub(super) fn clear(&mut self) -> usize {
        let n = self.len();
        self.ordered.clear();
        self.held.clear();
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(depart: u64, arrive: u64, packet: u8) -> InFlight<u8> {
        InFlight { depart, arrive, packet, corrupt: None }
    }

    #[test]
    fn order_is_kept_except_for_held_packets() {
        let mut flight = Flight::new();
        flight.push(at(1, 100, 1));
        flight.hold(at(2, 250, 2));
        flight.push(at(3, 90, 3));
        flight.push(at(4, 300, 4));
        assert_eq!(flight.next(), Some(100));
        assert!(flight.pop(99).is_none());
        let order: Vec<_> = std::iter::from_fn(|| flight.pop(400)).map(|p| p.packet).collect();
        assert_eq!(order, [1, 3, 2, 4]);
    }

    #[test]
    fn a_rescale_moves_only_departures_to_come() {
        let mut flight = Flight::new();
        flight.push(at(10, 110, 1));
        flight.push(at(50, 150, 2));
        flight.rescale(Rescale { now: 30, from: Some(1), to: Some(2) });
        assert_eq!(flight.pop(999).map(|p| (p.depart, p.arrive)), Some((10, 110)));
        assert_eq!(flight.pop(999).map(|p| (p.depart, p.arrive)), Some((40, 140)));
    }
}
