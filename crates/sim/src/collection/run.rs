//! Runs a method: its transfers begin and end beside the background.

use super::{background::Background, bound::BackgroundRecord, methods::Method, topology::Topology};
use crate::engine::{Engine, Flow, FlowId};
use std::collections::BTreeMap;

/// The bytes of a first window: ten segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * 1460.0;

/// A run that is not over after this long has gone wrong, s.
const LONGEST: f64 = 1e6;

/// One transfer of a method, which a TCP connection carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The method's id of it.
    pub id: usize,
    /// The hosts on its path: two, or more if intermediates forward it as it arrives.
    pub hosts: Vec<usize>,
    /// Its size, Mbit.
    pub size: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectionOutcome {
    /// Seconds until all data had arrived.
    pub makespan: f64,
    /// Mean rate of a background FTP during the run, Mbit/s.
    pub background: f64,
    /// What the background moved over each link.
    pub record: BackgroundRecord,
    /// The most of others' data that a host held, Mbit by host.
    pub storage: BTreeMap<usize, f64>,
}

/// The setting in which methods are compared: the network, the hosts, the background.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The links.
    pub net: Topology,
    /// The hosts' nodes; the destination is last.
    pub hosts: Vec<usize>,
    /// The background before it starts.
    pub background: Background,
}

impl Scenario {
    /// The links on the path along these hosts, each once; and the longest round trip of a leg, s.
    fn path_links(&self, hosts: &[usize]) -> (Vec<u32>, f64) {
        let legs = hosts.windows(2);
        let legs = legs.filter_map(|leg| self.net.route(self.hosts[leg[0]], self.hosts[leg[1]]));
        let legs: Vec<Vec<u32>> = legs.collect();
        let rtt = legs.iter().map(|links| self.net.rtt(links)).fold(0.0, f64::max);
        let mut links = legs.concat();
        links.sort_unstable();
        links.dedup();
        (links, rtt)
    }

    /// The time until a connection is up to speed: a round trip for the handshake, and slow start's doublings to what
    /// the idle path would hold in flight, at half speed on average.
    fn setup_time(&self, links: &[u32], rtt: f64, size: f64) -> f64 {
        let alone =
            links.iter().map(|l| self.net.capacity[*l as usize]).fold(f64::INFINITY, f64::min);
        let window = (alone * 1e6 / 8.0 * rtt).min(size * 1e6 / 8.0);
        let doublings = (window / FIRST_WINDOW).max(1.0).log2();
        rtt * (1.0 + doublings / 2.0)
    }

    /// Mean rate of a flow of `size` Mbit between two hosts, `times` times one after the other, Mbit/s: this is how the
    /// paper measures c′. Differs: a flow that is not over after `longest` s counts as far as it came, which changes
    /// little on a crowded path and saves hours of simulated time.
    pub fn measure_rate(
        &self,
        from: usize,
        to: usize,
        size: f64,
        times: usize,
        longest: f64,
    ) -> f64 {
        let (links, rtt) = self.path_links(&[from, to]);
        let setup = self.setup_time(&links, rtt, size);
        let mut engine = Engine::new(self.net.capacity.clone());
        let mut background = self.background.clone();
        background.start(&mut engine);
        let (mut moved, mut count) = (0.0, 0);
        while count < times && engine.now() < longest {
            background.pass(&mut engine, setup);
            let flow = Flow { links: links.clone(), limit: f64::INFINITY, size };
            let Some(flow) = engine.start([flow]).first().copied() else { break };
            let mut ended = false;
            while !ended && engine.now() < longest {
                ended = engine.advance(background.changes().min(longest)).contains(&flow);
                background.change(&mut engine);
            }
            moved += size - engine.stop(&[flow])[0];
            count += 1;
        }
        moved / engine.now()
    }

    /// Mean rate of a background FTP in the first `seconds` without any collection, Mbit/s.
    pub fn undisturbed_rate(&self, seconds: f64) -> f64 {
        let mut engine = Engine::new(self.net.capacity.clone());
        let mut background = self.background.clone();
        background.start(&mut engine);
        background.pass(&mut engine, seconds);
        background.finish(&mut engine)
    }

    /// Carries out a method.
    pub fn run(&self, method: &mut dyn Method) -> CollectionOutcome {
        let mut run = MethodRun {
            scenario: self,
            engine: Engine::new(self.net.capacity.clone()),
            background: self.background.clone(),
            flows: BTreeMap::new(),
            starting: Vec::new(),
            record: BackgroundRecord::default(),
        };
        run.background.start(&mut run.engine);
        while !method.is_finished() && run.engine.now() < LONGEST {
            run.step(method);
        }
        run.record_background(true);
        let makespan = run.engine.now();
        let background = run.background.finish(&mut run.engine);
        CollectionOutcome { makespan, background, record: run.record, storage: method.storage() }
    }
}

struct MethodRun<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    background: Background,
    /// By flow: the method's id of it, and its size, Mbit.
    flows: BTreeMap<FlowId, (usize, f64)>,
    /// Connections that are being set up: (time of the first byte, id, flow).
    starting: Vec<(f64, usize, Flow)>,
    record: BackgroundRecord,
}

impl MethodRun<'_> {
    /// Notes what the background has moved, if a note is due or it is the last.
    fn record_background(&mut self, last: bool) {
        let now = self.engine.now();
        if last || now >= self.record.next_due() {
            let links = self.scenario.net.capacity.len();
            self.record.add(now, self.background.carried(&self.engine, links));
        }
    }

    /// Tells the method how far its transfers are, and ends those that it no longer wants.
    fn update_method(&mut self, method: &mut dyn Method) {
        let moved =
            |(flow, id): (&FlowId, &(usize, f64))| (id.0, id.1 - self.engine.remaining(*flow));
        let moved = self.flows.iter().map(moved).collect();
        method.observe(self.engine.now(), &moved);
        for id in method.take_ended() {
            let flow = self.flows.iter().find(|(_, other)| other.0 == id).map(|(flow, _)| *flow);
            if let Some(flow) = flow {
                self.engine.stop(&[flow]);
                self.flows.remove(&flow);
            }
            self.starting.retain(|starting| starting.1 != id);
        }
    }

    /// Advances to the next event.
    fn step(&mut self, method: &mut dyn Method) {
        self.record_background(false);
        self.update_method(method);
        for sending in method.start_due(self.engine.now()) {
            let (links, rtt) = self.scenario.path_links(&sending.hosts);
            let at = self.engine.now() + self.scenario.setup_time(&links, rtt, sending.size);
            let flow = Flow { links, limit: f64::INFINITY, size: sending.size };
            self.starting.push((at, sending.id, flow));
        }
        let starts = self.starting.iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
        let wakes = method.next_wake(self.engine.now()).unwrap_or(f64::INFINITY);
        let then = starts.min(wakes).min(self.background.changes()).min(LONGEST);
        for flow in self.engine.advance(then) {
            if let Some((id, _)) = self.flows.remove(&flow) {
                method.complete(id, self.engine.now());
            }
        }
        self.background.change(&mut self.engine);
        self.start_flows();
    }

    fn start_flows(&mut self) {
        let now = self.engine.now();
        let (due, later) = std::mem::take(&mut self.starting).into_iter().partition(|s| s.0 <= now);
        self.starting = later;
        let due: Vec<(f64, usize, Flow)> = due;
        for (_, id, flow) in due {
            let size = flow.size;
            if let Some(name) = self.engine.start([flow]).first() {
                self.flows.insert(*name, (id, size));
            }
        }
    }
}
