//! Makes this host a member of a mesh.
//!
//! ```text
//! token ─ keys made and synced ─ POST /v1/join ─ roster verified and kept ─ mesh.json
//! ```
//!
//! If joining is interrupted, it can be repeated with the same token: the keys are kept, and the oracle recognizes
//! them.

use super::{
    ClockSkew, Membership, MeshFile, Oracle, OracleClient, OracleError, RosterError, State,
    StateError,
};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::{path::PathBuf, sync::Arc};
use thalweg_base::clock::WallClock;
use thalweg_net::{Destination, PrivateKey};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{ClientBinding, JoinRequest, Name, Roster, Token},
};
use thiserror::Error;

/// What the joining host asks for.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Its name; `None`: the host's.
    pub name: Option<Name>,
    /// The addresses of its daemon's port; required for relays.
    pub addresses: Vec<Destination>,
    /// Whether a daemon will run. Without one, only the command line's key joins.
    pub daemon: bool,
}

/// The result of joining.
#[derive(Clone, Debug)]
pub struct JoinResult {
    /// What this host knows of its mesh.
    pub mesh: MeshFile,
    /// The roster that it joined with.
    pub roster: Arc<Roster>,
    /// The difference of the clocks, if it exceeds a minute.
    pub skew: Option<ClockSkew>,
}

/// Why this host has not joined. It may still be what it was before.
#[derive(Debug, Error)]
pub enum JoinError {
    /// It is in another mesh, and a state directory holds only one.
    #[error(
        "this host is `{name}` in another mesh ({}); give another --state DIR, or move that \
         directory away to leave the mesh", dir.display()
    )]
    OtherMesh {
        /// Its name there.
        name: Name,
        /// The state directory.
        dir: PathBuf,
    },
    /// The host's own name is no valid member's name.
    #[error("this host's name is not a valid member name; give one with --name")]
    NoName,
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The oracle cannot be reached, or refuses.
    #[error("{0}")]
    Oracle(#[from] OracleError),
    /// The oracle's roster is not the mesh's.
    #[error("the oracle's roster is not accepted: {0}")]
    Roster(#[from] RosterError),
    /// The oracle's answer contradicts itself.
    #[error("the oracle admitted this host, but {0}; join again with the same token")]
    Answer(&'static str),
    /// The system cannot use the key.
    #[error("cannot use the key: {0}")]
    Key(#[source] std::io::Error),
}

/// Joins the token's mesh; holds the lock of the state directory meanwhile.
///
/// A member of the same mesh may join again, e.g. with another token after it was revoked.
///
/// # Errors
/// [`JoinError`]. The keys are kept, so that the same token can be tried again.
pub async fn join(
    state: &State,
    token: &Token,
    wish: &JoinOptions,
    clock: WallClock,
) -> Result<JoinResult, JoinError> {
    let _lock = state.lock()?;
    refuse_other_mesh(state, token)?;
    let name = wish.name.clone().or_else(host_name).ok_or(JoinError::NoName)?;
    let keys = Keys::make(state, wish.daemon)?;
    let oracle = Oracle { key: token.oracle, addresses: token.addresses.clone() };
    let client = OracleClient::new(keys.joining(), vec![oracle], clock.clone());
    let client = client.map_err(JoinError::Key)?;
    let reply = client.join(&keys.request(token, name, wish, &clock)).await?;
    let roster = HEXLOWER_PERMISSIVE.decode(reply.roster.as_bytes());
    let roster = roster.map_err(|_| JoinError::Answer("its roster cannot be read"))?;
    let roster = keep(state, token, &roster, &keys.joining().id(), clock)?;
    let mesh = MeshFile { mesh: token.mesh, name: reply.name, oracles: oracles(token, &roster) };
    state.set_mesh(&mesh)?;
    Ok(JoinResult { mesh, roster, skew: client.skew() })
}

fn refuse_other_mesh(state: &State, token: &Token) -> Result<(), JoinError> {
    match state.mesh() {
        Ok(mesh) if mesh.mesh != token.mesh => {
            Err(JoinError::OtherMesh { name: mesh.name, dir: state.dir().to_owned() })
        }
        Ok(_) | Err(StateError::NoMesh(_)) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Verifies the roster with the token's mesh key, and stores it.
fn keep(
    state: &State,
    token: &Token,
    signed: &[u8],
    key: &NodeId,
    clock: WallClock,
) -> Result<Arc<Roster>, JoinError> {
    let file = state.roster_file();
    let membership = Membership::load_with_clock(token.mesh, file, clock)?;
    membership.offer(signed)?;
    let roster = membership.current().filter(|r| r.by_key(key).is_some());
    roster.ok_or(JoinError::Answer("its roster does not list this host"))
}

/// The oracles of the roster, or that of the token if the roster lists none.
fn oracles(token: &Token, roster: &Roster) -> Vec<Oracle> {
    let listed = Oracle::of(roster, None);
    match listed.is_empty() {
        true => vec![Oracle { key: token.oracle, addresses: token.addresses.clone() }],
        false => listed,
    }
}

/// The host's keys.
struct Keys {
    node: Option<PrivateKey>,
    client: PrivateKey,
}

impl Keys {
    fn make(state: &State, daemon: bool) -> Result<Self, StateError> {
        let node = if daemon { Some(state.make_node_key()?) } else { None };
        Ok(Self { node, client: state.make_client_key()? })
    }

    /// The key that authenticates the connection.
    fn joining(&self) -> &PrivateKey {
        self.node.as_ref().unwrap_or(&self.client)
    }

    fn request(
        &self,
        token: &Token,
        name: Name,
        wish: &JoinOptions,
        clock: &WallClock,
    ) -> JoinRequest {
        let node = self.node.as_ref().map(|key| key.id());
        let binding = ClientBinding { mesh: token.mesh, node, token: token.secret.hash() };
        JoinRequest {
            secret: token.secret,
            name,
            node,
            client: HEXLOWER.encode(&Signed::sign(binding, &self.client).encode()),
            addresses: wish.addresses.clone(),
            time: clock.now(),
        }
    }
}

/// The host's name as a member's: its first label, with other characters replaced by `-`.
fn host_name() -> Option<Name> {
    let system = rustix::system::uname();
    member_name(system.nodename().to_str().ok()?)
}

/// The first label of a host's name, as a member's name; `None` if nothing is left of it.
pub fn member_name(host: &str) -> Option<Name> {
    let label = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let name: String = label.chars().map(good).take(63).collect();
    name.trim_matches(['-', '_']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_becomes_a_member_name() {
        for (host, name) in [
            ("fra-1.example.net", Some("fra-1")),
            ("MyLaptop", Some("mylaptop")),
            ("a b!c", Some("a-b-c")),
            ("-x-", Some("x")),
            ("", None),
            ("---", None),
        ] {
            let found = member_name(host);
            assert_eq!(found.as_ref().map(Name::as_str), name, "{host}");
        }
    }
}
