//! Keeps the links of a bond: decides by which interfaces there are to be links, makes them, and replaces lost ones.

use super::{
    link_interfaces::LinkInterfaces, link_maker::LinkMaker, readiness::Readiness, status::LinkLife,
};
use crate::interfaces::Uplinks;
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};
use thalweg_net::{Changes, Interface};
use thalweg_wire::bond::MAX_LINKS;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

/// How often the interfaces are listed again.
const LOOK: Duration = Duration::from_secs(1);

/// The first wait before a slot is tried again; it doubles with each failure.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest wait before a slot is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// If a link is not up after this time, the next tier is tried as well, as for whole connections.
const SLOW: Duration = Duration::from_secs(3);

/// An interface must answer for this long again before the links that took its place are released.
const STEADY: Duration = Duration::from_secs(1);

/// Retries that are remembered, including those of slots that do not exist now: an interface that comes back must prove
/// itself. An interface that is created anew has another index. Beyond this number, the oldest idle slot is forgotten,
/// and tried as a new one.
const MOST_RETRIES: usize = 4 * MAX_LINKS;

/// The interface's index, the number of the link by it (from 1), and the index of the route.
type Slot = (NonZeroU32, usize, usize);

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkOutcome {
    /// It may not be used any more.
    Stopped,
    /// It was up, and broke.
    Lost,
    /// It never came up.
    Failed,
}

/// When a slot is tried again after its last link.
struct Retry {
    wait: Duration,
    at: Instant,
    /// Whether that link broke or failed, rather than being stopped.
    is_bad: bool,
}

/// A link that is up or being made.
struct ActiveLink {
    /// The interface, as it was when the link was begun.
    interface: Interface,
    number: u32,
    since: Instant,
    stop: CancellationToken,
}

impl ActiveLink {
    /// Whether the interface is gone, or lost an address (a connection is bound to one).
    fn is_lost(&self, found: &[Interface]) -> bool {
        let now = found.iter().find(|now| now.index == self.interface.index);
        now.is_none_or(|now| self.interface.addresses.iter().any(|at| !now.addresses.contains(at)))
    }
}

struct LinkKeeper {
    maker: Arc<LinkMaker>,
    by: LinkInterfaces,
    links: JoinSet<(Slot, LinkOutcome)>,
    busy: BTreeMap<Slot, ActiveLink>,
    retries: BTreeMap<Slot, Retry>,
    /// When each interface was last found to reach nothing, by index.
    failed: BTreeMap<u32, Instant>,
    /// The number of the next link.
    number: u32,
}

/// Keeps a link in each slot; never returns.
pub(super) async fn keep(maker: Arc<LinkMaker>, by: LinkInterfaces) {
    let mut keeper = LinkKeeper {
        maker,
        by,
        links: JoinSet::new(),
        busy: BTreeMap::new(),
        retries: BTreeMap::new(),
        failed: BTreeMap::new(),
        number: 0,
    };
    // Without the kernel's notices, the interfaces are listed each second.
    let mut changes = match keeper.by.uplinks() {
        // `Uplinks` follows the changes anyway.
        Some(_) => None,
        None => Changes::watch().ok(),
    };
    loop {
        keeper.look();
        tokio::select! {
            Some(ended) = keeper.links.join_next() => keeper.ended(ended),
            () = changed(keeper.by.uplinks(), &mut changes) => {}
            () = keeper.maker.engine.wait_for_silence() => {}
            () = sleep(LOOK) => {}
        }
    }
}

