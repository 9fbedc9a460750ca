//! Connections that yield to others: a receive window, or a pace of sending, that shrinks as queues on the path grow.
//!
//! What decides how fast data arrives is the sender's congestion control, and a foreign server's cannot be chosen. But
//! no sender exceeds the receive window. So, as rLEDBAT (RFC 9840) does, the receiver computes the window that a LEDBAT
//! sender (RFC 6817) would have, from the delay that it measures itself, and announces no larger one. For data that this
//! host sends, the same window limits the pace. [`YieldingWindow`] is the algorithm, which is pure; [`follow`] applies it
//! to a socket, by options that every user may set.

use crate::{TcpInfo, sys};
use std::{
    collections::VecDeque,
    os::fd::AsFd as _,
    sync::Weak,
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, time::sleep};

/// The delay by queues that the window aims at.
///
/// RFC 6817 allows up to 100 ms. BBR, which many senders use, keeps at most one round trip of data in queues; a larger
/// target than this never sees it, so that the window would not yield on a path of 40 ms (experiment `background`).
const TARGET: Duration = Duration::from_millis(25);

/// The shortest and the longest time between two changes of the window.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The first window, segments: that of other senders (RFC 6928).
const FIRST_SEGMENTS: f64 = 10.0;

/// The smallest window, segments, so that a connection never stops (RFC 6817 §2.4.2).
const LEAST_SEGMENTS: f64 = 2.0;

/// The most by which the window grows in a round trip without queues: these segments, or this part of it. More than RFC
/// 6817 allows, because the senders that share paths today (CUBIC, BBR) recover faster than its standard of comparison.
const GROWTH: (f64, f64) = (4.0, 1.0 / 32.0);

/// The part of the window that is given up in a round trip if the delay is twice the target or more (LEDBAT++).
const YIELD: f64 = 0.5;

/// The base delay is the least of the last so many minutes, so that it follows a changed route (RFC 6817 §3.4.2).
const BASE_MINUTES: usize = 10;

/// One reading of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// All bytes that have moved in the direction that yields.
    pub moved: u64,
    /// The present round-trip time in that direction, with its queues.
    pub round_trip: Duration,
    /// The least round-trip time that the kernel has seen; [`Duration::MAX`]: none yet.
    pub least_round_trip: Duration,
    /// The bytes of a segment.
    pub segment: u32,
}

/// The window of a connection that yields: how many bytes may be under way.
#[derive(Clone, Debug)]
pub struct YieldingWindow {
    bytes: f64,
    /// It doubles each round trip until queues are seen.
    is_starting: bool,
    moved: u64,
    /// The least round-trip times of the last minutes, the newest last.
    bases: VecDeque<Duration>,
    minute_since: Instant,
}

impl YieldingWindow {
    /// The window of a new connection.
    pub fn new(now: Instant) -> Self {
        let bases = VecDeque::from([Duration::MAX]);
        Self { bytes: 0.0, is_starting: true, moved: 0, bases, minute_since: now }
    }

    /// The window after this reading, bytes. Readings come about one round trip after each other.
    pub fn update(&mut self, reading: Reading, now: Instant) -> u32 {
        let segment = f64::from(reading.segment.max(1));
        if self.bytes == 0.0 {
            self.bytes = FIRST_SEGMENTS * segment;
        }
        let moved = reading.moved.saturating_sub(self.moved) as f64;
        self.moved = reading.moved;
        let queues = reading.round_trip.saturating_sub(self.base(reading, now));
        // Without data there is no new round trip either.
        if moved > 0.0 {
            self.adapt(moved, queues.as_secs_f64() / TARGET.as_secs_f64(), segment);
        }
        self.bytes as u32
    }

