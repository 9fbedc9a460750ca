//! Plans of collections: predicted durations, the rates behind them, and deadlines.

use super::{Host, at, ended, events, mesh, named, text, tree};
use serde_json::Value;

/// `nyc` is slow to `lap`, but fast to `ber`, which is fast to `lap`.
const RATES: &str = "from,to,rate,rtt\n\
    fra,lap,8 Mbit/s,20 ms\n\
    nyc,lap,8 Mbit/s,80 ms\n\
    nyc,ber,80 Mbit/s,20 ms\n\
    ber,lap,72 Mbit/s,20 ms\n";

/// A mesh in which fra has 1 MB and nyc 9 MB.
fn world() -> (Vec<Host>, Vec<super::Daemon>, Host, [String; 2]) {
    let (hosts, daemons) = mesh(&["nyc", "ber"]);
    for (host, bytes) in hosts.iter().zip([1_000_000, 9_000_000]) {
        std::fs::write(host.path("data/file"), tree::content(0, 0, bytes)).unwrap();
    }
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    std::fs::write(lap.path("rates.csv"), RATES).unwrap();
    let sources = [at("fra", &hosts[0], "file"), at("nyc", &hosts[1], "file")];
    (hosts, daemons, lap, sources)
}

#[test]
fn a_dry_run_predicts_duration_and_paths_and_moves_nothing() {
    let (_hosts, _daemons, lap, [fra, nyc]) = world();
    let dry = |more: &[&str]| {
        let args = ["gather", &fra, &nyc, "--into", "d", "--dry-run", "--rates", "rates.csv"];
        lap.run(&[&args[..], more].concat())
    };
    let planned = |more: &[&str]| -> Value {
        let output = dry(&[more, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let all = events(&output);
        named(&all, "planned")[0].clone()
    };
    let seconds = |plan: &Value, what: &str| plan[what].as_f64().unwrap();
    let fluid = planned(&[]);
    // 9 MB over 8 and 72 Mbit/s; 1 MB over 8: that of fra takes longest.
    assert!((seconds(&fluid, "makespan_seconds") - 1.0).abs() < 0.01, "{fluid}");
    let relayed = |plan: &Value| {
        let paths = plan["paths"].as_array().unwrap().clone();
        paths.iter().any(|p| p["source"] == "nyc" && p["via"] == serde_json::json!(["ber"]))
    };
    assert!(relayed(&fluid), "{fluid}");
    let direct = planned(&["--method", "all-at-once"]);
    assert!((seconds(&direct, "makespan_seconds") - 9.0).abs() < 0.01, "{direct}");
    assert!((seconds(&direct, "bound_seconds") - 1.0).abs() < 0.01, "{direct}");
    let alone = planned(&["--via", "none"]);
    assert!(!relayed(&alone) && (seconds(&alone, "bound_seconds") - 9.0).abs() < 0.01, "{alone}");
    let limited = planned(&["--bwlimit", "8 Mbit/s"]);
    assert!((seconds(&limited, "bound_seconds") - 10.0).abs() < 0.1, "{limited}");
    let sync = planned(&["--method", "path-sync", "--slot", "250 ms", "--unit", "10 kB"]);
    assert!((1.0..2.1).contains(&seconds(&sync, "makespan_seconds")), "{sync}");
    assert_eq!((&sync["slot_seconds"], &sync["unit_bytes"]), (&0.25.into(), &10_000.into()));

    let limited = dry(&["--bwlimit", "8 Mbit/s", "--deadline", "5", "--json"]);
    assert_eq!(limited.status.code(), Some(8), "{}", text(&limited.stdout));
    // Without rates, the prediction uses the limit only.
    std::fs::write(lap.path("none.csv"), "from,to,rate\nber,fra,8 Mbit/s\n").unwrap();
    let args = ["gather", &fra, &nyc, "--into", "d", "--dry-run", "--rates", "none.csv"];
    let output = lap.run(&[&args[..], &["--bwlimit", "8 Mbit/s", "--deadline", "5"]].concat());
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{told}");
    assert!(told.contains("--bwlimit alone takes at least 10 s"), "{told}");
    assert!(told.contains("no leg to this host (lap) was ever measured"), "{told}");
    let output = dry(&["--json"]);
    let all = events(&output);
    let listed = named(&all, "files");
    assert_eq!((listed.len(), &listed[0]["files"][0]["bytes"]), (2, &1_000_000.into()));
    let said = text(&dry(&["--verbose"]).stdout);
    assert!(said.contains(&format!("   1 MB  {fra}\n")), "{said}");

    let output = dry(&[]);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(said.starts_with("SOURCE") && said.contains("ber"), "{said}");
    assert!(told.contains("plan (fluid): 1.0 s, at least 1.0 s"), "{told}");
    assert!(!lap.path("d").exists(), "nothing was made");
}

#[test]
fn a_deadline_that_no_plan_meets_is_reported_at_once() {
    let (_hosts, _daemons, lap, [fra, nyc]) = world();
    let args = ["gather", &fra, &nyc, "--into", "d", "--rates", "rates.csv", "--deadline"];
    let with = |deadline: &str, more: &[&str]| lap.run(&[&args[..], &[deadline], more].concat());
    let output = with("500 ms", &["--dry-run"]);
    assert_eq!(output.status.code(), Some(8));
    let told = text(&output.stderr);
    assert!(told.contains("cannot be met") && told.contains("takes at least 1 s"), "{told}");
    assert_eq!(with("60 s", &["--dry-run"]).status.code(), Some(0));
    // A real collection that misses its deadline: everything is here, and the exit code reports it.
    let output = with("1 ms", &["--json"]);
    assert_eq!(output.status.code(), Some(8), "{}", text(&output.stderr));
    let end = ended(&output);
    assert_eq!((&end["outcome"], &end["late"]), (&"complete".into(), &true.into()));
}

#[test]
fn the_other_methods_move_the_files_too() {
    let (_hosts, _daemons, lap, [fra, nyc]) = world();
    for method in ["path-sync", "path-delay", "best-path", "all-at-once"] {
        let args =
            ["gather", &fra, &nyc, "--into", method, "--rates", "rates.csv", "--method", method];
        let output = lap.run(&[&args[..], &["--json"]].concat());
        assert!(output.status.success(), "{method}: {}", text(&output.stderr));
        for (node, bytes) in [("fra", 1_000_000), ("nyc", 9_000_000)] {
            let file = std::fs::read(lap.path(&format!("{method}/{node}/file"))).unwrap();
            assert!(file == tree::content(0, 0, bytes), "{method}: {node}");
        }
        let all = events(&output);
        assert!(named(&all, "planned")[0]["method"].as_str().unwrap().starts_with(method));
        let by_ber = named(&all, "transfer").iter().any(|t| t["to"] == "ber");
        assert_eq!(by_ber, method != "all-at-once", "{method} uses nyc's better way");
        assert_eq!(ended(&output)["bytes"], 10_000_000, "{method}");
    }
}

#[test]
fn timetables_without_rates_are_refused() {
    let (_hosts, _daemons, lap, [fra, nyc]) = world();
    std::fs::write(lap.path("rates.csv"), "from,to,rate\nfra,lap,8 Mbit/s\n").unwrap();
    let args = ["gather", &fra, &nyc, "--into", "d", "--dry-run", "--rates", "rates.csv"];
    let said = lap.fails(2, &[&args[..], &["--method", "path-sync", "--quiet"]].concat());
    assert!(said.contains("no measured path leads from `nyc`"), "{said}");
    let real: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--dry-run").collect();
    lap.fails(2, &[&real[..], &["--method", "path-sync", "--quiet"]].concat());
    assert!(!lap.path("d").exists(), "a plan that is refused leaves nothing");
    let told = text(&lap.run(&args).stderr);
    assert!(told.contains("duration unknown: no measured path from nyc"), "{told}");
}

#[test]
fn mistakes_are_answered_with_what_to_write() {
    let (hosts, _daemons, lap, [fra, _]) = world();
    std::fs::write(lap.path("bad.csv"), "from,to,rate\nfra,lap,fast\n").unwrap();
    for (args, says) in [
        (vec!["fra"], "NODE:/PATH"),
        (vec!["fra:data"], "must be absolute"),
        (vec!["frra:/x"], "did you mean `fra`?"),
        (vec![&fra[..], "--rates", "bad.csv"], "bad.csv: line 2"),
        (vec![&fra[..], "--rates", "gone.csv"], "cannot read --rates gone.csv"),
        (vec![&fra[..], "--via", "nobody"], "no member of the mesh is named `nobody`"),
        (vec![&fra[..], "--method", "quick"], "is not a method; the methods are fluid"),
        (vec![&fra[..], "--slot", "1 ms"], "at least 10 ms"),
        (vec![&fra[..], "--method", "concurrent=0"], "at least 1"),
        (vec![&fra[..], "--exclude", "+ "], "--exclude: "),
    ] {
        let said = lap.fails(2, &[&["gather"], &args[..], &["--into", "d", "--quiet"]].concat());
        assert!(said.contains(says), "{args:?}: {said}");
    }
    drop(hosts);
}
