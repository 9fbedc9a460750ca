//! Scheduler decisions for the reports of members, second by second.

use super::{
    candidates::Candidates,
    decisions::Decisions,
    outline::Outline,
    service::{SKEW, take},
    state::{MOST_MEMBERS, MOST_STREAMS, MOST_SUBSCRIPTIONS, ReportState},
};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::streams::{Planned, Problem};
use thalweg_units::{NodeId, Time, WallTime};
use thalweg_wire::{
    mesh::{Member, Name, Role, Roster},
    stream::{
        leg::{Level, Track},
        plan::{
            LegReport, MAX_AGE, Measured, NameHolder, Parent, Plan, Preference, Published, Quality,
            Reason, Report, SILENCE, StreamPlan, Subscription, Transcoder,
        },
    },
};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Members `n0`, `n1` and so on; those with odd numbers have the tag `odd`.
struct World {
    state: ReportState,
    decided: Decisions,
    candidates: Candidates,
    now: Time,
}

fn key(number: u16) -> NodeId {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    NodeId::from_bytes(bytes)
}

fn member(number: u16) -> Member {
    let mut client = *key(number).as_bytes();
    client[31] = 8;
    Member {
        name: name(&format!("n{number}")),
        node: Some(key(number)),
        client: NodeId::from_bytes(client),
        addresses: vec!["192.0.2.1:7373".parse().unwrap()],
        roles: [Role::Relay].into(),
        tags: if number % 2 == 1 { [name("odd")].into() } else { [].into() },
    }
}

impl World {
    fn new(members: u16) -> Self {
        let date = WallTime::from_unix_nanos(0);
        let members = (0..members).map(member).collect();
        let roster = Roster {
            version: 1,
            not_before: date,
            expiry: date,
            members,
            rules: vec![],
            endorsement: None,
            predecessor: None,
        };
        let mut state = ReportState::default();
        state.follow(&roster);
        let now = Time::ZERO + seconds(1000);
        let (decided, candidates) = (Decisions::from_version(1 << 30), Candidates::default());
        Self { state, decided, candidates, now }
    }

    fn say(&mut self, who: u16, report: Report) -> Vec<String> {
        assert_eq!(report.check(), Ok(()));
        take(&mut self.state, &mut self.decided, key(who), report, self.now)
    }

    /// Plans, as the service does.
    fn plan(&mut self) -> bool {
        let (outline, problem) = self.pose();
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
        let planned = problem.plan(problem.moves() / 16, random);
        self.apply(&outline, &problem, &planned, &outline.keys())
    }

    /// Gives first routes, as the service does beside a search.
    fn complete(&mut self) -> bool {
        let (outline, problem) = self.pose();
        let planned = problem.complete(problem.present());
        self.apply(&outline, &problem, &planned, &BTreeSet::new())
    }

    fn pose(&mut self) -> (Outline, Problem) {
        self.state.expire(self.now);
        let outline = Outline::of(&self.state, &self.decided, self.now);
        let estimates = BTreeMap::new();
        let problem = outline.problem(&self.state, &self.decided, &estimates, self.now).unwrap();
        (outline, problem)
    }

    fn apply(
        &mut self,
        outline: &Outline,
        problem: &Problem,
        planned: &Planned,
        searched: &BTreeSet<(NodeId, u32)>,
    ) -> bool {
        (self.state.is_news, self.state.is_urgent) = (false, false);
        self.candidates = Candidates::of(outline, problem, planned, &self.state);
        let plan = (planned, searched);
        self.decided.apply(outline, problem, plan, &mut self.state, self.now)
    }

    fn told(&self, who: u16) -> Plan {
        self.decided.plan(&key(who), 0, self.now).unwrap()
    }

    /// The member's part in its only stream.
    fn part(&self, who: u16) -> StreamPlan {
        let mut streams = self.told(who).streams;
        assert_eq!(streams.len(), 1, "{streams:?}");
        streams.remove(0)
    }

    /// The preference that its first subscription gets, and the reason.
    fn gets(&self, who: u16) -> (Option<u8>, Reason) {
        let given = &self.part(who).subscriptions[0];
        (given.preference, given.why.reason)
    }
}

fn table2() -> Track {
    Track { label: String::new(), rates: [0, 0, 216_000, 488_000, 456_000] }
}

fn publishes(allow: &[&str]) -> Report {
    let allow = allow.iter().map(|whom| (*whom).to_owned()).collect();
    let published =
        Published { stream: name("stage"), tracks: vec![table2()], allow, age: Duration::ZERO };
    Report { published: vec![published], ..Report::default() }
}

