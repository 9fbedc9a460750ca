//! What is refused, and what is reported when something fails on the way.

use crate::{
    mangler::Mangle,
    members,
    scene::{CALM, PLENTY, Scene, busy, train},
};
use std::time::Duration;
use thalweg_measure::{
    estimators::PK1,
    train::{Doubt, End, PacingError, Probe, Train},
};
use thalweg_net::{Stream, channel::Protocol};
use thalweg_probe::trains::{
    Direction, MeasureError, Measured, Session, SessionError, Terms, TrainEvent, run,
};
use thalweg_units::Rate;
use thalweg_wire::probe::Refusal;

const GAP: Duration = Duration::from_micros(200);
const FAR: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_host_refuses_unless_it_is_accepted_and_then_the_result_is_doubted() {
    let scene = Scene::clean().await;
    let here = busy();
    let mut session = scene.session(Terms { here, accepts_busy: false }).await.unwrap();
    let refused = session.send(train(10, 300, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Pacing(PacingError::Invalid(_))), "{refused}");
    let mut session = scene.session(Terms { here, accepts_busy: true }).await.unwrap();
    assert_eq!(session.send(train(10, 300, GAP)).await.unwrap().loss_share(), 0.0);
    let of = |end| Doubt::Busy { end, off: here.gap_error[1] };
    assert_eq!(session.doubts(Direction::There), [of(End::Sender)]);
    assert_eq!(session.doubts(Direction::Back), [of(End::Receiver)]);
    let measured = measure(&mut session, Direction::There, &mut |_| {}).await.unwrap();
    assert!(measured.doubts.contains(&of(End::Sender)), "{measured:?}");
    assert!(measured.cost.trains == 3 && measured.cost.bytes == 3 * 10 * 300, "{measured:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_member_s_host_refuses_as_well_if_it_is_busy() {
    let scene = Scene::clean().await;
    scene.far.trains.set_calibration(busy());
    let mut session = scene.session(CALM()).await.unwrap();
    // A client that did not check would get the refusal from the host itself.
    let refused = session.receive(train(10, 300, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Pacing(PacingError::Invalid(_))), "{refused}");
    assert_eq!(
        session.send(train(10, 300, GAP)).await.unwrap().loss_share(),
        0.0,
        "it only receives"
    );
    session.accept_busy(true);
    assert_eq!(session.receive(train(10, 300, GAP)).await.unwrap().loss_share(), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_that_are_too_short_or_too_long_are_named() {
    let scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    let short = session.send(train(3, 44, GAP)).await.unwrap_err();
    assert!(matches!(short, SessionError::Small { at: 0, size: 44, least: 45 }), "{short}");
    let headers = vec![vec![], vec![1; 20]];
    let short = session.send_with(train(2, 64, GAP), headers).await.unwrap_err();
    assert!(matches!(short, SessionError::Small { at: 1, least: 65, .. }), "{short}");
    // Longer than any MTU; that of loopback is 64 KiB.
    let long = session.send(train(3, 65_530, Duration::ZERO)).await.unwrap_err();
    assert!(matches!(long, SessionError::Mtu { size: 65_530, overhead: 28 }), "{long}");
    assert!(long.to_string().contains("MTU"), "{long}");
    for way in [Direction::There, Direction::Back] {
        assert_eq!(session.fitting(way, &[65_530, 1000, 500]).await.unwrap(), 1000);
        let none = session.fitting(way, &[65_530, 65_520]).await.unwrap_err();
        assert!(matches!(none, SessionError::Mtu { size: 65_530, overhead: 28 }), "{none}");
    }
    assert_eq!(session.send(train(10, 300, GAP)).await.unwrap().loss_share(), 0.0, "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_probe_that_passes_is_found_by_shorter_ones() {
    let mangle = Mangle::by(|_, datagram| match datagram.len() {
        ..=1400 => vec![datagram],
        _ => vec![],
    });
    let scene = Scene::with(PLENTY, mangle).await;
    let mut session = scene.session(CALM()).await.unwrap();
    assert_eq!(session.fitting(Direction::There, &[1472, 1412, 1372]).await.unwrap(), 1372);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_train_goes_beyond_the_bytes_of_the_day() {
    let scene = Scene::with(20_000, Mangle::nothing()).await;
    let mut session = scene.session(CALM()).await.unwrap();
    session.receive(train(40, 300, GAP)).await.unwrap();
    let refused = session.receive(train(40, 300, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Refused(Refusal::Budget)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_member_are_bounded_and_further_ones_refused() {
    let scene = Scene::clean().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(scene.session(CALM()).await.unwrap());
    }
    let refused = scene.session(CALM()).await.err().unwrap();
    assert!(matches!(refused, SessionError::Refused(Refusal::Busy)), "{refused}");
    assert_eq!(
        open[0].send(train(10, 300, GAP)).await.unwrap().loss_share(),
        0.0,
        "the others go on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_max_rate_bounds_trains_that_members_request_even_of_a_busy_host() {
    let scene = Scene::clean().await;
    scene.far.trains.set_max_rate(Rate::from_mbps(10.0));
    let mut session = scene.session(CALM()).await.unwrap();
    assert_eq!(session.calibrations()[1].honest, Rate::from_mbps(10.0), "members are told");
    let slow = Duration::from_micros(1500);
    assert_eq!(session.receive(train(10, 1472, slow)).await.unwrap().loss_share(), 0.0);
    let refused = session.receive(train(10, 1472, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Pacing(PacingError::Gap { .. })), "{refused}");
    assert!(refused.to_string().contains("max_rate"), "{refused}");
    // Even if it is accepted as busy, the host itself keeps the bound.
    session.accept_busy(true);
    let refused = session.receive(train(10, 1472, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Refused(Refusal::Train(_))), "{refused}");
    assert!(refused.to_string().contains("max_rate"), "{refused}");
}

/// Otherwise anybody who can forge a source address could have trains sent to any host.
#[tokio::test(flavor = "multi_thread")]
async fn no_train_goes_to_an_address_that_only_datagrams_come_from() {
    let third = "127.0.0.3".parse().unwrap();
    let scene = Scene::with(PLENTY, Mangle::nothing().from(third)).await;
    let mut session = scene.session(CALM()).await.unwrap();
    assert_eq!(session.send(train(10, 300, GAP)).await.unwrap().loss_share(), 0.0, "they are true");
    let refused = session.receive(train(10, 300, GAP)).await.unwrap_err();
    assert!(matches!(refused, SessionError::Refused(Refusal::Train(_))), "{refused}");
    for word in ["come from 127.0.0.3", "channel from 127.0.0.1", "from the same address"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let paid = PLENTY - scene.far.purse.left().as_bytes();
    assert_eq!(paid, 10 * 328, "what came alone is paid for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_gets_no_datagrams_is_named() {
    let scene = Scene::clean().await;
    let channel = scene.dialer.channel(&members::name(1), &[], Protocol::Probe).await.unwrap();
    // Nothing is at that address.
    let at = "127.0.0.9".parse().unwrap();
    let shut = Session::open(channel, at, &scene.near, CALM()).await.err().unwrap();
    assert!(matches!(shut, SessionError::Shut(..)), "{shut}");
    let port = scene.far.endpoint.local_addr().unwrap().port();
    assert!(shut.to_string().contains(&port.to_string()), "{shut}");
}

/// Measures with three trains of pk1.
async fn measure(
    session: &mut Session<Stream>,
    way: Direction,
    told: &mut dyn FnMut(TrainEvent),
) -> Result<Measured, MeasureError> {
    run(session, &mut PK1.with_trains(3), way, FAR, told).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_vanishes_between_trains_ends_a_measurement_with_its_progress() {
    let mut scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    let mut told = |event: TrainEvent| {
        if event.cost.trains >= 100 {
            scene.far.stop();
        }
    };
    // More than there is time for.
    let mut tool = PK1.with_trains(u32::MAX);
    let why = run(&mut session, &mut tool, Direction::There, FAR, &mut told).await.unwrap_err();
    assert!(matches!(&why, MeasureError::Session { so_far, .. } if so_far.trains >= 2), "{why}");
    assert!(why.to_string().contains("(estimate after "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_vanishes_during_a_train_is_reported_as_well() {
    for way in [Direction::There, Direction::Back] {
        let mut scene = Scene::clean().await;
        let mut session = scene.session(CALM()).await.unwrap();
        let passed = scene.passed();
        let long = train(20, 300, Duration::from_millis(50));
        let flying = async {
            match way {
                Direction::There => session.send(long).await,
                Direction::Back => session.receive(long).await,
            }
        };
        let mut flying = std::pin::pin!(flying);
        // Waits until the train is under way: what the member sends is not counted, so only the way there is checked.
        while way == Direction::There && scene.passed() < passed + 3 {
            let turn = tokio::task::yield_now();
            tokio::select! { biased; _ = &mut flying => panic!("{way:?}: it ended"), () = turn => {} }
        }
        let asked = tokio::time::timeout(Duration::ZERO, &mut flying);
        assert!(asked.await.is_err(), "{way:?}: it ended");
        scene.far.kill().await;
        let why = flying.await.unwrap_err();
        let is_so = matches!(why, SessionError::Channel(_) | SessionError::Closed);
        assert!(is_so, "{way:?}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_train_with_hop_limits_cannot_be_requested_from_a_member() {
    let scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    let probe = Probe { size: 100, header: 0, gap: Duration::ZERO, may_carry: false };
    let limit = std::num::NonZeroU8::new(1);
    let limited = Train::new(vec![probe]).unwrap().limited(vec![limit]).unwrap();
    let refused = session.receive(limited.clone()).await.unwrap_err();
    assert!(matches!(refused, SessionError::Hops), "{refused}");
    // On loopback there is no router: the probe arrives, and nobody reports anything.
    let flight = session.send(limited).await.unwrap();
    assert_eq!((flight.loss_share(), flight.expired), (0.0, vec![None]));
}
