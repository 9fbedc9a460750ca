//! Direct path and relays that do what they should, and those that leave.

use crate::{
    LENGTH, Trial,
    relay::{self, Directed, End},
    server::{Ask, Reply, Server, Step, Version},
};
use std::time::Duration;
use thalweg_node::{
    budget::{Purpose, Scope},
    job::Event,
};
use thalweg_plan::selection::Ending;
use tokio::task::JoinSet;

/// The first segment hangs after a few bytes; later ones are served. So any
/// other path wins sampling, and this one is there when that fails.
fn slow_at_first(ask: &Ask, reply: &mut Reply) {
    if ask.number == 1 {
        reply.after_bytes(10_000, Step::Hang);
    }
}

#[tokio::test]
async fn two_real_relays_and_the_direct_path_bring_one_file() {
    for ending in [Ending::Early, Ending::Paper] {
        let version = Version::new(1, LENGTH);
        let server = Server::honest(&version).await;
        let mut tasks = JoinSet::new();
        let relays = [
            relay::real(server.address, &mut tasks).await,
            relay::real(server.address, &mut tasks).await,
        ];
        let mut trial = Trial::new(&server, &relays);
        trial.request.selection.ending = ending;
        let outcome = trial.gets(&version).await;
        assert_eq!(outcome.length.as_bytes(), LENGTH as u64);
        assert_eq!(server.asks().iter().filter(|a| a.is_probe()).count(), 3);
        let told = trial.told();
        assert!(
            matches!(&told[0], Event::Started { total_bytes: Some(2_000_000), paths, .. } if paths.len() == 3)
        );
        assert!(matches!(told.last(), Some(Event::Finished { bytes: 2_000_000, .. })));
    }
}

#[tokio::test]
async fn every_segment_names_the_version_and_refuses_compression() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    Trial::new(&server, &[]).gets(&version).await;
    let asks = server.asks();
    assert!(asks.iter().all(|a| a.fields["accept-encoding"] == "identity"));
    assert!(asks.iter().filter(|a| !a.is_probe()).all(|a| a.fields["if-match"] == "\"v1\""));
}

#[tokio::test]
async fn the_better_relay_takes_the_rest() {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, slow_at_first).await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Never).await;
    let trial = Trial::new(&direct, &[relay.address]);
    let outcome = trial.gets(&version).await;
    assert_eq!(trial.chosen(), [relay.address.to_string()]);
    let sampled = |e: &Event| matches!(e, Event::PathSampled { .. });
    assert_eq!(trial.told().iter().filter(|e| sampled(e)).count(), 2);
    assert!(outcome.direct_estimate.is_some() && outcome.gain().is_some_and(|g| g > 1.0));
    let data = trial.request.budget.spent(Scope::purpose(Purpose::Data));
    assert_eq!(data.as_bytes(), LENGTH as u64);
}

#[tokio::test]
async fn a_relay_that_dies_in_completion_is_replaced() {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, slow_at_first).await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Dies(1_500_000)).await;
    let trial = Trial::new(&direct, &[relay.address]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), [relay.address.to_string(), "direct".into()]);
    assert!(trial.why_dropped(&relay.address.to_string()).is_some());
}

#[tokio::test]
async fn a_relay_that_stalls_in_completion_is_replaced() {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, slow_at_first).await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Stalls(1_500_000)).await;
    let mut trial = Trial::new(&direct, &[relay.address]);
    trial.request.selection.stall = Duration::from_millis(500);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), [relay.address.to_string(), "direct".into()]);
    assert!(trial.why_dropped(&relay.address.to_string()).unwrap().contains("no byte came"));
}

#[tokio::test]
async fn a_relay_that_dies_in_sampling_leaves_its_share_to_the_others() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Dies(300_000)).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
}

#[tokio::test]
async fn with_all_relays_down_the_direct_path_does_it() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let gone = Directed::start(server.address, End::Never).await.address;
    let trial = Trial::new(&server, &[gone]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), ["direct"]);
    assert!(trial.why_dropped(&gone.to_string()).unwrap().contains("refuse"));
}

#[tokio::test]
async fn with_the_direct_path_down_a_relay_does_it() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let dead = Server::honest(&version).await.url();
    let trial = Trial::of(&dead, &[relay.address]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), [relay.address.to_string()]);
}

#[tokio::test]
async fn a_pinned_relay_is_the_only_path() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]).only(relay.address);
    let outcome = trial.gets(&version).await;
    assert_eq!(trial.chosen(), [relay.address.to_string()]);
    assert_eq!((server.segments().len(), outcome.direct_estimate), (1, None));
}

#[tokio::test]
async fn small_files_come_over_one_path_in_one_piece() {
    let version = Version::new(1, 100_000);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.selection.small = 256_000;
    trial.gets(&version).await;
    assert_eq!(server.segments(), vec![0..100_000]);
    assert_eq!(trial.chosen().len(), 1);
}

#[tokio::test]
async fn no_path_at_all_names_each_with_its_reason() {
    let version = Version::new(1, LENGTH);
    let dead = Server::honest(&version).await.url();
    let relay = Directed::start("127.0.0.1:1".parse().unwrap(), End::Never).await;
    let message = Trial::of(&dead, &[relay.address]).fails().await;
    assert!(
        message.contains("direct: ") && message.contains(&relay.address.to_string()),
        "{message}"
    );
}
