//! Tests of the direct path together with relays, including relays that fail.

use crate::{
    LENGTH, Trial,
    relay::{self, Directed, End},
    server::{Ask, Reply, Server, Step, Version},
};
use std::time::Duration;
use thalweg_base::{
    budget::{Purpose, Scope},
    job::Event,
};
use thalweg_plan::selection::Ending;
use tokio::task::JoinSet;

/// The first segment hangs after a few bytes; later ones are served. So any other path wins sampling, and this one is
/// available when that path fails.
fn slow_at_first(ask: &Ask, reply: &mut Reply) {
    if ask.is_first_segment() {
        reply.after_bytes(10_000, Step::Hang);
    }
}

#[tokio::test]
async fn two_real_relays_and_the_direct_path_deliver_one_file() {
    for ending in [Ending::Clear, Ending::Paper] {
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
        assert_eq!(server.asks().iter().filter(|a| a.is_probe()).count(), 1);
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
    Trial::new(&server, &[]).in_segments().gets(&version).await;
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
    assert!(outcome.direct_estimate.is_some() && outcome.ratio_to_sampled_direct().is_some());
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
async fn a_relay_that_stalls_in_completion_is_helped_or_replaced() {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, slow_at_first).await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Stalls(1_500_000)).await;
    let mut trial = Trial::new(&direct, &[relay.address]);
    trial.request.selection.stall = Duration::from_millis(500);
    trial.gets(&version).await;
    assert_eq!(trial.chosen()[0], relay.address.to_string());
    let helped = |e: &Event| matches!(e, Event::Hedged { path, .. } if path == "direct");
    let replaced = trial.chosen().last().is_some_and(|p| p == "direct");
    assert!(replaced || trial.told().iter().any(helped), "{:#?}", trial.told());
}

#[tokio::test]
async fn the_share_of_a_relay_that_dies_in_sampling_goes_to_the_others() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Dies(300_000)).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
}

#[tokio::test]
async fn with_all_relays_down_the_direct_path_delivers_the_file() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let gone = Directed::start(server.address, End::Never).await.address;
    let trial = Trial::new(&server, &[gone]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), ["direct"]);
    assert!(trial.why_dropped(&gone.to_string()).unwrap().contains("refuse"));
}

#[tokio::test]
async fn with_the_direct_path_down_a_relay_delivers_the_file() {
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
    assert_eq!((server.asks().len(), outcome.direct_estimate), (1, None));
}

/// Downloads over four paths. The last one wins and gets the remainders of the other three. `spoil` changes its
/// server's answers to lists of ranges. Returns the slow servers, the winner, and the completed trial.
async fn remainders(spoil: fn(&Version, &Ask, &mut Reply)) -> (Vec<Server>, Server, Trial) {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, slow_at_first).await;
    let copy = version.clone();
    let winner = Server::start(&version, move |ask, reply| {
        if ask.ranges.len() > 1 {
            spoil(&copy, ask, reply);
        }
    })
    .await;
    let mut relays = Vec::new();
    let mut slow = Vec::new();
    for _ in 0..2 {
        slow.push(Server::start(&version, slow_at_first).await);
        relays.push(Directed::start(slow[slow.len() - 1].address, End::Never).await);
    }
    relays.push(Directed::start(winner.address, End::Never).await);
    let addresses: Vec<_> = relays.iter().map(|r| r.address).collect();
    let mut trial = Trial::new(&direct, &addresses);
    // No hedging: on a busy machine the winner would be helped meanwhile, and dropped for a silence of 0.2 s.
    trial.request.selection.ending = Ending::Paper;
    trial.request.selection.window = Duration::from_secs(3);
    trial.gets(&version).await;
    assert_eq!(trial.chosen()[0], addresses[2].to_string());
    slow.push(direct);
    (slow, winner, trial)
}

#[tokio::test]
async fn all_remainders_are_fetched_with_one_answer() {
    let (_, winner, _) = remainders(|_, _, _| {}).await;
    let joined: Vec<_> = winner.asks().into_iter().filter(|a| a.ranges.len() > 1).collect();
    assert_eq!(joined.len(), 1);
    assert_eq!((joined[0].ranges.len(), winner.asks().len()), (3, 2));
}

#[tokio::test]
async fn a_server_that_declines_lists_is_asked_one_by_one() {
    let whole = |v: &Version, _: &Ask, reply: &mut Reply| reply.whole(v.bytes.clone());
    let status = |_: &Version, _: &Ask, reply: &mut Reply| reply.status(416);
    let joined = |v: &Version, ask: &Ask, reply: &mut Reply| {
        let all = ask.ranges[0].start..ask.ranges[2].end;
        reply.parts(v, &[all]);
    };
    let backwards = |v: &Version, ask: &Ask, reply: &mut Reply| {
        reply.parts(v, &ask.ranges.iter().rev().cloned().collect::<Vec<_>>());
    };
    let fewer = |v: &Version, ask: &Ask, reply: &mut Reply| reply.parts(v, &ask.ranges[..2]);
    let garbled = |v: &Version, ask: &Ask, reply: &mut Reply| {
        reply.parts(v, &ask.ranges);
        reply.set("content-type", "multipart/byteranges; boundary=other");
    };
    for spoil in [whole, status, joined, backwards, fewer, garbled] {
        let (_, winner, trial) = remainders(spoil).await;
        let asks = winner.asks();
        assert_eq!(asks.iter().filter(|a| a.ranges.len() > 1).count(), 1, "asked again in vain");
        let dropped = trial.why_dropped(&trial.chosen()[0]);
        assert!(dropped.is_none(), "{dropped:?}: {:#?}", trial.told());
    }
}

