//! How many channels are open, and how often an address may ask.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_wire::bistro::Refusal;
use tokio::time::Instant;

/// Channels at a time: about 20 kB each.
const CHANNELS: usize = 4096;

/// Of one address: a university's.
const CHANNELS_EACH: usize = 1024;

/// Addresses whose requests are counted; beyond them the oldest are forgotten.
const ADDRESSES: usize = 65_536;

/// What an address may ask at once, in seconds of its rate.
const BURST: f64 = 10.0;

/// Counts the channels of all boxes.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A channel's place.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    source: IpAddr,
}

impl Places {
    /// A place for one more channel from there, if there is one.
    pub fn enter(&self, from: IpAddr) -> Option<Place> {
        let source = source_of(from);
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&source).copied().unwrap_or(0));
        if all >= CHANNELS || own >= CHANNELS_EACH {
            return None;
        }
        open.insert(source, own + 1);
        Some(Place { places: self.clone(), source })
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.lock();
        match open.get_mut(&self.source) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = open.remove(&self.source),
        }
    }
}

/// What counts as one address: of IPv6 the /64 that one host is given.
fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// A token bucket for each address.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: f64,
    buckets: Mutex<BTreeMap<IpAddr, (f64, Instant)>>,
}

impl Pace {
    /// So many requests a second for long, and ten times as many at once.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), buckets: Mutex::default() }
    }

    /// Takes so many requests from the address's bucket.
    ///
    /// # Errors
    /// [`Refusal::Slower`] if they are not in it.
    pub fn take(&self, from: IpAddr, count: usize) -> Result<(), Refusal> {
        let (source, now, most) = (source_of(from), Instant::now(), self.per_second * BURST);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= ADDRESSES && !buckets.contains_key(&source) {
            self.forget(&mut buckets, now);
        }
        let (left, since) = buckets.entry(source).or_insert((most, now));
        let passed = now.saturating_duration_since(*since).as_secs_f64();
        (*left, *since) = ((*left + passed * self.per_second).min(most), now);
        // More than a bucket holds is let pass when it is full: else it never would be.
        let wanted = (count as f64).min(most);
        if *left < wanted {
            let wait = (wanted - *left) / self.per_second;
            return Err(Refusal::Slower((wait * 1e3).ceil() as u32));
        }
        *left -= wanted;
        Ok(())
    }

    /// Forgets those whose buckets are full again; if there are none, the one that is fullest.
    fn forget(&self, buckets: &mut BTreeMap<IpAddr, (f64, Instant)>, now: Instant) {
        let most = self.per_second * BURST;
        let level = |left: f64, since: Instant| {
            left + now.saturating_duration_since(since).as_secs_f64() * self.per_second
        };
        buckets.retain(|_, (left, since)| level(*left, *since) < most);
        if buckets.len() >= ADDRESSES {
            let fullest =
                buckets.iter().max_by(|(_, a), (_, b)| level(a.0, a.1).total_cmp(&level(b.0, b.1)));
            let fullest = fullest.map(|(ip, _)| *ip);
            fullest.map(|ip| buckets.remove(&ip));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_may_ask_so_often_and_another_is_not_held_up() {
        let pace = Pace::new(2);
        assert!((0..20).all(|_| pace.take(ip(1), 1).is_ok()));
        assert_eq!(pace.take(ip(1), 1), Err(Refusal::Slower(500)));
        assert_eq!(pace.take(ip(2), 20), Ok(()));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!((pace.take(ip(1), 1), pace.take(ip(1), 1)), (Ok(()), Err(Refusal::Slower(500))));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(pace.take(ip(1), 500), Ok(()), "more than ever fits takes all that there is");
        assert!(pace.take(ip(1), 1).is_err());
    }

    #[test]
    fn one_address_does_not_take_all_places() {
        let places = Places::default();
        let mine: Vec<_> = (0..CHANNELS_EACH).filter_map(|_| places.enter(ip(1))).collect();
        assert_eq!(mine.len(), CHANNELS_EACH);
        assert!(places.enter(ip(1)).is_none() && places.enter(ip(2)).is_some());
        drop(mine);
        assert!(places.enter(ip(1)).is_some());
        assert!(places.lock().len() == 1, "{places:?}");
    }
}
