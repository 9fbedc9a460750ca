//! Tests of servers that ask to wait or are silent, and of our own rate limit.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{HEAD, Server, Step, Version},
    until,
};
use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_base::{job::Event, rate_limit::RateLimit};
use thalweg_get::{Stop, get};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::watch,
};

impl Trial {
    /// The paths that were told to wait, and for how many seconds.
    fn put_off(&self) -> Vec<(String, f64)> {
        let busy = |e| match e {
            Event::Busy { path, seconds, .. } => Some((path, seconds)),
            _ => None,
        };
        self.told().into_iter().filter_map(busy).collect()
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    for (status, wait) in [(429, "0"), (503, "1")] {
        let version = Version::new(1, LENGTH);
        let server = Server::start(&version, move |ask, reply| {
            if ask.is_first_segment() {
                reply.status(status);
                reply.set("retry-after", wait);
            }
        })
        .await;
        let trial = Trial::new(&server, &[]).in_segments();
        trial.gets(&version).await;
        assert_eq!(trial.put_off(), [("direct".to_owned(), wait.parse().unwrap())]);
        assert_eq!(trial.why_dropped("direct"), None, "it is no failure");
        let again = server.segments();
        assert_eq!(again, [HEAD..LENGTH as u64, HEAD..LENGTH as u64]);
    }
}

#[tokio::test]
async fn a_server_that_is_busy_from_the_start_is_waited_for() {
    let version = Version::new(1, LENGTH);
    let asks = AtomicUsize::new(0);
    let server = Server::start(&version, move |_, reply| {
        if asks.fetch_add(1, Ordering::SeqCst) < 2 {
            reply.status(503);
            reply.set("retry-after", "0");
        }
    })
    .await;
    let trial = Trial::new(&server, &[]);
    trial.gets(&version).await;
    assert_eq!(trial.put_off().len(), 2);
}

#[tokio::test]
async fn a_server_that_stays_busy_is_an_error_that_names_the_status() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        if !ask.is_probe() {
            reply.status(429);
            reply.set("retry-after", "0");
        }
    })
    .await;
    let trial = Trial::new(&server, &[]);
    let message = trial.fails().await;
    assert!(message.contains("direct: ") && message.contains("429"), "{message}");
    let hour = Server::start(&version, |ask, reply| {
        if !ask.is_probe() {
            reply.status(503);
            reply.set("retry-after", "3600");
        }
    })
    .await;
    let message = Trial::new(&hour, &[]).fails().await;
    assert!(message.contains("wait 1 h") || message.contains("3600"), "{message}");
}

/// In the first answer or later, a wait that is too long is reported at once.
#[tokio::test]
async fn a_wait_that_is_too_long_ends_the_download_at_once() {
    for wait in ["31536000", "18446744073709551616", "121", "Fri, 31 Dec 2100 23:59:59 GMT"] {
        for from in [0, 1] {
            let version = Version::new(1, LENGTH);
            let server = Server::start(&version, move |ask, reply| {
                if from == 0 || !ask.is_probe() {
                    reply.status(if from == 0 { 503 } else { 429 });
                    reply.set("retry-after", wait);
                }
            })
            .await;
            let trial = Trial::new(&server, &[]);
            let message = trial.fails().await;
            let says = if wait == "121" { "wait 121 s" } else { "or more" };
            assert!(message.contains(says) && message.contains("longer than"), "{message}");
            assert_eq!(trial.put_off(), []);
        }
    }
}

