//! The table of interfaces, which decides the interface of each connection. No I/O; the time is an argument.

#[cfg(test)]
mod tests;

use super::{
    caps::{AllotmentRest, Caps, Permission, ahead, allotment},
    doubt::{DoubtReason, Doubts},
    estimate::Estimate,
    probe::{ProbeServer, Probed},
    settings::Settings,
    stored_table::{Addition, AllotmentRequest, StoredTable},
    traffic::{OpenConnection, SecondTraffic, Traffic},
    uplinks::PROBED_EVERY,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use thalweg_bond::{
    Affinity, Application, Candidate, ConnectionMethod, ConnectionScheduler, Demand, LinkInterface,
    Offer, PaidReserve, Period, Pick, Tier, allowed_interfaces, keep_affinity, link_interfaces,
};
use thalweg_units::{Rate, Time, WallTime};
use thalweg_wire::{Destination, Host};

/// Decisions that are remembered for the report. Beyond that, the oldest is forgotten.
const MOST_DECISIONS: usize = 64;

/// Estimates of interfaces that are gone: a dock, some networks, tethered telephones. Beyond that, those heard of
/// longest ago are forgotten.
const MOST_GONE: usize = 64;

/// The index of no interface: for destinations that only the kernel's own choice reaches.
const UNBOUND: u32 = 0;

/// The primary interfaces are full if the load of each takes longer than this.
const FULL: Duration = Duration::from_secs(10);

/// The interface that the report shows for connections left to the kernel.
const KERNELS: &str = "-";

/// Why they are left to the kernel although there is a choice.
const NEAR: &str = "a near destination, for which the kernel chooses; `near = true` changes that";

/// An interface that is usable now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableInterface {
    /// The kernel's index.
    pub index: u32,
    /// Its name, which settings and kept counts refer to.
    pub name: String,
}

/// Where a connection went, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The application that asked.
    pub application: Application,
    pub destination: String,
    pub interface: String,
    pub why: String,
    pub at: Time,
}

/// The assignment of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The kernel decides: there is no choice.
    Free,
    /// The connection has this number from now on, and uses the first of these interfaces, and each later one if those
    /// before fail. `true` marks those that are not meant to be used now: lower tiers, and interfaces in doubt.
    By(u64, Vec<(u32, bool)>),
    /// Nowhere: the user's settings leave no interface.
    Nowhere,
}

/// The interfaces, their traffic, and what is remembered of applications.
#[derive(Debug)]
pub struct Table {
    settings: Settings,
    scheduler: ConnectionScheduler,
    affinity: Affinity,
    kept: StoredTable,
    present: Vec<UsableInterface>,
    estimates: BTreeMap<String, Estimate>,
    traffic: Traffic,
    doubts: Doubts,
    probes: ProbeLog,
    addition: Addition,
    caps: Caps,
    /// If a deadline is to be met at the least cost: the interfaces that wait.
    thrift: Option<PaidReserve<String>>,
    decisions: VecDeque<Decision>,
}

impl Table {
    /// Creates a table with these settings and what was kept.
    pub fn new(settings: Settings, kept: StoredTable, now: Time) -> Self {
        Self {
            scheduler: ConnectionScheduler::new(settings.schedule),
            affinity: Affinity::new(settings.affinity),
            settings,
            kept,
            present: Vec::new(),
            estimates: BTreeMap::new(),
            traffic: Traffic::new(now),
            doubts: Doubts::default(),
            probes: ProbeLog::default(),
            addition: Addition::default(),
            caps: Caps::default(),
            thrift: None,
            decisions: VecDeque::new(),
        }
    }

    /// Assigns connections by this method from now on.
    pub fn schedule_by(&mut self, method: ConnectionMethod) {
        if self.scheduler.method() != method {
            self.scheduler = ConnectionScheduler::new(method);
        }
    }

    /// Sets the interfaces that are usable now, in the system's order of preference. Destinations of interfaces that
    /// are gone are free to use others.
    pub fn follow(&mut self, present: Vec<UsableInterface>, now: Time, today: WallTime) {
        for gone in self.present.iter().filter(|old| !present.contains(old)) {
            self.affinity.remove_interface(gone.index);
            self.doubts.forget(gone.index);
        }
        self.present = present;
        let is_there = |index: &u32| self.present.iter().any(|present| present.index == *index);
        self.traffic.keep(is_there);
        self.forget_old_estimates(now);
        for name in self.present.iter().map(|present| &present.name) {
            let is_new = !self.estimates.contains_key(name);
            if let Some(kept) = self.kept.estimate(name, (now, today)).filter(|_| is_new) {
                self.estimates.insert(name.clone(), kept);
            }
        }
    }