fn wants() -> Report {
    let wanted = Subscription {
        id: 1,
        stream: name("stage"),
        preferences: Preference::defaults(),
        weight: 1.0,
        latency: seconds(1),
        tracks: Vec::new(),
        gets: None,
        gets_track: None,
    };
    Report { subscriptions: vec![wanted], ..Report::default() }
}

fn leg(to: &str, kbps: u64, is_limited: bool) -> LegReport {
    LegReport {
        to: name(to),
        sent_bps: kbps * 1000,
        wanted_bps: 1_160_000,
        is_limited,
        is_down: false,
        dropped: [0; 5],
        delay: None,
        span: seconds(1),
        age: Duration::ZERO,
        measured: None,
    }
}

#[test]
fn members_are_told_whom_to_take_from_and_what_to_send() {
    let mut world = World::new(3);
    world.say(0, publishes(&["*"]));
    world.say(1, wants());
    let wanted = Subscription {
        preferences: vec![Preference {
            quality: Quality { track: None, level: Level::Keys },
            utility: 1.0,
            transcoder: None,
        }],
        ..wants().subscriptions[0].clone()
    };
    world.say(2, Report { subscriptions: vec![wanted], ..Report::default() });
    assert!(world.plan());
    let part = world.part(0);
    assert_eq!((part.origin, part.parent), (Some(name("n0")), None));
    let children: Vec<_> =
        part.children.iter().map(|c| (c.node.as_str(), &c.qualities[..])).collect();
    let of = |level| [Quality { track: None, level }];
    assert_eq!(children, [("n1", &of(Level::All)[..]), ("n2", &of(Level::Keys)[..])]);
    assert_eq!(world.part(1).parent, Some(name("n0")));
    assert_eq!(world.gets(1), (Some(0), Reason::Begun));
    let version = world.told(1).version;
    assert!(version > 1 << 30);
    world.now += seconds(1);
    assert!(!world.plan(), "nothing has changed");
    assert_eq!(world.told(1).version, version);
    assert_eq!(world.part(1).subscriptions[0].why.since, seconds(1));
    assert_eq!(
        world.decided.plan(&key(1), version, world.now),
        None,
        "the member follows this plan already"
    );
}

#[test]
fn unused_legs_are_measured_before_they_are_needed_and_used_ones_only_for_levels() {
    let mut world = World::new(3);
    let measures = |report| Report { measures: true, ..report };
    let relay = measures(Report { relays: true, ..Report::default() });
    world.say(0, measures(publishes(&["*"])));
    world.say(1, relay.clone());
    world.say(2, measures(wants()));
    world.plan();
    let asked = |world: &mut World, who: u16| {
        world.candidates.to_measure(key(who), &mut world.state, world.now)
    };
    assert_eq!(asked(&mut world, 0), [name("n1")], "the leg to n2 is in use");
    assert_eq!(asked(&mut world, 1), [name("n2")]);
    assert_eq!(asked(&mut world, 2), [], "no member receives streams from n2");
    let found =
        Measured { free_bps: 5_000_000, at_least: false, took: seconds(2), age: Duration::ZERO };
    let measured = LegReport { measured: Some(found), ..leg("n1", 0, false) };
    world.say(0, Report { legs: vec![measured], ..measures(publishes(&["*"])) });
    assert_eq!(asked(&mut world, 0), [], "the leg has just been measured");
    world.now += seconds(11);
    assert_eq!(asked(&mut world, 0), [], "it is not measured again within a minute");
    world.now += seconds(10);
    assert_eq!(asked(&mut world, 1), [], "n1 has no leg to measure");
    // The used leg is too slow, and so is the other route as far as is known.
    let mut slow = measures(publishes(&["*"]));
    slow.legs = vec![leg("n2", 300, true), leg("n1", 100, true)];
    world.say(1, relay);
    world.say(2, measures(wants()));
    world.say(0, slow.clone());
    world.plan();
    assert_ne!(world.gets(2).0, Some(0));
    assert_eq!(asked(&mut world, 0), [name("n1")], "an urgent leg is measured every ten seconds");
    world.say(0, Report { keeps_levels: true, ..slow });
    assert_eq!(asked(&mut world, 0).len(), 2, "only a measurement raises its level");
}