    /// `load`: the delay by queues, as a part of the target.
    fn adapt(&mut self, moved: f64, load: f64, segment: f64) {
        self.is_starting &= load < 0.75;
        // What the connection does not use does not grow.
        let used = 2.0 * moved + FIRST_SEGMENTS * segment;
        let next = match (self.is_starting, 1.0 - load) {
            (true, _) => self.bytes * 2.0,
            (false, room @ 0.0..) => {
                self.bytes + room * (GROWTH.0 * segment).max(GROWTH.1 * self.bytes)
            }
            (false, room) => self.bytes * (1.0 + YIELD * room.max(-1.0)),
        };
        let next = if next > self.bytes { next.min(used.max(self.bytes)) } else { next };
        self.bytes = next.clamp(LEAST_SEGMENTS * segment, f64::from(u32::MAX / 2));
    }

    /// The round-trip time without queues, as far as it was seen.
    fn base(&mut self, reading: Reading, now: Instant) -> Duration {
        const MINUTE: Duration = Duration::from_secs(60);
        if now.saturating_duration_since(self.minute_since) >= MINUTE {
            self.minute_since = now;
            self.bases.push_back(Duration::MAX);
            if self.bases.len() > BASE_MINUTES {
                self.bases.pop_front();
            }
        }
        let seen = reading.round_trip.min(reading.least_round_trip);
        if let Some(last) = self.bases.back_mut() {
            *last = seen.min(*last);
        }
        self.bases.iter().copied().min().unwrap_or(seen)
    }
}

/// Makes a connection yield in both directions until it is dropped.
pub(crate) async fn follow(tcp: Weak<TcpStream>) {
    let now = Instant::now();
    let (mut receiving, mut sending) = (YieldingWindow::new(now), YieldingWindow::new(now));
    while let Some(tcp) = tcp.upgrade() {
        let Ok(info) = TcpInfo::of(&*tcp) else { return };
        limit(&tcp, &info, &mut receiving, &mut sending);
        drop(tcp);
        let round_trip = info.receiver_rtt.max(info.rtt);
        sleep(round_trip.clamp(INTERVAL.0, INTERVAL.1)).await;
    }
}

