//! Where a connection is to go, and what is remembered of that.

use super::{Assigned, Decision, MOST_DECISIONS, Open, Table, UNBOUND, reasons::keeping};
use thalweg_bond::{Application, Candidate, Pick, kept_to};
use thalweg_units::{Time, WallTime};
use thalweg_wire::{Destination, Host};

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
        let id = self.next;
        self.next += 1;
        let (destination, interface) = (destination.to_owned(), first);
        let (moved, before, stands, active) = ((0, 0), 0, false, now);
        let (is_routeless, rests) = (false, false);
        let open = Open {
            application,
            destination,
            interface,
            expected,
            moved,
            before,
            is_routeless,
            stands,
            active,
            rests,
        };
        self.open.insert(id, open);
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

    pub(super) fn decide(
        &mut self,
        application: &Application,
        to: &str,
        index: u32,
        why: String,
        at: Time,
    ) {
        let Some(interface) = self.name(index) else { return };
        let (application, destination) = (application.clone(), to.to_owned());
        self.remember(Decision { application, destination, interface, why, at });
    }

    pub(super) fn remember(&mut self, decision: Decision) {
        if self.decisions.len() >= MOST_DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}
