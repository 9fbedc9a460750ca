//! No input makes a decoder panic, loop, or use more memory than the size of the input justifies.
//!
//! `cargo test -p thalweg-wire` replays `corpus/`, then tries arbitrary and mutated bytes. To fuzz for longer:
//! `PROPTEST_CASES=1000000 cargo test --release -p thalweg-wire --test arbitrary`. The seed of a failure is printed and
//! stored beside this file. Add a new failing input to `corpus/` as a file of its own.

#![expect(clippy::disallowed_methods, reason = "the corpus is files; the crate itself reads none")]

use proptest::prelude::*;
use std::{fs, path::Path, str};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Destination, Manifest, Signable, Signature, Signed, Verifier, bond, cast, content_disposition,
    content_range::{ContentRange, RequestRange},
    file_name, object, probe, repr_digest, retry_after,
    socks5::{self, Decoded, Socks5Error},
    stream::{leg, plan},
};

struct AcceptAll;

impl Verifier for AcceptAll {
    fn verify(&self, _: &NodeId, _: &[u8], _: &Signature) -> bool {
        true
    }
}

/// Checks the invariants of a SOCKS5 decoder.
fn socks5_holds<T>(bytes: &[u8], decode: fn(&[u8]) -> Result<Decoded<T>, Socks5Error>) {
    match decode(bytes) {
        Ok(Decoded::Message(_, length)) => assert!(length > 0 && length <= bytes.len()),
        // The total never exceeds the longest message, so a reader's buffer is bounded.
        Ok(Decoded::Needs(n)) => assert!(n > 0 && bytes.len() + n <= socks5::MAX_MESSAGE),
        Err(_) => {}
    }
}

/// Checks that a decoded manifest encodes to the same bytes.
fn manifest_holds(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    let mut again = Vec::new();
    manifest.encode(&mut again);
    assert_eq!(again, bytes);
    assert!(manifest.chunks() * 32 < bytes.len());
}

