//! Encrypts messages to a key without a channel to its owner: HPKE (RFC 9180) in base mode, with X25519, HKDF-SHA256
//! and ChaCha20-Poly1305.

use crate::PrivateKey;
use aws_lc_rs::agreement::{PrivateKey as X25519Key, X25519};
use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305 as SUITE,
    hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey},
};
use std::{fmt, io};

/// The bytes by which an encrypted message is longer than the message: the tag of Poly1305.
pub const HPKE_TAG: usize = 16;

/// An X25519 key that messages are encrypted to. Never printed; wiped from memory when dropped.
pub struct DecryptionKey {
    private: HpkePrivateKey,
    public: [u8; 32],
}

impl DecryptionKey {
    /// Derives a key from a host's key and a purpose, deterministically. It reveals nothing about `key`, nor about the
    /// keys of other purposes.
    ///
    /// # Errors
    /// If the library fails, which is not expected.
    pub fn derived(key: &PrivateKey, purpose: &str) -> io::Result<Self> {
        let secret = key.derive(purpose);
        let private = X25519Key::from_private_key(&X25519, &secret).map_err(io::Error::other)?;
        let public = private.compute_public_key().map_err(io::Error::other)?;
        let public = public.as_ref().try_into().map_err(io::Error::other)?;
        Ok(Self { private: secret.to_vec().into(), public })
    }

    /// The public key, to which messages are encrypted.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// Decrypts a message; `None` if it was not encrypted to this key with this `info`, or was altered.
    pub fn decrypt(
        &self,
        encapsulated: &[u8; 32],
        info: &[u8],
        encrypted: &[u8],
    ) -> Option<Vec<u8>> {
        let secret = EncapsulatedSecret(encapsulated.to_vec());
        SUITE.open(&secret, info, &[], encrypted, &self.private).ok()
    }
}

impl fmt::Debug for DecryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecryptionKey(…)")
    }
}

/// Encrypts a message that only the owner of the X25519 key `to` can read, who must know `info` too. Returns the
/// encapsulated key and the encrypted message, which differ each time.
///
/// # Errors
/// If `to` is not a usable key.
pub fn encrypt_to(to: &[u8; 32], info: &[u8], message: &[u8]) -> io::Result<([u8; 32], Vec<u8>)> {
    let sealed = SUITE.seal(info, &[], message, &HpkePublicKey(to.to_vec()));
    let (encapsulated, encrypted) = sealed.map_err(io::Error::other)?;
    let encapsulated = encapsulated.0.try_into();
    let encapsulated = encapsulated.map_err(|_| {
        io::Error::other(
            "HPKE returned an encapsulated \
        key of the wrong length",
        )
    })?;
    Ok((encapsulated, encrypted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8, purpose: &str) -> DecryptionKey {
        DecryptionKey::derived(&PrivateKey::from_seed(&[n; 32]), purpose).unwrap()
    }

    #[test]
    fn only_the_right_key_and_info_decrypt_a_message() {
        let (one, info) = (key(1, "a"), b"info");
        let (encapsulated, encrypted) = encrypt_to(&one.public(), info, b"message").unwrap();
        assert_eq!(encrypted.len(), 7 + HPKE_TAG);
        assert_eq!(one.decrypt(&encapsulated, info, &encrypted).unwrap(), b"message");
        assert_eq!(one.decrypt(&encapsulated, b"other", &encrypted), None);
        for other in [key(2, "a"), key(1, "b")] {
            assert_ne!(other.public(), one.public());
            assert_eq!(other.decrypt(&encapsulated, info, &encrypted), None);
        }
        let mut altered = encrypted.clone();
        altered[3] ^= 1;
        assert_eq!(one.decrypt(&encapsulated, info, &altered), None);
        assert_ne!(encrypt_to(&one.public(), info, b"message").unwrap(), (encapsulated, encrypted));
    }

    #[test]
    fn the_same_host_has_the_same_key_again() {
        assert_eq!(key(1, "a").public(), key(1, "a").public());
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        // All such keys make the shared secret zero (RFC 7748 §6.1).
        assert!(encrypt_to(&[0; 32], b"", b"message").is_err());
        let mut one = [0; 32];
        one[0] = 1;
        assert!(encrypt_to(&one, b"", b"message").is_err());
    }
}
