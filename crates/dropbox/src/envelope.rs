//! Encrypts submissions so that only the destination can read them: nodes that store them see only their size (decision
//! 0102).
//!
//! An envelope is a submission in encrypted form; its format is in `wire::bistro`: a head with the encrypted keys, then
//! numbered pieces. One content key encrypts one submission, piece by piece. The nonce of a piece is a keyed hash of
//! its number and its data. So a file that changes while it is sent does not reuse a nonce, and the same data with the
//! same keys gives the same envelope, which therefore need not be stored to be sent again.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce as AeadNonce, UnboundKey};
use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom, Write},
};
use thalweg_net::{DecryptionKey, PrivateKey, encrypt_to};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        Commitment, CommitmentHasher, ContentHash, ENVELOPE_END, ENVELOPE_HEAD, ENVELOPE_MAGIC,
        EnvelopeKeys, Nonce, PIECE, PIECE_EXTRA, Sheet, content_size, envelope_size,
    },
    mesh::Name,
};
use thiserror::Error;

/// The size of the nonce in front of each piece, bytes.
const NONCE: usize = 12;

/// The key pair of a box: clients encrypt with its public key, and the destination decrypts with its private key.
#[derive(Debug)]
pub struct BoxKey {
    key: DecryptionKey,
    drop_box: Name,
    destination: NodeId,
}

impl BoxKey {
    /// Derives the key pair of a box from the destination node's key, so that a backup of the node's key is enough.
    ///
    /// # Errors
    /// Returns an error if the library fails, which is not expected.
    pub fn of(node: &PrivateKey, drop_box: &Name) -> io::Result<Self> {
        let key = DecryptionKey::derived(node, &format!("drop box {drop_box}"))?;
        Ok(Self { key, drop_box: drop_box.clone(), destination: node.id() })
    }

    /// The public key to which clients encrypt.
    pub fn public(&self) -> [u8; 32] {
        self.key.public()
    }
}

/// The context to which HPKE binds the content key, so that nobody can commit to a copy of another client's envelope.
fn info(drop_box: &Name, destination: &NodeId, client: &NodeId) -> Vec<u8> {
    let parts = [&b"thalweg bistro envelope 1\0"[..], destination.as_bytes(), client.as_bytes()];
    [&parts.concat()[..], drop_box.as_str().as_bytes()].concat()
}

/// Creates keys for a submission of `client` to the box that this sheet describes. The sheet's signature must have been
/// checked.
///
/// # Errors
/// Returns an error if the system gives no random bytes, or the sheet's key is unusable.
pub fn new_keys(sheet: &Signed<Sheet>, client: &NodeId) -> io::Result<EnvelopeKeys> {
    let mut content = [0; 32];
    getrandom::fill(&mut content).map_err(io::Error::other)?;
    let info = info(&sheet.value().drop_box, &sheet.signer(), client);
    let (encapsulated, wrapped) = encrypt_to(&sheet.value().encryption_key, &info, &content)?;
    let wrapped = wrapped.try_into().map_err(|_| io::Error::other("HPKE gives another length"))?;
    Ok(EnvelopeKeys { encapsulated, wrapped, content })
}

/// Encrypts and decrypts the pieces of one submission.
struct Cipher {
    aead: LessSafeKey,
    nonces: [u8; 32],
}

impl Cipher {
    fn new(content: &[u8; 32]) -> io::Result<Self> {
        let key = |purpose| blake3::derive_key(purpose, content);
        let aead = UnboundKey::new(&CHACHA20_POLY1305, &key("thalweg 2026 bistro envelope data 1"));
        let aead =
            LessSafeKey::new(aead.map_err(|_| io::Error::other("the cipher is not available"))?);
        Ok(Self { aead, nonces: key("thalweg 2026 bistro envelope nonce 1") })
    }

    /// The data authenticated with a piece: its number, and whether it is the last one.
    fn associated_data(number: u64, is_end: bool) -> [u8; 9] {
        let mut associated_data = [u8::from(is_end); 9];
        associated_data[..8].copy_from_slice(&number.to_be_bytes());
        associated_data
    }

