//! The TCP tools over loopback: the source reports what the sink counts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tool_support;

use serde_json::Value;
use tool_support::{ServerTool, run, run_failing};

fn sum(bins: &Value) -> u64 {
    bins.as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).sum()
}

#[test]
fn goodput_is_what_the_sink_received_after_the_warm_up() {
    let mut sink = ServerTool::start(&["tcp-sink", "--listen", "127.0.0.1:0", "--sessions", "1"]);
    let source = ["tcp-source", "--to", &sink.address, "--for", "400ms", "--warmup", "200ms"];
    let more = ["--flows", "2", "--congestion", "reno", "--series", "--bin", "50ms"];
    let report = run(&[&source[..], &more[..]].concat());
    let counted = sink.line();
    assert!(sink.end());
    assert_eq!((&report["from_s"], &report["to_s"]), (&0.2.into(), &0.4.into()));
    let mut total = 0.0;
    for (i, flow) in report["flows"].as_array().unwrap().iter().enumerate() {
        let series = &flow["series"];
        assert_eq!(series, &counted["bytes"][i]);
        assert_eq!(flow["received_bytes"], sum(series));
        // The two ends do not stop at the same moment, so the numbers need not agree.
        assert!(flow["acknowledged_bytes"].as_u64() > Some(0));
        let late: Value = series.as_array().unwrap()[4..].to_vec().into();
        let rate = sum(&late) as f64 * 8.0 / 0.2;
        let said = flow["goodput"]["value"].as_f64().unwrap();
        assert!((said / rate - 1.0).abs() < 1e-9, "{said} is not {rate}");
        assert_eq!(flow["congestion_control"], "reno");
        assert!(
            flow["send_buffer"].as_u64() > Some(0) && flow["receive_buffer"].as_u64() > Some(0)
        );
        total += said;
    }
    assert!(
        total > 0.0 && (report["goodput"]["value"].as_f64().unwrap() / total - 1.0).abs() < 1e-9
    );
    assert!(report["jain_index"]["value"].as_f64().unwrap() >= 0.5);
}

#[test]
fn a_sink_serves_measurements_over_ipv6_beside_a_flood() {
    let mut sink = ServerTool::start(&["tcp-sink", "--listen", "[::1]:0", "--sessions", "2"]);
    let to = sink.address.clone();
    let flood = ["tcp-flood", "--to", &to, "--for", "300ms", "--flows", "2", "--on", "5ms"];
    let flooded = std::thread::scope(|s| {
        let flood = s.spawn(|| run(&[&flood[..], &["--off", "5ms", "--seed", "3"]].concat()));
        for _ in 0..2 {
            let report = run(&["tcp-source", "--to", &to, "--for", "200ms"]);
            assert!(report["flows"][0]["received_bytes"].as_u64() > Some(0));
        }
        flood.join().unwrap()
    });
    let flows = flooded["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 2);
    assert!(flows.iter().all(|f| f["acknowledged_bytes"].as_u64() > Some(0)));
    // The flood is not a measurement: both lines are from the sources.
    assert_eq!(sink.line()["plan"]["flows"], 1);
    assert_eq!(sink.line()["plan"]["flows"], 1);
    assert!(sink.end());
}

#[test]
fn a_flow_with_a_rate_sends_what_is_due_and_no_more() {
    let mut sink = ServerTool::start(&["tcp-sink", "--listen", "127.0.0.1:0", "--sessions", "1"]);
    let source = ["tcp-source", "--to", &sink.address, "--for", "600ms", "--rate", "8Mbit/s"];
    let report = run(&source);
    assert!(sink.end());
    let received = report["flows"][0]["received_bytes"].as_u64().unwrap();
    // 600 kB are due in all; a busy machine may send the last of them late, but never early.
    assert!((1..=601_000).contains(&received), "{received} bytes");
}

#[test]
fn web_flows_are_delivered_completely() {
    let sink = ServerTool::start(&["tcp-sink", "--listen", "127.0.0.1:0"]);
    let web = ["tcp-web", "--to", &sink.address, "--for", "400ms", "--rate", "80Mbit/s"];
    let report = run(&[&web[..], &["--seed", "5"]].concat());
    let of = |key: &str| report[key].as_u64().unwrap();
    assert!(of("flows") > 5, "{report}");
    assert_eq!(of("broken"), 0, "{report}");
    let whole = of("flows") - of("left_out");
    assert!(of("bytes") >= whole * 64_000 && whole > 0, "{report}");
    let one = run(&[&web[..], &["--seed", "5", "--concurrent", "1"]].concat());
    assert_eq!(one["flows"], report["flows"], "arrivals repeat with the seed");
}

#[test]
fn a_sink_ends_after_its_maximum_time() {
    let mut sink = ServerTool::start(&["tcp-sink", "--listen", "127.0.0.1:0", "--max", "50ms"]);
    assert!(sink.end());
}

#[test]
fn invalid_arguments_are_rejected_with_an_explanation() {
    let to = ["tcp-source", "--to", "127.0.0.1:9", "--for"];
    let with = |more: &[&str]| run_failing(&[&to[..], more].concat());
    assert!(with(&["5"]).contains("unit is missing"));
    assert!(with(&["1s", "--warmup", "1s"]).contains("longer than --warmup"));
    assert!(
        run_failing(&["tcp-source", "--to", "127.0.0.1", "--for", "1s"]).contains("10.1.0.2:5000")
    );
    assert!(
        run_failing(&["tcp-flood", "--to", "127.0.0.1:9", "--for", "2h"])
            .contains("at most one hour")
    );
    let web = ["tcp-web", "--to", "127.0.0.1:9", "--for", "1s", "--rate", "0bit/s"];
    assert!(run_failing(&web).contains("above 0"));
    let sink = ServerTool::start(&["tcp-sink", "--listen", "127.0.0.1:0"]);
    let to = ["tcp-source", "--to", &sink.address, "--for", "1s"];
    assert!(run_failing(&[&to[..], &["--congestion", "nosuch"]].concat()).contains("nosuch"));
    assert!(run_failing(&["tcp-sink", "--listen", &sink.address]).contains("cannot listen"));
}
