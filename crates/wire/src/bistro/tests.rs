//! Tests of evidence, whole and altered, and of signed messages.

use super::*;
use crate::{
    Signable, Signature, Signed, Signer, Verifier,
    mesh::{Member, Role, Roster},
};
use proptest::prelude::*;
use thalweg_units::{NodeId, WallTime};

/// A stand-in for Ed25519, which this crate does not depend on: a hash keyed with the public key.
struct Hashed(NodeId);

fn hashed(key: &NodeId, message: &[u8]) -> Signature {
    let hash = blake3::keyed_hash(key.as_bytes(), message);
    Signature::from_bytes([*hash.as_bytes(); 2].concat().try_into().unwrap())
}

impl Signer for Hashed {
    fn id(&self) -> NodeId {
        self.0
    }
    fn sign(&self, message: &[u8]) -> Signature {
        hashed(&self.0, message)
    }
}

impl Verifier for Hashed {
    fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool {
        hashed(signer, message) == *signature
    }
}

const DESTINATION: u8 = 1;
const NODE: u8 = 2;
const MESH: u8 = 3;

fn id(n: u8) -> NodeId {
    NodeId::from_bytes([n * 17; 32])
}

fn at(seconds: u64) -> WallTime {
    WallTime::from_unix_nanos(seconds * 1_000_000_000)
}

fn stamp() -> Stamp {
    Stamp {
        drop_box: "taxes".parse().unwrap(),
        number: 17,
        client: id(9),
        label: "return 2026.pdf".parse().unwrap(),
        commitment: Commitment { size: envelope_size(123_456), hash: [7; 32] },
        time: at(1_000),
        until: at(2_000),
    }
}

fn member(name: &str, key: u8) -> Member {
    Member {
        name: name.parse().unwrap(),
        node: Some(id(key)),
        client: id(key + 4),
        addresses: vec!["10.0.0.1:7373".parse().unwrap()],
        roles: [Role::Client].into(),
        tags: [].into(),
    }
}

