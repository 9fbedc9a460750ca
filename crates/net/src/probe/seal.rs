//! Seals and opens datagrams: AES-256-GCM with keys that both ends derive from their TLS channel (RFC 8446 §7.5), with
//! the number as nonce (RFC 5116 §3.2). Decision 0050 says why datagrams are used, and why they are sealed.

use super::ReplayWindow;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io;
use thalweg_wire::probe::{OUTER, Outer};

/// The bytes of secret for one direction: the key, and the mask of the nonces.
pub const SECRET: usize = 32 + NONCE_LEN;

/// The most datagrams of a session; then a new one is needed (RFC 8446 §5.5 limits AES-GCM to 2^24.5 full records).
const MAX_DATAGRAMS: u64 = 1 << 32;

/// The key of one direction.
struct Key {
    key: LessSafeKey,
    mask: [u8; NONCE_LEN],
}

impl Key {
    fn new(secret: &[u8; SECRET]) -> io::Result<Self> {
        let (key, mask) = secret.split_at(32);
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(io::Error::other)?;
        let mask = mask.try_into().map_err(io::Error::other)?;
        Ok(Self { key: LessSafeKey::new(key), mask })
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.mask;
        let tail = nonce[NONCE_LEN - 8..].iter_mut();
        tail.zip(number.to_be_bytes()).for_each(|(byte, of)| *byte ^= of);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Seals outgoing datagrams.
pub struct Sealer {
    key: Key,
    session: u32,
    next: u64,
}

impl Sealer {
    /// Creates the sealer of a session, under the number that its receiver has assigned.
    ///
    /// # Errors
    /// None for a secret of this length.
    pub fn new(secret: &[u8; SECRET], session: u32) -> io::Result<Self> {
        Ok(Self { key: Key::new(secret)?, session, next: 0 })
    }

    /// Seals `payload` into a whole datagram.
    ///
    /// # Errors
    /// If the session has sealed too many datagrams.
    pub fn seal(&mut self, payload: &[u8]) -> io::Result<Vec<u8>> {
        if self.next >= MAX_DATAGRAMS {
            return Err(io::Error::other("too many datagrams under one key; begin a new session"));
        }
        let number = self.next;
        self.next += 1;
        let outer = Outer { session: self.session, number }.encode();
        let mut sealed = payload.to_vec();
        let aad = Aad::from(outer);
        let done = self.key.key.seal_in_place_append_tag(self.key.nonce(number), aad, &mut sealed);
        done.map_err(io::Error::other)?;
        let mut datagram = Vec::with_capacity(OUTER + sealed.len());
        datagram.extend(outer);
        datagram.extend(sealed);
        Ok(datagram)
    }
}

/// Why a datagram was rejected. The sender is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsealError {
    /// It was received before, or is too old to tell.
    Replayed,
    /// It was altered, or belongs to another session.
    Forged,
}

/// Opens incoming datagrams, each once.
pub struct Opener {
    key: Key,
    window: ReplayWindow,
}

impl Opener {
    /// Creates the opener of a session from the other end's secret.
    ///
    /// # Errors
    /// None for a secret of this length.
    pub fn new(secret: &[u8; SECRET]) -> io::Result<Self> {
        Ok(Self { key: Key::new(secret)?, window: ReplayWindow::default() })
    }

    /// Returns the payload of a datagram.
    ///
    /// # Errors
    /// [`UnsealError`].
    pub fn open(&mut self, outer: Outer, sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
        if !self.window.is_new(outer.number) {
            return Err(UnsealError::Replayed);
        }
        let mut opened = sealed.to_vec();
        let (nonce, aad) = (self.key.nonce(outer.number), Aad::from(outer.encode()));
        let length = match self.key.key.open_in_place(nonce, aad, &mut opened) {
            Ok(payload) => payload.len(),
            Err(_) => return Err(UnsealError::Forged),
        };
        opened.truncate(length);
        self.window.note(outer.number);
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sealer, Opener) {
        let secret = [7; SECRET];
        (Sealer::new(&secret, 9).unwrap(), Opener::new(&secret).unwrap())
    }

    fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let (outer, sealed) = Outer::split(datagram).unwrap();
        opener.open(outer, sealed)
    }

    #[test]
    fn a_sealed_datagram_is_opened_once() {
        let (mut sealer, mut opener) = pair();
        let (one, two) = (sealer.seal(b"one").unwrap(), sealer.seal(b"two").unwrap());
        assert_eq!(open(&mut opener, &two), Ok(b"two".to_vec()));
        assert_eq!(open(&mut opener, &one), Ok(b"one".to_vec()));
        assert_eq!(open(&mut opener, &one), Err(UnsealError::Replayed));
    }

    #[test]
    fn a_datagram_altered_anywhere_is_forged_and_does_not_move_the_window() {
        let (mut sealer, mut opener) = pair();
        let datagram = sealer.seal(b"some payload").unwrap();
        for at in 0..datagram.len() {
            let mut altered = datagram.clone();
            altered[at] ^= 1;
            assert_eq!(open(&mut opener, &altered), Err(UnsealError::Forged), "byte {at}");
        }
        assert_eq!(open(&mut opener, &datagram), Ok(b"some payload".to_vec()));
        let mut other = Sealer::new(&[8; SECRET], 9).unwrap();
        assert_eq!(open(&mut opener, &other.seal(b"x").unwrap()), Err(UnsealError::Replayed));
        other.seal(b"x").unwrap();
        assert_eq!(open(&mut opener, &other.seal(b"x").unwrap()), Err(UnsealError::Forged));
    }
}
