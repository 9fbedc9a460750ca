//! Carries packets over paths of shared links.

use super::{Arrival, ClassId, Classifier, Link, LinkTruth};
use crate::topology::{LinkChange, Resolved};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};
use thalweg_units::Time;
use thiserror::Error;

/// A network of links, and the packets in it.
///
/// `P` represents a packet: a buffer, or the index of one. Events of all links run in the order of their logical time,
/// and at equal times in the order of the links, however late the caller asks. Time never decreases; an earlier time
/// counts as the latest one seen.
///
/// One hop costs a heap operation over the links that have packets, and O(1) in the link.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<Link<Transit<P>>>,
    names: Vec<String>,
    paths: Vec<Box<[u32]>>,
    table: crate::topology::PathTable,
    classifier: Classifier,
    /// The next event of each link that has one, and stale entries.
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// The time of each link's valid entry in `heap`; its other entries are stale.
    scheduled: Vec<Time>,
    /// Deliveries that are due and not yet handed out.
    ready: VecDeque<Delivery<P>>,
    taps: TapBuffer<P>,
    now: Time,
}

/// A packet in transit.
#[derive(Clone, Debug)]
struct Transit<P> {
    packet: P,
    path: u32,
    /// The number of links it has passed.
    hop: u32,
    interface: u32,
    len: u32,
    class: ClassId,
    corrupt: Option<u64>,
}

/// A packet that reached its destination interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The logical time of arrival; `now − at` is its lateness.
    pub at: Time,
    /// The destination interface.
    pub interface: usize,
    /// The packet that was injected.
    pub packet: P,
    /// Random bits that choose the bit of the packet to flip; `None`: the packet is intact. If several links of the
    /// path flip a bit, the first one counts.
    pub corrupt: Option<u64>,
}

/// A packet that entered a tapped link, whether or not it was dropped there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped<P> {
    /// The logical time of entry.
    pub at: Time,
    /// The index of the link.
    pub link: usize,
    /// A copy of the injected packet.
    pub packet: P,
}

/// No path leads from one interface to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no path leads from interface {from} to interface {to}")]
pub struct NoPath {
    /// The source interface.
    pub from: usize,
    /// The destination interface.
    pub to: usize,
}

/// The copies of packets for captures.
#[derive(Debug)]
struct TapBuffer<P> {
    on: Vec<bool>,
    seen: VecDeque<Tapped<P>>,
    missed: u64,
}

/// The most copies that wait to be taken: 100 ms of small packets at 500,000 a second. Further packets are counted as
/// missed.
const TAPPED_MAX: usize = 50_000;

impl<P: Clone> Network<P> {
    /// Creates the network of a topology, which begins at `start`.
    pub fn new(resolved: &Resolved, start: Time) -> Self {
        let classifier = Classifier::new(resolved);
        let classes = classifier.names().len();
        let mut links: Vec<_> = resolved
            .links
            .iter()
            .map(|l| Link::new(&l.config, l.seed, start).with_series(resolved.bin, classes))
            .collect();
        for cross in &resolved.cross {
            let link = &mut links[cross.link];
            *link = link.clone().with_cross(&cross.config, cross.seed);
        }
        let n = links.len();
        Self {
            links,
            names: resolved.links.iter().map(|l| l.name.clone()).collect(),
            paths: resolved.paths.iter().map(|p| p.iter().map(|&l| l as u32).collect()).collect(),
            table: resolved.table.clone(),
            classifier,
            heap: BinaryHeap::with_capacity(n),
            scheduled: vec![Time::MAX; n],
            ready: VecDeque::new(),
            taps: TapBuffer { on: vec![false; n], seen: VecDeque::new(), missed: 0 },
            now: start,
        }
    }

    /// Sends a packet of `len` bytes from interface `from` to interface `to`.
    ///
    /// Runs the events that are due first, so that links see packets in the order of logical time.
    ///
    /// # Errors
    /// [`NoPath`]; the packet is dropped.
    pub fn inject(
        &mut self,
        now: Time,
        from: usize,
        to: usize,
        len: u32,
        class: ClassId,
        packet: P,
    ) -> Result<(), NoPath> {
        let path = self.table.get(from, to).ok_or(NoPath { from, to })?;
        self.run_events(now);
        let (path, interface) = (path as u32, to as u32);
        let transit = Transit { packet, path, hop: 0, interface, len, class, corrupt: None };
        self.forward(self.now, transit);
        Ok(())
    }

    /// Runs the events up to `now` and passes the packets that reached their interface to `sink`, in the order of their
    /// logical time.
    pub fn deliver(&mut self, now: Time, sink: &mut impl FnMut(Delivery<P>)) {
        self.run_events(now);
        self.ready.drain(..).for_each(sink);
    }