#[test]
fn versions_exceed_those_that_members_follow() {
    let mut world = World::new(2);
    world.say(0, publishes(&["*"]));
    world.say(1, wants());
    world.plan();
    let version = world.told(1).version;
    let follows = |version| Report { version, ..wants() };
    world.say(1, follows(version));
    assert_eq!(world.told(1).version, version);
    world.say(1, follows(version + 1000));
    assert_eq!(
        world.told(1).version,
        version + 1001,
        "the version of an oracle whose clock was ahead"
    );
    world.say(1, follows(u64::MAX));
    assert_eq!(world.told(1).version, version + 1001, "a version that no clock can give");
    for _ in 0..3 {
        let reached = world.told(1).version;
        world.say(1, follows(reached + SKEW));
        assert_eq!(world.told(1).version, reached, "repeated reports do not raise it further");
    }
}

#[test]
fn the_first_live_publisher_holds_a_name() {
    let mut world = World::new(4);
    assert!(world.say(0, publishes(&["*"])).is_empty());
    assert_eq!(world.say(1, publishes(&["*"])), ["`stage` is already published at n0"]);
    world.say(2, wants());
    world.plan();
    assert_eq!(world.part(2).parent, Some(name("n0")));
    let holder = NameHolder { stream: name("stage"), node: name("n0") };
    assert_eq!((world.state.held(&key(1)), world.state.held(&key(0))), (vec![holder], vec![]));
    // The holder dies; the other publisher keeps reporting.
    world.now += SILENCE;
    assert!(world.say(1, publishes(&["*"])).is_empty());
    world.say(2, wants());
    world.plan();
    assert_eq!((world.part(2).parent, world.state.held(&key(1))), (Some(name("n1")), vec![]));
    // Then the other one ends the stream.
    world.say(1, Report::default());
    world.plan();
    assert_eq!(world.gets(2), (None, Reason::Unpublished));
}

#[test]
fn who_may_not_subscribe_gets_nothing_and_hands_nothing_on() {
    let mut world = World::new(4);
    world.say(0, publishes(&["@odd"]));
    for who in 1..4 {
        world.say(who, Report { relays: true, ..wants() });
    }
    world.plan();
    assert_eq!(world.gets(1).0, Some(0));
    assert_eq!(world.gets(2), (None, Reason::Forbidden));
    // The direct leg to n3 is broken: n1 may relay, n2 may not.
    world.say(3, Report { lost: vec![name("n0")], ..wants() });
    world.plan();
    assert_eq!(world.part(3).parent, Some(name("n1")));
    world.say(1, Report::default());
    world.plan();
    assert_eq!(world.gets(3), (None, Reason::Full));
}

#[test]
fn a_leg_that_is_too_slow_lowers_and_a_measurement_lifts() {
    let mut world = World::new(2);
    let published = |legs| Report { legs, ..publishes(&["*"]) };
    world.say(0, published(vec![]));
    world.say(1, wants());
    world.plan();
    // Reports right after the change are ignored.
    world.now += seconds(1);
    world.say(0, published(vec![leg("n1", 800, true)]));
    assert!(!world.plan());
    world.now += seconds(2);
    world.say(0, published(vec![leg("n1", 800, true)]));
    assert!(world.state.is_news && world.plan());
    assert_eq!(world.gets(1), (Some(1), Reason::Lowered));
    let child = &world.part(0).children[0];
    let estimate = child.why.estimate.unwrap();
    assert_eq!((estimate.bps, estimate.is_measured), (800_000, false));
    assert_eq!(child.why.leg, Some((name("n0"), name("n1"))));
    // Reports alone never raise it.
    for _ in 0..60 {
        world.now += seconds(1);
        world.say(1, wants());
        world.say(0, published(vec![leg("n1", 704, false)]));
        assert!(!world.plan());
    }
    let measured =
        Measured { free_bps: 900_000, at_least: false, took: seconds(3), age: seconds(1) };
    world.say(0, published(vec![LegReport { measured: Some(measured), ..leg("n1", 704, false) }]));
    assert!(world.plan());
    assert_eq!(world.gets(1), (Some(0), Reason::Raised));
    let given = &world.part(1).subscriptions[0];
    let estimate = given.why.estimate.unwrap();
    assert_eq!((estimate.bps, estimate.is_measured, estimate.age), (1_604_000, true, seconds(1)));
}

