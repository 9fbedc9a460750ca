//! The paper's schedulers that use links in rotation.

use super::{Link, LinkId, Verdict};
use std::collections::BTreeMap;

/// Each link in turn; waits for a link that is full.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<LinkId>,
}

impl RoundRobin {
    pub(super) fn next(&mut self, links: &[Link]) -> Verdict {
        let usable = || links.iter().filter(|link| link.usable);
        let after = usable().filter(|link| self.last.is_none_or(|last| link.id > last));
        let next = after.min_by_key(|link| link.id).or_else(|| usable().min_by_key(|link| link.id));
        match next {
            None => Verdict::NoLink,
            Some(link) if !link.writable => Verdict::Wait,
            Some(link) => {
                self.last = Some(link.id);
                Verdict::Send(link.id)
            }
        }
    }
}

/// Each link in proportion to its rate; waits for a link that is full.
#[derive(Clone, Debug, Default)]
pub(super) struct Weighted {
    credits: BTreeMap<LinkId, f64>,
    /// The link whose turn it is, until it has taken its chunk.
    turn: Option<LinkId>,
}

impl Weighted {
    pub(super) fn next(&mut self, links: &[Link]) -> Verdict {
        let usable = |id: LinkId| links.iter().find(|link| link.id == id && link.usable);
        let link = match self.turn.and_then(usable) {
            Some(link) => Some(link),
            None => self.choose(links).and_then(usable),
        };
        self.turn = link.map(|link| link.id);
        match link {
            None => Verdict::NoLink,
            Some(link) if !link.writable => Verdict::Wait,
            Some(link) => {
                self.turn = None;
                Verdict::Send(link.id)
            }
        }
    }

    fn choose(&mut self, links: &[Link]) -> Option<LinkId> {
        self.credits.retain(|id, _| links.iter().any(|link| link.id == *id && link.usable));
        let usable = links.iter().filter(|link| link.usable);
        let mut total = 0.0;
        for link in usable {
            *self.credits.entry(link.id).or_default() += link.pace();
            total += link.pace();
        }
        let richest = self.credits.iter_mut().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let (id, credit) = richest?;
        *credit -= total;
        Some(*id)
    }
}