    /// Names of interfaces come and go: of those that are gone, only the estimates heard of last are kept.
    fn forget_old_estimates(&mut self, now: Time) {
        let is_gone = |name: &&String| self.present.iter().all(|present| present.name != **name);
        let gone: Vec<String> = self.estimates.keys().filter(is_gone).cloned().collect();
        let age = |name: &String| self.estimates[name].age(now).unwrap_or(Duration::MAX);
        let mut gone: Vec<_> = gone.into_iter().map(|name| (age(&name), name)).collect();
        gone.sort();
        for (_, name) in gone.iter().skip(MOST_GONE) {
            self.estimates.remove(name);
        }
    }

    /// Sets the user's settings; connections under way go on.
    pub fn allow(&mut self, settings: Settings) {
        self.schedule_by(settings.schedule);
        if settings.affinity != self.settings.affinity {
            self.affinity = Affinity::new(settings.affinity);
        }
        self.settings = settings;
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A bond's link by this interface reached another host than the member, which answers by other interfaces.
    pub fn mark_impostor(&mut self, interface: u32, now: Time) {
        if self.doubts.reason(interface, now) != Some(DoubtReason::Impostor) {
            self.doubts.exclude(interface, DoubtReason::Impostor, now);
        }
    }

    /// A bond's link by this interface reached the member itself.
    pub fn mark_genuine(&mut self, interface: u32, now: Time) {
        self.doubts.record_proof(interface, None, now);
    }

    /// The kernel's index of an interface that is usable now.
    pub fn index_of(&self, name: &str) -> Option<u32> {
        self.present.iter().find(|p| p.name == name).map(|p| p.index)
    }

    /// The name of the interface with this index, if it is usable now.
    pub fn name(&self, index: u32) -> Option<String> {
        self.present.iter().find(|p| p.index == index).map(|p| p.name.clone())
    }
}

/// The assignment of connections, and the decisions that are remembered.
impl Table {
    /// Assigns an interface to a connection of this application to this destination.
    pub fn assign(
        &mut self,
        application: Application,
        destination: &str,
        now: Time,
        today: WallTime,
    ) -> Assignment {
        if self.present.len() < 2 && self.settings.is_plain() {
            return Assignment::Free;
        }
        let used = self.affinity.interfaces(destination, now);
        if used.first() == Some(&UNBOUND) && self.settings.is_plain() {
            return Assignment::Free;
        }
        let (usable, last) = self.usable(&application, destination, now, today);
        let candidates = self.candidates(&usable, now);
        let expected = self.kept.applications.expected(&application);
        let kept = self.affine_candidates(used, &application, destination, &candidates);
        let among = kept.as_deref().unwrap_or(&candidates);
        let pick = self.scheduler.pick(among, expected, application.nature());
        let why = |pick: &Pick| match &kept {
            Some(kept) => kept_reason(kept.len(), pick),
            None => self.reason(pick, (&application, destination), candidates.len(), (now, today)),
        };
        let picked = pick.map(|pick| (pick.interface, why(&pick)));
        let Some((first, why)) = picked else { return Assignment::Nowhere };
        let others = candidates.iter().map(|c| c.interface).filter(|index| *index != first);
        let mut order: Vec<(u32, bool)> =
            std::iter::once(first).chain(others).map(|index| (index, false)).collect();
        order.extend(last.iter().map(|at| (self.present[*at].index, true)));
        self.decide(&application, destination, first, why, now);
        let id = self.traffic.begin(application, destination, first, expected, now);
        Assignment::By(id, order)
    }

    /// The candidates that a connection keeps to, among those that its destination used already.
    fn affine_candidates(
        &self,
        used: Vec<u32>,
        application: &Application,
        destination: &str,
        candidates: &[Candidate],
    ) -> Option<Vec<Candidate>> {
        let expected = self.kept.applications.expected(application);
        let used = self.with_open(used, application, destination);
        keep_affinity(candidates, &used, expected, self.scheduler.method())
    }

    /// Whether a connection would leave the interfaces that its destination used, although they are there, because of
    /// other traffic by them. That traffic may be a connection that the program has closed already: the order in which
    /// both are seen is chance.
    pub fn would_leave(
        &self,
        application: &Application,
        destination: &str,
        now: Time,
        today: WallTime,
    ) -> bool {
        let used = self.affinity.interfaces(destination, now);
        let (usable, _) = self.usable(application, destination, now, today);
        let candidates = self.candidates(&usable, now);
        let is_there = candidates.iter().any(|candidate| used.contains(&candidate.interface));
        is_there && self.affine_candidates(used, application, destination, &candidates).is_none()
    }

    /// Whether there is anything to decide for a connection to `to`.
    pub fn has_choice(&self, to: &Destination) -> bool {
        let is_loopback = matches!(&to.host, Host::Ip(ip) if ip.to_canonical().is_loopback());
        let is_near = is_loopback || (to.host.is_near() && !self.settings.near);
        !is_near && (self.present.len() > 1 || !self.settings.is_plain())
    }

