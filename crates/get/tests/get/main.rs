//! Tests of downloads over real sockets on loopback, from correct and faulty servers.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod alterations;
mod detours;
mod download;
mod faults;
mod file_names;
mod logins;
mod mirrors;
mod oddities;
mod relay;
mod server;
mod sessions;
mod several;
mod versions;
mod waits;
mod whole_files;

use download::{Events, detour, direct, request};
use server::{Server, Version};
use std::{net::SocketAddr, path::PathBuf};
use tempfile::TempDir;
use thalweg_base::job::Event;
use thalweg_get::{GetFailed, HttpSettings, Outcome, Request, Stop, get};

/// Large enough for several pieces per share, small enough to be quick.
const LENGTH: usize = 2_000_000;

/// Waits without a time limit until another task has reached a state.
async fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        tokio::task::yield_now().await;
    }
}

/// A download into a directory of its own.
struct Trial {
    dir: TempDir,
    request: Request,
    events: Events,
}

impl Trial {
    /// A download over the direct path and these relays, with sampling however small the file is.
    fn new(server: &Server, relays: &[SocketAddr]) -> Self {
        Self::of(&server.url(), relays)
    }

    fn of(url: &str, relays: &[SocketAddr]) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file.bin");
        let paths = std::iter::once(direct()).chain(relays.iter().copied().map(detour)).collect();
        let request = request(url, file, paths, HttpSettings::default());
        Self { dir, request, events: Events::default() }
    }

    /// Removes all paths except this relay.
    fn only(mut self, relay: SocketAddr) -> Self {
        self.request.paths.retain(|p| p.name == relay.to_string());
        self
    }

    /// Adds an unreachable relay to the paths: with several paths the first request asks only for the first bytes, and
    /// segments follow. Disables sampling.
    fn in_segments(mut self) -> Self {
        self.request.paths.push(detour(([127, 0, 0, 1], 0).into()));
        self.request.selection.small = u64::MAX;
        self
    }

    async fn run(&self) -> Result<Outcome, GetFailed> {
        let (_wish, stop) = Stop::new();
        get(self.request.clone(), &self.events, stop).await
    }

    /// Runs the download. The file must be `version`, and no other file may be in the directory.
    async fn gets(&self, version: &Version) -> Outcome {
        let outcome = self.run().await.unwrap_or_else(|e| panic!("{e}\n{:#?}", self.told()));
        assert!(std::fs::read(self.target()).unwrap() == version.bytes, "wrong bytes");
        assert_eq!(self.files(), ["file.bin"]);
        outcome
    }

    /// Runs the download, which must fail and leave no file under the final name. Returns the message.
    async fn fails(&self) -> String {
        let failed = self.run().await.expect_err("it should fail");
        assert!(!self.target().exists());
        failed.to_string()
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("file.bin")
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn told(&self) -> Vec<Event> {
        let progress = |e: &Event| matches!(e, Event::Progress { .. });
        self.events.0.lock().unwrap().iter().filter(|e| !progress(e)).cloned().collect()
    }

    /// The number of progress events.
    fn progress(&self) -> usize {
        let progress = |e: &&Event| matches!(e, Event::Progress { .. });
        self.events.0.lock().unwrap().iter().filter(progress).count()
    }

    /// The bytes received so far, according to the last progress event.
    fn arrived(&self) -> u64 {
        let done = |e: &Event| match e {
            Event::Progress { done_bytes, .. } => Some(*done_bytes),
            _ => None,
        };
        self.events.0.lock().unwrap().iter().rev().find_map(done).unwrap_or(0)
    }

    /// The paths chosen, in order.
    fn chosen(&self) -> Vec<String> {
        let path = |e| match e {
            Event::Chosen { path, .. } => Some(path),
            _ => None,
        };
        self.told().into_iter().filter_map(path).collect()
    }

    /// Why `path` was dropped, if it was.
    fn why_dropped(&self, path: &str) -> Option<String> {
        self.told().into_iter().find_map(|e| match e {
            Event::PathFailed { path: p, why } if p == path => Some(why),
            _ => None,
        })
    }

    fn restarts(&self) -> usize {
        self.told().iter().filter(|e| matches!(e, Event::Restarted { .. })).count()
    }
}