/// A wait that the server asks for does not count against its patience.
#[tokio::test]
async fn a_requested_wait_may_be_longer_than_the_patience() {
    let version = Version::new(1, LENGTH);
    let asks = AtomicUsize::new(0);
    let server = Server::start(&version, move |_, reply| {
        if asks.fetch_add(1, Ordering::SeqCst) < 1 {
            reply.status(503);
            reply.set("retry-after", "2");
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.patience = Duration::from_secs(1);
    trial.gets(&version).await;
    assert_eq!(trial.put_off(), [("direct".to_owned(), 2.0)]);
}

/// A few interim answers are skipped; too many are an error.
#[tokio::test]
async fn interim_answers_are_bounded() {
    for (n, good) in [(16, true), (17, false), (100_000, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file.bin", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                _ = tcp.read(&mut [0; 4096]).await;
                let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(n);
                _ = tcp.write_all(interim.as_bytes()).await;
                if good {
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
                    _ = tcp.write_all(answer.as_bytes()).await;
                }
                // Wait until the client closes the connection.
                _ = tcp.read(&mut [0; 1]).await;
            }
        });
        let trial = Trial::of(&url, &[]);
        if good {
            let outcome = trial.run().await.unwrap();
            assert_eq!(outcome.length.as_bytes(), 4);
        } else {
            let message = trial.fails().await;
            assert!(message.contains("16 interim answers"), "{message}");
        }
        server.abort();
    }
}

/// Case 7: the server allows one connection at a time, and refuses others in one of three ways.
#[tokio::test]
async fn a_server_that_refuses_a_second_path_is_served_by_one() {
    for status in [403, 429, 503] {
        let version = Version::new(1, LENGTH);
        let server = Server::honest(&version).await;
        let refuses = Server::start(&version, move |_, reply| reply.status(status)).await;
        let relay = Directed::start(refuses.address, End::Never).await;
        let trial = Trial::new(&server, &[relay.address]);
        trial.gets(&version).await;
        assert_eq!(trial.chosen().last().map(String::as_str), Some("direct"));
        assert_eq!(trial.why_dropped("direct"), None);
    }
}

/// A server with signed URLs. The first URL delivers the head and then expires; the original URL leads to `second` from
/// then on.
async fn signed(version: &Version, second: &'static str) -> Server {
    let expired = AtomicUsize::new(0);
    Server::start(version, move |ask, reply| match ask.path.as_str() {
        "/first" if !ask.is_probe() => {
            expired.store(1, Ordering::SeqCst);
            reply.status(403);
        }
        "/first" | "/second" => {}
        _ => {
            reply.status(302);
            let now = expired.load(Ordering::SeqCst);
            reply.set("location", if now == 0 { "/first" } else { second });
        }
    })
    .await
}

#[tokio::test]
async fn a_signed_url_that_expires_midway_is_refreshed() {
    let version = Version::new(1, LENGTH);
    let server = signed(&version, "/second").await;
    let trial = Trial::new(&server, &[]).in_segments();
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64, "nothing came twice");
    let moved = |e: &Event| matches!(e, Event::Moved { url, .. } if url.ends_with("/second"));
    assert_eq!(trial.told().iter().filter(|e| moved(e)).count(), 1);
    assert_eq!(trial.restarts(), 0);
}

#[tokio::test]
async fn if_a_signed_url_cannot_be_refreshed_the_received_bytes_are_kept() {
    let version = Version::new(1, LENGTH);
    let server = signed(&version, "/first").await;
    let trial = Trial::new(&server, &[]).in_segments();
    let failed = trial.run().await.unwrap_err();
    assert!(failed.to_string().contains("403"), "{failed}");
    assert_eq!(failed.kept.as_bytes(), HEAD);
}

#[tokio::test]
async fn a_refreshed_url_that_leads_to_another_file_causes_a_restart() {
    let (version, other) = (Version::new(1, LENGTH), Version::new(2, LENGTH));
    let server = signed(&version, "/second").await;
    // By then it is another file, which does not change any more, so it is fetched whole.
    let asked = || server.asks().len() >= 2;
    let trial = Trial::new(&server, &[]).in_segments();
    let director = async {
        until(asked).await;
        server.publish(other.clone());
    };
    tokio::join!(trial.gets(&other), director);
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_limit_holds_for_all_bytes() {
    let version = Version::new(1, 600_000);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    let per_second = 1_000_000;
    trial.request.limit = Some(Arc::new(RateLimit::new(NonZeroU64::new(per_second).unwrap())));
    let outcome = trial.gets(&version).await;
    // A tenth of a second's worth may arrive at once, and the last piece is not waited for.
    let least = Duration::from_millis(300);
    assert!(outcome.took >= least, "{:?}", outcome.took);
    assert_eq!(trial.why_dropped("direct"), None, "our own waiting is blamed on nobody");
}

#[tokio::test]
async fn a_limited_download_can_be_stopped_while_it_waits() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.limit = Some(Arc::new(RateLimit::new(NonZeroU64::new(1).unwrap())));
    let (wish, stop) = Stop::new();
    let director = async {
        until(|| trial.arrived() > 0).await;
        wish.send_replace(true);
    };
    let run = get(trial.request.clone(), &trial.events, stop);
    let failed = tokio::join!(run, director).0.unwrap_err();
    assert!(failed.kept.as_bytes() > 0);
}

