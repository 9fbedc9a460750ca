//! The API of a real node on loopback, and `thalweg page`.

use super::host::{Daemon, Host};
use serde_json::Value;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Sends a GET request. Returns the head and the body of the reply.
fn get(node: &Daemon, path: &str, header: &str) -> (String, String) {
    let at = node.ready["api"].as_str().unwrap();
    let mut tcp = TcpStream::connect(at).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n{header}Connection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn document(node: &Daemon, host: &Host, path: &str) -> Value {
    let token = fs::read_to_string(host.state().join("api.token")).unwrap();
    let (head, body) = get(node, path, &format!("Authorization: Bearer {}\r\n", token.trim()));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn the_printed_link_opens_the_page_once() {
    let fra = Host::founder();
    let node = fra.start_with("[api]\nlisten = \"127.0.0.1:0\"\n", None);
    let link = fra.json(&["page", "--json"]);
    let url = link["url"].as_str().unwrap();
    let path = url.split_once("/enter").map(|(_, rest)| format!("/enter{rest}")).unwrap();
    let (head, _) = get(&node, &path, "");
    assert!(head.starts_with("HTTP/1.1 303 "), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert!(get(&node, "/", &cookie).0.starts_with("HTTP/1.1 200 "));
    assert!(get(&node, &path, "").0.starts_with("HTTP/1.1 403 "), "a link works once");
    assert!(get(&node, "/", "").0.starts_with("HTTP/1.1 401 "));
    assert!(fra.ok(&["page"]).starts_with("http://127.0.0.1:"));
}

#[test]
fn after_a_revocation_neither_cookie_nor_link_nor_token_is_valid() {
    let fra = Host::founder();
    let node = fra.start_with("[api]\nlisten = \"127.0.0.1:0\"\n", None);
    let file = fra.state().join("api.token");
    let bearer = || {
        let token = fs::read_to_string(&file).unwrap();
        format!("Authorization: Bearer {}\r\n", token.trim())
    };
    let status = |header: &str| get(&node, "/v1/jobs", header).0[9..12].to_owned();
    let old = bearer();
    let link = fra.json(&["page", "--json"])["url"].as_str().unwrap().to_owned();
    assert_eq!(status(&old), "200");
    assert_eq!(fra.json(&["page", "--revoke", "--json"]), serde_json::json!({ "revoked": true }));
    assert_eq!((status(&old), status(&bearer())), ("401".into(), "200".into()));
    let path = link.split_once("/enter").map(|(_, rest)| format!("/enter{rest}")).unwrap();
    assert!(get(&node, &path, "").0.starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_chosen_port_that_is_taken_is_refused_with_its_holder_and_the_token_is_removed() {
    let fra = Host::founder();
    let file = fra.state().join("api.token");
    drop(fra.start_with("[api]\nlisten = \"127.0.0.1:0\"\n", None));
    let old = fs::read_to_string(&file).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let settings = fra.path("taken.toml");
    fs::write(&settings, format!("[api]\nlisten = \"{at}\"\n")).unwrap();
    let said = fra.fails(1, &["node", "--config", settings.to_str().unwrap()]);
    let holder = format!("process {} (", std::process::id());
    for part in [at.as_str(), &holder, "[api] listen", "api.token was removed"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert!(!file.exists());
    let _node = fra.start_with("[api]\nlisten = \"127.0.0.1:0\"\n", None);
    assert_ne!(fs::read_to_string(&file).unwrap(), old);
}

#[test]
fn the_api_shows_what_the_commands_show() {
    let fra = Host::founder();
    let node = fra.start_with("[api]\nlisten = \"127.0.0.1:0\"\n", None);
    let interfaces = document(&node, &fra, "/v1/interfaces");
    assert_eq!(interfaces["processes"], fra.json(&["interfaces", "status", "--json"])["processes"]);
    let paths = document(&node, &fra, "/v1/paths");
    let shown = fra.json(&["paths", "--full", "--json"]);
    assert_eq!(paths["paths"]["nodes"], shown["paths"]["nodes"]);
    assert_eq!(paths["candidates"], shown["candidates"]);
    assert!(paths["oracle"]["answered"] == true && paths["advice"].is_null(), "{paths}");
    let status = document(&node, &fra, "/v1/status");
    assert_eq!(status["name"], "fra");
}

#[test]
fn without_a_door_on_loopback_the_command_says_so() {
    let fra = Host::founder();
    let said = fra.fails(1, &["page"]);
    assert!(said.contains("thalweg node"), "{said}");
    let node = fra.start_with("[api]\nlisten = \"off\"\n", None);
    assert!(node.ready["api"].is_null());
    let said = fra.fails(1, &["page"]);
    assert!(said.contains("[api] listen"), "{said}");
}
