//! Opens the state directory as commands do, and notes what fails.

use crate::checks::{
    membership::{RosterEnd, RosterFacts},
    state::{StateFacts, StateFault},
};
use std::{path::Path, time::Duration};
use thalweg_mesh::{Membership, State, StateError};
use thalweg_net::KeyError;
use thalweg_wire::mesh::RosterFault;

/// Opens the directory and reads its keys and the mesh's file.
pub fn examine_state(directory: &Path) -> StateFacts {
    let mut faults = Vec::new();
    let mut note = |error: StateError| faults.push((fault(&error), error.to_string()));
    match State::open(directory) {
        Err(error) => note(error),
        Ok(state) => {
            let mesh = state.mesh();
            let is_member = !matches!(mesh, Err(StateError::NoMesh(_)));
            mesh.err().into_iter().for_each(&mut note);
            if is_member {
                state.client_key().err().into_iter().for_each(&mut note);
                node_key(&state).err().into_iter().for_each(&mut note);
            }
        }
    }
    StateFacts { directory: directory.to_owned(), faults }
}

/// A host without a daemon has no node key.
fn node_key(state: &State) -> Result<(), StateError> {
    match state.dir().join("node.key").exists() {
        true => state.node_key().map(drop),
        false => Ok(()),
    }
}

fn fault(error: &StateError) -> StateFault {
    match error {
        StateError::Absent(_) | StateError::NoMesh(_) => StateFault::NoMesh,
        StateError::Mode { path, right, .. } => {
            StateFault::Mode { path: path.clone(), right: *right }
        }
        StateError::Owner { owner, .. } => StateFault::Owner { owner: *owner },
        StateError::MeshFile { .. } => StateFault::MeshFile,
        StateError::Key(KeyError::Mode { file, .. }) => StateFault::KeyMode { path: file.into() },
        StateError::Key(_) => StateFault::Key,
        _ => StateFault::Other,
    }
}

/// The roster of this host, by its clock.
pub fn roster(membership: &Membership) -> RosterFacts {
    if let Some(damage) = membership.damage() {
        return RosterFacts::Damaged(damage.to_string());
    }
    let Some(roster) = membership.current() else { return RosterFacts::Missing };
    let now = membership.now();
    let left = match roster.check(now) {
        Ok(()) => {
            let left = roster.expiry.as_unix_nanos().saturating_sub(now.as_unix_nanos());
            Ok(Duration::from_nanos(left))
        }
        Err(RosterFault::Expired(since)) => Err(RosterEnd::Expired(since)),
        Err(RosterFault::ClockBehind(until)) => Err(RosterEnd::NotYet(until)),
    };
    let fork = membership.fork().map(|fork| fork.to_string());
    RosterFacts::Found { version: roster.version, members: roster.members.len(), left, fork }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    #[test]
    fn rights_and_keys_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        set(dir.path(), 0o755);
        let first = |facts: StateFacts| facts.faults.into_iter().next().map(|(fault, _)| fault);
        let right = StateFault::Mode { path: dir.path().to_owned(), right: 0o700 };
        assert_eq!(first(examine_state(dir.path())), Some(right));
        set(dir.path(), 0o700);
        assert_eq!(first(examine_state(dir.path())), Some(StateFault::NoMesh));
        let none = dir.path().join("none");
        assert_eq!(first(examine_state(&none)), Some(StateFault::NoMesh));
        fs::write(dir.path().join("mesh.json"), "{").unwrap();
        set(&dir.path().join("mesh.json"), 0o600);
        assert_eq!(first(examine_state(dir.path())), Some(StateFault::MeshFile));
        State::open(dir.path()).unwrap().make_client_key().unwrap();
        let key = dir.path().join("client.key");
        set(&key, 0o644);
        let facts = examine_state(dir.path());
        assert!(facts.faults.iter().any(|(f, _)| *f == StateFault::KeyMode { path: key.clone() }));
    }
}
