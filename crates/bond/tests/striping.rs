//! One stream over two links of a TCP model: which part of their combined rate it reaches.
//!
//! A link sends at its rate, with no more in flight than its rate and round trip require (and half as much queued). It
//! accepts a chunk while little waits unsent, as with TCP_NOTSENT_LOWAT. Nothing is lost.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_bond::{
    Chunk, Link, LinkId, Reorder, SendAllowance, Sender, SenderSettings, StripeMethod,
    StripeScheduler, Verdict, stripe::Load,
};
use thalweg_units::{Rate, Time};

const MOST: u64 = 16 << 20;
const FIRST: u64 = 256 << 10;
const STEP: f64 = 0.000_1;

/// The path of a connection.
struct ModelPath {
    id: LinkId,
    /// Bytes per second.
    rate: f64,
    one_way: f64,
    /// Chunks that are assigned but not fully sent, with the bytes left of each.
    unsent: VecDeque<(Chunk, u64)>,
    /// When sent bytes are acknowledged to TCP, and how many.
    flying: VecDeque<(f64, u64)>,
    /// When chunks arrive.
    arriving: VecDeque<(f64, Chunk)>,
    free_at: f64,
    rtt: f64,
    carried: u64,
}

impl ModelPath {
    fn new(id: u32, mbps: f64, rtt_ms: f64) -> Self {
        let (rate, rtt) = (mbps * 1e6 / 8.0, rtt_ms / 1e3);
        let (unsent, flying, arriving) = Default::default();
        let id = LinkId(id);
        Self {
            id,
            rate,
            one_way: rtt / 2.0,
            unsent,
            flying,
            arriving,
            free_at: 0.0,
            rtt,
            carried: 0,
        }
    }

    fn waiting(&self) -> u64 {
        self.unsent.iter().map(|(_, left)| left).sum()
    }

    fn seen(&self) -> Link {
        let lowest = (self.rate * 0.004).max(16384.0);
        Link {
            id: self.id,
            rate: Rate::from_bps((self.rate * 8.0) as u64),
            rtt: Duration::from_secs_f64(self.rtt),
            unsent: self.waiting(),
            writable: (self.waiting() as f64) < lowest,
            usable: true,
            may_duplicate: true,
        }
    }

    /// Sends as much as it may at this moment.
    fn send(&mut self, now: f64) {
        while self.flying.front().is_some_and(|(at, _)| *at <= now) {
            self.flying.pop_front();
        }
        let most = (self.rate * self.one_way * 2.0 * 1.5).max(30_000.0);
        while let Some((chunk, left)) = self.unsent.front_mut() {
            let under_way: u64 = self.flying.iter().map(|(_, bytes)| bytes).sum();
            if under_way as f64 >= most {
                return;
            }
            let bytes = 1448.min(*left);
            self.free_at = self.free_at.max(now) + bytes as f64 / self.rate;
            let arrives = self.free_at + self.one_way;
            self.flying.push_back((arrives + self.one_way, bytes));
            self.rtt += (arrives + self.one_way - now - self.rtt) / 8.0;
            self.carried += bytes;
            *left -= bytes;
            if *left == 0 {
                let chunk = *chunk;
                self.unsent.pop_front();
                self.arriving.push_back((arrives, chunk));
            }
        }
    }
}

/// Both ends of a stream.
struct Stream {
    paths: Vec<ModelPath>,
    sender: Sender,
    scheduler: StripeScheduler,
    waits: bool,
    room: SendAllowance,
    written: u64,
    /// The total number of bytes that the application writes.
    total: u64,
    reorder: Reorder,
    /// Bytes read since the window grew.
    read: u64,
    got: u64,
    /// Acknowledgements on their way back.
    acknowledgements: VecDeque<(f64, u64, Vec<Range<u64>>, u64)>,
}

impl Stream {
    fn new(paths: Vec<ModelPath>, total: u64) -> Self {
        Self {
            paths,
            sender: Sender::new(SenderSettings::default(), FIRST),
            scheduler: StripeScheduler::new(StripeMethod::EarliestCompletion),
            waits: false,
            room: SendAllowance::new(FIRST, MOST),
            written: 0,
            total,
            reorder: Reorder::new(FIRST),
            read: 0,
            got: 0,
            acknowledgements: VecDeque::new(),
        }
    }

    /// Runs until everything has arrived, or for `longest` seconds. Returns the time, seconds.
    fn run(&mut self, longest: f64) -> f64 {
        let mut step = 0u32;
        loop {
            let now = f64::from(step) * STEP;
            step += 1;
            self.receive(now);
            self.hear(now);
            self.write();
            self.give(now);
            self.paths.iter_mut().for_each(|path| path.send(now));
            if self.got >= self.total || now >= longest {
                return now;
            }
        }
    }