    fn nonce(&self, associated_data: &[u8; 9], data: &[u8]) -> [u8; NONCE] {
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        hasher.update(associated_data).update(data);
        let mut nonce = [0; NONCE];
        hasher.finalize_xof().fill(&mut nonce);
        nonce
    }

    fn encrypt(&self, number: u64, is_end: bool, data: &[u8]) -> io::Result<Vec<u8>> {
        let associated_data = Self::associated_data(number, is_end);
        let nonce = self.nonce(&associated_data, data);
        let mut piece = Vec::with_capacity(data.len() + PIECE_EXTRA);
        piece.extend(nonce);
        piece.extend(data);
        let (aad, nonce) = (Aad::from(associated_data), AeadNonce::assume_unique_for_key(nonce));
        let tag = self.aead.seal_in_place_separate_tag(nonce, aad, &mut piece[NONCE..]);
        piece.extend(tag.map_err(|_| io::Error::other("the cipher failed"))?.as_ref());
        Ok(piece)
    }

    /// Decrypts a piece; `None` if it is another piece or was altered.
    fn decrypt<'a>(&self, number: u64, is_end: bool, piece: &'a mut [u8]) -> Option<&'a [u8]> {
        let associated_data = Self::associated_data(number, is_end);
        let (nonce, rest) = piece.split_first_chunk_mut::<NONCE>()?;
        let (aad, used) = (Aad::from(associated_data), AeadNonce::assume_unique_for_key(*nonce));
        let data = self.aead.open_in_place(used, aad, rest).ok()?;
        // Requires the derived nonce, so that the same data and keys have only one valid envelope, which can be
        // compared with the commitment later.
        (*nonce == self.nonce(&associated_data, data)).then_some(data)
    }
}

fn head(keys: &EnvelopeKeys) -> Vec<u8> {
    [&ENVELOPE_MAGIC[..], &keys.encapsulated, &keys.wrapped].concat()
}

/// Fills the buffer, or as much of it as there is data.
fn fill(data: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match data.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Reads the data once. Returns the commitment to its envelope, and the hash of the data itself.
///
/// # Errors
/// Returns the error of reading the data.
pub fn commit(
    mut data: impl Read,
    keys: &EnvelopeKeys,
    nonce: &Nonce,
    client: &NodeId,
) -> io::Result<(Commitment, ContentHash)> {
    let cipher = Cipher::new(&keys.content)?;
    let (mut committing, mut hasher) =
        (CommitmentHasher::new(nonce, client), blake3::Hasher::new());
    committing.update(&head(keys));
    let (mut buffer, mut number) = (vec![0; PIECE], 0);
    loop {
        let n = fill(&mut data, &mut buffer)?;
        if n > 0 {
            hasher.update(&buffer[..n]);
            committing.update(&cipher.encrypt(number, false, &buffer[..n])?);
            number += 1;
        }
        if n < PIECE {
            break;
        }
    }
    let content = *hasher.finalize().as_bytes();
    committing.update(&cipher.encrypt(number, true, &content)?);
    Ok((committing.finish(), ContentHash(content)))
}

/// The envelope of some data, encrypted while it is read. It can be read from any position.
pub struct Envelope<D> {
    data: D,
    keys: EnvelopeKeys,
    cipher: Cipher,
    /// The hash of the data at the time of the commitment.
    content: ContentHash,
    /// The size of the data at the time of the commitment, bytes.
    size: u64,
    at: u64,
    /// The current part of the envelope, and its offset.
    part: Vec<u8>,
    part_at: u64,
}

impl<D> fmt::Debug for Envelope<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({} B)", self.size)
    }
}

