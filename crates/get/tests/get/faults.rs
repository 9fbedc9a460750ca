//! Tests of servers and relays that send something else than requested.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{Reply, Server, Step, Version},
    until,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_base::job::Event;
use tokio::sync::watch;

#[tokio::test]
async fn a_relay_that_states_another_length_is_dropped_and_named() {
    let version = Version::new(1, LENGTH);
    // The direct path's segments are sent once the other relay is detected.
    let (deliver, may_deliver) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| {
        reply.after = (!ask.is_probe()).then(|| may_deliver.clone());
    })
    .await;
    let liar = Server::honest(&Version::new(1, LENGTH + 1)).await;
    let relay = Directed::start(liar.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    let director = async {
        until(|| trial.why_dropped(&relay.address.to_string()).is_some()).await;
        deliver.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
    let why = trial.why_dropped(&relay.address.to_string()).unwrap();
    assert!(why.contains("another file") && why.contains("2000001"), "{why}");
    assert_eq!(liar.asks().len(), 1, "it is asked for its share, and no more");
}

#[tokio::test]
async fn if_tags_differ_between_paths_only_one_path_is_used() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let edge = Version { etag: Some("\"edge\"".into()), ..version.clone() };
    let edge = Server::honest(&edge).await;
    let relay = Directed::start(edge.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
    // Whichever path answered first, the direct path's answer counts.
    let why = trial.why_dropped(&relay.address.to_string());
    assert!(why.is_none_or(|w| w.contains("its version is entity tag \"edge\"")));
    assert_eq!(trial.chosen().last().map(String::as_str), Some("direct"));
}

#[tokio::test]
async fn a_lying_relay_that_answers_first_is_detected_before_publication() {
    let version = Version::new(1, LENGTH);
    let liar = Server::honest(&Version::new(2, LENGTH - 7)).await;
    let relay = Directed::start(liar.address, End::Never).await;
    // The direct path answers only after the lying relay has delivered everything.
    let (open, gate) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| {
        if ask.is_probe() {
            reply.after = Some(gate.clone());
        }
    })
    .await;
    let trial = Trial::new(&server, &[relay.address]);
    let delivered = || liar.segments().iter().map(|r| r.end - r.start).sum::<u64>();
    let director = async {
        until(|| delivered() >= LENGTH as u64 - 7).await;
        open.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
    assert_eq!(trial.restarts(), 1);
    assert!(trial.why_dropped(&relay.address.to_string()).unwrap().contains("another file"));
}

/// A server that answers only after a signal of the test.
async fn gated(version: &Version) -> (Server, watch::Sender<bool>) {
    let (open, gate) = watch::channel(false);
    let server = Server::start(version, move |_, reply| reply.after = Some(gate.clone())).await;
    (server, open)
}

#[tokio::test]
async fn a_relay_that_says_the_file_is_empty_replaces_nothing() {
    let version = Version::new(1, LENGTH);
    let liar = Server::honest(&Version::new(2, 0)).await;
    let relay = Directed::start(liar.address, End::Never).await;
    let (server, open) = gated(&version).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.selection.stall = Duration::from_millis(1);
    std::fs::write(trial.target(), "good").unwrap();
    let director = async {
        // By then, more than the stall time has passed in silence.
        until(|| trial.progress() > 1).await;
        assert_eq!(std::fs::read(trial.target()).unwrap(), b"good");
        open.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_digest_detects_a_lying_relay_while_the_direct_path_is_silent() {
    let version = Version::new(1, LENGTH);
    let liar = Server::honest(&Version::new(2, LENGTH)).await;
    let relay = Directed::start(liar.address, End::Never).await;
    let (server, open) = gated(&version).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.selection.stall = Duration::from_millis(1);
    let digest = format!("blake3:{}", blake3::hash(&version.bytes));
    trial.request.digests = vec![digest.parse().unwrap()];
    let director = async {
        until(|| trial.restarts() > 0).await;
        open.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
}

#[tokio::test]
async fn a_relay_alone_neither_fills_the_disk_nor_discards_what_is_kept() {
    let version = Version::new(1, LENGTH);
    for (etag, length) in [("\"v2\"", None), ("\"v1\"", Some(u64::MAX / 4))] {
        let first = Server::start(&version, |ask, reply| {
            if !ask.is_probe() {
                reply.after_bytes(500_000, Step::Hang);
            }
        })
        .await;
        let other = Version { etag: Some(etag.to_owned()), ..version.clone() };
        let liar = Server::start(&other, move |_, reply| {
            if let Some(length) = length {
                reply.set("content-range", &format!("bytes 0-0/{length}"));
            }
        })
        .await;
        let relay = Directed::start(liar.address, End::Never).await;
        let mut trial = Trial::new(&first, &[]);
        // A first session keeps some bytes.
        let (wish, stop) = thalweg_get::Stop::new();
        let cut = async {
            until(|| trial.arrived() >= 500_000).await;
            wish.send_replace(true);
        };
        let run = thalweg_get::get(trial.request.clone(), &trial.events, stop);
        assert_eq!(tokio::join!(run, cut).0.unwrap_err().kept.as_bytes(), 500_000);
        // The same server later, with the same URL, and slow.
        let (open, gate) = watch::channel(false);
        first.respoil(move |_, reply| reply.after = Some(gate.clone()));
        trial.request.paths = Trial::new(&first, &[relay.address]).request.paths;
        let director = async {
            until(|| !liar.asks().is_empty()).await;
            open.send_replace(true);
        };
        let outcome = tokio::join!(trial.gets(&version), director).0;
        assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64 - 500_000, "{:#?}", trial.told());
        assert!(!trial.told().iter().any(|e| matches!(e, Event::Restarted { .. })));
        assert!(trial.why_dropped(&relay.address.to_string()).is_some());
    }
}

#[tokio::test]
async fn if_a_relay_states_a_length_too_large_for_the_disk_the_direct_path_is_waited_for() {
    let version = Version::new(1, LENGTH);
    let liar = Server::start(&version, |ask, reply| {
        let last = ask.ranges.first().map_or(0, |r| r.end - 1);
        reply.set("content-range", &format!("bytes 0-{last}/{}", u64::MAX / 4));
    })
    .await;
    let relay = Directed::start(liar.address, End::Never).await;
    let (server, open) = gated(&version).await;
    let trial = Trial::new(&server, &[relay.address]);
    let director = async {
        until(|| !liar.asks().is_empty()).await;
        open.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
    let message = Trial::new(&liar, &[]).in_segments().fails().await;
    assert!(message.contains("disk is full"), "{message}");
}

#[tokio::test]
async fn a_chunked_segment_that_is_longer_than_stated_drops_the_path() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let bad = Server::start(&version, |ask, reply| {
        if !ask.is_probe() {
            reply.unset("content-length");
            reply.body.push_back(Step::Data(bytes::Bytes::from_static(b"more")));
        }
    })
    .await;
    let relay = Directed::start(bad.address, End::Never).await;
    Trial::new(&server, &[relay.address]).gets(&version).await;
    // If it is the only path, a plain request is sent, whose answer has the four bytes too.
    let trial = Trial::new(&bad, &[]).in_segments();
    let got = trial.run().await.unwrap();
    assert_eq!(got.length.as_bytes(), LENGTH as u64 + 4);
    assert!(trial.why_dropped("direct").unwrap().contains("longer than announced"));
}

#[tokio::test]
async fn a_login_page_on_one_relay_is_dropped_and_named() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let portal = Server::start(&version, |_, reply| {
        reply.whole(bytes::Bytes::from_static(b"<html>Please log in</html>"));
        reply.unset("etag");
        reply.set("content-type", "text/html");
    })
    .await;
    let relay = Directed::start(portal.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), ["direct"]);
    // If it is the only path, the page is not taken for the file either.
    let message = Trial::new(&server, &[relay.address]).only(relay.address).fails().await;
    assert!(message.contains("login page"), "{message}");
}

#[tokio::test]
async fn segments_other_than_requested_drop_the_path() {
    let shift = |reply: &mut crate::server::Reply| reply.set("content-range", "bytes 5-14/2000000");
    let code = |reply: &mut crate::server::Reply| reply.set("content-encoding", "gzip");
    let whole = |reply: &mut crate::server::Reply| reply.whole(vec![7; LENGTH].into());
    let busy = |reply: &mut crate::server::Reply| {
        reply.status(503);
        reply.set("retry-after", "0");
    };
    for spoil in [shift, code, whole, busy] {
        let version = Version::new(1, LENGTH);
        let server = Server::honest(&version).await;
        let bad = Server::start(&version, move |ask, reply| {
            if !ask.is_probe() && !ask.ranges.is_empty() {
                spoil(reply);
            }
        })
        .await;
        let relay = Directed::start(bad.address, End::Never).await;
        let trial = Trial::new(&server, &[relay.address]);
        trial.gets(&version).await;
        // If it is the only path, the server is finally asked without ranges.
        let trial = Trial::new(&bad, &[]).in_segments();
        trial.gets(&version).await;
        assert!(bad.asks().last().unwrap().ranges.is_empty());
    }
}

/// `Content-Length` and the body are 1000 bytes less than `Content-Range` says.
fn thousand_less(reply: &mut Reply) {
    let Some(Step::Data(data)) = reply.body.pop_front() else { return };
    let data = data.slice(..data.len() - 1000);
    reply.set("content-length", &data.len().to_string());
    reply.body = [Step::Data(data)].into();
}

#[tokio::test]
async fn a_server_that_contradicts_itself_for_a_while_is_asked_again() {
    let version = Version::new(1, LENGTH);
    for wrong in [0..1, 1..3] {
        let count = AtomicUsize::new(0);
        let times = wrong.clone();
        let server = Server::start(&version, move |ask, reply| {
            if !ask.ranges.is_empty() && times.contains(&count.fetch_add(1, Ordering::Relaxed)) {
                thousand_less(reply);
            }
        })
        .await;
        let trial = Trial::new(&server, &[]).in_segments();
        trial.gets(&version).await;
        // Only rejected segments are reported.
        assert_eq!(trial.why_dropped("direct").is_some(), wrong.start > 0, "{wrong:?}");
        assert_eq!(trial.restarts(), 0);
    }
}

#[tokio::test]
async fn a_server_that_always_contradicts_itself_is_asked_without_ranges() {
    let version = Version::new(1, LENGTH);
    for from in [0, 1] {
        let server = Server::start(&version, move |ask, reply| {
            if (from == 0 || !ask.is_probe()) && !ask.ranges.is_empty() {
                thousand_less(reply);
            }
        })
        .await;
        Trial::new(&server, &[]).in_segments().gets(&version).await;
        assert_eq!(server.asks().len(), if from == 0 { 3 } else { 5 });
    }
}

#[tokio::test]
async fn a_file_that_changes_midway_causes_one_restart() {
    let (old, new) = (Version::new(1, LENGTH), Version::new(2, LENGTH + 100_000));
    // The answer breaks off; the rest is requested after the change.
    let server = Server::start(&old, |ask, reply| {
        if ask.is_first_segment() {
            reply.after_bytes(500_000, Step::Cut);
        }
    })
    .await;
    server.publish_at(1, new.clone());
    let trial = Trial::new(&server, &[]);
    trial.gets(&new).await;
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_file_whose_conditions_never_hold_is_fetched_with_one_answer() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        if !ask.is_probe() && !ask.ranges.is_empty() {
            reply.status(412);
        }
    })
    .await;
    let trial = Trial::new(&server, &[]).in_segments();
    trial.gets(&version).await;
    assert_eq!((trial.restarts(), server.asks().len()), (1, 3));
}