    /// The interface that legs to relays are bound to, given this order. `None`: the kernel decides, so that bonds may
    /// be used, as long as its own choice is among the interfaces meant to be used, and has no cap or limit.
    pub fn relays_leave_by(&self, order: &[(u32, bool)]) -> Option<u32> {
        let own = self.present.first()?;
        let policy = self.settings.policy(&own.name);
        let is_free = policy.cap.is_none() && policy.rate_limit.is_none();
        let is_meant = order.contains(&(own.index, false));
        if is_free && is_meant { None } else { order.first().map(|(index, _)| *index) }
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().rev()
    }

    fn decide(&mut self, application: &Application, to: &str, index: u32, why: String, at: Time) {
        let Some(interface) = self.name(index) else { return };
        let (application, destination) = (application.clone(), to.to_owned());
        self.remember(Decision { application, destination, interface, why, at });
    }

    fn remember(&mut self, decision: Decision) {
        if self.decisions.len() >= MOST_DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}

/// Which interfaces may be used now.
impl Table {
    /// The interfaces of a bond's links, by index, given that it reaches nothing by those in `fails`.
    pub fn link_interfaces(&self, fails: &BTreeSet<u32>, now: Time, today: WallTime) -> Vec<u32> {
        let of = |present: &UsableInterface| {
            let serves = self.doubts.reason(present.index, now).is_none();
            LinkInterface {
                tier: self.tier_of_links(&present.name),
                is_usable: serves && self.has_left_for_link(&present.name, today),
                fails: fails.contains(&present.index),
            }
        };
        let all: Vec<_> = self.present.iter().map(of).collect();
        link_interfaces(&all).into_iter().map(|at| self.present[at].index).collect()
    }

    /// The interfaces for channels without a bond, by index: the same as for links; if all of those are in doubt, they
    /// are used all the same.
    pub fn plain_interfaces(&self, now: Time, today: WallTime) -> Vec<u32> {
        let meant = self.link_interfaces(&BTreeSet::new(), now, today);
        if !meant.is_empty() {
            return meant;
        }
        let may = |present: &&UsableInterface| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).map(|present| present.index).collect()
    }

    /// All usable interfaces, by index.
    pub fn indices(&self) -> BTreeSet<u32> {
        self.present.iter().map(|present| present.index).collect()
    }

    /// How many interfaces links may use now, whatever fails.
    pub fn count_link_interfaces(&self, today: WallTime) -> usize {
        let may = |present: &&UsableInterface| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).count()
    }

    /// Positions in `present` that this connection may use, and those that remain if none of them works: interfaces in
    /// doubt, and lower tiers.
    fn usable(
        &self,
        application: &Application,
        to: &str,
        now: Time,
        today: WallTime,
    ) -> (Vec<usize>, Vec<usize>) {
        let names: Vec<&str> = self.present.iter().map(|p| p.name.as_str()).collect();
        let mut ruled = self.settings.rules.filter(application, to, &names);
        let policy = |at: usize| self.settings.policy(names[at]);
        ruled.retain(|at| policy(*at).tier != Tier::Never && self.has_left(names[*at], today));
        ruled.sort_by_key(|at| policy(*at).tier);
        let serves = |at: usize| self.doubts.reason(self.present[at].index, now).is_none();
        let primary = |at: &&usize| policy(**at).tier == Tier::Primary && serves(**at);
        let is_full = ruled.iter().filter(primary).all(|at| self.is_full(*at));
        let of = |serves: &dyn Fn(usize) -> bool| {
            let policies: Vec<_> = ruled.iter().map(|at| (policy(*at), serves(*at))).collect();
            allowed_interfaces(&policies, is_full)
                .into_iter()
                .map(|at| ruled[at])
                .collect::<Vec<_>>()
        };
        let mut first = of(&serves);
        if first.is_empty() {
            // If nothing else is left, interfaces in doubt are tried all the same.
            first = of(&|_| true);
        }
        let last = ruled.iter().copied().filter(|at| !first.contains(at)).collect();
        (first, last)
    }

    fn is_full(&self, at: usize) -> bool {
        let candidate = self.candidate(at);
        let room = candidate.rate.bytes_in(FULL).as_bytes();
        room > 0 && candidate.load > room
    }
}

/// The reasons of decisions, in words.
impl Table {
    /// Whether a connection to `to` is left to the kernel only because its destination is near.
    pub fn is_left_as_near(&self, to: &Destination) -> bool {
        let is_loopback = matches!(&to.host, Host::Ip(ip) if ip.to_canonical().is_loopback());
        !is_loopback
            && (self.present.len() > 1 || !self.settings.is_plain())
            && !self.has_choice(to)
    }