#[test]
fn levels_rarely_change_on_a_policed_path() {
    let mut world = World::new(2);
    // A policer of 0.8 Mbit/s with a burst of 1 MB, through which all trains pass.
    let (mut tokens, mut switches, mut gets) = (1e6, 0, None);
    for second in 0..600 {
        let wanted: f64 = [145e3, 88e3, 27e3][usize::from(gets.unwrap_or(0))];
        tokens = f64::min(tokens + 100e3, 1e6);
        let sent = wanted.min(tokens);
        tokens -= sent;
        let mut report = publishes(&["*"]);
        report.legs = vec![leg("n1", (sent * 8.0 / 1000.0) as u64, sent < wanted)];
        report.legs[0].measured = (second % 5 == 0).then(|| Measured {
            free_bps: 5_000_000,
            at_least: false,
            took: seconds(1),
            age: Duration::ZERO,
        });
        world.say(0, report);
        world.say(1, wants());
        world.plan();
        let next = world.gets(1).0;
        switches += u32::from(gets != next);
        gets = next;
        world.now += seconds(1);
    }
    assert!((3..=24).contains(&switches), "{switches}");
}

#[test]
fn a_dead_leg_is_left_at_once() {
    let mut world = World::new(3);
    world.say(0, publishes(&["*"]));
    world.say(1, wants());
    world.say(2, Report { relays: true, ..Report::default() });
    world.plan();
    assert_eq!(world.part(1).parent, Some(name("n0")));
    world.state.is_news = false;
    let down = LegReport { is_down: true, ..leg("n1", 0, true) };
    world.say(0, Report { legs: vec![down], ..publishes(&["*"]) });
    assert!(world.state.is_news && world.plan());
    assert_eq!((world.part(1).parent, world.gets(1).1), (Some(name("n2")), Reason::Rerouted));
    assert_eq!(world.part(2).parent, Some(name("n0")));
}

#[test]
fn a_leg_that_fails_again_and_again_is_avoided_ever_longer() {
    let mut world = World::new(3);
    world.say(0, publishes(&["*"]));
    world.say(1, wants());
    let ends = (key(0), key(1));
    let cannot = || Report { lost: vec![name("n0")], ..wants() };
    let mut avoided = || {
        world.say(1, cannot());
        // Repeated reports are the same failure.
        world.say(1, cannot());
        let mut count = 0;
        while !world.state.is_up(&ends, world.now) {
            world.now += seconds(1);
            count += 1;
            // Members that do not report are forgotten.
            world.say(0, publishes(&["*"]));
            world.say(1, wants());
        }
        count
    };
    assert_eq!([(); 6].map(|()| avoided()), [10, 20, 40, 80, 120, 120]);
    // It works again.
    let parents = vec![Parent { stream: name("stage"), node: name("n0"), origin: None }];
    world.say(1, Report { parents, ..wants() });
    world.say(1, cannot());
    world.now += seconds(10);
    assert!(world.state.is_up(&ends, world.now));
    // So does one that trains have measured since.
    world.say(1, cannot());
    world.now += seconds(5);
    let measured = Measured { free_bps: 5, at_least: false, took: seconds(1), age: seconds(1) };
    let found = LegReport { measured: Some(measured), ..leg("n1", 0, false) };
    world.say(0, Report { legs: vec![found], ..publishes(&["*"]) });
    assert!(world.state.is_up(&ends, world.now));
}

#[test]
fn a_leg_that_was_too_slow_is_measured_again_soon() {
    let mut world = World::new(3);
    let measures = |legs| Report { measures: true, legs, ..publishes(&["*"]) };
    let free_bps = 9_000_000;
    let measured = Measured { free_bps, at_least: false, took: seconds(1), age: seconds(0) };
    let found = |to| LegReport { measured: Some(measured.clone()), ..leg(to, 0, false) };
    world.say(0, measures(vec![found("n1"), found("n2")]));
    world.say(1, wants());
    world.say(2, Report { relays: true, ..Report::default() });
    world.plan();
    assert_eq!(world.part(1).parent, Some(name("n0")));
    let wait = |world: &mut World| {
        for _ in 0..2 {
            world.now += seconds(10);
            world.say(0, measures(vec![]));
            world.say(1, wants());
            world.say(2, Report { relays: true, ..Report::default() });
        }
    };
    wait(&mut world);
    let asked = |world: &mut World| {
        world.say(1, wants());
        world.say(2, Report { relays: true, ..Report::default() });
        world.plan();
        world.candidates.to_measure(key(0), &mut world.state, world.now)
    };
    world.say(0, measures(vec![leg("n2", 5, true)]));
    assert_eq!(asked(&mut world), [name("n2")]);
    world.say(0, measures(vec![found("n2")]));
    wait(&mut world);
    assert_eq!(
        asked(&mut world),
        [],
        "an unused leg that was never too slow is measured each minute"
    );
}

