//! A configuration that changes step by step. The cost of a step depends only on what it touches, and it can be
//! undone.

use super::problem::{Configuration, NONE, Parts, Problem, bits};
use std::collections::BTreeMap;

/// The choice of a subscriber that gets nothing.
pub(super) const NOTHING: u8 = u8::MAX;

/// The least share of the utility that remains after costs, so that any service is better than none.
const LEAST_SHARE: f64 = 0.02;

/// A node's place in a stream's tree.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The parent; [`NONE`]: the node is not in the tree, or is the publisher's.
    parent: u32,
    leg: u32,
    /// The children, as a linked list.
    first: u32,
    next: u32,
    before: u32,
    /// The number of local subscribers that get something.
    served: u32,
    /// The parts that the leg carries.
    parts: Parts,
    /// The transcoders here and above.
    can: u64,
    /// The delay from the publisher, microseconds.
    delay: u64,
    legs: u8,
    is_doubtful: bool,
    /// Whether some leg above differs from the present configuration.
    is_moved: bool,
}

const NOWHERE: Place = Place {
    parent: NONE,
    leg: NONE,
    first: NONE,
    next: NONE,
    before: NONE,
    served: 0,
    parts: 0,
    can: 0,
    delay: 0,
    legs: 0,
    is_doubtful: false,
    is_moved: false,
};

/// A value before a change.
#[derive(Clone, Copy, Debug)]
enum Undo {
    Place(usize, Place),
    Load(u32, u64),
    Egress(u32, u64),
    Choice(u32, u8),
    Worth(u32, f64),
}

/// A position within a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    log: usize,
    total: f64,
}

/// A configuration, its loads and its worth.
#[derive(Clone, Debug)]
pub(super) struct State<'a> {
    problem: &'a Problem,
    places: Vec<Place>,
    /// By leg and by node, bit/s.
    loads: Vec<u64>,
    egress: Vec<u64>,
    choices: Vec<u8>,
    worths: Vec<f64>,
    total: f64,
    /// The changes of the current step.
    log: Vec<Undo>,
    before: f64,
    /// Whether the current step breaks a rule other than a capacity.
    is_bad: bool,
}

impl<'a> State<'a> {
    /// Creates a configuration in which no subscriber gets anything.
    pub fn new(problem: &'a Problem) -> Self {
        let nodes = problem.nodes.len();
        let mut places = vec![NOWHERE; nodes * problem.streams.len()];
        for (stream, of) in problem.streams.iter().enumerate() {
            let root = &mut places[stream * nodes + of.publisher as usize];
            root.can = problem.nodes[of.publisher as usize].transcoders;
        }
        Self {
            problem,
            places,
            loads: vec![0; problem.legs.len()],
            egress: vec![0; nodes],
            choices: vec![NOTHING; problem.subscribers.len()],
            worths: vec![0.0; problem.subscribers.len()],
            total: 0.0,
            log: Vec::new(),
            before: 0.0,
            is_bad: false,
        }
    }

    /// Gives a subscriber this choice by the configuration's route.
    pub fn follow(&mut self, who: u32, choice: u8, configuration: &Configuration) {
        let subscriber = &self.problem.subscribers[who as usize];
        let stream = subscriber.stream;
        let parents = &configuration.parents[stream as usize];
        let mut missing = Vec::new();
        let mut at = subscriber.node;
        while !self.is_in(stream, at) {
            let Some(parent) = parents.get(&at).filter(|_| !missing.contains(&at)) else {
                self.is_bad = true;
                return;
            };
            missing.push(at);
            if *parent as usize >= self.problem.nodes.len() {
                self.is_bad = true;
                return;
            }
            at = *parent;
        }
        for node in missing.iter().rev() {
            self.link(stream, *node, at);
            at = *node;
        }
        self.set_choice(who, choice);
    }

    pub fn configuration(&self) -> Configuration {
        let nodes = self.problem.nodes.len();
        let mut parents = vec![BTreeMap::new(); self.problem.streams.len()];
        for (at, place) in self.places.iter().enumerate().filter(|(_, p)| p.parent != NONE) {
            parents[at / nodes].insert((at % nodes) as u32, place.parent);
        }
        let choice = |choice: &u8| (*choice != NOTHING).then_some(*choice);
        Configuration { choices: self.choices.iter().map(choice).collect(), parents }
    }

    /// The worth of the configuration, with all costs and margins.
    pub const fn total(&self) -> f64 {
        self.total
    }

    /// The gain of the step so far.
    pub const fn gain(&self) -> f64 {
        self.total - self.before
    }