/// Checks that offers, passes and frames have one encoding, and that layouts round-trip.
fn cast_holds(bytes: &[u8]) {
    fn same<T: Signable>(bytes: &[u8]) -> Option<T> {
        let value = T::decode(bytes).ok()?;
        let mut again = Vec::new();
        value.encode(&mut again);
        assert_eq!(again, bytes);
        Some(value)
    }
    if let Some(offer) = same::<cast::Offer>(bytes) {
        assert!(!offer.name.as_bytes().contains(&b'/') && offer.name.as_bytes() != b"..");
    }
    same::<cast::Pass>(bytes);
    if let Ok(layout) = cast::Layout::decode(bytes, 3) {
        assert_eq!(cast::Layout::decode(&layout.encode(), 3), Ok(layout));
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(frame) = cast::Frame::decode(*head)
    {
        assert_eq!(frame.encode(), *head);
    }
    _ = cast::decode::<cast::Opening>(bytes);
    _ = cast::decode::<cast::Word>(bytes);
    _ = cast::decode::<cast::Report>(bytes);
    _ = cast::decode::<cast::Wish>(bytes);
    _ = cast::decode::<cast::Said>(bytes);
}

/// Checks that frames have one encoding, and that truncated messages are within the bound.
fn bond_holds(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(frame) = bond::Frame::decode(*head)
    {
        assert_eq!(frame.encode(), *head);
    }
    if let Ok(word) = object::decode::<bond::Word>(bytes) {
        let word = word.cut();
        assert!(!word.is_sound() || object::encode(&word).len() <= 4 + bond::MAX_WORD, "{word:?}");
    }
    if let Ok(bond::Greeting::Refused(why)) = object::decode::<bond::Greeting>(bytes) {
        assert!(object::encode(&bond::Greeting::Refused(why.cut())).len() <= 4 + bond::MAX_WORD);
    }
    _ = object::decode::<bond::Hello>(bytes);
}

/// Checks that payloads have one encoding before their padding, that fragments lie within their riders, and that the
/// clear part of a whole datagram and of its quoted beginning is the same.
fn probe_holds(bytes: &[u8]) {
    if let Ok(payload) = probe::Payload::decode(bytes) {
        let again = payload.encode();
        assert!(bytes.starts_with(&again) && bytes[again.len()..].iter().all(|b| *b == 0));
        let (probe::Payload::Probe { riders, .. } | probe::Payload::Riders(riders)) = &payload;
        for rider in riders {
            let end = usize::from(rider.offset) + rider.bytes.len();
            assert!(!rider.bytes.is_empty() && end <= usize::from(rider.total), "{rider:?}");
        }
    }
    if let Some((outer, sealed)) = probe::Outer::split(bytes) {
        assert_eq!(probe::Outer::read(bytes), Some(outer));
        assert!(bytes.starts_with(&outer.encode()) && bytes.ends_with(sealed));
        assert!(sealed.len() > probe::TAG);
    }
    for size in [bytes.len() as u16, u16::MAX] {
        let header = bytes.first().map_or(0, |b| u16::from(*b));
        let least = probe::Payload::least(header);
        assert_eq!(probe::Payload::padding(size, header).is_some(), size >= least);
    }
    if let Ok(ask) = object::decode::<probe::Ask>(bytes) {
        assert_eq!(object::decode(&object::encode(&ask)[4..]), Ok(ask));
    }
    if let Ok(tell) = object::decode::<probe::NodeReply>(bytes) {
        assert_eq!(object::decode(&object::encode(&tell)[4..]), Ok(tell));
    }
}

/// Checks that heads have one encoding, that openings round-trip, and that sound messages are within the bounds.
fn stream_leg_holds(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(decoded) = leg::Head::decode(head)
    {
        assert_eq!(decoded.encode(), *head);
    }
    if let Ok(opening) = leg::decode::<leg::Opening>(bytes) {
        assert_eq!(leg::decode(&leg::encode(&opening)[4..]), Ok(opening));
    }
    if let Ok(answer) = leg::decode::<leg::Answer>(bytes) {
        let answer = answer.cut();
        assert!(!answer.is_sound() || leg::encode(&answer).len() <= 4 + leg::MAX_ANSWER);
    }
    if let Ok(message) = leg::decode::<leg::ParentMessage>(bytes)
        && message.is_sound()
    {
        assert!(leg::Head::encode_message(&message).len() <= leg::HEAD + leg::MAX_PARENT_MESSAGE);
    }
    _ = leg::decode::<leg::ChildMessage>(bytes);
}

/// Checks that valid reports can be encoded and decoded again, and that plans round-trip.
fn stream_plan_holds(bytes: &[u8]) {
    if let Ok(report) = serde_json::from_slice::<plan::Report>(bytes)
        && report.check().is_ok()
    {
        let again = serde_json::to_vec(&report).expect("it is written as it was read");
        // Fractions may differ in their last digit.
        assert!(serde_json::from_slice::<plan::Report>(&again).is_ok());
    }
    if let Ok(told) = serde_json::from_slice::<plan::Plan>(bytes) {
        let again = serde_json::to_vec(&told).expect("it is written as it was read");
        assert_eq!(serde_json::from_slice::<plan::Plan>(&again).ok(), Some(told));
    }
    _ = serde_json::from_slice::<plan::Reply>(bytes);
}

fn text_holds(text: &str) {
    if let Ok(to) = text.parse::<Destination>() {
        assert_eq!(to.to_string().parse(), Ok(to));
    }
    if let Ok(range) = text.parse::<ContentRange>() {
        assert_eq!(range.to_string().parse(), Ok(range));
    }
    if let Ok(range) = text.parse::<RequestRange>() {
        assert_eq!(range.to_string().parse(), Ok(range));
        let inside = range.within(1000).is_none_or(|r| r.last() < 1000);
        assert!(inside, "{text}");
    }
    let wait = retry_after::retry_after(text, WallTime::from_unix_nanos(0));
    assert!(wait.is_none_or(|d| d <= retry_after::MAX), "{text}");
    // No field is valid in both formats, since only one of them has colons.
    let both = repr_digest::repr_digest(text).and(repr_digest::digest(text));
    assert!(both.is_none() || text.matches("256").count() > 1, "{text}");
}

fn all_hold(bytes: &[u8]) {
    socks5_holds(bytes, socks5::decode_methods);
    socks5_holds(bytes, socks5::decode_method);
    socks5_holds(bytes, socks5::decode_request);
    socks5_holds(bytes, socks5::decode_reply);
    manifest_holds(bytes);
    cast_holds(bytes);
    bond_holds(bytes);
    probe_holds(bytes);
    stream_leg_holds(bytes);
    stream_plan_holds(bytes);
    if let Ok(signed) = Signed::<Manifest>::open(bytes, &AcceptAll) {
        assert_eq!(signed.encode(), bytes);
    }
    if let Some(name) = content_disposition::file_name(bytes) {
        // The name is safe, whatever the server sends.
        assert_eq!(file_name::safe_last_component(&name), Some(name));
    }
    if let Ok(text) = str::from_utf8(bytes) {
        text_holds(text);
    }
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = fs::read_dir(folder).expect("corpus/ is there");
    let read = |e: std::io::Result<fs::DirEntry>| {
        let path = e.expect("corpus/ can be listed").path();
        (path.display().to_string(), fs::read(path).expect("its files can be read"))
    };
    entries.map(read).collect()
}

#[test]
fn the_corpus_is_replayed() {
    let corpus = corpus();
    assert!(corpus.len() >= 20, "only {} files in corpus/", corpus.len());
    for (name, bytes) in corpus {
        let held = std::panic::catch_unwind(|| all_hold(&bytes));
        assert!(held.is_ok(), "{name}");
        // Every truncation of it must hold too.
        (0..bytes.len().min(512)).for_each(|n| all_hold(&bytes[..n]));
    }
}

/// A file of the corpus with a few bytes changed, inserted or cut off.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<_> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..6);
    (prop::sample::select(files), edits).prop_map(|(mut bytes, edits)| {
        for (at, value, kind) in edits {
            if bytes.is_empty() {
                bytes.push(value);
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = value,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, value),
            }
        }
        bytes
    })
}