#[test]
fn a_member_speaks_of_its_own_legs_alone() {
    let mut world = World::new(3);
    let legs = vec![leg("n0", 5, true), leg("n9", 5, true), leg("n1", 5, true)];
    let lost = vec![name("n9"), name("n0")];
    let refused = world.say(0, Report { legs, lost, ..Report::default() });
    assert_eq!(
        refused,
        [
            "no other member is named n0",
            "no other member is named n9",
            "n9 is not another member, so it cannot be this node's parent",
            "n0 is not another member, so it cannot be this node's parent",
        ]
    );
    let legs: Vec<_> = world.state.legs.keys().collect();
    assert_eq!(legs, [&(key(0), key(1))]);
}

#[test]
fn a_new_oracle_begins_from_what_members_do() {
    let mut world = World::new(3);
    world.say(0, publishes(&["*"]));
    let by_relay = |mut report: Report, node: &str| {
        report.parents = vec![Parent { stream: name("stage"), node: name(node), origin: None }];
        report
    };
    let mut viewer = by_relay(wants(), "n2");
    viewer.subscriptions[0].gets = Some(1);
    world.say(1, viewer);
    world.say(2, by_relay(Report { relays: true, ..Report::default() }, "n0"));
    world.plan();
    assert_eq!(world.part(1).parent, Some(name("n2")), "the present route is kept");
    assert_eq!(world.gets(1).0, Some(1), "a leg without an estimate raises nobody");
}

#[test]
fn what_a_member_says_of_its_wishes_counts_among_them_alone() {
    let outcome = |weights: [f64; 2], utility: f64| {
        let mut world = World::new(3);
        world.say(0, Report { egress_bps: Some(1_400_000), ..publishes(&["*"]) });
        for (who, weight) in (1..).zip(weights) {
            let mut report = wants();
            report.subscriptions[0].weight = weight;
            report.subscriptions[0].preferences.iter_mut().for_each(|one| one.utility *= utility);
            world.say(who, report);
        }
        world.plan();
        [world.gets(1).0, world.gets(2).0]
    };
    assert_eq!(outcome([1.0, 1.0], 1.0), outcome([1000.0, 1.0], 1.0));
    assert_eq!(outcome([1.0, 1.0], 1.0), outcome([1.0, 1000.0], 900.0));
}

#[test]
fn further_streams_without_weight_do_not_raise_the_weight_of_one() {
    let outcome = |padding: u32| {
        let mut world = World::new(3);
        world.say(0, Report { egress_bps: Some(1_400_000), ..publishes(&["*"]) });
        world.say(1, wants());
        let mut report = wants();
        report.subscriptions[0].weight = 1000.0;
        let small = Subscription { weight: 1e-6, ..report.subscriptions[0].clone() };
        let empty = Track { label: String::new(), rates: [0; 5] };
        for id in 2..2 + padding {
            let stream = name(&format!("padding{id}"));
            report.subscriptions.push(Subscription { id, stream: stream.clone(), ..small.clone() });
            let own = Published {
                stream,
                tracks: vec![empty.clone()],
                ..publishes(&["*"]).published[0].clone()
            };
            report.published.push(own);
        }
        world.say(2, report);
        world.plan();
        world.gets(1).0
    };
    assert_eq!(outcome(0), outcome(60));
}

#[test]
fn a_wish_that_changes_begins_anew_and_one_that_ends_is_forgotten() {
    let mut world = World::new(2);
    world.say(0, publishes(&["*"]));
    world.say(1, wants());
    world.plan();
    let mut other = wants();
    other.subscriptions[0].preferences.remove(0);
    world.now += seconds(5);
    world.say(1, other);
    world.plan();
    assert_eq!(world.gets(1), (Some(0), Reason::Begun));
    world.say(1, Report::default());
    assert!(world.plan());
    assert!(world.told(1).streams.is_empty() && world.told(0).streams.is_empty());
}

#[test]
fn a_transcoder_runs_where_the_stream_begins_if_it_can() {
    let mut world = World::new(3);
    let small = Transcoder { name: name("small"), bps: 100_000 };
    world.say(0, Report { transcoders: vec![name("small")], ..publishes(&["*"]) });
    let mut report = wants();
    report.subscriptions[0].preferences = vec![Preference {
        quality: Quality { track: None, level: Level::All },
        utility: 1.0,
        transcoder: Some(small.clone()),
    }];
    world.say(1, report);
    world.plan();
    let part = world.part(0);
    assert_eq!(part.transcoders, std::slice::from_ref(&small));
    let child = &part.children[0];
    assert_eq!((&child.qualities[..], &child.transcoded[..]), (&[][..], &[small][..]));
}