    /// Whether the step breaks no rule so far.
    pub fn is_good(&self) -> bool {
        let is_within = |limit: Option<u64>, load| limit.is_none_or(|limit| load <= limit);
        let has_room = |undo: &Undo| match *undo {
            Undo::Load(leg, _) => {
                let (leg, load) = (&self.problem.legs[leg as usize], self.loads[leg as usize]);
                is_within(leg.limit, load)
            }
            Undo::Egress(node, _) => {
                let (node, load) = (&self.problem.nodes[node as usize], self.egress[node as usize]);
                is_within(node.egress, load)
            }
            _ => true,
        };
        !self.is_bad && self.log.iter().all(has_room)
    }

    /// Whether no gain is possible: all subscribers get their best preference, by the present route or directly from
    /// the publisher.
    pub fn is_content(&self) -> bool {
        (0..).zip(&self.problem.subscribers).all(|(who, subscriber)| {
            let choice = self.choice(who);
            let best = subscriber.preferences.iter().map(|one| one.utility).fold(0.0, f64::max);
            let place = self.places[self.place(subscriber.stream, subscriber.node)];
            choice != NOTHING
                && self.problem.preference(who, choice).utility >= best
                && (place.legs <= 1 || !place.is_moved)
                && !place.is_doubtful
        })
    }

    /// The choice of a subscriber, or [`NOTHING`].
    pub fn choice(&self, who: u32) -> u8 {
        self.choices[who as usize]
    }

    /// The node's parent in the stream's tree, or [`NONE`].
    pub fn parent(&self, stream: u32, node: u32) -> u32 {
        self.places[self.place(stream, node)].parent
    }

    /// Whether the node is in the stream's tree.
    pub fn is_in(&self, stream: u32, node: u32) -> bool {
        let place = &self.places[self.place(stream, node)];
        place.parent != NONE || self.problem.streams[stream as usize].publisher == node
    }

    /// Whether `node` is `top` or beneath it.
    pub fn is_beneath(&self, stream: u32, mut node: u32, top: u32) -> bool {
        while node != top {
            node = self.parent(stream, node);
            if node == NONE {
                return false;
            }
        }
        true
    }

    /// The free capacity of a leg, bit/s.
    pub fn room(&self, leg: u32) -> u64 {
        let limit = self.problem.legs[leg as usize].limit.unwrap_or(u64::MAX);
        let of_node = self.problem.legs[leg as usize].from as usize;
        let egress = self.problem.nodes[of_node].egress.unwrap_or(u64::MAX);
        let of_leg = limit.saturating_sub(self.loads[leg as usize]);
        of_leg.min(egress.saturating_sub(self.egress[of_node]))
    }

    /// Begins a step.
    pub fn begin(&mut self) {
        self.log.clear();
        self.before = self.total;
        self.is_bad = false;
    }

    /// Ends the step, and undoes it if it breaks a rule. Returns whether it was kept.
    pub fn keep_if_good(&mut self) -> bool {
        let is_good = self.is_good();
        if !is_good {
            self.undo();
        }
        is_good
    }

    /// Undoes the step.
    pub fn undo(&mut self) {
        self.undo_to(Mark { log: 0, total: self.before });
    }

    /// The position within the step, which must break no rule so far.
    pub fn mark(&self) -> Mark {
        Mark { log: self.log.len(), total: self.total }
    }

    /// Undoes the step back to this position.
    pub fn undo_to(&mut self, mark: Mark) {
        for undo in self.log.drain(mark.log..).rev() {
            match undo {
                Undo::Place(at, place) => self.places[at] = place,
                Undo::Load(leg, load) => self.loads[leg as usize] = load,
                Undo::Egress(node, load) => self.egress[node as usize] = load,
                Undo::Choice(who, choice) => self.choices[who as usize] = choice,
                Undo::Worth(who, worth) => self.worths[who as usize] = worth,
            }
        }
        self.total = mark.total;
        self.is_bad = false;
    }

    fn place(&self, stream: u32, node: u32) -> usize {
        stream as usize * self.problem.nodes.len() + node as usize
    }

    /// Logs the place, and returns it so that it can be changed.
    fn edit(&mut self, stream: u32, node: u32) -> &mut Place {
        let at = self.place(stream, node);
        self.log.push(Undo::Place(at, self.places[at]));
        &mut self.places[at]
    }

    /// Sets the choice of a subscriber whose node is in the tree. Nodes that serve nobody any more leave the tree.
    pub fn set_choice(&mut self, who: u32, choice: u8) {
        let subscriber = &self.problem.subscribers[who as usize];
        let (stream, node) = (subscriber.stream, subscriber.node);
        let old = self.choices[who as usize];
        self.log.push(Undo::Choice(who, old));
        self.choices[who as usize] = choice;
        let (was, is) = (u32::from(old != NOTHING), u32::from(choice != NOTHING));
        let place = self.edit(stream, node);
        place.served = place.served - was + is;
        self.judge(who);
        self.refresh(stream, node);
        self.prune(stream, node);
    }

