//! The attacking process, which stops by itself after its time.

use super::{
    channels, messages,
    messages::MessageNames,
    plan::{Attack, AttackKind, Attacker, Entrance},
    raw,
};
use anyhow::Context as _;
use parking_lot::Mutex;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_units::{NodeId, parse_duration};
use tokio::time::Instant;

/// Arguments of `thalweg-bench load hostile attack`.
#[derive(clap::Args)]
pub struct Args {
    /// The kind of attacker
    #[arg(long)]
    pub by: Attacker,
    /// The attacked part of the node
    #[arg(long)]
    pub door: Entrance,
    /// The kind of attack
    #[arg(long)]
    pub kind: AttackKind,
    /// The attacked port: that of the mesh, of the metrics or of datagrams
    #[arg(long, value_name = "ADDR:PORT")]
    pub to: SocketAddr,
    /// The port of the mesh
    #[arg(long, value_name = "ADDR:PORT")]
    pub port: SocketAddr,
    /// The key of the node
    #[arg(long, value_parser = messages::key)]
    pub node: NodeId,
    /// The state directory of the attacking member
    #[arg(long)]
    pub state: PathBuf,
    /// The directory of files that this member may not read
    #[arg(long)]
    pub files: String,
    /// The server that the relay may connect to
    #[arg(long)]
    pub server: SocketAddr,
    /// Duration of the attack
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time: Duration,
    /// Seed of the random generator
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Counts of an attack's actions and of the node's reactions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AttackCounts {
    /// Connections and channels that were established.
    pub opened: AtomicU64,
    /// Connections and channels that could not be established.
    pub refused: AtomicU64,
    /// Connections and channels that the node closed.
    pub closed: AtomicU64,
    /// Messages or datagrams that were sent completely.
    pub sent: AtomicU64,
}

/// State shared by the tasks of an attack.
pub struct AttackContext {
    pub attack: Attack,
    /// The attacked address.
    pub to: SocketAddr,
    /// The port of the mesh.
    pub port: SocketAddr,
    /// The node's key.
    pub node: NodeId,
    /// The names that messages contain.
    pub names: MessageNames,
    /// The end of the attack.
    pub end: Instant,
    /// The counts of the attack.
    pub counts: AttackCounts,
    member: Connector,
    random: Mutex<Xoshiro256PlusPlus>,
    next: AtomicU64,
}

impl AttackContext {
    /// The attacker's TLS client: with a member's key, or with a new key for a stranger.
    ///
    /// # Errors
    /// If TLS rejects the key; not expected.
    pub fn connector(&self) -> anyhow::Result<Connector> {
        match self.attack.by {
            Attacker::Member => Ok(self.member.clone()),
            Attacker::Stranger => Ok(Connector::new(&PrivateKey::generate()?)?),
        }
    }

    /// One of eight source addresses, in turn.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 5, 1 + (self.number() % 8) as u8)
    }

    /// A number that was not returned before.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// An independent random generator for one task.
    pub fn random(&self) -> Xoshiro256PlusPlus {
        let mut random = self.random.lock();
        let own = random.clone();
        random.jump();
        own
    }

    /// Increments a counter.
    pub fn count(&self, which: impl Fn(&AttackCounts) -> &AtomicU64) {
        which(&self.counts).fetch_add(1, Ordering::Relaxed);
    }
}

/// Attacks until the time is over and prints the counts as one JSON object.
///
/// # Errors
/// When the attacker has no key, or a task of the attack fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let attack = Attack { by: args.by, door: args.door, kind: args.kind };
    let member = Connector::new(&State::open(&args.state)?.node_key()?)?;
    let scene = Arc::new(AttackContext {
        attack,
        to: args.to,
        port: args.port,
        node: args.node,
        names: MessageNames { files: args.files.clone(), server: args.server },
        end: Instant::now() + args.time,
        counts: AttackCounts::default(),
        member,
        random: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(args.seed)),
        next: AtomicU64::new(args.seed << 32),
    });
    match attack.door {
        Entrance::Datagrams => raw::datagrams(&scene).await?,
        Entrance::Handshake | Entrance::Metrics => raw::connections(&scene).await?,
        _ => channels::run(&scene).await?,
    }
    let text = serde_json::to_string(&scene.counts).context("cannot print the counts")?;
    Ok(thalweg_console::say_line(text)?)
}
