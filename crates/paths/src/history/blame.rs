//! Records which relays are blamed for altered bytes, by relay and origin.
//!
//! An alteration that is blamed on a relay may be the server's own doing, directed at that relay's address. So a site's
//! blame counts at once for that site, but for others only together with the blame of two more unrelated sites.

use super::{
    QuarantinedRelay,
    state::{MAX_TEXT, age},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};
use thalweg_units::WallTime;

/// How long a relay that altered bytes is excluded from downloads that do not name it.
pub const QUARANTINE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The number of unrelated sites whose blame excludes a relay for all destinations. One site can be an enemy, two a
/// coincidence of an enemy and a fault; a relay that alters everybody's bytes soon has three.
const SITES: usize = 3;

/// The most blames: two for each relay of a large mesh (300).
const MAX_BLAMES: usize = 600;

/// All blames, at most [`MAX_BLAMES`].
#[derive(Clone, Debug, Default)]
pub(super) struct Blames(BTreeMap<(String, String), QuarantinedRelay>);

impl Blames {
    /// The blames in the order of relay and origin.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QuarantinedRelay> {
        self.0.values()
    }

    pub(super) fn add(&mut self, blame: QuarantinedRelay) {
        self.0.insert((blame.relay.clone(), blame.origin.clone()), blame);
        while self.0.len() > MAX_BLAMES {
            self.forget_one();
        }
    }

    /// Removes the oldest blame of the site with the most blames, so that no site can displace the blames of others.
    fn forget_one(&mut self) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for blame in self.0.values() {
            *counts.entry(site(&blame.origin)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, n)| *n).map(|(site, _)| site);
        let of = |b: &&QuarantinedRelay| most.as_deref() == Some(&*site(&b.origin));
        let oldest = self.0.values().filter(of).min_by_key(|b| b.since);
        if let Some(key) = oldest.map(|b| (b.relay.clone(), b.origin.clone())) {
            self.0.remove(&key);
        }
    }

    /// Removes all blames of this relay.
    pub(super) fn lift(&mut self, relay: &str) {
        self.0.retain(|(blamed, _), _| blamed != relay);
    }

    /// Removes blames that are too old, and sets dates after `now` to `now`.
    pub(super) fn settle(&mut self, now: WallTime) {
        self.0.retain(|_, blame| blame.counts(now));
        self.0.values_mut().for_each(|blame| blame.since = blame.since.min(now));
    }

    /// Whether this relay must not be used to `origin`; without an origin: to any.
    pub(super) fn is_shut_out(&self, relay: &str, origin: Option<&str>, now: WallTime) -> bool {
        let own: Vec<_> = self.0.values().filter(|b| b.relay == relay && b.counts(now)).collect();
        let sites: BTreeSet<String> = own.iter().map(|b| site(&b.origin)).collect();
        sites.len() >= SITES || own.iter().any(|b| origin == Some(&*b.origin))
    }
}

impl QuarantinedRelay {
    pub(super) fn new(relay: &str, origin: &str, why: &str, since: WallTime) -> Self {
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
        Self { relay: plain(relay), origin: plain(origin), why: plain(why), since }
    }

    /// How long ago the alteration was found; zero if that is in the future, as after a correction of the clock.
    pub fn age(&self, now: WallTime) -> Duration {
        age(self.since, now)
    }

    /// How much longer it counts, at most [`QUARANTINE`].
    pub fn left(&self, now: WallTime) -> Duration {
        QUARANTINE.saturating_sub(self.age(now))
    }

    /// Whether it still counts.
    pub(super) fn counts(&self, now: WallTime) -> bool {
        !self.left(now).is_zero()
    }
}

/// The part of an origin that is the same for all origins of one owner: the last two labels of a host's name, or the
/// network of an address (/24, /48), of which one host may have many. All names below a suffix of two labels (`co.uk`)
/// count as one owner, which errs towards using a relay.
fn site(origin: &str) -> String {
    let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    };
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            let [a, b, c, _] = ip.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        Ok(IpAddr::V6(ip)) => match ip.segments() {
            [a, b, c, ..] => format!("{a:x}:{b:x}:{c:x}::/48"),
        },
        Err(_) => {
            let mut labels: Vec<_> = host.trim_end_matches('.').rsplit('.').take(2).collect();
            labels.reverse();
            labels.join(".")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos((1_790_000_000 + seconds) * 1_000_000_000)
    }

    fn blamed(origins: &[&str]) -> Blames {
        let mut blames = Blames::default();
        origins.iter().for_each(|o| blames.add(QuarantinedRelay::new("fra", o, "why", at(0))));
        blames
    }

    #[test]
    fn one_owner_excludes_a_relay_only_for_its_own_origins() {
        let own =
            ["https://a.evil.example:443", "https://b.evil.example:443", "http://evil.example:80"];
        let ips = ["http://192.0.2.1:80", "http://192.0.2.1:81", "http://192.0.2.2:80"];
        for origins in [own, ips] {
            let blames = blamed(&origins);
            assert!(origins.iter().all(|o| blames.is_shut_out("fra", Some(o), at(1))));
            assert!(!blames.is_shut_out("fra", Some("https://good.test:443"), at(1)));
            assert!(!blames.is_shut_out("fra", None, at(1)));
            assert!(!blames.is_shut_out("nyc", Some(origins[0]), at(1)));
        }
    }

    #[test]
    fn three_unrelated_sites_exclude_a_relay_for_all() {
        let mut blames = blamed(&["https://a.one.example:443", "http://[2001:db8::1]:80"]);
        assert!(!blames.is_shut_out("fra", None, at(1)));
        blames.add(QuarantinedRelay::new("fra", "http://198.51.100.1:80", "why", at(0)));
        assert!(blames.is_shut_out("fra", None, at(1)));
        assert!(blames.is_shut_out("fra", Some("https://good.test:443"), at(1)));
        assert!(!blames.is_shut_out("fra", None, at(7 * 24 * 3600)), "it ends");
        blames.lift("fra");
        assert_eq!(blames.iter().count(), 0);
    }

    #[test]
    fn a_site_with_many_blames_displaces_only_its_own() {
        let mut blames = blamed(&["https://good.test:443"]);
        for i in 0..2 * MAX_BLAMES as u64 {
            let (relay, origin) = (format!("r{i}"), format!("https://h{i}.evil.example:443"));
            blames.add(QuarantinedRelay::new(&relay, &origin, "why", at(1 + i)));
        }
        assert_eq!(blames.iter().count(), MAX_BLAMES);
        assert!(blames.is_shut_out("fra", Some("https://good.test:443"), at(1)));
    }
}
