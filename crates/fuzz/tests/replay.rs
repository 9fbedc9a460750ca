//! Replays the committed corpora: what fuzzing has found stays mended.

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};
use thalweg_fuzz::{TARGETS, unpack};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

#[test]
fn every_input_of_the_corpora_is_survived() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let inputs = unpack(&corpus(target.name)).unwrap();
        assert!(!inputs.is_empty(), "the corpus of {} is empty", target.name);
        for (number, input) in inputs.iter().enumerate() {
            if catch_unwind(|| (target.check)(input)).is_err() {
                failed.push(format!("{} {number}: {}", target.name, input.escape_ascii()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_corpus_has_a_target() {
    for entry in fs::read_dir(corpus("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(thalweg_fuzz::target(&name).is_some(), "{name}");
    }
}
