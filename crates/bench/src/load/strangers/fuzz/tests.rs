//! Tests with arbitrary targets and messages: `THALWEG_FUZZ_CASES` of each (20,000 by default), from
//! `THALWEG_FUZZ_SEED` (random by default, and printed).

use super::{RelayPolicy, messages, targets};
use std::{
    env,
    time::{SystemTime, UNIX_EPOCH},
};
use thalweg_net::PrivateKey;
use thalweg_relay::{EgressPolicy, OwnAddresses};
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Role},
};

/// The number of cases and their seed, which is printed.
fn plan(what: &str) -> (u64, u64) {
    let read = |name: &str| env::var(name).ok().map(|v| v.parse::<u64>().unwrap());
    let nanos = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = read("THALWEG_FUZZ_SEED").unwrap_or_else(|| nanos().into());
    let cases = read("THALWEG_FUZZ_CASES").unwrap_or(20_000);
    println!("{what}: {cases} cases, THALWEG_FUZZ_SEED={seed}");
    (cases, seed)
}

#[test]
fn no_forbidden_target_passes() {
    let (cases, seed) = plan("targets");
    let passed = targets(cases, seed, &RelayPolicy::new().unwrap()).unwrap().passed;
    assert!(passed > cases / 100, "only {passed} of {cases} passed: nothing was tried");
}

/// Checks the independent implementation itself: it detects each of these holes.
#[test]
fn a_policy_with_a_hole_is_detected() {
    let (_, seed) = plan("holes");
    let whole = RelayPolicy::new().unwrap();
    let net = |text: &str| text.parse().unwrap();
    let bare = || EgressPolicy::new(vec![], vec![]);
    let wide = |text: &str| EgressPolicy::new(vec![net(text)], vec![]);
    let own = OwnAddresses::fixed(["10.0.0.1".parse().unwrap()]);
    let with = |policy| {
        let mut world = whole.clone();
        world.policy = policy;
        world
    };
    let mut grabbing = whole.clone();
    grabbing.roster.members.retain(|m| m.name.as_str() != "evil");
    grabbing.roster.members.push(evil());
    grabbing.roster.members.sort_by(|a, b| a.name.cmp(&b.name));
    for (what, world) in [
        ("no deny list, and nothing known of itself", with(bare())),
        ("no deny list", with(bare().with_own(&own))),
        ("a private network is allowed", with(wide("10.0.0.0/8").with_own(&own))),
        ("NAT64 and all within are allowed", with(wide("::/0"))),
        ("a member has another address", grabbing),
    ] {
        assert!(targets(50_000, seed, &world).is_err(), "not found out: {what}");
    }
}

#[tokio::test]
async fn messages_are_parsed_or_refused_and_never_read_past_their_end() {
    let (cases, seed) = plan("messages");
    let passed = messages(cases, seed).unwrap().passed;
    assert!(passed > cases / 20, "only {passed} of {cases} were requests");
}

/// A member that lists an address of a private network as its own.
fn evil() -> Member {
    let key = |seed: u8| PrivateKey::from_seed(&[seed; 32]).id();
    Member {
        name: "evil".parse().unwrap(),
        node: Some(key(4)),
        client: key(104),
        addresses: ["192.168.0.1:22".parse().unwrap()].into(),
        roles: [Role::Client, Role::Relay].into(),
        tags: Default::default(),
    }
}
