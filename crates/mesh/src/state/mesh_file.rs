//! What a host knows of its mesh: `mesh.json`.

use super::StateError;
use serde::{Deserialize, Serialize};
use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};
use thalweg_base::durable;
use thalweg_net::Destination;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Name, Role, Roster};

/// The largest `mesh.json`, bytes: many times a few oracles with a few addresses.
const MAX_BYTES: usize = 1 << 20;

/// What a host knows of its mesh without a roster. Unknown fields are ignored, so that files of later versions can be
/// read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshFile {
    /// The mesh's root key, pinned when the host joined. It endorses the key that signs rosters.
    pub mesh: NodeId,
    /// This host's name.
    pub name: Name,
    /// The oracles, in the order in which they are tried.
    pub oracles: Vec<Oracle>,
}

/// An oracle's key and addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oracle {
    pub key: NodeId,
    /// The addresses of its port, best first.
    pub addresses: Vec<Destination>,
}

impl Oracle {
    /// The oracles of a roster that have an address, except the host named `me`.
    pub fn of(roster: &Roster, me: Option<&Name>) -> Vec<Self> {
        let other = |m: &&Member| m.is(Role::Oracle) && Some(&m.name) != me;
        let oracle = |m: &Member| {
            let key = m.node?;
            let addresses: Vec<_> = m.dialled_addresses().cloned().collect();
            (!addresses.is_empty()).then_some(Self { key, addresses })
        };
        roster.members.iter().filter(other).filter_map(oracle).collect()
    }
}

impl MeshFile {
    /// Parses the JSON.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// The JSON, laid out for people.
    pub fn to_json(&self) -> String {
        // Writing these types to a string never fails.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Reads the file; `None` if there is none.
    pub(super) fn read(file: &Path) -> Result<Option<Self>, StateError> {
        check_mode(file)?;
        let found = durable::read(file, MAX_BYTES).map_err(StateError::io("read", file))?;
        let Some(bytes) = found else { return Ok(None) };
        let damaged = |why| StateError::MeshFile { file: file.to_owned(), why };
        let text = String::from_utf8(bytes).map_err(|e| damaged(e.to_string()))?;
        Self::from_json(&text).map(Some).map_err(damaged)
    }
}

/// The file holds no secret, but its writer decides which members this host trusts.
fn check_mode(file: &Path) -> Result<(), StateError> {
    let mode = match fs::metadata(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(StateError::io("read", file))?.permissions().mode() & 0o777,
    };
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(StateError::Mode { path: file.to_owned(), mode, right: 0o600 }),
    }
}
