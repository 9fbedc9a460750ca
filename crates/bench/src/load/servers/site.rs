//! The history of one download from the scripted server.

use super::{answer::DownloadHistory, request::Request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most signed locations that are remembered as used; a download that requests more of them is refused.
const SPENT_MAX: usize = 1024;

/// The counts of a download, `KIND/DOWNLOAD` in its URLs.
#[derive(Debug, Default)]
pub struct Site {
    requests: u64,
    ranged: u64,
    under_way: u32,
    most_under_way: u32,
    /// For each connection, by the server's number, how many connections of the download were before it.
    connections: BTreeMap<u64, u64>,
    connected: u32,
    bytes: u64,
    broken: bool,
    spent: BTreeSet<String>,
}

impl Site {
    /// Counts a request on `connection` and returns the history before it.
    pub fn begin(&mut self, request: &Request, connection: u64) -> DownloadHistory {
        let known = self.connections.len() as u64;
        let before_it = *self.connections.entry(connection).or_insert_with(|| {
            self.connected += 1;
            known
        });
        let spent = self.spent.contains(&request.target) || self.spent.len() >= SPENT_MAX;
        let before = DownloadHistory {
            requests: self.requests,
            ranged: self.ranged,
            open: self.under_way,
            connections: before_it,
            broken: self.broken,
            spent,
        };
        if request.target.contains("/signed/") && !spent {
            self.spent.insert(request.target.clone());
        }
        self.requests += 1;
        self.ranged += u64::from(request.is_ranged());
        self.under_way += 1;
        self.most_under_way = self.most_under_way.max(self.under_way);
        before
    }

    /// Records the end of an answer, and whether its body was broken off.
    pub fn end(&mut self, broke: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        self.broken |= broke;
    }

    /// Records the end of a connection on which the client acknowledged this many bytes.
    pub fn disconnect(&mut self, acknowledged: u64) {
        self.connected = self.connected.saturating_sub(1);
        self.bytes += acknowledged;
    }

    /// The counts as JSON.
    pub fn counts(&self) -> Value {
        json!({
            "requests": self.requests, "ranged": self.ranged, "bytes": self.bytes,
            "connections": self.connections.len(), "at_once": self.most_under_way,
            "connected": self.connected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, range: bool) -> Request {
        let range = if range { "Range: bytes=0-1\r\n" } else { "" };
        Request::parse(format!("GET {target} HTTP/1.1\r\n{range}").as_bytes()).unwrap()
    }

    #[test]
    fn requests_and_connections_are_counted() {
        let mut site = Site::default();
        assert_eq!(site.begin(&request("/a", false), 7), DownloadHistory::default());
        let second = site.begin(&request("/a", true), 9);
        assert_eq!(
            second,
            DownloadHistory { requests: 1, open: 1, connections: 1, ..DownloadHistory::default() }
        );
        site.end(true);
        let third = site.begin(&request("/a", true), 7);
        assert!(third.broken && third.ranged == 1 && third.connections == 0 && third.open == 1);
        site.disconnect(10);
        assert_eq!(site.counts()["bytes"], 10);
        assert_eq!(site.counts()["connected"], 1);
        assert_eq!(site.counts()["at_once"], 2);
    }

    #[test]
    fn a_signed_location_answers_once() {
        let mut site = Site::default();
        assert!(!site.begin(&request("/k/0/signed/1", false), 0).spent);
        assert!(site.begin(&request("/k/0/signed/1", false), 0).spent);
        assert!(!site.begin(&request("/k/0/signed/2", false), 0).spent);
    }
}