#[tokio::test]
async fn an_answer_that_ends_early_is_continued() {
    let version = Version::new(1, 4 * LENGTH);
    let server = Server::start(&version, |_, reply| reply.after_bytes(1_500_000, Step::Cut)).await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    let (asks, segments) = (server.asks().len(), server.segments());
    assert!(asks >= 6 && segments.len() == asks - 1, "{segments:?}");
}

#[tokio::test]
async fn a_server_that_closes_after_every_answer_is_no_failure() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |_, reply| reply.set("connection", "close")).await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    assert_eq!(trial.why_dropped("direct"), None);
}

#[tokio::test]
async fn statuses_are_named() {
    for status in [403, 404, 410, 429, 500, 503] {
        let version = Version::new(1, LENGTH);
        let server = Server::start(&version, move |_, reply| reply.status(status)).await;
        let message = Trial::new(&server, &[]).fails().await;
        assert!(message.contains(&status.to_string()), "{message}");
    }
}

#[tokio::test]
async fn redirects_are_followed_fifty_times_and_not_to_https() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        let hop: usize = ask.path.trim_start_matches("/hop").parse().unwrap_or(99);
        if hop < 99 {
            reply.status(302);
            let to = if hop == 49 { "/dir/file.bin".into() } else { format!("/hop{}", hop + 1) };
            reply.set("location", &to);
        }
    })
    .await;
    let hop = |n| format!("http://{}/hop{n}", server.address);
    Trial::of(&hop(0), &[]).gets(&version).await;
    let endless = Server::start(&version, |_, reply| {
        reply.status(301);
        reply.set("location", "/again");
    })
    .await;
    assert!(Trial::new(&endless, &[]).fails().await.contains("more than 50"));
    let secure = Server::start(&version, |_, reply| {
        reply.status(301);
        reply.set("location", "https://www.example/");
    })
    .await;
    assert!(Trial::new(&secure, &[]).fails().await.contains("TLS is not set up"));
}

