//! A simulation of a source, its ring and its children, in ticks: each socket takes a number of bytes per tick, and
//! messages of children arrive some ticks later. Any K distinct symbols solve a block.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};
use thalweg_fountain::{ChildId, Emission, EmissionSettings, Geometry, RING_BYTES, Ring};

/// Ticks until a child's message arrives at the source.
const DELAY: u64 = 3;

/// Bytes of a frame's header: block, ESI, and four more.
const HEADER: usize = 12;

/// The ESI of a question about a block.
const ASK: u32 = u32::MAX;

/// A child's message.
enum Said {
    Done(u32),
    Lacks(u32, Vec<u32>),
}

/// A receiver below the ring.
#[derive(Clone, Debug, Default)]
pub struct Child {
    buffer: Vec<u8>,
    open: BTreeMap<u32, BTreeSet<u32>>,
    done: BTreeSet<u32>,
    pub symbols: u64,
    /// Those of them that were of no use.
    pub useless: u64,
    /// The tick in which it had all blocks.
    pub finished: Option<u64>,
}

impl Child {
    /// Takes bytes. Returns its messages.
    fn take(&mut self, bytes: &[u8], geometry: &Geometry) -> Vec<Said> {
        self.buffer.extend_from_slice(bytes);
        let size = HEADER + geometry.symbol_bytes() as usize;
        let whole = self.buffer.len() / size * size;
        let frames: Vec<u8> = self.buffer.drain(..whole).collect();
        frames.chunks_exact(size).filter_map(|frame| self.symbol(frame, geometry)).collect()
    }

    fn symbol(&mut self, frame: &[u8], geometry: &Geometry) -> Option<Said> {
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four"));
        let (block, esi) = (word(0), word(4));
        if esi == ASK {
            let is_open = !self.done.contains(&block);
            return is_open.then(|| Said::Lacks(block, self.lacks(block, geometry)));
        }
        self.symbols += 1;
        let fresh = !self.done.contains(&block) && self.open.entry(block).or_default().insert(esi);
        self.useless += u64::from(!fresh);
        let have = self.open.get(&block).map_or(0, BTreeSet::len);
        if fresh && have == geometry.source_symbols_of(block) as usize {
            self.open.remove(&block);
            self.done.insert(block);
            return Some(Said::Done(block));
        }
        None
    }

    /// The source symbols of a block that it lacks.
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
    /// Children's messages: when they arrive, from which child, and the message.
    said: VecDeque<(u64, usize, Said)>,
    /// Which child was asked about which block.
    asked: BTreeSet<(usize, u32)>,
}

impl Cast {
    /// Creates a cast to children that take these numbers of bytes per tick.
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
            asked: BTreeSet::new(),
        }
    }

    /// Runs until all children have everything, at most this many ticks.
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
            let Some((_, child, said)) = self.said.pop_front() else { return };
            let id = ChildId(child as u64);
            match said {
                Said::Done(block) if self.ring.finish(id, block) => self.emission.finish(block),
                Said::Done(_) => {}
                Said::Lacks(block, esis) => {
                    self.asked.remove(&(child, block));
                    let have = self.children[child].1.open.get(&block).map_or(0, BTreeSet::len);
                    let need = self.geometry.source_symbols_of(block) - have as u32;
                    self.ring.lacks(id, block, need, esis.iter().copied(), false);
                    self.emission.lacks(block, need, esis.into_iter());
                }
            }
        }
    }

    /// Fills the ring at the pace of the fastest child.
    fn fill(&mut self) -> bool {
        self.ask();
        let (mut filled, ahead) = (false, self.ring.capacity() / 2);
        while self.ring.least_backlog().is_some_and(|least| least <= ahead) {
            let ring = &self.ring;
            let Some(id) = self.emission.next(&mut self.rng, |block| ring.feasible(block, ahead))
            else {
                break;
            };
            self.ring.push(id, self.frame(id.block, id.esi), &Arc::default()).expect("fits");
            filled = true;
        }
        filled
    }

    fn ask(&mut self) {
        for block in self.emission.spent().collect::<Vec<_>>() {
            for child in 0..self.children.len() {
                let id = ChildId(child as u64);
                if !self.ring.is_done(id, block) && self.asked.insert((child, block)) {
                    self.ring.ask(id, block, self.frame(block, ASK));
                }
            }
        }
    }

    fn frame(&self, block: u32, esi: u32) -> Arc<Vec<u8>> {
        let mut frame = vec![0; HEADER + self.geometry.symbol_bytes() as usize];
        frame[..4].copy_from_slice(&block.to_be_bytes());
        frame[4..8].copy_from_slice(&esi.to_be_bytes());
        Arc::new(frame)
    }

    /// Lets each socket take what it can. Returns whether any took something.
    fn drain(&mut self, budgets: &mut [u64], now: u64) -> bool {
        let mut any = false;
        for (at, (_, child)) in self.children.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            while budgets[at] > 0 {
                let Some((piece, from)) = self.ring.offer(ChildId(at as u64), 0).into_iter().next()
                else {
                    break;
                };
                let now = (piece.len() - from).min(budgets[at] as usize);
                self.ring.record_taken(ChildId(at as u64), now);
                bytes.extend_from_slice(&piece[from..from + now]);
                budgets[at] -= now as u64;
            }
            any |= !bytes.is_empty();
            for said in child.take(&bytes, &self.geometry) {
                self.said.push_back((now + DELAY, at, said));
            }
            if child.done.len() as u32 == self.geometry.blocks() {
                child.finished.get_or_insert(now + 1);
            }
        }
        any
    }
}
