//! Submissions with real programs: committed, pushed, collected, verified.

use super::host::{Host, text, until};
use std::{fs, path::Path};

const LATER: &str = "2100-01-01T00:00:00Z";

/// The settings of a destination.
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
    host.json(&["drop-box", "status", "taxes", "--json"])
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
    // The same command again has nothing to do.
    assert_eq!(lap.ok(&["submit", &a, &b, "--to", "taxes@fra"]), said);
    // The member's own mesh proves the receipt; the output lists what is proven.
    let proven = lap.ok(&["receipt", "verify", "a.pdf.receipt", "b.txt.receipt"]);
    assert_eq!(proven.matches("  proven: ").count(), 4, "{proven}");
    assert!(!proven.contains("not proven"), "{proven}");

    // A host outside the mesh, with the argument that the operator gives out.
    let list = fra.json(&["drop-box", "list", "--json"]);
    let to = list["boxes"][0]["to"].as_str().unwrap();
    let stranger = Host::new();
    let c = write(&stranger, "c", b"c");
    stranger.ok(&["submit", &c, "--to", to]);
    let key = to.split_once('#').unwrap().1;
    let verify = ["receipt", "verify", "c.receipt", "--data", "c", "--key"];
    stranger.ok(&[&verify[..], &[&key[..32]]].concat());
    let (unproven, said) = code(&stranger, &["receipt", "verify", "c.receipt"]);
    assert_eq!((unproven, said.matches("not proven: ").count()), (Some(3), 2), "{said}");

    // Only committed, then collected: submissions without data are named.
    let d = write(&lap, "d", b"d");
    lap.ok(&["submit", &d, "--to", "taxes@fra", "--commit-only"]);
    until("the destination has the receipts", || status(&fra)["received"] == 3);
    let args = ["drop-box", "collect", "taxes", "--into", "in"];
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
    // The node was told, and a later collection brings what has arrived since.
    assert_eq!(status(&nyc)["here"]["given_away"], 3);
    lap.ok(&["submit", &d, "--to", "taxes@fra"]);
    until("the last receipt", || status(&fra)["received"] == 4);
    assert!(fra.ok(&args).contains("1 submission collected"));
    assert_eq!(kept("000004-d"), b"d");
    drop(fra_runs);
}

#[test]
fn a_destination_without_nodes_stores_and_collects_data_itself() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    let a = write(&fra, "a", &vec![9; 300_000]);
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    until("its own receipt", || status(&fra)["received"] == 1);
    fra.ok(&["drop-box", "collect", "taxes", "--into", "in", "--config", &settings(&fra)]);
    assert!(fs::read(fra.path("in/000001-a")).unwrap() == vec![9; 300_000]);
}

#[test]
fn failures_are_reported_with_their_exit_codes() {
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
    assert!(nobody.contains("No such file") && !nobody.contains("NOT VALID"), "{nobody}");
    let nobody = fra.fails(1, &["receipt", "verify", "a.receipt", "--data", "nothing"]);
    assert!(nobody.contains("cannot read nothing") && !nobody.contains("NOT VALID"), "{nobody}");
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
fn a_receipt_is_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    let a = write(&fra, "a", b"a");
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&fra.path("a.receipt")), 0o600);
    // Without its secret the receipt is valid, but data cannot be compared with it.
    let text = fs::read_to_string(fra.path("a.receipt")).unwrap();
    let public: String =
        text.lines().filter(|l| !l.starts_with("nonce ")).map(|l| l.to_owned() + "\n").collect();
    fs::write(fra.path("public"), public).unwrap();
    fra.ok(&["receipt", "verify", "public"]);
    let said = fra.fails(1, &["receipt", "verify", "public", "--data", "a"]);
    assert!(said.contains("nonce: "), "{said}");
}

