//! The table of interfaces: which of them gets a connection. No I/O; the time is an argument.

#[cfg(test)]
mod tests;

use super::{
    caps::{Caps, Left, May, ahead, allotment},
    doubt::{Doubts, Why},
    estimate::Estimate,
    kept::{Addition, Allotting, Kept},
    probe::{ProbeServer, Probed},
    settings::Settings,
    traffic::{Brought, Open, Traffic},
    uplinks::PROBED_EVERY,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use thalweg_bond::{
    Affinity, Application, Candidate, ConnectionMethod, ConnectionScheduler, Demand, Linkable,
    Offer, Period, Pick, Thrift, Tier, allowed, kept_to, linked,
};
use thalweg_units::{Rate, Time, WallTime};
use thalweg_wire::{Destination, Host};

/// Decisions that are remembered for who asks why. Of more the oldest is forgotten.
const MOST_DECISIONS: usize = 64;

/// Estimates of interfaces that are gone: a dock, some networks, tethered telephones. Of more,
/// those heard of longest ago are forgotten.
const MOST_GONE: usize = 64;

/// No interface's index: destinations that only the kernel's own choice leads to.
const UNBOUND: u32 = 0;

/// The primary interfaces are full when what is under way on each takes longer than this.
const FULL: Duration = Duration::from_secs(10);

/// The interface of what the kernel sends as it likes.
const KERNELS: &str = "-";

/// Why the kernel does so though there is a choice.
const NEAR: &str = "a near destination, left to the kernel; `near = true` changes that";

/// An interface that is usable now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// The kernel's index.
    pub index: u32,
    /// Its name: what settings and kept counts go by.
    pub name: String,
}

/// Where a connection went, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who asked.
    pub application: Application,
    /// For what.
    pub destination: String,
    /// By which interface.
    pub interface: String,
    /// The reason.
    pub why: String,
    /// When.
    pub at: Time,
}

/// Where a connection is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// Wherever the kernel sends it: there is no choice.
    Free,
    /// By these interfaces, the first at once and each later one if those before fail; known
    /// by this number from now on. `true` with those that are not meant to be used now: lower tiers,
    /// and what is in doubt.
    By(u64, Vec<(u32, bool)>),
    /// By none: the user's settings leave none.
    Nowhere,
}

/// The interfaces, what is under way by them, and what is remembered of applications.
#[derive(Debug)]
pub struct Table {
    settings: Settings,
    scheduler: ConnectionScheduler,
    affinity: Affinity,
    kept: Kept,
    present: Vec<Present>,
    estimates: BTreeMap<String, Estimate>,
    traffic: Traffic,
    doubts: Doubts,
    probes: Probes,
    addition: Addition,
    caps: Caps,
    /// Where a time is to be met at the least cost: what waits.
    thrift: Option<Thrift<String>>,
    decisions: VecDeque<Decision>,
}

impl Table {
    /// By these settings, with what was kept.
    pub fn new(settings: Settings, kept: Kept, now: Time) -> Self {
        Self {
            scheduler: ConnectionScheduler::new(settings.schedule),
            affinity: Affinity::new(settings.affinity),
            settings,
            kept,
            present: Vec::new(),
            estimates: BTreeMap::new(),
            traffic: Traffic::new(now),
            doubts: Doubts::default(),
            probes: Probes::default(),
            addition: Addition::default(),
            caps: Caps::default(),
            thrift: None,
            decisions: VecDeque::new(),
        }
    }

    /// Assigns by another method from now on.
    pub fn schedule_by(&mut self, method: ConnectionMethod) {
        if self.scheduler.method() != method {
            self.scheduler = ConnectionScheduler::new(method);
        }
    }