/// What a viewer gets that asks for the stage `copies` times beside another viewer with the same wish, both ways round.
fn beside_copies(copies: u32) -> [[Option<u8>; 2]; 2] {
    [1, 2].map(|greedy| {
        let mut world = World::new(3);
        // Enough for one whole stream and a little more.
        world.say(0, Report { egress_bps: Some(1_400_000), ..two_stages() });
        for who in [1, 2] {
            let mut wanted = wants().subscriptions[0].clone();
            wanted.stream = name(if who == 1 { "stage" } else { "hall" });
            let ids = 1..=if who == greedy { copies } else { 1 };
            let all = ids.map(|id| Subscription { id, ..wanted.clone() });
            world.say(who, Report { subscriptions: all.collect(), ..Report::default() });
        }
        world.plan();
        [world.gets(1).0, world.gets(2).0]
    })
}

/// The report of a node that publishes two equal streams.
fn two_stages() -> Report {
    let mut report = publishes(&["*"]);
    let hall = Published { stream: name("hall"), ..report.published[0].clone() };
    report.published.push(hall);
    report
}

#[test]
fn a_member_counts_once_a_stream() {
    assert_eq!(beside_copies(40), beside_copies(1));
}

#[test]
fn a_new_oracle_leaves_a_name_to_its_running_publisher() {
    let mut world = World::new(3);
    let since = |age| {
        let mut report = publishes(&["*"]);
        report.published[0].age = age;
        report
    };
    let holder = |node: &str| vec![NameHolder { stream: name("stage"), node: name(node) }];
    world.state.is_claiming = true;
    world.say(1, since(seconds(1)));
    world.now += seconds(2);
    world.say(0, since(seconds(60)));
    assert_eq!((world.state.held(&key(0)), world.state.held(&key(1))), (vec![], holder("n0")));
    world.say(1, since(seconds(3)));
    assert_eq!((world.state.held(&key(0)), world.state.held(&key(1))), (vec![], holder("n0")));
    // Later nobody takes a name away by a claim.
    world.state.is_claiming = false;
    world.say(1, since(seconds(600)));
    assert_eq!((world.state.held(&key(0)), world.state.held(&key(1))), (vec![], holder("n0")));
    world.say(2, since(MAX_AGE));
    assert_eq!(world.state.held(&key(2)), holder("n0"));
}

#[test]
fn those_who_receive_a_stream_decide_who_holds_its_name_after_an_election() {
    let mut world = World::new(4);
    let since = |age| {
        let mut report = publishes(&["*"]);
        report.published[0].age = age;
        report
    };
    let receives = |origin: &str| Parent {
        stream: name("stage"),
        node: name("n3"),
        origin: Some(name(origin)),
    };
    world.state.is_claiming = true;
    // n1 lies about the age of its stream, and about those who receive it.
    let lie = Report { parents: vec![receives("n1")], ..since(MAX_AGE) };
    world.say(1, lie.clone());
    world.say(0, since(seconds(60)));
    world.say(2, Report { parents: vec![receives("n0")], ..Report::default() });
    world.say(0, since(seconds(61)));
    let holder = |node: &str| vec![NameHolder { stream: name("stage"), node: name(node) }];
    assert_eq!((world.state.held(&key(0)), world.state.held(&key(1))), (vec![], holder("n0")));
    world.say(1, lie);
    assert_eq!((world.state.held(&key(0)), world.state.held(&key(1))), (vec![], holder("n0")));
    // As many are not enough.
    world.say(3, Report { parents: vec![receives("n1")], ..Report::default() });
    world.say(1, since(MAX_AGE));
    assert_eq!(world.state.held(&key(1)), holder("n0"));
}

