//! Limits the handshakes in progress, in total and from one source.
//!
//! A handshake that its peer draws out (slowloris) holds a place, a descriptor and about 20 kB. So the places are
//! limited, and each is held for a deadline at most. When all are taken, a newcomer gets one of the source that holds
//! the most ([`FairSlots`]). Among sources that hold equally many, the oldest place is evicted, if it is as old as
//! [`HandshakeLimits::grace`]: a well-behaved handshake takes two round trips.
//!
//! Pure except for its lock: times are arguments.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};
use thalweg_base::{
    fair_slots::{Bounds, FairSlots, Slot},
    peer_source::source_of,
};

/// The limits of handshakes.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLimits {
    /// The most handshakes in progress, 2048 by default: with 20 kB each they take 40 MB.
    pub total: usize,
    /// The most of one source (an IPv4 address, an IPv6 /64), 512 by default: a relay in front of this node brings all
    /// its clients from one address, and four sources fill the total.
    pub per_source: usize,
    /// How long a place cannot be taken away: 2 s, two round trips of the longest path and one retransmission.
    pub grace: Duration,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { total: 2048, per_source: 512, grace: Duration::from_secs(2) }
    }
}

/// Admits handshakes within the limits; cheap to clone.
#[derive(Clone, Debug)]
pub struct HandshakeGate {
    places: FairSlots<IpAddr>,
}

/// A place for one handshake; free again when this is dropped.
pub type HandshakeSlot = Slot<IpAddr>;

impl HandshakeGate {
    /// Creates a gate with these limits.
    pub fn new(limits: HandshakeLimits) -> Self {
        let HandshakeLimits { total: all, per_source: each, grace } = limits;
        let places = FairSlots::new(Bounds { all, each, grace: Some(grace) });
        Self { places }
    }

    /// Takes a place for a handshake with `ip`. Returns `None` if its source has its share, or if all places are taken
    /// by sources that hold no more and that connected just now.
    pub fn enter(&self, ip: IpAddr, now: Instant) -> Option<HandshakeSlot> {
        self.places.enter(source_of(ip), 1, now)
    }

    /// The number of handshakes in progress.
    pub fn inside(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HandshakeLimits =
        HandshakeLimits { total: 5, per_source: 2, grace: Duration::from_secs(2) };

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn one_source_cannot_take_the_others_places() {
        let (gate, now) = (HandshakeGate::new(LIMITS), Instant::now());
        let mine: Vec<_> = (0..2).map(|_| gate.enter(ip(1), now).unwrap()).collect();
        assert!(gate.enter(ip(1), now).is_none());
        assert!(gate.enter("::ffff:10.0.0.1".parse().unwrap(), now).is_none(), "the same host");
        assert!(gate.enter(ip(2), now).is_some());
        drop(mine);
        assert!(gate.enter(ip(1), now).is_some());
    }

    #[test]
    fn a_host_is_one_source_with_all_its_ipv6_addresses() {
        let (gate, now) = (HandshakeGate::new(LIMITS), Instant::now());
        let at = |text: &str| gate.enter(text.parse().unwrap(), now);
        let held = [at("fd54::1"), at("fd54::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(at("fd54::3").is_none());
        assert!(at("fd54:0:0:1::3").is_some());
    }

    #[tokio::test]
    async fn a_drawn_out_handshake_loses_its_place_to_a_newcomer() {
        let (gate, now) = (HandshakeGate::new(LIMITS), Instant::now());
        let held: Vec<_> = (0..5).map(|n| gate.enter(ip(n), now).unwrap()).collect();
        assert!(gate.enter(ip(9), now + Duration::from_millis(1999)).is_none());
        let late = gate.enter(ip(9), now + Duration::from_secs(2)).unwrap();
        held[0].evicted().await;
        assert!(!held[1].is_evicted() && !late.is_evicted());
        assert_eq!(gate.inside(), 5);
        drop(held);
        assert_eq!(gate.inside(), 1, "an evicted place is not freed twice");
    }

    #[test]
    fn few_sources_with_many_connections_do_not_keep_out_others() {
        let (gate, now) = (HandshakeGate::new(HandshakeLimits::default()), Instant::now());
        // 2,000 connections a second from 8 addresses, each held for less than the grace.
        let mut held: std::collections::VecDeque<_> =
            (0..2048).map(|n| gate.enter(ip((n % 8) as u8), now)).collect();
        for tick in 0..200 {
            let now = now + Duration::from_millis(10 * tick);
            for n in 0..20 {
                held.pop_front();
                held.push_back(gate.enter(ip(n % 8), now));
            }
            let honest = gate.enter(ip(99), now);
            assert!(honest.is_some_and(|place| !place.is_evicted()), "tick {tick}");
        }
    }
}
