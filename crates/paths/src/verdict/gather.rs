//! The bound of a collection: first what held back all of it, then what held back the source that was last.
//!
//! | | If | Bound |
//! |---|---|---|
//! | 1 | rules 1 to 7 of downloads apply to all sources together | as there |
//! | 2 | paths from several sources were seen to slow each other; paths from the last source | `access`; `source` |
//! | 3 | the last source's paths were congested, and this host received no faster from all sources together before | `access` |
//! | 4 | several of its paths were used at once, and this host had received faster | `source` |
//! | 5 | they were congested, packets were lost and no queue grew; or the source sends faster to others | `path` |
//! | 6 | they were congested, and this host had received faster | `source` |
//! | 7 | rules 9, 12 and 13 of downloads apply to the last source's path | as there |
//!
//! Sources do not say what they wait for: a source's disk, its access link and its own limit are one bound, `source`.

use super::{
    Bound, Duration, Estimate, Evidence, Facts, HEADROOM, InterfaceFacts, PathFacts, Rate, Verdict,
    aged, clean, congestion, has_queue, interface, is_congested, main_path, nothing_fetched,
    observed, own_limit, processor, ratio, seconds, share, short, unknown, waits, window,
};
use thalweg_units::ByteSize;

/// The share of the whole time in which the last source must have sent alone for its rate then to count.
const ALONE: f64 = 0.2;

/// A path with a smaller share of the source's bytes was only tried.
const USED: f64 = 0.1;

/// What was observed in one collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatherFacts {
    /// From the first request to the end.
    pub took: Duration,
    /// From the first request to the first byte.
    pub set_up: Duration,
    pub sources: Vec<SourceFacts>,
    /// Legs that were seen to slow each other.
    pub shared: Vec<SharedLegs>,
    /// The interface of this host that moved the most bytes.
    pub interface: Option<InterfaceFacts>,
    /// The fastest leg to this host that was known before.
    pub fastest: Option<Estimate>,
    /// The time in which bytes waited for the disk.
    pub disk_wait: Duration,
    /// The time in which bytes waited for the own limit.
    pub limit_wait: Duration,
    pub limit: Option<Rate>,
}

/// What was observed of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceFacts {
    pub name: String,
    /// Bytes received.
    pub bytes: u64,
    /// From the first request to its last byte.
    pub ended: Duration,
    /// Its paths, which were used at the same time.
    pub paths: Vec<PathFacts>,
    /// The fastest leg from it to any other member that was known before.
    pub elsewhere: Option<Estimate>,
}

/// Legs that were seen to slow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLegs {
    /// The senders and receivers by name; this host by the empty name.
    pub legs: Vec<(String, String)>,
    /// Their common rate.
    pub rate: Rate,
}

/// The bound that the collection met.
pub fn gather_verdict(facts: &GatherFacts) -> Verdict {
    let whole = facts.whole();
    let rules: [fn(&Facts) -> Option<Verdict>; 6] =
        [nothing_fetched, waits, own_limit, processor, short, interface];
    let of_all = rules.iter().find_map(|rule| rule(&whole));
    of_all.or_else(|| LastSource::of(facts)?.verdict()).unwrap_or_else(|| unknown(&whole))
}

impl GatherFacts {
    fn fetched(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes).sum()
    }

    /// All sources together, with the paths of the last one.
    fn whole(&self) -> Facts {
        Facts {
            took: self.took,
            set_up: self.set_up,
            fetched: self.fetched(),
            paths: self.last().map(|source| source.paths.clone()).unwrap_or_default(),
            interface: self.interface.clone(),
            disk_wait: self.disk_wait,
            limit_wait: self.limit_wait,
            limit: self.limit,
            ..Facts::default()
        }
    }

    fn last(&self) -> Option<&SourceFacts> {
        self.sources.iter().filter(|source| source.bytes > 0).max_by_key(|source| source.ended)
    }
}

/// The source whose last byte came last, and what the others show about it.
struct LastSource<'a> {
    facts: &'a GatherFacts,
    source: &'a SourceFacts,
    /// The rate at the end: of this source if it was alone for a while, else of all.
    rate: Rate,
    is_alone: bool,
}

impl<'a> LastSource<'a> {
    fn of(facts: &'a GatherFacts) -> Option<Self> {
        let source = facts.last()?;
        let others = facts.sources.iter().filter(|other| other.name != source.name);
        let before = others.clone().map(|other| other.ended).max().unwrap_or(facts.set_up);
        let alone = source.ended.saturating_sub(before);
        let is_alone =
            others.clone().all(|other| other.bytes == 0) || share(alone, source.ended) >= ALONE;
        let bytes = if is_alone { source.bytes } else { facts.fetched() };
        let moving = source.ended.saturating_sub(facts.set_up);
        let rate = Rate::over(ByteSize::from_bytes(bytes), moving);
        (rate > Rate::ZERO).then_some(Self { facts, source, rate, is_alone })
    }

