//! Flows that start and end on shared links, event by event.
//!
//! Between events rates are constant: those of [`fair::shares`]. A flow that starts or ends changes only the flows with
//! which it shares a link, directly or through others; only those are computed anew.

use crate::fair::{self, Demand};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BinaryHeap},
};

/// A flow's id; it is not used again.
pub type FlowId = u64;

/// What a flow demands.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The links it uses, each once.
    pub links: Vec<u32>,
    /// The most it takes, Mbit/s.
    pub limit: f64,
    /// Its size, Mbit.
    pub size: f64,
}

/// A time, s; finite or infinite, never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Debug)]
struct RunningFlow {
    id: FlowId,
    flow: Flow,
    /// Mbit still to move at `since`.
    left: f64,
    since: f64,
    rate: f64,
    /// Events with an older version are void.
    version: u64,
}

impl RunningFlow {
    fn remaining_at(&self, now: f64) -> f64 {
        // Not `rate · 0`, which is NaN for an infinite rate.
        if now <= self.since {
            self.left
        } else {
            (self.left - self.rate * (now - self.since)).max(0.0)
        }
    }

    fn end_time(&self) -> f64 {
        if self.left <= 0.0 { self.since } else { self.since + self.left / self.rate }
    }
}

/// The links, and the flows on them. Memory: O(links + flows · links of a flow).
#[derive(Clone, Debug)]
pub struct Engine {
    capacity: Vec<f64>,
    /// The slots of the flows on each link.
    on: Vec<Vec<u32>>,
    slots: Vec<Option<RunningFlow>>,
    slot_of: BTreeMap<FlowId, u32>,
    free: Vec<u32>,
    /// End events, some of them void; each with slot and version.
    ends: BinaryHeap<Reverse<(Moment, FlowId, u32, u64)>>,
    now: f64,
    next: FlowId,
    /// The last version given.
    versions: u64,
}

impl Engine {
    /// Creates idle links of these capacities, Mbit/s, at time 0.
    pub fn new(capacity: Vec<f64>) -> Self {
        let on = vec![Vec::new(); capacity.len()];
        Self {
            capacity,
            on,
            slots: Vec::new(),
            slot_of: BTreeMap::new(),
            free: Vec::new(),
            ends: BinaryHeap::new(),
            now: 0.0,
            next: 0,
            versions: 0,
        }
    }

    /// The present time, s.
    pub const fn now(&self) -> f64 {
        self.now
    }

