//! Submissions by real programs: stamped, pushed, collected, verified.

use super::host::{Host, text, until};
use std::{fs, path::Path};

const LATER: &str = "2100-01-01T00:00:00Z";

/// A destination's settings.
fn own(until: &str, more: &str) -> String {
    format!("[[drop_box]]\nname = \"taxes\"\nuntil = \"{until}\"\n{more}")
}

const OTHERS: &str = "[[drop_box]]\nname = \"taxes\"\ndestination = \"fra\"\nopen = true\n";

fn write(host: &Host, name: &str, bytes: &[u8]) -> String {
    fs::write(host.path(name), bytes).unwrap();
    name.to_owned()
}

fn settings(host: &Host) -> String {
    host.path("node.toml").display().to_string()
}

fn status(host: &Host) -> serde_json::Value {
    host.json(&["drop-box", "status", "taxes", "--json", "--config", &settings(host)])
}

fn code(host: &Host, args: &[&str]) -> (Option<i32>, String) {
    let output = host.run(args);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn files_are_submitted_collected_and_their_receipts_verified() {
    let fra = Host::founder();
    let fra_runs = fra.start_with(&own(LATER, "nodes = [\"nyc\"]\nopen = true\n"), None);
    let nyc = Host::relay(&fra, "nyc", &[]);
    let _nyc_runs = nyc.start_with(OTHERS, None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);

    let (a, b) = (write(&lap, "a.pdf", &vec![1; 700_000]), write(&lap, "b.txt", b"b"));
    let said = lap.ok(&["submit", &a, &b, "--to", "taxes@fra"]);
    assert!(said.contains("a.pdf: received by nyc") && said.contains("b.txt: received"), "{said}");
    // Again: nothing is left to do.
    assert_eq!(lap.ok(&["submit", &a, &b, "--to", "taxes@fra"]), said);
    // A member's own mesh vouches; the text says what for.
    let proven = lap.ok(&["receipt", "verify", "a.pdf.receipt", "b.txt.receipt"]);
    assert_eq!(proven.matches("  proven: ").count(), 4, "{proven}");
    assert!(!proven.contains("not proven"), "{proven}");

    // A stranger, by the words that the operator gives out.
    let list = fra.json(&["drop-box", "list", "--json", "--config", &settings(&fra)]);
    let to = list["boxes"][0]["to"].as_str().unwrap();
    let stranger = Host::new();
    let c = write(&stranger, "c", b"c");
    stranger.ok(&["submit", &c, "--to", to]);
    let key = to.split_once('#').unwrap().1;
    let verify = ["receipt", "verify", "c.receipt", "--data", "c", "--key"];
    stranger.ok(&[&verify[..], &[&key[..32]]].concat());
    let (unproven, said) = code(&stranger, &["receipt", "verify", "c.receipt"]);
    assert_eq!((unproven, said.matches("not proven: ").count()), (Some(3), 2), "{said}");

    // Committed alone, then collected: who has brought nothing is named.
    let d = write(&lap, "d", b"d");
    lap.ok(&["submit", &d, "--to", "taxes@fra", "--commit-only"]);
    until("the destination has the receipts", || status(&fra)["received"] == 3);
    let args = ["drop-box", "collect", "taxes", "--into", "in", "--config", &settings(&fra)];
    let said = fra.ok(&args);
    assert!(
        said.contains("3 submissions collected") && said.contains("1 commitment without"),
        "{said}"
    );
    let kept = |name: &str| fs::read(fra.path("in").join(name)).unwrap();
    assert!(kept("000001-a.pdf") == vec![1; 700_000]);
    assert_eq!((kept("000002-b.txt"), kept("000003-c")), (b"b".to_vec(), b"c".to_vec()));
    let receipt = ["receipt", "verify", "in/000003-c.receipt", "--data", "in/000003-c"];
    fra.ok(&receipt);
    // The node was told, and another collection brings what has come since.
    assert_eq!(status(&nyc)["here"]["given_away"], 3);
    lap.ok(&["submit", &d, "--to", "taxes@fra"]);
    until("the last receipt", || status(&fra)["received"] == 4);
    assert!(fra.ok(&args).contains("1 submission collected"));
    assert_eq!(kept("000004-d"), b"d");
    drop(fra_runs);
}

#[test]
fn a_destination_alone_takes_and_collects_data_itself() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    let a = write(&fra, "a", &vec![9; 300_000]);
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    until("its own receipt", || status(&fra)["received"] == 1);
    fra.ok(&["drop-box", "collect", "taxes", "--into", "in", "--config", &settings(&fra)]);
    assert!(fs::read(fra.path("in/000001-a")).unwrap() == vec![9; 300_000]);
}

