//! The paths of one download, and their tasks.

use super::{
    resource::Resource,
    worker::{DownloadState, Message, Order, PathConnection, Report, Start, Worker},
};
use std::{
    num::NonZeroU32,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use thalweg_paths::{candidates::Candidate, url::HttpUrl};
use thalweg_units::PathId;
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

/// The most reports waiting for the download's own task: two pieces for each of eight paths. A piece is below about 400
/// kB; the kernel's buffers hold the rest. When the queue is full, the path stops reading, and TCP's window closes.
const REPORTS: usize = 16;

/// An index into the URLs of a download: 0 is its own, the others are mirrors.
pub(super) type Source = usize;

/// Starts and stops the paths' tasks and gives them orders. Dropping it ends them all.
pub(super) struct Paths {
    shared: Arc<DownloadState>,
    slots: Vec<Slot>,
    /// The URL of each source.
    urls: Vec<HttpUrl>,
    sender: mpsc::Sender<Message>,
    reports: mpsc::Receiver<Message>,
}

struct Slot {
    candidate: Candidate,
    source: Source,
    session: u32,
    task: Option<(AbortHandle, mpsc::Sender<Order>)>,
    stage: PathStage,
    /// Ordered bytes that were not received yet.
    owed: u64,
    /// The time of the task's last report.
    heard: Instant,
}

/// The stage of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathStage {
    Dialling,
    /// Connected at this time, after dialling for this long; no request sent yet.
    Ready(Instant, Duration),
    /// The path's own request for the object has been sent.
    Asking,
    /// The path has answered, or was given an order.
    Known,
}

