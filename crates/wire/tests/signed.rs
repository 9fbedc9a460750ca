//! Signed objects with a stand-in for Ed25519: a keyed hash of the whole message.

use proptest::prelude::*;
use thalweg_units::NodeId;
use thalweg_wire::{
    DecodeError, ManifestBuilder, Signable, Signature, Signed, SignedError, Signer, Verifier,
};

/// A key whose id is the key itself, so that anybody could sign with it.
struct Key([u8; 32]);

impl Signer for Key {
    fn id(&self) -> NodeId {
        NodeId::from_bytes(self.0)
    }
    fn sign(&self, message: &[u8]) -> Signature {
        let half = blake3::keyed_hash(&self.0, message);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(half.as_bytes());
        Signature::from_bytes(bytes)
    }
}

struct AnyKey;

impl Verifier for AnyKey {
    fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool {
        Key(*signer.as_bytes()).sign(message) == *signature
    }
}

/// Text whose decoder ignores case, so that it has non-canonical encodings.
#[derive(Clone, Debug, PartialEq)]
struct Note<const KIND: u8>(String);

impl<const KIND: u8> Signable for Note<KIND> {
    const DOMAIN: &'static str = if KIND == 0 { "note" } else { "notice" };
    const MAX_BYTES: usize = 1000;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.0.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("no text"))?;
        Ok(Self(text.to_ascii_lowercase()))
    }
}

const KEY: Key = Key([7; 32]);

fn open<const KIND: u8>(bytes: &[u8]) -> Result<Signed<Note<KIND>>, SignedError> {
    Signed::open(bytes, &AnyKey)
}

#[test]
fn a_signed_object_opens_and_names_its_signer() {
    let signed = Signed::sign(Note::<0>("roster".into()), &KEY);
    let opened = open::<0>(&signed.encode()).unwrap();
    assert_eq!((opened.value(), opened.signer()), (signed.value(), KEY.id()));
    assert_eq!(opened, signed);
    assert_eq!(opened.into_value().0, "roster");
}

#[test]
fn a_signature_for_one_kind_is_invalid_for_another() {
    let bytes = Signed::sign(Note::<0>("roster".into()), &KEY).encode();
    let error = open::<1>(&bytes).unwrap_err();
    assert_eq!(error, SignedError::Signature { domain: "notice", signer: KEY.id() });
}

#[test]
fn non_canonical_encodings_are_refused() {
    // The signer signed the other spelling, but only one of both may be valid.
    let upper = Signed::sign(Note::<0>("ROSTER".into()), &KEY).encode();
    assert_eq!(open::<0>(&upper).unwrap_err(), SignedError::NotCanonical("note"));
}

#[test]
fn lengths_are_exact_and_bounded() {
    let bytes = Signed::sign(Note::<0>("roster".into()), &KEY).encode();
    let decode = |source| SignedError::Decode { domain: "note", source };
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(open::<0>(&longer).unwrap_err(), decode(DecodeError::TooLong(1)));
    let cut = open::<0>(&bytes[..bytes.len() - 2]).unwrap_err();
    assert_eq!(cut, decode(DecodeError::Truncated(2)));
    let mut huge = bytes;
    huge[96..100].copy_from_slice(&u32::MAX.to_be_bytes());
    let error = open::<0>(&huge).unwrap_err();
    let length = u64::from(u32::MAX);
    assert_eq!(error, decode(DecodeError::TooLarge { length, max: 1000 }));
}

#[test]
fn manifests_can_be_signed() {
    let mut builder = ManifestBuilder::new();
    builder.update(b"object");
    let signed = Signed::sign(builder.finish().unwrap(), &KEY);
    assert_eq!(Signed::open(&signed.encode(), &AnyKey), Ok(signed));
}

proptest! {
    #[test]
    fn any_single_flipped_bit_is_detected(text in "[a-z ]{0,200}", at: prop::sample::Index, bit in 0..8) {
        let mut bytes = Signed::sign(Note::<0>(text), &KEY).encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(open::<0>(&bytes).is_err());
    }
}
