//! Relays that alter bytes, and digests that find them out.

use crate::{
    LENGTH, Trial,
    relay::{Directed, End},
    server::{Server, Step, Version},
};
use thalweg_node::job::Event;

/// `version` with every byte behind the first 300,000 another.
fn altered(version: &Version) -> Version {
    let mut bytes = version.bytes.to_vec();
    bytes[300_000..].iter_mut().for_each(|b| *b ^= 1);
    Version { bytes: bytes.into(), ..version.clone() }
}

fn digest(version: &Version) -> thalweg_node::part::Digest {
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
async fn a_relay_that_alters_bytes_is_named_and_the_file_mended() {
    let version = Version::new(1, LENGTH);
    let (server, liar, relay) = scene(&version).await;
    // The direct path breaks once, so that the relay has its turn.
    server.respoil(|ask, reply| {
        if !ask.is_probe() && ask.segments == 0 {
            reply.after_bytes(0, Step::Cut);
        }
    });
    let mut trial = Trial::new(&server, &[relay.address]);
    trial.request.digests = vec![digest(&version)];
    let outcome = trial.gets(&version).await;
    let brought: u64 = liar.segments().iter().map(|r| r.end - r.start).sum();
    let name = relay.address.to_string();
    if brought == 0 {
        panic!("the relay was not asked: {:#?}", trial.told());
    }
    assert_eq!(outcome.corrupt.len(), 1, "{:#?}", trial.told());
    assert_eq!(outcome.corrupt[0].0, name);
    let told =
        |e: &Event| matches!(e, Event::Corrupt { path, bytes } if *path == name && *bytes > 0);
    assert!(trial.told().iter().any(told));
    let twice = outcome.fetched.as_bytes() - LENGTH as u64;
    assert!(twice <= LENGTH as u64, "each byte again at most once: {twice}");
}

#[tokio::test]
async fn a_digest_that_fits_nothing_is_an_error_that_says_what_was_tried() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let relay = Directed::start(server.address, End::Never).await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.digests = vec![digest(&Version::new(2, 9))];
    let message = trial.fails().await;
    assert!(message.contains("was asked for"), "{message}");
    assert!(trial.files().is_empty());
    let mut trial = Trial::new(&server, &[relay.address]).only(relay.address);
    trial.request.digests = vec![digest(&Version::new(2, 9))];
    let message = trial.fails().await;
    assert!(message.contains("was asked for"), "{message}");
    assert!(trial.files().is_empty(), "{:?}", trial.files());
}

#[tokio::test]
async fn a_digest_of_the_server_itself_is_believed() {
    let version = Version::new(1, LENGTH);
    // The SHA-256 of something else.
    let other = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    let server = Server::start(&version, move |_, reply| reply.set("repr-digest", other)).await;
    let trial = Trial::new(&server, &[]);
    let message = trial.fails().await;
    assert!(message.contains("sha256:e3b0c442"), "{message}");
    assert!(trial.files().is_empty());
}