    fn verdict(&self) -> Option<Verdict> {
        let rules: [fn(&Self) -> Option<Verdict>; 5] = [
            Self::shared,
            Self::own_access,
            Self::several_ways,
            Self::source_or_path,
            Self::as_download,
        ];
        let mut found = rules.iter().find_map(|rule| rule(self))?;
        found.evidence.insert(0, self.last_byte());
        Some(found)
    }

    fn last_byte(&self) -> Evidence {
        observed(&format!("{}: last byte", self.source.name), seconds(self.source.ended))
    }

    /// The most that this host received: in a second of this collection, or in an earlier transfer.
    fn fastest(&self) -> Option<Evidence> {
        let peak = self.facts.interface.as_ref().and_then(|interface| interface.peak);
        match (peak, self.facts.fastest) {
            (Some(peak), Some(known)) if known.rate > peak => {
                Some(aged("fastest leg to this host", known.rate.to_string(), known.age))
            }
            (None, Some(known)) => {
                Some(aged("fastest leg to this host", known.rate.to_string(), known.age))
            }
            (Some(peak), _) => Some(observed("all sources, highest rate", peak.to_string())),
            (None, None) => None,
        }
    }

    /// Whether this host can receive clearly more than it did at the end.
    fn has_headroom(&self) -> bool {
        let peak = self.facts.interface.as_ref().and_then(|interface| interface.peak);
        let known = self.facts.fastest.map(|known| known.rate);
        peak.max(known).is_some_and(|most| ratio(most, self.rate) >= HEADROOM)
    }

    fn shared(&self) -> Option<Verdict> {
        let name = &self.source.name;
        let concerns = |set: &&SharedLegs| set.legs.iter().any(|(from, _)| from == name);
        let set = self.facts.shared.iter().find(concerns)?;
        let legs: Vec<String> = set.legs.iter().map(|(from, to)| leg_name(from, to)).collect();
        let evidence = vec![observed(&legs.join(" and "), format!("{} together", set.rate))];
        if set.legs.iter().all(|(_, to)| to.is_empty()) && !self.has_headroom() {
            let text =
                "This host's access link was full: paths from several sources slowed each other.";
            return Some(Verdict { bound: Bound::Access, text: text.to_owned(), evidence });
        }
        // Legs to this host slow each other at its own access link, too.
        let is_its_own = set.legs.iter().all(|(from, _)| from == name) && self.has_headroom();
        is_its_own.then(|| Verdict {
            bound: Bound::Source,
            text: format!("{name} was last and sends no faster: its paths slowed each other."),
            evidence,
        })
    }

    fn own_access(&self) -> Option<Verdict> {
        let several = self.facts.sources.iter().filter(|source| source.bytes > 0).count() > 1;
        let is_full = several && is_congested(main_path(&self.as_facts())?) && !self.has_headroom();
        is_full.then(|| Verdict {
            bound: Bound::Access,
            text: "This host's access link was full: all sources together sent no faster at any \
                   time, and queues grew."
                .to_owned(),
            evidence: self.evidence(),
        })
    }

    /// Several paths from the source were used at once, and all of them were slow although this host had room: what they
    /// have in common is the source.
    fn several_ways(&self) -> Option<Verdict> {
        let used = self.used_paths().count();
        (used > 1 && self.has_headroom()).then(|| Verdict {
            bound: Bound::Source,
            text: format!(
                "{} was last and sends no faster: {used} paths from it together brought {}.",
                self.source.name,
                self.own_rate()
            ),
            evidence: self.evidence(),
        })
    }

    /// The paths that carried a tenth of the source's bytes or more.
    fn used_paths(&self) -> impl Iterator<Item = &PathFacts> {
        let all: u64 = self.source.paths.iter().map(|path| path.bytes).sum();
        let is_used =
            move |path: &&PathFacts| path.bytes > 0 && path.bytes as f64 >= USED * all as f64;
        self.source.paths.iter().filter(is_used)
    }

    fn source_or_path(&self) -> Option<Verdict> {
        let name = &self.source.name;
        let main = main_path(&self.as_facts())?.clone();
        if !is_congested(&main) || main.is_relayed {
            return None;
        }
        let sends_faster =
            self.source.elsewhere.filter(|known| ratio(known.rate, self.rate) >= HEADROOM);
        let mut evidence = self.evidence();
        evidence.extend(sends_faster.map(|known| {
            aged(&format!("{name}, to another member"), known.rate.to_string(), known.age)
        }));
        let has_queue = main.tcp.is_some_and(|tcp| has_queue(&tcp));
        if sends_faster.is_some() || !has_queue {
            let what = if has_queue { "had a long queue" } else { "lost packets" };
            let text = format!("The path from {name}, which was last, was the limit: it {what}.");
            return Some(Verdict { bound: Bound::Path, text, evidence });
        }
        self.has_headroom().then(|| Verdict {
            bound: Bound::Source,
            text: format!(
                "{name} was last and sends no faster: a queue grew at its end, and this host can \
                 receive more."
            ),
            evidence,
        })
    }

