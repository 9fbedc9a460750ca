//! What is left of interfaces' caps: allotments of this process, and the file's word.

use super::{
    super::{
        caps::{Left, May, ahead, allotment},
        kept::{Allotting, Kept},
    },
    Table, UNBOUND,
};
use thalweg_bond::Period;
use thalweg_units::WallTime;

/// A bond's link counts as so many connections: the kernel gives twice the buffer that is asked for, and a far
/// end fills it whenever the link is waited for.
const EACH_LINK: u64 = 2;

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
    pub(super) fn period(&self, name: &str, today: WallTime) -> Period {
        Period::at(today, self.settings.reset_day(name))
    }

    /// A bond's link, or another connection of ours, goes by this interface from now on.
    pub fn link_began(&mut self, name: &str) {
        *self.links.entry(name.to_owned()).or_default() += 1;
    }

    /// It does not any more.
    pub fn link_ended(&mut self, name: &str) {
        if let Some(links) = self.links.get_mut(name) {
            *links = links.saturating_sub(1);
        }
        self.links.retain(|_, links| *links > 0);
    }

    /// Connections of programs by an interface, and what links of bonds count as.
    fn ends_by(&self, name: &str) -> u64 {
        let index = self.index_of(name).unwrap_or(UNBOUND);
        let links = self.links.get(name).copied().unwrap_or_default().saturating_mul(EACH_LINK);
        links.saturating_add(self.by(index).count() as u64)
    }

    /// Whether it has more of its cap left than what one more connection could have under way.
    pub(super) fn has_left(&self, name: &str, today: WallTime) -> bool {
        self.has_left_for(self.ends_by(name).saturating_add(1), name, today)
    }

    /// Whether it has for a bond's link, which may be there already.
    pub fn has_left_for_link(&self, name: &str, today: WallTime) -> bool {
        let new = if self.links.contains_key(name) { 0 } else { EACH_LINK };
        self.has_left_for(self.ends_by(name).saturating_add(new), name, today)
    }

    fn has_left_for(&self, connections: u64, name: &str, today: WallTime) -> bool {
        let policy = self.settings.policy(name);
        let Some(cap) = policy.cap else { return true };
        let reserve = ahead(cap).saturating_mul(connections);
        let has_left = policy.left(self.used(name, today)).is_none_or(|left| left > reserve);
        has_left && !matches!(self.caps.may(name, 0), May::Over | May::Fault)
    }

    /// Bytes in this period, without what is allotted and not moved.
    pub(super) fn used(&self, name: &str, today: WallTime) -> u64 {
        let used = self.kept.used(name, self.period(name, today));
        used.saturating_sub(self.caps.balance(name))
    }
}
