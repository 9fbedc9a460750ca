//! The maximum flow between two nodes, and the minimum cut.
//!
//! Source: Dinic's blocking flows in level graphs (Ahuja, Magnanti, Orlin, *Network Flows* (1993) §7.5). In a
//! time-expanded graph there are as many phases as different path lengths, which are few.

/// A directed network with capacities, and the flow found in it so far.
#[derive(Clone, Debug)]
pub struct MaxFlow {
    /// The position of each node's first arc in the arrays below, and the end of the last one's.
    first: Vec<u32>,
    to: Vec<u32>,
    /// The same arc as seen from its other end.
    twin: Vec<u32>,
    /// Residual capacity.
    room: Vec<u64>,
    /// The position of each given arc, in the order given.
    place: Vec<u32>,
    /// Distance from the source over arcs with room, or `UNSEEN`.
    level: Vec<u32>,
    /// The next arc of each node to try.
    next: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;

impl MaxFlow {
    /// Creates a network of `nodes` nodes and arcs (from, to, capacity), without flow.
    ///
    /// O(nodes + arcs) time; 40 bytes an arc. Ends are below `nodes`.
    pub fn new(nodes: usize, arcs: &[(u32, u32, u64)]) -> Self {
        let mut first = vec![0_u32; nodes + 1];
        for (from, to, _) in arcs {
            first[*from as usize + 1] += 1;
            first[*to as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let sides = 2 * arcs.len();
        let mut network = Self {
            next: first[..nodes].to_vec(),
            first,
            to: vec![0; sides],
            twin: vec![0; sides],
            room: vec![0; sides],
            place: Vec::with_capacity(arcs.len()),
            level: vec![UNSEEN; nodes],
        };
        arcs.iter().for_each(|arc| network.put(*arc));
        network
    }

    fn put(&mut self, (from, to, capacity): (u32, u32, u64)) {
        let there = self.take_slot(from);
        let back = self.take_slot(to);
        (self.to[there], self.to[back]) = (to, from);
        (self.twin[there], self.twin[back]) = (back as u32, there as u32);
        self.room[there] = capacity;
        self.place.push(there as u32);
    }

    fn take_slot(&mut self, node: u32) -> usize {
        let next = &mut self.next[node as usize];
        *next += 1;
        *next as usize - 1
    }

    /// Sends as much more as possible from `source` to `sink`. Returns how much.
    pub fn run(&mut self, source: u32, sink: u32) -> u64 {
        let mut sent = 0;
        while source != sink && self.levels(source, sink) {
            let nodes = self.level.len();
            self.next.copy_from_slice(&self.first[..nodes]);
            sent += self.blocking_flow(source, sink);
        }
        sent
    }

    /// The units on the arc that was given at this position.
    pub fn on(&self, arc: usize) -> u64 {
        // The flow on an arc is the room of its twin.
        self.room[self.twin[self.place[arc] as usize] as usize]
    }

    /// Raises the capacity of the arc that was given at this position by `more` units.
    pub fn widen(&mut self, arc: usize, more: u64) {
        self.room[self.place[arc] as usize] += more;
    }

    /// Whether a node is on the source's side of the minimum cut, after [`run`](Self::run).
    pub fn near_source(&self, node: u32) -> bool {
        self.level[node as usize] != UNSEEN
    }

    /// Computes distances from the source over arcs with room. Returns whether the sink is in reach.
    fn levels(&mut self, source: u32, sink: u32) -> bool {
        self.level.fill(UNSEEN);
        self.level[source as usize] = 0;
        let mut queue = vec![source];
        let mut head = 0;
        while let Some(node) = queue.get(head).copied() {
            head += 1;
            for arc in self.arcs(node) {
                let to = self.to[arc];
                if self.room[arc] > 0 && self.level[to as usize] == UNSEEN {
                    self.level[to as usize] = self.level[node as usize] + 1;
                    queue.push(to);
                }
            }
        }
        self.level[sink as usize] != UNSEEN
    }

    fn arcs(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }

    /// Finds a blocking flow: advances along levels, pushes at the sink, retreats from dead ends.
    fn blocking_flow(&mut self, source: u32, sink: u32) -> u64 {
        let (mut sent, mut way) = (0, Vec::new());
        let mut at = source;
        loop {
            if at == sink {
                sent += self.push(&way);
                at = self.back_to_room(&mut way);
            } else if let Some(arc) = self.advance(at) {
                way.push(arc);
                at = self.to[arc];
            } else if let Some(arc) = way.pop() {
                at = self.to[self.twin[arc] as usize];
                self.next[at as usize] += 1;
            } else {
                return sent;
            }
        }
    }

    /// The node's next arc with room that leads to the next level.
    fn advance(&mut self, node: u32) -> Option<usize> {
        let end = self.first[node as usize + 1];
        while self.next[node as usize] < end {
            let arc = self.next[node as usize] as usize;
            let further = self.level[self.to[arc] as usize] == self.level[node as usize] + 1;
            if further && self.room[arc] > 0 {
                return Some(arc);
            }
            self.next[node as usize] += 1;
        }
        None
    }

    fn push(&mut self, way: &[usize]) -> u64 {
        let amount = way.iter().map(|arc| self.room[*arc]).min().unwrap_or(0);
        for arc in way {
            self.room[*arc] -= amount;
            self.room[self.twin[*arc] as usize] += amount;
        }
        amount
    }

    /// Shortens the way to before its first full arc. Returns the node where it then ends.
    fn back_to_room(&mut self, way: &mut Vec<usize>) -> u32 {
        let full = way.iter().position(|arc| self.room[*arc] == 0).unwrap_or(0);
        let at = self.to[self.twin[way[full]] as usize];
        way.truncate(full);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The minimum over all cuts of a small network, which is its maximum flow.
    fn smallest_cut(nodes: u32, arcs: &[(u32, u32, u64)]) -> u64 {
        let cut = |side: u32| {
            let crosses =
                |(from, to, _): &&(u32, u32, u64)| side >> from & 1 == 1 && side >> to & 1 == 0;
            arcs.iter().filter(crosses).map(|arc| arc.2).sum()
        };
        let split = |side: &u32| side & 1 == 1 && side >> (nodes - 1) & 1 == 0;
        (0..1 << nodes).filter(split).map(cut).min().unwrap()
    }

    proptest! {
        #[test]
        fn the_flow_equals_the_minimum_cut(
            arcs in prop::collection::vec((0_u32..6, 0_u32..6, 0_u64..9), 0..25),
        ) {
            let mut flow = MaxFlow::new(6, &arcs);
            let sent = flow.run(0, 5);
            prop_assert_eq!(sent, smallest_cut(6, &arcs));
            let crossing = arcs.iter().filter(|arc| flow.near_source(arc.0) && !flow.near_source(arc.1));
            prop_assert_eq!(sent, crossing.map(|arc| arc.2).sum::<u64>());
            for (index, arc) in arcs.iter().enumerate() {
                prop_assert!(flow.on(index) <= arc.2);
            }
        }

        #[test]
        fn a_widened_network_continues_from_its_flow(
            arcs in prop::collection::vec((0_u32..5, 0_u32..5, 1_u64..9), 1..20), more in 1_u64..9,
        ) {
            let mut flow = MaxFlow::new(5, &arcs);
            let before = flow.run(0, 4);
            flow.widen(0, more);
            let mut wide = arcs.clone();
            wide[0].2 += more;
            prop_assert_eq!(before + flow.run(0, 4), smallest_cut(5, &wide));
        }
    }
}