impl<D: Read + Seek> Envelope<D> {
    /// Creates the envelope of data that was committed to with these keys. If the data has changed since, the envelope
    /// does not match its commitment.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the committed size is not that of an envelope.
    pub fn new(
        data: D,
        keys: EnvelopeKeys,
        content: ContentHash,
        commitment: &Commitment,
    ) -> io::Result<Self> {
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidInput, "an envelope cannot have this size");
        let size = content_size(commitment.size).ok_or_else(wrong)?;
        let cipher = Cipher::new(&keys.content)?;
        let part = head(&keys);
        Ok(Self { data, keys, cipher, content, size, at: 0, part, part_at: 0 })
    }

    /// Encrypts the piece (or encodes the head) that contains the next byte to be read.
    fn encrypt_next_piece(&mut self) -> io::Result<()> {
        let whole = (PIECE + PIECE_EXTRA) as u64;
        let Some(inner) = self.at.checked_sub(ENVELOPE_HEAD as u64) else {
            (self.part, self.part_at) = (head(&self.keys), 0);
            return Ok(());
        };
        let (number, end) = (inner / whole, envelope_size(self.size) - ENVELOPE_END as u64);
        if self.at >= end {
            let pieces = self.size.div_ceil(PIECE as u64);
            self.part = self.cipher.encrypt(pieces, true, &self.content.0)?;
            self.part_at = end;
            return Ok(());
        }
        let from = number * PIECE as u64;
        let mut data = vec![0; (self.size - from).min(PIECE as u64) as usize];
        self.data.seek(SeekFrom::Start(from))?;
        if fill(&mut self.data, &mut data)? < data.len() {
            let why = "it became shorter";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.part = self.cipher.encrypt(number, false, &data)?;
        self.part_at = ENVELOPE_HEAD as u64 + number * whole;
        Ok(())
    }
}