impl Paths {
    /// Starts all paths. The first path begins as `first` says; each mirror's first path asks what the mirror's object
    /// is; the others connect.
    pub(super) fn start(
        shared: Arc<DownloadState>,
        candidates: &[Candidate],
        first: Start,
    ) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS);
        let mut urls = vec![shared.url.clone()];
        let slots = candidates.iter().map(|c| Slot::new(c, &mut urls)).collect();
        let mut paths = Self { shared, slots, urls, sender, reports };
        for i in 0..paths.len() {
            let source = paths.source(PathId(i));
            let leads = (0..i).all(|j| paths.source(PathId(j)) != source);
            let start = match i {
                0 => first.clone(),
                _ if leads => Start::Probe,
                _ => Start::Connect,
            };
            paths.spawn(PathId(i), start);
        }
        paths
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn all(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.len()).map(PathId)
    }

    pub(super) fn name(&self, path: PathId) -> &str {
        self.slot(path).map_or("?", |s| s.candidate.name.as_str())
    }

    pub(super) fn source(&self, path: PathId) -> Source {
        self.slot(path).map_or(0, |s| s.source)
    }

    /// The number of URLs that the paths lead to.
    pub(super) fn sources(&self) -> usize {
        self.urls.len()
    }

    /// The URL of a source.
    pub(super) fn url(&self, source: Source) -> &HttpUrl {
        self.urls.get(source).unwrap_or(&self.shared.url)
    }

    /// Whether this is a path without relays.
    pub(super) fn is_direct(&self, path: PathId) -> bool {
        self.slot(path).is_some_and(|s| s.candidate.route.is_direct())
    }

    /// Whether the server of any path served a segment as requested.
    pub(super) fn served_segment(&self) -> bool {
        self.shared.served_segment.load(Ordering::Relaxed)
    }

    /// Whether the server serves ranges, according to an answer.
    pub(super) fn offers_ranges(&self) -> bool {
        self.shared.offers_ranges.load(Ordering::Relaxed)
    }

    /// Whether the first answer was shorter than requested.
    pub(super) fn is_clamped(&self) -> bool {
        self.shared.is_clamped.load(Ordering::Relaxed)
    }

    /// Whether the server closes each connection after one answer.
    pub(super) fn are_closed_each(&self) -> bool {
        self.shared.closes.load(Ordering::Relaxed)
    }

    /// Tells the tasks whether there is only one path left, of any server.
    pub(super) fn note_alone(&self, is_alone: bool) {
        self.shared.is_alone.store(is_alone, Ordering::Relaxed);
    }

    /// The kernel index of the interface that the path is bound to; 0 if it is not bound and the kernel chooses.
    pub(super) fn interface(&self, path: PathId) -> u32 {
        let bound = self.slot(path).and_then(|s| s.candidate.route.interface());
        bound.map_or(0, NonZeroU32::get)
    }

    /// Whether the path's first leg is a bond.
    pub(super) fn is_bonded(&self, path: PathId) -> bool {
        self.slot(path).is_some_and(|s| s.candidate.route.is_bonded())
    }

    /// The path whose answer about this source's object counts most: its first path without relays.
    pub(super) fn direct(&self, source: Source) -> Option<PathId> {
        self.all().find(|p| self.source(*p) == source && self.is_direct(*p))
    }

    /// Since when the path has been connected and idle, and how long connecting took.
    pub(super) fn ready(&self, path: PathId) -> Option<(Instant, Duration)> {
        match self.slot(path)?.stage {
            PathStage::Ready(since, took) => Some((since, took)),
            _ => None,
        }
    }

    /// Whether the path's own request for the object has been sent and not answered.
    pub(super) fn is_asking(&self, path: PathId) -> bool {
        self.slot(path).is_some_and(|s| s.stage == PathStage::Asking)
    }

    /// The time since the path's last report.
    pub(super) fn silent(&self, path: PathId) -> Duration {
        self.slot(path).map_or(Duration::ZERO, |s| s.heard.elapsed())
    }

    fn slot(&self, path: PathId) -> Option<&Slot> {
        self.slots.get(path.0 as usize)
    }

    /// The next report of any path, and whether it is current: `false` if it comes from a stopped task.
    pub(super) async fn next(&mut self) -> (Message, bool) {
        loop {
            // We hold a sender, so the channel never closes.
            let Some(message) = self.reports.recv().await else { continue };
            let slot = self.slots.get_mut(message.path.0 as usize);
            let slot = slot.filter(|s| s.session == message.session);
            let current = slot.is_some();
            if let Some(slot) = slot {
                slot.note(&message.report);
            }
            return (message, current);
        }
    }

    /// Makes a connected path send its own request for the object.
    pub(super) fn probe(&mut self, path: PathId) {
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        let orders = slot.task.as_ref().map(|(_, orders)| orders);
        if orders.is_some_and(|o| o.try_send(Order::Probe).is_ok()) {
            slot.stage = PathStage::Asking;
        }
    }

    /// Makes a path fetch `ranges`, on its connection or, if it has none, on a new one.
    pub(super) fn fetch(&mut self, path: PathId, ranges: &[Range<u64>], resource: &Arc<Resource>) {
        let order = || Order::Fetch { ranges: ranges.to_vec(), resource: Arc::clone(resource) };
        let Some(slot) = self.slots.get(path.0 as usize) else { return };
        let taken = slot.task.as_ref().is_some_and(|(_, orders)| orders.try_send(order()).is_ok());
        if !taken {
            self.stop(path);
            self.spawn(path, Start::Wait);
        }
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        if let (false, Some((_, orders))) = (taken, &slot.task) {
            // The queue of a new task has room.
            _ = orders.try_send(order());
        }
        slot.stage = PathStage::Known;
        slot.owed = ranges.iter().map(|r| r.end - r.start).sum();
    }

    /// Ends a path's task and closes its connection. Its reports that are still queued count as stale.
    pub(super) fn stop(&mut self, path: PathId) {
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        slot.session += 1;
        slot.owed = 0;
        if let Some((task, _)) = slot.task.take() {
            task.abort();
        }
    }

    /// Ends all tasks. Tasks with no request in progress leave their connections to later downloads.
    pub(super) fn release(mut self) {
        for slot in &mut self.slots {
            let still = matches!(slot.stage, PathStage::Ready(..) | PathStage::Known);
            if still && slot.owed == 0 {
                // Without its order queue the task ends by itself, at the latest when it has read the rest of a body.
                slot.task = None;
            }
        }
    }

    fn spawn(&mut self, path: PathId, start: Start) {
        let Some(slot) = self.slots.get_mut(path.0 as usize) else { return };
        let url = self.urls.get(slot.source).unwrap_or(&self.shared.url).clone();
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            path,
            session: slot.session,
            route: slot.candidate.route.clone(),
            url,
            reports: self.sender.clone(),
            line: PathConnection::default(),
        };
        slot.stage = match start {
            Start::Bytes(_) | Start::Whole | Start::Probe => PathStage::Asking,
            Start::Connect => PathStage::Dialling,
            Start::Wait => PathStage::Known,
        };
        // A path has at most one order at a time, so the queue is never full.
        let (sender, orders) = mpsc::channel(1);
        slot.task = Some((tokio::spawn(worker.run(start, orders)).abort_handle(), sender));
    }
}

impl Slot {
    fn new(candidate: &Candidate, urls: &mut Vec<HttpUrl>) -> Self {
        let source = match &candidate.mirror {
            None => 0,
            Some(url) => urls.iter().position(|u| u == url).unwrap_or_else(|| {
                urls.push(url.clone());
                urls.len() - 1
            }),
        };
        let candidate = candidate.clone();
        Self {
            candidate,
            source,
            session: 0,
            task: None,
            stage: PathStage::Dialling,
            owed: 0,
            heard: Instant::now(),
        }
    }

    /// Updates the stage of the path.
    fn note(&mut self, report: &Report) {
        self.heard = Instant::now();
        match report {
            Report::Connected(took) if self.stage == PathStage::Dialling => {
                self.stage = PathStage::Ready(Instant::now(), *took);
            }
            Report::Answered(..) => self.stage = PathStage::Known,
            Report::Data(_, data) | Report::Verified(_, data) => {
                self.owed = self.owed.saturating_sub(data.len() as u64);
            }
            _ => {}
        }
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        (0..self.len()).for_each(|i| self.stop(PathId(i)));
    }
}
