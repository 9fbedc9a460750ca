//! The submitting host's identity, and the box that it submits to.

use super::parts;
use crate::commands::here::Place;
use anyhow::{Context as _, bail};
use std::sync::Arc;
use thalweg_dropbox::{NodeChannelError, NodeAddress, Target};
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
pub struct Identity {
    /// The key of its command line.
    pub key: PrivateKey,
    /// The signed roster of its mesh, if it is in one and the roster is not too long.
    pub roster: Option<Signed<Roster>>,
}

impl Identity {
    /// A member's key, or else a key created for this. It is created only once there is something to submit and a box
    /// to submit to, so that a mistyped command leaves no key.
    ///
    /// # Errors
    /// If the state directory cannot be used.
    pub fn of(place: &Place, mesh: Mesh) -> anyhow::Result<Self> {
        let key = State::create(&place.directory()?)?.make_client_key()?;
        Ok(Self { key, roster: mesh.roster })
    }
}

/// This host's mesh; empty if it is in none.
#[derive(Default)]
pub struct Mesh {
    /// Its members, if the roster is valid.
    members: Option<Arc<Roster>>,
    roster: Option<Signed<Roster>>,
}

impl Mesh {
    /// Reads the state directory, which may be missing.
    ///
    /// # Errors
    /// If it exists but cannot be read.
    pub fn of(place: &Place) -> anyhow::Result<Self> {
        let state = match State::open(&place.directory()?) {
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
    pub fn target(&self, to: &str, place: &Place) -> anyhow::Result<Target> {
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
                    "`{to}` names an address without its key: write {to}#KEY; who runs the box has it"
                )
            }
            None => self.member(node, place)?,
        };
        Ok(Target { drop_box, port })
    }

    fn member(&self, node: &str, place: &Place) -> anyhow::Result<NodeAddress> {
        let name: Name = node.parse()?;
        let place = place.argument();
        let Some(roster) = &self.members else {
            bail!(
                "`{name}` names a node, and this host has no valid roster (`thalweg \
                 status{place}`); without one a box is written BOX@HOST:PORT#KEY"
            )
        };
        let Some(member) = roster.by_name(&name) else {
            let names = roster.members.iter().map(|m| m.name.as_str());
            match likeness::nearest(node, names) {
                Some(near) => bail!("no member is named `{name}`; did you mean `{near}`?"),
                None => {
                    bail!("no member is named `{name}`; `thalweg mesh members{place}` lists them")
                }
            }
        };
        let port = NodeAddress::of_member(member).with_context(|| {
            format!("member `{name}` runs no node: it joined with --no-daemon, only to fetch")
        })?;
        if port.addresses.is_empty() {
            bail!("node `{name}`: {}", NodeChannelError::Unlisted)
        }
        Ok(port)
    }
}
