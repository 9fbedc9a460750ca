//! What the downloads of one call have learned about each server, so that a list of a thousand files does not repeat
//! the same failure a thousand times.

use hyper::StatusCode;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// The most origins that are remembered; a list rarely has more than one.
const MAX_ORIGINS: usize = 1024;

/// After this many files in a row whose ranges failed while a plain `GET` succeeded, ranges are no longer requested.
/// A single failure may have been temporary.
const STUMBLES: u32 = 2;

/// How one server behaves. Shared by the downloads that run at the same time.
#[derive(Debug, Default)]
pub(super) struct ServerTraits {
    /// Files in a row whose ranges could not be used.
    stumbles: AtomicU32,
    /// Files whose validators changed or whose conditions failed although the length stayed the same.
    unsteady: AtomicU32,
    /// Whether the server refuses `Accept-Encoding: identity`.
    refuses_identity: AtomicBool,
    /// Whether the server refused a request while another one was open.
    is_asked_in_turn: AtomicBool,
    /// Whether a plain `GET` has confirmed the length in an answer that was shorter than the requested range.
    has_honest_totals: AtomicBool,
    /// Error statuses that a plain `GET` got too, so ranges are not their cause.
    honest: Mutex<BTreeSet<StatusCode>>,
    /// Error statuses of range requests for which a plain `GET` succeeded.
    for_ranges: Mutex<BTreeSet<StatusCode>>,
}

impl ServerTraits {
    /// Whether to request whole files from the start.
    pub(super) fn is_asked_plainly(&self) -> bool {
        self.stumbles.load(Ordering::Relaxed) >= STUMBLES
    }

    /// Records that a segment was received as requested.
    pub(super) fn ranges_hold(&self) {
        self.stumbles.store(0, Ordering::Relaxed);
    }

    /// Records that a plain `GET` delivered what ranges did not.
    pub(super) fn ranges_failed(&self) {
        self.stumbles.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the versions in its answers prove nothing.
    pub(super) fn has_unsteady_versions(&self) -> bool {
        self.unsteady.load(Ordering::Relaxed) > 0
    }

    /// Whether to stop requesting ranges of files without a digest.
    pub(super) fn is_never_steady(&self) -> bool {
        self.unsteady.load(Ordering::Relaxed) >= STUMBLES
    }

    /// Records that one file was given two versions.
    pub(super) fn versions_failed(&self) {
        self.unsteady.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to believe a length that is shorter than the requested range.
    pub(super) fn has_honest_totals(&self) -> bool {
        self.has_honest_totals.load(Ordering::Relaxed)
    }

    /// Records that a plain `GET` confirmed such a length.
    pub(super) fn total_was_honest(&self) {
        self.has_honest_totals.store(true, Ordering::Relaxed);
    }

    /// Whether to leave out `Accept-Encoding`.
    pub(super) fn refuses_identity(&self) -> bool {
        self.refuses_identity.load(Ordering::Relaxed)
    }

    /// Records that a request without `Accept-Encoding` succeeded where requests with it failed.
    pub(super) fn identity_refused(&self) {
        self.refuses_identity.store(true, Ordering::Relaxed);
    }

    /// Whether to send no request before the previous answer has been read.
    pub(super) fn is_asked_in_turn(&self) -> bool {
        self.is_asked_in_turn.load(Ordering::Relaxed)
    }

    /// Records that a request during another answer got no part of the file: the server may allow one connection at a
    /// time.
    pub(super) fn was_refused_beside(&self) {
        self.is_asked_in_turn.store(true, Ordering::Relaxed);
    }

    /// Whether ranges are not the cause of this status.
    pub(super) fn is_honest(&self, status: StatusCode) -> bool {
        let has = |set: &Mutex<BTreeSet<StatusCode>>| set.lock().contains(&status);
        has(&self.honest) && !has(&self.for_ranges)
    }

    /// Records that a plain `GET` succeeded where a range request got this status.
    pub(super) fn status_was_for_ranges(&self, status: StatusCode) {
        self.for_ranges.lock().insert(status);
    }

    /// Records that a plain `GET` got this status too. There are about a hundred statuses, so the set is bounded.
    pub(super) fn status_was_honest(&self, status: StatusCode) {
        self.honest.lock().insert(status);
    }
}

/// The servers of a call, by origin.
#[derive(Debug, Default)]
pub(super) struct Servers(BTreeMap<String, Arc<ServerTraits>>);

impl Servers {
    /// The record of the server of `origin`.
    pub(super) fn traits_of(&mut self, origin: &str) -> Arc<ServerTraits> {
        if self.0.len() >= MAX_ORIGINS && !self.0.contains_key(origin) {
            return Arc::default();
        }
        Arc::clone(self.0.entry(origin.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_given_up_after_two_failures_in_a_row() {
        let mut servers = Servers::default();
        let a = servers.traits_of("http://a:80");
        a.ranges_failed();
        assert!(!a.is_asked_plainly());
        a.ranges_hold();
        a.ranges_failed();
        assert!(!a.is_asked_plainly(), "not in a row");
        a.ranges_failed();
        assert!(servers.traits_of("http://a:80").is_asked_plainly());
        assert!(!servers.traits_of("http://b:80").is_asked_plainly());
    }

    #[test]
    fn the_number_of_origins_is_bounded() {
        let mut servers = Servers::default();
        (0..2 * MAX_ORIGINS)
            .for_each(|i| servers.traits_of(&format!("http://h{i}:80")).versions_failed());
        assert_eq!(servers.0.len(), MAX_ORIGINS);
        let first = servers.traits_of("http://h0:80");
        assert!(first.has_unsteady_versions() && !first.is_never_steady());
        first.versions_failed();
        assert!(first.is_never_steady());
        assert!(!servers.traits_of("http://h2000:80").has_unsteady_versions());
    }
}
