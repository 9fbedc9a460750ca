use super::*;
use proptest::prelude::*;
use std::{fs, thread};
use thalweg_wire::mesh::measure::{PathsReply, Strategy};

const HOUR: u64 = 3600;

/// Seconds after some day in 2026.
fn at(seconds: u64) -> WallTime {
    WallTime::from_unix_nanos((1_790_000_000 + seconds) * 1_000_000_000)
}

fn reply(scores: &[(&str, f64)]) -> CandidatesReply {
    let candidate = |(relay, score): &(&str, f64)| Candidate {
        relay: relay.parse().unwrap(),
        score: *score,
        evidence: 30,
        age: Duration::from_secs(60),
        load: None,
    };
    CandidatesReply {
        strategy: Strategy::LoadAware,
        candidates: scores.iter().map(candidate).collect(),
        valid_for: Duration::from_secs(HOUR),
        measured: 90,
        pairs: 100,
    }
}

fn ten() -> CandidatesReply {
    let names: Vec<String> = (0..10).map(|i| format!("r{i}")).collect();
    let scores: Vec<(&str, f64)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), 1.0 - i as f64 / 20.0)).collect();
    reply(&scores)
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = Detours::beside(&directory.path().join("history.json"));
    (directory, file)
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("r{i}")).collect()
}

fn nothing(_: &str) -> Option<Rate> {
    None
}

fn reasons(picked: &[PickedRelay], reason: Reason) -> Vec<&str> {
    picked.iter().filter(|p| p.reason == reason).map(|p| p.relay.as_str()).collect()
}

#[test]
fn the_list_and_the_learned_scores_are_saved() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    assert!(detours.is_stale(at(0)) && detours.problem().is_none());
    detours.follow(ten(), Some(&"r3".parse().unwrap()), at(0));
    detours.learn(vec![("r9".into(), 3.0)]);
    detours.save().unwrap();
    let next = Detours::open(&file);
    assert_eq!(next.relay_list().unwrap().age(at(70)), Duration::from_secs(70));
    let relay_states = next.relay_states();
    assert_eq!(relay_states.len(), 9, "a host is no candidate of its own");
    assert_eq!((relay_states[0].relay.as_str(), relay_states[0].tried), ("r9", 1));
    assert!((relay_states[0].score - 1.775).abs() < 1e-9, "the mean of 0.55 and 3");
    assert_eq!(relay_states[0].oracle.as_ref().unwrap().evidence, 30);
}

#[test]
fn a_list_is_stale_if_it_is_old_or_from_the_future() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    detours.follow(ten(), None, at(HOUR));
    assert!(!detours.is_stale(at(HOUR)) && !detours.is_stale(at(2 * HOUR)));
    assert!(detours.is_stale(at(2 * HOUR + 1)) && detours.is_stale(at(0)));
    detours.follow(reply(&[("r1", 0.5)]), None, at(0));
    assert!(!detours.is_stale(at(1)), "the clock was put right");
}

#[test]
fn an_unanswered_request_makes_the_oracle_away_until_a_list_or_for_a_minute() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    assert!(!detours.is_away(at(0)));
    detours.note_unanswered(at(100));
    detours.save().unwrap();
    let mut next = Detours::open(&file);
    assert!(next.is_away(at(100)) && next.is_away(at(160)));
    assert!(!next.is_away(at(161)) && !next.is_away(at(99)), "long ago, and the clock put right");
    next.follow(ten(), None, at(120));
    assert!(!next.is_away(at(121)));
}

#[test]
fn five_relays_are_drawn_and_one_is_tested_until_it_loses() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    detours.follow(ten(), None, at(0));
    let first = detours.pick(&names(10), nothing, Draw::Proportional);
    assert_eq!((first.len(), reasons(&first, Reason::Drawn).len()), (6, 5));
    let test = reasons(&first, Reason::Test)[0].to_owned();
    detours.save().unwrap();
    let mut next = Detours::open(&file);
    for _ in 0..20 {
        let again = next.pick(&names(10), nothing, Draw::Proportional);
        assert_eq!(reasons(&again, Reason::Test), [test.as_str()]);
    }
    next.learn(vec![(test.clone(), 0.0)]);
    let again = next.pick(&names(10), nothing, Draw::Proportional);
    assert_ne!(reasons(&again, Reason::Test), [test.as_str()]);
}

