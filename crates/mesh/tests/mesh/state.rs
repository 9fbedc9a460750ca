//! The state directory: who may enter it, what is in it, and the errors when something is wrong.

use crate::scene::id;
use proptest::prelude::*;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};
use tempfile::TempDir;
use thalweg_mesh::{MeshFile, Oracle, State, StateError};
use thalweg_wire::Signer as _;

pub fn fresh() -> (TempDir, State) {
    let dir = tempfile::tempdir().unwrap();
    let state = State::create(&dir.path().join("deep/state")).unwrap();
    (dir, state)
}

fn mesh_file() -> MeshFile {
    let oracle = Oracle { key: id(9), addresses: vec!["oracle.example:7373".parse().unwrap()] };
    MeshFile { mesh: id(250), name: "fra-1".parse().unwrap(), oracles: vec![oracle] }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn everything_is_open_to_its_owner_alone() {
    let (_dir, state) = fresh();
    assert_eq!(mode(state.dir()), 0o700);
    let (node, client) = (state.make_node_key().unwrap(), state.make_client_key().unwrap());
    assert_ne!(node.id(), client.id());
    assert_eq!(state.make_node_key().unwrap().id(), node.id(), "a key is made once");
    assert_eq!(state.node_key().unwrap().id(), node.id());
    assert!(!state.has_mesh());
    state.set_mesh(&mesh_file()).unwrap();
    assert!(state.has_mesh());
    assert_eq!(State::open(state.dir()).unwrap().mesh().unwrap(), mesh_file());
    let _lock = state.lock().unwrap();
    for name in ["node.key", "client.key", "mesh.json", "lock"] {
        assert_eq!(mode(&state.dir().join(name)), 0o600, "{name}");
    }
}

#[test]
fn the_directory_of_another_user_is_refused() {
    let (_dir, state) = fresh();
    // Root gives the directory away; other users take `/`, which is root's.
    let foreign = match std::os::unix::fs::chown(state.dir(), Some(12_345), None) {
        Ok(()) => state.dir(),
        Err(_) => Path::new("/"),
    };
    let refused = State::open(foreign);
    assert!(matches!(refused, Err(StateError::Owner { .. })), "{refused:?}");
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("belongs to user id") && told.contains("--state"), "{told}");
    assert!(matches!(State::create(foreign), Err(StateError::Owner { .. })));
}

#[test]
fn files_that_are_open_to_others_are_refused_with_the_remedy() {
    let (_dir, state) = fresh();
    state.make_node_key().unwrap();
    state.set_mesh(&mesh_file()).unwrap();
    chmod(&state.dir().join("mesh.json"), 0o664);
    let told = state.mesh().unwrap_err().to_string();
    assert!(told.contains("mode 664") && told.contains("chmod 600"), "{told}");
    chmod(&state.dir().join("mesh.json"), 0o644);
    state.mesh().unwrap();
    chmod(&state.dir().join("node.key"), 0o640);
    let told = state.node_key().unwrap_err().to_string();
    assert!(told.contains("mode 640") && told.contains("chmod 600"), "{told}");
    chmod(state.dir(), 0o755);
    let told = State::open(state.dir()).unwrap_err().to_string();
    assert!(told.contains("mode 755") && told.contains("chmod 700"), "{told}");
    assert!(State::create(state.dir()).is_err(), "what is there is not made right by itself");
}

#[test]
fn a_second_process_is_refused_and_told_the_id_of_the_first() {
    let (_dir, state) = fresh();
    let lock = state.lock().unwrap();
    let busy = state.lock();
    assert!(
        matches!(busy, Err(StateError::Busy { pid: Some(pid), .. }) if pid == std::process::id())
    );
    drop(lock);
    state.lock().unwrap();
}

#[test]
fn the_error_for_a_missing_key_names_its_file() {
    let (_dir, state) = fresh();
    let told = state.client_key().unwrap_err().to_string();
    assert!(told.contains("client.key"), "{told}");
}

/// The error messages, without the directory's name.
#[test]
fn errors_say_what_to_try() {
    let (dir, state) = fresh();
    let mut told = Vec::new();
    let mut tell = |error: StateError| {
        let text = error.to_string().replace(&dir.path().display().to_string(), "DIR");
        told.push(text.replace(&std::process::id().to_string(), "PID"));
    };
    tell(State::open(&dir.path().join("other")).unwrap_err());
    tell(state.mesh().unwrap_err());
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    tell(State::open(&file).unwrap_err());
    fs::write(state.dir().join("mesh.json"), "{\"mesh\": \"12\"}").unwrap();
    tell(state.mesh().unwrap_err());
    state.set_mesh(&mesh_file()).unwrap();
    let foreign = crate::scene::roster(1, &["a"]);
    let foreign = thalweg_wire::Signed::sign(foreign, &crate::scene::key(251)).encode();
    fs::write(state.roster_file(), foreign).unwrap();
    tell(state.membership().unwrap_err());
    let _lock = state.lock().unwrap();
    tell(state.lock().unwrap_err());
    insta::assert_snapshot!(told.join("\n"));
}

proptest! {
    #[test]
    fn any_mesh_file_is_read_or_refused(text in "[\\[\\]a-z_:\"{},0-9 ]{0,120}") {
        if let Ok(mesh) = MeshFile::from_json(&text) {
            prop_assert_eq!(MeshFile::from_json(&mesh.to_json()), Ok(mesh));
        }
    }

    #[test]
    fn a_damaged_mesh_file_is_read_or_refused(
        from: prop::sample::Index,
        length in 0..20usize,
        put in "[\\[\\]a-f\":{},0-9]{0,8}",
    ) {
        let text = mesh_file().to_json();
        let from = from.index(text.len());
        let to = (from + length).min(text.len());
        let damaged = format!("{}{put}{}", &text[..from], &text[to..]);
        if let Ok(mesh) = MeshFile::from_json(&damaged) {
            prop_assert_eq!(MeshFile::from_json(&mesh.to_json()), Ok(mesh));
        }
    }
}

#[test]
fn a_field_of_the_next_version_is_ignored() {
    let text = mesh_file().to_json().replacen('{', "{\"news\": [1],", 1);
    assert_eq!(MeshFile::from_json(&text), Ok(mesh_file()));
}
