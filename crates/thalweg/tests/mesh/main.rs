//! A mesh of real programs: founded, joined, used, revoked.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod addresses;
mod bond_cast;
mod bond_lab;
mod bond_policies;
mod bond_relays;
mod bonds;
mod carrier_lab;
mod carrier_legs;
mod carrier_streams;
mod daemon_access;
mod dashboard;
mod doctor;
mod drain;
mod drop_box;
mod exposition;
mod faults;
#[path = "../../../media/tests/fixtures/ffmpeg_decoder.rs"]
mod ffmpeg_decoder;
mod founder_host;
mod host;
mod in_lab;
mod jobs;
mod local_socks;
mod measure_errors;
mod measure_hops;
mod measure_lab;
mod measure_service;
mod messages;
mod metrics;
mod nat_network;
mod no_daemon;
mod odd_links;
mod oracle_down;
mod overlay_lab;
mod page;
mod reach;
mod reach_nat;
mod recovery;
mod rekey;
mod reload;
mod samples;
mod second_interface;
mod stream_inputs;
mod stream_video;
mod streams;
mod submissions;
mod transfer_interfaces;
mod tutorial;
mod two_links;
mod up;

#[path = "../../../node/tests/overlay/calm.rs"]
mod calm;

#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../../media/tests/media/stream.rs"]
mod transport;

// Each test crate uses another part of it.
#[allow(dead_code, reason = "shared with the tests of the library")]
#[path = "../../../get/tests/get/server.rs"]
mod server;

use host::{Host, by_socks, text};
use server::{Server, Version};
use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
};

const LENGTH: usize = 1_000_000;

/// Downloads on `host` with these arguments, without blocking the server.
async fn get(host: &Host, server: &Server, args: &[&str]) -> std::process::Output {
    let url = server.url();
    let mut command = host.command(&[&["get", &url, "-o", "file"], args].concat());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn assert_got(host: &Host, version: &Version, output: &std::process::Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(host.path("file")).unwrap() == version.bytes);
    std::fs::remove_file(host.path("file")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_is_founded_joined_used_and_left() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let fra = Host::founder();
    let mut fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &["country=us"]);
    let mut nyc_runs = nyc.start();
    // A laptop: without a port and a daemon.
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);

    for legs in ["sealed", "open"] {
        let output = get(&lap, &server, &["--path", "fra", "--legs", legs]).await;
        assert_got(&lap, &version, &output);
        let line = fra_runs.log_until(&format!("leg={legs}"));
        assert!(line.contains("peer=lap") && line.contains("depth=0"), "{line}");
        // `get` says goodbye, so that the connection does not look cut off. Whether the relay's own goodbye then meets
        // a closed socket is a matter of timing.
        assert!(!line.contains("without a TLS close_notify"), "{line}");

        let output = get(&lap, &server, &["--path", "fra+nyc", "--legs", legs]).await;
        assert_got(&lap, &version, &output);
        let line = nyc_runs.log_until(&format!("leg={legs}"));
        assert!(line.contains("peer=lap") && line.contains("depth=1"), "{line}");
        assert!(!line.contains("without a TLS close_notify"), "{line}");
    }
    // Without --path, all relays are tried; the file is the same whichever wins.
    let output = get(&lap, &server, &["--json"]).await;
    assert_got(&lap, &version, &output);
    let started = text(&output.stdout).lines().next().unwrap().to_owned();
    assert!(started.contains("fra") && started.contains("nyc"), "{started}");

    let revoked = fra.json(&["mesh", "revoke", "lap", "--wait", "30s", "--json"]);
    assert_eq!(revoked["revoked"], "lap");
    assert_eq!(revoked["confirmed"], revoked["of"]);
    for path in ["fra", "nyc"] {
        let output = get(&lap, &server, &["--path", path]).await;
        // No path delivers the file.
        assert_eq!(output.status.code(), Some(4));
        let said = text(&output.stderr);
        assert!(said.contains("does not admit this host's key"), "{said}");
    }
    assert!(nyc.json(&["mesh", "members", "--json"])["members"].as_array().unwrap().len() == 2);
    nyc_runs.end();
    fra_runs.end();
    assert!(!fra.state().join("node.sock").exists());
}

#[test]
fn revoking_cuts_open_connections() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let _fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\"]\n";
    let nyc_runs = nyc.start_with(socks, None);

    let mut program = by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    program.write_all(b"ping").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    fra.ok(&["mesh", "revoke", "nyc"]);
    // Both ends are reset: neither takes the stream for complete.
    far.read_to_end(&mut Vec::new()).unwrap_err();
    program.read_to_end(&mut Vec::new()).unwrap_err();
}

#[test]
fn a_revoked_relay_closes_its_connections() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let _fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = nyc.start();
    let ber = Host::relay(&fra, "ber", &[]);
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"nyc\"]\n";
    let ber_runs = ber.start_with(socks, None);

    let mut program = by_socks(ber_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    program.write_all(b"ping").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    fra.ok(&["mesh", "revoke", "nyc", "--wait", "10s"]);
    far.read_to_end(&mut Vec::new()).unwrap_err();
    program.read_to_end(&mut Vec::new()).unwrap_err();
    let lines = nyc_runs.end();
    assert!(lines.iter().any(|l| l.contains("not_listed")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_programs_use_the_first_route_that_works() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\", \"direct\"]\nlegs = \"open\"\n";
    let nyc_runs = nyc.start_with(socks, None);
    let proxy = nyc_runs.socks().to_string();
    // For `get`, the listener is a plain SOCKS5 relay.
    let output = get(&nyc, &server, &["--path", &proxy]).await;
    assert_got(&nyc, &version, &output);
    let lines = fra_runs.end();
    assert!(lines.iter().any(|l| l.contains("peer=nyc") && l.contains("leg=open")), "{lines:?}");
    // Without the relay, the next route is used.
    let output = get(&nyc, &server, &["--path", &proxy]).await;
    assert_got(&nyc, &version, &output);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_mesh_does_not_prevent_a_direct_download() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let fra = Host::founder();
    std::fs::remove_file(fra.state().join("roster")).unwrap();
    let output = get(&fra, &server, &[]).await;
    assert_got(&fra, &version, &output);
    let said = text(&output.stderr);
    assert!(said.contains("no relays are tried: this host has no roster yet"), "{said}");
    let output = get(&fra, &server, &["--via", "nyc"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("but this host has no roster yet"));
}
