//! Datagrams sealed and opened: AES-256-GCM under keys that both ends derive from their TLS channel (RFC 8446
//! §7.5), the number as nonce (RFC 5116 §3.2).

use super::ReplayWindow;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io;
use thalweg_wire::probe::{OUTER, Outer};

/// Bytes of secret for one direction: the key, and what the number is mixed with.
pub const SECRET: usize = 32 + NONCE_LEN;

/// After so many datagrams a session is begun anew (RFC 8446 §5.5's bound for AES-GCM is 2^24.5 full records).
const MOST: u64 = 1 << 32;

/// One direction's key.
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

/// Seals what goes.
pub struct Sealer {
    key: Key,
    session: u32,
    next: u64,
}

impl Sealer {
    /// For this session, as its receiver numbered it.
    ///
    /// # Errors
    /// None for a secret of this length.
    pub fn new(secret: &[u8; SECRET], session: u32) -> io::Result<Self> {
        Ok(Self { key: Key::new(secret)?, session, next: 0 })
    }

    /// A whole datagram.
    ///
    /// # Errors
    /// The session has sealed too many.
    pub fn seal(&mut self, payload: &[u8]) -> io::Result<Vec<u8>> {
        if self.next >= MOST {
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

/// Why a datagram was not taken; nobody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It came before, or is too old to tell.
    Replayed,
    /// It was altered, or is none of this session's.
    Forged,
}

/// Opens what comes, each once.
pub struct Opener {
    key: Key,
    window: ReplayWindow,
}

impl Opener {
    /// With the other end's secret.
    ///
    /// # Errors
    /// None for a secret of this length.
    pub fn new(secret: &[u8; SECRET]) -> io::Result<Self> {
        Ok(Self { key: Key::new(secret)?, window: ReplayWindow::default() })
    }

    /// What was sealed in it.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn open(&mut self, outer: Outer, sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
        if !self.window.is_new(outer.number) {
            return Err(Unopened::Replayed);
        }
        let mut opened = sealed.to_vec();
        let (nonce, aad) = (self.key.nonce(outer.number), Aad::from(outer.encode()));
        let length = match self.key.key.open_in_place(nonce, aad, &mut opened) {
            Ok(payload) => payload.len(),
            Err(_) => return Err(Unopened::Forged),
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

    fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Unopened> {
        let (outer, sealed) = Outer::split(datagram).unwrap();
        opener.open(outer, sealed)
    }

    #[test]
    fn what_was_sealed_is_opened_once() {
        let (mut sealer, mut opener) = pair();
        let (one, two) = (sealer.seal(b"one").unwrap(), sealer.seal(b"two").unwrap());
        assert_eq!(open(&mut opener, &two), Ok(b"two".to_vec()));
        assert_eq!(open(&mut opener, &one), Ok(b"one".to_vec()));
        assert_eq!(open(&mut opener, &one), Err(Unopened::Replayed));
    }

    #[test]
    fn what_was_altered_is_forged_wherever_and_moves_nothing() {
        let (mut sealer, mut opener) = pair();
        let datagram = sealer.seal(b"some payload").unwrap();
        for at in 0..datagram.len() {
            let mut altered = datagram.clone();
            altered[at] ^= 1;
            assert_eq!(open(&mut opener, &altered), Err(Unopened::Forged), "byte {at}");
        }
        assert_eq!(open(&mut opener, &datagram), Ok(b"some payload".to_vec()));
        let mut other = Sealer::new(&[8; SECRET], 9).unwrap();
        assert_eq!(open(&mut opener, &other.seal(b"x").unwrap()), Err(Unopened::Replayed));
        other.seal(b"x").unwrap();
        assert_eq!(open(&mut opener, &other.seal(b"x").unwrap()), Err(Unopened::Forged));
    }
}
