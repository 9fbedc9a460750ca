//! Interfaces of which nothing is known, and what probes told of them.

use super::{
    super::{
        doubt::Why,
        probe::{ProbeServer, Probed},
        probing::EVERY,
    },
    Present, Table,
};
use std::{collections::BTreeMap, time::Duration};
use thalweg_bond::Tier;
use thalweg_units::{Time, WallTime};

/// The probes of interfaces, by name.
#[derive(Clone, Debug, Default)]
pub struct Probes(BTreeMap<String, Told>);

#[derive(Clone, Debug)]
struct Told {
    at: Time,
    failed: Option<String>,
}

impl Table {
    /// One that may be probed, was not for a while, and of which no traffic told meanwhile.
    pub fn unknown(&self, now: Time, today: WallTime) -> Option<Present> {
        let is_old = |age: Option<Duration>| age.is_none_or(|age| age >= EVERY);
        let is_unknown = |present: &&Present| {
            let heard = self.estimates.get(&present.name).and_then(|of| of.heard(now));
            let probed = self.probes.0.get(&present.name).map(|told| now.since(told.at));
            self.may_probe(present, today) && is_old(heard) && is_old(probed)
        };
        self.present.iter().find(is_unknown).cloned()
    }

    fn may_probe(&self, present: &Present, today: WallTime) -> bool {
        let policy = self.settings.policy(&present.name);
        let may = policy.tier != Tier::Never && policy.may_spend();
        may && self.has_left(&present.name, today)
    }

    /// Takes what a probe costs from what is left for this day.
    pub fn pay_for_probe(&mut self, today: u32, cost_of_most: (u64, u64)) -> bool {
        self.kept.pay_for_probe(today, cost_of_most)
    }

    /// A probe of it begins.
    pub fn is_probed(&mut self, name: &str, now: Time) {
        let present: Vec<_> = self.present.iter().map(|present| &present.name).collect();
        self.probes.0.retain(|name, _| present.contains(&name));
        self.probes.0.insert(name.to_owned(), Told { at: now, failed: None });
    }

    /// Who is asked once a probe failed, to know whose fault that is: another interface that may be probed by the same
    /// server; where there is none, the same interface by another of the `servers`.
    pub fn witness(
        &self,
        of: &Present,
        server: &ProbeServer,
        servers: &[ProbeServer],
        today: WallTime,
    ) -> Option<(Present, ProbeServer)> {
        let other = self.present.iter().find(|other| *other != of && self.may_probe(other, today));
        let by_other = || servers.iter().find(|other| !other.is_on_host_of(server));
        match other {
            Some(other) => Some((other.clone(), server.clone())),
            None => by_other().map(|other| (of.clone(), other.clone())),
        }
    }

    /// A probe of it failed, and that is not the server's fault: it leads nowhere for now.
    pub fn is_to_blame(&mut self, of: &Present, now: Time) {
        self.doubts.believe(of.index, Why::Unreached, now);
    }

    /// What it told, or why nothing.
    pub fn probed(
        &mut self,
        of: &Present,
        told: Result<Probed, String>,
        (now, today): (Time, WallTime),
    ) {
        if let Ok(probed) = &told {
            let took = probed.took.max(Duration::from_millis(1));
            let estimate = self.estimates.entry(of.name.clone()).or_default();
            estimate.probed(probed.bytes, took, now);
            probed.rtt.into_iter().for_each(|rtt| estimate.round_trip(rtt, now));
            self.addition.seen(&of.name, estimate, (now, today));
            self.doubts.serves(of.index);
        }
        self.probes.0.insert(of.name.clone(), Told { at: now, failed: told.err() });
    }

    /// Why the last probe of it told nothing.
    pub(super) fn probe_failure(&self, name: &str) -> Option<String> {
        self.probes.0.get(name)?.failed.clone()
    }
}

#[cfg(test)]
#[path = "probing_tests.rs"]
mod tests;
