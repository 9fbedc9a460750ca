//! The harness's command line: help, wrong arguments, and which stream each output goes to.
//!
//! The texts are snapshots in `snapshots/`; after an intended change, `INSTA_UPDATE=always cargo test -p thalweg-bench
//! --test cli` rewrites them.

use std::path::Path;
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_thalweg-bench");

/// Every command with its own help text except the load generators.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["demo"],
    &["sim"],
    &["experiment"],
    &["experiment", "list"],
    &["experiment", "run"],
    &["experiment", "table"],
    &["make-tree"],
    &["compare-trees"],
    &["lab", "check"],
    &["lab"],
    &["lab", "run"],
    &["lab", "up"],
    &["lab", "down"],
    &["lab", "list"],
    &["lab", "exec"],
    &["lab", "set"],
    &["lab", "stats"],
    &["lab", "pcap"],
    &["lab", "show"],
];

/// Typical mistakes of users, one per line.
const MISTAKES: &[&str] = &[
    "lab run",
    "lab run missing.toml -- true",
    "lab set core rate=fast",
    "lab check --fast",
    "experiment",
    "experiment table",
    "demo --size 40",
];

#[test]
fn every_command_has_help() {
    for command in COMMANDS {
        let output = bench(command.iter().copied().chain(["--help"]));
        assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{command:?}: help belongs on stdout");
        let name = format!("help {}", command.join(" ")).trim().replace(' ', "-");
        insta::assert_snapshot!(name, text(&output.stdout));
    }
}

#[test]
fn mistakes_are_explained() {
    let mut all = String::new();
    for line in MISTAKES {
        let output = bench(line.split(' '));
        assert!(!output.status.success(), "{line}: succeeds");
        assert!(output.stdout.is_empty(), "{line}: errors belong on stderr");
        let code = output.status.code().expect("it ends by itself");
        all += &format!("$ thalweg-bench {line}\n{}exit {code}\n\n", text(&output.stderr));
    }
    insta::assert_snapshot!("mistakes", all);
}

#[test]
fn experiment_list_shows_every_plan() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(BENCH)
        .args(["experiment", "list"])
        .current_dir(&root)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    let plans = std::fs::read_dir(root.join("experiments")).expect("the experiments");
    let names = plans.filter_map(|plan| {
        Some(plan.ok()?.file_name().to_str()?.strip_suffix(".toml")?.to_owned())
    });
    let names: Vec<String> = names.collect();
    assert!(!names.is_empty(), "no experiment at all");
    for name in names {
        assert!(listed.contains(&name), "{name} is not in:\n{listed}");
    }
}

#[test]
fn an_unknown_experiment_is_refused_with_a_list_of_experiments() {
    let output = bench(["experiment", "run", "get-detour"]);
    assert!(!output.status.success());
    let message = text(&output.stderr);
    assert!(message.contains("`get-detour`") && message.contains("get-detour-thin"), "{message}");
}

#[test]
fn a_lab_command_without_a_lab_says_how_to_start_one() {
    let runtime = tempfile::tempdir().expect("a directory");
    let output = command(["lab", "stats"])
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env("THALWEG_LAB", "no-such-lab")
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    let message = text(&output.stderr);
    assert!(message.contains("no-such-lab"), "{message}");
    assert!(message.contains("thalweg-bench lab"), "{message}");
}

#[test]
fn a_missing_lab_program_is_named_in_the_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let alone = directory.path().join("thalweg-bench");
    // Copied by another program: if this process had the file open for writing while another test forks, the file could
    // not be executed.
    let copied = Command::new("cp").arg(BENCH).arg(&alone).status();
    assert!(copied.expect("cp").success());
    let output =
        Command::new(alone).args(["lab", "list"]).env("PATH", "").output().expect("it starts");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("thalweg-lab"), "{}", text(&output.stderr));
}

fn bench<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    command(arguments).output().expect("it starts")
}

fn command<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let lab = Path::new(BENCH).with_file_name("thalweg-lab");
    assert!(lab.exists(), "{} is missing: cargo build --workspace --bins", lab.display());
    let mut command = Command::new(BENCH);
    command.args(arguments).env("COLUMNS", "100").env_remove("THALWEG_LAB");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
