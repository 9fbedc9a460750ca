//! Many clients that download at once, as UKAIRO's do: they sample all paths, then use the best.
//!
//! Each download samples the direct path and its relays with equal shares of the file (§3.2.1), for at most 5 s; the
//! path with the highest measured rate fetches the rest. Measurements are noisy. Differs from `plan::selection`, on
//! purpose: this is the paper's protocol as flows, not requests, without the improvements in `get`.

#[cfg(test)]
mod tests;

use crate::{
    engine::{Engine, Flow, FlowId},
    random,
    world::{Path, World},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

/// How clients download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The size of a file, Mbit (UKAIRO §4: 40 MB).
    pub size: f64,
    /// The longest time of sampling, s (§3.2.1: 5 s).
    pub sampling: f64,
    /// The time after which a single transfer is cut off, s (§4: 20 s); its rate counts as it was.
    pub cut_off: f64,
    /// The rate of a relayed path relative to that of its legs: the cost of copying.
    pub relayed: f64,
    /// What a new connection loses at its start, by slow start and its aftermath, in round trips of its longer leg at
    /// its full rate.
    pub ramp: f64,
    /// How rates vary from one download to the next.
    pub noise: Noise,
}

/// A client's downloads, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programme {
    pub client: usize,
    /// The servers, in order.
    pub servers: Vec<usize>,
}

/// A request for relays, made before each download.
#[derive(Clone, Copy, Debug)]
pub struct RelayQuery<'a> {
    /// The client that downloads.
    pub client: usize,
    pub server: usize,
    /// The time, s.
    pub now: f64,
    engine: &'a Engine,
    world: &'a World,
}

impl RelayQuery<'_> {
    /// The rate that a node forwards at this moment, Mbit/s.
    pub fn forwarded_rate(&self, node: usize) -> f64 {
        self.engine.load(self.world.forward_link(node))
    }
}

/// Chooses the relays that a client tries.
pub trait RelayChoice {
    /// The relays for this download, all distinct; if there are none, it goes directly, without sampling.
    fn choose_relays(&mut self, query: &RelayQuery<'_>) -> Vec<usize>;

    /// Whether paths are sampled, including the direct one; otherwise the first relay is used without sampling.
    fn is_sampling(&self) -> bool {
        true
    }

    /// Takes the outcome of a finished download.
    fn record_outcome(&mut self, outcome: &DownloadOutcome) {
        let _ = outcome;
    }
}

/// All downloads go directly.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl RelayChoice for Direct {
    fn choose_relays(&mut self, _: &RelayQuery<'_>) -> Vec<usize> {
        Vec::new()
    }
}

/// The outcome of a download.
#[derive(Clone, Debug, PartialEq)]
pub struct DownloadOutcome {
    pub client: usize,
    pub server: usize,
    /// The chosen relay; `None` is the direct path.
    pub relay: Option<usize>,
    /// The mean rate, all bytes over all the time, Mbit/s.
    pub rate: f64,
    /// The rates measured in sampling, Mbit/s, the direct path's first; empty without sampling.
    pub sampled: Vec<(Option<usize>, f64)>,
    /// Its start, s.
    pub began: f64,
    pub ended: f64,
}

impl DownloadOutcome {
    /// `d_l(i,j)` of each relay tried, from the rates measured in sampling (UKAIRO Eq. 1).
    pub fn gains(&self) -> Vec<(usize, f64)> {
        let direct = self.sampled.iter().find(|(relay, _)| relay.is_none());
        let Some(&(_, direct)) = direct.filter(|(_, rate)| *rate > 0.0) else { return Vec::new() };
        let gain = |&(relay, rate): &(Option<usize>, f64)| {
            Some((relay?, ((rate - direct) / direct).max(0.0)))
        };
        self.sampled.iter().filter_map(gain).collect()
    }
}

/// A timed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A path's first byte arrives.
    First { download: usize, path: usize },
    /// Sampling ends.
    Sampled { download: usize },
    /// A transfer is cut off.
    CutOff { download: usize },
}

/// A time as bits that sort in the same order; from 0 s up.
const fn moment(s: f64) -> u64 {
    s.max(0.0).to_bits()
}

/// Runs all programmes, which begin at 0 s, to their end. Returns the outcomes in order of their ends.
pub fn run(
    world: &World,
    settings: &Settings,
    programmes: &[Programme],
    choice: &mut dyn RelayChoice,
) -> Vec<DownloadOutcome> {
    let mut crowd = Crowd::new(world, settings, programmes, choice);
    for at in 0..programmes.len() {
        crowd.start_next(at);
    }
    while crowd.step() {}
    crowd.outcomes
}

