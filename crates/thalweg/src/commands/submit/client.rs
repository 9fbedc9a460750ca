//! The submitting host's identity, and the box that it submits to.

use super::parts;
use crate::commands::host::StateDir;
use anyhow::{Context as _, bail};
use std::sync::Arc;
use thalweg_dropbox::{NodeAddress, NodeChannelError, Target};
use thalweg_mesh::{State, StateError};
use thalweg_net::{Ed25519, PrivateKey};
use thalweg_units::{NodeId, likeness};
use thalweg_wire::{
    Destination, Signed,
    mesh::{Name, Roster},
};

/// The longest roster that is put into each receipt, bytes: one of some hundred members.
const MAX_ROSTER: usize = 64 << 10;

/// This host's identity towards a drop box.
pub struct ClientIdentity {
    /// The key of its command line.
    pub key: PrivateKey,
    /// The signed roster of its mesh, if it is in one and the roster is not too long.
    pub roster: Option<Signed<Roster>>,
}

impl ClientIdentity {
    /// A member's key, or else a key created for this. It is created only once there is something to submit and a box
    /// to submit to, so that a mistyped command leaves no key.
    ///
    /// # Errors
    /// If the state directory cannot be used.
    pub fn load_or_create(state_dir: &StateDir, mesh: ClientMesh) -> anyhow::Result<Self> {
        let key = State::create(&state_dir.directory()?)?.make_client_key()?;
        Ok(Self { key, roster: mesh.roster })
    }
}

/// This host's mesh; empty if it is in none.
#[derive(Default)]
pub struct ClientMesh {
    /// Its members, if the roster is valid.
    members: Option<Arc<Roster>>,
    roster: Option<Signed<Roster>>,
}

impl ClientMesh {
    /// Reads the state directory, which may be missing.
    ///
    /// # Errors
    /// If it exists but cannot be read.
    pub fn load(state_dir: &StateDir) -> anyhow::Result<Self> {
        let state = match State::open(&state_dir.directory()?) {
            Err(StateError::Absent(_)) => return Ok(Self::default()),
            state => state?,
        };
        if !state.has_mesh() {
            return Ok(Self::default());
        }
        let membership = state.membership()?;
        let members = membership.current().filter(|r| r.check(membership.now()).is_ok());
        let signed = membership.signed().filter(|bytes| bytes.len() <= MAX_ROSTER);
        let roster = signed.and_then(|bytes| Signed::open(&bytes, &Ed25519).ok());
        Ok(Self { members, roster })
    }

    /// Finds the box of `BOX@NODE` or `BOX@HOST:PORT#KEY`.
    ///
    /// # Errors
    /// A mistake in the text, or that there is no such node.
    pub fn target(&self, to: &str, state_dir: &StateDir) -> anyhow::Result<Target> {
        let (name, node) = parts(to)?;
        let drop_box: Name = name.parse()?;
        let port = match node.split_once('#') {
            Some((host, key)) => {
                let key: NodeId = key.parse().context("the key after `#`")?;
                let host: Destination = host.parse()?;
                NodeAddress { key, addresses: vec![host] }
            }
            None if node.contains(':') => {
                bail!(
                    "`{to}` is an address without a key: write {to}#KEY; ask the box's operator for the key"
                )
            }
            None => self.member(node, state_dir)?,
        };
        Ok(Target { drop_box, port })
    }

    fn member(&self, node: &str, state_dir: &StateDir) -> anyhow::Result<NodeAddress> {
        let name: Name = node.parse()?;
        let state_arg = state_dir.argument();
        let Some(roster) = &self.members else {
            bail!(
                "`{name}` names a node, but this host has no valid roster (`thalweg \
                 status{state_arg}`); without one, write BOX@HOST:PORT#KEY"
            )
        };
        let Some(member) = roster.by_name(&name) else {
            let names = roster.members.iter().map(|m| m.name.as_str());
            match likeness::nearest(node, names) {
                Some(near) => bail!("no member is named `{name}`; did you mean `{near}`?"),
                None => {
                    bail!(
                        "no member is named `{name}`; `thalweg mesh members{state_arg}` lists them"
                    )
                }
            }
        };
        let port = NodeAddress::of_member(member).with_context(|| {
            format!("member `{name}` runs no node: it joined with --no-daemon, as a client only")
        })?;
        if port.addresses.is_empty() {
            bail!("node `{name}`: {}", NodeChannelError::Unlisted)
        }
        Ok(port)
    }
}
