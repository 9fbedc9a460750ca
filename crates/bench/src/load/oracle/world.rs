//! A synthetic mesh: members without hosts, and legs without links.

use anyhow::Context as _;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng as _, SeedableRng as _},
};
use std::{
    fs,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;
use thalweg_net::PrivateKey;
use thalweg_oracle::{Config, MeasureConfig, Oracle, SeedLeg};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Member, Role, Roster},
};

/// The validity of the roster, longer than any run.
const VALID: Duration = Duration::from_secs(7 * 24 * 3600);

/// The greatest age of legs: legs of two weeks (UKAIRO §2.1) would expire during the run.
const AGE_S: usize = 10 * 24 * 3600;

/// A synthetic mesh.
pub struct SyntheticMesh {
    dir: TempDir,
    /// Keys of the clients; the first members are theirs.
    pub clients: Vec<PrivateKey>,
    /// The key of the oracle's node.
    pub node: PrivateKey,
    pub members: Vec<Member>,
    /// The rates at which each member can send and receive, bit/s.
    access: Vec<(f64, f64)>,
    random: Xoshiro256PlusPlus,
}

impl SyntheticMesh {
    /// Creates a mesh of `nodes` members; the first are the clients', the last is the oracle's.
    ///
    /// # Errors
    /// When the numbers do not fit, or no directory can be created.
    pub fn new(nodes: usize, clients: usize, seed: u64) -> anyhow::Result<Self> {
        anyhow::ensure!(
            clients < nodes && nodes <= Roster::MAX_MEMBERS,
            "{clients} clients and the oracle do not fit in {nodes} members, or there are more than {} members",
            Roster::MAX_MEMBERS
        );
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut key = || {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            PrivateKey::from_seed(&bytes)
        };
        let (node, clients): (_, Vec<_>) = (key(), (0..clients).map(|_| key()).collect());
        let mut members = vec![];
        for at in 0..nodes {
            let own = match at + 1 == nodes {
                true => Some(&node),
                false => clients.get(at),
            };
            members.push(member(at, own, &mut random)?);
        }
        let access = (0..nodes).map(|_| (rate(&mut random), rate(&mut random))).collect();
        Ok(Self { dir: tempfile::tempdir()?, clients, node, members, access, random })
    }

    /// Opens the oracle with the signed roster only, as after the loss of its database.
    ///
    /// # Errors
    /// When the oracle cannot be opened.
    pub async fn oracle(&self, measure: MeasureConfig) -> anyhow::Result<Oracle> {
        let dir = self.dir.path().join("oracle");
        fs::create_dir(&dir)?;
        let mesh = PrivateKey::generate()?;
        mesh.save_new(&dir.join("mesh.key"))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?;
        let date = |at: Duration| WallTime::from_unix_nanos(at.as_nanos() as u64);
        let roster = Roster {
            version: 1,
            not_before: date(now.saturating_sub(VALID)),
            expiry: date(now + VALID),
            members: self.members.clone(),
            rules: vec![],
            endorsement: None,
            predecessor: None,
        };
        fs::write(dir.join("roster"), Signed::sign(roster, &mesh).encode())?;
        let events = Arc::new(|event: &thalweg_oracle::Event| thalweg_console::note!("{event}"));
        let patience = Duration::from_secs(30);
        let config = Config { events, patience, measure, ..Config::default() };
        Ok(Oracle::open(&dir, self.node.id(), config).await?)
    }

    /// Draws `count` legs between random members. A leg's rate is the slower of the sender's and the receiver's access,
    /// times a random factor of the path.
    pub fn legs(&mut self, count: usize) -> Vec<SeedLeg> {
        (0..count).map(|_| self.leg()).collect()
    }

    fn leg(&mut self) -> SeedLeg {
        let nodes = self.members.len();
        let from = below(nodes, &mut self.random);
        let to = (from + 1 + below(nodes - 1, &mut self.random)) % nodes;
        let luck = 0.1 + 0.9 * unit(&mut self.random);
        let bps = self.access[from].0.min(self.access[to].1) * luck;
        let age = Duration::from_secs(below(AGE_S, &mut self.random) as u64);
        SeedLeg { from, to, bps, age }
    }
}

fn member(
    at: usize,
    own: Option<&PrivateKey>,
    random: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<Member> {
    let mut bytes = [0; 32];
    random.fill_bytes(&mut bytes);
    let client = NodeId::from_bytes(bytes);
    random.fill_bytes(&mut bytes);
    let node = own.map_or(NodeId::from_bytes(bytes), |key| key.id());
    Ok(Member {
        name: format!("n{at:05}").parse()?,
        node: Some(node),
        client,
        addresses: vec![format!("198.18.{}.{}:7373", at / 256 % 256, at % 256).parse()?],
        roles: [Role::Client, Role::Relay, Role::Oracle, Role::Admin].into(),
        tags: [].into(),
    })
}

/// A number drawn uniformly from `0..n`.
pub fn below(n: usize, random: &mut Xoshiro256PlusPlus) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

/// A random number from 0 to less than 1, uniform.
pub fn unit(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A rate from 1 Mbit/s to 1 Gbit/s, with a uniform logarithm.
pub fn rate(random: &mut Xoshiro256PlusPlus) -> f64 {
    1e6 * 1000_f64.powf(unit(random))
}
