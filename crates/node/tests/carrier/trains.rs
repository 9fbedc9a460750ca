//! Trains under way: packets ride in their probes.

use crate::{
    once,
    scene::{HERE, Node, mesh, named, number, packet},
    settings,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use thalweg_measure::{
    riders::{Fragment, HoldSettings, Regulator, Selection},
    train::{Flight, Probe, Tally, Train},
};
use thalweg_net::{
    Stream,
    channel::{Channel, Protocol},
};
use thalweg_probe::{
    carrier::CarrierSettings,
    trains::{
        AttachGuard, Boarding, Outlet, RiderCarrier as _, Riders, Session, SessionError, Terms,
    },
};
use thalweg_units::Time;
use thalweg_wire::probe::Refusal;

/// A session for trains from one node to another, with riders.
async fn session(from: &Node, to: &Node) -> Session<Stream> {
    let channel = from.dialer.channel(&named(to), &[], Protocol::Probe).await.unwrap();
    let mut session = opened(channel, from).await;
    let key = crate::members::key(to.n);
    let carrier = from.carrier.as_ref().unwrap();
    from.until("the device is up", |report| report.is_up).await;
    let riders = carrier.riders(thalweg_wire::Signer::id(&key)).unwrap();
    session.carry(riders).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_all_its_sessions_for_trains_still_carries() {
    let mut nodes = mesh(vec![Some(settings()), Some(settings())]).await;
    let [one, two] = &mut nodes[..] else { unreachable!() };
    let terms = Terms::found(true).await.unwrap();
    let mut open = Vec::new();
    let refused = loop {
        let channel = one.dialer.channel(&named(two), &[], Protocol::Probe).await.unwrap();
        match Session::open(channel, HERE, &one.endpoint, terms).await {
            Ok(session) => open.push(session),
            Err(why) => break why,
        }
    };
    assert!(matches!(refused, SessionError::Refused(Refusal::Busy)), "{refused}");
    assert_eq!(open.len(), 16);
    one.send(packet(one.overlay(), two.overlay(), 7, 100)).await;
    assert_eq!(number(&two.next().await, one, two), 7);
}

/// Rides with the beginnings of packets whose ends never arrive.
#[derive(Debug)]
struct Beginnings;

impl Riders for Beginnings {
    fn epoch(&self) -> u64 {
        1
    }

    fn attach(self: Arc<Self>, _: Outlet) -> AttachGuard {
        AttachGuard::new(|| ())
    }

    fn receive(&self, _: u64, _: Vec<Fragment>) {}

    fn note_received_train(&self, _: usize, _: u64, _: Duration) {}

    fn announce(&self, _: Time, _: &Train) {}

    fn begin(self: Arc<Self>, _: &Train) -> Box<dyn Boarding> {
        Box::new(Self)
    }
}

impl Boarding for Beginnings {
    fn fill(&mut self, place: usize, _: Probe, _: usize) -> Vec<Fragment> {
        vec![Fragment { rider: place as u32, total: 1000, offset: 0, bytes: vec![0x60; 100] }]
    }

    fn take_back(&mut self, _: Vec<Fragment>) {}

    fn end(self: Box<Self>) -> Tally {
        Tally::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_packets_are_given_up_and_counted() {
    let nodes = mesh(vec![None, Some(settings())]).await;
    let [one, two] = &nodes[..] else { unreachable!() };
    let channel = one.dialer.channel(&named(two), &[], Protocol::Probe).await.unwrap();
    let mut session = opened(channel, one).await;
    two.until("the device is up", |report| report.is_up).await;
    session.carry(Arc::new(Beginnings)).await.unwrap();
    // More than are kept at a time.
    let probe = Probe { size: 400, header: 0, gap: Duration::ZERO, may_carry: true };
    let flight = session.send(Train::uniform(probe, 600).unwrap()).await.unwrap();
    let came = flight.arrived.iter().flatten().count() as u64;
    assert!(came > 512, "{came}");
    two.until("all are given up", |report| report.counts.expired_packets == came).await;
    assert_eq!(two.report().counts.received_packets, 0);
}

/// Accepts whatever calibration this host has: riders do not depend on how busy it is.
async fn opened(channel: Channel<Stream>, from: &Node) -> Session<Stream> {
    let terms = Terms::found(true).await.unwrap();
    Session::open(channel, HERE, &from.endpoint, terms).await.unwrap()
}

/// Probes of 400 bytes, 5 ms apart: such a train keeps its gaps whatever else runs here.
fn train(probes: usize, may_carry: bool) -> Train {
    let gap = Duration::from_millis(5);
    Train::uniform(Probe { size: 400, header: 0, gap, may_carry }, probes).unwrap()
}

/// Sends packets with these numbers and of this length, spread over the train.
async fn flown(
    session: &mut Session<Stream>,
    train: Train,
    (from, to): (&Node, &Node),
    numbers: std::ops::Range<u32>,
    length: usize,
) -> Flight {
    let probes = train.probes().len() as u32;
    let pause = train.duration() / probes;
    session.announce(&train, Duration::from_millis(15));
    let flying = async {
        tokio::time::sleep(Duration::from_millis(15)).await;
        session.send(train).await.unwrap()
    };
    let sending = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        for n in numbers {
            from.send(packet(from.overlay(), to.overlay(), n, length)).await;
            tokio::time::sleep(pause).await;
        }
    };
    tokio::join!(flying, sending).0
}

async fn came(from: &Node, to: &mut Node, count: usize) -> BTreeSet<u32> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let next = to.next().await;
        numbers.push(number(&next, from, to));
    }
    numbers.extend(to.rest().iter().map(|packet| number(packet, from, to)));
    once(numbers)
}

async fn pair(settings: CarrierSettings) -> (Node, Node) {
    let mut nodes = mesh(vec![Some(settings.clone()), Some(settings)]).await;
    let two = nodes.pop().unwrap();
    (nodes.pop().unwrap(), two)
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_ride_in_a_train_and_arrive_once() {
    let (one, mut two) = pair(settings()).await;
    let mut session = session(&one, &two).await;
    // A packet of 300 bytes fits a probe whole; the rest has room for the beginning of the next.
    let flight = flown(&mut session, train(60, true), (&one, &two), 0..60, 300).await;
    assert_eq!(came(&one, &mut two, 60).await, (0..60).collect());
    let (counts, tally) = (one.report().counts, flight.tally);
    println!("{counts:?}\n{tally:?}");
    assert!(counts.ridden_packets > 20 && counts.ridden_fragments >= counts.ridden_packets);
    assert_eq!(
        (tally.carriers, tally.carried_bytes),
        (counts.carrying_probes, counts.ridden_bytes)
    );
    assert!(tally.hidden_bytes <= tally.carried_bytes && tally.hidden_bytes > 0);
    assert!(counts.carrying_probes + counts.empty_probes == 60);
    two.until("all is counted", |report| report.counts.received_bytes == 60 * 300).await;
    // After the train nothing waits.
    let before = one.report().counts.timed_out_packets;
    one.send(packet(one.overlay(), two.overlay(), 99, 300)).await;
    assert_eq!(came(&one, &mut two, 1).await, [99].into());
    assert_eq!(one.report().counts.timed_out_packets, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_that_must_not_carry_stay_empty_and_packets_still_arrive() {
    let regulators = vec![Regulator::First(5), Regulator::Share(0.5)];
    for (settings, may_carry, most) in [
        (settings(), false, 0),
        (CarrierSettings { regulators, ..settings() }, true, 5),
        (CarrierSettings { regulators: vec![Regulator::None], ..settings() }, true, 0),
    ] {
        let (one, mut two) = pair(settings).await;
        let mut session = session(&one, &two).await;
        let flight = flown(&mut session, train(20, may_carry), (&one, &two), 0..20, 300).await;
        assert_eq!(came(&one, &mut two, 20).await, (0..20).collect());
        assert!(flight.tally.carriers <= most, "{:?}", flight.tally);
        let waited = one.report().counts.timed_out_packets;
        assert!(most > 0 || waited == 0, "for probes that carry nothing nobody waits: {waited}");
    }
}

/// Probes that exceed the path MTU, between others.
#[tokio::test(flavor = "multi_thread")]
async fn riders_of_a_probe_that_cannot_be_sent_go_as_ordinary_datagrams() {
    let hold = HoldSettings { repeats: true, ..HoldSettings::default() };
    let (one, mut two) = pair(CarrierSettings { hold, ..settings() }).await;
    let mut session = session(&one, &two).await;
    let size = |place| if place % 2 == 0 { 400 } else { 65_530 };
    let gap = Duration::from_millis(5);
    let probe = |place| Probe { size: size(place), header: 0, gap, may_carry: true };
    let mixed = Train::new((0..40).map(probe).collect()).unwrap();
    let flight = flown(&mut session, mixed, (&one, &two), 0..40, 600).await;
    assert_eq!(flight.sent.iter().flatten().count(), 20);
    println!("{:?}\n{:?}\n{:?}", one.report().counts, two.report().counts, flight);
    assert_eq!(came(&one, &mut two, 40).await, (0..40).collect());
    let (counts, tally) = (one.report().counts, flight.tally);
    assert_eq!(counts.dropped_packets, 0, "{counts:?}");
    let ridden = (counts.carrying_probes, counts.ridden_bytes);
    assert_eq!((tally.carriers, tally.carried_bytes), ridden);
    assert!(tally.carriers <= 20 && tally.carried_bytes <= 20 * 355, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_are_not_selected_do_not_wait() {
    let selection = Selection { ports: vec![80..=80], dscp: Vec::new() };
    let (one, mut two) = pair(CarrierSettings { selection, ..settings() }).await;
    let mut session = session(&one, &two).await;
    let flight = flown(&mut session, train(20, true), (&one, &two), 0..20, 300).await;
    assert_eq!(came(&one, &mut two, 20).await, (0..20).collect());
    let counts = one.report().counts;
    assert_eq!((flight.tally.carriers, counts.timed_out_packets), (0, 0), "{counts:?}");
}

/// The packets of these tests have code point 0.
#[tokio::test(flavor = "multi_thread")]
async fn packets_with_a_selected_code_point_ride_with_any_port() {
    let selection = Selection { ports: vec![80..=80], dscp: vec![0] };
    let (one, mut two) = pair(CarrierSettings { selection, ..settings() }).await;
    let mut session = session(&one, &two).await;
    let flight = flown(&mut session, train(20, true), (&one, &two), 0..20, 300).await;
    assert_eq!(came(&one, &mut two, 20).await, (0..20).collect());
    assert!(flight.tally.carriers > 0, "{:?}", one.report().counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_method_holds_without_a_train_and_repeats_arrive_once() {
    let hold = HoldSettings { is_unconditional: true, repeats: true, ..HoldSettings::default() };
    let (one, mut two) = pair(CarrierSettings { hold, ..settings() }).await;
    one.send(packet(one.overlay(), two.overlay(), 0, 300)).await;
    assert_eq!(came(&one, &mut two, 1).await, [0].into());
    assert_eq!(one.report().counts.timed_out_packets, 1);
    let mut session = session(&one, &two).await;
    // Half of the probes' padding is left for repeats.
    flown(&mut session, train(60, true), (&one, &two), 1..61, 120).await;
    assert_eq!(came(&one, &mut two, 60).await, (1..61).collect());
    let (sent, received) = (one.report().counts, two.report().counts);
    println!("{sent:?}\n{received:?}");
    assert!(sent.repeated_bytes > 0 && received.refused_fragments > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn trains_to_a_member_without_a_carrier_carry_nothing() {
    let nodes = mesh(vec![Some(settings()), None]).await;
    let (one, two) = (&nodes[0], &nodes[1]);
    let channel = one.dialer.channel(&named(two), &[], Protocol::Probe).await.unwrap();
    let mut session = opened(channel, one).await;
    one.until("the device is up", |report| report.is_up).await;
    let carrier = Arc::new(one.carrier.clone().unwrap());
    let key = thalweg_wire::Signer::id(&crate::members::key(two.n));
    let refused = session.carry(carrier.riders(key).unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("carrier.enabled"), "{refused}");
    let flight = session.send(train(5, true)).await.unwrap();
    assert_eq!(flight.tally.carriers, 0);
}
