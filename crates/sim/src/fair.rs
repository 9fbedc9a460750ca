//! Max-min fair shares of links, by progressive filling ("water-filling").
//!
//! All flows grow alike. The flows on the link that is full first stop there, and the others continue (Bertsekas and
//! Gallager, Data Networks, §6.5.2). A flow's own limit counts as a link that no other flow uses.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The demand of one flow, for [`shares`].
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The links it uses, as indices of the capacities; each once.
    pub links: &'a [u32],
    /// The most that it takes, Mbit/s; infinite without limit.
    pub limit: f64,
}

/// The max-min fair rate of each flow, Mbit/s. `capacity[l]` is that of link l, Mbit/s, from 0 up.
///
/// A flow without link and limit gets an infinite rate. O(uses · log uses) time, where a use is a pair of a flow and
/// one of its links.
pub fn shares(capacity: &[f64], flows: &[Demand<'_>]) -> Vec<f64> {
    Filling::new(capacity, flows).run()
}

/// A level in the heap: finite or infinite, never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level(f64);

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What stops flows from growing: a full link, or a flow's own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Link(u32),
    Flow(u32),
}

struct Filling<'a> {
    flows: &'a [Demand<'a>],
    /// The capacity of each link that is left for its growing flows.
    left: Vec<f64>,
    growing: Vec<u32>,
    on: Vec<Vec<u32>>,
    rate: Vec<Option<f64>>,
    /// Levels may be out of date: a link's level only rises, so it is checked again when it is taken.
    heap: BinaryHeap<Reverse<(Level, Stop)>>,
}

impl<'a> Filling<'a> {
    fn new(capacity: &[f64], flows: &'a [Demand<'a>]) -> Self {
        let mut on = vec![Vec::new(); capacity.len()];
        let mut heap = BinaryHeap::new();
        for (flow, demand) in (0_u32..).zip(flows) {
            demand.links.iter().for_each(|&link| on[link as usize].push(flow));
            // A flow without a limit stops with a link, if it has one.
            if demand.limit.is_finite() || demand.links.is_empty() {
                heap.push(Reverse((Level(demand.limit), Stop::Flow(flow))));
            }
        }
        let growing: Vec<u32> = on.iter().map(|flows| flows.len() as u32).collect();
        for (link, &count) in (0_u32..).zip(&growing).filter(|(_, count)| **count > 0) {
            let level = capacity[link as usize].max(0.0) / f64::from(count);
            heap.push(Reverse((Level(level), Stop::Link(link))));
        }
        Self { flows, left: capacity.to_vec(), growing, on, rate: vec![None; flows.len()], heap }
    }

    fn run(mut self) -> Vec<f64> {
        while let Some(Reverse((Level(level), stop))) = self.heap.pop() {
            match stop {
                Stop::Flow(flow) => self.freeze(flow, level),
                Stop::Link(link) => self.fill(link, level),
            }
        }
        self.rate.into_iter().map(|rate| rate.unwrap_or(0.0)).collect()
    }

    /// Stops the link's flows at this level, unless flows left it since: then it is full at a higher level.
    fn fill(&mut self, link: u32, level: f64) {
        let count = self.growing[link as usize];
        if count == 0 {
            return;
        }
        let now = self.left[link as usize].max(0.0) / f64::from(count);
        if now > level {
            return self.heap.push(Reverse((Level(now), Stop::Link(link))));
        }
        for flow in std::mem::take(&mut self.on[link as usize]) {
            self.freeze(flow, level);
        }
    }

    fn freeze(&mut self, flow: u32, level: f64) {
        if self.rate[flow as usize].is_some() {
            return;
        }
        self.rate[flow as usize] = Some(level);
        for &link in self.flows[flow as usize].links {
            self.left[link as usize] -= level;
            self.growing[link as usize] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FREE: f64 = f64::INFINITY;

    fn fair_rates(capacity: &[f64], flows: &[(&[u32], f64)]) -> Vec<f64> {
        let flows: Vec<Demand<'_>> =
            flows.iter().map(|&(links, limit)| Demand { links, limit }).collect();
        shares(capacity, &flows)
    }

    #[test]
    fn the_textbook_s_line_of_links() {
        // One flow over both links, one on each: the first link (2) gives 1 each, and what is
        // left of the second (8) goes to its own flow.
        let rates = fair_rates(&[2.0, 8.0], &[(&[0, 1], FREE), (&[0], FREE), (&[1], FREE)]);
        assert_eq!(rates, [1.0, 1.0, 7.0]);
    }

    #[test]
    fn capacity_that_a_limited_flow_leaves_goes_to_the_others() {
        assert_eq!(fair_rates(&[9.0], &[(&[0], 1.0), (&[0], FREE), (&[0], FREE)]), [1.0, 4.0, 4.0]);
        assert_eq!(fair_rates(&[], &[(&[], 3.0)]), [3.0]);
        assert_eq!(fair_rates(&[0.0], &[(&[0], FREE)]), [0.0]);
    }

    type Case = (Vec<f64>, Vec<(Vec<u32>, f64)>);

    fn cases() -> impl Strategy<Value = Case> {
        let capacity = prop::collection::vec(0.0..100.0_f64, 1..8);
        capacity.prop_flat_map(|capacity| {
            let links = prop::collection::btree_set(0..capacity.len() as u32, 1..=capacity.len());
            let limit = prop_oneof![Just(FREE), 0.0..50.0_f64];
            let flow = (links.prop_map(|set| set.into_iter().collect()), limit);
            (Just(capacity), prop::collection::vec(flow, 0..12))
        })
    }

    proptest! {
        /// The definition: no link carries more than it can, and each flow is at its limit
        /// or on a full link where no flow is faster.
        #[test]
        fn every_flow_has_a_bottleneck((capacity, flows) in cases()) {
            let given: Vec<(&[u32], f64)> = flows.iter().map(|(l, x)| (&l[..], *x)).collect();
            let rates = fair_rates(&capacity, &given);
            let load = |link: u32| -> f64 {
                let on = flows.iter().zip(&rates).filter(|((links, _), _)| links.contains(&link));
                on.map(|(_, rate)| rate).sum()
            };
            let fastest = |link: u32| {
                let on = flows.iter().zip(&rates).filter(|((links, _), _)| links.contains(&link));
                on.map(|(_, rate)| *rate).fold(0.0, f64::max)
            };
            for (link, most) in (0..).zip(&capacity) {
                prop_assert!(load(link) <= most + 1e-6, "link {link}: {} > {most}", load(link));
            }
            for ((links, limit), rate) in flows.iter().zip(&rates) {
                let stopped = links.iter().any(|&link| {
                    load(link) >= capacity[link as usize] - 1e-6 && *rate >= fastest(link) - 1e-6
                });
                prop_assert!(stopped || *rate >= limit - 1e-9, "{rate} of {links:?} could grow");
            }
        }
    }
}
