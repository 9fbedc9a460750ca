//! Parents that are slow, die, or start later, over real sockets and slow links.

use crate::{
    scene::{Scene, name},
    ways::Way,
};
use std::{collections::BTreeMap, fs, net::SocketAddr};
use thalweg_cast::source::{Event, Outcome, Request, Totals};
use thalweg_paths::estimates::Estimates;
use thalweg_wire::{cast::Fault, mesh::Name};
use tokio_util::sync::CancellationToken;

pub const LENGTH: usize = 12 << 20;

/// n2 gets the object from n1, and may turn to the source.
const RATES: &str = "from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\nn0,n2,40 Mbit/s\n";

/// One per cent of the object.
const TWICE: u64 = LENGTH as u64 / 100;

/// Links between nodes, by their numbers; links that are not named are unchanged.
pub async fn ways(scene: &Scene, rates: &[(u8, u8, u64)]) -> BTreeMap<(u8, u8), Way> {
    let mut ways = BTreeMap::new();
    for (from, to, rate) in rates {
        let target = scene.nodes[usize::from(*to) - 1].at;
        ways.insert((*from, *to), Way::to(target, *rate).await);
    }
    let at: BTreeMap<(u8, u8), SocketAddr> = ways.iter().map(|(leg, way)| (*leg, way.at)).collect();
    scene.lead(|from, to| at.get(&(from, to)).copied());
    ways
}

pub fn request(scene: &Scene) -> Request {
    let mut request = scene.request("image");
    request.estimates = Estimates::parse(RATES).unwrap();
    request.parents = 1;
    request
}

/// Sends the object to n1 first.
pub async fn first_to_n1(scene: &Scene) {
    let mut first = request(scene);
    first.to = vec![name(1)];
    assert_eq!(scene.cast(first).await.unwrap().outcome, Outcome::Complete);
}

/// Bytes that n2 got from this parent.
fn from(scene: &Scene, parent: u8) -> u64 {
    let report = scene.nodes[1].report();
    let parents = report["parents"].as_array().cloned().unwrap_or_default();
    let its = parents.iter().find(|one| one["name"] == name(parent).as_str());
    its.and_then(|one| one["bytes"].as_u64()).unwrap_or(0)
}

/// All nodes have the object, and next to nothing was sent twice.
pub fn check(scene: &Scene, totals: &Totals, content: &[u8]) {
    assert_eq!(totals.outcome, Outcome::Complete, "{:?}", scene.events.all());
    assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
    let received = scene.events.received();
    let (_, bytes, beyond) = received.iter().rfind(|one| one.0 == name(2)).unwrap();
    assert!(*beyond <= TWICE, "{beyond} of {bytes} of no use");
    assert_eq!(bytes - beyond, LENGTH as u64);
}

fn left(scene: &Scene) -> Vec<(Name, Fault)> {
    let left = |event: &Event| match event {
        Event::ParentLeft { receiver, parent, fault, .. } if *receiver == name(2) => {
            Some((parent.clone(), *fault))
        }
        _ => None,
    };
    scene.events.all().iter().filter_map(left).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_parent_is_left_for_a_faster_one() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let _ways = ways(&scene, &[(2, 1, 100_000), (0, 2, 8_000_000)]).await;
    let totals = scene.cast(request(&scene)).await.unwrap();
    check(&scene, &totals, &content);
    assert!(left(&scene).contains(&(name(1), Fault::Slow)), "{:?}", scene.events.all());
    assert!(from(&scene, 0) > LENGTH as u64 / 2, "{}", scene.nodes[1].report());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_becomes_slow_is_left_and_its_data_is_kept() {
    let scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let ways = ways(&scene, &[(2, 1, 5_000_000), (0, 2, 8_000_000)]).await;
    let casting = tokio::spawn(scene.cast_until(request(&scene), CancellationToken::new()));
    scene.nodes[1].holds(LENGTH as u64 / 4).await;
    ways[&(2, 1)].set(50_000);
    let totals = casting.await.unwrap().unwrap();
    check(&scene, &totals, &content);
    assert!(from(&scene, 1) >= LENGTH as u64 / 4, "{}", scene.nodes[1].report());
    assert!(from(&scene, 0) > LENGTH as u64 / 4, "{}", scene.nodes[1].report());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_dies_midway_is_replaced_and_its_data_is_kept() {
    let mut scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    first_to_n1(&scene).await;
    let _ways = ways(&scene, &[(2, 1, 5_000_000), (0, 2, 8_000_000)]).await;
    let casting = tokio::spawn(scene.cast_until(request(&scene), CancellationToken::new()));
    scene.nodes[1].holds(LENGTH as u64 / 4).await;
    scene.nodes[0].kill().await;
    let totals = casting.await.unwrap().unwrap();
    check(&scene, &totals, &content);
    assert!(from(&scene, 1) >= LENGTH as u64 / 4, "{}", scene.nodes[1].report());
    assert!(left(&scene).contains(&(name(1), Fault::Lost)), "{:?}", scene.events.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_reachable_only_later_gets_the_object() {
    let mut scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    scene.nodes[1].kill().await;
    let _ways = ways(&scene, &[(0, 1, 6_000_000)]).await;
    let casting = tokio::spawn(scene.cast_until(request(&scene), CancellationToken::new()));
    scene.nodes[0].holds(LENGTH as u64 / 2).await;
    scene.nodes[1].start().await;
    let totals = casting.await.unwrap().unwrap();
    check(&scene, &totals, &content);
    assert!(fs::read(scene.nodes[0].inbox("image")).unwrap() == content);
    assert!(from(&scene, 1) > 0, "{}", scene.nodes[1].report());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_starts_later_is_used() {
    let mut scene = Scene::new(2).await;
    let content = scene.file("image", LENGTH);
    scene.nodes[0].kill().await;
    let _ways = ways(&scene, &[(0, 2, 500_000)]).await;
    let casting = tokio::spawn(scene.cast_until(request(&scene), CancellationToken::new()));
    scene.nodes[1].holds(LENGTH as u64 / 50).await;
    scene.nodes[0].start().await;
    let totals = casting.await.unwrap().unwrap();
    check(&scene, &totals, &content);
    assert!(from(&scene, 0) > 0 && from(&scene, 1) > 0, "{}", scene.nodes[1].report());
}