#[test]
fn if_some_relays_gain_the_others_are_only_tested() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    let ranked: Vec<String> = (0..10).map(|i| format!("r{i}")).collect();
    let scores = |good: f64| -> Vec<(&str, f64)> {
        ranked.iter().map(|n| (n.as_str(), if n.as_str() < "r3" { good } else { 0.0 })).collect()
    };
    detours.follow(reply(&scores(0.5)), None, at(0));
    for draw in [Draw::Proportional, Draw::Top] {
        let picked = detours.pick(&names(10), nothing, draw);
        let poor = picked.iter().filter(|p| p.score == Some(0.0));
        assert!(poor.clone().all(|p| p.reason == Reason::Test), "{picked:?}");
        assert!(picked.len() <= 4 && reasons(&picked, Reason::Test).len() == 1, "{picked:?}");
    }
    detours.follow(reply(&scores(0.0)), None, at(0));
    assert_eq!(detours.pick(&names(10), nothing, Draw::Top).len(), 6, "nothing is known");
}

#[test]
fn draw_top_takes_the_five_best() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    detours.follow(ten(), None, at(0));
    let picked = detours.pick(&names(10), nothing, Draw::Top);
    assert_eq!(reasons(&picked, Reason::Drawn), ["r0", "r1", "r2", "r3", "r4"]);
}

#[test]
fn unusable_relays_are_not_drawn() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    detours.follow(ten(), None, at(0));
    let usable: Vec<String> = names(10).split_off(2);
    for draw in [Draw::Proportional, Draw::Top] {
        let picked = detours.pick(&usable, nothing, draw);
        assert_eq!(picked.len(), 6);
        assert!(picked.iter().all(|p| usable.contains(&p.relay)), "{picked:?}");
    }
    let strangers: Vec<String> = (0..9).map(|i| format!("s{i}")).collect();
    let picked = detours.pick(&strangers, nothing, Draw::Proportional);
    assert_eq!(reasons(&picked, Reason::Unranked).len(), 6, "the list names none of them");
}

#[test]
fn a_small_mesh_is_tried_whole_and_without_a_list_the_first_relays_are() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    assert_eq!(reasons(&detours.pick(&names(20), nothing, Draw::Top), Reason::Unranked).len(), 8);
    detours.follow(ten(), None, at(0));
    let picked = detours.pick(&names(6), nothing, Draw::Proportional);
    assert_eq!(reasons(&picked, Reason::All), ["r0", "r1", "r2", "r3", "r4", "r5"]);
    assert_eq!(picked[0].score, Some(1.0));
}

#[test]
fn relays_that_were_fast_to_this_server_are_added() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    let ranked: Vec<String> = (0..20).map(|i| format!("r{i}")).collect();
    let scores: Vec<(&str, f64)> =
        ranked.iter().map(|n| (n.as_str(), if n.len() == 2 { 1.0 } else { 0.0 })).collect();
    detours.follow(reply(&scores), None, at(0));
    let rate = |name: &str| match name {
        "direct" => Some(Rate::from_mbps(10.0)),
        "r17" => Some(Rate::from_mbps(30.0)),
        "r18" => Some(Rate::from_mbps(9.0)),
        _ => None,
    };
    let picked = detours.pick(&ranked, rate, Draw::Top);
    assert_eq!(reasons(&picked, Reason::Drawn).len(), 5);
    let known = picked.iter().find(|p| p.relay == "r17").unwrap();
    assert_eq!(known.rate, Some(Rate::from_mbps(30.0)));
    assert!(reasons(&picked, Reason::Here).iter().all(|r| *r == "r17"), "{picked:?}");
}

#[test]
fn learned_scores_are_kept_if_a_list_lacks_the_relay() {
    let (_directory, file) = file();
    let mut detours = Detours::open(&file);
    detours.follow(ten(), None, at(0));
    detours.learn(vec![("r0".into(), 2.0)]);
    detours.follow(reply(&[("s0", 0.3), ("s1", 0.2)]), None, at(1));
    let names: Vec<_> = detours.relay_states().iter().map(|s| (s.relay.clone(), s.score)).collect();
    assert_eq!(names, [("r0".into(), 1.5), ("s0".into(), 0.3), ("s1".into(), 0.2)]);
    assert!(detours.relay_states()[0].oracle.is_none());
}