fn evidence() -> Evidence {
    let stamp = Signed::sign(stamp(), &Hashed(id(DESTINATION)));
    let node: crate::mesh::Name = "fra".parse().unwrap();
    let receipt =
        Receipt { stamp: StampId::from_stamp(&stamp), node: node.clone(), time: at(1_500) };
    let port = vec!["10.0.0.2:7373".parse().unwrap()];
    let sheet = Sheet {
        drop_box: "taxes".parse().unwrap(),
        until: at(2_000),
        max_bytes: 1 << 30,
        encryption_key: [3; 32],
        nodes: vec![SheetNode { name: node, key: id(NODE), addresses: port }],
    };
    let roster = Roster {
        version: 1,
        not_before: at(0),
        expiry: at(5_000),
        members: vec![member("fra", NODE), member("irs", DESTINATION)],
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    let stamped = stamp.value().clone();
    Evidence {
        drop_box: stamped.drop_box,
        destination: id(DESTINATION),
        client: stamped.client,
        label: stamped.label,
        commitment: stamped.commitment,
        nonce: Some(Nonce::from_bytes([4; 32])),
        keys: Some(EnvelopeKeys { encapsulated: [5; 32], wrapped: [6; 48], content: [7; 32] }),
        content: Some(ContentHash([8; 32])),
        receipt: Some(Signed::sign(receipt, &Hashed(id(NODE)))),
        sheet: Some(Signed::sign(sheet, &Hashed(id(DESTINATION)))),
        roster: Some(Signed::sign(roster, &Hashed(id(MESH)))),
        stamp: Some(stamp),
    }
}

fn read(text: &str) -> Result<Evidence, EvidenceError> {
    Evidence::read(text, &Hashed(id(0)))
}

fn judged(evidence: &Evidence, keys: &[u8]) -> Verdict {
    let mut trust = Trust::default();
    keys.iter().for_each(|key| trust.add(&id(*key).to_string()).unwrap());
    evidence.judge(&trust)
}

#[test]
fn evidence_round_trips_at_every_step() {
    let whole = evidence();
    let stamped = Evidence { receipt: None, sheet: None, ..whole.clone() };
    let begun = Evidence { stamp: None, roster: None, ..stamped.clone() };
    let shared = Evidence { nonce: None, keys: None, content: None, ..whole.clone() };
    for evidence in [whole, stamped, begun, shared] {
        assert_eq!(read(&evidence.to_string()), Ok(evidence));
    }
}

#[test]
fn an_altered_line_is_named() {
    let text = evidence().to_string();
    let with = |from: &str, to: &str| read(&text.replacen(from, to, 1)).unwrap_err().field;
    for (from, to, field) in [
        ("box taxes", "box takes", "box"),
        ("size 123456", "size 123457", "size"),
        ("file return", "file retorn", "file"),
        ("number 17", "number 18", "number"),
        ("committed 1970", "committed 1971", "committed"),
        ("deadline 1970", "deadline 1971", "deadline"),
        ("received 1970", "received 1971", "received"),
        ("node fra", "node nyc", "node"),
        ("\nstamp ", "\nstamp A", "stamp"),
        ("\nnode ", "\nhost ", "host"),
        ("size 123456\n", "", "size"),
        ("blake3 08", "blake3 0g", "blake3"),
        ("keys BQ", "keys B", "keys"),
        ("thalweg receipt 2", "thalweg receipt 1", "text"),
        ("encrypted 1", "encrypted 2", "encrypted"),
        ("size 123456", "size  123456", "size"),
        ("\nnumber", "\r\nnumber", "text"),
    ] {
        assert_eq!(with(from, to), field, "{from} → {to}");
    }
    let twice = format!("{text}size 123456\n");
    assert_eq!(read(&twice).unwrap_err().field, "size");
    assert_eq!(read("").unwrap_err().field, "text");
}

#[test]
fn parts_of_two_submissions_do_not_pass_for_one() {
    let mut other = stamp();
    other.number = 18;
    let other = Signed::sign(other, &Hashed(id(DESTINATION)));
    let swapped = Evidence { stamp: Some(other), ..evidence() };
    assert_eq!(read(&swapped.to_string()).unwrap_err().field, "receipt");
    let forged = Signed::sign(stamp(), &Hashed(id(8)));
    let forged = Evidence { stamp: Some(forged), receipt: None, ..evidence() };
    assert_eq!(read(&forged.to_string()).unwrap_err().field, "destination");
    let unstamped = Evidence { stamp: None, ..evidence() };
    assert_eq!(read(&unstamped.to_string()).unwrap_err().field, "receipt");
}

#[test]
fn a_verdict_depends_on_the_trusted_keys() {
    let whole = evidence();
    let nobody = judged(&whole, &[]);
    assert_eq!((nobody.proven.len(), nobody.unproven.len()), (0, 2));
    assert!(nobody.unproven[0].contains("--key"), "{nobody:?}");
    let destination = judged(&whole, &[DESTINATION]);
    assert!(destination.is_whole());
    assert_eq!(destination.node, Some(TrustBasis::Sheet));
    let mesh = judged(&whole, &[MESH]);
    assert!(mesh.is_whole());
    assert_eq!((mesh.destination, mesh.node), (TrustBasis::Mesh, Some(TrustBasis::Mesh)));
    let node = judged(&whole, &[NODE]);
    assert_eq!((node.proven.len(), node.unproven.len()), (1, 1));
    let unlisted = judged(&Evidence { sheet: None, roster: None, ..whole.clone() }, &[DESTINATION]);
    assert_eq!((unlisted.proven.len(), unlisted.unproven.len()), (1, 1));
    let stamped = judged(&Evidence { receipt: None, sheet: None, ..whole }, &[DESTINATION]);
    assert!(!stamped.is_whole() && stamped.proven.len() == 1);
}

#[test]
fn a_roster_that_was_expired_at_the_stamp_proves_nothing() {
    let mut whole = evidence();
    let mut roster = whole.roster.take().unwrap().into_value();
    roster.expiry = at(999);
    whole.roster = Some(Signed::sign(roster, &Hashed(id(MESH))));
    assert_eq!(judged(&whole, &[MESH]).destination, TrustBasis::Not);
}

#[test]
fn a_key_may_be_given_by_its_first_32_digits() {
    let mut trust = Trust::default();
    let text = id(DESTINATION).to_string();
    assert!(trust.add(&text[..31]).is_err() && trust.add(&"g".repeat(64)).is_err());
    assert!(trust.add(&format!("{text}0")).is_err());
    trust.add(&text[..32].to_uppercase()).unwrap();
    assert!(trust.has(&id(DESTINATION)) && !trust.has(&id(NODE)));
}

#[test]
fn the_longest_encodings_are_within_the_bounds() {
    let mut widest = stamp();
    let most = WallTime::from_unix_nanos(u64::MAX);
    (widest.number, widest.commitment.size) = (u64::MAX, u64::MAX);
    (widest.time, widest.until) = (WallTime::from_unix_nanos(u64::MAX - 1), most);
    widest.drop_box = "x".repeat(63).parse().unwrap();
    widest.label = "x".repeat(200).parse().unwrap();
    let mut bytes = Vec::new();
    widest.encode(&mut bytes);
    assert_eq!((bytes.len(), Stamp::decode(&bytes)), (Stamp::MAX_BYTES, Ok(widest.clone())));
    let receipt = Receipt { stamp: StampId([1; 32]), node: widest.drop_box.clone(), time: most };
    let mut bytes = Vec::new();
    receipt.encode(&mut bytes);
    assert_eq!((bytes.len(), Receipt::decode(&bytes)), (Receipt::MAX_BYTES, Ok(receipt)));
    // A request with the maximum number of entries is not too long.
    let intent = Intent { label: widest.label.clone(), commitment: widest.commitment };
    let ask = SubmitRequest::Commit(widest.drop_box.clone(), vec![intent; MOST_INTENTS]);
    assert!(crate::object::encode(&ask).len() <= MAX_SUBMIT_REQUEST);
    let stamp = vec![0; Stamp::MAX_BYTES + 100];
    let answer = SubmitReply::Stamps(vec![Ok(stamp); MOST_INTENTS]);
    assert!(crate::object::encode(&answer).len() <= MAX_SUBMIT_REPLY);
}

#[test]
fn a_refusal_is_valid_if_the_destination_signed_it_for_this_submission() {
    let about = StampId([1; 32]);
    let denial = Denial::for_stamp(about, Refusal::NotAdmitted);
    let read = |key: u8, about: StampId| {
        let bytes = Signed::sign(denial.clone(), &Hashed(id(key))).encode();
        Denial::read(&bytes, &id(DESTINATION), &about.0, &Hashed(id(0)))
    };
    assert_eq!(read(DESTINATION, about), Ok(Refusal::NotAdmitted));
    assert!(read(NODE, about).unwrap_err().contains("a key other than"));
    assert!(read(DESTINATION, StampId([2; 32])).unwrap_err().contains("another submission"));
    let mut bytes = Signed::sign(denial, &Hashed(id(DESTINATION))).encode();
    *bytes.last_mut().unwrap() ^= 1;
    assert!(Denial::read(&bytes, &id(DESTINATION), &about.0, &Hashed(id(0))).is_err());
}

#[test]
fn a_stamp_after_its_deadline_is_refused() {
    let late = Stamp { time: at(2_000), ..stamp() };
    let mut bytes = Vec::new();
    late.encode(&mut bytes);
    assert!(Stamp::decode(&bytes).is_err());
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    let numbers = (any::<u64>(), any::<u64>(), 0..u64::MAX, 1..u64::MAX);
    (numbers, any::<[u8; 32]>(), "[a-z][a-z0-9]{0,20}", "[a-z][a-z0-9é.]{0,30}").prop_map(
        |((number, size, time, ahead), hash, drop_box, label)| Stamp {
            drop_box: drop_box.parse().unwrap(),
            number,
            client: id(9),
            label: label.parse().unwrap(),
            commitment: Commitment { size, hash },
            time: WallTime::from_unix_nanos(time),
            until: WallTime::from_unix_nanos(time.saturating_add(ahead)),
        },
    )
}

proptest! {
    #[test]
    fn stamps_round_trip(stamp in any_stamp()) {
        let bytes = Signed::sign(stamp.clone(), &Hashed(id(1))).encode();
        let read = Signed::<Stamp>::open(&bytes, &Hashed(id(1))).unwrap();
        prop_assert_eq!(read.into_value(), stamp);
    }

    #[test]
    fn altered_signed_bytes_are_refused(place: usize, to: u8) {
        let whole = evidence();
        let stamp = whole.stamp.unwrap().encode();
        let receipt = whole.receipt.unwrap().encode();
        let sheet = whole.sheet.unwrap().encode();
        let altered = |bytes: &[u8]| {
            let (mut bytes, place) = (bytes.to_vec(), place % bytes.len());
            let same = std::mem::replace(&mut bytes[place], to) == to;
            (bytes, same)
        };
        let (bytes, same) = altered(&stamp);
        prop_assert!(same || Signed::<Stamp>::open(&bytes, &Hashed(id(0))).is_err());
        let (bytes, same) = altered(&receipt);
        prop_assert!(same || Signed::<Receipt>::open(&bytes, &Hashed(id(0))).is_err());
        let (bytes, same) = altered(&sheet);
        prop_assert!(same || Signed::<Sheet>::open(&bytes, &Hashed(id(0))).is_err());
    }

    /// Except in the lines with the owner's secrets, which can be verified only with the data.
    #[test]
    fn altered_text_is_refused(place: usize, to in 0x20_u8..0x7f) {
        let text = evidence().to_string();
        let mut bytes = text.clone().into_bytes();
        let place = place % bytes.len();
        bytes[place] = to;
        let altered = String::from_utf8(bytes).unwrap();
        let line = text[..place].rsplit('\n').next().unwrap();
        let is_secret = ["nonce ", "blake3 ", "keys "].iter().any(|word| line.starts_with(word));
        prop_assume!(altered != text && !is_secret);
        prop_assert!(read(&altered).is_err(), "{}", altered);
    }

    #[test]
    fn any_text_and_bytes_are_decoded_or_refused(text: String, bytes: Vec<u8>) {
        _ = read(&format!("thalweg receipt 2\n{text}"));
        _ = crate::object::decode::<SubmitRequest>(&bytes);
        _ = crate::object::decode::<SubmitReply>(&bytes);
        _ = Stamp::decode(&bytes);
        _ = Receipt::decode(&bytes);
        _ = Sheet::decode(&bytes);
    }
}
