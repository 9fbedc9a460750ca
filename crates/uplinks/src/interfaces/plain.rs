//! What goes beside bonds and programs' connections, and times that are to be met.

use super::{Flow, Uplinks};
use std::{io, net::IpAddr, num::NonZeroU32, time::Duration};
use thalweg_net::interface_for;

/// Why there is no plain way.
const NO_INTERFACE: &str = "the settings leave no interface that is up and may be used: see \
                            `thalweg interfaces status`";

impl Uplinks {
    /// The name of the interface with this index, if there is one.
    pub(super) fn name_of(&self, index: NonZeroU32) -> Option<String> {
        self.found().into_iter().find(|interface| interface.index == index).map(|found| found.name)
    }

    /// The interface of what is neither a bond's link nor a program's connection, towards these addresses: the
    /// kernel's own choice (`None`) if that may be used and has no cap or limit; else another one that has none; else
    /// the first that may be used, and then it counts.
    ///
    /// # Errors
    /// None may be used.
    pub fn plain_way(&self, to: &[IpAddr]) -> io::Result<Option<NonZeroU32>> {
        let (allowed, present) = {
            let table = self.table();
            (table.for_plain(self.now(), self.today()), table.indices())
        };
        let mut found = self.found();
        let asked = to.first().and_then(|ip| interface_for(*ip).ok());
        let own = match asked {
            Some(index) => found.iter().find(|interface| interface.index == index),
            None => found.first(),
        };
        let Some(own) = own.cloned() else { return Ok(None) };
        let is_named = self.table().settings().policies.contains_key(&own.name);
        if !is_named && !present.contains(&own.index.get()) {
            // It leads to its own network alone, of which nothing is said.
            return Ok(None);
        }
        found.retain(|interface| allowed.contains(&interface.index.get()));
        let mut free = found.iter().filter(|interface| !self.is_tolled(&interface.name));
        if free.clone().any(|interface| interface.index == own.index) {
            return Ok(None);
        }
        let by = free.next().or(found.first()).ok_or_else(|| io::Error::other(NO_INTERFACE))?;
        Ok(Some(by.index))
    }

    /// Whether the cap of an interface leaves room for one more link of a bond, or one that is there.
    pub fn has_room(&self, name: &str) -> bool {
        let today = self.today();
        self.table().has_left_for_link(name, today)
    }

    /// What bonds carry is to be there within this time, at the least cost: by interfaces with a price as late and as
    /// little as that allows, by [`Self::came`].
    pub fn meet(&self, within: Duration, flow: Flow) {
        let (until, today) = (self.now() + within, self.today());
        self.table().meet(until, flow, today);
        self.tell_changed();
    }

    /// So many bytes have come since then, and so many are missing.
    pub fn came(&self, done: u64, missing: u64) {
        let now = self.now();
        let has_changed = self.table().came(done, missing, now);
        if has_changed {
            self.tell_changed();
        }
    }
}
