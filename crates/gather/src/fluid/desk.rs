//! Who has asked for what.

use super::{
    super::{Work, reads::fitting},
    meter::Meter,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thalweg_files::inventory::{FileNo, Inventory, Piece};
use thalweg_plan::collection::steering::WayId;

/// A copy is asked for where it would come in less than this part of the time.
const SOONER: f64 = 0.5;
/// And only if that saves so much, s.
const SAVES: f64 = 0.5;

/// A request's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ParcelNo(u64);

/// Pieces that are asked for together, at one way or, at the end, at two.
#[derive(Clone, Debug)]
struct Parcel {
    source: u32,
    /// What has not come yet.
    pieces: Vec<Piece>,
    bytes: u64,
    holders: Vec<WayId>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is here.
    Came,
    /// Its file will never come.
    Never,
    /// It is to be asked for again.
    Again,
}

/// The work, and the requests that are out. Pure; held for a few instructions only.
#[derive(Debug)]
pub(super) struct Desk {
    inventory: Arc<Inventory>,
    work: Work,
    out: BTreeMap<ParcelNo, Parcel>,
    /// Files that will not come.
    never: BTreeSet<FileNo>,
    next: u64,
    /// The ways that fetch.
    ways: BTreeMap<WayId, Fetching>,
    /// Bytes that came a second time.
    twice: u64,
}

/// A way that fetches.
#[derive(Debug)]
struct Fetching {
    source: u32,
    /// Its share of what the source has left, by the steering: 0 to 1.
    weight: f64,
    meter: Arc<Meter>,
}

impl Desk {
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

    /// Bytes of a source that nobody has asked for.
    pub(super) fn waiting(&self, source: u32) -> u64 {
        self.work.waiting(source)
    }

    /// What a way may take of what waits at its source.
    pub(super) fn share(&self, way: WayId) -> f64 {
        let Some(fetching) = self.ways.get(&way) else { return 0.0 };
        let of_source = self.ways.values().filter(|other| other.source == fetching.source);
        let all: f64 = of_source.map(|other| other.weight).sum();
        if all > 0.0 { fetching.weight / all } else { 1.0 }
    }

    /// A way begins to fetch; `weight` is its share of the source's data, 0 to 1.
    pub(super) fn join(&mut self, way: WayId, source: u32, weight: f64, meter: Arc<Meter>) {
        self.ways.insert(way, Fetching { source, weight, meter });
    }

    /// Its share is another one now.
    pub(super) fn weigh(&mut self, way: WayId, weight: f64) {
        if let Some(fetching) = self.ways.get_mut(&way) {
            fetching.weight = weight;
        }
    }

    /// Bytes that came a second time, as copies of what another way brought as well.
    pub(super) fn twice(&self) -> u64 {
        self.twice
    }

    /// Bytes that nobody needs any more came once more.
    pub(super) fn came_again(&mut self, bytes: u64) {
        self.twice += bytes;
    }

    /// Whether a piece of a request is still to come: no other way has brought it.
    pub(super) fn awaits(&self, number: ParcelNo, piece: &Piece) -> bool {
        self.out.get(&number).is_some_and(|parcel| parcel.pieces.contains(piece))
    }

    /// A way is no more: what it alone was to bring waits again.
    pub(super) fn leave(&mut self, way: WayId) {
        self.ways.remove(&way);
        let held = self.out.iter().filter(|(_, parcel)| parcel.holders.contains(&way));
        let held: Vec<ParcelNo> = held.map(|(number, _)| *number).collect();
        // In reverse, so that they wait in their order.
        held.into_iter().rev().for_each(|number| self.release(number, way));
    }

    /// The next request of a way, of at most so many bytes; `None`: nothing waits.
    pub(super) fn take(&mut self, way: WayId, most: u64) -> Option<(ParcelNo, Vec<Piece>)> {
        let source = self.ways.get(&way)?.source;
        let mut pieces = self.work.take(source, most);
        let fits = fitting(&self.inventory, pieces.iter().map(|piece| piece.file));
        pieces.drain(fits.min(pieces.len())..).rev().for_each(|piece| self.work.give_back(piece));
        if pieces.is_empty() {
            return None;
        }
        let number = ParcelNo(self.next);
        self.next += 1;
        let bytes = pieces.iter().map(Piece::bytes).sum();
        let parcel = Parcel { source, pieces: pieces.clone(), bytes, holders: vec![way] };
        self.out.insert(number, parcel);
        Some((number, pieces))
    }

    /// A request of another way that this one, which has nothing to do, would bring much sooner; the
    /// one that would come last.
    pub(super) fn copy(&mut self, way: WayId) -> Option<(ParcelNo, Vec<Piece>)> {
        let Fetching { source, meter, .. } = self.ways.get(&way)?;
        let rate = meter.rate();
        let late = self.out.iter().filter(|(_, parcel)| parcel.source == *source);
        let late = late.filter_map(|(number, parcel)| match parcel.holders[..] {
            [holder] if holder != way => Some((*number, self.comes_in(*number, holder), parcel)),
            _ => None,
        });
        let sooner = late.filter(|(_, then, parcel)| {
            let here = parcel.bytes as f64 / rate.max(1.0);
            here < SOONER * then && then - here > SAVES
        });
        let (number, ..) = sooner.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let parcel = self.out.get_mut(&number)?;
        parcel.holders.push(way);
        Some((number, parcel.pieces.clone()))
    }

    /// When a request is answered: the way brings the earlier ones first; s.
    fn comes_in(&self, number: ParcelNo, holder: WayId) -> f64 {
        let Some(Fetching { meter, .. }) = self.ways.get(&holder) else { return 0.0 };
        let before = self.out.range(..=number);
        let before = before.filter(|(_, parcel)| parcel.holders.first() == Some(&holder));
        let bytes: u64 = before.map(|(_, parcel)| parcel.bytes).sum();
        bytes.saturating_sub(meter.front()) as f64 / meter.rate().max(1.0)
    }

    /// What a way brought of a request; files that will never come, each once.
    pub(super) fn settle(
        &mut self,
        way: WayId,
        number: ParcelNo,
        fates: impl IntoIterator<Item = (Piece, Fate)>,
    ) -> Vec<FileNo> {
        let mut never = Vec::new();
        for (piece, fate) in fates {
            let Some(parcel) = self.out.get_mut(&number) else { return never };
            let Some(at) = parcel.pieces.iter().position(|other| *other == piece) else { continue };
            if fate == Fate::Again {
                continue;
            }
            parcel.pieces.swap_remove(at);
            if fate == Fate::Never {
                self.work.forget(piece.file);
                never.extend(self.never.insert(piece.file).then_some(piece.file));
            }
            self.work.done(&piece);
        }
        self.release(number, way);
        never
    }

    fn release(&mut self, number: ParcelNo, way: WayId) {
        let Some(parcel) = self.out.get_mut(&number) else { return };
        parcel.holders.retain(|holder| *holder != way);
        if !parcel.holders.is_empty() && !parcel.pieces.is_empty() {
            return;
        }
        if let Some(parcel) = self.out.remove(&number) {
            for piece in parcel.pieces.into_iter().rev() {
                // Of a file that will not come nothing is asked for again.
                if self.never.contains(&piece.file) {
                    self.work.done(&piece);
                } else {
                    self.work.give_back(piece);
                }
            }
        }
    }
}