    /// Remembers such a connection for the report; successive ones to the same destination count as one.
    pub fn record_near(&mut self, application: Application, destination: &str, at: Time) {
        let (interface, why) = (KERNELS.to_owned(), NEAR.to_owned());
        let destination = destination.to_owned();
        let new = Decision { application, destination, interface, why, at };
        match self.decisions.back_mut() {
            Some(last) if *last == (Decision { at: last.at, ..new.clone() }) => last.at = at,
            _ => self.remember(new),
        }
    }

    /// The interfaces that a destination used, if it is to keep to some, and those by which this very application has
    /// connections open to it: a destination that accepts those accepts the next one.
    fn with_open(&self, mut used: Vec<u32>, by: &Application, to: &str) -> Vec<u32> {
        let own = |open: &&OpenConnection| {
            open.is_established && open.application == *by && open.destination == to
        };
        if !used.is_empty() {
            used.extend(self.traffic.open().filter(own).map(|open| open.interface));
        }
        used
    }

    /// The reason of a decision: the rule that left out interfaces; if a single one was left, what the others lack;
    /// otherwise the scheduler's reason.
    fn reason(
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

    fn left_out(&self, one: &UsableInterface, now: Time, today: WallTime) -> Option<&'static str> {
        let tier = self.settings.policy(&one.name).tier;
        match self.doubts.reason(one.index, now) {
            _ if tier == Tier::Never => Some("its tier is never"),
            _ if !self.has_left(&one.name, today) => Some("its cap is used up"),
            Some(why) => Some(why.text()),
            None if tier == Tier::Secondary => Some("its tier is secondary"),
            None if tier == Tier::Backup => Some("its tier is backup"),
            None => None,
        }
    }
}

/// The course of assigned connections.
impl Table {
    /// The connection is established by this interface, with this round trip.
    pub fn record_established(
        &mut self,
        id: u64,
        interface: u32,
        rtt: Option<Duration>,
        now: Time,
    ) {
        let Some(open) = self.traffic.get_mut(id) else { return };
        let assigned = std::mem::replace(&mut open.interface, interface);
        let missed = assigned != interface;
        (open.is_established, open.active) = (true, now);
        let is_routeless = open.is_routeless;
        let (application, destination) = (open.application.clone(), open.destination.clone());
        let server = open.server();
        self.affinity.record_connection(&destination, interface, now);
        self.doubts.record_connected(interface);
        if let (Some(rtt), Some(name)) = (rtt, self.name(interface)) {
            self.estimates.entry(name).or_default().record_round_trip(rtt, now);
        }
        if missed {
            let why = match is_routeless {
                true => "the interfaces tried before it have no route there",
                false => {
                    self.doubts.record_unreached(assigned, server, now);
                    "no answer over the interfaces tried before it"
                }
            };
            let why = why.to_owned();
            self.decide(&application, &destination, interface, why, now);
        }
    }

    /// No route to the connection's destination leaves by this interface, which is not the interface's fault.
    pub fn record_no_route(&mut self, id: u64, interface: u32) {
        if let Some(open) = self.traffic.get_mut(id) {
            open.is_routeless |= open.interface == interface;
        }
    }

    /// Records that the connection's intended destination has answered.
    pub fn record_proof(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.get(id) {
            self.doubts.record_proof(open.interface, Some(open.server()), now);
        }
    }

    /// Another host answered than the intended destination, or the server is at fault. The destination need not keep to
    /// its interface any more. The interface is left out for a while once another destination or another interface
    /// shows whose fault it is.
    pub fn record_impostor(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.get(id) {
            self.affinity.release(&open.destination, open.interface);
            self.doubts.record_impostor(open.interface, open.server(), now);
        }
    }

    /// The connection waits for its program's next request, or has one.
    pub fn set_resting(&mut self, id: u64, rests: bool) {
        if let Some(open) = self.traffic.get_mut(id) {
            open.rests = rests;
        }
    }

    /// The connection has moved this many bytes by now, to and from this host. Returns how many more than before.
    pub fn moved(&mut self, id: u64, down: u64, up: u64, now: Time) -> u64 {
        self.traffic.moved(id, down, up, now)
    }

    /// The connection is established by the kernel's own choice only, and by none of the interfaces. Later ones to this
    /// destination are left to the kernel at once.
    pub fn record_unbound(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.end(id) {
            self.affinity.record_connection(&open.destination, UNBOUND, now);
            // The decision had no effect.
            let of = |d: &Decision| {
                d.destination == open.destination && d.application == open.application
            };
            if let Some(at) = self.decisions.iter().rposition(of) {
                self.decisions.remove(at);
            }
        }
    }

