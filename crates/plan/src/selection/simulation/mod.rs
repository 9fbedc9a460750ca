//! A fluid model of paths that drives a selection in virtual time, for tests.

mod script;

pub use script::Script;

use super::{Action, Config, Failure, Phase, Prior, Selection, ranges};
use std::{ops::Range, time::Duration};
use thalweg_units::{PathId, Rate, Time};

/// The length of one step of the model.
const STEP: Duration = Duration::from_millis(10);
/// Bytes in the first round trip of a connection.
const FIRST_WINDOW: f64 = 14_600.0;

/// The result of a run.
pub struct Outcome {
    pub phase: Phase,
    pub took: Duration,
    pub actions: Vec<(Duration, Action)>,
    /// Bytes that each path delivered before any other path did.
    pub delivered: Vec<u64>,
    /// Bytes that arrived twice.
    pub twice: u64,
}

/// The surroundings of the paths.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The capacity that all shared paths have together; TCP shares it by 1/RTT.
    pub access: Option<Rate>,
    pub priors: Vec<Option<Prior>>,
    /// Whether each path leaves by a link of its own.
    pub own_links: bool,
}

#[derive(Default)]
struct PathModel {
    /// The ranges that it is delivering, and from when.
    flow: Option<(Vec<Range<u64>>, Time)>,
    dead: bool,
    /// Its rate in slow start, bytes per second; zero without a connection.
    window: f64,
    /// The fraction of a byte that is left from the last step.
    credit: f64,
    busy_until: Option<Time>,
    asked: bool,
}

struct Model<'a> {
    scripts: &'a [Script],
    network: &'a Network,
    paths: Vec<PathModel>,
    missing: Vec<Range<u64>>,
    delivered: Vec<u64>,
    twice: u64,
    actions: Vec<(Duration, Action)>,
    /// Whether there must be at most one request at a time from now on.
    single: bool,
}

/// Runs to the end with paths that share nothing; see [`run_in`].
pub fn run(config: Config, scripts: &[Script], missing: &[Range<u64>]) -> Outcome {
    run_in(&Network::default(), config, scripts, missing)
}

/// Runs to the end. Asserts that every byte is new exactly once, that new bytes are the end of each report, that
/// duplicates are within their bound, and that no path is asked that is dead, owes bytes or is to be left alone.
pub fn run_in(
    network: &Network,
    config: Config,
    scripts: &[Script],
    missing: &[Range<u64>],
) -> Outcome {
    let n = scripts.len();
    let mut selection = Selection::new(config, n as u32, missing, Time::ZERO);
    for (path, prior) in (0..).map(PathId).zip(&network.priors) {
        prior.iter().for_each(|prior| selection.expect(path, *prior));
    }
    for link in (0..n as u32).filter(|_| network.own_links) {
        selection.leaves_by(PathId(link), link);
    }
    let mut wanted = missing.to_vec();
    ranges::merge(&mut wanted);
    let mut model = Model {
        scripts,
        network,
        paths: (0..n).map(|_| PathModel::default()).collect(),
        missing: wanted,
        delivered: vec![0; n],
        twice: 0,
        actions: Vec::new(),
        single: false,
    };
    let mut now = Time::ZERO;
    while !matches!(selection.phase(), Phase::Done | Phase::Failed) {
        assert!(now.as_secs_f64() < 1e4, "no end in sight: {} bytes left", selection.left());
        let rates = model.rates(now);
        for (path, rate) in rates.into_iter().enumerate() {
            model.step(&mut selection, path, rate, now);
            model.obey(&mut selection, now);
        }
        if selection.deadline().is_some_and(|t| t <= now) {
            selection.tick(now);
            model.obey(&mut selection, now);
            let next = selection.deadline();
            assert!(next.is_none_or(|t| t > now), "due again at once: {:?}", selection.phase());
        }
        now += STEP;
    }
    assert_eq!(ranges::total(&model.missing), selection.left());
    assert!(model.twice <= selection.most_duplicates());
    let Model { delivered, actions, twice, .. } = model;
    Outcome { phase: selection.phase(), took: now.since(Time::ZERO), actions, delivered, twice }
}

