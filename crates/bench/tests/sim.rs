//! `thalweg-bench sim` as users run it: deterministic, with clear messages about missing input.

use serde_json::Value;
use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-bench"));
    command.arg("sim").args(arguments).env_remove("THALWEG_DATA");
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_seed_determines_the_numbers() {
    let of = |seed: &str| {
        let output = sim(&["fig-2", "--input", "cloud", "--json", "--seed", seed]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    assert_eq!(of("5"), of("5"));
    assert_ne!(of("5"), of("6"));
    let json: Value = serde_json::from_slice(&of("5")).expect("JSON");
    let median = &json["metrics"]["rate_direct"];
    assert_eq!(median["unit"], "Mbit/s");
    assert!(median["value"].as_f64().is_some_and(|rate| rate > 0.0), "{json}");
}

#[test]
fn without_data_the_grid_is_skipped_with_the_reason() {
    let output = sim(&["fig-2", "--input", "grid"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("skipped") && said.contains("THALWEG_DATA"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_invalid_file_is_named_with_the_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rates.csv");
    std::fs::write(&file, "src,dst,mbps\na,b,10\na,c,fast\n").expect("a file");
    let output = sim(&["fig-2", "--input", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("rates.csv") && said.contains("line 3"), "{said}");
}

#[test]
fn unknown_parts_are_refused_with_a_list_of_known_ones() {
    for (figure, known) in [("fig-8", "load_aware"), ("fig-9", "thrifty")] {
        let output = sim(&[figure, "--only", "magic", "--input", "cloud"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(known), "{}", text(&output.stderr));
    }
}

#[test]
fn a_simulated_cast_is_shown_as_a_table() {
    let small = ["--receivers", "40", "--size", "64 MiB", "--effort", "100000", "--seed", "3"];
    let output = sim(&[&["cast"], &small[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    insta::assert_snapshot!("sim-cast", text(&output.stdout));
    let json: Value = {
        let output = sim(&[&["cast", "--by", "unicast", "--json"], &small[..]].concat());
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let sent = json["metrics"]["objects_sent"]["value"].as_f64().expect("a number");
    assert!((sent - 40.0).abs() < 1e-3, "{json}");
}

#[test]
fn invalid_arguments_of_a_cast_are_refused() {
    for (arguments, why) in [
        (&["--loss", "0.1"][..], "--ring"),
        (&["--ring", "1 MiB", "--loss", "1"], "--loss"),
        (&["--late", "2"], "--late"),
        (&["--size", "0 B"], "at least one byte"),
        (&["--receivers", "0"], "--receivers"),
    ] {
        let output = sim(&[&["cast"], arguments].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}
