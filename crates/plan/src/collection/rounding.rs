//! Makes a splittable flow unsplittable: the algorithm of Dinitz, Garg and Goemans.
//!
//! Their algorithm has one source and many sinks; here all arcs are reversed. A file moves over an arc that carries at
//! least its size, and takes its flow with it. If no file can move, flow is shifted around an alternating cycle, which
//! empties an arc or fills one to a file's size. Flow is only ever added to *singular* arcs, whose start has a single
//! line of arcs before it, and at most one file goes over such an arc. So each arc gets less than the largest file more
//! than its flow.

/// Finds the arcs that each file goes over.
pub struct Rounding {
    arcs: Vec<(u32, u32)>,
    /// Arcs by the node that they leave.
    out: Vec<Vec<usize>>,
    /// Arcs by the node that they enter.
    into: Vec<Vec<usize>>,
    /// What remains of the flow on each arc.
    flow: Vec<u64>,
    sizes: Vec<u64>,
    /// The node at which each file is.
    at: Vec<u32>,
    /// The files at each node.
    here: Vec<Vec<usize>>,
    to: u32,
    /// By file: its arcs, in order.
    pub ways: Vec<Vec<usize>>,
}

/// An arc of an alternating cycle.
#[derive(Clone, Copy)]
struct CycleStep {
    arc: usize,
    /// Whether flow is added to the arc; otherwise it is removed.
    adds: bool,
}

impl Rounding {
    /// Finds ways for files (node, size) to node `to`, from a flow without cycles that carries exactly these files.
    pub fn run(
        nodes: u32,
        to: u32,
        arcs: &[(u32, u32)],
        flow: Vec<u64>,
        files: &[(u32, u64)],
    ) -> Self {
        let mut rounding = Self {
            arcs: arcs.to_vec(),
            out: vec![Vec::new(); nodes as usize],
            into: vec![Vec::new(); nodes as usize],
            flow,
            sizes: files.iter().map(|file| file.1).collect(),
            at: files.iter().map(|file| file.0).collect(),
            here: vec![Vec::new(); nodes as usize],
            to,
            ways: vec![Vec::new(); files.len()],
        };
        for (arc, (from, to)) in arcs.iter().enumerate() {
            rounding.out[*from as usize].push(arc);
            rounding.into[*to as usize].push(arc);
        }
        for (file, (node, _)) in files.iter().enumerate() {
            rounding.here[*node as usize].push(file);
        }
        rounding.advance(true);
        while let Some(cycle) = rounding.cycle() {
            if !rounding.shift(&cycle) {
                break;
            }
            rounding.advance(false);
        }
        rounding.finish();
        rounding
    }

    /// Moves files while any can move, over arcs that carry them. Except at first, a file moves over a singular arc
    /// only if that empties the arc.
    fn advance(&mut self, first: bool) {
        let mut open: Vec<usize> = (0..self.sizes.len()).collect();
        while let Some(file) = open.pop() {
            while let Some(arc) = self.carrier(file, first) {
                self.carry(file, arc);
                // This may make arcs singular for other files at the start, which are tried again after the next shift.
            }
        }
    }

    fn carrier(&self, file: usize, first: bool) -> Option<usize> {
        let (node, size) = (self.at[file], self.sizes[file]);
        if node == self.to {
            return None;
        }
        let carries = |arc: &&usize| {
            let flow = self.flow[**arc];
            flow >= size && (first || flow == size || !self.singular(node))
        };
        // The tightest arc: what is left on it is of least use to others.
        self.out[node as usize].iter().filter(carries).min_by_key(|arc| self.flow[**arc]).copied()
    }

    fn carry(&mut self, file: usize, arc: usize) {
        let (from, to) = self.arcs[arc];
        self.flow[arc] -= self.sizes[file].min(self.flow[arc]);
        self.here[from as usize].retain(|other| *other != file);
        self.here[to as usize].push(file);
        self.at[file] = to;
        self.ways[file].push(arc);
    }