    /// The name of the interface that a connection uses.
    pub fn interface_of(&self, id: u64) -> Option<String> {
        self.traffic.get(id).and_then(|open| self.name(open.interface))
    }

    /// TCP's counts of the connection: its round trip; and the bytes that it sent again and all that it sent, since
    /// they were last given.
    pub fn record_tcp_info(
        &mut self,
        id: u64,
        rtt: Duration,
        resent: Option<(u64, u64)>,
        now: Time,
    ) {
        if let Some(name) = self.interface_of(id) {
            self.update_estimate(name, rtt, resent, now);
        }
    }

    /// The connection has ended, or failed.
    pub fn ended(&mut self, id: u64) {
        if let Some(open) = self.traffic.end(id).filter(|open| open.is_established) {
            let bytes = open.moved.0.saturating_add(open.moved.1);
            self.kept.applications.record_connection(&open.application, bytes);
            self.addition.ended(&open.application, bytes);
        }
    }
}

/// The traffic of interfaces, second by second, and the rates that are believed.
impl Table {
    /// This many bytes more came and went by an interface, over connections that belong to no program.
    pub fn record_link_bytes(&mut self, name: &str, more: (u64, u64), now: Time) {
        let Some(index) = self.index_of(name) else { return };
        self.traffic.record_bytes(index, more, now);
    }

    /// TCP's counts of one of those, as in [`Self::record_tcp_info`].
    pub fn record_link_tcp_info(
        &mut self,
        name: &str,
        rtt: Duration,
        resent: Option<(u64, u64)>,
        now: Time,
    ) {
        if self.present.iter().any(|present| present.name == name) {
            self.update_estimate(name.to_owned(), rtt, resent, now);
        }
    }

    fn update_estimate(
        &mut self,
        name: String,
        rtt: Duration,
        resent: Option<(u64, u64)>,
        now: Time,
    ) {
        let estimate = self.estimates.entry(name).or_default();
        if !rtt.is_zero() {
            estimate.record_round_trip(rtt, now);
        }
        if let Some(resent) = resent {
            estimate.record_retransmissions(resent, now);
        }
    }

    /// A second or so has passed: updates the estimates.
    pub fn tick(&mut self, now: Time, today: WallTime) {
        let name = |index| self.present.iter().find(|p| p.index == index).map(|p| p.name.clone());
        let (took, brought) = self.traffic.tick(now, name);
        for SecondTraffic { interface, bytes, load } in brought {
            let Some(name) = self.name(interface) else { continue };
            let estimate = self.estimates.entry(name.clone()).or_default();
            estimate.record_traffic(bytes, load, took, now);
            self.addition.record_estimate(&name, estimate, (now, today));
        }
    }

    /// The candidates at these positions, with the believed rate of each.
    fn candidates(&self, places: &[usize], now: Time) -> Vec<Candidate> {
        let candidates = places
            .iter()
            .map(|at| Candidate { rate: self.believed(*at, places, now), ..self.candidate(*at) });
        candidates.collect()
    }

    fn candidate(&self, at: usize) -> Candidate {
        let present = &self.present[at];
        let seen = self.estimates.get(&present.name);
        Candidate {
            interface: present.index,
            rate: seen.map(|seen| seen.down()).unwrap_or_default(),
            load: self.traffic.load(present.index),
            rtt: seen.map(|seen| seen.rtt()).unwrap_or_default(),
        }
    }

    fn believed(&self, at: usize, places: &[usize], now: Time) -> Rate {
        let estimate = |at: usize| self.estimates.get(&self.present[at].name);
        let Some(own) = estimate(at) else { return Rate::ZERO };
        let others: Vec<_> =
            places.iter().filter(|other| **other != at).filter_map(|at| estimate(*at)).collect();
        let known: Vec<u64> =
            others.iter().filter(|of| of.is_known()).map(|of| of.down().as_bps()).collect();
        let others = match u64::try_from(known.len()) {
            Ok(count @ 1..) => Rate::from_bps(known.iter().sum::<u64>() / count),
            _ => others.iter().map(|of| of.down()).max().unwrap_or_default(),
        };
        own.believed(others, now)
    }
}

/// What is left of interfaces' caps: by the allotments of this process, and by the file.
impl Table {
    /// Whether an interface may move more.
    pub fn permission(&self, name: &str) -> Permission {
        match self.settings.policy(name).cap {
            Some(cap) => self.caps.permission(name, self.ends_by(name).saturating_mul(ahead(cap))),
            None => Permission::Granted,
        }
    }

    /// Why an interface with a cap may move nothing: its bytes cannot be counted.
    pub fn fault(&self, name: &str) -> Option<&str> {
        self.settings.policy(name).cap.and_then(|_| self.caps.fault(name))
    }

