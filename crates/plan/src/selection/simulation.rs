//! A fluid model of paths that drives a selection in virtual time, for tests.

use super::{Action, Config, Failure, Phase, Selection};
use std::{ops::Range, time::Duration};
use thalweg_units::{PathId, Rate, Time};

/// One step of the model.
const STEP: Duration = Duration::from_millis(20);

/// What a path will do.
#[derive(Clone, Debug)]
pub struct Script {
    /// When it joins; `None`: it is refused at once.
    pub joins: Option<Duration>,
    pub rate: Rate,
    /// Silence between a request and its first byte.
    pub rtt: Duration,
    /// When and how it stops delivering, if it does.
    pub fails: Option<(Duration, Failure)>,
}

impl Script {
    pub fn steady(rate_mbps: f64) -> Self {
        Self {
            joins: Some(Duration::ZERO),
            rate: Rate::from_mbps(rate_mbps),
            rtt: Duration::from_millis(40),
            fails: None,
        }
    }

    pub fn failing(self, at_ms: u64, failure: Failure) -> Self {
        Self { fails: Some((Duration::from_millis(at_ms), failure)), ..self }
    }
}

/// What came of it.
pub struct Outcome {
    pub phase: Phase,
    pub took: Duration,
    pub actions: Vec<(Duration, Action)>,
    /// Bytes delivered by each path.
    pub delivered: Vec<u64>,
}

struct Model<'a> {
    scripts: &'a [Script],
    /// What each path is delivering, and from when.
    owed: Vec<Option<(Vec<Range<u64>>, Time)>>,
    dead: Vec<bool>,
    got: Vec<Range<u64>>,
    delivered: Vec<u64>,
    actions: Vec<(Duration, Action)>,
}

/// Runs to the end; asserts that no byte comes twice and no dead path is asked.
pub fn run(config: Config, scripts: &[Script], missing: &[Range<u64>]) -> Outcome {
    let n = scripts.len();
    let mut selection = Selection::new(config, n as u32, missing, Time::ZERO);
    let mut model = Model {
        scripts,
        owed: vec![None; n],
        dead: vec![false; n],
        got: Vec::new(),
        delivered: vec![0; n],
        actions: Vec::new(),
    };
    let mut now = Time::ZERO;
    while !matches!(selection.phase(), Phase::Done | Phase::Failed) {
        assert!(now.as_secs_f64() < 1e5, "no end in sight: {} bytes left", selection.left());
        for path in 0..n {
            model.step(&mut selection, path, now);
            model.obey(&mut selection, now);
        }
        if selection.deadline().is_some_and(|t| t <= now) {
            selection.tick(now);
            model.obey(&mut selection, now);
        }
        now += STEP;
    }
    model.check(&selection, missing);
    let Model { delivered, actions, .. } = model;
    Outcome { phase: selection.phase(), took: now.since(Time::ZERO), actions, delivered }
}

impl Model<'_> {
    fn step(&mut self, selection: &mut Selection, path: usize, now: Time) {
        let (script, id, age) = (&self.scripts[path], PathId(path as u32), now.since(Time::ZERO));
        match script.joins {
            None if !self.dead[path] => {
                self.dead[path] = true;
                return selection.failed(id, Failure::Refused, now);
            }
            Some(at) if at <= age => selection.joined(id, now),
            _ => return,
        }
        self.obey(selection, now);
        match script.fails {
            Some((at, Failure::Stalled)) if at <= age => {}
            Some((at, failure)) if at <= age && self.owed[path].is_some() => {
                self.dead[path] = failure == Failure::Refused;
                self.owed[path] = None;
                selection.failed(id, failure, now);
            }
            _ => self.deliver(selection, path, now),
        }
    }

    fn deliver(&mut self, selection: &mut Selection, path: usize, now: Time) {
        let Some((ranges, from)) = &mut self.owed[path] else { return };
        if *from > now {
            return;
        }
        let mut left = self.scripts[path].rate.bytes_in(STEP).as_bytes();
        let mut n = 0;
        while left > 0 && !ranges.is_empty() {
            let cut = left.min(ranges[0].end - ranges[0].start);
            self.got.push(ranges[0].start..ranges[0].start + cut);
            ranges[0].start += cut;
            (left, n) = (left - cut, n + cut);
            ranges.retain(|r| !r.is_empty());
        }
        self.delivered[path] += n;
        if ranges.is_empty() {
            self.owed[path] = None;
        }
        selection.received(PathId(path as u32), n, now);
    }

    /// Carries out what the selection says.
    fn obey(&mut self, selection: &mut Selection, now: Time) {
        while let Some(action) = selection.next_action() {
            match &action {
                Action::Fetch { path, ranges, .. } => {
                    let i = path.0 as usize;
                    assert!(!self.dead[i], "asked a dead path: {action:?}");
                    assert!(self.owed[i].is_none(), "asked a busy path: {action:?}");
                    assert!(!ranges.is_empty() && ranges.iter().all(|r| r.start < r.end));
                    assert!(ranges.windows(2).all(|w| w[0].end <= w[1].start));
                    self.owed[i] = Some((ranges.clone(), now + self.scripts[i].rtt));
                    selection.sent(*path, now);
                }
                Action::Stop { path, .. } => self.owed[path.0 as usize] = None,
                Action::Chosen { path, .. } => assert!(!self.dead[path.0 as usize]),
            }
            self.actions.push((now.since(Time::ZERO), action));
        }
    }

    /// Every byte came once; if all came, exactly the missing ones did.
    fn check(&mut self, selection: &Selection, missing: &[Range<u64>]) {
        self.got.retain(|r| !r.is_empty());
        self.got.sort_by_key(|r| r.start);
        for pair in self.got.windows(2) {
            assert!(pair[0].end <= pair[1].start, "twice: {:?} and {:?}", pair[0], pair[1]);
        }
        super::shares::merge(&mut self.got);
        let total = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        assert_eq!(total(missing) - total(&self.got), selection.left());
        if selection.phase() == Phase::Done {
            let mut wanted = missing.to_vec();
            super::shares::merge(&mut wanted);
            assert_eq!(self.got, wanted);
        }
    }
}