impl<D: Read + Seek> Read for Envelope<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.at >= envelope_size(self.size) {
            return Ok(0);
        }
        let range = self.part_at..self.part_at + self.part.len() as u64;
        if !range.contains(&self.at) {
            self.encrypt_next_piece()?;
        }
        let from = &self.part[(self.at - self.part_at) as usize..];
        let n = from.len().min(buffer.len());
        buffer[..n].copy_from_slice(&from[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl<D: Read + Seek> Seek for Envelope<D> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => envelope_size(self.size).checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// An envelope cannot be opened.
#[derive(Debug, Error)]
pub enum EnvelopeError {
    /// It is not an envelope.
    #[error(
        "it is not encrypted in this version's format; another version of thalweg submitted it"
    )]
    NotEncrypted,
    /// It is for another box or from another client.
    #[error("it is not encrypted to this box's key by the client that committed to it")]
    OtherKey,
    /// The client has committed to something that does not decrypt.
    #[error("piece {0} cannot be decrypted: the client committed to damaged data")]
    Damaged(u64),
    /// An error of reading or writing.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Decrypts an envelope of `size` bytes that `client` committed to, and writes its data to `to`, in bounded memory. If
/// an error is returned, the data written before must not be used.
///
/// # Errors
/// [`EnvelopeError`].
pub fn open(
    key: &BoxKey,
    client: &NodeId,
    (mut from, size): (impl Read, u64),
    mut to: impl Write,
) -> Result<(EnvelopeKeys, ContentHash), EnvelopeError> {
    let content = content_size(size).ok_or(EnvelopeError::NotEncrypted)?;
    let keys = keys_of(key, client, &mut from)?;
    let cipher = Cipher::new(&keys.content)?;
    let (mut left, mut number, mut hasher) = (content, 0, blake3::Hasher::new());
    let mut buffer = Vec::new();
    while left > 0 {
        let n = left.min(PIECE as u64) as usize;
        buffer.resize(n + PIECE_EXTRA, 0);
        from.read_exact(&mut buffer)?;
        let data = cipher.decrypt(number, false, &mut buffer);
        let data = data.ok_or(EnvelopeError::Damaged(number))?;
        hasher.update(data);
        to.write_all(data)?;
        left -= n as u64;
        number += 1;
    }
    let mut end = [0; ENVELOPE_END];
    from.read_exact(&mut end)?;
    let hash = *hasher.finalize().as_bytes();
    match cipher.decrypt(number, true, &mut end) {
        Some(told) if *told == hash => Ok((keys, ContentHash(hash))),
        _ => Err(EnvelopeError::Damaged(number)),
    }
}

/// Reads and decrypts the keys in the head of an envelope.
fn keys_of(
    key: &BoxKey,
    client: &NodeId,
    from: &mut impl Read,
) -> Result<EnvelopeKeys, EnvelopeError> {
    let (mut magic, mut encapsulated, mut wrapped) = ([0; 16], [0; 32], [0; 48]);
    from.read_exact(&mut magic)?;
    from.read_exact(&mut encapsulated)?;
    from.read_exact(&mut wrapped)?;
    if magic != *ENVELOPE_MAGIC {
        return Err(EnvelopeError::NotEncrypted);
    }
    let info = info(&key.drop_box, &key.destination, client);
    let content = key.key.decrypt(&encapsulated, &info, &wrapped);
    let content = content.and_then(|content| content.try_into().ok());
    let content = content.ok_or(EnvelopeError::OtherKey)?;
    Ok(EnvelopeKeys { encapsulated, wrapped, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;
    use thalweg_units::WallTime;

    fn node(n: u8) -> PrivateKey {
        PrivateKey::from_seed(&[n; 32])
    }

    fn client(n: u8) -> NodeId {
        node(n).id()
    }

    fn sheet(destination: u8, drop_box: &str) -> Signed<Sheet> {
        let drop_box: Name = drop_box.parse().unwrap();
        let encryption_key = BoxKey::of(&node(destination), &drop_box).unwrap().public();
        let until = WallTime::from_unix_nanos(1);
        let sheet = Sheet { drop_box, until, max_bytes: 1, encryption_key, nodes: Vec::new() };
        Signed::sign(sheet, &node(destination))
    }

    fn box_key(destination: u8, drop_box: &str) -> BoxKey {
        BoxKey::of(&node(destination), &drop_box.parse().unwrap()).unwrap()
    }

    /// A submission of client 9.
    struct Made {
        keys: EnvelopeKeys,
        content: ContentHash,
        commitment: Commitment,
        bytes: Vec<u8>,
    }

    fn made(data: &[u8]) -> Made {
        let keys = new_keys(&sheet(1, "taxes"), &client(9)).unwrap();
        let nonce = Nonce::from_bytes([5; 32]);
        let (commitment, content) = commit(data, &keys, &nonce, &client(9)).unwrap();
        let mut envelope = Envelope::new(Cursor::new(data), keys, content, &commitment).unwrap();
        let mut bytes = Vec::new();
        envelope.read_to_end(&mut bytes).unwrap();
        Made { keys, content, commitment, bytes }
    }

    fn opened(bytes: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
        let mut data = Vec::new();
        open(&box_key(1, "taxes"), &client(9), (bytes, bytes.len() as u64), &mut data)?;
        Ok(data)
    }

    fn data(size: usize) -> Vec<u8> {
        (0..size).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    #[test]
    fn data_of_any_size_round_trips_and_is_unreadable_in_between() {
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 100] {
            let data = data(size);
            let made = made(&data);
            assert_eq!(made.bytes.len() as u64, envelope_size(size as u64));
            assert_eq!(made.commitment.size, made.bytes.len() as u64);
            assert_eq!(made.content.0, *blake3::hash(&data).as_bytes());
            let mut committing = CommitmentHasher::new(&Nonce::from_bytes([5; 32]), &client(9));
            committing.update(&made.bytes);
            assert_eq!(committing.finish(), made.commitment, "what is sent is what was committed");
            assert!(opened(&made.bytes).unwrap() == data, "{size}");
            let needle = data.get(..32);
            let is_seen = needle.is_some_and(|n| made.bytes.windows(32).any(|found| found == n));
            assert!(!is_seen);
        }
    }

    #[test]
    fn only_the_intended_box_opens_it_and_only_for_its_client() {
        let made = made(b"data");
        let try_open = |key: &BoxKey, who: &NodeId| {
            open(key, who, (&made.bytes[..], made.bytes.len() as u64), io::sink())
        };
        let (keys, content) = try_open(&box_key(1, "taxes"), &client(9)).unwrap();
        assert_eq!((keys, content), (made.keys, made.content));
        for (key, who) in [
            (box_key(2, "taxes"), client(9)),
            (box_key(1, "grants"), client(9)),
            (box_key(1, "taxes"), client(8)),
        ] {
            let error = try_open(&key, &who).unwrap_err();
            assert!(matches!(error, EnvelopeError::OtherKey), "{error}");
        }
    }

    #[test]
    fn cut_swapped_or_foreign_pieces_are_detected() {
        let data = data(3 * PIECE);
        let (one, other) = (made(&data), made(&data));
        let whole = PIECE + PIECE_EXTRA;
        let piece = |n: usize| ENVELOPE_HEAD + n * whole..ENVELOPE_HEAD + (n + 1) * whole;
        let refused = |bytes: &[u8], number: u64| {
            let error = opened(bytes).unwrap_err();
            assert!(matches!(error, EnvelopeError::Damaged(n) if n == number), "{error}");
        };
        let mut swapped = one.bytes.clone();
        swapped[piece(0)].copy_from_slice(&one.bytes[piece(1)]);
        swapped[piece(1)].copy_from_slice(&one.bytes[piece(0)]);
        refused(&swapped, 0);
        let mut mixed = one.bytes.clone();
        mixed[piece(1)].copy_from_slice(&other.bytes[piece(1)]);
        refused(&mixed, 1);
        let without = [&one.bytes[..piece(2).start], &one.bytes[piece(2).end..]].concat();
        refused(&without, 2);
        let mut foreign_end = one.bytes.clone();
        foreign_end[piece(3).start..].copy_from_slice(&other.bytes[piece(3).start..]);
        refused(&foreign_end, 3);
        let cut = &one.bytes[..one.bytes.len() - 1];
        assert!(opened(cut).is_err() && opened(&one.bytes[..100]).is_err());
        let plain = vec![7; one.bytes.len()];
        assert!(matches!(opened(&plain).unwrap_err(), EnvelopeError::NotEncrypted));
    }

    #[test]
    fn equal_data_differs_between_submissions() {
        let (one, two) = (made(b"data"), made(b"data"));
        assert_ne!(one.bytes[ENVELOPE_HEAD..], two.bytes[ENVELOPE_HEAD..]);
        assert_eq!(one.content, two.content);
    }

    #[test]
    fn a_changed_file_does_not_reuse_a_nonce() {
        let (before, after) = (data(2 * PIECE), vec![1; 2 * PIECE]);
        let made = made(&before);
        let changed = Cursor::new(after);
        let mut envelope =
            Envelope::new(changed, made.keys, made.content, &made.commitment).unwrap();
        let mut bytes = Vec::new();
        envelope.read_to_end(&mut bytes).unwrap();
        let nonce = ENVELOPE_HEAD..ENVELOPE_HEAD + NONCE;
        assert_ne!(made.bytes[nonce.clone()], bytes[nonce]);
        let shorter = Cursor::new(vec![1; PIECE]);
        let mut envelope =
            Envelope::new(shorter, made.keys, made.content, &made.commitment).unwrap();
        let error = envelope.read_to_end(&mut bytes).unwrap_err();
        assert!(error.to_string().contains("shorter"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_envelope_can_be_read_from_any_position(
            size in 0..3 * PIECE,
            from in 0_usize..4 * PIECE,
            step in 1_usize..100_000,
        ) {
            let data = data(size);
            let made = made(&data);
            let mut envelope =
                Envelope::new(Cursor::new(&data), made.keys, made.content, &made.commitment).unwrap();
            let from = from.min(made.bytes.len());
            envelope.seek(SeekFrom::Start(from as u64)).unwrap();
            let (mut bytes, mut buffer) = (Vec::<u8>::new(), vec![0; step]);
            loop {
                match envelope.read(&mut buffer).unwrap() {
                    0 => break,
                    n => bytes.extend(&buffer[..n]),
                }
            }
            prop_assert!(bytes == made.bytes[from..]);
            prop_assert_eq!(envelope.seek(SeekFrom::End(0)).unwrap(), made.bytes.len() as u64);
        }

        #[test]
        fn any_altered_byte_is_detected(size in 0_usize..200, place: usize, by in 1_u8..) {
            let mut bytes = made(&data(size)).bytes;
            let place = place % bytes.len();
            bytes[place] ^= by;
            prop_assert!(opened(&bytes).is_err());
        }
    }
}
