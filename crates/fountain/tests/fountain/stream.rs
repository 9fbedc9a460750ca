//! A source, its ring and its children, in ticks: sockets take so many bytes a tick, and
//! what children say arrives some ticks later. Blocks are solved by any K distinct symbols.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thalweg_fountain::{ChildId, Emission, EmissionSettings, Geometry, RING_BYTES, Ring, SymbolId};

/// Ticks until the source hears of a block that is done.
const DELAY: u64 = 3;

/// Bytes of a frame's header: block and ESI, and some.
const HEADER: usize = 12;

/// A receiver below the ring.
#[derive(Clone, Debug, Default)]
pub struct Child {
    buffer: Vec<u8>,
    open: BTreeMap<u32, BTreeSet<u32>>,
    done: BTreeSet<u32>,
    /// Symbols received.
    pub symbols: u64,
    /// Of them, those that were of no use.
    pub useless: u64,
    /// The tick in which it had everything.
    pub finished: Option<u64>,
}

impl Child {
    /// Takes bytes; blocks that became complete.
    fn take(&mut self, bytes: &[u8], geometry: &Geometry) -> Vec<u32> {
        self.buffer.extend_from_slice(bytes);
        let size = HEADER + geometry.symbol_bytes() as usize;
        let whole = self.buffer.len() / size * size;
        let frames: Vec<u8> = self.buffer.drain(..whole).collect();
        frames.chunks_exact(size).filter_map(|frame| self.symbol(frame, geometry)).collect()
    }

    fn symbol(&mut self, frame: &[u8], geometry: &Geometry) -> Option<u32> {
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"));
        let (block, esi) = (word(0), word(4));
        self.symbols += 1;
        let fresh = !self.done.contains(&block) && self.open.entry(block).or_default().insert(esi);
        self.useless += u64::from(!fresh);
        let have = self.open.get(&block).map_or(0, BTreeSet::len);
        if fresh && have == geometry.source_symbols_of(block) as usize {
            self.open.remove(&block);
            self.done.insert(block);
            return Some(block);
        }
        None
    }

    /// Source symbols of a block that it lacks.
    fn lacks(&self, block: u32, geometry: &Geometry) -> Vec<u32> {
        let have = self.open.get(&block);
        let lacks = |esi: &u32| !have.is_some_and(|have| have.contains(esi));
        (0..geometry.source_symbols_of(block)).filter(lacks).collect()
    }
}

/// A cast through one ring.
pub struct Cast {
    geometry: Geometry,
    ring: Ring,
    emission: Emission,
    rng: Xoshiro256PlusPlus,
    children: Vec<(u64, Child)>,
    /// What children said: when it is heard, who, which block.
    said: VecDeque<(u64, usize, u32)>,
    frame: Vec<u8>,
}

impl Cast {
    /// To children that take these bytes a tick.
    pub fn new(geometry: Geometry, rates: &[u64], seed: u64) -> Self {
        let mut ring = Ring::new(&geometry, RING_BYTES, HEADER).expect("room");
        (0..rates.len() as u64).for_each(|id| ring.join(ChildId(id)));
        Self {
            geometry,
            ring,
            emission: Emission::new(geometry, EmissionSettings::default()),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            children: rates.iter().map(|rate| (*rate, Child::default())).collect(),
            said: VecDeque::new(),
            frame: vec![0; HEADER + geometry.symbol_bytes() as usize],
        }
    }

    /// Until all have everything, at most so many ticks.
    pub fn run(mut self, ticks: u64) -> Vec<Child> {
        for now in 0..ticks {
            self.hear(now);
            let mut budgets: Vec<u64> = self.children.iter().map(|(rate, _)| *rate).collect();
            while self.fill() | self.drain(&mut budgets, now) {}
            if self.children.iter().all(|(_, child)| child.finished.is_some()) {
                break;
            }
        }
        self.children.into_iter().map(|(_, child)| child).collect()
    }

    fn hear(&mut self, now: u64) {
        while self.said.front().is_some_and(|said| said.0 <= now) {
            let Some((_, child, block)) = self.said.pop_front() else { return };
            if self.ring.done(ChildId(child as u64), block) {
                self.emission.done(block);
            }
        }
    }

    /// The source fills the ring at the pace of the fastest child.
    fn fill(&mut self) -> bool {
        let mut filled = false;
        while self.ring.any_drained() {
            let ring = &self.ring;
            let Some(id) = self.emission.next(&mut self.rng, |block| ring.feasible(block)) else {
                break;
            };
            if self.emission.needs_lacked(id.block) {
                self.emission.lacked(id.block, self.lacked(id.block));
            }
            self.push(id);
            filled = true;
        }
        filled
    }

    /// What children lack of a block, that most of them lack first.
    fn lacked(&self, block: u32) -> Vec<u32> {
        let mut counts = BTreeMap::new();
        for (_, child) in self.children.iter().filter(|(_, child)| !child.done.contains(&block)) {
            child
                .lacks(block, &self.geometry)
                .iter()
                .for_each(|esi| *counts.entry(*esi).or_insert(0) += 1);
        }
        let mut lacked: Vec<(i32, u32)> = counts.into_iter().map(|(esi, n)| (-n, esi)).collect();
        lacked.sort_unstable();
        lacked.into_iter().map(|(_, esi)| esi).collect()
    }

    fn push(&mut self, id: SymbolId) {
        self.frame[..4].copy_from_slice(&id.block.to_be_bytes());
        self.frame[4..8].copy_from_slice(&id.esi.to_be_bytes());
        self.ring.push(id, &self.frame).expect("fits");
    }

    /// Each socket takes what it can; whether any took something.
    fn drain(&mut self, budgets: &mut [u64], now: u64) -> bool {
        let mut any = false;
        for (at, (_, child)) in self.children.iter_mut().enumerate() {
            let id = ChildId(at as u64);
            let bytes = first(self.ring.pending(id), budgets[at] as usize);
            self.ring.took(id, bytes.len());
            budgets[at] -= bytes.len() as u64;
            any |= !bytes.is_empty();
            for block in child.take(&bytes, &self.geometry) {
                self.said.push_back((now + DELAY, at, block));
            }
            if child.done.len() as u32 == self.geometry.blocks() {
                child.finished.get_or_insert(now + 1);
            }
        }
        any
    }
}

/// The first `n` bytes of these pieces.
fn first<'a>(pieces: impl Iterator<Item = &'a [u8]>, n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        let room = n - bytes.len();
        bytes.extend_from_slice(&piece[..room.min(piece.len())]);
        if room <= piece.len() {
            break;
        }
    }
    bytes
}