#[test]
fn there_are_bounds_on_what_members_say() {
    let mut world = World::new(MOST_MEMBERS as u16 + 1);
    let many = Report {
        subscriptions: (0..256)
            .map(|id| Subscription { id, ..wants().subscriptions[0].clone() })
            .collect(),
        ..Report::default()
    };
    let fit = (MOST_SUBSCRIPTIONS / 2 / 256) as u16;
    (0..fit).for_each(|who| assert!(world.say(who, many.clone()).is_empty()));
    let share = MOST_SUBSCRIPTIONS / 2 / MOST_MEMBERS;
    for who in fit..MOST_MEMBERS as u16 {
        let refused = world.say(who, many.clone());
        let over = 256 - share;
        assert_eq!(
            refused,
            [format!("{over} subscriptions are not accepted: there are too many already")]
        );
    }
    let all = world.state.reported.values().map(|one| one.report.subscriptions.len());
    assert!(all.sum::<usize>() <= MOST_SUBSCRIPTIONS);
    let refused = world.say(MOST_MEMBERS as u16, Report::default());
    assert_eq!(refused, ["the oracle already plans streams of 1000 members, which is the limit"]);
    world.now += SILENCE;
    world.state.expire(world.now);
    assert!(world.state.reported.is_empty() && world.state.legs.is_empty());
}

#[test]
fn every_member_has_a_share_of_names() {
    let mut world = World::new(MOST_MEMBERS as u16);
    let publishes = |who: u16, count: u32| {
        let one = publishes(&["*"]).published[0].clone();
        let all =
            (0..count).map(|at| Published { stream: name(&format!("s{who}-{at}")), ..one.clone() });
        Report { published: all.collect(), ..Report::default() }
    };
    let greedy = (MOST_STREAMS / 2 / 64) as u16;
    (0..greedy).for_each(|who| assert!(world.say(who, publishes(who, 64)).is_empty()));
    assert_eq!(world.say(greedy, publishes(greedy, 3)).len(), 1);
    for who in greedy + 1..MOST_MEMBERS as u16 {
        assert!(world.say(who, publishes(who, 2)).is_empty(), "{who}");
    }
    assert!(world.state.holders.len() <= MOST_STREAMS);
}

#[test]
fn every_member_has_a_share_of_the_planned_streams() {
    let mut world = World::new(MOST_MEMBERS as u16);
    let (publishers, greedy) = (24, 5);
    for who in 0..MOST_MEMBERS as u16 {
        let mut report = wants();
        let wanted = report.subscriptions.remove(0);
        let of = |id: u32, of: u32| {
            let stream = name(&format!("s{}-{}", of / 64, of % 64));
            Subscription { id, stream, ..wanted.clone() }
        };
        report.subscriptions = match who {
            0..24 => vec![],
            24..29 => (0..256).map(|id| of(id, u32::from(who - 24) * 256 + id)).collect(),
            _ => vec![of(0, 1500)],
        };
        if who < publishers {
            let one = publishes(&["*"]).published[0].clone();
            let stream = |at| name(&format!("s{who}-{at}"));
            let all = (0..64).map(|at| Published { stream: stream(at), ..one.clone() });
            report.published = all.collect();
        }
        assert!(world.say(who, report).is_empty(), "{who}");
    }
    let outline = Outline::of(&world.state, &world.decided, world.now);
    let busy = outline.unplanned.iter().filter(|(_, _, reason)| *reason == Reason::Busy);
    let busy: BTreeSet<NodeId> = busy.map(|(node, ..)| *node).collect();
    let many: BTreeSet<NodeId> = (publishers..publishers + greedy).map(key).collect();
    assert_eq!(busy, many, "those with many subscriptions have not all of them");
}

/// A ladder of three renditions, as a publisher of real video reports it: its rates differ in each report.
fn ladder(second: u64) -> Report {
    let mut report = publishes(&["*"]);
    let vary = |bps: u64| bps + bps * (second * 7 % 9) / 100;
    let track = |bps: u64| Track {
        label: String::new(),
        rates: [0, 0, vary(bps / 4), vary(bps * 3 / 4), 0],
    };
    report.published[0].tracks = [3_000_000, 1_400_000, 600_000].map(track).to_vec();
    report
}

/// A subscriber that takes any one of the renditions.
fn takes_any() -> Report {
    let mut report = wants();
    report.subscriptions[0].tracks = (0..16).collect();
    report
}