impl LinkKeeper {
    /// Stops links that may not be used any more, and makes missing ones.
    fn look(&mut self) {
        let failing = self.failing();
        // A listing that fails now may succeed in a second.
        let found = match self.by.list(&failing) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("this host's interfaces cannot be listed: {why}");
                self.maker
                    .readiness
                    .send_if_modified(|readiness| readiness.set_listing_error(&why));
                return;
            }
        };
        let is_there = |name: &str| found.iter().any(|interface| interface.name == name);
        self.maker.readiness.send_if_modified(|readiness| readiness.forget_absent(is_there));
        self.busy.values().filter(|link| link.is_lost(&found)).for_each(|link| link.stop.cancel());
        let slots = slots(found, self.maker.routes.len());
        self.maker.set_wanted(slots.len());
        for (slot, interface) in slots {
            let is_due = self.retries.get(&slot).is_none_or(|retry| Instant::now() >= retry.at);
            if is_due && !self.busy.contains_key(&slot) {
                self.begin(slot, interface);
            }
        }
    }

    fn begin(&mut self, slot: Slot, interface: Interface) {
        let (maker, number) = (Arc::clone(&self.maker), self.number);
        self.number += 1;
        let (stop, by) = (CancellationToken::new(), interface.clone());
        let until = stop.clone();
        let busy = ActiveLink { interface, number, since: Instant::now(), stop };
        self.busy.insert(slot, busy);
        self.maker.readiness.send_modify(Readiness::begin_link);
        self.links.spawn(async move { (slot, maker.run_link((&by, slot.2), number, until).await) });
    }

    fn ended(&mut self, ended: Result<(Slot, LinkOutcome), JoinError>) {
        // A link's task does not panic; if one did, its slot is not tried again.
        let Ok((slot, outcome)) = ended else { return };
        self.busy.remove(&slot);
        let before = self.retries.get(&slot).map_or(FIRST_WAIT, |retry| retry.wait * 2);
        let wait = match outcome {
            LinkOutcome::Stopped | LinkOutcome::Lost => FIRST_WAIT,
            LinkOutcome::Failed => before.min(LONGEST_WAIT),
        };
        let is_bad = outcome != LinkOutcome::Stopped;
        self.retries.insert(slot, Retry { wait, at: Instant::now() + wait, is_bad });
        if self.retries.len() > MOST_RETRIES {
            let idle = self.retries.iter().filter(|(slot, _)| !self.busy.contains_key(slot));
            let oldest = idle.min_by_key(|(_, retry)| retry.at).map(|(slot, _)| *slot);
            oldest.map(|slot| self.retries.remove(&slot));
        }
    }

    /// The interfaces by which nothing is reached, or was not until less than [`STEADY`] ago.
    fn failing(&mut self) -> BTreeSet<u32> {
        let links = self.maker.engine.links();
        let answers = |busy: &ActiveLink| {
            links.iter().any(|link| link.link == busy.number && link.life != LinkLife::Silent)
        };
        let is_bad = |slot: &Slot| self.retries.get(slot).is_some_and(|retry| retry.is_bad);
        let is_made = |slot: &Slot, busy: &ActiveLink| {
            let is_there = links.iter().any(|link| link.link == busy.number);
            !is_there && !is_bad(slot) && busy.since.elapsed() < SLOW
        };
        let good = self.busy.iter().filter(|(slot, busy)| answers(busy) || is_made(slot, busy));
        let good: BTreeSet<NonZeroU32> = good.map(|(slot, _)| slot.0).collect();
        let lost = self.retries.keys().filter(|slot| is_bad(slot));
        let tried = self.busy.keys().chain(lost).map(|slot| slot.0);
        let now = Instant::now();
        let bad = tried.filter(|index| !good.contains(index)).map(|index| (index.get(), now));
        let bad: Vec<_> = bad.collect();
        self.failed.extend(bad);
        self.failed.retain(|_, at| now.duration_since(*at) < STEADY);
        self.failed.keys().copied().collect()
    }
}

/// The slots of links: each interface with each route. An interface that is listed several times has as many links by
/// each route.
fn slots(found: Vec<Interface>, routes: usize) -> Vec<(Slot, Interface)> {
    let mut counts: BTreeMap<NonZeroU32, usize> = BTreeMap::new();
    let of = |interface: Interface| {
        let count = counts.entry(interface.index).or_default();
        *count += 1;
        let (index, count) = (interface.index, *count);
        (0..routes).map(move |route| ((index, count, route), interface.clone()))
    };
    found.into_iter().flat_map(of).take(MAX_LINKS).collect()
}

/// Waits until the interfaces have changed, or what is allowed of them.
async fn changed(uplinks: Option<&Uplinks>, changes: &mut Option<Changes>) {
    match (uplinks, changes.as_mut()) {
        (Some(uplinks), _) => uplinks.changed().await,
        (None, Some(heard)) => {
            if heard.next().await.is_err() {
                *changes = None;
            }
        }
        (None, None) => pending().await,
    }
}
