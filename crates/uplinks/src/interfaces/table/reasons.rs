//! Why a connection went where it did, in words.

use super::{Decision, Open, Present, Table};
use thalweg_bond::{Application, Pick, Tier};
use thalweg_units::{Time, WallTime};
use thalweg_wire::{Destination, Host};

/// Where a destination's connections keep to so many interfaces.
pub(super) fn keeping(interfaces: usize, pick: &Pick) -> String {
    match interfaces {
        1 => "this destination's connections keep to it".to_owned(),
        _ => format!("of those that this destination's connections keep to: {}", pick.why),
    }
}

/// The interface of what the kernel sends as it likes.
const KERNELS: &str = "-";

/// Why the kernel does so though there is a choice.
const NEAR: &str = "near: as the kernel sends it; `near = true` changes that";

impl Table {
    /// Whether a connection to `to`, for which nothing is decided, would be assigned if it were not near.
    pub fn is_left_as_near(&self, to: &Destination) -> bool {
        let is_loopback = matches!(&to.host, Host::Ip(ip) if ip.to_canonical().is_loopback());
        !is_loopback
            && (self.present.len() > 1 || !self.settings.is_plain())
            && !self.has_choice(to)
    }

    /// Such a connection was made, for who asks why; one after the other to the same destination count as one.
    pub fn left_as_near(&mut self, application: Application, destination: &str, at: Time) {
        let (interface, why) = (KERNELS.to_owned(), NEAR.to_owned());
        let destination = destination.to_owned();
        let new = Decision { application, destination, interface, why, at };
        match self.decisions.back_mut() {
            Some(last) if *last == (Decision { at: last.at, ..new.clone() }) => last.at = at,
            _ => self.remember(new),
        }
    }

    /// The interfaces that a destination used, where it is to keep to some, and those by which this very application has
    /// connections open to it: whoever bears that bears the next one.
    pub(super) fn with_open(&self, mut used: Vec<u32>, by: &Application, to: &str) -> Vec<u32> {
        let own = |open: &&Open| open.stands && open.application == *by && open.destination == to;
        if !used.is_empty() {
            used.extend(self.open.values().filter(own).map(|open| open.interface));
        }
        used
    }

    /// Of a connection of this application to this destination: the rule that left something out; where one interface
    /// was left, what the others lack; and else the scheduler's reason.
    pub(super) fn reason(
        &self,
        pick: &Pick,
        of: (&Application, &str),
        candidates: usize,
        (now, today): (Time, WallTime),
    ) -> String {
        let names: Vec<&str> = self.present.iter().map(|p| p.name.as_str()).collect();
        let ruled = self.settings.rules.filter(of.0, of.1, &names);
        let number = self.settings.rules.number(of.0, of.1);
        let rule = number.filter(|_| ruled.len() < names.len());
        let mut parts: Vec<String> = rule.map(|n| format!("by rule {n}")).into_iter().collect();
        if candidates == 1 {
            let others = ruled.iter().map(|at| &self.present[*at]);
            let others = others.filter(|other| other.index != pick.interface);
            parts.extend(others.filter_map(|other| {
                let why = self.left_out(other, now, today)?;
                Some(format!("{} is left out: {why}", other.name))
            }));
        }
        if candidates > 1 || parts.is_empty() {
            parts.push(pick.why.to_string());
        }
        parts.join("; ")
    }

    fn left_out(&self, one: &Present, now: Time, today: WallTime) -> Option<&'static str> {
        let tier = self.settings.policy(&one.name).tier;
        match self.doubts.of(one.index, now) {
            _ if tier == Tier::Never => Some("its tier is never"),
            _ if !self.has_left(&one.name, today) => Some("its cap is used up"),
            Some(why) => Some(why.text()),
            None if tier == Tier::Secondary => Some("its tier is secondary"),
            None if tier == Tier::Backup => Some("its tier is backup"),
            None => None,
        }
    }
}
