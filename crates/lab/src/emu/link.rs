//! The link model: rate, queue, delay, loss.

use super::{
    ClassId, LinkTruth,
    cross::Source,
    flight::{Flight, InFlight},
    impair::Impairments,
    record::LinkRecord,
    server::{Rescale, Server},
};
use crate::topology::{CrossConfig, LinkChange, LinkConfig, StepWalk};
use std::{collections::VecDeque, time::Duration};
use thalweg_units::{Rate, Time};

/// One direction of a link: a drop-tail queue in bytes or packets, a server, a delay line, impairments.
///
/// Time is an argument and never decreases; an earlier time counts as the latest one seen. A packet that enters at `t`
/// finds a backlog of `(free_at − t) · rate` bytes and is dropped if `backlog + len` exceeds the queue, or if the queue
/// holds its number of packets. Otherwise it departs at `max(t, free_at) + len / rate`, may be lost at random, and
/// arrives `delay` after its departure, never before an earlier packet unless that one is held back.
///
/// A change of rate moves the departures that are still to come. Cross traffic ([`with_cross`](Self::with_cross))
/// shares the queue; cross traffic and the rate trace are processed up to the present whenever the link is used. All
/// work is amortised O(1) per packet, including packets of cross traffic, without allocation.
#[derive(Clone, Debug)]
pub struct Link<P> {
    config: LinkConfig,
    queue_bytes: u64,
    /// The most packets in the queue and in service.
    queue_packets: usize,
    delay_ns: u64,
    now: u64,
    start: u64,
    server: Server,
    /// Packets that have not departed, for the record; bounded by the queue.
    waiting: VecDeque<Waiting>,
    flight: Flight<P>,
    impairments: Impairments,
    sources: Vec<Source>,
    trace: Option<StepWalk>,
    /// The time of the next event of a source or the trace, ns.
    inner_at: u64,
    record: LinkRecord,
}

/// A packet in the queue or in service. `class` is `None` for cross traffic.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    depart: u64,
    len: u32,
    class: Option<ClassId>,
}

/// A packet at the far end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The time of arrival, however late it is popped.
    pub at: Time,
    /// The packet that entered.
    pub packet: P,
    /// Random bits that choose the bit of the packet to flip; `None`: the packet is intact.
    pub corrupt: Option<u64>,
}

impl<P: Clone> Link<P> {
    /// Creates a link that begins at `start`. `seed` is the seed of its impairments.
    pub fn new(config: &LinkConfig, seed: u64, start: Time) -> Self {
        let start = start.as_nanos();
        let mut link = Self {
            config: config.clone(),
            queue_bytes: 0,
            queue_packets: usize::MAX,
            delay_ns: nanos(config.delay),
            now: start,
            start,
            server: Server::new(config.rate.map(Rate::as_bps), start),
            waiting: VecDeque::new(),
            flight: Flight::new(),
            impairments: Impairments::new(config, seed),
            sources: Vec::new(),
            trace: config.trace.as_ref().map(|t| t.walk()),
            inner_at: u64::MAX,
            record: LinkRecord::new(start),
        };
        link.size_queue();
        link.schedule_inner();
        link
    }

    /// Adds a source of cross traffic, which exists only as load, with its own seed.
    #[must_use]
    pub fn with_cross(mut self, config: &CrossConfig, seed: u64) -> Self {
        self.sources.push(Source::new(config, seed, self.start));
        self.schedule_inner();
        self
    }

    /// Records a history in bins of this width, with bytes for each of this many classes.
    ///
    /// The last class is cross traffic; packets of classes out of range count there.
    #[must_use]
    pub fn with_series(mut self, bin: Duration, classes: usize) -> Self {
        self.record.keep_series(nanos(bin), classes.max(1));
        self
    }

