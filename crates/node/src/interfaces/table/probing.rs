//! Interfaces of which nothing is known, and what probes told of them.

use super::{
    super::{probe::Probed, probing::EVERY},
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
        let is_old = |at: Option<Time>| at.is_none_or(|at| now.since(at) >= EVERY);
        let is_unknown = |present: &&Present| {
            let policy = self.settings.policy(&present.name);
            let heard = self.estimates.get(&present.name).and_then(|of| of.heard());
            let probed = self.probes.0.get(&present.name).map(|told| told.at);
            let may = policy.tier != Tier::Never && policy.may_spend();
            may && self.has_left(&present.name, today) && is_old(heard) && is_old(probed)
        };
        self.present.iter().find(is_unknown).cloned()
    }

    /// A probe of it begins.
    pub fn is_probed(&mut self, name: &str, now: Time) {
        let present: Vec<_> = self.present.iter().map(|present| &present.name).collect();
        self.probes.0.retain(|name, _| present.contains(&name));
        self.probes.0.insert(name.to_owned(), Told { at: now, failed: None });
    }

    /// What it told, or why nothing. One that answers with something else leads nowhere for now.
    pub fn probed(&mut self, of: &Present, told: Result<Probed, String>, now: Time) {
        match &told {
            Ok(probed) => {
                let took = probed.took.max(Duration::from_millis(1));
                let estimate = self.estimates.entry(of.name.clone()).or_default();
                estimate.carried(probed.bytes, 0, took, now);
                probed.rtt.into_iter().for_each(|rtt| estimate.round_trip(rtt));
                self.addition.seen(&of.name, estimate);
                self.doubts.serves(of.index);
            }
            Err(_) => self.doubts.leads_nowhere(of.index, now),
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