    /// These are usable now, in the system's order of preference; what went by others is free
    /// to go elsewhere.
    pub fn follow(&mut self, present: Vec<Present>, now: Time, today: WallTime) {
        for gone in self.present.iter().filter(|old| !present.contains(old)) {
            self.affinity.gone(gone.index);
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

    /// Names of interfaces come and go: of those that are gone the estimates heard of last are kept.
    fn forget_old_estimates(&mut self, now: Time) {
        let is_gone = |name: &&String| self.present.iter().all(|present| present.name != **name);
        let gone: Vec<String> = self.estimates.keys().filter(is_gone).cloned().collect();
        let age = |name: &String| self.estimates[name].heard(now).unwrap_or(Duration::MAX);
        let mut gone: Vec<_> = gone.into_iter().map(|name| (age(&name), name)).collect();
        gone.sort();
        for (_, name) in gone.iter().skip(MOST_GONE) {
            self.estimates.remove(name);
        }
    }

    /// The user's settings from now on; connections under way go on.
    pub fn allow(&mut self, settings: Settings) {
        self.schedule_by(settings.schedule);
        if settings.affinity != self.settings.affinity {
            self.affinity = Affinity::new(settings.affinity);
        }
        self.settings = settings;
    }

    /// The user's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A bond's link by it reached another than the member, who is reached by other interfaces.
    pub fn is_impostor(&mut self, interface: u32, now: Time) {
        if self.doubts.of(interface, now) != Some(Why::Impostor) {
            self.doubts.believe(interface, Why::Impostor, now);
        }
    }

    /// A bond's link by it reached the very member.
    pub fn is_genuine(&mut self, interface: u32, now: Time) {
        self.doubts.proven(interface, None, now);
    }

    /// The kernel's index of an interface that is usable now.
    pub fn index_of(&self, name: &str) -> Option<u32> {
        self.present.iter().find(|p| p.name == name).map(|p| p.index)
    }

    /// What the interface with this index is called, if it is there.
    pub fn name(&self, index: u32) -> Option<String> {
        self.present.iter().find(|p| p.index == index).map(|p| p.name.clone())
    }
}

/// Where a connection is to go, and what is remembered of that.
impl Table {
    /// Where a connection of this application to this destination is to go.
    pub fn assign(
        &mut self,
        application: Application,
        destination: &str,
        now: Time,
        today: WallTime,
    ) -> Assigned {
        if self.present.len() < 2 && self.settings.is_plain() {
            return Assigned::Free;
        }
        let used = self.affinity.of(destination, now);
        if used.first() == Some(&UNBOUND) && self.settings.is_plain() {
            return Assigned::Free;
        }
        let (usable, last) = self.usable(&application, destination, now, today);
        let candidates = self.candidates(&usable, now);
        let expected = self.kept.applications.expected(&application);
        let kept = self.faithful(used, &application, destination, &candidates);
        let among = kept.as_deref().unwrap_or(&candidates);
        let pick = self.scheduler.pick(among, expected, application.nature());
        let why = |pick: &Pick| match &kept {
            Some(kept) => keeping(kept.len(), pick),
            None => self.reason(pick, (&application, destination), candidates.len(), (now, today)),
        };
        let picked = pick.map(|pick| (pick.interface, why(&pick)));
        let Some((first, why)) = picked else { return Assigned::Nowhere };
        let others = candidates.iter().map(|c| c.interface).filter(|index| *index != first);
        let mut order: Vec<(u32, bool)> =
            std::iter::once(first).chain(others).map(|index| (index, false)).collect();
        order.extend(last.iter().map(|at| (self.present[*at].index, true)));
        self.decide(&application, destination, first, why, now);
        let id = self.traffic.begin(application, destination, first, expected, now);
        Assigned::By(id, order)
    }

    /// Those of the candidates that a connection keeps to, of what its destination used already.
    fn faithful(
        &self,
        used: Vec<u32>,
        application: &Application,
        destination: &str,
        candidates: &[Candidate],
    ) -> Option<Vec<Candidate>> {
        let expected = self.kept.applications.expected(application);
        let used = self.with_open(used, application, destination);
        kept_to(candidates, &used, expected, self.scheduler.method())
    }

    /// Whether a connection would not keep to what its destination used, although that is there, since something else goes
    /// by it. It may be one that the program has closed already: which of the two is seen first is chance.
    pub fn lets_go(
        &self,
        application: &Application,
        destination: &str,
        now: Time,
        today: WallTime,
    ) -> bool {
        let used = self.affinity.of(destination, now);
        let (usable, _) = self.usable(application, destination, now, today);
        let candidates = self.candidates(&usable, now);
        let is_there = candidates.iter().any(|candidate| used.contains(&candidate.interface));
        is_there && self.faithful(used, application, destination, &candidates).is_none()
    }

    /// Whether there is anything to decide for a connection to `to`.
    pub fn has_choice(&self, to: &Destination) -> bool {
        let is_loopback = matches!(&to.host, Host::Ip(ip) if ip.to_canonical().is_loopback());
        let is_near = is_loopback || (to.host.is_near() && !self.settings.near);
        !is_near && (self.present.len() > 1 || !self.settings.is_plain())
    }

    /// What the legs to relays are bound to, of this order: nothing, so that the kernel decides and
    /// bonds may be used, as long as its own choice is among those meant to be used, and free.
    pub fn relays_leave_by(&self, order: &[(u32, bool)]) -> Option<u32> {
        let own = self.present.first()?;
        let policy = self.settings.policy(&own.name);
        let is_free = policy.cap.is_none() && policy.rate_limit.is_none();
        let is_meant = order.contains(&(own.index, false));
        if is_free && is_meant { None } else { order.first().map(|(index, _)| *index) }
    }

    /// The last decisions, the newest first.
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
    /// The interfaces that a bond's links go by, by index, where it reaches nobody by those of `fails`.
    pub fn for_links(&self, fails: &BTreeSet<u32>, now: Time, today: WallTime) -> Vec<u32> {
        let of = |present: &Present| {
            let serves = self.doubts.of(present.index, now).is_none();
            Linkable {
                tier: self.tier_of_links(&present.name),
                is_usable: serves && self.has_left_for_link(&present.name, today),
                fails: fails.contains(&present.index),
            }
        };
        let all: Vec<_> = self.present.iter().map(of).collect();
        linked(&all).into_iter().map(|at| self.present[at].index).collect()
    }

    /// The interfaces that what no bond carries may go by, by index: as links may, and where all of those are in doubt,
    /// these all the same.
    pub fn for_plain(&self, now: Time, today: WallTime) -> Vec<u32> {
        let meant = self.for_links(&BTreeSet::new(), now, today);
        if !meant.is_empty() {
            return meant;
        }
        let may = |present: &&Present| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).map(|present| present.index).collect()
    }

    /// All that are usable, by index.
    pub fn indices(&self) -> BTreeSet<u32> {
        self.present.iter().map(|present| present.index).collect()
    }

    /// How many interfaces links may ever go by now, whatever fails.
    pub fn count_for_links(&self, today: WallTime) -> usize {
        let may = |present: &&Present| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).count()
    }

