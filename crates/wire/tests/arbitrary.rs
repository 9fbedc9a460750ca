//! No input makes a decoder panic, loop, or use more memory than the size of the input justifies.
//!
//! `cargo test -p thalweg-wire` replays `corpus/`, then tries arbitrary and mutated bytes. To fuzz for longer:
//! `PROPTEST_CASES=1000000 cargo test --release -p thalweg-wire --test arbitrary`. The seed of a failure is printed and
//! stored beside this file. Add a new failing input to `corpus/` as a file of its own.

#![expect(clippy::disallowed_methods, reason = "the corpus is files; the crate itself reads none")]

#[path = "fixtures/invariants.rs"]
mod invariants;

use invariants::{AcceptAll, check_all, check_text};
use proptest::prelude::*;
use std::{fs, path::Path};
use thalweg_wire::{
    Signable as _, Signed, bond, cast, object, probe,
    stream::{leg, plan},
};

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
        let held = std::panic::catch_unwind(|| check_all(&bytes));
        assert!(held.is_ok(), "{name}");
        // Every truncation of it must hold too.
        (0..bytes.len().min(512)).for_each(|n| check_all(&bytes[..n]));
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
        check_all(&bytes);
    }

    #[test]
    fn nearly_right_bytes_are_survived(bytes in mutated()) {
        check_all(&bytes);
    }

    #[test]
    fn arbitrary_text_is_survived(text in ".{0,80}", numbers in "[bytes=0-9/*: .-]{0,60}") {
        check_text(&text);
        check_text(&numbers);
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
        let message = object::decode::<bond::BondMessage>(&file(&format!("bond-{name}")));
        assert!(message.as_ref().is_ok_and(bond::BondMessage::is_sound), "{name}: {message:?}");
    }
    let kinds = words.map(|name| file(&format!("bond-{name}"))[0]);
    assert_eq!(kinds.to_vec(), (0..=9).collect::<Vec<u8>>(), "each kind once");
    for bad in ["word-unknown", "word-with-more-behind", "open-member-no-name", "acks-limit-behind"]
    {
        let message = object::decode::<bond::BondMessage>(&file(&format!("bond-{bad}")));
        assert!(!message.is_ok_and(|message| message.is_sound()), "{bad}");
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
        assert!(object::decode::<probe::ProbeRequest>(&file(name)).is_ok(), "{name}");
    }
    for name in ["tell-opened", "tell-arrivals", "tell-sent", "tell-refused"] {
        assert!(object::decode::<probe::NodeReply>(&file(name)).is_ok(), "{name}");
    }
    assert!(object::decode::<probe::ProbeRequest>(&file("ask-send-count-huge")).is_err());
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
