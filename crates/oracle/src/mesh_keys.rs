//! The key that signs rosters, and the root key's endorsement of it (decision 0103).
//!
//! `mesh.key` holds both: the private key in the first line, the endorsement in the second. A file without a second line
//! holds the root key itself, as in meshes that were founded without an endorsement.

use crate::{
    OracleError,
    registry::{SignedRoster, file, file_error},
    roster_copy,
};
use data_encoding::BASE64URL_NOPAD;
use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
};
use thalweg_net::{Ed25519, PrivateKey};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Endorsement, Roster, SignedEndorsement},
};

/// The word before the endorsement in `mesh.key`.
const ENDORSED: &str = "endorsed";

/// The signing key of a mesh.
#[derive(Debug)]
pub(crate) struct MeshKeys {
    /// Signs rosters and orders to measure.
    pub signing: PrivateKey,
    endorsement: Option<Signed<Endorsement>>,
}

/// The new signing key of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rekeyed {
    /// The mesh's root key, which stays.
    pub mesh: NodeId,
    /// The new signing key.
    pub key: NodeId,
    /// Its number.
    pub number: u64,
}

impl MeshKeys {
    /// Reads `mesh.key` of this directory.
    ///
    /// # Errors
    /// [`OracleError::Missing`] without the file, [`OracleError::Endorsement`] if its second line does not fit the key.
    pub fn load(dir: &Path) -> Result<Self, OracleError> {
        let path = dir.join(file::KEY);
        if !path.exists() {
            return Err(OracleError::Missing(dir.into()));
        }
        let signing = PrivateKey::load(&path)?;
        let text = fs::read_to_string(&path).map_err(file_error(&path))?;
        let endorsement = match text.lines().nth(1) {
            None => None,
            Some(line) => {
                let read = read_endorsement(line).filter(|read| read.value().key == signing.id());
                Some(read.ok_or_else(|| OracleError::Endorsement(path.clone()))?)
            }
        };
        Ok(Self { signing, endorsement })
    }

    /// Makes the root key, in `root.key`, and the first signing key.
    pub fn create(dir: &Path, time: WallTime) -> Result<Self, OracleError> {
        let root = PrivateKey::generate().map_err(OracleError::Random)?;
        root.save_new(&dir.join(file::ROOT))?;
        let keys = Self::endorsed(&root, 1, time)?;
        write_key(&keys.signing, keys.endorsement.as_ref(), &dir.join(file::KEY))?;
        Ok(keys)
    }

    /// Makes a signing key with this number.
    fn endorsed(root: &PrivateKey, number: u64, time: WallTime) -> Result<Self, OracleError> {
        let signing = PrivateKey::generate().map_err(OracleError::Random)?;
        let endorsement = Endorsement { key: signing.id(), number, time };
        Ok(Self { signing, endorsement: Some(Signed::sign(endorsement, root)) })
    }

    /// The root key, which names the mesh.
    pub fn root(&self) -> NodeId {
        self.endorsement.as_ref().map_or_else(|| self.signing.id(), Signed::signer)
    }

    /// The number of the signing key; 0 if it is the root key.
    pub fn number(&self) -> u64 {
        self.endorsement.as_ref().map_or(0, |endorsement| endorsement.value().number)
    }

    /// Signs a roster, with the endorsement in it.
    pub fn sign(&self, roster: Roster) -> Result<SignedRoster, OracleError> {
        let endorsement = self.endorsement.as_ref().map(SignedEndorsement::from);
        let bytes = Signed::sign(Roster { endorsement, ..roster }, &self.signing).encode();
        // Verify that members can read it before it is stored.
        self.read(bytes)
    }

    /// Parses a roster and checks that it is signed for this mesh.
    pub fn read(&self, bytes: Vec<u8>) -> Result<SignedRoster, OracleError> {
        let signed = Signed::<Roster>::open(&bytes, &Ed25519)?;
        signed.check_authority(&self.root(), &Ed25519)?;
        Ok(SignedRoster { roster: signed.into_value(), bytes: bytes.into() })
    }

    /// Checks that no other signing key has replaced this one.
    pub fn check_current(&self, newest: &Roster) -> Result<(), OracleError> {
        let (own, newest_number) = (self.number(), newest.rank().endorsement);
        let is_own = newest.signing_key(self.root()) == self.signing.id();
        match newest_number < own || (newest_number == own && is_own) {
            true => Ok(()),
            false => Err(OracleError::ReplacedKey { own, newest: newest_number }),
        }
    }
}

