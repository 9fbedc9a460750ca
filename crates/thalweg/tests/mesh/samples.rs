//! Output shown in the documents matches what commands print, except for names, numbers and units.

use super::host::{Host, text};
use std::{fs, path::Path};

const SETTINGS: &str = "\
[[drop_box]]
name = \"taxes\"
open = true
";

/// A line without the parts that differ from run to run.
fn shape(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(word).collect();
    // `6 d 23 h` and `1 h` are both times.
    while let Some(at) = words.windows(4).position(|w| w == ["#", "TIME", "#", "TIME"]) {
        words.drain(at..at + 2);
    }
    words.join(" ")
}

fn word(word: &str) -> String {
    let core = word.trim_start_matches('(').trim_end_matches([',', ';', ':', ')', '.']);
    let (before, after) = word.split_once(core).unwrap_or_default();
    let is_hex = |text: &str| text.len() >= 8 && text.chars().all(|c| c.is_ascii_hexdigit());
    let has_port =
        |text: &str| text.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    let kind = match core {
        "B" | "kB" | "MB" | "GB" => "SIZE",
        "bit/s" | "kbit/s" | "Mbit/s" | "Gbit/s" => "RATE",
        "ms" | "s" | "min" | "h" | "d" => "TIME",
        date if date.ends_with('Z') && date.starts_with(|c: char| c.is_ascii_digit()) => "DATE",
        number if number.parse::<f64>().is_ok() => "#",
        hex if is_hex(hex.trim_end_matches('…')) => "HEX",
        path if path.starts_with('/') => "PATH",
        address if has_port(address) => "ADDRESS",
        other => other,
    };
    format!("{before}{kind}{after}")
}