    /// A connection waits until the interface may move more.
    pub fn await_more(&mut self, name: &str) {
        self.caps.await_more(name);
    }

    /// What a server may send ahead on a connection by this interface, bytes, if that is bounded.
    pub fn ahead(&self, index: u32) -> Option<u64> {
        self.name(index).and_then(|name| self.ahead_by(&name))
    }

    /// As [`Self::ahead`], by the name of the interface.
    pub fn ahead_by(&self, name: &str) -> Option<u64> {
        self.settings.policy(name).cap.map(ahead)
    }

    /// An interface that needs another allotment of its cap now, with the allotment to ask for.
    pub fn wants_allotment(&mut self, today: WallTime) -> Option<(String, AllotmentRequest)> {
        let names: Vec<String> = self.present.iter().map(|p| p.name.clone()).collect();
        names.into_iter().find_map(|name| {
            let cap = self.settings.policy(&name).cap?;
            // Nothing is taken for an interface without connections.
            let connections = self.ends_by(&name);
            let reserve = connections.saturating_mul(ahead(cap));
            let has_some = self.caps.permission(&name, reserve) == Permission::Granted;
            let is_used = connections > 0 || self.caps.is_awaited(&name) || has_some;
            let size = is_used.then(|| self.caps.wants(&name, allotment(cap), reserve))??;
            let period = Period::at(today, cap.reset_day);
            Some((name, AllotmentRequest { cap: cap.bytes, period, size }))
        })
    }

    /// The result of asking: what is kept now, and the bytes granted; or why the file could not be asked.
    pub fn allotted(
        &mut self,
        name: &str,
        of: &AllotmentRequest,
        got: Result<(StoredTable, u64), String>,
    ) {
        match got {
            Ok((kept, bytes)) => {
                self.renew(kept);
                self.caps.granted(name, bytes, of.period.today);
            }
            Err(why) => self.caps.unanswered(name, why),
        }
    }

    /// As [`Self::allotted`], if nothing is kept in a file.
    pub fn allot_here(&mut self, name: &str, of: &AllotmentRequest) {
        let bytes = self.kept.take_allotment(name, of);
        self.caps.granted(name, bytes, of.period.today);
    }

    /// Asks again where nothing was left: a month may have begun.
    pub fn ask_again(&mut self) {
        self.caps.ask_again();
    }

    /// Gives back the rest of allotments, and charges what was moved beyond them. Nothing is moved after this.
    pub fn give_back_allotments(&mut self, today: WallTime) {
        for left in self.caps.take() {
            self.settle(left, today);
        }
    }

    /// Gives back the allotments of interfaces without connections, so that other processes may use them.
    pub fn give_back_idle_allotments(&mut self, today: WallTime) {
        let names: Vec<String> = self.present.iter().map(|p| p.name.clone()).collect();
        for name in names {
            let left = if self.ends_by(&name) == 0 { self.caps.take_idle(&name) } else { None };
            if let Some(left) = left {
                self.settle(left, today);
            }
        }
    }

    fn settle(&mut self, AllotmentRest { name, bytes, day }: AllotmentRest, today: WallTime) {
        let all = bytes.unsigned_abs();
        if bytes > 0 {
            self.kept.take_back(&name, all, day);
            self.addition.return_bytes(&name, all, day);
        } else {
            let period = self.period(&name, today);
            self.kept.spend(&name, all, period);
            self.addition.spent(&name, all, period);
        }
    }

    /// The month that an interface's counts are for.
    fn period(&self, name: &str, today: WallTime) -> Period {
        Period::at(today, self.settings.reset_day(name))
    }

    /// A bond's link, or another connection of this process, uses this interface from now on.
    pub fn link_began(&mut self, name: &str) {
        self.traffic.link_began(name);
    }

    /// A connection that [`Self::link_began`] counted has ended.
    pub fn link_ended(&mut self, name: &str) {
        self.traffic.link_ended(name);
    }

    fn ends_by(&self, name: &str) -> u64 {
        self.traffic.ends_by(self.index_of(name).unwrap_or(UNBOUND), name)
    }

    /// Whether more is left of the cap than one more connection could have under way.
    fn has_left(&self, name: &str, today: WallTime) -> bool {
        self.has_left_for(self.ends_by(name).saturating_add(1), name, today)
    }

    /// Whether more is left of the cap than a bond's link could have under way, which may be counted already.
    pub fn has_left_for_link(&self, name: &str, today: WallTime) -> bool {
        let index = self.index_of(name).unwrap_or(UNBOUND);
        self.has_left_for(self.traffic.ends_with_link(index, name), name, today)
    }

