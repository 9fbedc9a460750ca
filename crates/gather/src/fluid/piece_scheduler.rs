//! Assigns pieces to paths, and tracks which request is out on which path.

use super::{
    super::{Work, reads::fitting},
    meter::PathMeter,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thalweg_files::inventory::{FileNo, Inventory, Piece};
use thalweg_plan::collection::steering::WayId;

/// A copy is requested if it would arrive in less than this part of the time ...
const SOONER: f64 = 0.5;
/// ... and if that saves at least this many seconds.
const SAVES: f64 = 0.5;

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestNo(u64);

/// Pieces that are requested together, on one path or, at the end, on two.
#[derive(Clone, Debug)]
struct PieceRequest {
    source: u32,
    /// The pieces that have not arrived.
    pieces: Vec<Piece>,
    bytes: u64,
    holders: Vec<WayId>,
}

/// The result of a request for a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceFate {
    Arrived,
    /// Its file will never arrive.
    Unavailable,
    /// It must be requested again.
    Retry,
}

/// The work and the outstanding requests. Pure; its lock is held only briefly.
#[derive(Debug)]
pub(super) struct PieceScheduler {
    inventory: Arc<Inventory>,
    work: Work,
    out: BTreeMap<RequestNo, PieceRequest>,
    /// Files that will not arrive.
    never: BTreeSet<FileNo>,
    next: u64,
    /// The paths in use.
    ways: BTreeMap<WayId, ActivePath>,
    /// Bytes received twice.
    twice: u64,
}

/// A path in use.
#[derive(Debug)]
struct ActivePath {
    source: u32,
    /// Its share of the source's remaining data by the steering: 0 to 1.
    weight: f64,
    meter: Arc<PathMeter>,
}

impl PieceScheduler {
    pub(super) fn new(inventory: Arc<Inventory>) -> Self {
        Self {
            work: Work::new(&inventory),
            inventory,
            out: BTreeMap::new(),
            never: BTreeSet::new(),
            next: 0,
            ways: BTreeMap::new(),
            twice: 0,
        }
    }

    /// Bytes of a source that are not here.
    pub(super) fn remaining(&self, source: u32) -> u64 {
        self.work.remaining(source)
    }

    /// Bytes of a source that have not been requested.
    pub(super) fn waiting(&self, source: u32) -> u64 {
        self.work.waiting(source)
    }

    /// The share of the source's waiting data that a path may take, 0 to 1.
    pub(super) fn share(&self, way: WayId) -> f64 {
        let Some(fetching) = self.ways.get(&way) else { return 0.0 };
        let of_source = self.ways.values().filter(|other| other.source == fetching.source);
        let all: f64 = of_source.map(|other| other.weight).sum();
        if all > 0.0 { fetching.weight / all } else { 1.0 }
    }

    /// Adds a path; `weight` is its share of the source's data, 0 to 1.
    pub(super) fn join(&mut self, way: WayId, source: u32, weight: f64, meter: Arc<PathMeter>) {
        self.ways.insert(way, ActivePath { source, weight, meter });
    }

    /// Changes the share of a path.
    pub(super) fn weigh(&mut self, way: WayId, weight: f64) {
        if let Some(fetching) = self.ways.get_mut(&way) {
            fetching.weight = weight;
        }
    }

    /// Bytes received twice, as copies of data that another path brought as well.
    pub(super) fn twice(&self) -> u64 {
        self.twice
    }

    /// Counts bytes that arrived again although they were no longer needed.
    pub(super) fn came_again(&mut self, bytes: u64) {
        self.twice += bytes;
    }

    /// Whether a piece of a request is still missing, so that no other path has brought it.
    pub(super) fn awaits(&self, number: RequestNo, piece: &Piece) -> bool {
        self.out.get(&number).is_some_and(|request| request.pieces.contains(piece))
    }