#[test]
fn concurrent_processes_lose_nothing_and_count_nothing_twice() {
    let (_directory, file) = file();
    let mut base = Detours::open(&file);
    base.follow(ten(), None, at(0));
    base.save().unwrap();
    thread::scope(|scope| {
        for relay in names(8) {
            let file = &file;
            scope.spawn(move || {
                let mut own = Detours::open(file);
                own.learn(vec![(relay, 4.0)]);
                // On a busy machine another process may hold the lock for longer than the wait.
                while own.save().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {}
                own.save().unwrap();
            });
        }
    });
    let relay_states = Detours::open(&file).relay_states();
    let tried: Vec<u64> = relay_states.iter().map(|s| s.tried).collect();
    assert_eq!(tried, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
}

#[test]
fn a_corrupt_file_is_set_aside_and_a_newer_one_is_not_changed() {
    for bytes in
        [&b"{\"format\": 1, \"lis"[..], b"", b"\xff", b"[]", b"{\"format\":1,\"listed\":3}"]
    {
        let (_directory, file) = file();
        fs::write(&file, bytes).unwrap();
        let mut detours = Detours::open(&file);
        assert!(detours.problem().unwrap().contains("was corrupt"), "{:?}", detours.problem());
        let aside = file.with_file_name("history.detours.json.damaged");
        assert_eq!(fs::read(aside).unwrap(), bytes);
        detours.follow(ten(), None, at(0));
        detours.save().unwrap();
        assert_eq!(Detours::open(&file).relay_states().len(), 10);
    }
    let (_directory, file) = file();
    let theirs = r#"{"format": 2, "listed": "elsewhere"}"#;
    fs::write(&file, theirs).unwrap();
    let mut detours = Detours::open(&file);
    assert!(detours.problem().unwrap().contains("newer thalweg (format 2)"));
    detours.follow(ten(), None, at(0));
    detours.save().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
}

#[test]
fn clearing_forgets_what_others_saved() {
    let (_directory, file) = file();
    let (mut one, mut two) = (Detours::open(&file), Detours::open(&file));
    one.follow(ten(), None, at(0));
    one.save().unwrap();
    two.clear();
    two.save().unwrap();
    assert_eq!(Detours::open(&file).relay_states(), []);
}

#[test]
fn known_paths_are_stored_without_legs_of_unused_indices() {
    let directory = tempfile::tempdir().unwrap();
    let file = KnownPaths::beside(&directory.path().join("history.json"));
    assert_eq!(KnownPaths::load(&file), (None, None));
    let text = r#"{"nodes":["0.free","fra","nyc"],"down":[],"disagreements":[],"legs":[
        {"from":1,"to":2,"bps":1e7,"spread_bps":null,"method":"transfer","at_least":false,"age":"5 s"},
        {"from":0,"to":2,"bps":1e7,"spread_bps":null,"method":"transfer","at_least":false,"age":"5 s"}]}"#;
    let reply: PathsReply = serde_json::from_str(text).unwrap();
    let known = KnownPaths::new(reply, at(0));
    assert_eq!(known.reply.legs.len(), 1);
    assert_eq!((known.reply.legs[0].from, known.reply.legs[0].to), (0, 1));
    assert_eq!(known.reply.nodes.len(), 2);
    known.keep(&file).unwrap();
    assert_eq!(KnownPaths::load(&file), (Some(known), None));
    fs::write(&file, "{").unwrap();
    assert!(KnownPaths::load(&file).1.unwrap().contains("was corrupt"));
}

proptest! {
    /// For any input: no relay twice, only usable relays, and as many as possible within the bound.
    #[test]
    fn picked_relays_are_unique_and_usable(listed in 0usize..30, usable in 0usize..30, top in any::<bool>()) {
        let (_directory, file) = file();
        let mut detours = Detours::open(&file);
        let all = names(listed);
        let scores: Vec<(&str, f64)> = all.iter().map(|n| (n.as_str(), 0.5)).collect();
        detours.follow(reply(&scores), None, at(0));
        // Every second relay is in both lists.
        let usable: Vec<String> = (0..usable).map(|i| format!("r{}", i * 2)).collect();
        let draw = if top { Draw::Top } else { Draw::Proportional };
        let picked = detours.pick(&usable, nothing, draw);
        let mut seen: Vec<&str> = picked.iter().map(|p| p.relay.as_str()).collect();
        prop_assert!(picked.iter().all(|p| usable.contains(&p.relay)));
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), picked.len());
        prop_assert!(picked.len() <= MOST && picked.len() >= usable.len().min(CANDIDATES + 1));
    }
}
