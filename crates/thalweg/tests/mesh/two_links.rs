//! A client with two interfaces in an emulated Internet, and a server that knows nothing of them:
//!
//! ```text
//! client ══ wan0, wan1: 8 Mbit/s each ══ whoever is behind
//! ```

use crate::in_lab::{Running, serve};
use std::{path::Path, process::Command};
use thalweg_lab::client::Lab;

/// The two links.
pub const LINKS: [&str; 2] = ["wan0", "wan1"];

/// The port of the file server.
const PORT: u16 = 8080;

/// A server that answers each request with a whole file, in the version of HTTP given as argument.
const SERVER: &str = "
import http.server, socketserver, sys
class Whole(http.server.SimpleHTTPRequestHandler):
    protocol_version = sys.argv[1]
    def log_message(self, *_): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(('0.0.0.0', int(sys.argv[2])), Whole).serve_forever()
";

/// A network of the client and its links to each of `ends`: a host, and the links behind the client's two. `further`
/// describes those hosts and links, and other paths.
pub fn network(ends: &[(&str, &[&str])], further: &str) -> String {
    let mut toml = "congestion = \"cubic\"\n[host.client]\ninterfaces = 2\n".to_owned();
    for link in LINKS {
        toml += &format!("[link.{link}]\nrate = \"8 Mbit/s\"\ndelay = \"10 ms\"\n");
    }
    for (end, behind) in ends {
        for (n, link) in LINKS.iter().enumerate() {
            let links = [&[*link], *behind].concat();
            toml += &format!("[[path]]\nfrom = \"client:{n}\"\nto = \"{end}\"\n");
            toml += &format!("links = {links:?}\n");
        }
    }
    toml + further
}

/// Serves the files of `dir` in the lab's host `server`, without ranges.
pub fn whole_files(lab: &Lab, dir: &Path, version: &str) -> Running {
    let mut python = Command::new("python3");
    python.args(["-c", SERVER, version, &PORT.to_string()]).current_dir(dir);
    serve(lab, &python, PORT)
}

/// The bytes that have arrived at the client by each interface.
pub fn came(lab: &Lab) -> [u64; 2] {
    let stats = lab.stats(false).unwrap();
    LINKS.map(|link| {
        let back = format!("{link}.rev");
        stats.links.iter().find(|l| l.name == back).unwrap().bytes
    })
}

/// The bytes that have arrived by each interface since then.
pub fn came_since(lab: &Lab, before: [u64; 2]) -> [u64; 2] {
    let now = came(lab);
    [now[0] - before[0], now[1] - before[1]]
}
