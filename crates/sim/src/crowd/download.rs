//! One download: its paths, its phases.

use super::{Ask, Crowd, Outcome, Timer, moment};
use crate::{
    engine::{Flow, FlowId},
    world::Path,
};
use std::cmp::Reverse;

/// One path of a download.
pub(super) struct Try {
    path: Path,
    /// Factors on its rate: while sampled, afterwards.
    factors: [f64; 2],
    flow: Option<FlowId>,
    /// When its bytes begin to come, s.
    first: f64,
    /// Mbit of its share that are not there.
    left: f64,
    share: f64,
    /// When its share was complete or its sampling ended, s.
    until: Option<f64>,
}

/// A download under way, or over.
pub(super) struct Download {
    programme: usize,
    began: f64,
    tries: Vec<Try>,
    /// The one that fetches the rest, once sampling is over.
    chosen: Option<usize>,
    over: bool,
    sampled: Vec<(Option<usize>, f64)>,
}

impl Crowd<'_> {
    /// Begins the programme's next download, if there is one.
    pub(super) fn next_of(&mut self, programme: usize) {
        let Some(&server) = self.programmes[programme].servers.get(self.begun[programme]) else {
            return;
        };
        self.begun[programme] += 1;
        let client = self.programmes[programme].client;
        let relays = self.choice.relays(&Ask {
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
        if !self.choice.samples() {
            paths = vec![paths.get(1).copied().unwrap_or(direct)];
        }
        self.begin(programme, paths);
    }

    fn begin(&mut self, programme: usize, paths: Vec<Path>) {
        let share = self.settings.size / paths.len() as f64;
        let tries: Vec<Try> = paths.into_iter().map(|path| self.try_of(path, share)).collect();
        let download = self.downloads.len();
        for (path, each) in tries.iter().enumerate() {
            self.timers.push(Reverse((moment(each.first), Timer::First { download, path })));
        }
        match tries.len() {
            1 => self.set(self.settings.cut_off, Timer::CutOff { download }),
            _ => self.set(self.settings.sampling, Timer::Sampled { download }),
        }
        let chosen = (tries.len() == 1).then_some(0);
        let began = self.engine.now();
        let sampled = Vec::new();
        self.downloads.push(Download { programme, began, tries, chosen, over: false, sampled });
    }

    fn try_of(&self, path: Path, share: f64) -> Try {
        let factors = self.settings.noise.factors(self.world, path);
        let first = self.connected(path);
        Try { path, factors, flow: None, first, left: share, share, until: None }
    }

    /// When the bytes of a connection made now begin to come at its full rate: what it loses
    /// by slow start is lost at once.
    fn connected(&self, path: Path) -> f64 {
        let ramp = self.settings.ramp * self.world.longer_leg(path);
        self.engine.now() + self.world.delay(path) + ramp
    }

    pub(super) fn fire(&mut self, timer: Timer) {
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
                // Sampling may have ended before the first byte came; the rest comes over a
                // connection of its own.
                if each.flow.is_none() && each.until.is_none() && self.engine.now() >= each.first {
                    self.flow(download, path);
                }
            }
            Timer::Sampled { .. } if here.chosen.is_none() => self.choose(download),
            Timer::Sampled { .. } => {}
            Timer::CutOff { .. } => self.finish(download),
        }
    }

    /// Starts the flow of what a path has left.
    fn flow(&mut self, download: usize, path: usize) {
        let sampling = self.downloads[download].chosen.is_none();
        let each = &mut self.downloads[download].tries[path];
        let relayed = if each.path.relay.is_some() { self.settings.relayed } else { 1.0 };
        let factor = each.factors[usize::from(!sampling)] * relayed;
        let limit = self.world.way_of(each.path) * factor;
        let links = self.world.links(each.path);
        let flow = Flow { links, limit, size: each.left };
        if let [id] = self.engine.start([flow])[..] {
            each.flow = Some(id);
            self.flows.insert(id, (download, path));
        }
    }

    /// A path has all of its share.
    pub(super) fn delivered(&mut self, download: usize, path: usize) {
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        let each = &mut here.tries[path];
        (each.flow, each.left, each.until) = (None, 0.0, Some(now));
        if here.chosen.is_some() {
            self.finish(download);
        } else if here.tries.iter().all(|each| each.until.is_some()) {
            self.choose(download);
        }
    }

    /// Sampling is over: the fastest path fetches the rest; direct wins a tie.
    fn choose(&mut self, download: usize) {
        self.halt(download);
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        let rate = |each: &Try| {
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
        let first = self.connected(self.downloads[download].tries[best].path);
        let chosen = &mut self.downloads[download].tries[best];
        (chosen.left, chosen.first, chosen.until) = (left, first, None);
        self.timers.push(Reverse((moment(first), Timer::First { download, path: best })));
        self.set(self.settings.cut_off, Timer::CutOff { download });
    }

    /// Stops all flows; what they have left is known then.
    fn halt(&mut self, download: usize) {
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
        self.halt(download);
        let now = self.engine.now();
        let here = &mut self.downloads[download];
        here.over = true;
        let left: f64 = here.tries.iter().map(|each| each.left).sum();
        let chosen = here.tries[here.chosen.unwrap_or(0)].path;
        let outcome = Outcome {
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
        self.choice.ended(&outcome);
        self.outcomes.push(outcome);
        self.next_of(programme);
    }
}
