//! Nodes `n1`, `n2`, … in this process, whose carriers have a device of the test instead of a TUN.

use crate::members::{
    ANYWHERE, config, dialer, key, member, membership, name, nothing, served, signed,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use thalweg_base::{budget::Budget, log::Log};
use thalweg_mesh::{
    Membership, carrier_network::Network, member_dialer::MemberDialer, service::MemberService,
};
use thalweg_node::daemon::{Daemon, Services};
use thalweg_probe::{
    carrier::{Carrier, CarrierReport, CarrierSettings, Device, OpenPorts, PacketSink},
    prober::ProbeBudget,
    trains::{Endpoint, Trains},
};
use thalweg_units::ByteSize;
use thalweg_wire::{Signer as _, mesh::Role};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::timeout,
};

/// Longer than any wait on the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The most packets that wait in a device.
const QUEUE: usize = 10_000;

/// A device of the test.
#[derive(Debug)]
struct Fake {
    from_programs: Mutex<mpsc::Receiver<Vec<u8>>>,
    to_programs: mpsc::Sender<Vec<u8>>,
}

impl PacketSink for Fake {
    fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        self.to_programs.try_send(packet.to_vec()).map_err(io::Error::other)
    }
}

impl Device for Fake {
    async fn next(&self, packet: &mut [u8]) -> io::Result<usize> {
        let next = self.from_programs.lock().await.recv().await;
        let next = next.ok_or_else(|| io::Error::other("somebody deleted it"))?;
        packet[..next.len()].copy_from_slice(&next);
        Ok(next.len())
    }
}

/// A node with a carrier; the test plays its programs.
pub struct Node {
    pub n: u8,
    pub at: SocketAddr,
    pub carrier: Option<Carrier>,
    pub endpoint: Arc<Endpoint>,
    pub membership: Membership,
    pub dialer: MemberDialer,
    /// Packets that its programs send; `None`: the device is gone.
    pub sends: Option<mpsc::Sender<Vec<u8>>>,
    came: mpsc::Receiver<Vec<u8>>,
    _tasks: JoinSet<()>,
    _dir: TempDir,
}

impl Node {
    /// Starts a node; with settings it has a carrier.
    pub async fn start(n: u8, settings: Option<CarrierSettings>) -> Self {
        let (dir, membership, log) = (TempDir::new().unwrap(), membership(), Log::to_queue().0);
        let purse = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(1 << 40));
        let trains = Trains::new(Arc::new(purse), log.clone());
        let dialer = dialer(n, &key(n), &membership);
        let endpoint = Arc::new(Endpoint::bind(ANYWHERE).await.unwrap());
        trains.set_endpoints(vec![Arc::clone(&endpoint)]);
        let carrier = settings.map(|settings| {
            Carrier::new(settings, key(n).id(), membership.clone(), dialer.clone(), log)
        });
        let mut tasks = JoinSet::new();
        let running = Arc::clone(&endpoint);
        tasks.spawn(async move { running.run().await });
        let (sends, from_programs) = mpsc::channel(QUEUE);
        let (to_programs, came) = mpsc::channel(QUEUE);
        if let Some(carrier) = carrier.clone() {
            trains.set_carrier(Arc::new(carrier.clone()));
            let device = Fake { from_programs: Mutex::new(from_programs), to_programs };
            tasks.spawn(carrier.run(device, trains.clone()));
        }
        let probe = Some(Arc::new(trains) as Arc<dyn MemberService>);
        let node = served(n, &membership, Services { probe, ..nothing() });
        let daemon = Daemon::bind(config(ANYWHERE, dir.path()), node).await.unwrap();
        let at = daemon.local_addrs()[0];
        tasks.spawn(async move {
            daemon.run(std::future::pending(), std::future::pending()).await;
        });
        let sends = Some(sends);
        Self { n, at, carrier, endpoint, membership, dialer, sends, came, _tasks: tasks, _dir: dir }
    }

    /// Its address in the overlay.
    pub fn overlay(&self) -> Ipv6Addr {
        Network::of(&self.membership.mesh()).address(&key(self.n).id())
    }

    /// Sends a packet of a program.
    pub async fn send(&self, packet: Vec<u8>) {
        self.sends.as_ref().unwrap().send(packet).await.unwrap();
    }

    /// The next packet for its programs.
    pub async fn next(&mut self) -> Vec<u8> {
        timeout(PATIENCE, self.came.recv())
            .await
            .expect("nothing came")
            .expect("the device is there")
    }

    /// Packets for its programs that have arrived and were not read.
    pub fn rest(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.came.try_recv().ok()).collect()
    }

    pub fn report(&self) -> CarrierReport {
        self.carrier.as_ref().unwrap().report()
    }

    /// Waits until the report of its carrier is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&CarrierReport) -> bool) {
        let waits = async {
            while !is_so(&self.report()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = timeout(PATIENCE, waits).await;
        came.unwrap_or_else(|_| panic!("{what}: {:#?}", self.report()));
    }
}

/// Nodes that know each other, with these settings and all ports open.
pub async fn mesh(all: Vec<Option<CarrierSettings>>) -> Vec<Node> {
    let opened = |settings| CarrierSettings { doors: OpenPorts::all(), ..settings };
    as_set(all.into_iter().map(|settings| settings.map(opened)).collect()).await
}

/// Starts nodes with these carrier settings.
pub async fn as_set(all: Vec<Option<CarrierSettings>>) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (n, settings) in (1..).zip(all) {
        nodes.push(Node::start(n, settings).await);
    }
    let members: Vec<_> =
        nodes.iter().map(|node| member(node.n, Some(node.at), &[Role::Relay])).collect();
    for node in &nodes {
        node.membership.offer(&signed(1, members.clone())).unwrap();
    }
    nodes
}

/// The name of a node.
pub fn named(node: &Node) -> thalweg_wire::mesh::Name {
    name(node.n)
}

/// A UDP packet with this number and length, at least 60; its bytes follow from the number.
pub fn packet(from: Ipv6Addr, to: Ipv6Addr, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(((length - 40) as u16).to_be_bytes());
    bytes.extend([17, 64]);
    bytes.extend([from.octets(), to.octets()].concat());
    bytes.extend([0x13, 0x88, 0, 53, 0, 0, 0, 0]);
    bytes.extend(number.to_be_bytes());
    let rest = bytes.len()..length;
    bytes.extend(rest.map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8));
    bytes
}

/// The number of such a packet, which must be unaltered.
pub fn number(packet_that_came: &[u8], from: &Node, to: &Node) -> u32 {
    let number = u32::from_be_bytes(packet_that_came[48..52].try_into().unwrap());
    let sent = packet(from.overlay(), to.overlay(), number, packet_that_came.len());
    assert!(packet_that_came == sent, "packet {number} was altered");
    number
}

/// The address of the nodes' channels.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
