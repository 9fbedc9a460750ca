//! Tests of downloads over TLS, on loopback, from servers with certificates of a test authority.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod authority;
#[path = "../get/download.rs"]
mod download;
mod exact_certificates;
mod names;
mod redirects;
mod relay;
mod relays;
mod server;
mod versions;

use authority::Authority;
use bytes::Bytes;
use download::{Events, detour, direct, request};
use std::net::SocketAddr;
use tempfile::TempDir;
use thalweg_base::job::Event;
use thalweg_get::{GetFailed, HttpSettings, HttpVersion, Outcome, Request, Stop, get};
use thalweg_net::{TlsClient, TlsOptions};

/// Text that a relay must not see, repeated so that every share contains it.
const SECRET: &str = "the quick brown fox jumps over the lazy dog; ";

/// A file that is small enough to be fetched quickly and large enough for several shares.
fn file() -> Bytes {
    SECRET.repeat(40_000).into()
}

/// A download into a directory of its own.
struct Trial {
    dir: TempDir,
    request: Request,
    events: Events,
}

impl Trial {
    /// A download of `url` over the direct path, trusting `authority`.
    fn of(url: &str, authority: &Authority, version: HttpVersion) -> Self {
        let options = TlsOptions { extra_roots: vec![authority.file()] };
        let tls = TlsClient::new(&options, version.protocols()).unwrap();
        let dir = TempDir::new().unwrap();
        let web = HttpSettings { tls: Some(tls), version, ..HttpSettings::default() };
        let request = request(url, dir.path().join("file.bin"), vec![direct()], web);
        Self { dir, request, events: Events::default() }
    }

    /// Adds a path through this relay.
    fn through(mut self, relay: SocketAddr) -> Self {
        self.request.paths.push(detour(relay));
        self
    }

    /// Uses only a path through this relay.
    fn only(mut self, relay: SocketAddr) -> Self {
        self.request.paths.clear();
        self.through(relay)
    }

    async fn run(&self) -> Result<Outcome, GetFailed> {
        let (_wish, stop) = Stop::new();
        get(self.request.clone(), &self.events, stop).await
    }

    /// Runs the download. The file must be `bytes`.
    async fn gets(&self, bytes: &Bytes) -> Outcome {
        let outcome = self.run().await.unwrap_or_else(|e| panic!("{e}\n{:#?}", self.told()));
        let got = std::fs::read(self.dir.path().join("file.bin")).unwrap();
        assert!(got == *bytes, "wrong bytes");
        outcome
    }

    /// Runs the download, which must fail and leave no file under the final name. Returns the message.
    async fn fails(&self) -> String {
        let failed = self.run().await.expect_err("it should fail");
        assert!(!self.dir.path().join("file.bin").exists());
        failed.to_string()
    }

    fn told(&self) -> Vec<Event> {
        self.events.0.lock().unwrap().clone()
    }

    /// Why `path` was dropped, if it was.
    fn why_dropped(&self, path: &str) -> Option<String> {
        self.told().into_iter().find_map(|e| match e {
            Event::PathFailed { path: p, why } if p == path => Some(why),
            _ => None,
        })
    }
}
