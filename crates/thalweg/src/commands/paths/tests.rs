//! Tests of the output for an invented mesh; no number is measured.

use super::{
    advice, candidates, destination, destination::GetOptions, knowledge::PathKnowledge, matrix,
    node,
};
use std::{sync::Arc, time::Duration};
use thalweg_paths::{
    detours::KnownPaths,
    history::{Bound, PathObservation},
};
use thalweg_units::{NodeId, Rate, WallTime};
use thalweg_wire::mesh::{
    Member, Name, Role, Roster,
    measure::{
        Candidate, CandidatesReply, Disagreement, Down, FailedOrder, LegEntry, MeasuringStatus,
        PathsReply, SpentRelay, Strategy,
    },
};

const URL: &str = "https://www.example/big.iso";
const ORIGIN: &str = "https://www.example:443";

fn now() -> WallTime {
    WallTime::from_unix_nanos(1_790_000_000_000_000_000)
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn leg(from: u32, to: u32, mbps: f64) -> LegEntry {
    LegEntry {
        from,
        to,
        bps: mbps * 1e6,
        spread_bps: Some(mbps * 5e4),
        method: "transfer".into(),
        at_least: false,
        rtt_s: None,
        age: minutes(90 + u64::from(from)),
        available: None,
    }
}

/// West and east are slow to each other and fast to the middle; `lap` is no relay.
fn reply() -> PathsReply {
    let nodes = ["fra", "nyc", "mid", "lap"];
    let rates = [(0, 1, 9.4), (1, 0, 9.1), (0, 2, 48.0), (2, 0, 47.0), (1, 2, 44.0), (2, 1, 43.0)];
    let more = [(0, 3, 80.0), (3, 0, 80.0), (3, 1, 85.0), (1, 3, 86.0)];
    let mut legs: Vec<_> = rates.iter().chain(&more).map(|(i, j, r)| leg(*i, *j, *r)).collect();
    legs.push(LegEntry { at_least: true, method: "passive".into(), ..leg(2, 3, 5.0) });
    PathsReply {
        nodes: nodes.map(name).into(),
        legs,
        down: vec![Down { node: name("sfo"), why: "no answer".into(), since: minutes(12) }],
        disagreements: vec![Disagreement {
            from: name("nyc"),
            to: name("mid"),
            claimed_bps: 9e9,
            by: name("nyc"),
            seen_bps: Some(4.4e7),
            believed_bps: Some(4.4e7),
            age: minutes(3),
        }],
        measuring: None,
        next: None,
    }
}

fn member(text: &str, key: u8, roles: &[Role], tags: &[&str]) -> Member {
    Member {
        name: name(text),
        node: Some(NodeId::from_bytes([key; 32])),
        client: NodeId::from_bytes([key + 100; 32]),
        addresses: vec![format!("10.0.0.{key}:7373").parse().unwrap()],
        roles: roles.iter().copied().collect(),
        tags: tags.iter().map(|t| t.parse().unwrap()).collect(),
    }
}

fn roster() -> Roster {
    let relay = &[Role::Client, Role::Relay];
    let members = vec![
        member("fra", 1, relay, &["region=eu"]),
        member("lap", 4, &[Role::Client], &["region=us"]),
        member("mid", 3, relay, &["region=eu"]),
        member("nyc", 2, relay, &["region=us"]),
    ];
    Roster {
        version: 3,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    }
}

fn candidates(scores: &[(&str, f64)]) -> CandidatesReply {
    let candidate = |(relay, score): &(&str, f64)| Candidate {
        relay: name(relay),
        score: *score,
        evidence: 42,
        age: minutes(95),
        load: Some(0.25),
    };
    CandidatesReply {
        strategy: Strategy::LoadAware,
        candidates: scores.iter().map(candidate).collect(),
        valid_for: minutes(1),
        measured: 10,
        pairs: 12,
    }
}

/// What `fra` knows, from an answer stored five minutes ago.
fn found() -> PathKnowledge {
    let mut found = PathKnowledge::stored(name("fra"), None);
    found.now = now();
    let asked = WallTime::from_unix_nanos(now().as_unix_nanos() - 300_000_000_000);
    found.paths = Some(KnownPaths::new(reply(), asked));
    found.roster = Some(Arc::new(roster()));
    let some = [("mid", 1.8), ("nyc", 0.0)];
    found.detours.follow(candidates(&some), Some(&found.me), asked);
    found.detours.learn(vec![("mid".into(), 2.6)]);
    found
}

#[test]
fn a_small_mesh_is_shown_whole() {
    insta::assert_snapshot!(matrix::render(&found(), false).0);
}

#[test]
fn candidates_are_shown_with_score_age_evidence_and_reason() {
    insta::assert_snapshot!(candidates::render(&found(), false).0);
}

#[test]
fn many_candidates_are_shown_with_odds_and_learnt_ones_outlive_the_list() {
    let mut found = found();
    let names: Vec<String> = (0..30).map(|i| format!("r{i}")).collect();
    let scores: Vec<(&str, f64)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), i as f64 / 100.0)).collect();
    found.detours.follow(candidates(&scores), None, now());
    let (text, value) = candidates::render(&found, false);
    assert!(text.contains("… and 6 more: --full"), "{text}");
    assert!(text.contains("learnt here, not in the oracle's list"), "{text}");
    assert!(text.contains("%; the oracle's score"), "{text}");
    assert_eq!(value.as_array().unwrap().len(), 31);
}