struct Crowd<'a> {
    world: &'a World,
    settings: &'a Settings,
    programmes: &'a [Programme],
    choice: &'a mut dyn RelayChoice,
    engine: Engine,
    /// The number of downloads of each programme that have begun.
    begun: Vec<usize>,
    downloads: Vec<Download>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// The (download, path) of each flow.
    flows: BTreeMap<FlowId, (usize, usize)>,
    outcomes: Vec<DownloadOutcome>,
}

impl<'a> Crowd<'a> {
    fn new(
        world: &'a World,
        settings: &'a Settings,
        programmes: &'a [Programme],
        choice: &'a mut dyn RelayChoice,
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

    /// Advances to the next event; false if there is none.
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
            self.handle_timer(timer);
        }
        for flow in ended {
            if let Some((download, path)) = self.flows.remove(&flow) {
                self.handle_completion(download, path);
            }
        }
        true
    }

    fn set_timer(&mut self, after: f64, timer: Timer) {
        self.timers.push(Reverse((moment(self.engine.now() + after), timer)));
    }
}

/// The paths and phases of a download.
impl Crowd<'_> {
    /// Starts the programme's next download, if there is one.
    fn start_next(&mut self, programme: usize) {
        let Some(&server) = self.programmes[programme].servers.get(self.begun[programme]) else {
            return;
        };
        self.begun[programme] += 1;
        let client = self.programmes[programme].client;
        let relays = self.choice.choose_relays(&RelayQuery {
            client,
            server,
            now: self.engine.now(),
            engine: &self.engine,
            world: self.world,
        });
        let direct = Path { server, relay: None, client };
        let detours = relays.into_iter().filter(|&relay| relay != server && relay != client);
        let paths = detours.map(|relay| Path { relay: Some(relay), ..direct });
        let mut paths: Vec<Path> = std::iter::once(direct).chain(paths).collect();
        if !self.choice.is_sampling() {
            paths = vec![paths.get(1).copied().unwrap_or(direct)];
        }
        self.begin_download(programme, paths);
    }

    fn begin_download(&mut self, programme: usize, paths: Vec<Path>) {
        let share = self.settings.size / paths.len() as f64;
        let tries: Vec<Attempt> =
            paths.into_iter().map(|path| self.plan_attempt(path, share)).collect();
        let download = self.downloads.len();
        for (path, each) in tries.iter().enumerate() {
            self.timers.push(Reverse((moment(each.first), Timer::First { download, path })));
        }
        match tries.len() {
            1 => self.set_timer(self.settings.cut_off, Timer::CutOff { download }),
            _ => self.set_timer(self.settings.sampling, Timer::Sampled { download }),
        }
        let chosen = (tries.len() == 1).then_some(0);
        let began = self.engine.now();
        let sampled = Vec::new();
        self.downloads.push(Download { programme, began, tries, chosen, over: false, sampled });
    }

    fn plan_attempt(&self, path: Path, share: f64) -> Attempt {
        let factors = self.settings.noise.factors(self.world, path);
        let first = self.full_rate_time(path);
        Attempt { path, factors, flow: None, first, left: share, share, until: None }
    }

    /// The time from which the bytes of a connection made now arrive at its full rate: the loss by slow start is taken
    /// as a delay.
    fn full_rate_time(&self, path: Path) -> f64 {
        let ramp = self.settings.ramp * self.world.longer_leg_rtt(path);
        self.engine.now() + self.world.delay(path) + ramp
    }

    fn handle_timer(&mut self, timer: Timer) {
        let (Timer::First { download, .. }
        | Timer::Sampled { download }
        | Timer::CutOff { download }) = timer;
        let here = &self.downloads[download];
        if here.over {
            return;
        }
        match timer {
            Timer::First { path, .. } => {
                let each = &here.tries[path];
                // Sampling may have ended before the first byte arrived; the rest comes over a connection of its own.
                if each.flow.is_none() && each.until.is_none() && self.engine.now() >= each.first {
                    self.start_flow(download, path);
                }
            }
            Timer::Sampled { .. } if here.chosen.is_none() => self.choose_path(download),
            Timer::Sampled { .. } => {}
            Timer::CutOff { .. } => self.finish(download),
        }
    }

    /// Starts the flow of a path's remaining bytes.
    fn start_flow(&mut self, download: usize, path: usize) {
        let sampling = self.downloads[download].chosen.is_none();
        let each = &mut self.downloads[download].tries[path];
        let relayed = if each.path.relay.is_some() { self.settings.relayed } else { 1.0 };
        let factor = each.factors[usize::from(!sampling)] * relayed;
        let limit = self.world.way_rate(each.path) * factor;
        let links = self.world.links(each.path);
        let flow = Flow { links, limit, size: each.left };
        if let [id] = self.engine.start([flow])[..] {
            each.flow = Some(id);
            self.flows.insert(id, (download, path));
        }
    }

    /// Handles a path that has completed its share.
    fn handle_completion(&mut self, download: usize, path: usize) {
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        let each = &mut here.tries[path];
        (each.flow, each.left, each.until) = (None, 0.0, Some(now));
        if here.chosen.is_some() {
            self.finish(download);
        } else if here.tries.iter().all(|each| each.until.is_some()) {
            self.choose_path(download);
        }
    }

    /// Ends sampling: the fastest path fetches the rest; direct wins a tie.
    fn choose_path(&mut self, download: usize) {
        self.stop_flows(download);
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        let rate = |each: &Attempt| {
            let took = each.until.unwrap_or(now) - here.began;
            if took > 0.0 { (each.share - each.left) / took } else { 0.0 }
        };
        let rates: Vec<f64> = here.tries.iter().map(rate).collect();
        let best =
            (0..rates.len()).fold(0, |best, at| if rates[at] > rates[best] { at } else { best });
        here.sampled = here.tries.iter().map(|each| each.path.relay).zip(rates).collect();
        here.chosen = Some(best);
        let left: f64 = here.tries.iter_mut().map(|each| std::mem::take(&mut each.left)).sum();
        if left <= 0.0 {
            return self.finish(download);
        }
        let first = self.full_rate_time(self.downloads[download].tries[best].path);
        let chosen = &mut self.downloads[download].tries[best];
        (chosen.left, chosen.first, chosen.until) = (left, first, None);
        self.timers.push(Reverse((moment(first), Timer::First { download, path: best })));
        self.set_timer(self.settings.cut_off, Timer::CutOff { download });
    }

    /// Stops all flows and records what they have left.
    fn stop_flows(&mut self, download: usize) {
        let now = self.engine.now();
        for path in 0..self.downloads[download].tries.len() {
            let each = &mut self.downloads[download].tries[path];
            if let Some(flow) = each.flow.take() {
                self.flows.remove(&flow);
                each.left = self.engine.stop(&[flow]).into_iter().sum();
            }
            each.until.get_or_insert(now);
        }
    }

    fn finish(&mut self, download: usize) {
        self.stop_flows(download);
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        here.over = true;
        let left: f64 = here.tries.iter().map(|each| each.left).sum();
        let chosen = here.tries[here.chosen.unwrap_or(0)].path;
        let outcome = DownloadOutcome {
            client: chosen.client,
            server: chosen.server,
            relay: chosen.relay,
            rate: (self.settings.size - left) / (now - here.began).max(1e-9),
            sampled: std::mem::take(&mut here.sampled),
            began: here.began,
            ended: now,
        };
        here.tries.clear();
        let programme = here.programme;
        self.choice.record_outcome(&outcome);
        self.outcomes.push(outcome);
        self.start_next(programme);
    }
}

