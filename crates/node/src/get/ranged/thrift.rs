//! Paths by interfaces that cost wait until the time that the user gave cannot be met without them.

use super::Ranged;
use crate::get::request::Dear;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_bond::{Offer, begins};
use thalweg_units::{ByteSize, PathId, Rate};
use tokio::time::Instant;

/// What is in use is measured over so long; before, nothing is decided.
const SPAN: Duration = Duration::from_secs(2);

/// Paths that are not used yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    dear: BTreeMap<PathId, Dear>,
    /// When all is to be there.
    until: Option<Instant>,
    /// When how many bytes had come, over the last [`SPAN`].
    looks: VecDeque<(Instant, u64)>,
}

impl Waiting {
    /// What the request says of these paths.
    pub(super) fn of(request: &crate::get::Request) -> Self {
        let Some(thrift) = &request.thrift else { return Self::default() };
        Self {
            dear: thrift.dear.iter().map(|(path, dear)| (PathId(*path), *dear)).collect(),
            until: Some(thrift.until.into()),
            looks: VecDeque::new(),
        }
    }

    /// Whether a path is not to be used yet.
    pub(super) fn holds(&self, path: PathId) -> bool {
        self.dear.contains_key(&path)
    }

    /// The paths that must begin now; they wait no more.
    fn due(&mut self, done: u64, missing: u64, now: Instant) -> bool {
        let Some(until) = self.until.filter(|_| !self.dear.is_empty()) else { return false };
        self.looks.push_back((now, done));
        while self.looks.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= SPAN) {
            self.looks.pop_front();
        }
        let Some((since, before)) = self.looks.front().copied() else { return false };
        let took = now.duration_since(since);
        let left = until.saturating_duration_since(now);
        if took < SPAN && left > 2 * SPAN {
            return false;
        }
        let free = Rate::over(ByteSize::from_bytes(done.saturating_sub(before)), took);
        let offer = |dear: &Dear| Offer { rate: dear.expected, price: dear.price, left: None };
        let offers: Vec<Offer> = self.dear.values().map(offer).collect();
        let begin = begins(free, &offers, missing, left);
        let waiting = self.dear.len();
        let mut begin = begin.into_iter();
        self.dear.retain(|_, _| !begin.next().unwrap_or(true));
        if self.dear.len() < waiting {
            // Their rates count from now on.
            self.looks.clear();
        }
        self.dear.len() < waiting
    }

    /// Nothing else works any more.
    fn all(&mut self) -> bool {
        !std::mem::take(&mut self.dear).is_empty()
    }
}

impl Ranged<'_, '_> {
    /// Looks whether what costs must begin.
    pub(super) fn economize(&mut self) {
        let done = self.meter.done();
        let missing = self.sources.pinned().length.saturating_sub(done);
        if self.waiting.due(done, missing, Instant::now()) {
            self.join_connected();
        }
    }

    /// Nothing but what costs is left; whether there is any.
    pub(super) fn spend(&mut self) -> bool {
        let is_any = self.waiting.all();
        if is_any {
            self.join_connected();
        }
        is_any
    }
}
