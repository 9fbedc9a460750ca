//! A host with two interfaces in a lab, whose commands belong to the user of the mesh's first node: their sockets are in
//! that node's state directory, so its bond view shows them.
//!
//! ```text
//! client ─┬─ 20 Mbit/s ─┬─ server: a member of the mesh, and a web server
//!         └─  8 Mbit/s ─┘
//! ```
//!
//! A proxy assigns the connections of a few downloads to the interfaces, and a collection from the member runs over a
//! bond.

use super::settings;
use crate::{
    load::{
        mgrp::program::Program,
        strangers::test_mesh::{Daemon, TestMesh, TestNode},
    },
    program,
};
use anyhow::Context as _;
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
};
use thalweg_lab::{client::Lab, topology::Topology};

const TOPOLOGY: &str = r#"
congestion = "cubic"
[generate]
kind = "multihomed"
links = [{ rate = "20 Mbit/s", delay = "5 ms" }, { rate = "8 Mbit/s", delay = "15 ms" }]
"#;

/// The settings of the client's user. In the lab no interface has a default route: all hosts are near.
const CONFIG: &str = "[interfaces]\nnear = true\naffinity = \"0 s\"\n";

/// The name of the member at the server.
const FAR: &str = "far";

/// Ports of the server, in its own namespace.
const MESH_PORT: u16 = 7373;
const WEB_PORT: u16 = 8080;

/// The proxy, in the client's namespace.
const PROXY: &str = "127.0.0.1:3128";

/// The size of the collected file: at [`LIMIT`] it lasts for ten minutes.
const SIZE: u32 = 150_000_000;

/// The limit of the collection.
const LIMIT: &str = "2Mbit/s";

/// The size of a download by the proxy.
const WEB_SIZE: u64 = 3_000_000;

/// Three programs that download again and again.
const DOWNLOADS: &str = "\
    for rate in 150k 300k 600k; do\n\
      while :; do curl -s -o /dev/null --limit-rate $rate --proxy http://$1 $2/$rate; sleep 1; done &\n\
    done\nwait";

/// The running host and its server; ended on drop.
pub struct TwoUplinks {
    _programs: Vec<Program>,
    _far: (TestNode, Daemon),
    _lab: Lab,
}

impl TwoUplinks {
    /// Starts the lab, the member and the commands.
    ///
    /// # Errors
    /// When the machine does not allow a lab, or something does not start.
    pub fn start(mesh: &TestMesh, hub: &TestNode, files: &Path) -> anyhow::Result<Self> {
        let lab = Lab::start(&Topology::from_toml(TOPOLOGY)?)?;
        let far = start_far(mesh, hub, &lab, files)?;
        let config = files.join("client-config");
        fs::create_dir_all(config.join("thalweg"))?;
        fs::write(config.join("thalweg/config.toml"), CONFIG)?;
        let programs = vec![
            start_web(&lab, files)?,
            start_proxy(hub, &lab, &config)?,
            start_downloads(&lab)?,
            start_collection(hub, &lab, &config, files)?,
        ];
        Ok(Self { _programs: programs, _far: far, _lab: lab })
    }
}

fn start_far(
    mesh: &TestMesh,
    hub: &TestNode,
    lab: &Lab,
    files: &Path,
) -> anyhow::Result<(TestNode, Daemon)> {
    let token = hub.thalweg(&["mesh", "token", "--role", "relay"])?;
    let far = mesh.host_with(&format!("{}[api]\nlisten = \"off\"\n", settings(files, FAR)?))?;
    // Zeros would not be sent.
    let content: Vec<u8> = (0..SIZE / 4).flat_map(u32::to_le_bytes).collect();
    fs::write(files.join("far-data/long.bin"), content)?;
    let at: SocketAddr = (lab.address("server"), MESH_PORT).into();
    far.join_at(&token, FAR, at)?;
    let daemon = far.start_at(lab, "server", at).context("cannot start the lab's member")?;
    Ok((far, daemon))
}

fn start_web(lab: &Lab, files: &Path) -> anyhow::Result<Program> {
    let content = files.join("web.bin");
    File::create(&content)?.set_len(WEB_SIZE)?;
    let mut command = lab.command("server", program::own()?);
    command.args(["load", "servers", "serve", "--listen", &format!("0.0.0.0:{WEB_PORT}")]);
    command.arg("--content").arg(content);
    let mut web = Program::start(command, "the web server".to_owned())?;
    web.ready()?;
    Ok(web)
}

fn start_proxy(hub: &TestNode, lab: &Lab, config: &Path) -> anyhow::Result<Program> {
    let args = ["proxy", "--listen", PROXY, "--no-relays"];
    Program::start(hub.command_at(lab, "client", config, &args), "the proxy".to_owned())
}

fn start_downloads(lab: &Lab) -> anyhow::Result<Program> {
    let url = format!("http://{}:{WEB_PORT}/closes-each/1", lab.address("server"));
    let mut command = lab.command("client", "sh");
    command.args(["-c", DOWNLOADS, "sh", PROXY, &url]);
    Program::start(command, "the downloads".to_owned())
}

fn start_collection(
    hub: &TestNode,
    lab: &Lab,
    config: &Path,
    files: &Path,
) -> anyhow::Result<Program> {
    let source = format!("{FAR}:{}", files.join("far-data/long.bin").display());
    let into = files.join("from-far").display().to_string();
    let args = ["gather", &source, "--into", &into, "--bwlimit", LIMIT];
    Program::start(hub.command_at(lab, "client", config, &args), "the collection".to_owned())
}