    fn has_left_for(&self, connections: u64, name: &str, today: WallTime) -> bool {
        let policy = self.settings.policy(name);
        let Some(cap) = policy.cap else { return true };
        let reserve = ahead(cap).saturating_mul(connections);
        let has_left = policy.left(self.used(name, today)).is_none_or(|left| left > reserve);
        has_left && !matches!(self.caps.permission(name, 0), Permission::UsedUp | Permission::Fault)
    }

    /// Bytes moved in this period, without those that are allotted and not moved.
    fn used(&self, name: &str, today: WallTime) -> u64 {
        let used = self.kept.used(name, self.period(name, today));
        used.saturating_sub(self.caps.balance(name))
    }
}

/// What is kept: bytes by interface, and what the connections of applications move.
impl Table {
    /// This many bytes more, including headers, went by an interface, over any connection of this process.
    pub fn carried(&mut self, name: &str, bytes: u64, today: WallTime) {
        if self.settings.policy(name).cap.is_some() {
            return self.caps.pay(name, bytes);
        }
        let period = self.period(name, today);
        self.kept.spend(name, bytes, period);
        self.addition.spent(name, bytes, period);
    }

    /// Takes back an addition that could not be saved.
    pub fn give_back(&mut self, mut addition: Addition) {
        addition.append(std::mem::take(&mut self.addition));
        self.addition = addition;
    }

    /// Takes what came since the last call, to be saved.
    pub fn take_addition(&mut self) -> Addition {
        std::mem::take(&mut self.addition)
    }

    /// Sets what is kept now by all processes of the user; what came meanwhile is added to it.
    pub fn renew(&mut self, mut kept: StoredTable) {
        self.addition.apply_to(&mut kept);
        self.kept = kept;
    }

    /// The part of the table that is stored across restarts.
    pub fn kept(&self) -> &StoredTable {
        &self.kept
    }

    /// C_demand of each application, the last used first.
    pub fn applications(&self) -> Vec<(&Application, Demand)> {
        self.kept.applications.all()
    }
}

/// Deadlines that are met at the least cost, by bonds.
impl Table {
    /// Everything under way must arrive by `until`. Interfaces with a price wait as long as the others can meet that
    /// alone; while they wait, they are used as backups, if none of the others answers.
    pub fn set_deadline(&mut self, until: Time, flow: Direction, today: WallTime) {
        let names = || self.present.iter().map(|present| &present.name);
        let price = |name: &str| self.settings.policy(name).price;
        let may = |name: &&String| {
            self.settings.policy(name).tier <= Tier::Secondary
                && self.has_left_for_link(name, today)
        };
        let has_other = names().filter(may).any(|name| price(name) <= 0.0);
        let offer = |name: &String| {
            let seen = self.estimates.get(name);
            let rate =
                seen.map(|seen| if flow == Direction::Down { seen.down() } else { seen.up() });
            let cap = self.settings.policy(name).cap;
            let left = cap.map(|cap| cap.bytes.saturating_sub(self.used(name, today)));
            let offer = Offer { rate: rate.unwrap_or_default(), price: price(name), left };
            (name.clone(), offer)
        };
        let dear = names().filter(|name| has_other && price(name) > 0.0).map(offer).collect();
        self.thrift = Some(PaidReserve::new(dear, until));
    }

    /// This many bytes have arrived, and this many are missing. Returns whether more interfaces are to be used from now
    /// on.
    pub fn record_progress(&mut self, done: u64, missing: u64, now: Time) -> bool {
        self.thrift.as_mut().is_some_and(|thrift| thrift.record_progress(done, missing, now))
    }

    /// The tier of an interface for links: that of its policy or, while it waits, at least backup.
    fn tier_of_links(&self, name: &str) -> Tier {
        let tier = self.settings.policy(name).tier;
        let waits = self.thrift.as_ref().is_some_and(|thrift| thrift.holds(name));
        if waits { tier.max(Tier::Backup) } else { tier }
    }
}

/// Interfaces of which nothing is known, and the results of probes.
impl Table {
    /// An interface that may be probed, was not probed for a while, and of which no traffic told anything meanwhile.
    pub fn interface_to_probe(&self, now: Time, today: WallTime) -> Option<UsableInterface> {
        let is_old = |age: Option<Duration>| age.is_none_or(|age| age >= PROBED_EVERY);
        let is_unknown = |present: &&UsableInterface| {
            let heard = self.estimates.get(&present.name).and_then(|of| of.age(now));
            let probed = self.probes.0.get(&present.name).map(|told| now.since(told.at));
            self.may_probe(present, today) && is_old(heard) && is_old(probed)
        };
        self.present.iter().find(is_unknown).cloned()
    }

    fn may_probe(&self, present: &UsableInterface, today: WallTime) -> bool {
        let policy = self.settings.policy(&present.name);
        let may = policy.tier != Tier::Never && policy.may_spend();
        may && self.has_left(&present.name, today)
    }

