//! Tests of `thalweg send`.

use super::{Host, Tree, ended, events, mesh, named, text, tree};

#[test]
fn files_are_sent_with_their_modes_and_times_and_only_once() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let file = lap.path("results.tar");
    std::fs::write(&file, tree::content(1, 1, 5_000_000)).unwrap();
    std::fs::write(lap.path("empty"), "").unwrap();
    let inbox = format!("fra:{}", fra.path("inbox").display());
    let args = ["send", "results.tar", "empty", &inbox, "--json"];
    let output = lap.run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let end = ended(&output);
    assert_eq!((&end["outcome"], &end["bytes"]), (&"complete".into(), &5_000_000.into()), "{end}");
    for name in ["results.tar", "empty"] {
        let (here, there) = (lap.path(name), fra.path("inbox").join(name));
        assert!(std::fs::read(&here).unwrap() == std::fs::read(&there).unwrap(), "{name}");
        let time = |path: &std::path::Path| path.metadata().unwrap().modified().unwrap();
        assert_eq!(time(&here), time(&there), "{name}");
    }
    let end = ended(&lap.run(&args));
    assert_eq!((&end["bytes"], &end["present_files"]), (&0.into(), &2.into()), "{end}");
}

#[test]
fn a_large_transfer_uses_relays_too() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let content = tree::content(1, 1, 40_000_000);
    std::fs::write(lap.path("big"), &content).unwrap();
    let inbox = format!("fra:{}", fra.path("inbox").display());
    let output = lap.run(&["send", "big", &inbox, "--via", "nyc", "--json", "--bwlimit", "20M"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(fra.path("inbox/big")).unwrap() == content);
    let all = events(&output);
    let opened: Vec<String> =
        named(&all, "way_opened").iter().map(|e| e["via"].to_string()).collect();
    assert!(opened.contains(&"[]".to_owned()), "{opened:?}");
    assert!(opened.contains(&"[\"nyc\"]".to_owned()), "{opened:?}");
}

#[test]
fn a_refusing_node_shows_the_missing_settings() {
    let (hosts, _daemons) = mesh(&[]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    Tree::make(&lap.path("run"), 1);
    let said = lap.fails(1, &["send", "run", "fra:/srv/inbox", "--quiet"]);
    assert!(said.contains("accept = [{ path = \"/srv/inbox\", from = [\"lap\"] }]"), "{said}");
    assert!(!said.contains("offer"), "it is not about offers: {said}");
    let said = lap.fails(6, &["send", "gone", "fra:/srv/inbox", "--quiet"]);
    assert!(said.contains("gone: No such file"), "{said}");
}

#[test]
fn missing_files_are_named_and_the_rest_is_sent() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    Tree::make(&lap.path("run"), 1);
    let inbox = format!("fra:{}", fra.path("inbox").display());
    let said = lap.fails(23, &["send", "gone", "run", &inbox]);
    assert!(said.contains("gone: No such file"), "{said}");
    assert!(said.contains("not all is there: 1 file failed"), "{said}");
    assert!(fra.path("inbox/run").is_dir());
    let link = |host: &Host, path: &str| std::fs::read_link(host.path(path)).unwrap();
    assert_eq!(link(&lap, "run/link"), link(fra, "inbox/run/link"));
}
