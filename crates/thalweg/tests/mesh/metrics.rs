//! The metrics of a node with all services: Prometheus's conventions, and the queries of the dashboard.

use super::{
    dashboard, exposition,
    host::{Daemon, Host, until},
};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// Settings with which a node registers all metrics that it can have. The interface need not exist.
const ALL_SERVICES: &str = "
[metrics]
listen = \"127.0.0.1:0\"
[measure]
overlay = true
[[drop_box]]
name = \"taxes\"
until = \"2100-01-01T00:00:00Z\"
[[interfaces.policy]]
name = \"lo\"
tier = \"secondary\"
";

/// The page of metrics, without the HTTP head.
fn page(daemon: &Daemon) -> String {
    let at = daemon.ready["metrics"].as_str().unwrap();
    let mut tcp = TcpStream::connect(at).unwrap();
    tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    let (head, page) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("application/openmetrics-text"), "{head}");
    page.to_owned()
}

#[test]
fn a_nodes_metrics_follow_the_conventions_and_answer_the_dashboard() {
    let fra = Host::founder();
    let runs = fra.start_with(ALL_SERVICES, None);
    // A host calibrates its clocks once it serves.
    until("the host has calibrated its trains", || {
        // Without a pause, the requests themselves keep the host busy.
        std::thread::sleep(Duration::from_millis(100));
        page(&runs).contains("thalweg_trains_")
    });
    let page = page(&runs);
    let families = exposition::parse(&page).unwrap_or_else(|why| panic!("{why}\n{page}"));
    for room in [
        "node",
        "roster",
        "relay",
        "measure",
        "overlay",
        "trains",
        "oracle",
        "files",
        "drop_box",
        "stream",
        "interface",
        "bond",
    ] {
        let prefix = format!("thalweg_{room}_");
        assert!(
            families.iter().any(|family| family.name.starts_with(&prefix)),
            "no {prefix}…\n{page}"
        );
    }
    let found = exposition::problems(&families);
    assert!(found.is_empty(), "{}\n{page}", found.join("\n"));
    let found = dashboard::problems(&dashboard::delivered(), &families);
    assert!(found.is_empty(), "{}\n{page}", found.join("\n"));
    runs.end();
}