/// The variation of rates. It is the same for the same seed, round and path, so that arms that try the same path in the
/// same download see the same rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The seed of the draws.
    pub seed: u64,
    /// The number of the download among those of the same file by the same client.
    pub round: u64,
    /// Deviation of the logarithm from one download to the next.
    pub download: f64,
    /// Deviation of the logarithm between sampling and the rest of one download.
    pub phase: f64,
}

impl Noise {
    /// The factors on a path's rate while it is sampled, and for the rest of the download.
    pub fn factors(&self, world: &World, path: Path) -> [f64; 2] {
        let n = world.nodes() as u64;
        let relay = path.relay.map_or(0, |relay| relay as u64 + 1);
        let index = ((path.server as u64 * n + path.client as u64) * (n + 1) + relay)
            .wrapping_add(self.round.wrapping_mul(n * n * (n + 1)));
        let mut random = random::stream(self.seed, "downloads", index);
        let shared = self.download * random::normal(&mut random);
        [0, 1].map(|_| (shared + self.phase * random::normal(&mut random)).exp())
    }
}

/// One path of a download.
struct Attempt {
    path: Path,
    /// Factors on its rate: while it is sampled, and afterwards.
    factors: [f64; 2],
    flow: Option<FlowId>,
    /// When its bytes begin to arrive, s.
    first: f64,
    /// Mbit of its share that are missing.
    left: f64,
    share: f64,
    /// When its share was complete or its sampling ended, s.
    until: Option<f64>,
}

/// A download under way, or over.
struct Download {
    programme: usize,
    began: f64,
    tries: Vec<Attempt>,
    /// The path that fetches the rest, once sampling is over.
    chosen: Option<usize>,
    over: bool,
    sampled: Vec<(Option<usize>, f64)>,
}