    /// Removes a path: the pieces that it alone should bring wait again.
    pub(super) fn leave(&mut self, way: WayId) {
        self.ways.remove(&way);
        let held = self.out.iter().filter(|(_, request)| request.holders.contains(&way));
        let held: Vec<RequestNo> = held.map(|(number, _)| *number).collect();
        // In reverse, so that they wait in their original order.
        held.into_iter().rev().for_each(|number| self.release(number, way));
    }

    /// Takes the next request of a path, of at most `most` bytes; `None` if nothing waits.
    pub(super) fn take(&mut self, way: WayId, most: u64) -> Option<(RequestNo, Vec<Piece>)> {
        let source = self.ways.get(&way)?.source;
        let mut pieces = self.work.take(source, most);
        let fits = fitting(&self.inventory, pieces.iter().map(|piece| piece.file));
        pieces.drain(fits.min(pieces.len())..).rev().for_each(|piece| self.work.give_back(piece));
        if pieces.is_empty() {
            return None;
        }
        let number = RequestNo(self.next);
        self.next += 1;
        let bytes = pieces.iter().map(Piece::bytes).sum();
        let request = PieceRequest { source, pieces: pieces.clone(), bytes, holders: vec![way] };
        self.out.insert(number, request);
        Some((number, pieces))
    }

    /// Copies a request of another path that this idle path would deliver much sooner: the one that would arrive last.
    pub(super) fn copy(&mut self, way: WayId) -> Option<(RequestNo, Vec<Piece>)> {
        let ActivePath { source, meter, .. } = self.ways.get(&way)?;
        let rate = meter.rate();
        let late = self.out.iter().filter(|(_, request)| request.source == *source);
        let late = late.filter_map(|(number, request)| match request.holders[..] {
            [holder] if holder != way => Some((*number, self.arrives_in(*number, holder), request)),
            _ => None,
        });
        let sooner = late.filter(|(_, then, request)| {
            let here = request.bytes as f64 / rate.max(1.0);
            here < SOONER * then && then - here > SAVES
        });
        let (number, ..) = sooner.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let request = self.out.get_mut(&number)?;
        request.holders.push(way);
        Some((number, request.pieces.clone()))
    }

    /// Seconds until a request is answered: the path delivers the earlier requests first.
    fn arrives_in(&self, number: RequestNo, holder: WayId) -> f64 {
        let Some(ActivePath { meter, .. }) = self.ways.get(&holder) else { return 0.0 };
        let before = self.out.range(..=number);
        let before = before.filter(|(_, request)| request.holders.first() == Some(&holder));
        let bytes: u64 = before.map(|(_, request)| request.bytes).sum();
        bytes.saturating_sub(meter.front()) as f64 / meter.rate().max(1.0)
    }

    /// Records the results of a request on a path. Returns the files that will never arrive, each only once.
    pub(super) fn settle(
        &mut self,
        way: WayId,
        number: RequestNo,
        fates: impl IntoIterator<Item = (Piece, PieceFate)>,
    ) -> Vec<FileNo> {
        let mut never = Vec::new();
        for (piece, fate) in fates {
            let Some(request) = self.out.get_mut(&number) else { return never };
            let Some(at) = request.pieces.iter().position(|other| *other == piece) else {
                continue;
            };
            if fate == PieceFate::Retry {
                continue;
            }
            request.pieces.swap_remove(at);
            if fate == PieceFate::Unavailable {
                self.work.forget(piece.file);
                never.extend(self.never.insert(piece.file).then_some(piece.file));
            }
            self.work.done(&piece);
        }
        self.release(number, way);
        never
    }

    fn release(&mut self, number: RequestNo, way: WayId) {
        let Some(request) = self.out.get_mut(&number) else { return };
        request.holders.retain(|holder| *holder != way);
        if !request.holders.is_empty() && !request.pieces.is_empty() {
            return;
        }
        if let Some(request) = self.out.remove(&number) {
            for piece in request.pieces.into_iter().rev() {
                // Pieces of a file that will never arrive are not requested again.
                if self.never.contains(&piece.file) {
                    self.work.done(&piece);
                } else {
                    self.work.give_back(piece);
                }
            }
        }
    }
}
