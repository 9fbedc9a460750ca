//! Tests of files that change during the download, on servers whose versions prove little.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{Server, Step, Version},
    until,
};
use hyper::header::{ETAG, HeaderValue};
use thalweg_get::{Stop, get};

const DATE: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

fn dated(seed: u64, tag: Option<&str>) -> Version {
    let (etag, last_modified) = (tag.map(str::to_owned), Some(DATE.to_owned()));
    Version { etag, last_modified, ..Version::new(seed, LENGTH) }
}

/// From the second request on, the server has `new` in place of `old`; all of `new` must be fetched.
async fn changes(old: &Version, new: &Version) {
    let server = Server::honest(old).await;
    server.publish_at(1, new.clone());
    let trial = Trial::new(&server, &[]).in_segments();
    let outcome = trial.gets(new).await;
    assert_eq!(trial.restarts(), 1);
    assert!(outcome.fetched.as_bytes() >= LENGTH as u64, "nothing of the old one is used");
}

#[tokio::test]
async fn a_changed_weak_tag_is_a_change_even_if_the_date_stays() {
    changes(&dated(1, Some("W/\"1\"")), &dated(2, Some("W/\"2\""))).await;
    changes(&dated(1, Some("W/\"1\"")), &dated(2, None)).await;
    let undated = |v: Version| Version { last_modified: None, ..v };
    changes(&undated(dated(1, Some("W/\"1\""))), &undated(dated(2, Some("W/\"2\"")))).await;
}

#[tokio::test]
async fn a_weak_tag_that_changed_between_two_sessions_causes_a_restart() {
    let (old, new) = (dated(1, Some("W/\"1\"")), dated(2, Some("W/\"2\"")));
    let server = Server::start(&old, |ask, reply| {
        if ask.is_first_segment() {
            reply.after_bytes(600_000, Step::Hang);
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.batch.bytes = 1;
    let (wish, stop) = Stop::new();
    let interrupt = async {
        until(|| trial.arrived() >= 600_000).await;
        wish.send_replace(true);
    };
    let (failed, ()) = tokio::join!(get(trial.request.clone(), &trial.events, stop), interrupt);
    assert_eq!(failed.unwrap_err().kept.as_bytes(), 600_000);
    server.publish(new.clone());
    let outcome = trial.gets(&new).await;
    assert!(outcome.fetched.as_bytes() >= LENGTH as u64, "nothing of the old one is used");
}

/// Checks that one plain request delivered the file, because nothing proves two answers to be of one version.
fn comes_in_one_answer(server: &Server) {
    let asks = server.asks();
    assert!(asks.last().unwrap().ranges.is_empty() && server.segments().is_empty(), "{asks:?}");
}

#[tokio::test]
async fn several_tags_are_no_validator_and_any_of_them_may_show_a_change() {
    let (old, new) = (dated(1, None), dated(2, None));
    let server = Server::honest(&old).await;
    let tags = |last: &'static str| {
        move |_: &_, reply: &mut crate::server::Reply| {
            for tag in ["\"a\"", last] {
                reply.fields.append(ETAG, HeaderValue::from_static(tag));
            }
        }
    };
    server.respoil(tags("\"b\""));
    let relay = Directed::start(server.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&old).await;
    comes_in_one_answer(&server);
    // The server has another file from the second request on.
    let count = server.asks().len();
    server.publish_at(count + 1, new.clone());
    let (b, c) = (tags("\"b\""), tags("\"c\""));
    let first = std::sync::atomic::AtomicBool::new(true);
    server.respoil(move |ask, reply| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            b(ask, reply);
        } else {
            c(ask, reply);
        }
    });
    let trial = Trial::new(&server, &[]).in_segments();
    trial.gets(&new).await;
    assert_eq!(trial.restarts(), 1);
}

#[tokio::test]
async fn a_date_as_fresh_as_the_answer_is_no_validator() {
    let version = dated(1, None);
    let server = Server::start(&version, |_, reply| reply.set("date", DATE)).await;
    let relay = Directed::start(server.address, End::Never).await;
    let trial = Trial::new(&server, &[relay.address]);
    trial.gets(&version).await;
    comes_in_one_answer(&server);
    assert!(server.asks().iter().all(|a| !a.fields.contains_key("if-unmodified-since")));
}
