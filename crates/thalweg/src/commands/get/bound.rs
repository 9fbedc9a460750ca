//! Finds the bound of each finished download: adds to its facts what this host knew before it began.

use crate::commands::uplinks;
use std::{collections::BTreeMap, fs, time::Duration};
use thalweg_base::verdict::Verdict;
use thalweg_paths::{
    history::History,
    verdict::{Capacity, Estimate, Facts, verdict},
};
use thalweg_units::{ByteSize, Rate, WallTime};

/// An interface that is used beyond this share of its card's speed is limited by the card.
const CARD: f64 = 0.85;

/// An estimate of an interface counts only if it is this many times the download's own rate: it may be from the same
/// source, and then it shows no more than this download does.
const ABOVE_OWN: f64 = 1.3;

/// What was known before the first download from an origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownRates {
    /// The rates of its paths.
    paths: BTreeMap<String, Estimate>,
    /// The fastest download from any other origin.
    fastest: Option<Estimate>,
    /// The estimated rates of this host's interfaces.
    interfaces: BTreeMap<String, Estimate>,
}

impl KnownRates {
    /// What the history knows of this origin and of others, and this process of its interfaces.
    pub fn of(history: &History, origin: &str, now: WallTime) -> Self {
        let mut known = Self { interfaces: interfaces(), ..Self::default() };
        for entry in history.entries(now) {
            let estimate = Estimate { rate: entry.rate, age: entry.age };
            if entry.origin == origin {
                known.paths.insert(entry.path, estimate);
            } else if known.fastest.is_none_or(|fastest| fastest.rate < estimate.rate) {
                known.fastest = Some(estimate);
            }
        }
        known
    }

    /// The bound that a download met. `quota` is the rate that a path's relays give this host.
    pub fn verdict(&self, facts: &Facts, quota: impl Fn(&str) -> Option<Rate>) -> Verdict {
        let mut facts = facts.clone();
        for path in &mut facts.paths {
            path.known = self.paths.get(&path.name).copied();
            path.quota = quota(&path.name).filter(|_| path.is_relayed);
        }
        facts.fastest = self.fastest;
        if let Some(interface) = &mut facts.interface {
            let total = Rate::over(ByteSize::from_bytes(interface.received), interface.during);
            let seen = self.fastest.map(|estimate| Capacity { estimate, is_measured: false });
            interface.capacity = card(&interface.name, total).or(seen);
            let own = Rate::over(ByteSize::from_bytes(interface.own), interface.during);
            let before = self.interfaces.get(&interface.name).filter(|before| {
                let fastest = facts.fastest.map_or(Rate::ZERO, |fastest| fastest.rate);
                before.rate > fastest && before.rate.as_mbps() >= ABOVE_OWN * own.as_mbps()
            });
            facts.fastest = before.copied().or(facts.fastest);
        }
        verdict(&facts)
    }
}

/// The estimated download rates of this process's interfaces.
fn interfaces() -> BTreeMap<String, Estimate> {
    let Some(uplinks) = uplinks::process_uplinks() else { return BTreeMap::new() };
    let (today, now) = (uplinks.today(), uplinks.now());
    let all = uplinks.table().show(today);
    let known = all.into_iter().filter_map(|shown| {
        let (rate, age) = (shown.estimate.down(), shown.estimate.age(now)?);
        (rate > Rate::ZERO).then_some((shown.name, Estimate { rate, age }))
    });
    known.collect()
}

/// The speed of the interface's card, if it is used up at this rate. A card is mostly faster than the access link.
fn card(interface: &str, total: Rate) -> Option<Capacity> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    // Virtual interfaces and those without a link have -1 or nothing.
    let mbps: u32 = text.trim().parse().ok().filter(|mbps| *mbps > 0)?;
    let rate = Rate::from_mbps(mbps.into());
    let estimate = Estimate { rate, age: Duration::ZERO };
    let is_used_up = total.as_mbps() >= CARD * rate.as_mbps();
    is_used_up.then_some(Capacity { estimate, is_measured: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::verdict::Bound;
    use thalweg_paths::{
        history::{Bound as Exactness, PathObservation},
        verdict::{InterfaceFacts, PathFacts, TcpFacts},
    };

    #[test]
    fn what_was_known_of_paths_and_other_origins_is_evidence() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(&dir.path().join("history.json"));
        let now = WallTime::from_unix_nanos(1_700_000_000_000_000_000);
        let seen = |rate| PathObservation {
            path: "direct".into(),
            rate: Rate::from_mbps(rate),
            setup: Duration::from_millis(50),
            bound: Exactness::Exact,
        };
        for (origin, rate) in [("http://a:80", 9.0), ("http://b:80", 94.0), ("http://c:80", 20.0)] {
            history.learn(origin, &[seen(rate)], now);
        }
        let known = KnownRates::of(&history, "http://a:80", now);
        assert_eq!(known.paths["direct"].rate, Rate::from_mbps(9.0));
        assert_eq!(known.fastest.map(|fastest| fastest.rate), Some(Rate::from_mbps(94.0)));

        let trip = Duration::from_millis(50);
        let tcp = TcpFacts {
            packets: 30_000,
            out_of_order: 0,
            shortest: trip,
            usual: trip,
            window: 6_000_000,
        };
        let direct = PathFacts {
            name: "direct".into(),
            bytes: 40_000_000,
            tcp: Some(tcp),
            ..PathFacts::default()
        };
        let interface = InterfaceFacts {
            name: "none0".into(),
            received: 42_000_000,
            own: 40_000_000,
            during: Duration::from_secs(32),
            peak: None,
            capacity: None,
        };
        let facts = Facts {
            took: Duration::from_secs(32),
            fetched: 40_000_000,
            paths: vec![direct],
            interface: Some(interface),
            ..Facts::default()
        };
        let found = known.verdict(&facts, |_| None);
        assert_eq!(found.bound, Bound::Source, "{found:?}");
        let whats: Vec<&str> = found.evidence.iter().map(|one| one.what.as_str()).collect();
        assert!(whats.contains(&"direct, before"), "{whats:?}");
        assert!(whats.contains(&"fastest from another source"), "{whats:?}");

        let mut relayed = facts;
        (relayed.paths[0].name, relayed.paths[0].is_relayed) = ("fra".into(), true);
        let quota = |path: &str| (path == "fra").then_some(Rate::from_mbps(10.5));
        assert_eq!(known.verdict(&relayed, quota).bound, Bound::Relay);
    }
}
