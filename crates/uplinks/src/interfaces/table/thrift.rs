//! A time to be met at the least cost, by what bonds carry.

use super::Table;
use thalweg_bond::{Offer, Thrift, Tier};
use thalweg_units::{Time, WallTime};

/// Which way the bytes go that a time is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To this host.
    Down,
    /// From it.
    Up,
}

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
    pub(super) fn tier_of_links(&self, name: &str) -> Tier {
        let tier = self.settings.policy(name).tier;
        let waits = self.thrift.as_ref().is_some_and(|thrift| thrift.holds(name));
        if waits { tier.max(Tier::Backup) } else { tier }
    }
}