    /// Attaches the node by this route, whose first node is in the tree; the last one becomes the parent.
    pub fn attach(&mut self, stream: u32, node: u32, way: &[u32]) {
        let old = self.parent(stream, node);
        if old != NONE {
            self.unlink(stream, node);
        }
        for ends in way.windows(2) {
            if !self.is_bad && !self.is_in(stream, ends[1]) {
                self.link(stream, ends[1], ends[0]);
            }
        }
        if let Some(parent) = way.last().filter(|_| !self.is_bad) {
            self.link(stream, node, *parent);
        }
        if old != NONE && !self.is_bad {
            self.prune(stream, old);
        }
    }

    /// Attaches a node with its subtree to `parent`.
    fn link(&mut self, stream: u32, node: u32, parent: u32) {
        let leg = self.problem.leg_of(parent, node);
        let is_beneath = self.is_beneath(stream, parent, node);
        let Some(leg) = leg.filter(|_| self.is_in(stream, parent) && !is_beneath) else {
            self.is_bad = true;
            return;
        };
        self.is_bad |= !self.problem.may_send(stream, parent);
        let next = self.places[self.place(stream, parent)].first;
        let place = self.edit(stream, node);
        (place.parent, place.leg, place.next, place.before) = (parent, leg, next, NONE);
        self.edit(stream, parent).first = node;
        if next != NONE {
            self.edit(stream, next).before = node;
        }
        self.settle(stream, node);
        self.refresh(stream, parent);
    }

    /// Detaches a node with its subtree from its parent.
    fn unlink(&mut self, stream: u32, node: u32) {
        let Place { parent, next, before, .. } = self.places[self.place(stream, node)];
        self.set_flow(stream, node, 0);
        match before {
            NONE => self.edit(stream, parent).first = next,
            _ => self.edit(stream, before).next = next,
        }
        if next != NONE {
            self.edit(stream, next).before = before;
        }
        let place = self.edit(stream, node);
        (place.parent, place.leg, place.next, place.before) = (NONE, NONE, NONE, NONE);
        self.refresh(stream, parent);
    }

    /// Removes nodes that serve nobody, from this one upwards.
    fn prune(&mut self, stream: u32, mut node: u32) {
        loop {
            let place = self.places[self.place(stream, node)];
            if place.parent == NONE || place.served > 0 || place.first != NONE {
                return;
            }
            self.unlink(stream, node);
            node = place.parent;
        }
    }

    /// Updates the node and its subtree after a change of its parent.
    fn settle(&mut self, stream: u32, node: u32) {
        let problem = self.problem;
        let own = self.places[self.place(stream, node)];
        let above = self.places[self.place(stream, own.parent)];
        let leg = &problem.legs[own.leg as usize];
        let was = problem.was(stream, node).map(|was| was.parent);
        let place = self.edit(stream, node);
        place.legs = above.legs.saturating_add(1);
        place.delay = above.delay + leg.delay.as_micros() as u64;
        place.is_doubtful = above.is_doubtful || leg.is_unknown;
        place.can = above.can | problem.nodes[node as usize].transcoders;
        place.is_moved = above.is_moved || was != Some(own.parent);
        self.is_bad |= above.legs >= problem.terms.max_legs;
        if self.is_bad {
            return;
        }
        let mut child = own.first;
        while child != NONE {
            self.settle(stream, child);
            child = self.places[self.place(stream, child)].next;
        }
        if own.served > 0 {
            problem.locals(stream, node).for_each(|who| self.judge(who));
        }
        let parts = self.carried(stream, node);
        self.set_flow(stream, node, parts);
    }

    /// Updates the parts on the leg to a node and on the legs above.
    fn refresh(&mut self, stream: u32, mut node: u32) {
        loop {
            let place = self.places[self.place(stream, node)];
            if place.parent == NONE {
                return;
            }
            let parts = self.carried(stream, node);
            if parts == place.parts {
                return;
            }
            self.set_flow(stream, node, parts);
            node = place.parent;
        }
    }

    /// The parts that the leg to a node must carry: those that are requested at or below the node and not made there.
    fn carried(&self, stream: u32, node: u32) -> Parts {
        let place = self.places[self.place(stream, node)];
        let mut wanted = 0;
        if place.served > 0 {
            for who in self.problem.locals(stream, node) {
                let choice = self.choices[who as usize];
                if choice != NOTHING {
                    wanted |= self.problem.preference(who, choice).parts;
                }
            }
        }
        let mut child = place.first;
        while child != NONE {
            let beneath = self.places[self.place(stream, child)];
            wanted |= beneath.parts;
            child = beneath.next;
        }
        let above = self.places[self.place(stream, place.parent)].can;
        self.made_here(stream, wanted, above)
    }

