//! Simulated bulk flows: one bottleneck, one queue, steps of a millisecond.
//!
//! A fluid of bytes, not packets: what is asked of it is the shape of what a receiver's
//! program gets, that is ramps, plateaus, sawteeth, stalls behind a lost segment.

use std::collections::VecDeque;

const MSS: f64 = 1448.0;

/// How the sender governs itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// With HyStart or without.
    Cubic {
        hystart: bool,
    },
    Reno,
    Bbr,
}

/// What happens to the capacity over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Calm,
    /// A token bucket: this share of the capacity once so many bytes have passed.
    Policed {
        share: f64,
        bucket: f64,
    },
    /// Others take this share for half of each period (ms).
    OnOff {
        share: f64,
        period: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub mbps: f64,
    pub rtt_ms: usize,
    /// The queue, in bandwidth-delay products.
    pub queue: f64,
    pub control: Control,
    pub weather: Weather,
}

/// The sender's window and what it remembers.
struct Sender {
    control: Control,
    cwnd: f64,
    ssthresh: f64,
    /// Cubic's: the window before the last loss, and when that was (s).
    epoch: Option<(f64, f64)>,
    /// BBR's: delivered in each of the last ten round trips, and trips without growth.
    best: VecDeque<f64>,
    stalled: u32,
    /// HyStart's: the least queueing of this round, and when the round began (s).
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
                // HyStart looks at the least delay of a round, so that bursts do not count.
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

    /// BBR at the end of a round trip: its best rate (bytes/s), and so its window.
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

/// What the receiver's program has got after each millisecond, in bytes.
pub fn received(path: &Path, ms: usize) -> Vec<u64> {
    let rtt = path.rtt_ms as f64 / 1000.0;
    let mut sender = Sender::new(path.control);
    let capacity = path.mbps * 1e6 / 8.0;
    let room = (path.queue * capacity * rtt).max(4.0 * MSS);
    let (mut queue, mut flying, mut passed, mut in_trip) = (0.0_f64, 0.0, 0.0, 0.0);
    let (mut losses, mut acks) = (VecDeque::new(), VecDeque::from(vec![0.0; path.rtt_ms]));
    let (mut arrived, mut holes) = (0.0_f64, VecDeque::new());
    let mut tokens = match path.weather {
        Weather::Policed { bucket, .. } => bucket,
        _ => 0.0,
    };
    let mut got = Vec::with_capacity(ms);
    for now in 0..ms {
        let seconds = now as f64 / 1000.0;
        let here = match path.weather {
            Weather::OnOff { share, period } if now as u64 % period < period / 2 => {
                capacity * (1.0 - share)
            }
            _ => capacity,
        };
        let (delay, step) = (queue / here, here / 1000.0);
        // Acknowledgements come, losses are noticed.
        let acked: f64 = acks.pop_front().unwrap_or(0.0);
        flying -= acked;
        sender.acked(acked, seconds, rtt, delay);
        while losses.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes): (usize, f64) = losses.pop_front().unwrap();
            flying -= bytes;
            if losses.is_empty() {
                sender.lost(seconds);
            }
        }
        in_trip += acked;
        if now % path.rtt_ms == 0 && path.control == Control::Bbr && now > 0 {
            sender.round(in_trip, rtt, now / path.rtt_ms);
            in_trip = 0.0;
        }
        // What the window allows goes to the queue, at no more than twice its rate.
        let mut sent = (sender.cwnd - flying).clamp(0.0, step * 2.5);
        if let Weather::Policed { share, bucket } = path.weather {
            tokens = (tokens + step * share).min(bucket);
            let through = sent.min(tokens);
            tokens -= through;
            if sent > through {
                note(&mut losses, now, sent - through, path.rtt_ms);
                flying += sent - through;
                holes.push_back((arrived + queue, now + path.rtt_ms));
            }
            sent = through;
        }
        let fits = sent.min(room - queue).max(0.0);
        flying += sent;
        if sent > fits {
            let wait = path.rtt_ms + (delay * 1000.0) as usize;
            note(&mut losses, now, sent - fits, wait);
            // The hole arrives behind the queue; its repetition a round trip later.
            holes.push_back((arrived + queue, now + wait + (delay * 1000.0) as usize));
        }
        queue += fits;
        let out = queue.min(step);
        queue -= out;
        passed += out;
        acks.push_back(out);
        arrived += out;
        // The program gets nothing that is behind a hole.
        while holes.front().is_some_and(|(_, mended)| *mended <= now) {
            holes.pop_front();
        }
        let given = holes.front().map_or(arrived, |(at, _): &(f64, usize)| arrived.min(*at));
        got.push((given as u64).max(got.last().copied().unwrap_or(0)));
    }
    assert!(passed > 0.0);
    got
}

fn note(losses: &mut VecDeque<(usize, f64)>, now: usize, bytes: f64, wait: usize) {
    // Losses of one round trip are one event.
    match losses.back_mut() {
        Some((at, sum)) if *at > now => *sum += bytes,
        _ => losses.push_back((now + wait, bytes)),
    }
}
