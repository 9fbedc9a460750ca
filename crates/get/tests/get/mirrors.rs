//! Tests of one object with several URLs.

use crate::{
    LENGTH, Trial,
    server::{HEAD, Server, Step, Version},
    until,
};
use thalweg_base::job::Event;
use thalweg_get::{Stop, get};
use thalweg_net::Route;
use thalweg_part::Batch;
use thalweg_paths::candidates::Candidate;
use thalweg_paths::url::HttpUrl;
use tokio::sync::watch;

/// Adds a direct path to `mirror`.
fn with_mirror(trial: &mut Trial, mirror: &Server) {
    let url = HttpUrl::parse(&mirror.url()).unwrap();
    trial.request.paths.push(Candidate {
        name: "mirror".into(),
        route: Route::direct(),
        mirror: Some(url),
    });
}

fn with_digest(trial: &mut Trial, version: &Version) {
    let digest = format!("blake3:{}", blake3::hash(&version.bytes));
    trial.request.digests = vec![digest.parse().unwrap()];
}

/// The verdicts on the mirror.
fn said(trial: &Trial) -> Vec<String> {
    let says = |e| match e {
        Event::Mirror { says, .. } => Some(says),
        _ => None,
    };
    trial.told().into_iter().filter_map(says).collect()
}

fn dated(version: &Version, date: &str) -> Version {
    Version { etag: None, last_modified: Some(date.to_owned()), ..version.clone() }
}

/// A server whose segments wait until `gate` opens.
async fn slow(version: &Version, gate: watch::Receiver<bool>) -> Server {
    Server::start(version, move |ask, reply| {
        reply.after = (!ask.is_probe()).then(|| gate.clone());
    })
    .await
}

#[tokio::test]
async fn with_a_digest_mirrors_share_the_work_whatever_version_they_state() {
    let version = Version::new(1, LENGTH);
    let (open, gate) = watch::channel(false);
    let first = slow(&version, gate).await;
    let other = Version { etag: Some("\"other\"".into()), ..version.clone() };
    let mirror = Server::honest(&other).await;
    let mut trial = Trial::new(&first, &[]);
    with_mirror(&mut trial, &mirror);
    with_digest(&mut trial, &version);
    let director = async {
        until(|| !mirror.segments().is_empty()).await;
        open.send_replace(true);
    };
    tokio::join!(trial.gets(&version), director);
    assert!(said(&trial)[0].contains("its bytes are used"), "{:?}", said(&trial));
    let asked = mirror.asks().into_iter().filter(|a| !a.is_probe());
    for ask in asked {
        assert_eq!(ask.fields["if-match"], "\"other\"", "checked against its own version");
    }
}

#[tokio::test]
async fn without_a_digest_other_versions_and_lengths_are_not_used() {
    let version = Version::new(1, LENGTH);
    for other in [
        Version { etag: Some("\"other\"".into()), ..version.clone() },
        Version::new(1, LENGTH - 1),
        version.clone().without_validator(),
    ] {
        let (open, gate) = watch::channel(false);
        let (first, mirror) = (slow(&version, gate).await, Server::honest(&other).await);
        let mut trial = Trial::new(&first, &[]);
        with_mirror(&mut trial, &mirror);
        let director = async {
            until(|| !said(&trial).is_empty()).await;
            open.send_replace(true);
        };
        tokio::join!(trial.gets(&version), director);
        assert!(said(&trial)[0].contains("not used"), "{:?}", said(&trial));
        assert!(mirror.segments().is_empty());
        assert!(trial.why_dropped("mirror").unwrap().contains("the mirror is not used"));
    }
}

#[tokio::test]
async fn a_mirror_of_the_same_date_is_used_when_the_first_source_fails() {
    let version = dated(&Version::new(1, LENGTH), "Mon, 01 Jan 2024 00:00:00 GMT");
    let (open, gate) = watch::channel(false);
    let first = Server::start(&version, move |ask, reply| {
        if !ask.is_probe() {
            reply.after = Some(gate.clone());
            reply.status(404);
        }
    })
    .await;
    let mirror = Server::honest(&version).await;
    let mut trial = Trial::new(&first, &[]);
    with_mirror(&mut trial, &mirror);
    let director = async {
        until(|| !said(&trial).is_empty()).await;
        assert!(mirror.segments().is_empty(), "not mixed while the first source works");
        open.send_replace(true);
    };
    let outcome = tokio::join!(trial.gets(&version), director).0;
    assert_eq!(mirror.segments(), vec![HEAD..LENGTH as u64], "only what was missing");
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64);
    assert_eq!(said(&trial).len(), 2);
}

#[tokio::test]
async fn a_mirror_delivers_the_file_if_the_url_is_dead() {
    let version = Version::new(1, LENGTH);
    let dead = Server::honest(&version).await.url();
    let mirror = Server::honest(&version).await;
    let mut trial = Trial::of(&dead, &[]);
    with_mirror(&mut trial, &mirror);
    trial.gets(&version).await;
    assert_eq!(trial.chosen(), ["mirror"]);
}

#[tokio::test]
async fn with_a_digest_a_download_is_resumed_from_another_mirror() {
    let version = Version::new(1, LENGTH);
    let first = Server::start(&version, |ask, reply| {
        if !ask.is_probe() {
            reply.after_bytes(100_000, Step::Hang);
        }
    })
    .await;
    let other = Version { etag: Some("\"other\"".into()), ..version.clone() };
    let mirror = Server::honest(&other).await;
    let mut trial = Trial::new(&first, &[]).in_segments();
    with_digest(&mut trial, &version);
    trial.request.batch = Batch { bytes: 1, ..Batch::default() };
    let (wish, stop) = Stop::new();
    let cut = async {
        until(|| trial.arrived() >= HEAD + 100_000).await;
        wish.send_replace(true);
    };
    let run = get(trial.request.clone(), &trial.events, stop);
    assert_eq!(tokio::join!(run, cut).0.unwrap_err().kept.as_bytes(), HEAD + 100_000);
    trial.request.url = HttpUrl::parse(&mirror.url()).unwrap();
    let outcome = trial.gets(&version).await;
    assert_eq!(outcome.fetched.as_bytes(), LENGTH as u64 - HEAD - 100_000);
}
