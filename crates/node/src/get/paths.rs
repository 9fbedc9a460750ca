//! The paths of one download, and their tasks.

use super::{
    HttpUrl,
    resource::Resource,
    worker::{Message, Order, Shared, Worker},
};
use std::{ops::Range, sync::Arc};
use thalweg_net::Route;
use thalweg_units::PathId;
use tokio::{sync::mpsc, task::AbortHandle};

/// Reports that wait for the download's own task: two pieces for each of eight
/// paths. A piece is below about 400 kB; the kernel's buffers hold the rest.
const REPORTS: usize = 16;

/// One way to the server.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What users know it by: `direct`, or the relay's `HOST:PORT`.
    pub name: String,
    /// How to dial.
    pub route: Route,
    /// The mirror that this path leads to; `None`: the download's own URL. Bytes of several
    /// mirrors are only mixed where a digest proves the whole.
    pub mirror: Option<HttpUrl>,
}

/// Starts, orders and stops the paths' tasks. Dropping it ends them all.
pub(super) struct Paths {
    shared: Arc<Shared>,
    slots: Vec<Slot>,
    sender: mpsc::Sender<Message>,
    reports: mpsc::Receiver<Message>,
}

struct Slot {
    candidate: Candidate,
    session: u32,
    task: Option<(AbortHandle, mpsc::Sender<Order>)>,
}

impl Paths {
    /// Starts to ask for the object on every path.
    pub(super) fn start(shared: Arc<Shared>, candidates: &[Candidate]) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS);
        let slot = |c: &Candidate| Slot { candidate: c.clone(), session: 0, task: None };
        let slots = candidates.iter().map(slot).collect();
        let mut paths = Self { shared, slots, sender, reports };
        (0..paths.len()).for_each(|i| paths.spawn(PathId(i), true));
        paths
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn name(&self, path: PathId) -> &str {
        self.slots.get(path.0 as usize).map_or("?", |s| s.candidate.name.as_str())
    }

    /// Whether this is the path without relays.
    pub(super) fn is_direct(&self, path: PathId) -> bool {
        self.slots.get(path.0 as usize).is_some_and(|s| s.candidate.route.is_direct())
    }

    /// The next report of any path; `false` if it comes from a task that was stopped.
    pub(super) async fn next(&mut self) -> (Message, bool) {
        loop {
            // We hold a sender: it never ends.
            if let Some(message) = self.reports.recv().await {
                let slot = self.slots.get(message.path.0 as usize);
                let current = slot.is_some_and(|s| s.session == message.session);
                return (message, current);
            }
        }
    }

    /// Has a path fetch `ranges`, on its connection or, if it has none, on a new one.
    pub(super) fn fetch(&mut self, path: PathId, ranges: &[Range<u64>], resource: &Arc<Resource>) {
        let order = || Order { ranges: ranges.to_vec(), resource: Arc::clone(resource) };
        let Some(slot) = self.slots.get(path.0 as usize) else { return };
        if slot.task.as_ref().is_some_and(|(_, orders)| orders.try_send(order()).is_ok()) {
            return;
        }
        self.stop(path);
        self.spawn(path, false);
        if let Some((_, orders)) = self.slots.get(path.0 as usize).and_then(|s| s.task.as_ref()) {
            // A new task's queue has room.
            _ = orders.try_send(order());
        }
    }

    /// Ends a path's task and closes its connection; what it reported and was
    /// not taken yet counts as stale.
    pub(super) fn stop(&mut self, path: PathId) {
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        slot.session += 1;
        if let Some((task, _)) = slot.task.take() {
            task.abort();
        }
    }

    fn spawn(&mut self, path: PathId, probe: bool) {
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            path,
            session: slot.session,
            route: slot.candidate.route.clone(),
            reports: self.sender.clone(),
            connection: None,
        };
        // A path has at most one order at a time.
        let (sender, orders) = mpsc::channel(1);
        slot.task = Some((tokio::spawn(worker.run(probe, orders)).abort_handle(), sender));
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        (0..self.len()).for_each(|i| self.stop(PathId(i)));
    }
}