    /// Takes the cost of a probe from this day's budget.
    pub fn pay_for_probe(&mut self, today: u32, cost_of_most: (u64, u64)) -> bool {
        self.kept.pay_for_probe(today, cost_of_most)
    }

    /// A probe of the interface begins.
    pub fn begin_probe(&mut self, name: &str, now: Time) {
        let present: Vec<_> = self.present.iter().map(|present| &present.name).collect();
        self.probes.0.retain(|name, _| present.contains(&name));
        self.probes.0.insert(name.to_owned(), ProbeOutcome { at: now, failed: None });
    }

    /// Whom to ask after a failed probe to know whose fault it is: another interface that may be probed, with the same
    /// server; if there is none, the same interface with another of the `servers`.
    pub fn witness(
        &self,
        of: &UsableInterface,
        server: &ProbeServer,
        servers: &[ProbeServer],
        today: WallTime,
    ) -> Option<(UsableInterface, ProbeServer)> {
        let other = self.present.iter().find(|other| *other != of && self.may_probe(other, today));
        let by_other = || servers.iter().find(|other| !other.is_on_host_of(server));
        match other {
            Some(other) => Some((other.clone(), server.clone())),
            None => by_other().map(|other| (of.clone(), other.clone())),
        }
    }

    /// A probe of the interface failed, and the server is not at fault: the interface is left out for now.
    pub fn exclude_unreached(&mut self, of: &UsableInterface, now: Time) {
        self.doubts.exclude(of.index, DoubtReason::Unreached, now);
    }

    /// The result of a probe, or why it failed.
    pub fn record_probe(
        &mut self,
        of: &UsableInterface,
        told: Result<Probed, String>,
        (now, today): (Time, WallTime),
    ) {
        if let Ok(probed) = &told {
            let took = probed.took.max(Duration::from_millis(1));
            let estimate = self.estimates.entry(of.name.clone()).or_default();
            estimate.record_probe(probed.bytes, took, now);
            probed.rtt.into_iter().for_each(|rtt| estimate.record_round_trip(rtt, now));
            self.addition.record_estimate(&of.name, estimate, (now, today));
            self.doubts.record_connected(of.index);
        }
        self.probes.0.insert(of.name.clone(), ProbeOutcome { at: now, failed: told.err() });
    }

    /// Why the last probe of the interface failed.
    fn probe_failure(&self, name: &str) -> Option<String> {
        self.probes.0.get(name)?.failed.clone()
    }
}

/// The status of the interfaces.
impl Table {
    /// The status of each usable interface.
    pub fn show(&self, today: WallTime) -> Vec<InterfaceStatus> {
        let shown = |present: &UsableInterface| {
            let policy = self.settings.policy(&present.name);
            InterfaceStatus {
                index: present.index,
                name: present.name.clone(),
                tier: policy.tier,
                estimate: self.estimates.get(&present.name).cloned().unwrap_or_default(),
                used: self.used(&present.name, today),
                cap: policy.cap.map(|cap| cap.bytes),
                is_used_up: !self.has_left(&present.name, today),
                doubted: self.doubts.reason(present.index, self.traffic.ticked()),
                probe_failure: self.probe_failure(&present.name),
                connections: self.traffic.by(present.index).count(),
                load: self.traffic.load(present.index),
            }
        };
        self.present.iter().map(shown).collect()
    }
}

/// The reason of a connection that keeps to this many interfaces of its destination.
fn kept_reason(interfaces: usize, pick: &Pick) -> String {
    match interfaces {
        1 => "this destination's connections keep to it".to_owned(),
        _ => format!(
            "among the interfaces that this destination's connections keep to: {}",
            pick.why
        ),
    }
}

/// The direction of the bytes that a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this host.
    Down,
    Up,
}

/// The last probe of each interface, by name.
#[derive(Clone, Debug, Default)]
pub struct ProbeLog(BTreeMap<String, ProbeOutcome>);

#[derive(Clone, Debug)]
struct ProbeOutcome {
    at: Time,
    failed: Option<String>,
}

/// The status of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceStatus {
    /// The kernel's index.
    pub index: u32,
    pub name: String,
    /// When it is used.
    pub tier: Tier,
    /// Its estimated rates, round trip and loss.
    pub estimate: Estimate,
    /// Bytes both ways in this period of its cap, or of the month.
    pub used: u64,
    /// Its cap, bytes.
    pub cap: Option<u64>,
    /// Whether its cap leaves nothing for another connection until the period ends.
    pub is_used_up: bool,
    /// Why it is left out for a while.
    pub doubted: Option<DoubtReason>,
    /// Why its last probe failed.
    pub probe_failure: Option<String>,
    /// Connections of programs by it.
    pub connections: usize,
    /// Bytes that traffic by it is still expected to move.
    pub load: u64,
}
