//! Tests of the measurements of legs to members that transfers through real relays give.

use super::scene::{Plan, Scene};
use crate::*;
use std::time::Duration;
use thalweg_net::legs::LegEstimate;
use thalweg_wire::{Destination, mesh::LegKind};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Moves bytes from the destination to the client until `relay` has measured a leg.
async fn seen(scene: &Scene, through: &[usize], leg: LegKind, relay: usize) -> LegEstimate {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to: Destination = listener.local_addr().unwrap().into();
    let (client, accepted) = tokio::join!(scene.dial(through, leg, &[], &to), listener.accept());
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    let legs = scene.nodes[relay - 1].counts.legs().clone();
    let (mut piece, chunk) = (vec![0; 65_536], vec![7; 65_536]);
    loop {
        let (wrote, read) = tokio::join!(server.write_all(&chunk), client.read_exact(&mut piece));
        wrote.unwrap();
        read.unwrap();
        if let Some(seen) = legs.take().pop() {
            return seen;
        }
    }
}

/// Makes the relay measure four times a second.
fn measure_often(config: &mut RelayConfig) {
    config.linger = Duration::from_secs(1);
}

#[tokio::test]
async fn a_download_through_a_relay_measures_the_leg_to_its_client() {
    for leg in [LegKind::Open, LegKind::Sealed] {
        let scene = Scene::new(Plan { change: measure_often, ..Plan::default() }).await;
        let seen = seen(&scene, &[1], leg, 1).await;
        assert_eq!(seen.to.as_str(), "c");
        assert!(seen.bps > 0.0 && seen.bytes > 256 * 1024, "{seen:?}");
        assert!(seen.at_least, "slow start is in it: {seen:?}");
    }
}

#[tokio::test]
async fn a_chain_measures_only_legs_with_two_known_ends() {
    let scene = Scene::new(Plan { change: measure_often, ..Plan::default() }).await;
    let seen = seen(&scene, &[1, 2], LegKind::Open, 1).await;
    assert_eq!(seen.to.as_str(), "c");
    // The second relay's client is the same member, but the leg there ends at the first relay.
    assert_eq!(scene.nodes[1].counts.legs().take(), []);
}