#[test]
fn three_hundred_nodes_are_summarised_on_one_screen() {
    let mut found = found();
    let nodes: Vec<Name> = (0..300).map(|i| name(&format!("n{i}"))).collect();
    let all = (0..300u32).flat_map(|i| (0..300u32).filter(move |j| *j != i).map(move |j| (i, j)));
    let legs = all.map(|(i, j)| leg(i, j, f64::from(i + 1))).collect();
    let reply = PathsReply { nodes, legs, ..PathsReply::default() };
    found.paths = Some(KnownPaths::new(reply, now()));
    let (text, _) = matrix::render(&found, false);
    assert_eq!(text.lines().count(), 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.starts_with("300 nodes, 89700 of 89700 ordered pairs measured (100 %)"), "{text}");
    let (full, _) = matrix::render(&found, true);
    assert_eq!(full.lines().count(), 303);
}

#[test]
fn limits_of_measuring_are_shown() {
    let render = |measuring| {
        let mut found = found();
        let reply = PathsReply { measuring: Some(measuring), ..reply() };
        found.paths = Some(KnownPaths::new(reply, now()));
        let text = matrix::render(&found, false).0;
        text.lines().filter(|l| l.starts_with("measuring: ")).map(str::to_owned).collect()
    };
    let off: Vec<String> = render(MeasuringStatus::default());
    assert_eq!(off, ["measuring: off (`enabled` in [oracle.measure] of the oracle's host)"]);
    assert!(render(MeasuringStatus { enabled: true, ..MeasuringStatus::default() }).is_empty());
    let spent = (0..10).map(|n| SpentRelay {
        node: name(&format!("n{n}")),
        free_in: (n > 0).then_some(minutes(90)),
    });
    let failed =
        FailedOrder { from: name("fra"), to: name("nyc"), why: "refused".into(), age: minutes(2) };
    let held =
        render(MeasuringStatus { enabled: true, spent: spent.collect(), failed: Some(failed) });
    assert_eq!(held.len(), 2, "{held:?}");
    let of = "measuring: today's byte budget is used up at n0 (always: one measurement needs more \
              than its daily budget), n1 (for 1 h 30 min), ";
    assert!(held[0].starts_with(of) && held[0].ends_with(" and 2 more"), "{held:?}");
    assert_eq!(held[1], "measuring: the last failure, 2 min ago: fra → nyc: refused");
}

#[test]
fn the_paths_to_one_node_come_with_their_detours() {
    insta::assert_snapshot!(node::render(&found(), "nyc").unwrap().0);
}

#[test]
fn an_unknown_node_is_answered_with_the_nearest_name() {
    let error = |text| node::render(&found(), text).unwrap_err().to_string();
    assert_eq!(error("nyk"), "the oracle knows no node `nyk`; did you mean `nyc`?");
    assert!(error("elsewhere").contains("`thalweg mesh members` lists them"));
    let nothing = PathKnowledge::stored(name("fra"), None);
    let error = node::render(&nothing, "nyc").unwrap_err().to_string();
    assert!(error.contains("nothing is known of paths yet"), "{error}");
}

#[test]
fn advice_names_who_should_relay_and_for_whom() {
    insta::assert_snapshot!(advice::render(&found(), false).unwrap().0);
    let nothing = PathKnowledge::stored(name("fra"), None);
    assert!(advice::render(&nothing, false).is_err());
}

#[test]
fn a_destination_is_told_with_what_is_known_and_what_would_be_done() {
    let mut found = found();
    let seen = |path: &str, mbps, bound| PathObservation {
        path: path.into(),
        rate: Rate::from_mbps(mbps),
        setup: Duration::from_millis(80),
        bound,
    };
    let own = [seen("direct", 12.0, Bound::AtLeast), seen("mid", 31.0, Bound::Exact)];
    let before = WallTime::from_unix_nanos(now().as_unix_nanos() - 3_600_000_000_000);
    found.history.lock().learn(ORIGIN, &own, before);
    let wanted = destination::DestinationUrl::parse(URL).unwrap();
    let (text, value) = destination::render(&mut found, &wanted, &GetOptions::default());
    insta::assert_snapshot!(text);
    assert_eq!(value["destination"], ORIGIN);
    // The proxy uses the system's clock, by which all of this is long past.
    assert_eq!(value["connection_goes"][0]["path"], "direct");
    assert_eq!(value["download_tries"][0]["reason"], "all");
    let other = destination::DestinationUrl::parse("other.example").unwrap();
    let (text, _) = destination::render(&mut found, &other, &GetOptions::default());
    assert!(text.contains("nothing is known of https://other.example:443 yet"), "{text}");
    assert!(text.contains("begins directly, with mid after 500 ms"), "{text}");
}

#[test]
fn relays_with_an_avoided_tag_are_not_tried() {
    let mut found = found();
    let wanted = destination::DestinationUrl::parse(URL).unwrap();
    let avoid = ["region=eu".parse().unwrap()];
    let terms = GetOptions { avoid: &avoid, ..GetOptions::default() };
    let (text, value) = destination::render(&mut found, &wanted, &terms);
    assert_eq!(value["usable_relays"], 1, "nyc alone is elsewhere: {text}");
    assert_eq!(value["download_tries"][0]["relay"], "nyc");
    let ways = value["connection_goes"].as_array().unwrap();
    assert!(ways.iter().all(|way| way["path"] != "mid"), "{text}");
}
