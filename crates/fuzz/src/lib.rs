//! Fuzz targets: one for each group of parsers that a peer, a server, a file or a user reaches.
//!
//! A target takes any bytes and panics if an invariant does not hold. `scripts/fuzz` feeds them by coverage (libFuzzer);
//! `tests/replay.rs` replays the committed corpora, which are the smallest inputs that reach all that fuzzing has reached.
//!
//! ```text
//! corpus/TARGET ─► replay (make test)
//!       ▲ │
//!       │ └─ unpacked ─► driver/ (libFuzzer) ─► merged, packed ─┐
//!       └────────────────────────────────────────────────────────┘
//! ```

mod corpus;
#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../media/tests/fixtures/invariants.rs"]
mod media;
mod texts;
#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../wire/tests/fixtures/invariants.rs"]
mod wire;

pub use corpus::{pack, unpack};

use serde::de::DeserializeOwned;
use std::{fmt::Debug, hint::black_box, str};
use thalweg_wire::{
    Manifest, Signable, Signed,
    bistro::{Denial, Evidence, Receipt, Sheet, Stamp, SubmitReply, SubmitRequest, Trust},
    cast::{Offer, Pass, RepairSheet},
    mesh::{
        self, ClientBinding, Endorsement, Roster, measure,
        measure_flow::{self, ReceiverMessage},
        measure_ticket::Ticket,
    },
    metalink, object,
};
use wire::AcceptAll;

/// A target, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Checks the invariants for these bytes.
    ///
    /// # Panics
    /// If one does not hold.
    pub check: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "bistro", check: bistro },
    Target { name: "bond", check: wire::check_bond },
    Target { name: "cast", check: wire::check_cast },
    Target { name: "estimates", check: texts::estimates },
    Target { name: "evidence", check: evidence },
    Target { name: "excludes", check: texts::excludes },
    Target { name: "http-fields", check: wire::check_http_fields },
    Target { name: "ip-packet", check: ip_packet },
    Target { name: "manifest", check: wire::check_manifest },
    Target { name: "measure", check: measure_messages },
    Target { name: "mesh", check: mesh_messages },
    Target { name: "metalink", check: metalinks },
    Target { name: "object", check: object_messages },
    Target { name: "probe", check: wire::check_probe },
    Target { name: "roster", check: roster },
    Target { name: "settings", check: texts::settings },
    Target { name: "signed", check: signed },
    Target { name: "socks5", check: wire::check_all_of_socks5 },
    Target { name: "stream-leg", check: wire::check_stream_leg },
    Target { name: "stream-plan", check: wire::check_stream_plan },
    Target { name: "topology", check: texts::topology },
    Target { name: "transport-stream", check: transport_stream },
    Target { name: "units", check: texts::units },
    Target { name: "urls", check: texts::urls },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

/// Checks that a value which can be decoded is decoded again from its own encoding. (Of several encodings, only that one is
/// accepted under a signature: [`check_signed`].)
fn check_signable<T: Signable + Debug + PartialEq>(bytes: &[u8]) {
    let Ok(value) = T::decode(bytes) else { return };
    let mut again = Vec::new();
    value.encode(&mut again);
    assert_eq!(T::decode(&again), Ok(value));
}

/// Checks that a signed value which can be opened has one encoding.
fn check_signed<T: Signable>(bytes: &[u8]) -> Option<Signed<T>> {
    let signed = Signed::<T>::open(bytes, &AcceptAll).ok()?;
    assert_eq!(signed.encode(), bytes);
    Some(signed)
}

/// Checks that a message which can be decoded is decoded again from its own encoding.
fn check_message<T: DeserializeOwned + serde::Serialize + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = object::decode::<T>(bytes) {
        assert_eq!(object::decode::<T>(&object::encode(&message)[4..]).as_ref(), Ok(&message));
    }
}

/// Checks that JSON which can be read is written and read again without an error.
fn check_json<T: DeserializeOwned + serde::Serialize>(bytes: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(bytes) {
        let again = serde_json::to_vec(&value).unwrap_or_default();
        assert!(serde_json::from_slice::<T>(&again).is_ok(), "{}", String::from_utf8_lossy(&again));
    }
}

fn signed(bytes: &[u8]) {
    check_signable::<Endorsement>(bytes);
    check_signable::<Ticket>(bytes);
    check_signable::<ClientBinding>(bytes);
    check_signed::<Manifest>(bytes);
    check_signed::<Offer>(bytes);
    check_signed::<Pass>(bytes);
    check_signed::<RepairSheet>(bytes);
    check_signed::<Ticket>(bytes);
}

fn roster(bytes: &[u8]) {
    check_signable::<Roster>(bytes);
    if let Some(signed) = check_signed::<Roster>(bytes) {
        _ = black_box(signed.root(&AcceptAll));
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(token) = text.parse::<mesh::Token>()
    {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
}

fn bistro(bytes: &[u8]) {
    check_signable::<Stamp>(bytes);
    check_signable::<Receipt>(bytes);
    check_signable::<Sheet>(bytes);
    check_signable::<Denial>(bytes);
    _ = black_box(object::decode::<SubmitRequest>(bytes));
    _ = black_box(object::decode::<SubmitReply>(bytes));
}

fn evidence(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    _ = black_box(Evidence::read_names(text));
    if let Ok(evidence) = Evidence::read(text, &AcceptAll) {
        assert_eq!(evidence.to_string(), text);
        _ = black_box(evidence.judge(&Trust::default()));
    }
}

fn object_messages(bytes: &[u8]) {
    _ = black_box(object::decode::<object::Request>(bytes));
    _ = black_box(object::decode::<object::Reply>(bytes));
    _ = black_box(object::decode::<object::Entry>(bytes));
    if let Ok(path) = object::FilePath::new(bytes.to_vec()) {
        assert_eq!(path.as_bytes(), bytes);
        let parts = || bytes.split(|byte| *byte == b'/');
        // The empty path is the directory itself.
        let is_clean = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
        assert!(bytes.is_empty() || parts().all(is_clean));
    }
}

fn mesh_messages(bytes: &[u8]) {
    check_json::<mesh::JoinRequest>(bytes);
    check_json::<mesh::TokenRequest>(bytes);
    check_json::<mesh::RevokeRequest>(bytes);
    check_json::<mesh::StatusReply>(bytes);
    check_message::<mesh::Terms>(bytes);
}

fn measure_messages(bytes: &[u8]) {
    check_json::<measure::Reports>(bytes);
    check_json::<measure::Orders>(bytes);
    check_json::<measure::PathsReply>(bytes);
    _ = black_box(object::decode::<measure_flow::Hello>(bytes));
    _ = black_box(object::decode::<measure_flow::Answer>(bytes));
    _ = black_box(object::decode::<ReceiverMessage>(bytes));
}

fn metalinks(bytes: &[u8]) {
    let Ok(files) = metalink::parse(bytes) else { return };
    assert!(!files.is_empty() && files.len() <= metalink::MAX_FILES);
}

fn ip_packet(bytes: &[u8]) {
    if let Some(head) = thalweg_measure::riders::PacketHead::read(bytes) {
        assert!(head.dscp < 64);
    }
}

fn transport_stream(bytes: &[u8]) {
    // The first bytes choose which frames are lost.
    let (lost, stream) = bytes.split_at(bytes.len().min(2));
    let lost = lost.iter().fold(0, |mask, byte| mask << 8 | u64::from(*byte));
    media::check_all(stream, lost | lost << 16 | lost << 32 | lost << 48);
}
