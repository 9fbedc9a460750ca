//! A mesh for tests: a key that signs, members, and a clock that is set by hand.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use thalweg_base::clock::WallClock;
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Member, Role, Roster},
};

/// When the scene's rosters begin, seconds since 1970.
pub const BEGIN: u64 = 1_800_000_000;
/// How long the rosters are valid, seconds.
pub const HOLDS: u64 = 3600;

pub fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

pub fn id(seed: u8) -> NodeId {
    key(seed).id()
}

pub fn at(second: u64) -> WallTime {
    WallTime::from_unix_nanos(second * 1_000_000_000)
}

/// A member with the keys `seed` (daemon) and `seed + 100` (client).
pub fn member(name: &str, seed: u8) -> Member {
    Member {
        name: name.parse().unwrap(),
        node: Some(id(seed)),
        client: id(seed + 100),
        addresses: vec!["127.0.0.1:7373".parse().unwrap()],
        roles: [Role::Client, Role::Relay].into(),
        tags: [format!("host={name}").parse().unwrap()].into(),
    }
}

/// A roster of these members. A member's seed is the place of its first letter in the alphabet.
pub fn roster(version: u64, names: &[&str]) -> Roster {
    let place = |name: &&str| 1 + name.bytes().next().unwrap() - b'a';
    let members = names.iter().map(|name| member(name, place(name))).collect();
    let (not_before, expiry) = (at(BEGIN), at(BEGIN + HOLDS));
    Roster {
        version,
        not_before,
        expiry,
        members,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    }
}

pub fn mesh() -> PrivateKey {
    key(250)
}

pub fn signed(roster: Roster) -> Vec<u8> {
    Signed::sign(roster, &mesh()).encode()
}

/// A clock that stays where it was set.
#[derive(Clone)]
pub struct HandClock(Arc<AtomicU64>);

impl HandClock {
    pub fn at(second: u64) -> Self {
        Self(Arc::new(AtomicU64::new(second)))
    }

    pub fn set(&self, second: u64) {
        self.0.store(second, Ordering::SeqCst);
    }

    pub fn clock(&self) -> WallClock {
        let shared = Arc::clone(&self.0);
        WallClock::new(move || at(shared.load(Ordering::SeqCst)))
    }
}