/// The default configuration, including the environment, with at least this number of cases.
fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(cases), ..default }
}

proptest! {
    #![proptest_config(at_least(4096))]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        all_hold(&bytes);
    }

    #[test]
    fn nearly_right_bytes_are_survived(bytes in mutated()) {
        all_hold(&bytes);
    }

    #[test]
    fn arbitrary_text_is_survived(text in ".{0,80}", numbers in "[bytes=0-9/*: .-]{0,60}") {
        text_holds(&text);
        text_holds(&numbers);
    }
}

/// Checks the content of the corpus: replaying it would be useless if the files were not what their names say.
#[test]
fn the_corpus_has_casts_that_are_right() {
    let found: std::collections::BTreeMap<String, Vec<u8>> = corpus().into_iter().collect();
    let file = |name: &str| {
        let found = found.iter().find(|(path, _)| path.ends_with(&format!("/{name}")));
        found.map(|(_, bytes)| bytes.clone()).expect("it is in corpus/")
    };
    assert!(cast::Offer::decode(&file("cast-offer")).is_ok());
    assert!(Signed::<cast::Offer>::open(&file("cast-offer-signed"), &AcceptAll).is_ok());
    for bad in ["cast-offer-name-leads-out", "cast-offer-symbol-odd", "cast-offer-block-huge"] {
        assert!(cast::Offer::decode(&file(bad)).is_err(), "{bad}");
    }
    assert!(cast::Pass::decode(&file("cast-pass")).is_ok());
    assert_eq!(cast::Layout::decode(&file("cast-layout"), 3).map(|l| l.entries.len()), Ok(3));
}

#[test]
fn the_corpus_has_every_word_of_a_bond() {
    let found: std::collections::BTreeMap<String, Vec<u8>> = corpus().into_iter().collect();
    let file = |name: &str| {
        let found = found.iter().find(|(path, _)| path.ends_with(&format!("/{name}")));
        found.map(|(_, bytes)| bytes.clone()).expect("it is in corpus/")
    };
    let words = [
        "open-service",
        "opened",
        "refused",
        "acks",
        "end",
        "reset",
        "ping",
        "pong",
        "bye",
        "gone",
    ];
    let others = ["open-server", "open-member", "acks-ended-of-nothing"];
    for name in words.iter().chain(&others) {
        let word = object::decode::<bond::Word>(&file(&format!("bond-{name}")));
        assert!(word.as_ref().is_ok_and(bond::Word::is_sound), "{name}: {word:?}");
    }
    let kinds = words.map(|name| file(&format!("bond-{name}"))[0]);
    assert_eq!(kinds.to_vec(), (0..=9).collect::<Vec<u8>>(), "each kind once");
    for bad in ["word-unknown", "word-with-more-behind", "open-member-no-name", "acks-limit-behind"]
    {
        let word = object::decode::<bond::Word>(&file(&format!("bond-{bad}")));
        assert!(!word.is_ok_and(|word| word.is_sound()), "{bad}");
    }
    for name in ["hello", "hello-window-huge"] {
        assert!(object::decode::<bond::Hello>(&file(&format!("bond-{name}"))).is_ok(), "{name}");
    }
    for name in ["greeting-welcome", "greeting-refused"] {
        assert!(object::decode::<bond::Greeting>(&file(&format!("bond-{name}"))).is_ok(), "{name}");
    }
}

