//! Settings that change while a node runs.

use super::{
    get,
    host::{Daemon, Host, text},
    server::{Server, Version},
};
use serde_json::Value;
use std::fs;

/// The settings of a relay that connects to these ports of loopback.
fn relaying(ports: &str) -> String {
    format!("[relay]\nallow_to = [\"127.0.0.0/8\"]\nports = [\"{ports}\"]\n")
}

fn write(host: &Host, settings: &str) {
    fs::write(host.path("node.toml"), settings).unwrap();
}

/// The keys of a reply that apply then.
fn keys(reply: &Value, applies: &str) -> Vec<String> {
    let all = reply["changes"].as_array().unwrap().iter();
    let those = all.filter(|change| change["applies"] == applies);
    those.map(|change| change["key"].as_str().unwrap().to_owned()).collect()
}

fn send(from: &Host, to: &Host) -> std::process::Output {
    fs::write(from.path("note"), "hello").unwrap();
    let inbox = format!("fra:{}", to.path("inbox").display());
    from.run(&["send", "note", &inbox, "--quiet"])
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_rights_change_while_the_node_runs() {
    let version = Version::new(1, 100_000);
    let server = Server::honest(&version).await;
    let fra = Host::founder();
    fs::create_dir(fra.path("inbox")).unwrap();
    let runs = fra.start_under(&relaying("1-65535"), None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let output = get(&lap, &server, &["--path", "fra"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!send(&lap, &fra).status.success(), "nothing is accepted yet");

    let accept = format!(
        "[files]\naccept = [{{ path = \"{}\", from = [\"lap\"] }}]\n",
        fra.path("inbox").display()
    );
    write(&fra, &format!("{}{accept}", relaying("80")));
    let reply = fra.json(&["config", "reload", "--json"]);
    assert_eq!(keys(&reply, "reload"), ["relay.ports", "files.accept"], "{reply}");
    assert_eq!(keys(&reply, "restart"), <[&str; 0]>::default());
    let sent = send(&lap, &fra);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert_eq!(fs::read_to_string(fra.path("inbox/note")).unwrap(), "hello");
    fs::remove_file(lap.path("file")).unwrap();
    let output = get(&lap, &server, &["--path", "fra"]).await;
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("refused"), "{said}");
    assert_eq!(fra.ok(&["config", "reload"]), "no setting was changed\n");
    runs.end();
}

#[test]
fn after_a_mistake_all_former_settings_stay() {
    let fra = Host::founder();
    fs::create_dir(fra.path("inbox")).unwrap();
    let accept =
        format!("accept = [{{ path = \"{}\", from = [\"*\"] }}]", fra.path("inbox").display());
    let good = format!("{}[files]\n{accept}\n", relaying("1-65535"));
    let runs = fra.start_under(&good, None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);

    // A typing error on the second line; the change on the third is not applied.
    write(&fra, "[jobs]\nparalel = 5\nmax_open = 5\n");
    let said = fra.fails(1, &["config", "reload"]);
    assert!(said.contains("node.toml") && said.contains("2:1"), "{said}");
    assert!(said.contains("did you mean `parallel`?"), "{said}");
    // A directory that does not exist.
    write(&fra, &good.replace("inbox", "inboxes"));
    let said = fra.fails(1, &["config", "reload"]);
    assert!(said.contains("inboxes"), "{said}");
    // A file that was moved away does not bring the defaults back.
    fs::remove_file(fra.path("node.toml")).unwrap();
    let said = fra.fails(1, &["config", "reload"]);
    assert!(said.contains("node.toml"), "{said}");
    let sent = send(&lap, &fra);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    runs.end();
}

#[test]
fn what_needs_a_restart_is_told_until_it_comes() {
    let fra = Host::founder();
    let runs = fra.start_under(&relaying("80"), None);
    let changed =
        format!("{}[relay.quota]\nconnections = 9\n[bond]\nmax_bonds = 7\n", relaying("80"));
    write(&fra, &changed);
    let output = fra.run(&["config", "reload"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("relay.quota.connections: applied\n"), "{said}");
    assert!(said.contains("bond.max_bonds: applies when the node is restarted\n"), "{said}");
    let output = fra.run(&["config", "reload", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&reply, "restart"), ["bond.max_bonds"], "{reply}");
    runs.end();
    let runs = fra.start_under(&changed, None);
    assert_eq!(fra.ok(&["config", "reload"]), "no setting was changed\n");
    runs.end();
}

#[test]
fn a_signal_reads_the_settings_too_and_rules_reach_the_roster() {
    let fra = Host::founder();
    let mut runs: Daemon = fra.start_under("", None);
    write(&fra, "[[oracle.rule]]\nclient = \"guest\"\nports = [\"443\"]\n");
    runs.signal("HUP");
    let line = runs.log_until("event=settings_reloaded");
    assert!(line.contains("applied=oracle.rule"), "{line}");
    let rules = fra.json(&["mesh", "members", "--json"]);
    assert!(rules.to_string().contains("guest"), "{rules}");
    write(&fra, "[log]\nformat = \"yaml\"\n");
    runs.signal("HUP");
    let line = runs.log_until("event=settings_not_reloaded");
    assert!(line.contains("level=alert") && line.contains("log.format"), "{line}");
    runs.end();
    let said = fra.fails(1, &["config", "reload"]);
    assert!(said.contains("no daemon runs"), "{said}");
}