impl Model<'_> {
    /// The rate of each path now, bytes per second: its capacity or its slow start, cut to its part of the shared
    /// access.
    fn rates(&mut self, now: Time) -> Vec<f64> {
        let age = now.since(Time::ZERO);
        let flows = |p: &PathModel| p.flow.as_ref().is_some_and(|(_, from)| *from <= now);
        let mut rates: Vec<f64> = (self.scripts.iter().zip(&self.paths))
            .map(|(s, p)| if flows(p) { p.window.min(s.capacity(age)) } else { 0.0 })
            .collect();
        self.share_access(&mut rates);
        for ((path, script), rate) in self.paths.iter_mut().zip(self.scripts).zip(&rates) {
            if flows(path) && *rate > 0.0 {
                let growth = 2f64.powf(STEP.as_secs_f64() / script.rtt.as_secs_f64().max(0.001));
                path.window = (*rate * growth).max(path.window.min(*rate * 1.5));
            }
        }
        rates
    }

    /// Cuts the flows over the shared access to its capacity: parts go by 1/RTT as TCP's do, and what a path cannot use
    /// goes to the others.
    fn share_access(&self, rates: &mut [f64]) {
        let Some(access) = self.network.access else { return };
        let mut room = access.as_bps() as f64 / 8.0;
        let weight = |i: &usize| 1.0 / self.scripts[*i].leg.as_secs_f64().max(0.001);
        let flows = |i: &usize| self.scripts[*i].shared && rates[*i] > 0.0;
        let mut open: Vec<usize> = (0..rates.len()).filter(flows).collect();
        // Paths that need least for their weight are served first.
        open.sort_by(|a, b| (rates[*a] / weight(a)).total_cmp(&(rates[*b] / weight(b))));
        let mut weights: f64 = open.iter().map(weight).sum();
        for i in &open {
            rates[*i] = rates[*i].min(room * weight(i) / weights);
            room -= rates[*i];
            weights -= weight(i);
        }
    }

    fn step(&mut self, selection: &mut Selection, path: usize, rate: f64, now: Time) {
        let (script, id, age) = (&self.scripts[path], PathId(path as u32), now.since(Time::ZERO));
        match script.joins {
            None if !self.paths[path].dead => {
                self.paths[path].dead = true;
                return selection.failed(id, Failure::Refused, now);
            }
            Some(at) if at <= age => selection.joined(id, now),
            _ => return,
        }
        self.obey(selection, now);
        let state = &mut self.paths[path];
        if let (Some((at, wait)), None, Some(_)) = (script.busy, state.busy_until, &state.flow)
            && at <= age
        {
            (state.flow, state.window) = (None, 0.0);
            state.busy_until = Some(now + wait);
            self.single = true;
            return selection.busy(id, now + wait, now);
        }
        match script.fails {
            Some((at, Failure::Stalled)) if at <= age => {}
            Some((at, failure)) if at <= age && state.flow.is_some() => {
                state.dead = failure == Failure::Refused;
                (state.flow, state.window) = (None, 0.0);
                selection.failed(id, failure, now);
            }
            _ => self.deliver(selection, path, rate, now),
        }
    }

    fn deliver(&mut self, selection: &mut Selection, path: usize, rate: f64, now: Time) {
        let (state, id) = (&mut self.paths[path], PathId(path as u32));
        let Some((flow, _)) = &mut state.flow else { return };
        state.credit += rate * STEP.as_secs_f64();
        let can = (state.credit as u64).min(selection.owes(id));
        let pieces = ranges::head(flow, can);
        let n = ranges::total(&pieces);
        state.credit -= n as f64;
        for piece in &pieces {
            ranges::remove(flow, piece);
        }
        if flow.is_empty() {
            state.flow = None;
        }
        if n == 0 {
            return;
        }
        let fresh = ranges::common(&self.missing, &pieces);
        let mut kept = pieces.clone();
        assert_eq!(
            ranges::cut_tail(&mut kept, ranges::total(&fresh)),
            fresh,
            "new comes last: {path} {pieces:?} {:?}",
            self.actions
        );
        for piece in &pieces {
            ranges::remove(&mut self.missing, piece);
        }
        let new = selection.received(id, n, now);
        assert_eq!(new, ranges::total(&fresh));
        self.delivered[path] += new;
        self.twice += n - new;
    }

    /// Carries out the selection's actions.
    fn obey(&mut self, selection: &mut Selection, now: Time) {
        while let Some(action) = selection.next_action() {
            match &action {
                Action::Fetch { path, ranges, .. } => {
                    self.ask(path.0 as usize, ranges, now);
                    selection.sent(*path, now);
                }
                Action::Stop { path, .. } => {
                    let state = &mut self.paths[path.0 as usize];
                    (state.flow, state.window, state.credit) = (None, 0.0, 0.0);
                }
                Action::Chosen { path, .. } => assert!(!self.paths[path.0 as usize].dead),
            }
            self.actions.push((now.since(Time::ZERO), action));
        }
        let flows = self.paths.iter().filter(|p| p.flow.is_some()).count();
        assert!(!self.single || flows <= 1, "{flows} requests at a busy server");
    }

    fn ask(&mut self, path: usize, ranges: &[Range<u64>], now: Time) {
        let (script, state) = (&self.scripts[path], &mut self.paths[path]);
        assert!(!state.dead, "asked a dead path");
        assert!(state.flow.is_none(), "asked a path that owes bytes");
        assert!(state.busy_until.is_none_or(|t| t <= now), "asked a path to be left alone");
        assert!(!ranges.is_empty() && ranges.iter().all(|r| r.start < r.end));
        assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "one as two: {ranges:?}");
        // A further connection costs two round trips more.
        let connected = state.window > 0.0 || !std::mem::replace(&mut state.asked, true);
        let setup = if connected { script.rtt } else { 3 * script.rtt };
        let begins = match script.joins {
            _ if state.window > 0.0 => state.window,
            _ if script.slow_start => FIRST_WINDOW / script.rtt.as_secs_f64().max(0.001),
            _ => f64::INFINITY,
        };
        state.window = begins;
        state.flow =
            Some((ranges.to_vec(), now + if script.slow_start { setup } else { script.rtt }));
    }
}