impl World {
    /// Simulates seconds of a ladder over a leg of this rate. Returns the rendition and level that the leg carries in
    /// each second. With `measured` a measurement ends every five seconds.
    fn ladder_over(&mut self, seconds_of: u64, kbps: u64, measured: bool) -> Vec<Option<Quality>> {
        let mut carried = Vec::new();
        for _ in 0..seconds_of {
            self.now += seconds(1);
            let second = self.now.since(Time::ZERO).as_secs();
            let mut report = ladder(second);
            let rates = report.published[0].tracks.clone();
            let quality = self.decided.plan(&key(0), 0, self.now).and_then(|plan| {
                let child = plan.streams.first()?.children.first()?.clone();
                child.qualities.first().copied()
            });
            let is_sent = |track: usize, class: usize| {
                quality.is_some_and(|quality| quality.takes(track as u8, class as u8))
            };
            let of = |track: usize| (0..5).filter(move |class| is_sent(track, *class));
            let load: u64 = (0..3)
                .flat_map(|track| of(track).map(move |class| (track, class)))
                .map(|(track, class)| rates[track].rates[class] / 1000)
                .sum();
            let sent = load.min(kbps);
            report.legs = vec![leg("n1", sent, load > kbps)];
            report.legs[0].measured = (measured && second.is_multiple_of(5)).then(|| Measured {
                free_bps: (kbps - sent) * 1000,
                at_least: false,
                took: seconds(1),
                age: Duration::ZERO,
            });
            self.say(0, Report { keeps_levels: true, ..report });
            self.say(1, Report { keeps_levels: true, ..takes_any() });
            self.plan();
            carried.push(quality);
        }
        carried
    }
}

#[test]
fn a_ladder_falls_in_a_peak_and_rises_by_a_measurement() {
    let mut world = World::new(2);
    let whole = |track| Some(Quality { track: Some(track), level: Level::All });
    let free = world.ladder_over(20, 6000, true);
    assert_eq!(free[19], whole(0), "{free:?}");
    let peak = world.ladder_over(15, 2000, false);
    assert!(peak[6..].iter().all(|quality| *quality == whole(1)), "{peak:?}");
    let later = world.ladder_over(30, 6000, false);
    assert_eq!(later[29], whole(1), "reports alone raise nothing");
    let free = world.ladder_over(30, 6000, true);
    assert_eq!(free[29], whole(0), "{free:?}");
}

#[test]
fn a_limited_leg_counts_although_other_subscribers_are_degraded() {
    // While a subscriber is degraded the oracle plans each second, with different rates each time.
    let mut world = World::new(2);
    world.ladder_over(10, 6000, true);
    world.ladder_over(10, 1000, false);
    let known = world.state.legs[&(key(0), key(1))].view.known(world.now, &world.state.rules);
    assert!(known.is_some_and(|known| known.bps <= 1_000_000), "{known:?}");
}

#[test]
fn an_unknown_rendition_is_no_lack_of_room() {
    let mut world = World::new(2);
    let mut report = publishes(&["*"]);
    report.published[0].tracks = vec![Track::default()];
    world.say(0, report);
    let mut second = wants();
    for one in &mut second.subscriptions[0].preferences {
        one.quality.track = Some(1);
    }
    world.say(1, second);
    world.plan();
    assert_eq!((world.gets(1).0, world.part(1).parent), (Some(0), Some(name("n0"))));
    let child = &world.part(0).children[0];
    assert_eq!(child.qualities, [Quality { track: Some(1), level: Level::All }]);
    // Its rate counts as soon as it is known.
    world.now += seconds(3);
    world.say(0, Report { legs: vec![leg("n1", 800, true)], ..ladder(0) });
    assert!(world.state.is_news && world.plan());
    assert_ne!(world.gets(1).0, Some(0));
}

#[test]
fn a_new_subscriber_gets_a_first_route_and_is_refused_only_after_a_search() {
    let mut world = World::new(6);
    world.say(0, Report { egress_bps: Some(1_400_000), ..two_stages() });
    world.say(1, wants());
    assert!(world.state.is_urgent && world.complete());
    assert_eq!((world.gets(1), world.part(1).parent), ((Some(0), Reason::Begun), Some(name("n0"))));
    world.say(1, wants());
    assert!(!world.state.is_urgent, "it has a route");
    // Only key frames fit.
    let mut hall = wants();
    hall.subscriptions[0].stream = name("hall");
    world.say(2, hall.clone());
    assert!(world.state.is_urgent && world.complete());
    assert_eq!((world.gets(1).0, world.gets(2).0), (Some(0), Some(2)));
    // This one fits only if another one gets less.
    hall.subscriptions[0].preferences.truncate(1);
    world.say(2, Report::default());
    world.say(3, hall.clone());
    world.complete();
    let undecided = world.decided.plan(&key(3), 0, world.now);
    assert_eq!(undecided, None, "a search may find room");
    world.say(3, hall);
    assert!(world.state.is_urgent, "it still waits");
    world.plan();
    assert_eq!(world.part(3).subscriptions.len(), 1, "now it is decided");
}