    /// The rules for downloads, with the source as the server.
    fn as_download(&self) -> Option<Verdict> {
        let facts = self.as_facts();
        let rules: [fn(&Facts) -> Option<Verdict>; 3] = [window, congestion, clean];
        let mut found = rules.iter().find_map(|rule| rule(&facts))?;
        if found.bound == Bound::Source {
            let name = &self.source.name;
            found.text = format!(
                "{name} was last and sends no faster: no packet was lost and no queue grew on its path."
            );
        }
        Some(found)
    }

    /// The last source as a download of its own.
    fn as_facts(&self) -> Facts {
        let mut paths = self.source.paths.clone();
        let bytes: u64 = paths.iter().map(|path| path.bytes).sum();
        for path in &mut paths {
            let part = path.bytes as f64 / (bytes as f64).max(1.0);
            // A cast of a positive number rounds down.
            path.rest = Some(Rate::from_bps((self.own_rate().as_bps() as f64 * part) as u64));
        }
        Facts {
            took: self.source.ended,
            set_up: self.facts.set_up,
            fetched: self.source.bytes,
            rest: Some(self.own_rate()),
            fastest: self.facts.fastest,
            paths,
            ..Facts::default()
        }
    }

    fn own_rate(&self) -> Rate {
        let moving = self.source.ended.saturating_sub(self.facts.set_up);
        Rate::over(ByteSize::from_bytes(self.source.bytes), moving)
    }

    fn evidence(&self) -> Vec<Evidence> {
        let name = &self.source.name;
        let whose = if self.is_alone { name.as_str() } else { "all sources" };
        let mut evidence = vec![observed(&format!("{whose}, at the end"), self.rate.to_string())];
        evidence.extend(self.fastest());
        let facts = self.as_facts();
        if let Some(tcp) = main_path(&facts).and_then(|path| path.tcp) {
            let grown = format!("{}, at least {}", seconds(tcp.usual), seconds(tcp.shortest));
            evidence.push(observed("round trip", grown));
        }
        if self.used_paths().count() > 1 {
            evidence.extend(self.used_paths().map(|path| {
                let bytes = ByteSize::from_bytes(path.bytes).to_string();
                observed(&format!("path {}", path.name), bytes)
            }));
        }
        evidence
    }
}

fn leg_name(from: &str, to: &str) -> String {
    let name = |host: &str| if host.is_empty() { "here".to_owned() } else { host.to_owned() };
    format!("{} to {}", name(from), name(to))
}

#[cfg(test)]
mod tests {
    use super::{super::TcpFacts, *};

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn estimate(mbps: f64) -> Option<Estimate> {
        Some(Estimate { rate: Rate::from_mbps(mbps), age: secs(600.0) })
    }

    /// Counters of packets out of order of 100,000, and the round trips, ms.
    fn tcp(out_of_order: u64, shortest: u64, usual: u64) -> Option<TcpFacts> {
        let (shortest, usual) = (Duration::from_millis(shortest), Duration::from_millis(usual));
        Some(TcpFacts { packets: 100_000, out_of_order, shortest, usual, window: 6_000_000 })
    }

    fn source(name: &str, ended: f64) -> SourceFacts {
        let direct = PathFacts { name: name.into(), bytes: 25_000_000, ..PathFacts::default() };
        SourceFacts {
            name: name.into(),
            bytes: 25_000_000,
            ended: secs(ended),
            paths: vec![direct],
            elsewhere: None,
        }
    }

    fn interface(facts: &mut GatherFacts, peak: f64) {
        facts.interface = Some(InterfaceFacts {
            name: "eth0".into(),
            received: 52_000_000,
            own: 50_000_000,
            during: secs(40.0),
            peak: Some(Rate::from_mbps(peak)),
            capacity: None,
        });
    }

    /// 25 MB from `s` in 40 s, and from `t` in 10 s.
    fn plain() -> GatherFacts {
        GatherFacts {
            took: secs(40.3),
            set_up: secs(0.1),
            sources: vec![source("s", 40.0), source("t", 10.0)],
            ..GatherFacts::default()
        }
    }