    /// Adds a packet of `len` bytes. Returns `false` if it is dropped at once, because the link is down or the queue
    /// full.
    ///
    /// `true` does not mean that it will arrive: it may be lost at random.
    pub fn enter(&mut self, now: Time, len: u32, class: ClassId, packet: P) -> bool {
        self.advance(now);
        self.start_record();
        let now = self.now;
        if !self.config.up {
            self.record.count_down_drops(now, 1);
            return false;
        }
        let Some(depart) = self.queue(now, len, Some(class)) else { return false };
        self.impair(now, depart, packet);
        true
    }

    /// The time at which a packet may arrive next: call [`pop`](Self::pop) then, and ask again.
    ///
    /// While packets are in flight this includes the next change of the rate, because it may bring their arrival
    /// forward.
    pub fn next_arrival(&self) -> Option<Time> {
        let arrival = self.flight.next()?;
        let change = self.trace.as_ref().and_then(StepWalk::peek);
        let change = change.map_or(u64::MAX, |(at, _)| self.start.saturating_add(at));
        Some(Time::from_nanos(arrival.min(change)))
    }

    /// Removes the next packet that has arrived at or before `now`, in order of arrival.
    pub fn pop(&mut self, now: Time) -> Option<Arrival<P>> {
        self.advance(now);
        let InFlight { arrive, packet, corrupt, .. } = self.flight.pop(self.now)?;
        Some(Arrival { at: Time::from_nanos(arrive), packet, corrupt })
    }

    /// Processes cross traffic, trace and record up to `now`.
    pub fn advance(&mut self, now: Time) {
        let now = now.as_nanos().max(self.now);
        while self.inner_at <= now && self.inner_at != u64::MAX {
            let at = self.inner_at;
            self.settle(at);
            self.run_inner(at);
            self.schedule_inner();
        }
        self.settle(now);
    }

    /// Applies `change` from `now` on. A new rate replaces the trace.
    pub fn set(&mut self, now: Time, change: &LinkChange) {
        self.advance(now);
        self.start_record();
        let now = self.now;
        if let Some(rate) = change.rate {
            self.trace = None;
            self.schedule_inner();
            self.change_rate(now, rate);
        }
        self.merge(change);
        if change.queue.is_some() || (change.rate.is_some() && self.queue_bytes == 0) {
            self.size_queue();
        }
        if change.up == Some(false) {
            self.lose_all(now);
        }
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.config.up
    }

    /// The present rate; `None`: no limit.
    pub fn rate(&self) -> Option<Rate> {
        self.server.rate().map(Rate::from_bps)
    }

    /// The size of the queue, bytes; meaningless without a rate.
    pub fn queue_limit(&self) -> u64 {
        self.queue_bytes
    }

    /// Bytes that have entered and not departed at `now`.
    pub fn backlog(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.server.backlog(self.now)
    }

    /// The number of packets in flight: queued or propagating.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// The record up to `now`, with empty `name` and `classes`.
    ///
    /// Without `series` the bins, most of its size, are left out.
    pub fn truth(&mut self, now: Time, series: bool) -> LinkTruth {
        self.advance(now);
        LinkTruth {
            rate: self.rate(),
            up: self.config.up,
            queue_bytes: self.server.backlog(self.now),
            queue_limit_bytes: self.server.rate().map(|_| self.queue_bytes),
            ..self.record.truth(self.now, series)
        }
    }

    /// Queues a packet. Returns its departure, or `None` if the queue is full.
    fn queue(&mut self, now: u64, len: u32, class: Option<ClassId>) -> Option<u64> {
        let queued = self.server.backlog(now) + u64::from(len);
        if self.server.rate().is_none() {
            self.record.count_departure(now, len, class);
            return Some(now);
        }
        if queued > self.queue_bytes || self.waiting.len() >= self.queue_packets {
            self.record.count_queue_drop(now, class.is_none());
            return None;
        }
        self.record.record_queue(now, queued);
        let depart = self.server.serve(now, len);
        self.waiting.push_back(Waiting { depart, len, class });
        Some(depart)
    }

