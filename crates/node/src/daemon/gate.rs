//! How many handshakes may be in progress: in all, and from one source.
//!
//! A handshake that its peer draws out (slowloris) holds a place, a descriptor and about
//! 20 kB. So the places are bounded, each is held for a deadline at most, and
//! whoever comes when all are taken gets the place of the oldest, if that one
//! has had [`Limits::grace`]: an honest handshake takes two round trips.
//!
//! Pure but for its lock: times are arguments.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::peer_source::source_of;
use tokio_util::sync::CancellationToken;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handshakes in progress, 2048 by default: with 20 kB each 40 MB.
    pub total: usize,
    /// Of one source (an IPv4 address, an IPv6 /64), 512 by default: a relay in front
    /// of us brings all its clients from one address, and four sources fill the total.
    pub per_source: usize,
    /// For how long nobody takes a place away: 2 s, two round trips of the longest path and
    /// one repetition.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: 2048, per_source: 512, grace: Duration::from_secs(2) }
    }
}

/// Counts the handshakes in progress; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The oldest first.
    inside: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    source: IpAddr,
    since: Instant,
    evicted: CancellationToken,
}

/// A place for one handshake; free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Gate,
    number: u64,
    evicted: CancellationToken,
}

impl Place {
    /// Ends when the place was given to another; the handshake is then to be dropped.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.lock().inside.remove(&self.number);
    }
}

impl Gate {
    /// A gate with these bounds.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Arc::default() }
    }

    /// A place for a handshake with `ip`; none if all are taken by others who came just now.
    pub fn enter(&self, ip: IpAddr, now: Instant) -> Option<Place> {
        let source = source_of(ip);
        let mut state = self.lock();
        if let Some(oldest) = state.in_the_way(source, self.limits) {
            state.evict(oldest, now, self.limits.grace)?;
        }
        let (number, evicted) = (state.next, CancellationToken::new());
        state.next += 1;
        state.inside.insert(number, Entry { source, since: now, evicted: evicted.clone() });
        Some(Place { gate: self.clone(), number, evicted })
    }

    /// Handshakes in progress.
    pub fn inside(&self) -> usize {
        self.lock().inside.len()
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Who would have to go for one more of this source; none if there is room.
    fn in_the_way(&self, source: IpAddr, limits: Limits) -> Option<u64> {
        let same = || self.inside.iter().filter(|(_, e)| e.source == source);
        if same().count() >= limits.per_source {
            return same().map(|(n, _)| *n).next();
        }
        let full = self.inside.len() >= limits.total;
        full.then(|| self.inside.keys().next().copied()).flatten()
    }

    /// Frees the place of one who has had his time.
    fn evict(&mut self, number: u64, now: Instant, grace: Duration) -> Option<()> {
        let entry = self.inside.get(&number)?;
        if now.saturating_duration_since(entry.since) < grace {
            return None;
        }
        entry.evicted.cancel();
        self.inside.remove(&number).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { total: 5, per_source: 2, grace: Duration::from_secs(2) };

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn one_source_cannot_take_the_others_places() {
        let (gate, now) = (Gate::new(LIMITS), Instant::now());
        let mine: Vec<_> = (0..2).map(|_| gate.enter(ip(1), now).unwrap()).collect();
        assert!(gate.enter(ip(1), now).is_none());
        assert!(gate.enter("::ffff:10.0.0.1".parse().unwrap(), now).is_none(), "the same host");
        assert!(gate.enter(ip(2), now).is_some());
        drop(mine);
        assert!(gate.enter(ip(1), now).is_some());
    }

    #[test]
    fn a_host_is_one_source_with_all_its_ipv6_addresses() {
        let (gate, now) = (Gate::new(LIMITS), Instant::now());
        let at = |text: &str| gate.enter(text.parse().unwrap(), now);
        let held = [at("fd54::1"), at("fd54::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(at("fd54::3").is_none());
        assert!(at("fd54:0:0:1::3").is_some());
    }

    #[tokio::test]
    async fn who_draws_it_out_loses_the_place_to_who_comes() {
        let (gate, now) = (Gate::new(LIMITS), Instant::now());
        let held: Vec<_> = (0..5).map(|n| gate.enter(ip(n), now).unwrap()).collect();
        assert!(gate.enter(ip(9), now + Duration::from_millis(1999)).is_none());
        let late = gate.enter(ip(9), now + Duration::from_secs(2)).unwrap();
        held[0].evicted().await;
        assert!(!held[1].evicted.is_cancelled() && !late.evicted.is_cancelled());
        assert_eq!(gate.inside(), 5);
        drop(held);
        assert_eq!(gate.inside(), 1, "an evicted place is not freed twice");
    }
}