#[test]
fn what_goes_wrong_is_said_with_its_exit_code() {
    let fra = Host::founder();
    let runs = fra.start_with(&own("2020-01-01T00:00:00Z", ""), None);
    let a = write(&fra, "a", b"a");
    let (late, said) = code(&fra, &["submit", &a, "--to", "taxes@fra"]);
    assert_eq!(late, Some(3), "{said}");
    assert!(said.contains("too late: it is 20") && said.contains("2020-01-01T00:00:00Z"), "{said}");
    let (other, said) = code(&fra, &["submit", &a, "--to", "grants@fra"]);
    assert!(other == Some(1) && said.contains("no drop box `grants`"), "{said}");
    let said = fra.fails(1, &["submit", &a, "--to", "taxes@far"]);
    assert!(said.contains("did you mean `fra`?"), "{said}");
    let said = fra.fails(1, &["submit", &a, "--to", "taxes"]);
    assert!(said.contains("BOX@NODE"), "{said}");
    drop(runs);

    let _runs = fra.start_with(&own(LATER, ""), None);
    fra.ok(&["submit", &a, "--to", "taxes@fra", "--commit-only"]);
    write(&fra, "a", b"another");
    let said = fra.fails(1, &["submit", &a, "--to", "taxes@fra"]);
    assert!(said.contains("has changed since it was committed to"), "{said}");
    fra.ok(&["submit", &a, "--to", "taxes@fra", "--anew"]);

    let (_, said) = code(&fra, &["receipt", "verify", "a.receipt", "--data", "node.toml"]);
    assert!(said.contains("NOT VALID: size:"), "{said}");
    let receipt = fs::read_to_string(fra.path("a.receipt")).unwrap();
    altered(&fra, &receipt, "size 7", "size 8", "size");
    altered(&fra, &receipt, "\nnumber 2", "\nnumber 1", "number");
    altered(&fra, &receipt, "\nstamp ", "\nstamp AAAA", "stamp");
    let nobody = fra.fails(1, &["receipt", "verify", "nothing"]);
    assert!(nobody.contains("No such file"), "{nobody}");
    let said = fra.fails(1, &["receipt", "verify", "a.receipt", "--key", "12"]);
    assert!(said.contains("64 hexadecimal digits"), "{said}");
}

fn altered(host: &Host, receipt: &str, from: &str, to: &str, field: &str) {
    assert!(receipt.contains(from), "{receipt}");
    fs::write(host.path("altered"), receipt.replacen(from, to, 1)).unwrap();
    let said = host.fails(1, &["receipt", "verify", "altered"]);
    assert!(said.contains(&format!("NOT VALID: {field}: ")), "{said}");
}

#[test]
fn a_receipt_s_file_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    let a = write(&fra, "a", b"a");
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&fra.path("a.receipt")), 0o600);
    // Without its secret it is valid, and compares no data.
    let text = fs::read_to_string(fra.path("a.receipt")).unwrap();
    let public: String =
        text.lines().filter(|l| !l.starts_with("nonce ")).map(|l| l.to_owned() + "\n").collect();
    fs::write(fra.path("public"), public).unwrap();
    fra.ok(&["receipt", "verify", "public"]);
    let said = fra.fails(1, &["receipt", "verify", "public", "--data", "a"]);
    assert!(said.contains("nonce: "), "{said}");
}