#[test]
fn a_receipt_with_a_stamp_is_replaced_only_by_another_stamp() {
    let fra = Host::founder();
    let two = own(LATER, "") + &own("2020-01-01T00:00:00Z", "").replace("taxes", "old");
    let runs = fra.start_with(&two, None);
    let a = write(&fra, "a", b"a");
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    let kept = || fs::read_to_string(fra.path("a.receipt")).unwrap();
    let first = kept();
    let submit = |args: &[&str]| code(&fra, &[&["submit", "a"], args].concat());
    // A mistyped box, an expired box or another key is refused before any host is asked.
    let at = format!("taxes@{}#{}", fra.address(), "ab".repeat(32));
    for to in ["grants@fra", "old@fra", at.as_str()] {
        let (ended, said) = submit(&["--to", to]);
        assert_eq!(ended, Some(1), "{said}");
        assert!(said.contains("a.receipt is not replaced") && said.contains("--anew"), "{said}");
        assert_eq!(kept(), first);
    }
    let other = fra.path("other-state").display().to_string();
    let key = fra.json(&["status", "--json"])["key"].as_str().unwrap().to_owned();
    let here = format!("taxes@{}#{key}", fra.address());
    let (ended, said) = submit(&["--to", &here, "--state", &other]);
    assert!(ended == Some(1) && said.contains("another key"), "{said}");
    // With --anew, but refused by the destination, or the destination not reached.
    for to in ["grants@fra", "old@fra", at.as_str()] {
        let (ended, said) = submit(&["--to", to, "--anew"]);
        assert!(ended != Some(0), "{said}");
        assert_eq!(kept(), first, "{said}");
    }
    write(&fra, "a", b"another");
    drop(runs);
    let (_, said) = submit(&["--to", "taxes@fra", "--anew"]);
    assert!(said.contains("cannot commit to taxes@fra"), "{said}");
    assert_eq!(kept(), first);
    assert!(!fra.path("a.receipt.anew").exists(), "nobody was asked: nothing is left");
    // As if the answer had been lost: the started submission continues, and its receipt replaces the old one when it is
    // signed.
    let nonce = |text: &str| text.lines().find(|l| l.starts_with("nonce ")).unwrap().to_owned();
    write(&fra, "a", b"a");
    let signed = |line: &str| {
        let words = [
            "committed ",
            "deadline ",
            "number ",
            "received ",
            "node ",
            "stamp ",
            "receipt ",
            "sheet ",
        ];
        words.iter().any(|word| line.starts_with(word))
    };
    let begun: String = first.lines().filter(|l| !signed(l)).map(|l| l.to_owned() + "\n").collect();
    fs::write(fra.path("b"), b"b").unwrap();
    let _runs = fra.start_with(&two, None);
    fra.ok(&["submit", "b", "--to", "taxes@fra"]);
    fs::rename(fra.path("b.receipt"), fra.path("a.receipt")).unwrap();
    fs::write(fra.path("a.receipt.anew"), &begun).unwrap();
    fra.ok(&["submit", &a, "--to", "taxes@fra", "--anew"]);
    assert_eq!(nonce(&kept()), nonce(&begun));
    assert!(kept().contains("\nnumber 1\n") && !fra.path("a.receipt.anew").exists());
    fra.ok(&["receipt", "verify", "a.receipt", "--data", "a"]);
}

#[test]
fn files_with_the_same_name_are_refused_before_anything_is_written() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    for dir in ["x", "y", "receipts"] {
        fs::create_dir(fra.path(dir)).unwrap();
    }
    write(&fra, "x/a", b"1");
    write(&fra, "y/a", b"2");
    let both = ["submit", "x/a", "y/a", "--to", "taxes@fra"];
    let said = fra.fails(1, &[&both[..], &["--receipts", "receipts"]].concat());
    assert!(said.contains("x/a and y/a have the same name"), "{said}");
    assert!(fs::read_dir(fra.path("receipts")).unwrap().next().is_none());
    fra.ok(&both);
    // One file under two paths is one submission.
    let output = fra.run(&["submit", "x/a", "./x/../x/a", "--to", "taxes@fra"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("named twice") && out.lines().count() == 1, "{out}{said}");
}

#[test]
fn a_client_follows_the_rate_limit_of_a_box() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, "max_rate = 2\n"), None);
    let names: Vec<String> = (0..15).map(|n| write(&fra, &format!("f{n}"), &[n])).collect();
    let args: Vec<&str> = names.iter().map(String::as_str).collect();
    let (ended, said) = code(&fra, &[&["submit", "--to", "taxes@fra"], &args[..]].concat());
    // 15 commitments and 15 pushes at two per second, of which twenty are allowed at once.
    assert_eq!(ended, Some(0), "{said}");
    assert!(said.contains("waiting") && said.matches(": received by").count() == 15, "{said}");
}