/// Replies with the requested parts; `change` alters the bytes of part number `which`.
fn one_part_wrong(
    version: &Version,
    ask: &Ask,
    reply: &mut Reply,
    which: usize,
    change: fn(&mut Vec<u8>),
) {
    let mut body = Vec::new();
    for (i, r) in ask.ranges.iter().enumerate() {
        let range = format!("bytes {}-{}/{LENGTH}", r.start, r.end - 1);
        let head = format!("\r\n--boundary\r\nContent-Range: {range}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        let mut data = version.bytes[r.start as usize..r.end as usize].to_vec();
        if i == which {
            change(&mut data);
        }
        body.extend_from_slice(&data);
    }
    body.extend_from_slice(b"\r\n--boundary--\r\n");
    reply.parts(version, &ask.ranges);
    reply.set("content-length", &body.len().to_string());
    reply.body = [Step::Data(body.into())].into();
}

#[tokio::test]
async fn a_part_that_is_shorter_or_longer_than_stated_is_requested_again() {
    fn shorter<const WHICH: usize>(v: &Version, ask: &Ask, reply: &mut Reply) {
        one_part_wrong(v, ask, reply, WHICH, |data| data.truncate(data.len() - 16));
    }
    fn much_shorter<const WHICH: usize>(v: &Version, ask: &Ask, reply: &mut Reply) {
        one_part_wrong(v, ask, reply, WHICH, |data| data.truncate(data.len() / 2));
    }
    /// The beginning is missing instead of the end.
    fn later<const WHICH: usize>(v: &Version, ask: &Ask, reply: &mut Reply) {
        one_part_wrong(v, ask, reply, WHICH, |data| _ = data.drain(..16));
    }
    fn longer<const WHICH: usize>(v: &Version, ask: &Ask, reply: &mut Reply) {
        one_part_wrong(v, ask, reply, WHICH, |data| data.insert(0, 7));
    }
    let middle = [shorter::<1>, much_shorter::<1>, later::<1>, longer::<1>];
    let last = [shorter::<2>, much_shorter::<2>, later::<2>, longer::<2>];
    for (which, spoils) in [(1, middle), (2, last)] {
        for spoil in spoils {
            // `remainders` compares the bytes.
            let (_, winner, _) = remainders(spoil).await;
            let asks = winner.asks();
            let list = asks.iter().position(|a| a.ranges.len() > 1).unwrap();
            let again: Vec<_> = asks[list + 1..].iter().flat_map(|a| a.ranges.clone()).collect();
            // Another path may help with the last of them.
            let bad = &asks[list].ranges[which..];
            assert!(bad.starts_with(&again), "from the bad part on: {again:?} of {bad:?}");
        }
    }
}

#[tokio::test]
async fn a_list_that_breaks_off_is_continued_where_it_stopped() {
    // The first of three remainders arrives whole, and a part of the second, which is discarded: only the delimiter
    // after it would prove its length.
    let (slow, winner, trial) =
        remainders(|_, _, reply| reply.after_bytes(700_000, Step::Cut)).await;
    assert_eq!(trial.chosen().len(), 2);
    let list = |s: &Server| s.asks().into_iter().find(|a| a.ranges.len() > 1);
    let (asked, again) =
        (list(&winner).unwrap().ranges, slow.iter().find_map(list).unwrap().ranges);
    assert_eq!((asked.len(), again.len()), (3, 2));
    assert_eq!(asked[1..], again[..]);
}

#[tokio::test]
async fn small_files_are_fetched_over_one_path_with_one_answer() {
    let version = Version::new(1, 100_001);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.selection.small = 256_000;
    trial.gets(&version).await;
    let asks = server.asks();
    assert_eq!(asks.len(), 1, "the first question brings the whole file");
    assert_eq!(asks[0].ranges, vec![0..100_001]);
    assert_eq!(trial.chosen(), ["direct"]);
}

#[tokio::test]
async fn if_all_paths_fail_each_is_named_with_its_reason() {
    let version = Version::new(1, LENGTH);
    let dead = Server::honest(&version).await.url();
    let relay = Directed::start("127.0.0.1:1".parse().unwrap(), End::Never).await;
    let message = Trial::of(&dead, &[relay.address]).fails().await;
    assert!(
        message.contains("direct: ") && message.contains(&relay.address.to_string()),
        "{message}"
    );
}
