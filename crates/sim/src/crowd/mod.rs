//! Many clients that download at once, as UKAIRO's do: sampling on all paths, then the best.
//!
//! Each download samples the direct path and its relays with equal shares of the file
//! (§3.2.1), for 5 s at most; the path with the highest rate seen fetches the rest. The choice
//! is by what was measured, with noise. Differs from `plan::selection`, on purpose: this is
//! the paper's protocol as flows, not requests; what `get` does better is not in here.

mod download;
mod noise;
#[cfg(test)]
mod tests;

use crate::{
    engine::{Engine, FlowId},
    world::World,
};
use download::Download;
pub use noise::Noise;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

/// How clients download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// A file, Mbit (UKAIRO §4: 40 MB).
    pub size: f64,
    /// Sampling takes this long at most, s (§3.2.1: 5 s).
    pub sampling: f64,
    /// A single transfer is cut off after this, s (§4: 20 s); its rate counts as it was.
    pub cut_off: f64,
    /// What a path gives by a relay of what its legs give: the cost of copying.
    pub relayed: f64,
    /// What a new connection loses at its begin, in round trips of its longer leg at its full
    /// rate: slow start, and what follows it.
    pub ramp: f64,
    /// How rates vary from one download to the next.
    pub noise: Noise,
}

/// What a client downloads, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programme {
    /// Who.
    pub client: usize,
    /// From whom.
    pub servers: Vec<usize>,
}

/// Asked before each download.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who downloads.
    pub client: usize,
    /// From whom.
    pub server: usize,
    /// When, s.
    pub now: f64,
    engine: &'a Engine,
    world: &'a World,
}

impl Ask<'_> {
    /// What a node forwards at this moment, Mbit/s.
    pub fn forwards(&self, node: usize) -> f64 {
        self.engine.load(self.world.forward_link(node))
    }
}

/// Who says by which relays a client tries.
pub trait Choice {
    /// The relays for this download, distinct; none: it goes directly, without sampling.
    fn relays(&mut self, ask: &Ask<'_>) -> Vec<usize>;

    /// Whether paths are sampled, the direct one among them; if not, the first relay is taken
    /// as it is.
    fn samples(&self) -> bool {
        true
    }

    /// A download is over.
    fn ended(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// All go directly.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl Choice for Direct {
    fn relays(&mut self, _: &Ask<'_>) -> Vec<usize> {
        Vec::new()
    }
}

/// How a download went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Who downloaded.
    pub client: usize,
    /// From whom.
    pub server: usize,
    /// The path chosen: a relay, or directly.
    pub relay: Option<usize>,
    /// All that was moved over all the time it took, Mbit/s.
    pub rate: f64,
    /// The rates seen in sampling, Mbit/s, the direct path's first; empty without sampling.
    pub sampled: Vec<(Option<usize>, f64)>,
    /// Began, s.
    pub began: f64,
    /// Ended, s.
    pub ended: f64,
}

impl Outcome {
    /// `d_l(i,j)` of each relay tried, from the rates seen in sampling (UKAIRO Eq. 1).
    pub fn gains(&self) -> Vec<(usize, f64)> {
        let direct = self.sampled.iter().find(|(relay, _)| relay.is_none());
        let Some(&(_, direct)) = direct.filter(|(_, rate)| *rate > 0.0) else { return Vec::new() };
        let gain = |&(relay, rate): &(Option<usize>, f64)| {
            Some((relay?, ((rate - direct) / direct).max(0.0)))
        };
        self.sampled.iter().filter_map(gain).collect()
    }
}

/// What happens at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A path's first byte comes.
    First { download: usize, path: usize },
    /// Sampling ends.
    Sampled { download: usize },
    /// A transfer is cut off.
    CutOff { download: usize },
}

/// A moment as bits that sort like it: from 0 s up.
const fn moment(s: f64) -> u64 {
    s.max(0.0).to_bits()
}

/// Runs all programmes, which begin at 0 s, to their end; what happened, in order of the ends.
pub fn run(
    world: &World,
    settings: &Settings,
    programmes: &[Programme],
    choice: &mut dyn Choice,
) -> Vec<Outcome> {
    let mut crowd = Crowd::new(world, settings, programmes, choice);
    for at in 0..programmes.len() {
        crowd.next_of(at);
    }
    while crowd.step() {}
    crowd.outcomes
}

struct Crowd<'a> {
    world: &'a World,
    settings: &'a Settings,
    programmes: &'a [Programme],
    choice: &'a mut dyn Choice,
    engine: Engine,
    /// How many downloads of each programme have begun.
    begun: Vec<usize>,
    downloads: Vec<Download>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// Whose path a flow is.
    flows: BTreeMap<FlowId, (usize, usize)>,
    outcomes: Vec<Outcome>,
}

impl<'a> Crowd<'a> {
    fn new(
        world: &'a World,
        settings: &'a Settings,
        programmes: &'a [Programme],
        choice: &'a mut dyn Choice,
    ) -> Self {
        Self {
            world,
            settings,
            programmes,
            choice,
            engine: world.engine(),
            begun: vec![0; programmes.len()],
            downloads: Vec::new(),
            timers: BinaryHeap::new(),
            flows: BTreeMap::new(),
            outcomes: Vec::new(),
        }
    }

    /// Goes to the next event; false: there is none.
    fn step(&mut self) -> bool {
        let timer = self.timers.peek().map(|Reverse((at, _))| f64::from_bits(*at));
        let timer = timer.unwrap_or(f64::INFINITY);
        if timer.min(self.engine.next_end()).is_infinite() {
            return false;
        }
        let ended = self.engine.advance(timer);
        if ended.is_empty()
            && let Some(Reverse((_, timer))) = self.timers.pop()
        {
            self.fire(timer);
        }
        for flow in ended {
            if let Some((download, path)) = self.flows.remove(&flow) {
                self.delivered(download, path);
            }
        }
        true
    }

    fn set(&mut self, after: f64, timer: Timer) {
        self.timers.push(Reverse((moment(self.engine.now() + after), timer)));
    }
}
