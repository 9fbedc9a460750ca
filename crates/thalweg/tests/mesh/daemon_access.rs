//! Access to a daemon: over IPv6, and to the local API by its owner only.

use super::host::{Daemon, Host, text};
use std::{
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    process::{Command, Output},
};

#[test]
fn a_mesh_is_joined_over_ipv6() {
    let Ok(free) = TcpListener::bind("[::1]:0") else {
        println!("skipped: this host has no IPv6 loopback");
        return;
    };
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let fra = Host::new();
    fra.ok(&["mesh", "init", "--name", "fra", "--address", &address]);
    let both = format!("{address},127.0.0.1:0");
    let runs = Daemon::spawn(&mut fra.command(&["node", "--json", "--listen", &both]));
    let listen = runs.ready["listen"].as_array().unwrap();
    assert_eq!((listen.len(), &listen[0]), (2, &address.clone().into()));
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let status = lap.json(&["status", "--json"]);
    assert_eq!(status["oracle"]["reached"], true, "{status}");
}

/// Asks the local API for the node's status.
fn ask_status(socket: &str, uid: Option<u32>) -> Option<Output> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "30", "--unix-socket", socket, "http://node/v1/status"]);
    if let Some(uid) = uid {
        curl.uid(uid).gid(uid);
    }
    curl.output().ok()
}

#[test]
fn the_local_api_answers_its_owner_and_no_other_user() {
    /// The user id of `nobody`.
    const OTHER: u32 = 65534;
    let fra = Host::founder();
    let _runs = fra.start();
    let socket = fra.state().join("node.sock");
    let found = fs::metadata(&socket).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let name = socket.display().to_string();
    let Some(own) = ask_status(&name, None) else {
        println!("skipped: there is no curl");
        return;
    };
    assert!(text(&own.stdout).contains("\"name\":\"fra\""), "{}", text(&own.stderr));
    if found.uid() != 0 {
        println!("skipped: only root can become another user");
        return;
    }
    // The file modes keep other users out; without them, the check of the user does.
    let refused = ask_status(&name, Some(OTHER)).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty());
    for (path, mode) in [(fra.path(""), 0o755), (fra.state(), 0o755), (socket, 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let refused = ask_status(&name, Some(OTHER)).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", text(&refused.stdout));
    let said = text(&refused.stderr);
    if said.contains("Could not connect") || said.contains("Couldn't connect") {
        println!("skipped in part: another user cannot enter the tests' directory: {said}");
    }
    assert!(ask_status(&name, None).unwrap().status.success());
}