    fn impair(&mut self, now: u64, depart: u64, packet: P) {
        let fate = self.impairments.draw();
        self.record.count_impairments(now, &fate);
        if fate.lost {
            return;
        }
        let arrive = depart.saturating_add(self.delay_ns);
        let mut flying = InFlight { depart, arrive, packet, corrupt: fate.corrupt };
        let copy = fate.duplicated.then(|| flying.clone());
        let Some(by) = fate.held else {
            self.flight.push(flying);
            copy.into_iter().for_each(|c| self.flight.push(c));
            return;
        };
        flying.arrive = arrive.saturating_add(by);
        // The copy is not held back: it shows the original order.
        copy.into_iter().for_each(|c| self.flight.push(c));
        self.flight.hold(flying);
    }

    /// Advances the time to `now` and records the interval, in which no packet enters and nothing changes.
    fn settle(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        let rate = if self.config.up { self.server.rate() } else { Some(0) };
        self.record.integrate(now, rate, self.server.free_at());
        while let Some(first) = self.waiting.front().filter(|w| w.depart <= now) {
            self.record.count_departure(first.depart, first.len, first.class);
            self.waiting.pop_front();
        }
        self.now = now;
    }

    /// Runs the event of a source or the trace that is due at `at`.
    fn run_inner(&mut self, at: u64) {
        self.start_record();
        let change = self.trace.as_ref().and_then(StepWalk::peek);
        if let Some((_, rate)) = change.filter(|c| self.start.saturating_add(c.0) == at) {
            if let Some(trace) = &mut self.trace {
                trace.advance();
            }
            return self.change_rate(at, rate);
        }
        let Some(source) = self.sources.iter_mut().find(|s| s.next() == at) else { return };
        let len = source.take();
        // A link that is down carries no cross traffic either, and does not count it as dropped.
        if self.config.up {
            self.queue(at, len, None);
        }
    }

    fn schedule_inner(&mut self) {
        let source = self.sources.iter().map(Source::next).min().unwrap_or(u64::MAX);
        let change = self.trace.as_ref().and_then(StepWalk::peek);
        let change = change.map_or(u64::MAX, |(at, _)| self.start.saturating_add(at));
        self.inner_at = source.min(change);
    }

    fn change_rate(&mut self, now: u64, rate: Rate) {
        // Configurations are checked against a rate of 0; a change made in code may have it.
        let rate = Some(rate.as_bps().max(1));
        let rescale = Rescale { now, from: self.server.rate(), to: rate };
        self.waiting.iter_mut().for_each(|w| w.depart = rescale.apply(w.depart));
        self.flight.rescale(rescale);
        self.server.change_rate(now, rate);
    }

    /// Sizes the queue for the nominal rate, which is that of the configuration or of its trace.
    fn size_queue(&mut self) {
        let rate = self.config.nominal_rate();
        self.queue_bytes = rate.map_or(0, |r| self.config.queue.bytes(r));
        self.queue_packets = self.config.queue.packets().unwrap_or(usize::MAX);
    }

    fn merge(&mut self, change: &LinkChange) {
        let c = &mut self.config;
        if change.rate.is_some() {
            (c.rate, c.trace) = (change.rate, None);
        }
        c.queue = change.queue.unwrap_or(c.queue);
        c.delay = change.delay.unwrap_or(c.delay);
        c.loss = change.loss.unwrap_or(c.loss);
        c.reorder = change.reorder.unwrap_or(c.reorder);
        c.duplicate = change.duplicate.unwrap_or(c.duplicate);
        c.corrupt = change.corrupt.unwrap_or(c.corrupt);
        c.up = change.up.unwrap_or(c.up);
        self.delay_ns = nanos(c.delay);
        self.impairments.configure(c, change.loss.is_some());
    }

    fn lose_all(&mut self, now: u64) {
        let lost = self.flight.clear();
        self.waiting.clear();
        self.server.clear(now);
        self.record.count_down_drops(now, lost as u64);
    }

    /// Activates the record at the first use; the idle time until now is added to it.
    fn start_record(&mut self) {
        let rate = if self.config.up { self.server.rate() } else { Some(0) };
        self.record.activate(self.now, rate);
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