fn read_endorsement(line: &str) -> Option<Signed<Endorsement>> {
    let text = line.strip_prefix(ENDORSED)?.strip_prefix(' ')?;
    let bytes = BASE64URL_NOPAD.decode(text.trim_end().as_bytes()).ok()?;
    Signed::open(&bytes, &Ed25519).ok()
}

/// Replaces the signing key in `dir`, or a lost or damaged one, by a new one for the mesh with this root key. The root key
/// is read from `root`, or from `root.key`. The signing key of a mesh without an endorsement is the root key; it is kept as
/// `root.key`. `known`: the number of the key that signed the newest roster that this host has seen.
///
/// Numbers are at least the date in seconds, so that a key that is made after an old backup was restored outranks the one
/// that was made, and perhaps stolen, since.
///
/// `mesh.key` is replaced in one step; the oracle must not run.
///
/// # Errors
/// [`OracleError`]; then `mesh.key` is as before.
pub fn rekey(
    dir: &Path,
    mesh: NodeId,
    root: Option<&Path>,
    known: u64,
    time: WallTime,
) -> Result<Rekeyed, OracleError> {
    let own = dir.join(file::ROOT);
    let old = match MeshKeys::load(dir) {
        // The root key is enough.
        Err(_) if dir.exists() && (root.is_some() || own.exists()) => None,
        Err(OracleError::Missing(_)) if dir.exists() => None,
        loaded => Some(loaded?),
    };
    if let Some(old) = &old
        && old.endorsement.is_none()
        && old.root() == mesh
        && !own.exists()
    {
        replace(&old.signing, None, &own)?;
    }
    let root = match root {
        None if !own.exists() => return Err(OracleError::NoRoot(own)),
        given => PrivateKey::load(given.unwrap_or(own.as_path()))?,
    };
    if root.id() != mesh {
        return Err(OracleError::OtherRoot { found: root.id(), mesh });
    }
    let known = old.as_ref().map_or(0, MeshKeys::number).max(known).max(copied_number(dir));
    let number = known.saturating_add(1).max(time.as_unix_nanos() / 1_000_000_000);
    let new = MeshKeys::endorsed(&root, number, time)?;
    replace(&new.signing, new.endorsement.as_ref(), &dir.join(file::KEY))?;
    Ok(Rekeyed { mesh: new.root(), key: new.signing.id(), number })
}

/// The number of the key that signed the copy of the roster in this directory; 0 without one.
fn copied_number(dir: &Path) -> u64 {
    let bytes = roster_copy::read(&dir.join(file::COPY)).ok().flatten();
    let signed = bytes.and_then(|bytes| Signed::<Roster>::open(&bytes, &Ed25519).ok());
    signed.map_or(0, |signed| signed.value().rank().endorsement)
}

/// Writes a key file beside `path`, syncs it, and gives it its name.
fn replace(
    key: &PrivateKey,
    endorsement: Option<&Signed<Endorsement>>,
    path: &Path,
) -> Result<(), OracleError> {
    let beside = path.with_extension("key.new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(file_error(&beside)(error));
        }
        _ => write_key(key, endorsement, &beside)?,
    }
    fs::rename(&beside, path).map_err(file_error(path))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    // The new name is there already; only a power failure could bring back the old one.
    _ = File::open(directory).and_then(|directory| directory.sync_all());
    Ok(())
}

