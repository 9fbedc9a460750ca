//! Faults during a collection.

use super::{Host, Running, Tree, at, ended, events, mesh, named, start, text, tree};

#[test]
fn a_node_that_offers_nothing_shows_the_missing_settings() {
    let fra = Host::founder();
    let _fra_runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let said = lap.fails(4, &["gather", "fra:/srv/data/*.gz", "--into", "d", "--quiet"]);
    assert!(said.contains("[files]"), "{said}");
    assert!(said.contains("offer = [{ path = \"/srv/data\", to = [\"lap\"] }]"), "{said}");
    assert_eq!(said.matches("offer = ").count(), 1, "once is enough: {said}");
}

#[test]
fn an_interrupted_collection_continues_where_it_stopped() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let size = 12_000_000;
    std::fs::write(fra.path("data/big"), tree::content(0, 0, size)).unwrap();
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "big");
    let args = ["gather", &source, "--into", "d", "--json"];
    let mut slow = Running::new(lap.command(&[&args[..], &["--bwlimit", "2M"]].concat()));
    slow.until_done(3_000_000);
    slow.interrupt();
    assert_eq!(slow.code(), Some(130));
    let end = &slow.last;
    assert_eq!((&end["event"], &end["outcome"]), (&"ended".into(), &"interrupted".into()), "{end}");
    let kept = end["kept_bytes"].as_u64().unwrap();
    assert!(kept >= 3_000_000, "{end}");
    assert!(!lap.path("d/big").exists(), "it is not shown before it is whole");

    let output = lap.run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = ended(&output)["bytes"].as_u64().unwrap();
    assert_eq!(bytes, size as u64 - kept, "no finished byte is sent again");
    assert!(std::fs::read(lap.path("d/big")).unwrap() == tree::content(0, 0, size));
}

#[test]
fn a_killed_collection_fetches_no_finished_chunk_again() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let size = 12_000_000;
    std::fs::write(fra.path("data/big"), tree::content(0, 0, size)).unwrap();
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "big");
    let args = ["gather", &source, "--into", "d", "--json"];
    let mut first = Running::new(lap.command(&[&args[..], &["--bwlimit", "2M"]].concat()));
    first.until_done(5_000_000);
    first.kill();
    let kept = journaled(&lap.path("d/.big.thalweg-journal"));
    assert!(kept > 1_000_000, "{kept} bytes were finished");

    let sent = || fra.json(&["status", "--json"])["files"]["sent_bytes"].as_u64().unwrap();
    let before = sent();
    let output = lap.run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(ended(&output)["bytes"], size as u64 - kept);
    // Messages, and data that was in flight to the killed process.
    let more = sent() - before;
    assert!(more < size as u64 - kept + 500_000, "{more} bytes were sent; {kept} were here");
    assert!(std::fs::read(lap.path("d/big")).unwrap() == tree::content(0, 0, size));
    assert_eq!(tree::files(&lap.path("d")), ["big"], "nothing else is left");
}

/// The bytes that a journal records as present. Each line is a checksum and a JSON object.
fn journaled(journal: &std::path::Path) -> u64 {
    let records = std::fs::read_to_string(journal).unwrap();
    let bytes = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line.split_once(' ')?.1).ok()?;
        Some(record["end"].as_u64()? - record["start"].as_u64()?)
    };
    records.lines().filter_map(bytes).sum()
}

#[test]
fn a_collection_continues_after_a_restart_of_its_source() {
    let (hosts, mut daemons) = mesh(&[]);
    let fra = &hosts[0];
    let tree = Tree::make(&fra.path("data/run"), 3);
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "run");
    let args = ["gather", &source, "--into", "d", "--json", "--bwlimit", "4M"];
    let mut running = Running::new(lap.command(&args));
    running.until_done(500_000);
    // Killed, and restarted at once.
    daemons.clear();
    daemons.push(start(fra));
    assert_eq!(running.code(), Some(0), "{}", running.last);
    tree.assert_at(&lap.path("d/run"));
}

#[test]
fn a_file_that_changes_while_it_is_read_is_reported() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let file = fra.path("data/run/changing");
    let tree = Tree::make(&fra.path("data/run"), 4);
    std::fs::write(&file, tree::content(9, 9, 9_000_000)).unwrap();
    // Created before the collection starts: that takes a second or more on a busy machine.
    let others = tree::content(8, 8, 9_000_000);
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let source = at("fra", fra, "run");
    let args = ["gather", &source, "--into", "d", "--json", "--bwlimit", "2M"];
    let mut running = Running::new(lap.command(&args));
    running.until(|event| event["event"] == "planned");
    std::fs::write(&file, &others).unwrap();
    let all = running.rest();
    assert_eq!(running.code(), Some(23), "{}", running.last);
    let failed = named(&all, "file_failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0]["why"].as_str().unwrap().contains("changed"), "{failed:?}");
    assert!(!lap.path("d/run/changing").exists());
    // The next collection fetches it.
    let output = lap.run(&["gather", &source, "--into", "d", "--json"]);
    assert!(output.status.success(), "{:?}", events(&output));
    tree.assert_at(&lap.path("d/run"));
}