    /// The number of flows.
    pub fn flows(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The rate that a link carries now, Mbit/s.
    pub fn load(&self, link: u32) -> f64 {
        self.on[link as usize]
            .iter()
            .filter_map(|&s| self.slots[s as usize].as_ref())
            .map(|r| r.rate)
            .sum()
    }

    /// Starts flows at the same time. Returns their ids in order.
    pub fn start(&mut self, flows: impl IntoIterator<Item = Flow>) -> Vec<FlowId> {
        let slots: Vec<u32> = flows.into_iter().map(|flow| self.insert(flow)).collect();
        self.update_rates(&slots);
        let id = |slot: &u32| self.slots[*slot as usize].as_ref().map_or(0, |running| running.id);
        slots.iter().map(id).collect()
    }

    /// Stops flows. Returns what each has left, Mbit; 0 for unknown ones.
    pub fn stop(&mut self, flows: &[FlowId]) -> Vec<f64> {
        let slots: Vec<Option<u32>> =
            flows.iter().map(|id| self.slot_of.get(id).copied()).collect();
        let left = |slot: &Option<u32>| {
            let running = slot.and_then(|slot| self.slots[slot as usize].as_ref());
            running.map_or(0.0, |running| running.remaining_at(self.now))
        };
        let left = slots.iter().map(left).collect();
        self.remove(slots.into_iter().flatten().collect());
        left
    }

    /// What a flow has left, Mbit; 0 for unknown ones.
    pub fn remaining(&self, flow: FlowId) -> f64 {
        let slot = self.slot_of.get(&flow);
        let running = slot.and_then(|slot| self.slots[*slot as usize].as_ref());
        running.map_or(0.0, |running| running.remaining_at(self.now))
    }

    /// When the next flow ends by itself if nothing else happens; infinite if never.
    pub fn next_end(&mut self) -> f64 {
        while let Some(&Reverse((at, _, slot, version))) = self.ends.peek() {
            let valid = self.slots[slot as usize].as_ref().is_some_and(|r| r.version == version);
            if valid {
                return at.0.max(self.now);
            }
            self.ends.pop();
        }
        f64::INFINITY
    }

    /// Lets time pass until `then`, or until the first flow ends. Returns the flows that ended at that time.
    pub fn advance(&mut self, then: f64) -> Vec<FlowId> {
        let end = self.next_end();
        if end > then {
            self.now = self.now.max(then);
            return Vec::new();
        }
        self.now = end;
        let mut slots = Vec::new();
        while self.next_end() <= end {
            let Some(Reverse((_, _, slot, _))) = self.ends.pop() else { break };
            slots.push(slot);
        }
        let ids = slots.iter().filter_map(|&slot| self.slots[slot as usize].as_ref());
        let ids: Vec<FlowId> = ids.map(|running| running.id).collect();
        self.remove(slots);
        ids
    }

    fn insert(&mut self, flow: Flow) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        flow.links.iter().for_each(|&link| self.on[link as usize].push(slot));
        let (id, left) = (self.next, flow.size);
        self.next += 1;
        self.slot_of.insert(id, slot);
        let running = RunningFlow { id, flow, left, since: self.now, rate: 0.0, version: 0 };
        self.slots[slot as usize] = Some(running);
        slot
    }

    fn remove(&mut self, slots: Vec<u32>) {
        let mut beside = Vec::new();
        for &slot in &slots {
            let Some(running) = self.slots[slot as usize].take() else { continue };
            self.free.push(slot);
            self.slot_of.remove(&running.id);
            for &link in &running.flow.links {
                let on = &mut self.on[link as usize];
                on.retain(|&other| other != slot);
                beside.extend_from_slice(on);
            }
        }
        beside.retain(|slot| self.slots[*slot as usize].is_some());
        self.update_rates(&beside);
    }

    /// Computes the rates of these flows and of all flows with which they share links.
    fn update_rates(&mut self, from: &[u32]) {
        let (together, links) = self.connected_flows(from);
        let capacity: Vec<f64> = links.iter().map(|&link| self.capacity[link as usize]).collect();
        let mut here = vec![0_u32; self.capacity.len()];
        (0..).zip(&links).for_each(|(at, &link)| here[link as usize] = at);
        let flows = || together.iter().filter_map(|&slot| self.slots[slot as usize].as_ref());
        let uses: Vec<u32> =
            flows().flat_map(|r| &r.flow.links).map(|&link| here[link as usize]).collect();
        let mut rest = uses.as_slice();
        let demands: Vec<Demand<'_>> = flows()
            .map(|running| {
                let (links, more) = rest.split_at(running.flow.links.len());
                rest = more;
                Demand { links, limit: running.flow.limit }
            })
            .collect();
        let rates = fair::shares(&capacity, &demands);
        for (slot, rate) in together.into_iter().zip(rates) {
            self.set_rate(slot, rate);
        }
    }

    fn set_rate(&mut self, slot: u32, rate: f64) {
        let Some(running) = self.slots[slot as usize].as_mut() else { return };
        if running.rate == rate && running.version > 0 {
            return;
        }
        running.left = running.remaining_at(self.now);
        running.since = self.now;
        running.rate = rate;
        self.versions += 1;
        running.version = self.versions;
        let end = running.end_time();
        if end.is_finite() {
            self.ends.push(Reverse((Moment(end), running.id, slot, running.version)));
        }
    }