    fn receive(&mut self, now: f64) {
        let mut came = false;
        for path in &mut self.paths {
            while path.arriving.front().is_some_and(|(at, _)| *at <= now) {
                let (_, chunk) = path.arriving.pop_front().unwrap();
                let bytes = Bytes::from(vec![0; chunk.length as usize]);
                self.reorder.accept(chunk.offset, bytes).unwrap();
                came = true;
            }
        }
        if !came {
            return;
        }
        while let Some(bytes) = self.reorder.pop() {
            (self.got, self.read) = (self.got + bytes.len() as u64, self.read + bytes.len() as u64);
        }
        let capacity = self.reorder.capacity();
        if self.read * 2 >= capacity && capacity < MOST {
            self.reorder.widen(capacity * 2);
            self.read = 0;
        }
        let back = self.paths.iter().map(|path| path.one_way).fold(f64::INFINITY, f64::min);
        let acks = self.reorder.acks(64);
        self.acknowledgements.push_back((now + back, acks.arrived, acks.ranges, acks.limit));
    }

    fn hear(&mut self, now: f64) {
        while self.acknowledgements.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, arrived, ranges, limit) = self.acknowledgements.pop_front().unwrap();
            self.sender.acknowledge(arrived, &ranges).unwrap();
            self.sender.raise_limit(limit);
            self.room.record_drained(self.written - self.sender.arrived());
        }
    }

    fn write(&mut self) {
        while self.written < self.total {
            let waiting = self.written - self.sender.arrived();
            let left = self.room.remaining(waiting);
            if left == 0 {
                let more = self.room.growth(self.sender.backlog());
                if more == 0 {
                    return;
                }
                self.room.grow(more);
                continue;
            }
            let bytes = left.min(8192).min(self.total - self.written);
            self.written += bytes;
            self.sender.record_write(bytes);
        }
        self.room.finish();
    }

    fn give(&mut self, now: f64) {
        let at = Time::ZERO + Duration::from_secs_f64(now);
        loop {
            let links: Vec<Link> = self.paths.iter().map(ModelPath::seen).collect();
            let chunk = self.sender.next();
            let verdict = match chunk {
                Some(chunk) => {
                    let load = Load {
                        chunk: chunk.length.into(),
                        backlog: self
                            .room
                            .expected_bytes(self.sender.backlog(), self.sender.arrived()),
                        window: self.sender.window(),
                        waits: self.waits,
                    };
                    let verdict = self.scheduler.next(&links, load);
                    self.waits = verdict.waits(self.waits);
                    verdict
                }
                None => Verdict::Wait,
            };
            let given = match (verdict, chunk) {
                (Verdict::Send(id), Some(chunk)) => Some((id, chunk)),
                (_, None) => {
                    links.iter().find_map(|link| Some((link.id, self.sender.next_copy(link, at)?)))
                }
                _ => None,
            };
            let Some((id, chunk)) = given else { return };
            let link = links.iter().find(|link| link.id == id).unwrap();
            self.sender.record_assignment(chunk, link, at);
            let path = self.paths.iter_mut().find(|path| path.id == id).unwrap();
            path.unsent.push_back((chunk, chunk.length.into()));
        }
    }
}

/// Rates (Mbit/s) and round trips (ms) of two links.
const PAIRS: [(f64, f64, f64, f64); 6] = [
    (20.0, 10.0, 20.0, 10.0),
    (20.0, 10.0, 20.0, 100.0),
    (20.0, 10.0, 20.0, 250.0),
    (20.0, 10.0, 2.0, 10.0),
    (20.0, 10.0, 2.0, 100.0),
    (20.0, 10.0, 2.0, 250.0),
];

fn paths((a, rtt_a, b, rtt_b): (f64, f64, f64, f64)) -> Vec<ModelPath> {
    vec![ModelPath::new(1, a, rtt_a), ModelPath::new(2, b, rtt_b)]
}

#[test]
fn a_long_stream_reaches_the_sum_of_unequal_links() {
    for pair in PAIRS {
        // Two runs of the same model show two moments of it, because nothing is random.
        let until = |seconds: f64| {
            let mut stream = Stream::new(paths(pair), u64::MAX);
            stream.run(seconds);
            stream
        };
        let (early, late) = (until(3.0), until(8.0));
        let share = (late.got - early.got) as f64 / 5.0 / ((pair.0 + pair.2) * 1e6 / 8.0);
        let carried: Vec<u64> = late.paths.iter().map(|path| path.carried).collect();
        assert!(share > 0.95, "{pair:?}: {share:.3} of the sum, {carried:?} bytes by each");
    }
}

#[test]
fn a_small_transfer_is_not_slower_than_over_the_best_link() {
    for pair in PAIRS {
        for size in [16_000, 64_000, 256_000, 1_000_000, 4_000_000] {
            let time = Stream::new(paths(pair), size).run(60.0);
            let alone = Stream::new(paths(pair).drain(..1).collect(), size).run(60.0);
            assert!(time <= alone * 1.05, "{pair:?}, {size} bytes: {time:.4} s, not {alone:.4} s");
        }
    }
}
