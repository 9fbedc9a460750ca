//! What is replayed: an oracle's answers about a large mesh whose legs are measured again and again, and the progress of
//! commands.

use crate::load::oracle::world::{below, rate, unit};
use parking_lot::Mutex;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use serde_json::{Value, json};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};
use thalweg_node::daemon::{Documents, PathDocument};
use thalweg_uplinks::interfaces::Change;
use thalweg_wire::mesh::{
    ApiError, Name,
    measure::{LegEntry, PathsReply},
};

/// The oldest estimate at the start, s.
const OLDEST_S: usize = 6 * 3600;

/// How often the node asks its oracle: ten times as often as a real one, and a hundred times as often as one of 300 nodes.
const EVERY: Duration = Duration::from_secs(1);

/// How methods are mixed.
const METHODS: [&str; 4] = ["sampling", "sampling", "passive", "transfer"];

/// A mesh, all of whose legs are measured.
pub struct ReplayedMesh(Mutex<Legs>);

struct Legs {
    reply: PathsReply,
    random: Xoshiro256PlusPlus,
    changes: usize,
    /// Until when changes were made.
    at: Instant,
}

impl fmt::Debug for ReplayedMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplayedMesh")
    }
}

impl ReplayedMesh {
    /// A mesh of nodes of these names, of whose legs this many change in a second.
    pub fn new(names: &[Name], changes: usize, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let n = names.len() as u32;
        let pairs = (0..n).flat_map(|from| (0..n).map(move |to| (from, to)));
        let legs = pairs.filter(|(from, to)| from != to).map(|(from, to)| {
            let age = Duration::from_secs(below(OLDEST_S, &mut random) as u64);
            leg(from, to, age, &mut random)
        });
        let legs = legs.collect();
        let reply = PathsReply { nodes: names.to_vec(), legs, ..PathsReply::default() };
        Self(Mutex::new(Legs { reply, random, changes, at: Instant::now() }))
    }

    /// The answer now.
    fn reply(&self) -> PathsReply {
        let mut legs = self.0.lock();
        legs.advance(Instant::now());
        legs.reply.clone()
    }
}

impl Legs {
    /// Makes the changes since the last call, and lets the other estimates grow older.
    fn advance(&mut self, now: Instant) {
        let past = now.saturating_duration_since(self.at);
        let due = (self.changes as f64 * past.as_secs_f64()) as usize;
        self.at = now;
        for leg in &mut self.reply.legs {
            leg.age += past;
        }
        for _ in 0..due {
            let at = below(self.reply.legs.len(), &mut self.random);
            let old = &mut self.reply.legs[at];
            *old = leg(old.from, old.to, Duration::ZERO, &mut self.random);
        }
    }
}

fn leg(from: u32, to: u32, age: Duration, random: &mut Xoshiro256PlusPlus) -> LegEntry {
    let bps = rate(random).round();
    LegEntry {
        from,
        to,
        bps,
        spread_bps: Some((bps * 0.2 * unit(random)).round()),
        method: METHODS[below(METHODS.len(), random)].to_owned(),
        at_least: unit(random) < 0.05,
        rtt_s: Some((1e4 + 3e5 * unit(random)).round() / 1e6),
        age,
        available: None,
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

impl Documents for ReplayedMesh {
    fn paths(&self) -> Answer<'_, PathDocument> {
        Box::pin(async {
            let oracle = json!({
                "answered": true, "trouble": null, "paths_age_seconds": 0,
                "candidates_age_seconds": null,
            });
            let rest = json!({ "candidates": [], "advice": null, "oracle": oracle });
            let (age, valid_for) = (Duration::ZERO, EVERY);
            Ok(PathDocument { paths: Some(self.reply()), rest, age, valid_for })
        })
    }

    fn interfaces(&self) -> Answer<'_, Value> {
        Box::pin(async { Ok(json!({ "processes": [] })) })
    }

    fn change_interfaces(&self, _: Vec<Change>) -> Answer<'_, Value> {
        self.interfaces()
    }
}

/// An event of a download that has been running for this many seconds.
pub fn progress(job: u32, seconds: f64) -> Value {
    let rate = 4e6 * (1.0 + f64::from(job % 7)) * (1.0 + 0.3 * (seconds + f64::from(job)).sin());
    let path = |name: &str, part: f64| json!({ "path": name, "rate_bps": (rate * part) as u64, "bytes": (seconds * rate * part / 8.0) as u64 });
    json!({
        "event": "progress", "done_bytes": (seconds * rate / 8.0) as u64, "total_bytes": 50_000_000_000_u64,
        "rate_bps": rate as u64, "paths": [path("direct", 0.6), path("n00007", 0.4)],
    })
}