#[test]
fn the_corpus_has_probes_riders_and_every_word_about_them() {
    let found: std::collections::BTreeMap<String, Vec<u8>> = corpus().into_iter().collect();
    let file = |name: &str| {
        let found = found.iter().find(|(path, _)| path.ends_with(&format!("/probe-{name}")));
        found.map(|(_, bytes)| bytes.clone()).expect("it is in corpus/")
    };
    for (name, carried) in [("bare", 0), ("with-riders", 2)] {
        match probe::Payload::decode(&file(name)) {
            Ok(probe::Payload::Probe { riders, .. }) => assert_eq!(riders.len(), carried, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(probe::Payload::decode(&file("riders")), Ok(probe::Payload::Riders(_))));
    for (name, why) in [
        ("padding-not-empty", probe::PayloadError::Padding),
        ("fragment-beyond-its-rider", probe::PayloadError::Fragment),
        ("header-cut", probe::PayloadError::Short),
        ("riders-none", probe::PayloadError::Short),
    ] {
        assert_eq!(probe::Payload::decode(&file(name)), Err(why), "{name}");
    }
    let outside = file("datagram");
    assert_eq!(probe::Outer::split(&outside).map(|(outer, _)| outer.number), Some(9));
    for name in ["ask-open", "ask-arrivals", "ask-send"] {
        assert!(object::decode::<probe::Ask>(&file(name)).is_ok(), "{name}");
    }
    for name in ["tell-opened", "tell-arrivals", "tell-sent", "tell-refused"] {
        assert!(object::decode::<probe::NodeReply>(&file(name)).is_ok(), "{name}");
    }
    assert!(object::decode::<probe::Ask>(&file("ask-send-count-huge")).is_err());
}

#[test]
fn the_corpus_has_every_word_of_a_stream() {
    let found: std::collections::BTreeMap<String, Vec<u8>> = corpus().into_iter().collect();
    let file = |name: &str| {
        let found = found.iter().find(|(path, _)| path.ends_with(&format!("/stream-{name}")));
        found.map(|(_, bytes)| bytes.clone()).expect("it is in corpus/")
    };
    for name in ["subscribe", "publish", "status"] {
        assert!(leg::decode::<leg::Opening>(&file(name)).is_ok(), "{name}");
    }
    for name in ["accepted", "refused"] {
        assert!(leg::decode::<leg::Answer>(&file(name)).is_ok_and(|a| a.is_sound()), "{name}");
    }
    for name in ["lost", "level", "end"] {
        assert!(
            leg::decode::<leg::ParentMessage>(&file(name)).is_ok_and(|message| message.is_sound()),
            "{name}"
        );
    }
    assert!(
        !leg::decode::<leg::ParentMessage>(&file("lost-class-odd"))
            .is_ok_and(|message| message.is_sound())
    );
    for name in ["report", "want", "bye"] {
        assert!(leg::decode::<leg::ChildMessage>(&file(name)).is_ok(), "{name}");
    }
    let head = |name: &str| leg::Head::decode(file(name).first_chunk().expect("a head"));
    assert!(matches!(head("frame"), Ok(leg::Head::Frame(_))));
    assert!(matches!(head("message"), Ok(leg::Head::Message(_))));
    assert!(head("frame-huge").is_err() && head("message-huge").is_err());
}

#[test]
fn the_corpus_has_reports_and_plans_of_streams() {
    let found: std::collections::BTreeMap<String, Vec<u8>> = corpus().into_iter().collect();
    let file = |name: &str| {
        let found = found.iter().find(|(path, _)| path.ends_with(&format!("/stream-{name}")));
        found.map(|(_, bytes)| bytes.clone()).expect("it is in corpus/")
    };
    let report = |name: &str| serde_json::from_slice::<plan::Report>(&file(name));
    assert_eq!(report("plan-report").expect("a report").check(), Ok(()));
    for bad in ["plan-report-rate-huge", "plan-report-leg-twice", "plan-report-weight-0"] {
        assert!(report(bad).expect("a report").check().is_err(), "{bad}");
    }
    for bad in ["plan-report-name-odd", "plan-report-level-odd", "plan-report-cut"] {
        assert!(report(bad).is_err(), "{bad}");
    }
    let told = serde_json::from_slice::<plan::Plan>(&file("plan-told")).expect("a plan");
    assert_eq!((told.version, told.streams.len()), (7, 2));
    let reply = serde_json::from_slice::<plan::Reply>(&file("plan-reply")).expect("a reply");
    assert_eq!((reply.held.len(), reply.measure.len()), (1, 2));
    assert_eq!(reply.plan.map(|plan| plan.version), Some(reply.version));
}