#[test]
fn file_names_cannot_control_a_terminal() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, ""), None);
    let (_, said) = code(&fra, &["submit", "no\u{1b}[2Jfile", "--to", "taxes@fra"]);
    assert!(said.contains(r"no\u001b[2Jfile") && !said.contains('\u{1b}'), "{said}");
    let a = write(&fra, "a\u{1b}[2J", b"a");
    let (ended, said) = code(&fra, &["submit", &a, "--to", "taxes@fra"]);
    assert!(ended == Some(0) && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_node_without_an_address_is_reported_with_the_missing_role() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, "nodes = [\"nyc\"]\n"), None);
    let at = Host::new().address();
    let _nyc = Host::joined(&fra, "nyc", &[], &["--address", &at]);
    let a = write(&fra, "a", b"a");
    let (ended, said) = code(&fra, &["submit", &a, "--to", "taxes@fra"]);
    assert_eq!(ended, Some(4), "{said}");
    let (_, listed) = code(&fra, &["drop-box", "list"]);
    for said in [said, listed] {
        assert!(said.contains("node nyc: ") && said.contains("--role relay"), "{said}");
    }
    let said = fra.fails(1, &["submit", &a, "--to", "taxes@nyc"]);
    assert!(said.contains("node `nyc`: ") && said.contains("--role relay"), "{said}");
}

#[test]
fn a_collection_reports_missing_data_and_excludes_another_one() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, "nodes = [\"nyc\"]\n"), None);
    let nyc = Host::relay(&fra, "nyc", &[]);
    let runs = nyc.start_with(OTHERS, None);
    let a = write(&fra, "a", b"a");
    fra.ok(&["submit", &a, "--to", "taxes@fra"]);
    until("the receipt", || status(&fra)["received"] == 1);
    let counted = fra.json(&["status", "--json"])["drop_boxes"].clone();
    assert_eq!((&counted["committed"], &counted["received"]), (&1.into(), &1.into()), "{counted}");
    drop(runs);
    let args = ["drop-box", "collect", "taxes", "--into", "in"];
    let (ended, said) = code(&fra, &args);
    assert_eq!(ended, Some(1), "{said}");
    assert!(said.contains("number 1: its data was not received from node `nyc`: "), "{said}");

    let _runs = nyc.start_with(OTHERS, None);
    for place in [fra.state().join("drop-box/taxes/collecting"), fra.path("in")] {
        let other = fs::File::open(place).unwrap();
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let (ended, said) = code(&fra, &args);
        assert!(ended == Some(7) && said.contains("another collection"), "{said}");
    }
    // Copies left at nodes are deleted by a later collection.
    fra.ok(&[&args[..], &["--keep"]].concat());
    assert_eq!(fs::read(fra.path("in/000001-a")).unwrap(), b"a");
    assert_eq!(status(&nyc)["here"]["given_away"], 0);
    fra.ok(&args);
    assert_eq!(status(&nyc)["here"]["given_away"], 1);
    // Sizes are formatted for people.
    let said = fra.ok(&["drop-box", "status", "taxes", "--config", &settings(&fra)]);
    assert!(said.contains("1 submission, 1 B"), "{said}");
}

#[test]
fn data_missing_at_one_node_is_fetched_from_the_next() {
    let fra = Host::founder();
    let _runs = fra.start_with(&own(LATER, "nodes = [\"nyc\", \"lon\"]\n"), None);
    let (nyc, lon) = (Host::relay(&fra, "nyc", &[]), Host::relay(&fra, "lon", &[]));
    let a = write(&fra, "a", b"a");
    let submit = ["submit", a.as_str(), "--to", "taxes@fra"];
    fra.ok(&[&submit[..], &["--commit-only"]].concat());
    let committed = fs::read(fra.path("a.receipt")).unwrap();
    let runs = nyc.start_with(OTHERS, None);
    assert!(fra.ok(&submit).contains("received by nyc"));
    until("the first receipt", || status(&fra)["received"] == 1);
    drop(runs);
    // As if the first node's answer had been lost: the client uses another node.
    fs::write(fra.path("a.receipt"), committed).unwrap();
    let _lon_runs = lon.start_with(OTHERS, None);
    assert!(fra.ok(&submit).contains("received by lon"));
    until("the second receipt", || status(&lon)["here"]["not_told"] == 0);

    let args = ["drop-box", "collect", "taxes", "--into", "in"];
    let (ended, said) = code(&fra, &args);
    assert!(ended == Some(0) && said.contains("asking the next node"), "{said}");
    assert_eq!(fs::read(fra.path("in/000001-a")).unwrap(), b"a");
    assert_eq!(status(&lon)["here"]["given_away"], 1);
    // The node that was away is told once it is back, and only once.
    assert!(said.contains("node nyc keeps its copies"), "{said}");
    let _nyc_runs = nyc.start_with(OTHERS, None);
    let (ended, said) = code(&fra, &args);
    assert!(ended == Some(0) && !said.contains("keeps its copies"), "{said}");
    assert_eq!(status(&nyc)["here"]["given_away"], 1);
}
