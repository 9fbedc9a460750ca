//! Where a bond's links are to be, and that they are there.

use super::{by::By, making::Making, standing::Standing, status::LinkLife};
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

/// How often the interfaces are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The first wait before an interface is tried again; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What did not come about in this time is tried by the next tier as well, as whole connections are.
const SLOW: Duration = Duration::from_secs(3);

/// An interface has answered for so long before those that took its place are let go.
const STEADY: Duration = Duration::from_secs(1);

/// Turns that are remembered, also of places that are not there now: one that comes back is to prove itself. An interface
/// that is made anew has another number. Of more the oldest idle place is forgotten, and tried as a
/// new one.
const MOST_TURNS: usize = 4 * MAX_LINKS;

/// An interface, which of the links by it, and which of the routes from it.
type Place = (NonZeroU32, usize, usize);

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It may not be used any more.
    Stopped,
    /// It was there, and is lost.
    Lost,
    /// It did not come about.
    Failed,
}

/// A place's turn after its last link: when it is tried again.
struct Turn {
    wait: Duration,
    at: Instant,
    /// That link was lost, or failed.
    is_bad: bool,
}

/// A link that is there, or is being made.
struct Busy {
    /// By this, as it was then.
    interface: Interface,
    number: u32,
    since: Instant,
    stop: CancellationToken,
}

impl Busy {
    /// Whether the interface is not there any more, or lost an address: a connection is bound to one.
    fn is_lost(&self, found: &[Interface]) -> bool {
        let now = found.iter().find(|now| now.index == self.interface.index);
        now.is_none_or(|now| self.interface.addresses.iter().any(|at| !now.addresses.contains(at)))
    }
}

struct Keeping {
    making: Arc<Making>,
    by: By,
    links: JoinSet<(Place, Outcome)>,
    busy: BTreeMap<Place, Busy>,
    turns: BTreeMap<Place, Turn>,
    /// When nothing was reached by an interface last.
    failed: BTreeMap<u32, Instant>,
    /// Of the next link.
    number: u32,
}

/// Keeps a link in each place, for ever.
pub(super) async fn keep(making: Arc<Making>, by: By) {
    let mut keeping = Keeping {
        making,
        by,
        links: JoinSet::new(),
        busy: BTreeMap::new(),
        turns: BTreeMap::new(),
        failed: BTreeMap::new(),
        number: 0,
    };
    // Without the kernel's word interfaces are looked at each second.
    let mut changes = match keeping.by.uplinks() {
        // Who follows them anyway tells.
        Some(_) => None,
        None => Changes::watch().ok(),
    };
    loop {
        keeping.look();
        tokio::select! {
            Some(ended) = keeping.links.join_next() => keeping.ended(ended),
            () = changed(keeping.by.uplinks(), &mut changes) => {}
            () = keeping.making.engine.fell_silent() => {}
            () = sleep(LOOK) => {}
        }
    }
}

impl Keeping {
    /// Ends what may not be used any more, and begins what is to be.
    fn look(&mut self) {
        let failing = self.failing();
        // What cannot be listed now can be in a second.
        let found = match self.by.now(&failing) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("this host's interfaces cannot be listed: {why}");
                self.making.standing.send_if_modified(|standing| standing.is_lost(&why));
                return;
            }
        };
        let is_there = |name: &str| found.iter().any(|interface| interface.name == name);
        self.making.standing.send_if_modified(|standing| standing.keeps(is_there));
        self.busy.values().filter(|link| link.is_lost(&found)).for_each(|link| link.stop.cancel());
        let places = places(found, self.making.routes.len());
        self.making.wants(places.len());
        for (place, interface) in places {
            let is_due = self.turns.get(&place).is_none_or(|turn| Instant::now() >= turn.at);
            if is_due && !self.busy.contains_key(&place) {
                self.begin(place, interface);
            }
        }
    }

    fn begin(&mut self, place: Place, interface: Interface) {
        let (making, number) = (Arc::clone(&self.making), self.number);
        self.number += 1;
        let (stop, by) = (CancellationToken::new(), interface.clone());
        let until = stop.clone();
        let busy = Busy { interface, number, since: Instant::now(), stop };
        self.busy.insert(place, busy);
        self.making.standing.send_modify(Standing::begins);
        self.links.spawn(async move { (place, making.link((&by, place.2), number, until).await) });
    }

    fn ended(&mut self, ended: Result<(Place, Outcome), JoinError>) {
        // A link's task does not panic; if one did, its place is not tried again.
        let Ok((place, outcome)) = ended else { return };
        self.busy.remove(&place);
        let before = self.turns.get(&place).map_or(FIRST_WAIT, |turn| turn.wait * 2);
        let wait = match outcome {
            Outcome::Stopped | Outcome::Lost => FIRST_WAIT,
            Outcome::Failed => before.min(LONGEST_WAIT),
        };
        let is_bad = outcome != Outcome::Stopped;
        self.turns.insert(place, Turn { wait, at: Instant::now() + wait, is_bad });
        if self.turns.len() > MOST_TURNS {
            let idle = self.turns.iter().filter(|(place, _)| !self.busy.contains_key(place));
            let oldest = idle.min_by_key(|(_, turn)| turn.at).map(|(place, _)| *place);
            oldest.map(|place| self.turns.remove(&place));
        }
    }

    /// The interfaces by which nothing is reached, or was not a moment ago.
    fn failing(&mut self) -> BTreeSet<u32> {
        let links = self.making.engine.links();
        let answers = |busy: &Busy| {
            links.iter().any(|link| link.link == busy.number && link.life != LinkLife::Silent)
        };
        let is_bad = |place: &Place| self.turns.get(place).is_some_and(|turn| turn.is_bad);
        let is_made = |place: &Place, busy: &Busy| {
            let is_there = links.iter().any(|link| link.link == busy.number);
            !is_there && !is_bad(place) && busy.since.elapsed() < SLOW
        };
        let good = self.busy.iter().filter(|(place, busy)| answers(busy) || is_made(place, busy));
        let good: BTreeSet<NonZeroU32> = good.map(|(place, _)| place.0).collect();
        let lost = self.turns.keys().filter(|place| is_bad(place));
        let tried = self.busy.keys().chain(lost).map(|place| place.0);
        let now = Instant::now();
        let bad = tried.filter(|index| !good.contains(index)).map(|index| (index.get(), now));
        let bad: Vec<_> = bad.collect();
        self.failed.extend(bad);
        self.failed.retain(|_, at| now.duration_since(*at) < STEADY);
        self.failed.keys().copied().collect()
    }
}

/// Where links are to be: by each of so many routes from each interface; one that is listed several times has as
/// many.
fn places(found: Vec<Interface>, routes: usize) -> Vec<(Place, Interface)> {
    let mut counts: BTreeMap<NonZeroU32, usize> = BTreeMap::new();
    let of = |interface: Interface| {
        let count = counts.entry(interface.index).or_default();
        *count += 1;
        let (index, count) = (interface.index, *count);
        (0..routes).map(move |route| ((index, count, route), interface.clone()))
    };
    found.into_iter().flat_map(of).take(MAX_LINKS).collect()
}

/// Waits until interfaces have changed, or what is allowed of them.
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
