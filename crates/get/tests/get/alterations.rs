//! Tests of relays that alter bytes, and of digests that detect it.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{HEAD, Server, Version},
    until,
};
use thalweg_base::job::Event;
use tokio::sync::watch;

/// `version` with every byte altered after those of the first request.
fn altered(version: &Version) -> Version {
    let mut bytes = version.bytes.to_vec();
    bytes[HEAD as usize..].iter_mut().for_each(|b| *b ^= 1);
    Version { bytes: bytes.into(), ..version.clone() }
}

fn digest(version: &Version) -> thalweg_part::Digest {
    format!("blake3:{}", blake3::hash(&version.bytes)).parse().unwrap()
}

/// A server, a relay that alters what passes, and a download over both with sampling.
async fn scene(version: &Version) -> (Server, Server, Directed) {
    let server = Server::honest(version).await;
    let liar = Server::honest(&altered(version)).await;
    let relay = Directed::start(liar.address, End::Never).await;
    (server, liar, relay)
}

#[tokio::test]
async fn a_relay_that_alters_bytes_is_named_and_the_file_is_repaired() {
    let version = Version::new(1, LENGTH);
    let (server, liar, relay) = scene(&version).await;
    // The server sends no more than the head until the relay has delivered some of its share.
    let (brought, wait) = watch::channel(false);
    server.respoil(move |ask, reply| {
        if !ask.is_probe() {
            reply.after = Some(wait.clone());
        }
    });
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.digests = vec![digest(&version)];
    let name = relay.address.to_string();
    let more = |e: &Event| match e {
        Event::Progress { done_bytes, .. } => *done_bytes > HEAD,
        Event::PathSampled { path, .. } => *path == name,
        _ => false,
    };
    let watcher = async {
        until(|| trial.told().iter().any(more)).await;
        brought.send_replace(true);
    };
    let (outcome, ()) = tokio::join!(trial.gets(&version), watcher);
    assert!(!liar.segments().is_empty(), "the relay was not asked: {:#?}", trial.told());
    assert_eq!(outcome.corrupt.len(), 1, "{:#?}", trial.told());
    assert_eq!(outcome.corrupt[0].0, name);
    let told =
        |e: &Event| matches!(e, Event::Corrupt { path, bytes } if *path == name && *bytes > 0);
    assert!(trial.told().iter().any(told));
    let twice = outcome.fetched.as_bytes() - LENGTH as u64;
    assert!(twice <= LENGTH as u64, "each byte again at most once: {twice}");
}

#[tokio::test]
async fn a_digest_that_never_matches_is_an_error_that_says_what_was_tried() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.digests = vec![digest(&Version::new(2, 9))];
    let message = trial.fails().await;
    assert!(message.contains("does not match the expected hash"), "{message}");
    assert!(trial.files().is_empty());
    let mut trial = Trial::new(&server, &[relay.address]).only(relay.address);
    trial.request.digests = vec![digest(&Version::new(2, 9))];
    let message = trial.fails().await;
    assert!(message.contains("does not match the expected hash"), "{message}");
    assert!(trial.files().is_empty(), "{:?}", trial.files());
}

#[tokio::test]
async fn a_digest_stated_by_the_server_is_checked() {
    let version = Version::new(1, LENGTH);
    // The SHA-256 of other bytes.
    let other = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    let server = Server::start(&version, move |_, reply| reply.set("repr-digest", other)).await;
    let trial = Trial::new(&server, &[]);
    let message = trial.fails().await;
    assert!(message.contains("sha256:e3b0c442"), "{message}");
    assert!(trial.files().is_empty());
}