/// Writes a new key file and syncs it.
fn write_key(
    key: &PrivateKey,
    endorsement: Option<&Signed<Endorsement>>,
    path: &Path,
) -> Result<(), OracleError> {
    key.save_new(path)?;
    let Some(endorsement) = endorsement else { return Ok(()) };
    let mut opened = OpenOptions::new().append(true).open(path).map_err(file_error(path))?;
    let text = BASE64URL_NOPAD.encode(&endorsement.encode());
    let written = writeln!(opened, "{ENDORSED} {text}").and_then(|()| opened.sync_all());
    written.map_err(file_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(seconds * 1_000_000_000)
    }

    fn roster(version: u64) -> Roster {
        Roster {
            version,
            not_before: time(0),
            expiry: time(1000),
            members: vec![],
            rules: vec![],
            endorsement: None,
            predecessor: None,
        }
    }

    #[test]
    fn a_new_key_signs_for_the_same_mesh_and_outranks_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let old = MeshKeys::create(dir.path(), time(1)).unwrap();
        assert_eq!(MeshKeys::load(dir.path()).unwrap().root(), old.root());
        let forged = old.sign(roster(u64::MAX)).unwrap();
        let rekeyed = rekey(dir.path(), old.root(), None, 0, time(2)).unwrap();
        let new = MeshKeys::load(dir.path()).unwrap();
        assert_eq!((rekeyed.mesh, rekeyed.number), (old.root(), 2));
        assert_eq!((new.root(), new.signing.id(), new.number()), (old.root(), rekeyed.key, 2));
        let signed = new.sign(roster(1)).unwrap();
        assert!(signed.roster.rank() > forged.roster.rank());
        assert!(new.read(forged.bytes.to_vec()).is_ok(), "the old key was endorsed");
        assert!(matches!(
            old.check_current(&signed.roster),
            Err(OracleError::ReplacedKey { own: 1, newest: 2 })
        ));
        let third = rekey(dir.path(), old.root(), None, 7, time(3)).unwrap();
        assert_eq!(third.number, 8, "another oracle has made keys");
    }

    #[test]
    fn the_key_of_a_mesh_without_endorsement_becomes_its_root() {
        let dir = tempfile::tempdir().unwrap();
        let key = PrivateKey::generate().unwrap();
        key.save_new(&dir.path().join(file::KEY)).unwrap();
        let old = MeshKeys::load(dir.path()).unwrap();
        assert_eq!((old.root(), old.number()), (key.id(), 0));
        let rekeyed = rekey(dir.path(), old.root(), None, 0, time(1)).unwrap();
        assert_eq!((rekeyed.mesh, rekeyed.number), (key.id(), 1));
        let new = MeshKeys::load(dir.path()).unwrap();
        let signed = old.sign(roster(5)).unwrap();
        assert!(new.read(signed.bytes.to_vec()).is_ok());
        assert_eq!(PrivateKey::load(&dir.path().join(file::ROOT)).unwrap().id(), key.id());
    }

    #[test]
    fn the_root_key_survives_if_it_is_given_as_mesh_key() {
        let dir = tempfile::tempdir().unwrap();
        let (key, file) = (PrivateKey::generate().unwrap(), dir.path().join(file::KEY));
        key.save_new(&file).unwrap();
        let rekeyed = rekey(dir.path(), key.id(), Some(&file), 0, time(1)).unwrap();
        assert_eq!(rekeyed.mesh, key.id());
        assert_eq!(PrivateKey::load(&dir.path().join(file::ROOT)).unwrap().id(), key.id());
    }

    #[test]
    fn another_key_with_the_same_number_has_replaced_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = MeshKeys::create(dir.path(), time(1)).unwrap();
        let root = PrivateKey::load(&dir.path().join(file::ROOT)).unwrap();
        let second = MeshKeys::endorsed(&root, 1, time(2)).unwrap();
        let signed = second.sign(roster(1)).unwrap();
        assert!(second.check_current(&signed.roster).is_ok());
        assert!(first.check_current(&signed.roster).is_err());
    }

    #[test]
    fn only_the_mesh_s_own_root_replaces_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let mesh = MeshKeys::create(dir.path(), time(1)).unwrap().root();
        let (root, other) = (dir.path().join(file::ROOT), dir.path().join("other"));
        let before = fs::read(dir.path().join(file::KEY)).unwrap();
        PrivateKey::generate().unwrap().save_new(&other).unwrap();
        let refused = rekey(dir.path(), mesh, Some(&other), 0, time(2));
        assert!(matches!(refused, Err(OracleError::OtherRoot { .. })), "{refused:?}");
        fs::rename(&root, dir.path().join("away")).unwrap();
        let refused = rekey(dir.path(), mesh, None, 0, time(2));
        assert!(matches!(refused, Err(OracleError::NoRoot(_))), "{refused:?}");
        assert_eq!(fs::read(dir.path().join(file::KEY)).unwrap(), before);
        let away = dir.path().join("away");
        rekey(dir.path(), mesh, Some(&away), 0, time(2)).unwrap();
        // A lost or damaged key is replaced too.
        fs::remove_file(dir.path().join(file::KEY)).unwrap();
        assert_eq!(rekey(dir.path(), mesh, Some(&away), 2, time(3)).unwrap().number, 3);
        fs::write(dir.path().join(file::KEY), "torn").unwrap();
        assert_eq!(rekey(dir.path(), mesh, Some(&away), 3, time(900)).unwrap().number, 900);
    }

    #[test]
    fn an_endorsement_of_another_key_is_an_error() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for dir in [&one, &two] {
            MeshKeys::create(dir.path(), time(1)).unwrap();
        }
        let [first, second] = [&one, &two].map(|dir| {
            let path = dir.path().join(file::KEY);
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (path, lines)
        });
        fs::write(&first.0, format!("{}\n{}\n", first.1[0], second.1[1])).unwrap();
        let loaded = MeshKeys::load(one.path());
        assert!(matches!(loaded, Err(OracleError::Endorsement(_))), "{loaded:?}");
    }
}