    /// The places in `present` that this connection may go by, and those that are left if none of
    /// them brings it about: what is in doubt, and lower tiers.
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
        let serves = |at: usize| self.doubts.of(self.present[at].index, now).is_none();
        let primary = |at: &&usize| policy(**at).tier == Tier::Primary && serves(**at);
        let is_full = ruled.iter().filter(primary).all(|at| self.is_full(*at));
        let of = |serves: &dyn Fn(usize) -> bool| {
            let policies: Vec<_> = ruled.iter().map(|at| (policy(*at), serves(*at))).collect();
            allowed(&policies, is_full).into_iter().map(|at| ruled[at]).collect::<Vec<_>>()
        };
        let mut first = of(&serves);
        if first.is_empty() {
            // Where nothing else is left, what is in doubt is tried all the same.
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

/// Why a connection went where it did, in words.
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
    fn with_open(&self, mut used: Vec<u32>, by: &Application, to: &str) -> Vec<u32> {
        let own = |open: &&Open| open.stands && open.application == *by && open.destination == to;
        if !used.is_empty() {
            used.extend(self.traffic.open().filter(own).map(|open| open.interface));
        }
        used
    }

    /// Of a connection of this application to this destination: the rule that left something out; where one interface
    /// was left, what the others lack; and else the scheduler's reason.
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

/// What becomes of connections that were assigned.
impl Table {
    /// The connection stands, by this interface, with this round trip.
    pub fn stands(&mut self, id: u64, interface: u32, rtt: Option<Duration>, now: Time) {
        let Some(open) = self.traffic.get_mut(id) else { return };
        let assigned = std::mem::replace(&mut open.interface, interface);
        let missed = assigned != interface;
        (open.stands, open.active) = (true, now);
        let is_routeless = open.is_routeless;
        let (application, destination) = (open.application.clone(), open.destination.clone());
        let server = open.server();
        self.affinity.went(&destination, interface, now);
        self.doubts.serves(interface);
        if let (Some(rtt), Some(name)) = (rtt, self.name(interface)) {
            self.estimates.entry(name).or_default().round_trip(rtt, now);
        }
        if missed {
            let why = match is_routeless {
                true => "the interfaces tried before it have no route there",
                false => {
                    self.doubts.missed(assigned, server, now);
                    "no answer over the interfaces tried before it"
                }
            };
            let why = why.to_owned();
            self.decide(&application, &destination, interface, why, now);
        }
    }

    /// No route to the connection's destination leaves by this interface: that is no fault of it.
    pub fn leads_not_by(&mut self, id: u64, interface: u32) {
        if let Some(open) = self.traffic.get_mut(id) {
            open.is_routeless |= open.interface == interface;
        }
    }

    /// Records that the connection's intended destination has answered.
    pub fn proven(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.get(id) {
            self.doubts.proven(open.interface, Some(open.server()), now);
        }
    }

    /// Somebody else answered the connection than whom it was meant for, or the server is at fault: the destination need
    /// not keep to its interface, which is left out for a while once another destination or another interface tells
    /// whose fault it is.
    pub fn answered_falsely(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.get(id) {
            self.affinity.free(&open.destination, open.interface);
            self.doubts.answered_falsely(open.interface, open.server(), now);
        }
    }

    /// The connection waits for its program's next request, or has one: a link that is kept.
    pub fn rests(&mut self, id: u64, rests: bool) {
        if let Some(open) = self.traffic.get_mut(id) {
            open.rests = rests;
        }
    }

    /// The connection has moved so many bytes by now, to and from this host. How many more than
    /// before.
    pub fn moved(&mut self, id: u64, down: u64, up: u64, now: Time) -> u64 {
        self.traffic.moved(id, down, up, now)
    }

    /// The connection stands, but by none of the interfaces: only the kernel's own choice led there,
    /// and the next ones to this destination go that way at once.
    pub fn stands_free(&mut self, id: u64, now: Time) {
        if let Some(open) = self.traffic.end(id) {
            self.affinity.went(&open.destination, UNBOUND, now);
            // What was decided came to nothing.
            let of = |d: &Decision| {
                d.destination == open.destination && d.application == open.application
            };
            if let Some(at) = self.decisions.iter().rposition(of) {
                self.decisions.remove(at);
            }
        }
    }

    /// The interface that a connection goes by.
    pub fn interface_of(&self, id: u64) -> Option<String> {
        self.traffic.get(id).and_then(|open| self.name(open.interface))
    }

    /// What TCP said of the connection: its round trip, and what it sent again of how many bytes
    /// since that was told last.
    pub fn saw(&mut self, id: u64, rtt: Duration, resent: Option<(u64, u64)>, now: Time) {
        if let Some(name) = self.interface_of(id) {
            self.heard_of(name, rtt, resent, now);
        }
    }

    /// The connection has ended, or came to nothing.
    pub fn ended(&mut self, id: u64) {
        if let Some(open) = self.traffic.end(id).filter(|open| open.stands) {
            let bytes = open.moved.0.saturating_add(open.moved.1);
            self.kept.applications.ended(&open.application, bytes);
            self.addition.ended(&open.application, bytes);
        }
    }
}

/// What interfaces bring, second by second, and what is believed of it.
impl Table {
    /// So many bytes more came and went by an interface, by connections that are no program's.
    pub fn flowed(&mut self, name: &str, more: (u64, u64), now: Time) {
        let Some(index) = self.index_of(name) else { return };
        self.traffic.flowed(index, more, now);
    }

    /// What TCP said of one of those, as [`Self::saw`].
    pub fn link_saw(&mut self, name: &str, rtt: Duration, resent: Option<(u64, u64)>, now: Time) {
        if self.present.iter().any(|present| present.name == name) {
            self.heard_of(name.to_owned(), rtt, resent, now);
        }
    }

    fn heard_of(&mut self, name: String, rtt: Duration, resent: Option<(u64, u64)>, now: Time) {
        let estimate = self.estimates.entry(name).or_default();
        if !rtt.is_zero() {
            estimate.round_trip(rtt, now);
        }
        if let Some(resent) = resent {
            estimate.sent_again(resent, now);
        }
    }

    /// A second or so has passed: estimates are made of what it brought.
    pub fn tick(&mut self, now: Time, today: WallTime) {
        let name = |index| self.present.iter().find(|p| p.index == index).map(|p| p.name.clone());
        let (took, brought) = self.traffic.tick(now, name);
        for Brought { interface, bytes, load } in brought {
            let Some(name) = self.name(interface) else { continue };
            let estimate = self.estimates.entry(name.clone()).or_default();
            estimate.carried(bytes, load, took, now);
            self.addition.seen(&name, estimate, (now, today));
        }
    }

    /// Those at these places, with the rates that are believed of each.
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

/// What is left of interfaces' caps: allotments of this process, and the file's word.
impl Table {
    /// Whether an interface may move more.
    pub fn may(&self, name: &str) -> May {
        match self.settings.policy(name).cap {
            Some(cap) => self.caps.may(name, self.ends_by(name).saturating_mul(ahead(cap))),
            None => May::Go,
        }
    }

    /// Why what has a cap cannot be counted, so that nothing moves.
    pub fn fault(&self, name: &str) -> Option<&str> {
        self.settings.policy(name).cap.and_then(|_| self.caps.fault(name))
    }

    /// Somebody waits until it may.
    pub fn await_more(&mut self, name: &str) {
        self.caps.await_more(name);
    }

    /// What a server may send ahead on a connection of this interface, if that is bounded.
    pub fn ahead(&self, index: u32) -> Option<u64> {
        self.name(index).and_then(|name| self.ahead_by(&name))
    }

    /// The same of the interface of this name.
    pub fn ahead_by(&self, name: &str) -> Option<u64> {
        self.settings.policy(name).cap.map(ahead)
    }

    /// An interface that needs another allotment of its cap now, if it is asked for more.
    pub fn wants_allotment(&mut self, today: WallTime) -> Option<(String, Allotting)> {
        let names: Vec<String> = self.present.iter().map(|p| p.name.clone()).collect();
        names.into_iter().find_map(|name| {
            let cap = self.settings.policy(&name).cap?;
            // Nothing is taken for an interface that nobody uses.
            let connections = self.ends_by(&name);
            let reserve = connections.saturating_mul(ahead(cap));
            let has_some = self.caps.may(&name, reserve) == May::Go;
            let is_used = connections > 0 || self.caps.is_awaited(&name) || has_some;
            let size = is_used.then(|| self.caps.wants(&name, allotment(cap), reserve))??;
            let period = Period::at(today, cap.reset_day);
            Some((name, Allotting { cap: cap.bytes, period, size }))
        })
    }

    /// What came of it: what is kept now, and the bytes; or why the file could not be asked.
    pub fn allotted(&mut self, name: &str, of: &Allotting, got: Result<(Kept, u64), String>) {
        match got {
            Ok((kept, bytes)) => {
                self.renew(kept);
                self.caps.granted(name, bytes, of.period.today);
            }
            Err(why) => self.caps.unanswered(name, why),
        }
    }

    /// The same where nothing is kept in a file.
    pub fn allot_here(&mut self, name: &str, of: &Allotting) {
        let bytes = self.kept.take_allotment(name, of);
        self.caps.granted(name, bytes, of.period.today);
    }

    /// A month may have begun.
    pub fn ask_again(&mut self) {
        self.caps.ask_again();
    }

    /// What is left of allotments is given back, and what was moved beyond them is kept: nothing is moved any more.
    pub fn give_back_allotments(&mut self, today: WallTime) {
        for left in self.caps.take() {
            self.settle(left, today);
        }
    }

    /// The same of interfaces that nothing goes by just now: other processes may use it.
    pub fn give_back_idle_allotments(&mut self, today: WallTime) {
        let names: Vec<String> = self.present.iter().map(|p| p.name.clone()).collect();
        for name in names {
            let left = if self.ends_by(&name) == 0 { self.caps.take_idle(&name) } else { None };
            if let Some(left) = left {
                self.settle(left, today);
            }
        }
    }

    fn settle(&mut self, Left { name, bytes, day }: Left, today: WallTime) {
        let all = bytes.unsigned_abs();
        if bytes > 0 {
            self.kept.take_back(&name, all, day);
            self.addition.gives_back(&name, all, day);
        } else {
            let period = self.period(&name, today);
            self.kept.spend(&name, all, period);
            self.addition.spent(&name, all, period);
        }
    }

    /// The month that an interface's counts are of.
    fn period(&self, name: &str, today: WallTime) -> Period {
        Period::at(today, self.settings.reset_day(name))
    }

    /// A bond's link, or another connection of ours, goes by this interface from now on.
    pub fn link_began(&mut self, name: &str) {
        self.traffic.link_began(name);
    }

    /// It does not any more.
    pub fn link_ended(&mut self, name: &str) {
        self.traffic.link_ended(name);
    }

    fn ends_by(&self, name: &str) -> u64 {
        self.traffic.ends_by(self.index_of(name).unwrap_or(UNBOUND), name)
    }

    /// Whether it has more of its cap left than what one more connection could have under way.
    fn has_left(&self, name: &str, today: WallTime) -> bool {
        self.has_left_for(self.ends_by(name).saturating_add(1), name, today)
    }

    /// Whether it has for a bond's link, which may be there already.
    pub fn has_left_for_link(&self, name: &str, today: WallTime) -> bool {
        let index = self.index_of(name).unwrap_or(UNBOUND);
        self.has_left_for(self.traffic.ends_with_link(index, name), name, today)
    }

    fn has_left_for(&self, connections: u64, name: &str, today: WallTime) -> bool {
        let policy = self.settings.policy(name);
        let Some(cap) = policy.cap else { return true };
        let reserve = ahead(cap).saturating_mul(connections);
        let has_left = policy.left(self.used(name, today)).is_none_or(|left| left > reserve);
        has_left && !matches!(self.caps.may(name, 0), May::Over | May::Fault)
    }

    /// Bytes in this period, without what is allotted and not moved.
    fn used(&self, name: &str, today: WallTime) -> u64 {
        let used = self.kept.used(name, self.period(name, today));
        used.saturating_sub(self.caps.balance(name))
    }
}

/// What is kept: bytes by interface, and what applications' connections move.
impl Table {
    /// So many bytes more went by an interface, headers among them, by whatever of ours.
    pub fn carried(&mut self, name: &str, bytes: u64, today: WallTime) {
        if self.settings.policy(name).cap.is_some() {
            return self.caps.pay(name, bytes);
        }
        let period = self.period(name, today);
        self.kept.spend(name, bytes, period);
        self.addition.spent(name, bytes, period);
    }

    /// What could not be kept is kept the next time.
    pub fn give_back(&mut self, mut addition: Addition) {
        addition.follow(std::mem::take(&mut self.addition));
        self.addition = addition;
    }

    /// What came since it was last taken, to be kept.
    pub fn take_addition(&mut self) -> Addition {
        std::mem::take(&mut self.addition)
    }

    /// What is kept now, by all processes of the user; what came meanwhile is on top of it.
    pub fn renew(&mut self, mut kept: Kept) {
        self.addition.to(&mut kept);
        self.kept = kept;
    }

    /// What is to be kept.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// C_demand of each application, the last used first.
    pub fn applications(&self) -> Vec<(&Application, Demand)> {
        self.kept.applications.all()
    }
}

/// A time to be met at the least cost, by what bonds carry.
impl Table {
    /// All that is under way is to be there by `until`: interfaces with a price wait as long as that is met without
    /// them, where there are others. They wait as backups do, for none of the others to answer.
    pub fn meet(&mut self, until: Time, flow: Flow, today: WallTime) {
        let names = || self.present.iter().map(|present| &present.name);
        let price = |name: &str| self.settings.policy(name).price;
        let may = |name: &&String| {
            self.settings.policy(name).tier <= Tier::Secondary
                && self.has_left_for_link(name, today)
        };
        let has_other = names().filter(may).any(|name| price(name) <= 0.0);
        let offer = |name: &String| {
            let seen = self.estimates.get(name);
            let rate = seen.map(|seen| if flow == Flow::Down { seen.down() } else { seen.up() });
            let cap = self.settings.policy(name).cap;
            let left = cap.map(|cap| cap.bytes.saturating_sub(self.used(name, today)));
            let offer = Offer { rate: rate.unwrap_or_default(), price: price(name), left };
            (name.clone(), offer)
        };
        let dear = names().filter(|name| has_other && price(name) > 0.0).map(offer).collect();
        self.thrift = Some(Thrift::new(dear, until));
    }

    /// So many bytes have come, and so many are missing; whether more interfaces are to be used from now on.
    pub fn came(&mut self, done: u64, missing: u64, now: Time) -> bool {
        self.thrift.as_mut().is_some_and(|thrift| thrift.came(done, missing, now))
    }

    /// When links go by it: as its policy says, or, while it is to cost nothing, as a backup.
    fn tier_of_links(&self, name: &str) -> Tier {
        let tier = self.settings.policy(name).tier;
        let waits = self.thrift.as_ref().is_some_and(|thrift| thrift.holds(name));
        if waits { tier.max(Tier::Backup) } else { tier }
    }
}

/// Interfaces of which nothing is known, and what probes told of them.
impl Table {
    /// One that may be probed, was not for a while, and of which no traffic told meanwhile.
    pub fn unknown(&self, now: Time, today: WallTime) -> Option<Present> {
        let is_old = |age: Option<Duration>| age.is_none_or(|age| age >= PROBED_EVERY);
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
    fn probe_failure(&self, name: &str) -> Option<String> {
        self.probes.0.get(name)?.failed.clone()
    }
}

/// What is shown of the interfaces.
impl Table {
    /// The interfaces as they are.
    pub fn show(&self, today: WallTime) -> Vec<Shown> {
        let shown = |present: &Present| {
            let policy = self.settings.policy(&present.name);
            Shown {
                index: present.index,
                name: present.name.clone(),
                tier: policy.tier,
                estimate: self.estimates.get(&present.name).cloned().unwrap_or_default(),
                used: self.used(&present.name, today),
                cap: policy.cap.map(|cap| cap.bytes),
                is_used_up: !self.has_left(&present.name, today),
                doubted: self.doubts.of(present.index, self.traffic.ticked()),
                probe_failure: self.probe_failure(&present.name),
                connections: self.traffic.by(present.index).count(),
                load: self.traffic.load(present.index),
            }
        };
        self.present.iter().map(shown).collect()
    }
}

/// Where a destination's connections keep to so many interfaces.
fn keeping(interfaces: usize, pick: &Pick) -> String {
    match interfaces {
        1 => "this destination's connections keep to it".to_owned(),
        _ => format!("of those that this destination's connections keep to: {}", pick.why),
    }
}

/// Which way the bytes go that a time is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To this host.
    Down,
    /// From it.
    Up,
}

/// The probes of interfaces, by name.
#[derive(Clone, Debug, Default)]
pub struct Probes(BTreeMap<String, Told>);

#[derive(Clone, Debug)]
struct Told {
    at: Time,
    failed: Option<String>,
}

/// How an interface is, for who asks.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The kernel's index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// When it is used.
    pub tier: Tier,
    /// What it brings.
    pub estimate: Estimate,
    /// Bytes both ways in this period of its cap, or of the month.
    pub used: u64,
    /// Its cap, bytes.
    pub cap: Option<u64>,
    /// Whether its cap leaves nothing for another connection until the period is over.
    pub is_used_up: bool,
    /// Why it is left out for a while.
    pub doubted: Option<Why>,
    /// Why its last probe told nothing.
    pub probe_failure: Option<String>,
    /// Connections by it.
    pub connections: usize,
    /// What they are still expected to move, bytes.
    pub load: u64,
}