    /// The arcs with flow into a node.
    fn entering(&self, node: u32) -> impl Iterator<Item = usize> + '_ {
        self.into[node as usize].iter().copied().filter(|arc| self.flow[*arc] > 0)
    }

    /// Whether this node and all nodes before it have at most one arc with flow into them.
    fn singular(&self, mut node: u32) -> bool {
        loop {
            let mut entering = self.entering(node);
            let Some(arc) = entering.next() else { return true };
            if entering.next().is_some() {
                return false;
            }
            node = self.arcs[arc].0;
        }
    }

    /// Finds an alternating cycle: goes back over arcs to a node that no arc enters, then forward over singular arcs to
    /// a node that another arc enters, and so on until a node repeats.
    fn cycle(&self) -> Option<Vec<CycleStep>> {
        let start = (0..self.arcs.len()).find(|arc| self.flow[*arc] > 0)?;
        let mut node = self.arcs[start].1;
        let mut steps: Vec<CycleStep> = Vec::new();
        let mut nodes = vec![node];
        let mut back = true;
        loop {
            let came = steps.last().map(|step| step.arc);
            let other = |arc: &usize| Some(*arc) != came;
            let entering = self.entering(node).find(other);
            let step = match (back, entering) {
                (_, Some(arc)) => CycleStep { arc, adds: false },
                _ => {
                    let mut leaving = self.out[node as usize].iter().copied();
                    let arc = leaving.find(|arc| self.flow[*arc] > 0 && other(arc))?;
                    CycleStep { arc, adds: true }
                }
            };
            back = !step.adds;
            let (from, to) = self.arcs[step.arc];
            node = if step.adds { to } else { from };
            steps.push(step);
            if let Some(first) = nodes.iter().position(|seen| *seen == node) {
                return Some(steps.split_off(first));
            }
            nodes.push(node);
        }
    }

    /// Shifts as much flow as empties an arc or fills one to a file's size. Returns whether anything was shifted.
    fn shift(&mut self, cycle: &[CycleStep]) -> bool {
        let room = |step: &CycleStep| {
            let flow = self.flow[step.arc];
            if !step.adds {
                return Some(flow);
            }
            let files = self.here[self.arcs[step.arc].0 as usize].iter();
            files
                .filter(|file| self.sizes[**file] > flow)
                .map(|file| self.sizes[*file] - flow)
                .min()
        };
        let empties = cycle.iter().any(|step| !step.adds);
        let amount = cycle.iter().filter_map(room).min().filter(|_| empties).unwrap_or(0);
        for step in cycle {
            let flow = &mut self.flow[step.arc];
            *flow = if step.adds { *flow + amount } else { *flow - amount };
        }
        amount > 0
    }

    /// Sends files that are still on their way over the fewest arcs. Only rounding errors can leave such files.
    fn finish(&mut self) {
        for file in 0..self.sizes.len() {
            let rest = self.soonest(self.at[file], self.to, |_| 0.0).unwrap_or_default();
            rest.into_iter().for_each(|arc| self.carry(file, arc));
        }
    }

    /// The way from a node to another whose slowest arc is done soonest; among equals the one with the fewest arcs.
    /// Bellman–Ford with a queue.
    pub fn soonest(&self, from: u32, to: u32, takes: impl Fn(usize) -> f64) -> Option<Vec<usize>> {
        let mut best: Vec<Option<(f64, u32, usize)>> = vec![None; self.out.len()];
        best[from as usize] = Some((0.0, 0, usize::MAX));
        let mut open = std::collections::VecDeque::from([from]);
        while let Some(node) = open.pop_front() {
            let Some((so_far, arcs, _)) = best[node as usize] else { continue };
            for arc in &self.out[node as usize] {
                let next = self.arcs[*arc].1;
                let by = (so_far.max(takes(*arc)), arcs + 1, *arc);
                let better = best[next as usize]
                    .is_none_or(|now| by.0 < now.0 || (by.0 == now.0 && by.1 < now.1));
                if better {
                    best[next as usize] = Some(by);
                    open.push_back(next);
                }
            }
        }
        let (mut way, mut node) = (Vec::new(), to);
        while node != from {
            let (_, _, arc) = best[node as usize]?;
            way.push(arc);
            node = self.arcs[arc].0;
        }
        way.reverse();
        Some(way)
    }
}
