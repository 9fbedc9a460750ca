//! Simulated bulk flows: one bottleneck, one queue, steps of a millisecond.
//!
//! The model is a fluid of bytes, not packets: what matters is how a receiver's program gets data: ramps, plateaus,
//! sawteeth, and stalls behind a lost segment.

use std::collections::VecDeque;

const MSS: f64 = 1448.0;

/// The sender's congestion control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// With or without HyStart.
    Cubic {
        hystart: bool,
    },
    Reno,
    Bbr,
}

/// How the capacity changes over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Calm,
    /// A token bucket: only this share of the capacity once the bucket is empty.
    Policed {
        share: f64,
        bucket: f64,
    },
    /// Cross traffic takes this share for half of each period (ms).
    OnOff {
        share: f64,
        period: u64,
    },
}

/// The link that all flows share, and how it disturbs them.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedBottleneck {
    pub mbps: f64,
    pub rtt_ms: usize,
    /// The queue, in bandwidth-delay products.
    pub queue: f64,
    pub control: Control,
    pub weather: Weather,
}

/// The sender's window and its history.
struct Sender {
    control: Control,
    cwnd: f64,
    ssthresh: f64,
    /// Cubic: the window before the last loss, and when that was (s).
    epoch: Option<(f64, f64)>,
    /// BBR: delivery rates of the last ten round trips, and the number of round trips without growth.
    best: VecDeque<f64>,
    stalled: u32,
    /// HyStart: the minimum queueing delay of this round, and when the round began (s).
    low: f64,
    round_began: f64,
}

impl Sender {
    fn new(control: Control) -> Self {
        Self {
            control,
            cwnd: 10.0 * MSS,
            ssthresh: f64::INFINITY,
            epoch: None,
            best: VecDeque::new(),
            stalled: 0,
            low: f64::INFINITY,
            round_began: 0.0,
        }
    }

    fn acked(&mut self, bytes: f64, now: f64, rtt: f64, queued: f64) {
        match self.control {
            Control::Bbr => {}
            _ if self.cwnd < self.ssthresh => {
                self.cwnd += bytes;
                // HyStart uses the minimum delay of a round, so that bursts do not count.
                self.low = self.low.min(queued);
                if now - self.round_began >= rtt {
                    let hystart = self.control == Control::Cubic { hystart: true };
                    if hystart && self.low > (rtt / 8.0).clamp(0.004, 0.016) {
                        self.ssthresh = self.cwnd;
                    }
                    (self.low, self.round_began) = (f64::INFINITY, now);
                }
            }
            Control::Reno => self.cwnd += MSS * bytes / self.cwnd,
            Control::Cubic { .. } => {
                let (before, since) = *self.epoch.get_or_insert((self.cwnd, now));
                let k = (before / MSS * 0.3 / 0.4).cbrt();
                let cubic = (0.4 * (now - since - k).powi(3) + before / MSS) * MSS;
                let friendly = self.cwnd + 0.53 * MSS * bytes / self.cwnd;
                self.cwnd = cubic.min(self.cwnd + bytes).max(friendly);
            }
        }
    }

    fn lost(&mut self, now: f64) {
        let keeps = match self.control {
            Control::Cubic { .. } => 0.7,
            Control::Reno => 0.5,
            Control::Bbr => return,
        };
        self.epoch = Some((self.cwnd, now));
        self.cwnd = (self.cwnd * keeps).max(2.0 * MSS);
        self.ssthresh = self.cwnd;
    }

    /// BBR at the end of a round trip: updates its best rate (bytes/s) and the window that follows from it.
    fn round(&mut self, delivered: f64, rtt: f64, trip: usize) {
        let before = self.best.iter().copied().fold(0.0, f64::max);
        self.best.push_back(delivered / rtt);
        if self.best.len() > 10 {
            self.best.pop_front();
        }
        let now = self.best.iter().copied().fold(0.0, f64::max);
        self.stalled = match self.stalled {
            0..4 if trip < 3 || now >= before * 1.25 => 0,
            n => n + 1,
        };
        let gain = match self.stalled {
            0..4 => 2.89,
            4 => 0.5,
            _ => [1.25, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0][trip % 8],
        };
        self.cwnd = (gain * now * rtt).max(4.0 * MSS);
    }
}

/// The bytes that the receiver's program has got after each millisecond.
pub fn received(path: &SimulatedBottleneck, ms: usize) -> Vec<u64> {
    let mut flow = SimulatedFlow::new(path);
    let mut got = Vec::with_capacity(ms);
    for now in 0..ms {
        let here = path.here(now);
        let delay = flow.queue / here;
        flow.hear(now, delay);
        flow.send(now, here / 1000.0, delay);
        let given = flow.deliver(now, here / 1000.0) as u64;
        got.push(given.max(got.last().copied().unwrap_or(0)));
    }
    assert!(flow.arrived > 0.0);
    got
}

impl SimulatedBottleneck {
    fn rtt(&self) -> f64 {
        self.rtt_ms as f64 / 1000.0
    }

