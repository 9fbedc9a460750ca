//! Scenes of downloads, and their bounds.

use super::*;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn mbps(rate: f64) -> Option<Rate> {
    Some(Rate::from_mbps(rate))
}

fn estimate(rate: f64, hours: f64) -> Estimate {
    Estimate { rate: Rate::from_mbps(rate), age: secs(hours * 3600.0) }
}

/// Counters of a connection of 50 MB: this many packets of 100,000 out of order, and the round trips, ms.
fn tcp(out_of_order: u64, shortest: u64, usual: u64) -> Option<TcpFacts> {
    let (shortest, usual) = (Duration::from_millis(shortest), Duration::from_millis(usual));
    Some(TcpFacts { packets: 100_000, out_of_order, shortest, usual, window: 6_000_000 })
}

/// 50 MB by the direct path at 10 Mbit/s, in 40 s, of which nothing else is known.
fn plain() -> Facts {
    let direct = PathFacts {
        name: "direct".into(),
        bytes: 50_000_000,
        rest: mbps(10.0),
        first_byte: Some(secs(0.1)),
        ..PathFacts::default()
    };
    Facts {
        took: secs(40.2),
        set_up: secs(0.2),
        fetched: 50_000_000,
        paths: vec![direct],
        rest: mbps(10.0),
        ..Facts::default()
    }
}

/// The same, after a relayed path was sampled beside the direct one.
fn beside(facts: &mut Facts, direct: f64, relayed: f64) {
    facts.paths[0].sampled = mbps(direct);
    facts.paths.push(PathFacts {
        name: "fra".into(),
        is_relayed: true,
        bytes: 1_000_000,
        sampled: mbps(relayed),
        ..PathFacts::default()
    });
}

/// The same by a relayed path alone, whose legs are known.
fn relayed(facts: &mut Facts) {
    facts.paths[0].name = "fra".into();
    facts.paths[0].is_relayed = true;
    facts.paths[0].tcp = tcp(0, 50, 52);
    facts.paths[0].legs = Some(estimate(80.0, 0.1));
}

/// An interface that received this many bytes for each one of the transfer, and its capacity.
fn interface(facts: &mut Facts, bytes: f64, capacity: Option<(f64, bool)>) {
    facts.interface = Some(InterfaceFacts {
        name: "eth0".into(),
        received: (facts.fetched as f64 * bytes) as u64,
        own: facts.fetched,
        during: secs(40.0),
        peak: None,
        capacity: capacity
            .map(|(rate, is_measured)| Capacity { estimate: estimate(rate, 5.0), is_measured }),
    });
}

type Change = fn(&mut Facts);