/// Announces the receive window, and sets the pace of sending, that follow from this reading.
fn limit(
    tcp: &TcpStream,
    info: &TcpInfo,
    receiving: &mut YieldingWindow,
    sending: &mut YieldingWindow,
) {
    let now = Instant::now();
    let reading = |moved, round_trip| Reading {
        moved,
        round_trip,
        least_round_trip: info.min_rtt,
        segment: info.mss,
    };
    // Before the first data, the receiver's estimate is zero. A kernel that refuses leaves the connection as others are.
    if info.receiver_rtt > Duration::ZERO {
        let window = receiving.update(reading(info.received, info.receiver_rtt), now);
        _ = sys::limit_receive_window(tcp.as_fd(), window);
    }
    if info.acknowledged > 0 && info.rtt > Duration::ZERO {
        let window = sending.update(reading(info.acknowledged, info.rtt), now);
        let pace = f64::from(window) / info.rtt.as_secs_f64();
        _ = sys::limit_pace(tcp.as_fd(), pace as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    const SEGMENT: u32 = 1448;
    const BASE: Duration = Duration::from_millis(40);

    /// A bottleneck with a queue. Pure.
    struct Bottleneck {
        /// Bytes in a round trip without queues.
        capacity: f64,
        window: YieldingWindow,
        bytes: u32,
        moved: f64,
        now: Instant,
    }

    impl Bottleneck {
        fn new(capacity: f64) -> Self {
            let now = Instant::now();
            let bytes = 10 * SEGMENT;
            Self { capacity, window: YieldingWindow::new(now), bytes, moved: 0.0, now }
        }

        /// One round trip beside a rival that has this many bytes under way. Returns the delay by queues.
        fn round_trip(&mut self, rival: f64) -> Duration {
            let under_way = f64::from(self.bytes) + rival;
            let stretch = (under_way / self.capacity).max(1.0);
            let round_trip = BASE.mul_f64(stretch);
            self.moved += f64::from(self.bytes);
            self.now += round_trip;
            let reading = Reading {
                moved: self.moved as u64,
                round_trip,
                // As the handshake saw it: the first window may be more than the path holds.
                least_round_trip: BASE,
                segment: SEGMENT,
            };
            self.bytes = self.window.update(reading, self.now);
            round_trip - BASE
        }

        fn share(&self) -> f64 {
            f64::from(self.bytes) / self.capacity
        }
    }

    #[test]
    fn alone_it_fills_the_path_with_the_target_in_queues() {
        for megabits in [2.0, 20.0, 200.0] {
            let mut path = Bottleneck::new(megabits * 1e6 / 8.0 * BASE.as_secs_f64());
            (0..300).for_each(|_| _ = path.round_trip(0.0));
            for _ in 0..100 {
                let queues = path.round_trip(0.0);
                assert!(path.share() >= 1.0, "{megabits} Mbit/s: {}", path.share());
                assert!(queues < TARGET.mul_f64(1.3), "{megabits} Mbit/s: {queues:?}");
            }
        }
    }

    #[test]
    fn beside_a_rival_that_fills_queues_it_shrinks_to_the_least_and_comes_back() {
        let mut path = Bottleneck::new(100_000.0);
        (0..200).for_each(|_| _ = path.round_trip(0.0));
        (0..50).for_each(|_| _ = path.round_trip(250_000.0));
        assert_eq!(path.bytes, 2 * SEGMENT);
        (0..60).for_each(|_| _ = path.round_trip(0.0));
        assert!(path.share() >= 1.0, "{}", path.share());
    }

    #[test]
    fn a_longer_route_is_accepted_after_ten_minutes() {
        let mut window = YieldingWindow::new(Instant::now());
        let mut now = Instant::now();
        let mut moved = 0;
        let mut run = |milliseconds: u64, seconds: u64| {
            let mut bytes = 0;
            for _ in 0..seconds * 10 {
                now += Duration::from_millis(100);
                moved += 1_000_000;
                let round_trip = Duration::from_millis(milliseconds);
                let least_round_trip = Duration::MAX;
                let reading = Reading { moved, round_trip, least_round_trip, segment: SEGMENT };
                bytes = window.update(reading, now);
            }
            bytes
        };
        assert!(run(40, 60) > 1_000_000);
        assert_eq!(run(100, 480), 2 * SEGMENT, "it may be a queue");
        assert!(run(100, 180) > 100_000);
    }

    #[test]
    fn a_connection_that_is_not_used_keeps_its_window_and_one_used_little_does_not_grow() {
        let now = Instant::now();
        let mut window = YieldingWindow::new(now);
        let reading =
            |moved| Reading { moved, round_trip: BASE, least_round_trip: BASE, segment: SEGMENT };
        let first = window.update(reading(0), now);
        assert_eq!(first, 10 * SEGMENT);
        (0..100).for_each(|_| assert_eq!(window.update(reading(0), now), first));
        let slow = (1..100).map(|n| window.update(reading(n * 1000), now)).max().unwrap();
        assert!(slow <= 2000 + 10 * SEGMENT, "{slow}");
    }

    #[tokio::test]
    async fn a_real_connection_moves_its_bytes_and_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut near = Arc::new(near);
        let following = tokio::spawn(follow(Arc::downgrade(&near)));
        let bytes = vec![7; 3_000_000];
        for _ in 0..3 {
            let (sent, mut got) = (bytes.clone(), vec![0; bytes.len()]);
            let answer = tokio::spawn(async move {
                far.write_all(&sent).await.unwrap();
                far.read_exact(&mut [0; 5]).await.unwrap();
                far
            });
            let mut read = 0;
            while read < got.len() {
                near.readable().await.unwrap();
                match near.try_read(&mut got[read..]) {
                    Ok(n) => read += n,
                    Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            assert_eq!(got, bytes);
            near.writable().await.unwrap();
            assert_eq!(near.try_write(b"thank").unwrap(), 5);
            far = answer.await.unwrap();
        }
        assert!(TcpInfo::of(&*near).unwrap().received == 9_000_000);
        // The follower holds it for a moment at most.
        while let Err(shared) = Arc::try_unwrap(near) {
            near = shared;
            tokio::task::yield_now().await;
        }
        following.await.unwrap();
    }
}