    /// The full capacity, bytes per second.
    fn capacity(&self) -> f64 {
        self.mbps * 1e6 / 8.0
    }

    /// The capacity that is available in this millisecond, bytes per second.
    fn here(&self, now: usize) -> f64 {
        match self.weather {
            Weather::OnOff { share, period } if now as u64 % period < period / 2 => {
                self.capacity() * (1.0 - share)
            }
            _ => self.capacity(),
        }
    }
}

/// Numbers of bytes, each with the time at which something happens to them (ms).
type Later = VecDeque<(usize, f64)>;

/// One flow over the path. All quantities but times are bytes.
struct SimulatedFlow<'a> {
    path: &'a SimulatedBottleneck,
    sender: Sender,
    room: f64,
    queue: f64,
    flying: f64,
    in_trip: f64,
    tokens: f64,
    /// Losses, by when the sender notices them.
    losses: Later,
    /// Acknowledged bytes of each future millisecond, the first one now.
    acks: VecDeque<f64>,
    arrived: f64,
    /// Holes, by when the retransmission fills them, each with the number of bytes before it.
    holes: Later,
}

impl<'a> SimulatedFlow<'a> {
    fn new(path: &'a SimulatedBottleneck) -> Self {
        let tokens = match path.weather {
            Weather::Policed { bucket, .. } => bucket,
            _ => 0.0,
        };
        Self {
            path,
            sender: Sender::new(path.control),
            room: (path.queue * path.capacity() * path.rtt()).max(4.0 * MSS),
            queue: 0.0,
            flying: 0.0,
            in_trip: 0.0,
            tokens,
            losses: VecDeque::new(),
            acks: VecDeque::from(vec![0.0; path.rtt_ms]),
            arrived: 0.0,
            holes: VecDeque::new(),
        }
    }

    /// Processes acknowledgements, noticed losses, and the end of a round trip.
    fn hear(&mut self, now: usize, delay: f64) {
        let (seconds, rtt) = (now as f64 / 1000.0, self.path.rtt());
        let acked = self.acks.pop_front().unwrap_or(0.0);
        self.flying -= acked;
        self.sender.acked(acked, seconds, rtt, delay);
        while let Some((_, bytes)) = due(&mut self.losses, now) {
            self.flying -= bytes;
            if self.losses.is_empty() {
                self.sender.lost(seconds);
            }
        }
        self.in_trip += acked;
        let is_bbr = self.path.control == Control::Bbr;
        if is_bbr && now > 0 && now.is_multiple_of(self.path.rtt_ms) {
            self.sender.round(self.in_trip, rtt, now / self.path.rtt_ms);
            self.in_trip = 0.0;
        }
    }

    /// Sends what the window allows into the queue, at no more than 2.5 times the queue's rate.
    fn send(&mut self, now: usize, step: f64, delay: f64) {
        let allowed = (self.sender.cwnd - self.flying).clamp(0.0, step * 2.5);
        let sent = self.police(now, step, allowed);
        let fits = sent.min(self.room - self.queue).max(0.0);
        self.flying += sent;
        if sent > fits {
            let queued = (delay * 1000.0) as usize;
            let wait = self.path.rtt_ms + queued;
            note(&mut self.losses, now, sent - fits, wait);
            // The hole arrives behind the queue, and its retransmission a round trip later.
            self.holes.push_back((now + wait + queued, self.arrived + self.queue));
        }
        self.queue += fits;
    }

    /// The bytes that pass the token bucket, if there is one.
    fn police(&mut self, now: usize, step: f64, sent: f64) -> f64 {
        let Weather::Policed { share, bucket } = self.path.weather else { return sent };
        self.tokens = (self.tokens + step * share).min(bucket);
        let through = sent.min(self.tokens);
        self.tokens -= through;
        if sent > through {
            note(&mut self.losses, now, sent - through, self.path.rtt_ms);
            self.flying += sent - through;
            self.holes.push_back((now + self.path.rtt_ms, self.arrived + self.queue));
        }
        through
    }

    /// Delivers what leaves the queue. The program gets nothing that is behind a hole.
    fn deliver(&mut self, now: usize, step: f64) -> f64 {
        let out = self.queue.min(step);
        self.queue -= out;
        self.acks.push_back(out);
        self.arrived += out;
        while due(&mut self.holes, now).is_some() {}
        self.holes.front().map_or(self.arrived, |(_, at)| self.arrived.min(*at))
    }
}

/// Removes and returns the first entry that is due by now.
fn due(all: &mut Later, now: usize) -> Option<(usize, f64)> {
    let is_due = all.front().is_some_and(|(at, _)| *at <= now);
    if is_due { all.pop_front() } else { None }
}

fn note(losses: &mut Later, now: usize, bytes: f64, wait: usize) {
    // Losses of one round trip are one event.
    match losses.back_mut() {
        Some((at, sum)) if *at > now => *sum += bytes,
        _ => losses.push_back((now + wait, bytes)),
    }
}