/// The lines of a listing in a page: those after a command that begins with `begins`, or from the first such line on.
fn sample(page: &str, begins: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(page).unwrap();
    let from = text.lines().skip_while(|line| !line.starts_with(begins));
    let lines = from.skip(usize::from(begins.starts_with("$ ")));
    let lines = lines.take_while(|line| !line.starts_with("```") && !line.starts_with("$ "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(!lines.is_empty(), "no `{begins}`");
    lines
}

/// Checks that these lines were printed, in this order.
pub fn check(sample: &[String], printed: &str) {
    let mut shapes = printed.lines().map(shape);
    for line in sample {
        let wanted = shape(line);
        assert!(shapes.any(|shape| shape == wanted), "`{line}` ({wanted}) is not in:\n{printed}");
    }
}

/// Everything that a command prints.
fn said(host: &Host, args: &[&str]) -> String {
    let output = host.run(args);
    text(&output.stdout) + &text(&output.stderr)
}

fn node_settings(host: &Host, more: &str) -> String {
    fs::create_dir_all(host.path("data")).unwrap();
    fs::create_dir_all(host.path("inbox")).unwrap();
    let (data, inbox) = (host.path("data"), host.path("inbox"));
    format!(
        "[files]\noffer = [{{ path = {data:?}, to = [\"*\"] }}]\n\
         [cast]\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n{SETTINGS}{more}"
    )
}

#[test]
fn samples_in_the_documents_match_what_commands_print() {
    let fresh = Host::new();
    let init = ["mesh", "init", "--name", "fra", "--address", "fra.example.org:7373"];
    check(&sample("mesh.md", "$ thalweg mesh init")[..3], &said(&fresh, &init));

    let fra = Host::founder();
    let own = "until = \"2100-01-01T00:00:00Z\"\nnodes = [\"nyc\"]\n";
    let fra_runs = fra.start_with(&node_settings(&fra, own), None);
    let nyc = Host::relay(&fra, "nyc", &["country=us"]);
    let destination = "destination = \"fra\"\n";
    let _nyc_runs = nyc.start_with(&node_settings(&nyc, destination), None);
    check(&sample("mesh.md", "NAME  ROLES"), &said(&fra, &["mesh", "members"]));
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);

    check_gather(&fra, &nyc, &lap);
    check_submit(&fra, &lap);
    check_cast(&fra);

    let revoked = said(&fra, &["mesh", "revoke", "lap", "--wait", "1min"]);
    check(&sample("mesh.md", "$ thalweg mesh revoke"), &revoked);
    check(&sample("mesh.md", "NAME  SEEN"), &said(&fra, &["status"]));
    drop(fra_runs);
}

/// Checks a plan from given rates, and the last line of a collection with a missing file.
fn check_gather(fra: &Host, nyc: &Host, lap: &Host) {
    fs::write(fra.path("data/a.bin"), vec![1; 3_000_000]).unwrap();
    fs::write(nyc.path("data/b.bin"), vec![2; 1_200_000]).unwrap();
    fs::write(nyc.path("data/c.bin"), vec![3; 70_000]).unwrap();
    let rates = "from,to,rate,rtt\nfra,lap,20 Mbit/s,10 ms\nnyc,lap,40 Mbit/s,10 ms\n\
                 fra,nyc,60 Mbit/s,10 ms\n";
    fs::write(lap.path("rates.csv"), rates).unwrap();
    let from =
        |host: &Host, name: &str, path: &str| format!("{name}:{}", host.path(path).display());
    let (a, bc) = (from(fra, "fra", "data"), from(nyc, "nyc", "data"));
    let args = ["gather", &a, &bc, "--into", "run7", "--rates", "rates.csv", "--dry-run"];
    let planned = said(lap, &args);
    check(&sample("gather.md", "3 files, 42.7 MB, to run7")[1..], &planned);
    check(&sample("gather.md", "SOURCE  VIA")[..1], &planned);
    let args =
        ["gather", &from(fra, "fra", "data/a.bin"), &from(nyc, "nyc", "data/no"), "--into", "d"];
    check(&sample("gather.md", "thalweg: not all is here"), &said(lap, &args));
}

fn check_submit(fra: &Host, lap: &Host) {
    fs::write(lap.path("return.pdf"), vec![4; 48_213]).unwrap();
    fs::write(lap.path("big.pdf"), vec![5; 2_000_000]).unwrap();
    let said_now = said(lap, &["submit", "return.pdf", "--to", "taxes@fra"]);
    check(&sample("submit.md", "$ thalweg submit return.pdf --to taxes@irs  "), &said_now);
    lap.ok(&["submit", "big.pdf", "--to", "taxes@fra", "--commit-only"]);
    let verified = said(lap, &["receipt", "verify", "return.pdf.receipt"]);
    check(&sample("submit.md", "$ thalweg receipt verify"), &verified);
    let config = fra.path("node.toml").display().to_string();
    let status = said(fra, &["drop-box", "status", "taxes", "--config", &config]);
    check(&sample("submit.md", "taxes"), &status);
    let into = fra.path("taxes").display().to_string();
    let collect = ["drop-box", "collect", "taxes", "--config", &config, "--into", &into];
    check(&sample("submit.md", "1 submission collected"), &said(fra, &collect));
}

fn check_cast(fra: &Host) {
    let ber = Host::relay(fra, "ber", &[]);
    let ber_runs = ber.start_with(&node_settings(&ber, "destination = \"fra\"\n"), None);
    fs::write(fra.path("image.iso"), vec![6; 3_000_000]).unwrap();
    let shown = sample("cast.md", "image.iso: 30 MB to");
    let cast = said(fra, &["cast", "image.iso", "--to", "nyc,ber"]);
    check(&[shown[0].clone(), shown[2].clone()], &cast);
    drop(ber_runs);
    fs::write(fra.path("c.bin"), vec![7; 700_000]).unwrap();
    said(fra, &["cast", "c.bin", "--to", "nyc,ber", "--wait", "0.1s"]);
    check(&sample("cast.md", "c.bin: abandoned"), &said(fra, &["cast", "forget", "c.bin"]));
    // The member is no longer needed, and would delay a revocation.
    fra.ok(&["mesh", "revoke", "ber"]);
}

#[test]
fn shapes_omit_what_differs_between_runs() {
    assert_eq!(shape("version 1795718011; valid for 6 d 23 h"), "version #; valid for # TIME");
    assert_eq!(shape("a: 30 MB, in 4.0 s (60.4 Mbit/s)"), "a: # SIZE, in # TIME (# RATE)");
    assert_eq!(shape("fra  127.0.0.1:7401  26177fee…"), "fra ADDRESS HEX");
    assert_eq!(shape("fra  fra.example.org:7373"), "fra ADDRESS");
    assert_eq!(shape("at 2026-11-26T18:41:13.69Z, /tmp/x."), "at DATE, PATH.");
}