/// What happens, the facts, the bound; and facts that differ a little, with theirs.
type Scene = (&'static str, Change, Bound, Change, Bound);

const SCENES: &[Scene] = &[
    (
        "the file was there",
        |f| f.fetched = 0,
        Bound::Small,
        |f| f.fetched = 50_000_000,
        Bound::Unknown,
    ),
    (
        "a server that asks to wait",
        |f| f.server_wait = secs(17.0),
        Bound::Server,
        |f| f.server_wait = secs(15.0),
        Bound::Unknown,
    ),
    (
        "a server that asks to wait, before the disk does",
        |f| (f.server_wait, f.disk_wait) = (secs(20.0), secs(17.0)),
        Bound::Server,
        |f| (f.server_wait, f.disk_wait) = (secs(17.0), secs(20.0)),
        Bound::Disk,
    ),
    (
        "a slow disk",
        |f| f.disk_wait = secs(38.0),
        Bound::Disk,
        |f| f.disk_wait = secs(6.0),
        Bound::Unknown,
    ),
    (
        "a slow disk, and a queue that its back-pressure leaves in the network",
        |f| {
            f.disk_wait = secs(30.0);
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Disk,
        |f| {
            f.disk_wait = secs(10.0);
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Path,
    ),
    (
        "an own limit that is waited for",
        |f| f.limit_wait = secs(30.0),
        Bound::Limit,
        |f| f.limit_wait = secs(12.0),
        Bound::Unknown,
    ),
    (
        "an own limit near the path's rate",
        |f| f.limit = mbps(10.5),
        Bound::Limit,
        |f| f.limit = mbps(12.0),
        Bound::Unknown,
    ),
    (
        "a busy processor",
        |f| f.cpu = Some(secs(39.0)),
        Bound::Cpu,
        |f| f.cpu = Some(secs(33.0)),
        Bound::Unknown,
    ),
    (
        "a long set-up",
        |f| f.set_up = secs(25.0),
        Bound::Small,
        |f| f.set_up = secs(15.0),
        Bound::Unknown,
    ),
    (
        "slow start on a long path",
        |f| (f.took, f.paths[0].tcp) = (secs(3.5), tcp(0, 300, 310)),
        Bound::Small,
        |f| (f.took, f.paths[0].tcp) = (secs(4.5), tcp(0, 300, 310)),
        Bound::Source,
    ),
    (
        "a small file without a known round trip",
        |f| (f.fetched, f.paths[0].first_byte) = (300_000, None),
        Bound::Small,
        |f| (f.fetched, f.paths[0].first_byte) = (400_000, None),
        Bound::Unknown,
    ),
    (
        "a rival on the access link",
        |f| interface(f, 2.5, Some((26.0, true))),
        Bound::Rival,
        |f| interface(f, 2.5, Some((40.0, true))),
        Bound::Unknown,
    ),
    (
        "a rival on an access link of unknown capacity, with a queue",
        |f| {
            interface(f, 2.5, None);
            f.paths[0].tcp = tcp(10, 20, 80);
        },
        Bound::Rival,
        |f| {
            interface(f, 1.3, None);
            f.paths[0].tcp = tcp(10, 20, 80);
        },
        Bound::Path,
    ),
    (
        "a full access link",
        |f| interface(f, 1.05, Some((11.0, true))),
        Bound::Access,
        |f| interface(f, 1.05, Some((13.0, true))),
        Bound::Unknown,
    ),
    (
        "a full access link whose queue drops packets",
        |f| {
            interface(f, 1.07, Some((11.0, true)));
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Access,
        |f| {
            interface(f, 1.07, Some((20.0, true)));
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Path,
    ),
    (
        "an access link as fast as was ever seen, with a queue",
        |f| {
            interface(f, 1.05, Some((11.0, false)));
            f.paths[0].tcp = tcp(50, 20, 90);
        },
        Bound::Access,
        |f| {
            interface(f, 1.05, Some((11.0, false)));
            f.paths[0].tcp = tcp(0, 20, 21);
        },
        Bound::Source,
    ),
    (
        "an access link that carries more than was ever seen",
        |f| {
            interface(f, 1.05, Some((10.0, false)));
            f.paths[0].tcp = tcp(50, 20, 90);
        },
        Bound::Access,
        |f| {
            interface(f, 1.05, Some((8.0, false)));
            f.paths[0].tcp = tcp(50, 20, 90);
        },
        Bound::Path,
    ),
    (
        "an access link whose capacity was measured long ago",
        |f| interface(f, 1.05, Some((11.0, true))),
        Bound::Access,
        |f| {
            interface(f, 1.05, Some((11.0, true)));
            let old = f.interface.as_mut().and_then(|i| i.capacity.as_mut());
            old.unwrap().estimate.age = secs(8.0 * 86_400.0);
        },
        Bound::Unknown,
    ),
    (
        "a relay that announces its quota",
        |f| {
            relayed(f);
            f.paths[0].notice = Some("its quota of bytes is used up".into());
        },
        Bound::Relay,
        |f| {
            relayed(f);
            f.paths[0].legs = None;
        },
        Bound::Path,
    ),
    (
        "a faster relay that stopped for its limit",
        |f| {
            beside(f, 10.0, 40.0);
            f.paths[1].notice = Some("its quota of bytes is used up".into());
        },
        Bound::Relay,
        |f| {
            beside(f, 10.0, 1.0);
            f.paths[1].notice = Some("its quota of bytes is used up".into());
        },
        Bound::Unknown,
    ),
    (
        "a relay's quota of rate",
        |f| {
            relayed(f);
            (f.paths[0].legs, f.paths[0].quota) = (None, mbps(10.0));
        },
        Bound::Relay,
        |f| {
            relayed(f);
            (f.paths[0].legs, f.paths[0].quota) = (None, mbps(20.0));
        },
        Bound::Path,
    ),
    (
        "a relay that forwards more slowly than its legs carry",
        relayed,
        Bound::Relay,
        |f| {
            relayed(f);
            f.paths[0].legs = Some(estimate(80.0, 2.0));
        },
        Bound::Path,
    ),
    (
        "a relayed path with a lossy leg",
        |f| {
            relayed(f);
            f.paths[0].tcp = tcp(500, 50, 52);
        },
        Bound::Path,
        relayed,
        Bound::Relay,
    ),
    (
        "a small receive window on a long path",
        |f| {
            f.paths[0].tcp = tcp(0, 200, 205);
            f.paths[0].tcp.as_mut().unwrap().window = 260_000;
        },
        Bound::Window,
        |f| {
            f.paths[0].tcp = tcp(0, 200, 205);
            f.paths[0].tcp.as_mut().unwrap().window = 400_000;
        },
        Bound::Source,
    ),
    (
        "paths with bottlenecks of their own",
        |f| beside(f, 9.0, 8.0),
        Bound::Path,
        |f| beside(f, 6.0, 5.7),
        Bound::Unknown,
    ),
    (
        "a source's access that several paths share",
        |f| {
            beside(f, 5.0, 4.5);
            f.fastest = Some(estimate(95.0, 20.0));
        },
        Bound::Source,
        |f| {
            beside(f, 5.0, 4.5);
            f.fastest = Some(estimate(10.5, 20.0));
        },
        Bound::Access,
    ),
    (
        "a source's access that several paths share, in a short download",
        |f| {
            beside(f, 5.0, 4.5);
            (f.paths[1].bytes, f.paths[1].sampled_bytes) = (9_000_000, 9_000_000);
            f.fastest = Some(estimate(95.0, 20.0));
        },
        Bound::Source,
        |f| {
            beside(f, 5.0, 4.5);
            f.paths[1].bytes = 9_000_000;
            f.fastest = Some(estimate(95.0, 20.0));
        },
        Bound::Unknown,
    ),
    (
        "paths that together were faster than the sum of what each was measured at",
        |f| {
            beside(f, 5.0, 2.5);
            f.sampling = mbps(9.8);
            f.fastest = Some(estimate(95.0, 20.0));
        },
        Bound::Source,
        |f| {
            beside(f, 5.0, 2.5);
            f.sampling = mbps(12.5);
            f.fastest = Some(estimate(95.0, 20.0));
        },
        Bound::Path,
    ),
    (
        "a source's access that several paths share, although its queue drops packets",
        |f| {
            beside(f, 5.0, 4.5);
            f.fastest = Some(estimate(95.0, 20.0));
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Source,
        |f| {
            beside(f, 9.0, 0.5);
            f.fastest = Some(estimate(95.0, 20.0));
            f.paths[0].tcp = tcp(300, 20, 90);
        },
        Bound::Path,
    ),
    (
        "a lossy path",
        |f| f.paths[0].tcp = tcp(200, 50, 55),
        Bound::Path,
        |f| f.paths[0].tcp = tcp(60, 50, 55),
        Bound::Unknown,
    ),
    (
        "a path with a long queue",
        |f| f.paths[0].tcp = tcp(5, 20, 60),
        Bound::Path,
        |f| f.paths[0].tcp = tcp(5, 20, 35),
        Bound::Unknown,
    ),
    (
        "a server that sends no faster",
        |f| f.paths[0].tcp = tcp(0, 50, 51),
        Bound::Source,
        |f| {
            f.paths[0].tcp = tcp(0, 50, 51);
            f.paths[0].tcp.as_mut().unwrap().packets = 600;
        },
        Bound::Unknown,
    ),
];

#[test]
fn each_scene_has_its_bound_and_a_near_miss_another() {
    assert!(SCENES.len() >= 20);
    for (what, change, bound, miss, other) in SCENES {
        for (change, bound, which) in [(change, bound, "scene"), (miss, other, "near miss")] {
            let mut facts = plain();
            change(&mut facts);
            let found = verdict(&facts);
            assert_eq!(found.bound, *bound, "{what} ({which}): {found:#?}\n{facts:#?}");
        }
        let mut facts = plain();
        miss(&mut facts);
        assert!(bound != other, "{what}: the near miss is none");
    }
}

#[test]
fn texts_are_one_sentence_and_evidence_has_values() {
    let changes = SCENES.iter().flat_map(|(_, change, _, miss, _)| [change, miss]);
    for change in changes {
        let mut facts = plain();
        change(&mut facts);
        let Verdict { text, evidence, .. } = verdict(&facts);
        assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{text}");
        assert!(!text.contains(". ") && text.len() < 160, "{text}");
        assert!(evidence.iter().all(|e| !e.what.is_empty() && !e.value.is_empty()), "{evidence:?}");
        assert!(facts.fetched == 0 || !evidence.is_empty(), "{text}");
    }
}

#[test]
fn estimates_from_before_have_an_age() {
    let mut facts = plain();
    facts.paths[0].tcp = tcp(0, 50, 51);
    facts.paths[0].known = Some(estimate(40.0, 1.0));
    let found = verdict(&facts);
    let old = found.evidence.iter().find(|e| e.what == "direct, before").unwrap();
    assert_eq!((old.value.as_str(), old.age_seconds), ("40 Mbit/s", Some(3600)));
}

#[test]
fn no_facts_at_all_are_no_panic() {
    assert_eq!(verdict(&Facts::default()).bound, Bound::Small);
    let facts = Facts { fetched: 9, ..Facts::default() };
    assert_eq!(verdict(&facts).bound, Bound::Small);
    let facts = Facts { fetched: u64::MAX, took: Duration::MAX, ..Facts::default() };
    assert_eq!(verdict(&facts).bound, Bound::Unknown);
}
