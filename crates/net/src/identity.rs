//! The private key of a node, and the verification of other nodes' signatures.

use ed25519_dalek::{Signature as DalekSignature, Signer as _, SigningKey, VerifyingKey};
use std::{fmt, io, path::Path};
use thalweg_units::NodeId;
use thalweg_wire::{Signature, Signer, Verifier};
use thiserror::Error;

/// An Ed25519 private key (RFC 8032). Never printed; wiped from memory when dropped.
pub struct PrivateKey(SigningKey);

/// Why a key file cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file could not be read or written.
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
    /// Other users may read the file.
    #[error("{file} is accessible to other users (mode {mode:03o}); run `chmod 600 {file}`")]
    Mode {
        file: String,
        /// The lowest nine bits of the file's mode.
        mode: u32,
    },
    /// The file contains no key.
    #[error(
        "{0} does not hold a key: 64 hexadecimal digits are expected; restore it or join again"
    )]
    Content(String),
}

impl PrivateKey {
    /// Generates a new key with the system's random generator.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        Ok(Self::from_seed(&seed))
    }

    /// Creates the key with this seed (the 32 bytes of RFC 8032 §5.1.5), for tests and files.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads the key from a file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load(file: &Path) -> Result<Self, KeyError> {
        file_form::load(file).map(|seed| Self::from_seed(&seed))
    }

    /// Writes the key to a new file of mode 0600 and syncs it. Never replaces an existing file.
    ///
    /// # Errors
    /// [`KeyError::File`], also if the file exists.
    pub fn save_new(&self, file: &Path) -> Result<(), KeyError> {
        file_form::save_new(file, self.0.as_bytes())
    }

    /// Derives a secret of 32 bytes for another purpose, deterministically (BLAKE3's key derivation mode).
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("thalweg 2026 key of a host's key 1");
        hasher.update(self.0.as_bytes()).update(purpose.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The key in PKCS #8, for TLS.
    pub(crate) fn pkcs8(&self) -> io::Result<Vec<u8>> {
        use ed25519_dalek::pkcs8::EncodePrivateKey as _;
        let document = self.0.to_pkcs8_der().map_err(io::Error::other)?;
        Ok(document.as_bytes().to_vec())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {:?})", self.id())
    }
}

impl Signer for PrivateKey {
    fn id(&self) -> NodeId {
        NodeId::from_bytes(self.0.verifying_key().to_bytes())
    }

    fn sign(&self, message: &[u8]) -> Signature {
        Signature::from_bytes(self.0.sign(message).to_bytes())
    }
}

/// Ed25519 for [`Verifier`], with strict checks: no small-order keys, canonical encodings only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool {
        let signature = DalekSignature::from_bytes(signature.as_bytes());
        VerifyingKey::from_bytes(signer.as_bytes())
            .is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

/// The format of key files: 64 hexadecimal digits and a line end. Further lines are left to others.
mod file_form {
    use super::KeyError;
    use std::{
        fs::{File, OpenOptions},
        io::{self, Read as _, Write as _},
        os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
        path::Path,
    };
    use thalweg_units::NodeId;

    fn failed(file: &Path) -> impl Fn(io::Error) -> KeyError {
        move |source| KeyError::File { file: file.display().to_string(), source }
    }

    /// Reads the seed, unless users other than the owner have any access to the file.
    pub fn load(file: &Path) -> Result<[u8; 32], KeyError> {
        let mut opened = File::open(file).map_err(failed(file))?;
        let mode = opened.metadata().map_err(failed(file))?.permissions().mode() & 0o777;
        let shown = || file.display().to_string();
        if mode & 0o077 != 0 {
            return Err(KeyError::Mode { file: shown(), mode });
        }
        let mut text = String::new();
        (&mut opened).take(128).read_to_string(&mut text).map_err(failed(file))?;
        // A node's id has the same format of 64 digits.
        let line = text.trim_start().lines().next().unwrap_or_default();
        let seed: NodeId = line.trim().parse().map_err(|_| KeyError::Content(shown()))?;
        Ok(*seed.as_bytes())
    }

    /// Writes the seed for the owner only; fails if the file exists.
    pub fn save_new(file: &Path, seed: &[u8; 32]) -> Result<(), KeyError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut opened = options.open(file).map_err(failed(file))?;
        writeln!(opened, "{}", NodeId::from_bytes(*seed)).map_err(failed(file))?;
        opened.sync_all().map_err(failed(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn key_files_are_readable_only_by_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node.key");
        let key = PrivateKey::generate().unwrap();
        key.save_new(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(PrivateKey::load(&file).unwrap().id(), key.id());
        assert!(key.save_new(&file).is_err(), "a key is never replaced");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(PrivateKey::load(&file), Err(KeyError::Mode { mode: 0o640, .. })));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "nothing").unwrap();
        assert!(matches!(PrivateKey::load(&file), Err(KeyError::Content(_))));
    }

    #[test]
    fn a_signature_is_accepted_only_for_its_key_and_message() {
        let [a, b] = [1, 2].map(|n| PrivateKey::from_seed(&[n; 32]));
        let signature = a.sign(b"message");
        assert!(Ed25519.verify(&a.id(), b"message", &signature));
        assert!(!Ed25519.verify(&a.id(), b"massage", &signature));
        assert!(!Ed25519.verify(&b.id(), b"message", &signature));
        // The neutral element is a key for which lenient verifiers accept a signature of zeros.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut forged = [0; 64];
        forged[0] = 1;
        let id = NodeId::from_bytes(neutral);
        assert!(!Ed25519.verify(&id, b"message", &Signature::from_bytes(forged)));
    }
}