#[tokio::test]
async fn the_users_fields_are_sent_only_to_the_given_server() {
    let version = Version::new(1, LENGTH);
    let other = Server::honest(&version).await;
    let to = other.url();
    let server = Server::start(&version, move |_, reply| {
        reply.status(307);
        reply.set("location", &to);
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    thalweg_get::add_field(&mut trial.request.fields, "Authorization: secret").unwrap();
    trial.gets(&version).await;
    assert!(server.asks().iter().all(|a| a.fields["authorization"] == "secret"));
    assert!(other.asks().iter().all(|a| !a.fields.contains_key("authorization")));
}

#[tokio::test]
async fn without_a_validator_one_answer_is_used() {
    let version = Version::new(1, LENGTH).without_validator();
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
    let whole = server.asks().iter().filter(|a| a.ranges.is_empty()).count();
    assert_eq!((whole, server.segments()), (1, vec![]), "in one piece");
}

#[tokio::test]
async fn without_a_validator_a_broken_answer_causes_a_restart() {
    let version = Version::new(1, LENGTH).without_validator();
    static BREAKS: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start(&version, |ask, reply| {
        if ask.ranges.is_empty() && BREAKS.fetch_add(1, Ordering::SeqCst) == 0 {
            reply.after_bytes(500_000, Step::Cut);
        }
    })
    .await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    assert_eq!(server.asks().iter().filter(|a| a.ranges.is_empty()).count(), 2);
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_digest_makes_up_for_a_missing_validator() {
    let version = Version::new(1, LENGTH).without_validator();
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    let digest = format!("blake3:{}", blake3::hash(&version.bytes));
    trial.request.digests = vec![digest.parse().unwrap()];
    trial.gets(&version).await;
    assert!(server.segments().len() > 1, "both paths were used");
}

#[tokio::test]
async fn a_wrong_digest_leaves_no_file() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.digests = vec![format!("sha256:{}", "0".repeat(64)).parse().unwrap()];
    let message = trial.fails().await;
    assert!(message.contains("does not match the expected hash"), "{message}");
    assert!(trial.files().is_empty(), "{:?}", trial.files());
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let version = Version::new(1, 0);
    let server = Server::honest(&version).await;
    Trial::new(&server, &[]).gets(&version).await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    let server = Server::honest(&Version::new(1, LENGTH)).await;
    let missing = Trial::new(&server, &[]).dir.path().join("gone/file.bin");
    for target in ["/proc/file.bin".into(), missing] {
        let mut trial = Trial::new(&server, &[]);
        trial.request.target = thalweg_get::Target::File(target.clone());
        let message = trial.fails().await;
        let place = target.parent().unwrap().to_str().unwrap();
        assert!(message.contains("cannot create") && message.contains(place), "{message}");
    }
}