    /// Replaces parts that no node above can make by the input of their transcoders.
    fn made_here(&self, stream: u32, wanted: Parts, above: u64) -> Parts {
        let of = &self.problem.streams[stream as usize].parts;
        let mut parts = wanted;
        for part in bits(wanted) {
            if let Some(made) = of[part].made.filter(|made| above & (1 << made.transcoder) == 0) {
                parts = (parts & !(1 << part)) | made.from;
            }
        }
        parts
    }

    /// Sets the parts on the leg to a node.
    fn set_flow(&mut self, stream: u32, node: u32, parts: Parts) {
        let place = self.places[self.place(stream, node)];
        if place.parts == parts {
            return;
        }
        let (old, new) = (place.parts & !parts, parts & !place.parts);
        let (less, more) = (self.problem.rate(stream, old), self.problem.rate(stream, new));
        self.edit(stream, node).parts = parts;
        let (leg, from) = (place.leg as usize, place.parent as usize);
        let load = self.loads[leg];
        self.log.push(Undo::Load(place.leg, load));
        self.loads[leg] = load - less + more;
        let egress = self.egress[from];
        self.log.push(Undo::Egress(place.parent, egress));
        self.egress[from] = egress - less + more;
    }

    /// Updates the worth of a subscriber, and checks whether it may get its choice.
    fn judge(&mut self, who: u32) {
        let worth = self.worth(who);
        let old = self.worths[who as usize];
        if worth.to_bits() != old.to_bits() {
            self.log.push(Undo::Worth(who, old));
            self.worths[who as usize] = worth;
            self.total += worth - old;
        }
    }

    fn worth(&mut self, who: u32) -> f64 {
        let choice = self.choices[who as usize];
        if choice == NOTHING {
            return 0.0;
        }
        let (problem, terms) = (self.problem, &self.problem.terms);
        let subscriber = &problem.subscribers[who as usize];
        let place = self.places[self.place(subscriber.stream, subscriber.node)];
        let preference = problem.preference(who, choice);
        self.is_bad |= u128::from(place.delay) > subscriber.latency.as_micros();
        self.is_bad |= !self.is_made(subscriber.stream, preference.parts, place.can);
        if problem.is_lift(who, choice) {
            self.is_bad |= subscriber.is_held || !self.is_proven(who, preference.parts);
        }
        let more_legs = f64::from(place.legs.saturating_sub(1));
        let doubt = if place.is_doubtful { terms.doubt } else { 1.0 };
        let share = doubt - terms.hop * more_legs - terms.delay * place.delay as f64 / 1e6;
        let worth = preference.utility * share - self.margin(who, choice, place.is_moved);
        subscriber.weight * worth.max(LEAST_SHARE * preference.utility)
    }

    /// The least gain of a change from the present configuration.
    fn margin(&self, who: u32, choice: u8, is_moved: bool) -> f64 {
        let (problem, terms) = (self.problem, &self.problem.terms);
        let Some(was) = problem.present.choices[who as usize] else { return 0.0 };
        let level = if was == choice { 0.0 } else { terms.level_margin };
        let route = if is_moved { terms.route_margin } else { 0.0 };
        problem.preference(who, 0).utility * (level + route)
    }

    /// Whether some node on the route can make each part that needs a transcoder.
    fn is_made(&self, stream: u32, parts: Parts, can: u64) -> bool {
        let of = &self.problem.streams[stream as usize].parts;
        let made = bits(parts).filter_map(|part| of[part].made);
        made.into_iter().all(|made| can & (1 << made.transcoder) != 0)
    }

    /// Whether each leg carries these parts already, or has a recent estimate.
    fn is_proven(&self, who: u32, parts: Parts) -> bool {
        let subscriber = &self.problem.subscribers[who as usize];
        let (stream, mut node) = (subscriber.stream, subscriber.node);
        loop {
            let place = self.places[self.place(stream, node)];
            if place.parent == NONE {
                return true;
            }
            if !self.problem.legs[place.leg as usize].may_lift {
                let above = self.places[self.place(stream, place.parent)].can;
                let needed = self.made_here(stream, parts, above);
                let was = self.problem.was(stream, node);
                if !was.is_some_and(|was| was.parent == place.parent && needed & !was.parts == 0) {
                    return false;
                }
            }
            node = place.parent;
        }
    }
}
