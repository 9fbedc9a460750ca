//! Idle connections that one download leaves for the next ones of the same call.

use super::{HttpVersion, http::Connection};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};
use thalweg_net::{Destination, Route};
use thalweg_paths::url::HttpUrl;

/// The most idle connections of one route and origin: about as many as there are concurrent downloads. Only a past
/// burst would have opened more.
const PER_KEY: usize = 32;

/// The most idle connections in all. Each holds a descriptor, of which a process has 1024 by default.
const IN_ALL: usize = 128;

/// The longest idle time. Servers close idle connections after 5 s (Apache) to 75 s (nginx); a request on a connection
/// that is being closed is repeated on a new one.
const IDLE: Duration = Duration::from_secs(30);

/// Idle connections by route and origin, at most 32 each.
///
/// This is not a transparent pool: the caller names the route, and gets a connection of that route or none.
#[derive(Default)]
pub struct IdleConnections(Mutex<Shelf<Connection>>);

impl IdleConnections {
    /// Takes an open idle connection over `route` to the origin of `url`, if there is one.
    pub(super) fn take(
        &self,
        route: &Route,
        url: &HttpUrl,
        version: HttpVersion,
    ) -> Option<Connection> {
        let key = Key::new(route, url, version);
        self.0.lock().take(&key, |c| c.is_open() && c.serves(url), Instant::now())
    }

    /// Leaves `connection` for other downloads. Its last answer must have been read to the end: remaining bytes would
    /// be taken for the next answer.
    pub(super) fn give(
        &self,
        route: &Route,
        url: &HttpUrl,
        version: HttpVersion,
        connection: Connection,
    ) {
        if connection.is_open() {
            self.0.lock().give(Key::new(route, url, version), connection, Instant::now());
        }
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").field("idle", &self.0.lock().idle.len()).finish()
    }
}

/// Two connections with the same key are interchangeable.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    route: Route,
    secure: bool,
    server: Destination,
    version: HttpVersion,
}

impl Key {
    fn new(route: &Route, url: &HttpUrl, version: HttpVersion) -> Self {
        // `http://h:443` and `https://h` are two origins (RFC 9110 §4.3.1).
        let (secure, server) = (url.is_https(), url.destination().clone());
        Self { route: route.clone(), secure, server, version }
    }
}

/// Idle items, the oldest first.
struct Shelf<T> {
    idle: VecDeque<(Key, T, Instant)>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { idle: VecDeque::new() }
    }
}

impl<T> Shelf<T> {
    /// Takes the newest item, which is the most likely to be open still.
    fn take(&mut self, key: &Key, usable: impl Fn(&T) -> bool, now: Instant) -> Option<T> {
        self.drop_old(now);
        loop {
            let i = self.idle.iter().rposition(|(k, ..)| k == key)?;
            let (_, item, _) = self.idle.remove(i)?;
            if usable(&item) {
                return Some(item);
            }
        }
    }

    fn give(&mut self, key: Key, item: T, now: Instant) {
        self.drop_old(now);
        let of_key = || self.idle.iter().enumerate().filter(|(_, (k, ..))| *k == key);
        if of_key().count() >= PER_KEY {
            let oldest = of_key().next().map(|(i, _)| i);
            oldest.and_then(|i| self.idle.remove(i));
        } else if self.idle.len() >= IN_ALL {
            self.idle.pop_front();
        }
        self.idle.push_back((key, item, now));
    }

    fn drop_old(&mut self, now: Instant) {
        let old = |(_, _, since): &&(Key, T, Instant)| now.saturating_duration_since(*since) > IDLE;
        let n = self.idle.iter().take_while(old).count();
        self.idle.drain(..n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> Key {
        let url = HttpUrl::parse(&format!("http://www.example:{port}/a")).unwrap();
        Key::new(&Route::direct(), &url, HttpVersion::Http1)
    }

    #[test]
    fn only_a_connection_of_the_same_route_origin_and_version_is_taken() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        shelf.give(key(1), 'a', now);
        let detour = Route::through(["192.0.2.1:1080".parse().unwrap()]).unwrap();
        assert_eq!(shelf.take(&key(2), |_| true, now), None);
        assert_eq!(shelf.take(&Key { route: detour, ..key(1) }, |_| true, now), None);
        assert_eq!(shelf.take(&Key { secure: true, ..key(1) }, |_| true, now), None);
        let newer = Key { version: HttpVersion::Http2, ..key(1) };
        assert_eq!(shelf.take(&newer, |_| true, now), None);
        assert_eq!(shelf.take(&key(1), |_| true, now), Some('a'));
        assert_eq!(shelf.take(&key(1), |_| true, now), None, "it is out");
    }

    #[test]
    fn closed_and_old_connections_are_dropped() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        shelf.give(key(1), 'a', now);
        shelf.give(key(1), 'b', now);
        assert_eq!(shelf.take(&key(1), |c| *c == 'a', now), Some('a'), "b is closed");
        assert!(shelf.idle.is_empty());
        shelf.give(key(1), 'c', now);
        let later = now + IDLE + Duration::from_millis(1);
        shelf.give(key(2), 'd', later);
        assert_eq!(shelf.take(&key(1), |_| true, later), None);
        assert_eq!(shelf.take(&key(2), |_| true, later), Some('d'));
    }

    #[test]
    fn idle_connections_are_bounded_per_key_and_in_all() {
        let (mut shelf, now) = (Shelf::default(), Instant::now());
        (0..PER_KEY + 3).for_each(|i| shelf.give(key(1), i, now));
        assert_eq!(shelf.idle.len(), PER_KEY);
        assert_eq!(shelf.idle.front().map(|(_, i, _)| *i), Some(3), "the oldest went");
        (0..2 * IN_ALL).for_each(|i| shelf.give(key(i as u16 + 2), i, now));
        assert_eq!(shelf.idle.len(), IN_ALL);
    }
}
