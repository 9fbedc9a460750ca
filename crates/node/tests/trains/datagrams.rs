//! Trains whose datagrams are lost, duplicated, reordered, truncated, replayed and forged.

use crate::{
    mangler::Mangle,
    scene::{CALM, PLENTY, Scene, train},
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng as _, SeedableRng as _},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_measure::train::Flight;
use thalweg_probe::trains::DropReason;

const GAP: Duration = Duration::from_micros(200);

/// The indices of the probes that arrived.
fn came(flight: &Flight) -> Vec<usize> {
    let arrived = flight.arrived.iter().enumerate();
    arrived.filter(|(_, at)| at.is_some()).map(|(place, _)| place).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unharmed_trains_arrive_whole_in_both_directions() {
    let scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    for _ in 0..3 {
        let there = session.send(train(100, 300, GAP)).await.unwrap();
        assert_eq!(came(&there), (0..100).collect::<Vec<_>>());
        assert!(!there.is_reordered() && there.sent.iter().all(Option::is_some));
        assert!(there.tally.transmitted >= 99 * GAP);
        let back = session.receive(train(100, 300, GAP)).await.unwrap();
        assert_eq!(came(&back), (0..100).collect::<Vec<_>>());
        assert!(!back.is_reordered() && back.sent.iter().all(Option::is_some));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_probes_are_missing_duplicates_count_once_and_reordered_ones_keep_their_places() {
    let mut held = None;
    let mangle = Mangle::by(move |n, datagram| match n % 10 {
        3 => vec![],
        5 => vec![datagram.clone(), datagram.clone(), datagram],
        7 => {
            held = Some(datagram);
            vec![]
        }
        8 => [Some(datagram), held.take()].into_iter().flatten().collect(),
        _ => vec![datagram],
    });
    let scene = Scene::with(PLENTY, mangle).await;
    let mut session = scene.session(CALM()).await.unwrap();
    let flight = session.send(train(100, 300, GAP)).await.unwrap();
    assert_eq!(came(&flight), (0..100).filter(|n| n % 10 != 3).collect::<Vec<_>>());
    assert!((flight.loss_share() - 0.1).abs() < 1e-9);
    assert!(flight.is_reordered());
    for n in (7..100).step_by(10) {
        let [overtaken, before] = [flight.arrived[n], flight.arrived[n + 1]];
        assert!(overtaken.unwrap() >= before.unwrap(), "{n}");
    }
    assert_eq!(scene.far.endpoint.drop_count(DropReason::Replayed), 20);
    assert_eq!(scene.far.endpoint.drop_count(DropReason::Forged), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_forged_and_replayed_datagrams_are_dropped() {
    let mut first: Option<Vec<u8>> = None;
    let mangle = Mangle::by(move |n, datagram| {
        let mut pass = Vec::new();
        pass.extend(first.clone());
        first.get_or_insert_with(|| datagram.clone());
        // Before the genuine one: if it were accepted, the genuine one would count as a replay.
        for length in [0, 11, 12, 28, datagram.len() / 2, datagram.len() - 1] {
            pass.push(datagram[..length].to_vec());
        }
        for at in [0, 4, 11, 12, datagram.len() - 1] {
            let mut forged = datagram.clone();
            forged[at] ^= 1 << (n % 8);
            pass.push(forged);
        }
        pass.push([datagram.clone(), vec![0]].concat());
        pass.push(datagram);
        pass
    });
    let scene = Scene::with(PLENTY, mangle).await;
    let mut session = scene.session(CALM()).await.unwrap();
    let flight = session.send(train(50, 300, 5 * GAP)).await.unwrap();
    assert_eq!(came(&flight), (0..50).collect::<Vec<_>>());
    assert!(!flight.is_reordered());
    let refused = |why| scene.far.endpoint.drop_count(why);
    // Truncated: four of six are too short for the outer head and a tag. Forged: one names another session; one with
    // another number may name a probe that arrived. All of them are dropped.
    let all = [DropReason::Stranger, DropReason::Forged, DropReason::Replayed, DropReason::Unread]
        .map(refused);
    assert_eq!(all.iter().sum::<u64>(), 50 * 13 - 1, "{all:?}");
    assert!(all[0] >= 50 * 4 && all[1] >= 50 * 3 && all[2] >= 49 && all[3] == 0, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_pays_for_all_bytes_that_arrive_even_of_unreported_trains() {
    let mut scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    session.send(train(50, 300, GAP)).await.unwrap();
    assert_eq!(PLENTY - scene.far.purse.left().as_bytes(), 50 * 328);
    let mut came = scene.far.endpoint.subscribe();
    let headers = vec![vec![7; 5]; 20];
    session.depart(train(20, 1000, GAP), headers).await.unwrap();
    for _ in 0..20 {
        came.recv().await.unwrap();
    }
    session.close().await;
    // Its daemon ends together with all sessions.
    scene.far.kill().await;
    assert_eq!(PLENTY - scene.far.purse.left().as_bytes(), 50 * 328 + 20 * 1028);
}

/// The headers of thousands of probes are kept for programs that are slow to read them.
#[tokio::test(flavor = "multi_thread")]
async fn probes_with_long_headers_are_not_kept() {
    let scene = Scene::clean().await;
    let mut session = scene.session(CALM()).await.unwrap();
    let mut told = scene.far.endpoint.subscribe();
    let headers = vec![vec![1; 257], vec![2; 256], vec![3; 60_000], vec![4; 1]];
    let flight = session.send_with(train(4, 60_100, 5 * GAP), headers).await.unwrap();
    assert_eq!(came(&flight), [1, 3]);
    let [first, second] = [told.recv().await.unwrap(), told.recv().await.unwrap()];
    assert_eq!((first.header.len(), second.header.len()), (256, 1));
    assert_eq!(scene.far.endpoint.drop_count(DropReason::Unread), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_random_damage_exactly_the_intact_probes_arrive() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let intact = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&intact);
    let mut earlier: Vec<Vec<u8>> = Vec::new();
    let mangle = Mangle::by(move |n, datagram| {
        let mut draw = |below: u64| (random.next_u64() % below) as usize;
        let mut pass = Vec::new();
        for _ in 0..draw(3) {
            let mut other = match earlier.is_empty() || draw(2) == 0 {
                true => datagram.clone(),
                false => earlier[draw(earlier.len() as u64)].clone(),
            };
            let at = draw(other.len() as u64);
            match draw(3) {
                0 => other.truncate(at),
                1 => other[at] ^= 1 << draw(8),
                _ => other = vec![draw(256) as u8; at],
            }
            pass.push(other);
        }
        if draw(5) > 0 {
            noted.lock().unwrap().push(n);
            pass.push(datagram.clone());
            if draw(3) == 0 {
                pass.push(datagram.clone());
            }
        }
        earlier.push(datagram);
        pass
    });
    let scene = Scene::with(PLENTY, mangle).await;
    let mut session = scene.session(CALM()).await.unwrap();
    for number in 0..8 {
        let flight = session.send(train(100, 300, GAP)).await.unwrap();
        let sent = number * 100..(number + 1) * 100;
        let intact = intact.lock().unwrap();
        let mine = intact.iter().filter(|n| sent.contains(*n)).map(|n| n - sent.start);
        assert_eq!(came(&flight), mine.collect::<Vec<_>>(), "train {number}");
    }
}
