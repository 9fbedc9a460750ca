//! A mesh on loopback for tests: relays with real channels, and a client.

use super::super::*;
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{collections::BTreeSet, sync::mpsc::Receiver};
use thalweg_base::budget::Budget;
use thalweg_base::log::Event;
use thalweg_mesh::{Membership, MeshPeer};
use thalweg_net::{
    DialError, DialOptions, Dialer, Hop, PrivateKey, Route, Stream,
    channel::{Acceptor, Connector, Protocol},
};
use thalweg_units::WallTime;
use thalweg_wire::{
    Destination, Signed, Signer as _,
    mesh::{LegKind, Member, Role, Roster, Rule, Tag, Terms},
};
use tokio::task::JoinSet;

pub fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

pub fn tags(texts: &[&str]) -> BTreeSet<Tag> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

/// A member with the keys `seed` (daemon) and `seed + 100` (client).
pub fn member(name: &str, seed: u8, addresses: &[&str], tagged: &[&str]) -> Member {
    Member {
        name: name.parse().unwrap(),
        node: Some(key(seed).id()),
        client: key(seed + 100).id(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        roles: [Role::Client, Role::Relay].into(),
        tags: tags(tagged),
    }
}

pub fn roster(version: u64, mut members: Vec<Member>, rules: Vec<Rule>) -> Roster {
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let (not_before, expiry) = (WallTime::from_unix_nanos(0), WallTime::from_unix_nanos(u64::MAX));
    Roster { version, not_before, expiry, members, rules, endorsement: None, predecessor: None }
}

fn signed(roster: Roster) -> Vec<u8> {
    Signed::sign(roster, &key(250)).encode()
}

/// A running relay.
pub struct Node {
    pub at: SocketAddr,
    pub log: Receiver<Event>,
    pub registry: Registry,
    pub counts: RelayMetrics,
    seed: u8,
    membership: Membership,
    _tasks: JoinSet<()>,
}

/// Relays `r1`, `r2`, … (seeds 1, 2, …), and the client `c` (seed 90).
pub struct Scene {
    pub nodes: Vec<Node>,
    roster: Roster,
}

/// The parameters of a scene.
pub struct Plan {
    /// The tags of each relay; their number is the number of relays.
    pub tags: Vec<&'static [&'static str]>,
    pub rules: Vec<Rule>,
    pub change: fn(&mut RelayConfig),
}

impl Default for Plan {
    fn default() -> Self {
        Self { tags: vec![&[], &[]], rules: Vec::new(), change: |_| {} }
    }
}

impl Scene {
    pub async fn new(plan: Plan) -> Self {
        Self::with(plan, Vec::new()).await
    }

    /// Adds a member with the tag `country=xx`, which the roster lists with this address.
    pub async fn with_named(plan: Plan, at: &Destination) -> Self {
        Self::with(plan, vec![member("hidden", 80, &[&at.to_string()], &["country=xx"])]).await
    }

    async fn with(plan: Plan, more: Vec<Member>) -> Self {
        let mut listeners = Vec::new();
        for _ in &plan.tags {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let mut members = vec![member("c", 90, &[], &["guest"])];
        for ((listener, tags), seed) in listeners.iter().zip(&plan.tags).zip(1..) {
            let at = listener.local_addr().unwrap().to_string();
            members.push(member(&format!("r{seed}"), seed, &[&at], tags));
        }
        members.extend(more);
        let roster = roster(1, members, plan.rules);
        let start = |(listener, seed)| Node::start(listener, seed, &roster, plan.change);
        let nodes = listeners.into_iter().zip(1..).map(start).collect();
        Self { nodes, roster }
    }

    /// Dials `to` through these relays as `c`, with legs of this kind.
    pub async fn dial(
        &self,
        through: &[usize],
        leg: LegKind,
        avoid: &[&str],
        to: &Destination,
    ) -> Result<Stream, DialError> {
        let hop = |&i: &usize| {
            let node = &self.nodes[i - 1];
            let terms = Terms { leg, avoid: tags(avoid) };
            Hop::mesh(node.at.into(), key(node.seed).id(), terms)
        };
        let route = Route::new(through.iter().map(hop).collect()).unwrap();
        let identity = Connector::new(&key(190)).unwrap();
        Dialer::with_identity(DialOptions::default(), identity).dial(&route, to).await
    }

    /// Removes the client from the roster.
    pub fn revoke_client(&mut self) {
        self.roster.version += 1;
        self.roster.members.retain(|m| m.name.as_str() != "c");
        for node in &self.nodes {
            node.membership.offer(&signed(self.roster.clone())).unwrap();
        }
    }
}

impl Node {
    fn start(
        listener: TcpListener,
        seed: u8,
        roster: &Roster,
        change: fn(&mut RelayConfig),
    ) -> Self {
        let at = listener.local_addr().unwrap();
        let membership = Membership::new(key(250).id(), None);
        membership.offer(&signed(roster.clone())).unwrap();
        let mut config = RelayConfig::new(at);
        let net = "127.0.0.0/8".parse().unwrap();
        config.egress = EgressPolicy::new(vec![net], vec!["1024-65535".parse().unwrap()]);
        change(&mut config);
        let mut registry = Registry::default();
        let metrics = RelayMetrics::register(&mut registry);
        let counts = metrics.clone();
        let (log, queue) = Log::to_queue();
        let (own, budget) = (key(seed).id(), Arc::new(Budget::new()));
        let relay = MeshRelay::new(own, config, membership.clone(), budget, metrics, log).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, seed, membership.clone(), relay));
        Self { at, log: queue, registry, counts, seed, membership, _tasks: tasks }
    }

    /// Waits for the next log line, which is written when a session ends.
    pub async fn line(&self) -> String {
        loop {
            match self.log.try_recv() {
                Ok(event) => return event.to_string(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

async fn accept(listener: TcpListener, seed: u8, membership: Membership, relay: MeshRelay) {
    let admission = Arc::new(membership.clone());
    let acceptor = Acceptor::new(&key(seed), admission, &[Protocol::Relay]).unwrap();
    let mut sessions = JoinSet::new();
    loop {
        let (tcp, from) = listener.accept().await.unwrap();
        let (acceptor, membership, relay) = (acceptor.clone(), membership.clone(), relay.clone());
        sessions.spawn(async move {
            let Ok(channel) = acceptor.accept(tcp).await else { return };
            let peer: Option<MeshPeer> = membership.peer(&channel.peer(), membership.now());
            if let Some(peer) = peer {
                relay.serve(channel, peer, from).await;
            }
        });
    }
}