    /// The flows that share a link with one of these, directly or through others, and these themselves; and all their
    /// links. Both ascending.
    fn connected_flows(&self, from: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut seen = vec![false; self.slots.len()];
        let mut linked = vec![false; self.capacity.len()];
        let (mut flows, mut links) = (Vec::new(), Vec::new());
        let new =
            |slot: &u32, seen: &mut [bool]| !std::mem::replace(&mut seen[*slot as usize], true);
        flows.extend(from.iter().filter(|slot| new(slot, &mut seen)));
        let mut at = 0;
        while let Some(slot) = flows.get(at).copied() {
            at += 1;
            let Some(running) = self.slots[slot as usize].as_ref() else { continue };
            for &link in &running.flow.links {
                if !std::mem::replace(&mut linked[link as usize], true) {
                    links.push(link);
                    let on = self.on[link as usize].iter();
                    flows.extend(on.filter(|slot| new(slot, &mut seen)));
                }
            }
        }
        flows.sort_unstable();
        links.sort_unstable();
        (flows, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    const FREE: f64 = f64::INFINITY;

    fn flow(links: &[u32], size: f64) -> Flow {
        Flow { links: links.to_vec(), limit: FREE, size }
    }

    #[test]
    fn a_flow_speeds_up_when_another_ends() {
        // 10 Mbit/s for two: 5 each. The small one (10 Mbit) is done at 2 s; the other has
        // then moved 10 of 30 and needs 2 s more at 10 Mbit/s.
        let mut engine = Engine::new(vec![10.0]);
        let ids = engine.start([flow(&[0], 10.0), flow(&[0], 30.0)]);
        assert_eq!((engine.load(0), engine.flows()), (10.0, 2));
        assert_eq!(engine.advance(FREE), [ids[0]]);
        assert_eq!(engine.now(), 2.0);
        assert_eq!(engine.advance(FREE), [ids[1]]);
        assert_eq!((engine.now(), engine.flows(), engine.load(0)), (4.0, 0, 0.0));
        assert_eq!(engine.next_end(), FREE);
    }

    #[test]
    fn a_stopped_flow_returns_what_it_had_left_and_frees_its_share() {
        let mut engine = Engine::new(vec![10.0]);
        let ids = engine.start([flow(&[0], 100.0), flow(&[0], 10.0)]);
        assert_eq!(engine.advance(1.0), []);
        assert_eq!(engine.stop(&[ids[0], 99]), [95.0, 0.0]);
        assert_eq!(engine.advance(FREE), [ids[1]]);
        assert_eq!(engine.now(), 1.5);
    }

    #[test]
    fn flows_without_shared_links_are_not_computed_anew() {
        let mut engine = Engine::new(vec![10.0, 10.0]);
        let a = engine.start([flow(&[0], 10.0)]);
        let version = engine.slots[0].as_ref().unwrap().version;
        engine.start([flow(&[1], 10.0), flow(&[1], 10.0)]);
        assert_eq!(engine.slots[0].as_ref().unwrap().version, version);
        assert_eq!(engine.advance(FREE), a);
    }

    #[test]
    fn thousands_of_flows_move_exactly_their_bytes_and_the_links_are_never_overfull() {
        let mut random = random::stream(5, "flows", 0);
        let mut engine = Engine::new(vec![100.0; 40]);
        let mut moved = 0.0;
        for at in 0..1_500 {
            let links = random::sample(&mut random, 40, 3).iter().map(|&l| l as u32).collect();
            let size = random::exponential(&mut random, 100.0);
            moved += size;
            engine.start([Flow { links, limit: 30.0, size }]);
            while !engine.advance(f64::from(at) * 0.01).is_empty() {}
        }
        assert!((0..40).all(|link| engine.load(link) <= 100.0 + 1e-6));
        let began = engine.now();
        assert!(engine.flows() > 1_000, "{} at once", engine.flows());
        while engine.next_end() < FREE {
            engine.advance(FREE);
        }
        // 40 links of 100 Mbit/s, each flow on 3: at best, all links are always full.
        assert!(engine.now() >= moved * 3.0 / 4_000.0, "{} {began}", engine.now());
        assert_eq!(engine.flows(), 0);
    }
}
