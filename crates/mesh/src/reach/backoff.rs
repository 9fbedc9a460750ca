//! Which relays rest after failures, and for how long.

use std::{collections::BTreeMap, time::Duration};
use thalweg_units::NodeId;
use tokio::time::Instant;

/// The pause after a first failure; each is twice the one before.
const LEAST: Duration = Duration::from_secs(1);

/// The longest pause.
const MOST: Duration = Duration::from_secs(60);

/// Relays that are not tried for a while.
#[derive(Debug, Default)]
pub(super) struct Rests(BTreeMap<NodeId, Rest>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    failures: u32,
    until: Instant,
}

impl Rests {
    /// Notes a failure of the relay. Returns whether it is the first in a row.
    pub fn note(&mut self, relay: NodeId, now: Instant) -> bool {
        let rest = self.0.entry(relay).or_insert(Rest { failures: 0, until: now });
        let pause = LEAST.saturating_mul(1 << rest.failures.min(10)).min(MOST);
        rest.failures += 1;
        rest.until = now + pause / 2 + jitter(pause / 2);
        rest.failures == 1
    }

    /// Forgets the relay's failures.
    pub fn succeed(&mut self, relay: &NodeId) {
        self.0.remove(relay);
    }

    /// Whether the relay is not tried now.
    pub fn rests(&self, relay: &NodeId, now: Instant) -> bool {
        self.0.get(relay).is_some_and(|rest| rest.until > now)
    }

    /// When the next relay that rests may be tried.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.0.values().map(|rest| rest.until).filter(|until| *until > now).min()
    }

    /// Forgets relays that do not pass the test.
    pub fn retain(&mut self, is_relay: impl Fn(&NodeId) -> bool) {
        self.0.retain(|key, _| is_relay(key));
    }
}

/// A random duration up to `most`; half of it without randomness.
pub(super) fn jitter(most: Duration) -> Duration {
    let mut chance = [0; 2];
    match getrandom::fill(&mut chance) {
        Ok(()) => most.mul_f64(f64::from(u16::from_be_bytes(chance)) / f64::from(u16::MAX)),
        Err(_) => most / 2,
    }
}

/// Puts the items in random order; without randomness they stay.
pub(super) fn shuffle<T>(items: &mut [T]) {
    let mut chance = vec![0; items.len() * 4];
    if getrandom::fill(&mut chance).is_err() {
        return;
    }
    for (at, bytes) in chance.chunks_exact(4).enumerate().rev() {
        let draw = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        items.swap(at, draw as usize % (at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_a_success() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        let relay = NodeId::from_bytes([1; 32]);
        assert!(!rests.rests(&relay, now) && rests.next(now).is_none());
        let mut last = Duration::ZERO;
        for failure in 0..8_u32 {
            assert_eq!(rests.note(relay, now), failure == 0);
            let pause = rests.next(now).unwrap() - now;
            let full = LEAST.saturating_mul(1 << failure).min(MOST);
            assert!(full / 2 <= pause && pause <= full, "{pause:?}");
            last = pause;
        }
        assert!(last >= MOST / 2 && rests.rests(&relay, now) && !rests.rests(&relay, now + MOST));
        rests.succeed(&relay);
        assert!(!rests.rests(&relay, now));
    }

    #[test]
    fn shuffling_keeps_all_items() {
        let mut items: Vec<_> = (0..100).collect();
        shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
