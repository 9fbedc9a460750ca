//! Background traffic: infinite downloads and on–off streams from domain B to domain A (§VI).

use super::topology::Topology;
use crate::{
    engine::{Engine, Flow, FlowId},
    random::{self, Stream},
};

/// A flow is an infinite FTP with this probability, otherwise an on–off stream.
const FTP: f64 = 0.75;
/// The share of a peering point that the streams together take.
const STREAMS: f64 = 0.05;
/// The average on and off times are uniform in this range, s.
const SHORTEST: f64 = 0.2;
const LONGEST: f64 = 3.0;

/// The flows over the peering point (B0, A0) to the flows over (B1, A1).
pub type Ratio = (u32, u32);

/// A background flow as it was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnFlow {
    /// The node it comes from.
    pub from: usize,
    /// The node it goes to.
    pub to: usize,
    /// `None`: an infinite download.
    pub stream: Option<OnOff>,
}

/// An on–off stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// Rate while on, Mbit/s.
    pub rate: f64,
    /// Average time on, s.
    pub on: f64,
    /// Average time off, s.
    pub off: f64,
}

#[derive(Clone, Debug)]
struct BackgroundSource {
    ends: (usize, usize),
    links: Vec<u32>,
    kind: SourceKind,
    running: Option<FlowId>,
    /// Mbit that its ended flows moved.
    moved: f64,
    random: Stream,
}

#[derive(Clone, Copy, Debug)]
enum SourceKind {
    Ftp,
    /// Rate while on, average times on and off, when it changes next.
    Stream {
        rate: f64,
        on: f64,
        off: f64,
        changes: f64,
    },
}

/// All background flows of an evaluation.
#[derive(Clone, Debug)]
pub struct Background {
    sources: Vec<BackgroundSource>,
    /// When it began, s.
    begun: f64,
}

/// More than any flow moves, Mbit.
const ENDLESS: f64 = 1e12;

impl Background {
    /// Creates `flows` flows in this ratio over the two peering points. Their ends are "in stub domains that are
    /// different from those holding the bistros".
    pub fn new(net: &Topology, seed: u64, flows: u32, ratio: Ratio) -> Self {
        let over_0 = (f64::from(flows * ratio.0) / f64::from(ratio.0 + ratio.1)).round() as u32;
        let counts = [over_0, flows - over_0.min(flows)];
        let mut sources = Vec::new();
        for (point, count) in counts.into_iter().enumerate() {
            let mut random = random::stream(seed, "background", point as u64);
            let kinds: Vec<bool> = (0..count).map(|_| random::unit(&mut random) < FTP).collect();
            let streams = kinds.iter().filter(|ftp| !**ftp).count();
            for ftp in kinds {
                let mut end = |domain| {
                    let which = 1 + random::index(&mut random, 2);
                    net.stub_node(domain, point, which, random::index(&mut random, 6))
                };
                let ends = (end(1), end(0));
                let links = net.route(ends.0, ends.1).unwrap_or_default();
                let own = random::stream(seed, "background flow", sources.len() as u64);
                sources.push(BackgroundSource::new(ends, links, ftp, streams, own));
            }
        }
        Self { sources, begun: 0.0 }
    }

    /// The flows as drawn, those over point 0 first.
    pub fn drawn(&self) -> Vec<DrawnFlow> {
        let drawn = |source: &BackgroundSource| {
            let stream = match source.kind {
                SourceKind::Ftp => None,
                SourceKind::Stream { rate, on, off, .. } => Some(OnOff { rate, on, off }),
            };
            DrawnFlow { from: source.ends.0, to: source.ends.1, stream }
        };
        self.sources.iter().map(drawn).collect()
    }

    /// Starts all flows.
    pub fn start(&mut self, engine: &mut Engine) {
        for source in &mut self.sources {
            let flow =
                Flow { links: source.links.clone(), limit: source.kind.limit(), size: ENDLESS };
            source.running = engine.start([flow]).first().copied();
        }
        self.begun = engine.now();
    }

    /// The next time at which a stream starts or pauses, s.
    pub fn changes(&self) -> f64 {
        let at = |source: &BackgroundSource| match source.kind {
            SourceKind::Ftp => f64::INFINITY,
            SourceKind::Stream { changes, .. } => changes,
        };
        self.sources.iter().map(at).fold(f64::INFINITY, f64::min)
    }

    /// Starts and pauses the streams that are due.
    pub fn change(&mut self, engine: &mut Engine) {
        let now = engine.now();
        for source in &mut self.sources {
            if let SourceKind::Stream { changes, .. } = source.kind
                && changes <= now
            {
                source.toggle(engine);
            }
        }
    }

    /// Lets this many seconds pass with nothing but the background.
    pub fn pass(&mut self, engine: &mut Engine, seconds: f64) {
        let then = engine.now() + seconds;
        while engine.now() < then {
            engine.advance(self.changes().min(then));
            self.change(engine);
        }
    }

    /// The Mbit that it has moved over each link since the start.
    pub fn carried(&self, engine: &Engine, links: usize) -> Vec<f64> {
        let mut carried = vec![0.0; links];
        for source in &self.sources {
            let running = source.running.map_or(0.0, |flow| ENDLESS - engine.remaining(flow));
            source.links.iter().for_each(|link| carried[*link as usize] += source.moved + running);
        }
        carried
    }

    /// Ends everything, and returns the mean rate of the FTPs since the start, Mbit/s.
    pub fn finish(&mut self, engine: &mut Engine) -> f64 {
        let (mut moved, mut ftps) = (0.0, 0);
        for source in &mut self.sources {
            let Some(flow) = source.running.take() else { continue };
            let left = engine.stop(&[flow])[0];
            if matches!(source.kind, SourceKind::Ftp) {
                moved += ENDLESS - left;
                ftps += 1;
            }
        }
        moved / (engine.now() - self.begun) / f64::from(ftps.max(1))
    }
}

impl SourceKind {
    const fn limit(self) -> f64 {
        match self {
            Self::Ftp => f64::INFINITY,
            Self::Stream { rate, .. } => rate,
        }
    }
}

impl BackgroundSource {
    /// A stream's rate is such that all streams of a point together average [`STREAMS`] of its 5 Mbit/s.
    fn new(
        ends: (usize, usize),
        links: Vec<u32>,
        ftp: bool,
        streams: usize,
        mut random: Stream,
    ) -> Self {
        let kind = if ftp {
            SourceKind::Ftp
        } else {
            let mut time = || SHORTEST + (LONGEST - SHORTEST) * random::unit(&mut random);
            let (on, off) = (time(), time());
            let mean = 5.0 * STREAMS / streams as f64;
            let rate = mean * (on + off) / on;
            SourceKind::Stream { rate, on, off, changes: random::exponential(&mut random, on) }
        };
        Self { ends, links, kind, running: None, moved: 0.0, random }
    }

    fn toggle(&mut self, engine: &mut Engine) {
        let SourceKind::Stream { rate, on, off, changes } = &mut self.kind else { return };
        let mean = if let Some(flow) = self.running.take() {
            self.moved += ENDLESS - engine.stop(&[flow])[0];
            *off
        } else {
            let flow = Flow { links: self.links.clone(), limit: *rate, size: ENDLESS };
            self.running = engine.start([flow]).first().copied();
            *on
        };
        *changes = engine.now() + random::exponential(&mut self.random, mean).max(1e-3);
    }
}
