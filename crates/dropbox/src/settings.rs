//! The settings of a drop box: permitted submitters, limits and deadline.

use serde_json::{Value, json};
use std::{collections::BTreeSet, path::PathBuf};
use thalweg_units::{ByteSize, NodeId, WallTime};
use thalweg_wire::bistro::{envelope_size, show_date};
use thalweg_wire::mesh::Name;

/// By default, one key may use one of this many equal parts of a box, so that one client's mistake leaves room for the
/// others.
const KEYS_PER_BOX: u64 = 20;

/// The settings of one drop box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of the box.
    pub name: Option<Name>,
    /// The destination, on a node that only takes data for it; absent: this node is the destination.
    pub destination: Option<Name>,
    /// The deadline of commitments; on the destination only.
    pub until: Option<WallTime>,
    /// The members whose nodes take data for the box; empty: this node itself. On the destination only.
    pub nodes: Vec<Name>,
    /// Whether any key may submit, whether a member's or not.
    pub open: bool,
    /// Whether members may submit.
    pub members: bool,
    /// Keys that may submit even if they are not members'.
    pub keys: BTreeSet<NodeId>,
    /// The maximum size of a submission before encryption.
    pub max_bytes: ByteSize,
    /// The maximum size of all commitments (on the destination) and of all data stored here, encrypted.
    pub max_total: ByteSize,
    /// The maximum number of submissions of one key.
    pub max_per_key: u64,
    /// The most submissions of one key for boxes whose submitters must not have a choice after the deadline, as with
    /// sealed bids: 1. `None`: as many as `max_per_key`.
    pub versions: Option<u64>,
    /// The maximum size of all commitments of one key; absent: see [`Self::bytes_per_key`].
    pub max_bytes_per_key: Option<ByteSize>,
    /// The maximum number of submissions of all keys.
    pub max_submissions: u64,
    /// The sustained rate of commitments and pushes per address, 1/s; a burst may be ten times as many.
    pub max_rate: u32,
    /// The directory of the data; absent: below the state directory.
    pub directory: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            destination: None,
            until: None,
            nodes: Vec::new(),
            open: false,
            members: true,
            keys: BTreeSet::new(),
            max_bytes: ByteSize::from_bytes(1_000_000_000),
            max_total: ByteSize::from_bytes(100_000_000_000),
            max_per_key: 100,
            versions: None,
            max_bytes_per_key: None,
            // Each takes about 400 B of memory.
            max_submissions: 1_000_000,
            // Enough for a university behind one address.
            max_rate: 20,
            directory: None,
        }
    }
}

impl Settings {
    /// The maximum number of submissions of one key: the lower of the settings `versions` and `max_per_key`.
    pub fn submissions_per_key(&self) -> u64 {
        self.versions.map_or(self.max_per_key, |versions| versions.min(self.max_per_key))
    }

    /// The maximum size of all commitments of one key: the setting, or a twentieth of the box, but always enough for
    /// one submission.
    pub fn bytes_per_key(&self) -> u64 {
        let share = ByteSize::from_bytes(self.max_total.as_bytes() / KEYS_PER_BOX);
        let one = ByteSize::from_bytes(envelope_size(self.max_bytes.as_bytes()));
        self.max_bytes_per_key.unwrap_or(share.max(one)).as_bytes()
    }

    /// The settings as JSON, with the keys of the settings file; absent ones are left out.
    pub fn report(&self) -> Value {
        let one = self;
        let all = json!({
            "name": one.name, "destination": one.destination, "until": one.until.map(show_date),
            "nodes": one.nodes, "open": one.open, "members": one.members, "keys": one.keys,
            "max_bytes": one.max_bytes, "max_total": one.max_total, "max_per_key": one.max_per_key,
            "versions": one.versions,
            "max_bytes_per_key": one.max_bytes_per_key, "max_submissions": one.max_submissions, "max_rate": one.max_rate,
            "directory": one.directory,
        });
        match all {
            Value::Object(all) => all.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            other => other,
        }
    }
}
