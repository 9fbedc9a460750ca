//! What is left of interfaces' caps: allotments of this process, and the file's word.

use super::{
    super::{
        caps::{May, ahead, allotment},
        kept::{Allotting, Kept},
    },
    Table, UNBOUND,
};
use thalweg_bond::period_start;
use thalweg_units::WallTime;

impl Table {
    /// Whether an interface may move more.
    pub fn may(&self, name: &str) -> May {
        match self.settings.policy(name).cap {
            Some(_) => self.caps.may(name),
            None => May::Go,
        }
    }

    /// Somebody waits until it may.
    pub fn await_more(&mut self, name: &str) {
        self.caps.await_more(name);
    }

    /// What a server may send ahead on a connection of this interface, if that is bounded.
    pub fn ahead(&self, index: u32) -> Option<u64> {
        self.name(index).and_then(|name| self.settings.policy(&name).cap).map(ahead)
    }

    /// An interface that needs another allotment of its cap now, if it is asked for more.
    pub fn wants_allotment(&mut self, today: WallTime) -> Option<(String, Allotting)> {
        let names: Vec<(u32, String)> =
            self.present.iter().map(|p| (p.index, p.name.clone())).collect();
        names.into_iter().find_map(|(index, name)| {
            let cap = self.settings.policy(&name).cap?;
            let size = allotment(cap);
            // Nothing is taken for an interface that nobody uses.
            let connections = self.by(index).count() as u64;
            let is_awaited = self.caps.is_awaited(&name);
            let is_used = connections > 0 || is_awaited || self.caps.may(&name) == May::Go;
            let wants = is_used && self.caps.wants(&name, size);
            let start = period_start(today, cap.reset_day);
            let reserve = connections.saturating_mul(ahead(cap));
            let of = Allotting { cap: cap.bytes, start, size, reserve };
            wants.then_some((name, of))
        })
    }

    /// What came of it: what is kept now, and the bytes; `None`: the file could not be asked.
    pub fn allotted(&mut self, name: &str, got: Option<(Kept, u64)>) {
        match got {
            Some((kept, bytes)) => {
                self.renew(kept);
                self.caps.granted(name, bytes);
            }
            None => self.caps.unanswered(name),
        }
    }

    /// The same where nothing is kept in a file.
    pub fn allot_here(&mut self, name: &str, of: &Allotting) {
        let bytes = self.kept.take_allotment(name, of);
        self.caps.granted(name, bytes);
    }

    /// A month may have begun.
    pub fn ask_again(&mut self) {
        self.caps.ask_again();
    }

    /// What is left of allotments is given back: nothing is moved any more.
    pub fn give_back_allotments(&mut self, today: WallTime) {
        for (name, bytes) in self.caps.take() {
            let start = period_start(today, self.settings.reset_day(&name));
            self.addition.gives_back(&name, bytes, start);
        }
    }

    /// Whether it has more of its cap left than what one more connection could have under way.
    pub(super) fn has_left(&self, name: &str, today: WallTime) -> bool {
        let policy = self.settings.policy(name);
        let Some(cap) = policy.cap else { return true };
        let index = self.present.iter().find(|p| p.name == name).map_or(UNBOUND, |p| p.index);
        let reserve = ahead(cap).saturating_mul(self.by(index).count() as u64 + 1);
        let has_left = policy.left(self.used(name, today)).is_none_or(|left| left > reserve);
        has_left && self.caps.may(name) != May::Over
    }

    /// Bytes in this period, without what is allotted and not moved.
    pub(super) fn used(&self, name: &str, today: WallTime) -> u64 {
        let used = self.kept.used(name, period_start(today, self.settings.reset_day(name)));
        used.saturating_sub(self.caps.balance(name))
    }
}