/// Case 15. The stall time is very long: the rest must arrive over the other path before.
#[tokio::test]
async fn a_relay_that_stalls_at_99_percent_is_hedged() {
    let version = Version::new(1, LENGTH);
    let direct = Server::start(&version, |ask, reply| {
        // It loses sampling, but works.
        if ask.is_first_segment() {
            reply.after_bytes(10_000, Step::Hang);
        }
    })
    .await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Stalls(1_700_000)).await;
    let mut trial = Trial::new(&direct, &[relay.address]);
    trial.request.selection.stall = Duration::from_secs(3600);
    trial.gets(&version).await;
    let hedged = |e: &Event| matches!(e, Event::Hedged { path, .. } if path == "direct");
    assert!(trial.told().iter().any(hedged), "{:#?}", trial.told());
    let totals = |e: &Event| matches!(e, Event::PathTotal { .. });
    assert_eq!(trial.told().iter().filter(|e| totals(e)).count(), 2);
}

/// The first answer would hold the whole file, but its end does not arrive.
#[tokio::test]
async fn a_small_file_that_stalls_is_completed_by_another_path() {
    let version = Version::new(1, 100_001);
    let server = Server::start(&version, |ask, reply| {
        if ask.is_probe() {
            reply.after_bytes(60_000, Step::Hang);
        }
    })
    .await;
    let other = Server::honest(&version).await;
    let relay = Directed::start(other.address, End::Never).await;
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.selection.stall = Duration::from_secs(3600);
    trial.gets(&version).await;
    assert_eq!(other.asks().len(), 1, "for the rest, at once: {:?}", other.segments());
}

/// A server that closes the connection after its first answer, and sends the end of that only after the next request.
#[tokio::test]
async fn a_server_that_closes_each_connection_gets_the_next_request_early() {
    let version = Version::new(1, LENGTH);
    let (open, gate) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| {
        reply.set("connection", "close");
        if !ask.is_probe() {
            open.send_replace(true);
            return;
        }
        let Some(Step::Data(mut data)) = reply.body.pop_front() else { return };
        let first = data.split_to(data.len() / 2);
        let mut gate = gate.clone();
        let came = async move { _ = gate.wait_for(|came| *came).await };
        reply.body.extend([Step::Data(first), Step::Wait(Box::pin(came)), Step::Data(data)]);
    })
    .await;
    let trial = Trial::new(&server, &[]).in_segments();
    trial.gets(&version).await;
    assert_eq!(server.segments(), vec![HEAD..LENGTH as u64; 1]);
}

/// The same server with an unusable second answer: the missing bytes are requested again.
#[tokio::test]
async fn the_answer_to_an_early_request_may_fail() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        reply.set("connection", "close");
        if ask.is_first_segment() {
            reply.after_bytes(10_000, Step::Cut);
        }
    })
    .await;
    Trial::new(&server, &[]).in_segments().gets(&version).await;
    let asked: Vec<_> = server.segments().iter().map(|r| r.start).collect();
    assert!(matches!(asked[..], [HEAD, again] if again <= HEAD + 10_000), "{asked:?}");
}

/// A server that closes each connection and refuses a second one beside it.
#[tokio::test]
async fn a_refusal_of_the_early_request_does_not_fail_the_download() {
    for status in [403, 404, 429, 500, 503] {
        let version = Version::new(1, LENGTH);
        let (refused, gate) = watch::channel(false);
        let server = Server::start(&version, move |ask, reply| {
            reply.set("connection", "close");
            if ask.is_probe() {
                // The early request arrives while this answer is open.
                pause(reply, gate.clone());
            } else if !refused.send_replace(true) {
                reply.status(status);
            }
        })
        .await;
        Trial::new(&server, &[]).in_segments().gets(&version).await;
        let rest = HEAD..LENGTH as u64;
        assert_eq!(server.segments(), [rest.clone(), rest], "{status}: ranges go on");
    }
}

/// Delays the second half of a reply until `gate` is open.
fn pause(reply: &mut crate::server::Reply, mut gate: watch::Receiver<bool>) {
    let Some(Step::Data(mut data)) = reply.body.pop_front() else { return };
    let first = data.split_to(data.len() / 2);
    let came = async move { _ = gate.wait_for(|open| *open).await };
    reply.body.extend([Step::Data(first), Step::Wait(Box::pin(came)), Step::Data(data)]);
}

/// The first answer pauses until the bytes after it are requested.
#[tokio::test]
async fn the_bytes_after_a_silent_answer_are_requested_meanwhile() {
    let version = Version::new(1, LENGTH);
    let (open, gate) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| match ask.is_probe() {
        true => pause(reply, gate.clone()),
        false => _ = open.send_replace(true),
    })
    .await;
    let mut trial = Trial::new(&server, &[]).in_segments();
    trial.request.selection.stall = Duration::from_secs(3600);
    let outcome = trial.gets(&version).await;
    assert_eq!(server.segments(), vec![HEAD..LENGTH as u64; 1]);
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64, "nothing came twice");
}