    /// Two paths without losses from the last source; the direct path carried this many bytes.
    fn two_paths(facts: &mut GatherFacts, direct: u64) {
        let paths = &mut facts.sources[0].paths;
        paths[0].tcp = tcp(0, 40, 41);
        paths.push(PathFacts { name: "s via r".into(), is_relayed: true, ..paths[0].clone() });
        (paths[0].bytes, paths[1].bytes) = (direct, 30_000_000);
        interface(facts, 25.0);
    }

    type Change = fn(&mut GatherFacts);

    const SCENES: &[(&str, Change, Bound, Change, Bound)] = &[
        ("nothing is missing", |f| f.sources.clear(), Bound::Small, |_| {}, Bound::Unknown),
        (
            "a slow disk here",
            |f| f.disk_wait = secs(30.0),
            Bound::Disk,
            |f| f.disk_wait = secs(5.0),
            Bound::Unknown,
        ),
        (
            "an own limit",
            |f| f.limit = Some(Rate::from_mbps(10.2)),
            Bound::Limit,
            |f| f.limit = Some(Rate::from_mbps(30.0)),
            Bound::Unknown,
        ),
        (
            "a source's access link, while another source was faster",
            |f| {
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                interface(f, 25.0);
            },
            Bound::Source,
            |f| {
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                f.sources[0].elsewhere = estimate(30.0);
                interface(f, 25.0);
            },
            Bound::Path,
        ),
        (
            "the own access link, which two sources fill",
            |f| {
                f.sources[1].ended = secs(39.0);
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                interface(f, 11.0);
            },
            Bound::Access,
            |f| {
                f.sources[1].ended = secs(39.0);
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                interface(f, 20.0);
            },
            Bound::Source,
        ),
        (
            "the own access link, as an earlier transfer shows",
            |f| {
                f.sources[1].ended = secs(39.0);
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                f.fastest = estimate(10.5);
            },
            Bound::Access,
            |f| {
                f.sources[1].ended = secs(39.0);
                f.sources[0].paths[0].tcp = tcp(100, 40, 160);
                f.fastest = estimate(40.0);
            },
            Bound::Source,
        ),
        (
            "a lossy path from the last source",
            |f| {
                f.sources[0].paths[0].tcp = tcp(500, 40, 45);
                interface(f, 25.0);
            },
            Bound::Path,
            |f| {
                f.sources[0].paths[0].tcp = tcp(5, 40, 45);
                interface(f, 25.0);
            },
            Bound::Source,
        ),
        (
            "a source with two slow paths",
            |f| two_paths(f, 25_000_000),
            Bound::Source,
            |f| two_paths(f, 2_000_000),
            Bound::Path,
        ),
        (
            "a source whose disk is slow",
            |f| f.sources[0].paths[0].tcp = tcp(0, 40, 41),
            Bound::Source,
            |f| {
                f.sources[0].paths[0].tcp = tcp(0, 40, 41);
                f.sources[0].paths[0].is_relayed = true;
            },
            Bound::Path,
        ),
        (
            "legs from one source that slow each other",
            |f| {
                let legs = vec![("s".into(), String::new()), ("s".into(), "r".into())];
                interface(f, 25.0);
                f.shared = vec![SharedLegs { legs, rate: Rate::from_mbps(5.0) }];
            },
            Bound::Source,
            |f| {
                let legs = vec![("s".into(), String::new()), ("t".into(), String::new())];
                f.shared = vec![SharedLegs { legs, rate: Rate::from_mbps(5.0) }];
            },
            Bound::Access,
        ),
    ];

    #[test]
    fn each_scene_has_its_bound_and_a_near_miss_another() {
        for (what, change, bound, miss, other) in SCENES {
            for (change, bound, which) in [(change, bound, "scene"), (miss, other, "near miss")] {
                let mut facts = plain();
                change(&mut facts);
                let found = gather_verdict(&facts);
                assert_eq!(found.bound, *bound, "{what} ({which}): {found:#?}\n{facts:#?}");
                assert!(found.text.ends_with('.') && found.text.len() < 160, "{}", found.text);
            }
        }
    }

    #[test]
    fn the_text_names_the_source_that_was_last() {
        let mut facts = plain();
        facts.sources[0].paths[0].tcp = tcp(0, 40, 41);
        let found = gather_verdict(&facts);
        assert!(found.text.starts_with("s was last"), "{}", found.text);
        assert_eq!(found.evidence[0].what, "s: last byte");
    }

    #[test]
    fn no_facts_at_all_are_no_panic() {
        assert_eq!(gather_verdict(&GatherFacts::default()).bound, Bound::Small);
        let mut facts = plain();
        facts.took = Duration::MAX;
        facts.sources[0].ended = Duration::MAX;
        facts.sources[0].bytes = u64::MAX / 2;
        assert_eq!(gather_verdict(&facts).bound, Bound::Unknown);
    }
}
