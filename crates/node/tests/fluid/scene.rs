//! Sources `n1` and `n2`, the relay `n3`, and `n4`, the destination.

use crate::{
    gated::Gated,
    nodes::{Node, introduce, list, name},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_files::inventory::{Inventory, MissingFile};
use thalweg_gather::{
    CollectContext, Event, EventSink,
    fluid::{FluidOutcome, Settings, run},
};
use thalweg_paths::overlay::Overlay;
use thalweg_plan::Graph;
use thalweg_units::Rate;
use thalweg_wire::object::{FileRef, Kind};
use tokio::runtime::{Builder, Runtime};

/// Events, in order.
#[derive(Debug, Default)]
pub struct Events(Mutex<Vec<Event>>);

impl EventSink for Events {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl Events {
    pub fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(wanted)
    }
}

/// Each node has a runtime of its own, so that it can be killed with all its tasks.
pub struct Scene {
    nodes: [Node; 4],
    runtimes: [Option<Runtime>; 4],
    pub events: Arc<Events>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        (0..4).for_each(|index| self.kill(index));
    }
}

async fn start(n: u8, members: &'static [&'static str]) -> (Node, Option<Runtime>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let node = runtime.spawn(Node::start(n, members)).await.unwrap();
    (node, Some(runtime))
}

/// Bytes without near repetitions.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; length];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut out);
    out
}

impl Scene {
    pub async fn new() -> Self {
        let (a, b) = (start(1, &["*"]).await, start(2, &["*"]).await);
        let (relay, here) = (start(3, &[]).await, start(4, &[]).await);
        introduce(&[&a.0, &b.0, &relay.0, &here.0]);
        let nodes = [a.0, b.0, relay.0, here.0];
        Self { nodes, runtimes: [a.1, b.1, relay.1, here.1], events: Arc::default() }
    }

    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// As `kill -9` does: all its connections are reset.
    pub fn kill(&mut self, index: usize) {
        if let Some(runtime) = self.runtimes[index].take() {
            runtime.shutdown_background();
        }
    }

    /// All files of both sources.
    pub async fn inventory(&self) -> Inventory {
        let mut files = Vec::new();
        for source in 0..2 {
            let node = self.node(source);
            let mut remote = self.node(3).open(node, &[]).await;
            let root = node.root("");
            let (entries, failed) = list(&mut remote, &[&root], &[]).await;
            assert!(failed.is_empty());
            for entry in entries {
                let Kind::File { snapshot } = entry.kind else { continue };
                let file = FileRef { root: root.clone(), path: entry.path, snapshot };
                let missing = std::iter::once(0..snapshot.size).collect();
                files.push(MissingFile { source: source as u32, file, missing });
            }
        }
        Inventory { files }
    }

    /// A landing for the whole inventory.
    pub fn land(inventory: &Inventory, gate: u64) -> Arc<Gated> {
        let sizes = inventory.files.iter().map(|wanted| wanted.file.snapshot.size);
        Arc::new(Gated::new(sizes, gate))
    }

    /// The context of a collection, in which the first source's own leg is given as slow, and the relay's not.
    pub fn context(&self, inventory: Inventory, land: Arc<Gated>) -> CollectContext {
        let mut rates = Graph::new(4);
        for (from, to, mbps) in [(0, 3, 100.0), (0, 2, 300.0), (2, 3, 300.0), (1, 3, 400.0)] {
            rates.set(from, to, Some(Rate::from_mbps(mbps)));
        }
        let overlay = Overlay {
            names: (1..=4).map(name).collect(),
            sources: 2,
            rates,
            rtts: Default::default(),
        };
        CollectContext {
            idle_remotes: thalweg_gather::IdleRemotes::default(),
            dialer: self.node(3).dialer(),
            overlay: Arc::new(overlay),
            inventory: Arc::new(inventory),
            land,
            events: self.events.clone(),
            connections: Default::default(),
            stop: Default::default(),
        }
    }

    /// Checks that all files of these sources are here, as they are there.
    pub fn check(&self, sources: &[usize], inventory: &Inventory, land: &Gated) {
        for (number, wanted) in inventory.files.iter().enumerate() {
            let source = wanted.source as usize;
            if sources.contains(&source) {
                let path = std::str::from_utf8(wanted.file.path.as_bytes()).unwrap();
                let there = std::fs::read(self.node(source).data.join(path)).unwrap();
                assert!(land.file(number) == there, "{path} of {source}");
            }
        }
    }
}

/// Settings that decide quickly, so that tests are short.
pub fn settings() -> Settings {
    Settings {
        interval: Some(Duration::from_millis(100)),
        patience: Duration::from_millis(500),
        ..Settings::default()
    }
}

pub async fn collect(context: &CollectContext) -> FluidOutcome {
    run(context, settings()).await.unwrap()
}