/// Each answer pauses until the same range is requested again.
#[tokio::test]
async fn a_silent_answer_is_not_dropped_for_another_one_of_the_same_server() {
    let version = Version::new(1, LENGTH);
    let (open, gate) = watch::channel(false);
    let server = Server::start(&version, move |ask, reply| {
        if ask.is_first_segment() {
            pause(reply, gate.clone());
        } else if !ask.is_probe() {
            reply.after_bytes(10_000, Step::Hang);
            open.send_replace(true);
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.selection.stall = Duration::from_secs(1);
    trial.gets(&version).await;
    assert_eq!(trial.why_dropped("direct"), None);
}

/// A server that generates the file while sending it: over each path, each answer delivers a part and then pauses for
/// longer than the stall time.
#[tokio::test]
async fn a_server_that_pauses_over_every_path_is_waited_for() {
    const STALL: Duration = Duration::from_millis(100);
    for (pause, part, paths) in
        [(2, 2, 2), (6, 2, 2), (2, 50, 2), (2, usize::MAX, 2), (8, usize::MAX, 1), (8, 50, 1)]
    {
        let version = Version::new(1, LENGTH);
        let server = Server::start(&version, move |ask, reply| {
            let Some(Step::Data(mut data)) = reply.body.pop_front() else { return };
            if !ask.is_probe() {
                let first = data.split_to(data.len() / part);
                let pause = tokio::time::sleep(pause * STALL);
                reply.body.extend([Step::Data(first), Step::Pause(Box::pin(pause))]);
            }
            reply.body.push_back(Step::Data(data));
        })
        .await;
        let relay = Directed::start(server.address, End::Never).await;
        let mut trial = match paths {
            1 => Trial::new(&server, &[]).in_segments(),
            _ => Trial::new(&server, &[relay.address]),
        };
        trial.request.selection.stall = STALL;
        trial.gets(&version).await;
        let asked = server.segments().len();
        assert!(asked < 60, "{pause} {part} {paths}: {asked} requests");
    }
}

/// A server that generates the file again for each request, with the same length and without a version: a second
/// request during a pause gets other bytes.
#[tokio::test]
async fn a_silent_answer_without_a_version_is_not_continued_by_another_one() {
    let of = |seed| Version::new(seed, 200_000).without_validator();
    let (first, later) = (of(1), of(2));
    let (bytes, asks) = (later.bytes.clone(), AtomicUsize::new(0));
    let server = Server::start(&first, move |ask, reply| {
        if asks.fetch_add(1, Ordering::Relaxed) == 0 {
            return reply.after_bytes(100_000, Step::Hang);
        }
        let range = ask.ranges.first().map_or(0..bytes.len(), |r| r.start as usize..r.end as usize);
        reply.body = [Step::Data(bytes.slice(range))].into();
    })
    .await;
    let mut trial = Trial::new(&server, &[]).in_segments();
    trial.request.selection.stall = Duration::from_secs(1);
    trial.gets(&later).await;
}

/// The connection may be dead.
#[tokio::test]
async fn an_answer_that_stays_silent_is_replaced() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        if ask.is_first_segment() {
            reply.after_bytes(100_000, Step::Hang);
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.selection.stall = Duration::from_secs(1);
    trial.gets(&version).await;
    assert_eq!(trial.why_dropped("direct"), None);
    assert_eq!((server.asks().len(), server.segments()), (2, vec![100_000..LENGTH as u64; 1]));
}

/// Sampling needs additional connections. It is not worthwhile for 2 MB over two paths if each connection starts in
/// slow start.
#[tokio::test]
async fn a_server_that_closes_each_connection_is_sampled_for_larger_files_only() {
    for (length, closes, is_sampled) in
        [(LENGTH, true, false), (LENGTH, false, true), (LENGTH + 1, true, true)]
    {
        let version = Version::new(1, length);
        let spoil = move |_: &crate::server::Ask, reply: &mut crate::server::Reply| {
            if closes {
                reply.set("connection", "close");
            }
        };
        let (server, other) =
            (Server::start(&version, spoil).await, Server::start(&version, spoil).await);
        let relay = Directed::start(other.address, End::Never).await;
        let mut trial = Trial::new(&server, &[relay.address]);
        // A quarter of the file, times two for such a server, times two paths: the file is just small.
        trial.request.selection.small = LENGTH as u64 / 4;
        trial.gets(&version).await;
        let is_small =
            |e: &Event| matches!(e, Event::Chosen { reason, .. } if reason == "a small file");
        let was_sampled = !trial.told().iter().any(is_small);
        assert_eq!(was_sampled, is_sampled, "{length} {closes}: {:?}", trial.told());
    }
}
