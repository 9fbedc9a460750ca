//! Snapshot tests of the command line: help, wrong arguments, and which stream gets which output.
//!
//! The texts are in `snapshots/`; after an intended change, `INSTA_UPDATE=always cargo test -p thalweg --test cli`
//! writes them again.

use std::process::{Command, Output};

/// Every command with a help text of its own.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["get"],
    &["gather"],
    &["send"],
    &["cast"],
    &["cast", "status"],
    &["cast", "forget"],
    &["stream"],
    &["stream", "publish"],
    &["stream", "subscribe"],
    &["stream", "list"],
    &["stream", "status"],
    &["submit"],
    &["receipt"],
    &["receipt", "verify"],
    &["drop-box"],
    &["drop-box", "list"],
    &["drop-box", "status"],
    &["drop-box", "collect"],
    &["proxy"],
    &["run"],
    &["interfaces"],
    &["interfaces", "status"],
    &["interfaces", "schedule"],
    &["interfaces", "allow"],
    &["interfaces", "rule"],
    &["interfaces", "set"],
    &["carrier"],
    &["carrier", "status"],
    &["carrier", "address"],
    &["relay"],
    &["up"],
    &["mesh"],
    &["mesh", "init"],
    &["mesh", "token"],
    &["mesh", "join"],
    &["mesh", "members"],
    &["mesh", "address"],
    &["mesh", "revoke"],
    &["mesh", "rekey"],
    &["mesh", "backup"],
    &["mesh", "restore"],
    &["node"],
    &["config"],
    &["config", "check"],
    &["config", "reload"],
    &["status"],
    &["doctor"],
    &["page"],
    &["paths"],
    &["measure"],
    &["history"],
    &["history", "show"],
    &["history", "lift"],
    &["history", "clear"],
];

/// Mistakes of users, one per line.
const MISTAKES: &[&str] = &[
    "gett",
    "get",
    "get not-a-url",
    "get example.org/file",
    "get ftp://example.org/file",
    "get http://example.org/file http://example.org/other -o a -o b -o c",
    "get http://example.org/file --sha256 9f86d0",
    "get http://example.org/file --mirror http://example.net/file",
    "get http://example.org/file -C 1000",
    "get http://example.org/file --limit-rate fast",
    "get http://example.org/file --paths 0",
    "get - -i -",
    "get missing.meta4",
    "get http://example.org/file --via relay",
    "get http://example.org/file --via relay:99999",
    "get http://example.org/file --via fra,fra+nyc",
    "get http://example.org/file --path Fra",
    "get http://example.org/file --legs clear",
    "get http://example.org/file --via fra --path nyc",
    "interfaces schedule fastest",
    "interfaces allow lte0",
    "interfaces allow lte0 --cap 10",
    "interfaces allow lte0 --reset-day 5",
    "interfaces allow lte0 --price cheap",
    "interfaces rule --process curl",
    "interfaces rule --only a/b",
    "interfaces set",
    "cast",
    "cast image.iso",
    "cast image.iso env.sh --to fra",
    "cast image.iso --to Fra",
    "cast image.iso --to fra --to-all",
    "cast image.iso --to fra --tag lab",
    "cast image.iso --to fra --ring-bytes 1MB",
    "cast image.iso --to fra --rates /nonexistent/rates.csv",
    "cast image.iso --to fra status",
    "cast gone.iso --to fra",
    "send gone.tar fra:/inbox",
    "submit gone.pdf also-gone.pdf --to taxes@irs",
    "submit Cargo.toml --to taxes",
    "submit Cargo.toml --to taxes@irs",
    "measure",
    "measure Fra",
    "measure fra --method guess",
    "measure fra --size 100",
    "measure fra --within soon",
    "history lift",
    "history --json lift fra",
    "history --history /nonexistent/history.json",
    "mesh token --role boss",
    "mesh token --valid 5",
    "mesh join",
    "mesh join hello",
    "mesh init --name Fra",
    "mesh init --address fra",
    "node --listen nowhere",
    "node --config /nonexistent/thalweg.toml",
    "mesh revoke",
    "up hello",
    "up --service --state x",
    "mesh revoke lap --wait soon",
    "config",
    "config check --config /nonexistent/thalweg.toml",
    "relay --listen nowhere",
    "relay --listen localhost:21080",
    "relay --listen 127.0.0.1",
    "relay --listen 0.0.0.0:0",
    "relay --listen 192.0.2.1:0 --allow-from 192.0.2.0/24",
    "relay --listen 127.0.0.1:0 --allow-port 25",
    "relay --listen 127.0.0.1:0 --allow-to 10.0.0.0/99",
];

#[test]
fn help_of_every_command() {
    for command in COMMANDS {
        let output = thalweg(command.iter().copied().chain(["--help"]));
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
        let output = thalweg(line.split(' '));
        assert!(!output.status.success(), "{line}: succeeds");
        assert!(output.stdout.is_empty(), "{line}: errors belong on stderr");
        let said = text(&output.stderr);
        assert!(said.starts_with("thalweg: ") || said.contains("Commands:"), "{line}: {said}");
        let code = output.status.code().expect("it ends by itself");
        all += &format!("$ thalweg {line}\n{}exit {code}\n\n", text(&output.stderr));
    }
    insta::assert_snapshot!("mistakes", all);
}

#[test]
fn a_submission_that_cannot_begin_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    for to in ["taxes", "taxes@irs"] {
        let mut submit = command(["submit", "Cargo.toml", "--to", to]);
        let output = submit.env("THALWEG_STATE", &state).output().expect("thalweg starts");
        assert!(!output.status.success());
        assert!(!state.exists(), "{to}: a key is left");
    }
}

#[test]
fn without_a_settings_file_the_defaults_apply() {
    let output = thalweg(["config", "check"]);
    let said = text(&output.stdout);
    assert_eq!(
        said,
        "/nonexistent/config/thalweg/config.toml does not exist: the defaults \
                      apply\n"
    );
    assert!(output.status.success());
}

/// The committed pages of the commands are those of this program.
#[test]
fn the_pages_of_the_commands_are_up_to_date() {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands");
    let output = thalweg(["man", "--markdown", "--check", pages]);
    assert!(output.status.success(), "scripts/book --write: {}", text(&output.stderr));
    let dir = tempfile::tempdir().expect("a directory");
    let output = thalweg(["man", "--markdown", "--check", &dir.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(1), "missing pages are found");
    assert!(text(&output.stderr).contains("get.md"), "{}", text(&output.stderr));
}

#[test]
fn colours_need_a_terminal() {
    for line in ["--help", "gett", "get not-a-url"] {
        let output = thalweg(line.split(' '));
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains('\u{1b}'), "{line}: escape sequences in {all:?}");
    }
}

fn thalweg<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    command(arguments).output().expect("thalweg starts")
}

fn command<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).env("COLUMNS", "100");
    // Without a mesh and settings, so that the results do not depend on the user who runs the tests.
    command
        .env("THALWEG_STATE", "/nonexistent/state")
        .env("XDG_CONFIG_HOME", "/nonexistent/config");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