    /// The time of the next event: call [`deliver`](Self::deliver) then.
    pub fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|d| d.at);
        let event = self.heap.peek().map(|Reverse((at, _))| *at);
        ready.into_iter().chain(event).min()
    }

    /// Changes these links from `now` on. Indices out of range are ignored.
    pub fn set(&mut self, now: Time, links: &[usize], change: &LinkChange) {
        self.run_events(now);
        for &i in links {
            if let Some(link) = self.links.get_mut(i) {
                link.set(self.now, change);
                self.schedule(i);
            }
        }
    }

    /// Processes cross traffic and records of all links up to `now`.
    ///
    /// Not needed for correctness: an occasional call spreads the work over time.
    pub fn advance_all(&mut self, now: Time) {
        self.run_events(now);
        let now = self.now;
        self.links.iter_mut().for_each(|l| l.advance(now));
    }

    /// The record of every link with its history, in the order of the links.
    pub fn truth(&mut self, now: Time) -> Vec<LinkTruth> {
        self.records(now, true)
    }

    /// The record of every link without its history.
    pub fn totals(&mut self, now: Time) -> Vec<LinkTruth> {
        self.records(now, false)
    }

    /// The class of a packet with this protocol number and these ports (0 if it has none).
    pub fn classify(&self, protocol: u8, source: u16, destination: u16) -> ClassId {
        self.classifier.classify(protocol, source, destination)
    }

    /// The links of the path from one interface to another.
    pub fn path(&self, from: usize, to: usize) -> Option<&[u32]> {
        self.table.get(from, to).map(|p| &*self.paths[p])
    }

    /// The number of packets between injection and delivery.
    pub fn in_flight(&self) -> usize {
        self.links.iter().map(Link::in_flight).sum::<usize>() + self.ready.len()
    }

    /// Starts or stops copying the packets that enter a link.
    pub fn tap(&mut self, link: usize, on: bool) {
        if let Some(tap) = self.taps.on.get_mut(link) {
            *tap = on;
        }
    }

    /// Takes the copies since the last call (at most 50,000), and the number of packets that were missed.
    pub fn take_tapped(&mut self) -> (Vec<Tapped<P>>, u64) {
        (self.taps.seen.drain(..).collect(), std::mem::take(&mut self.taps.missed))
    }

    fn records(&mut self, now: Time, series: bool) -> Vec<LinkTruth> {
        self.run_events(now);
        let (now, classes) = (self.now, self.classifier.names());
        let links = self.links.iter_mut().zip(&self.names);
        links
            .map(|(link, name)| LinkTruth {
                name: name.clone(),
                classes: classes.clone(),
                ..link.truth(now, series)
            })
            .collect()
    }

    /// Runs the events up to `now`. Packets that reach their interface are added to `ready`.
    fn run_events(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(&Reverse((at, link))) = self.heap.peek() {
            if at > self.now {
                break;
            }
            self.heap.pop();
            let link = link as usize;
            if self.scheduled[link] != at {
                continue;
            }
            self.scheduled[link] = Time::MAX;
            while let Some(arrival) = self.links[link].pop(at) {
                self.handle_arrival(arrival);
            }
            self.schedule(link);
        }
    }

    fn handle_arrival(&mut self, arrival: Arrival<Transit<P>>) {
        let mut transit = arrival.packet;
        transit.hop += 1;
        transit.corrupt = transit.corrupt.or(arrival.corrupt);
        self.forward(arrival.at, transit);
    }

    /// Passes the packet to the next link of its path, or delivers it after the last one.
    fn forward(&mut self, at: Time, transit: Transit<P>) {
        match self.paths[transit.path as usize].get(transit.hop as usize) {
            Some(&link) => {
                let link = link as usize;
                self.taps.copy_packet(at, link, &transit.packet);
                self.links[link].enter(at, transit.len, transit.class, transit);
                self.schedule(link);
            }
            None => {
                let Transit { packet, interface, corrupt, .. } = transit;
                self.ready.push_back(Delivery {
                    at,
                    interface: interface as usize,
                    packet,
                    corrupt,
                });
            }
        }
    }

    /// Adds the link's next event to the heap if it is earlier than the scheduled one.
    ///
    /// A later event needs no entry: when the scheduled entry runs, it finds nothing to pop and schedules again.
    fn schedule(&mut self, link: usize) {
        let next = self.links[link].next_arrival().unwrap_or(Time::MAX);
        if next < self.scheduled[link] {
            self.scheduled[link] = next;
            self.heap.push(Reverse((next, link as u32)));
        }
    }
}

impl<P: Clone> TapBuffer<P> {
    fn copy_packet(&mut self, at: Time, link: usize, packet: &P) {
        if !self.on[link] {
            return;
        }
        if self.seen.len() < TAPPED_MAX {
            self.seen.push_back(Tapped { at, link, packet: packet.clone() });
        } else {
            self.missed += 1;
        }
    }
}
