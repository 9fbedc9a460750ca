//! Changes to the second interface of the lab's host `client`, and how to undo them.

use crate::in_lab::{ok, within};
use std::process::{Child, Command};
use thalweg_lab::client::Lab;

/// Removes the IPv4 addresses.
pub const V6_ALONE: &str = "ip -4 address flush dev wan1";

/// Keeps the addresses, but removes all routes.
#[allow(dead_code, reason = "of interest to the proxy alone")]
pub const NO_ROUTE: &str = "for family in -4 -6; do
    ip $family route flush dev wan1; ip $family route flush table 101; done";

/// Keeps only routes for packets with the interface's own source address.
#[allow(dead_code, reason = "of interest to the proxy alone")]
pub const ROUTE_BY_SOURCE: &str =
    "for family in -4 -6; do ip $family route flush dev wan1 table main; done";

/// Sets the MTU to the smallest that every IPv4 host accepts.
pub const SMALL_PACKETS: &str = "ip link set wan1 mtu 576";

/// Takes the interface down and up for five seconds, ten times a second, and restores the routes that the kernel drops.
const FLAP: &str = "ip -4 route show table all dev wan1 | grep -v 'table local' > routes
    for n in $(seq 50); do
        ip link set wan1 down; sleep 0.05
        ip link set wan1 up
        while read -r route; do ip route replace $route dev wan1; done < routes
        sleep 0.05
    done";

/// A server that answers every request with the same page.
const PORTAL: &str = "
import socketserver, sys
class Page(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(4096)
        body = b'<html>Please log in</html>'
        head = b'HTTP/1.1 ' + sys.argv[1].encode() + b'\\r\\nContent-Type: text/html\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n'
        self.request.sendall(head % len(body) + body)
class Server(socketserver.ThreadingTCPServer): allow_reuse_address = daemon_threads = True
print('ready', flush=True)
Server(('0.0.0.0', 8888), Page).serve_forever()
";

fn script(text: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-ec", text]);
    sh
}

/// Runs a script in the host.
pub fn change(lab: &Lab, host: &str, text: &str) {
    ok(lab, host, &script(text));
}

/// Makes `wan1` flap for five seconds; it writes only below `dir`.
pub fn flaps(lab: &Lab, dir: &std::path::Path) -> Child {
    let mut sh = script(FLAP);
    sh.current_dir(dir);
    within(lab, "client", &sh).spawn().unwrap()
}

/// Simulates a captive portal behind `wan1`: every request that the client sends by it to these hosts is answered by a
/// portal. Returns the portals, which end when dropped.
pub fn portal(lab: &Lab, hosts: &[&str]) -> Vec<crate::in_lab::Running> {
    portal_with(lab, hosts, "200 OK")
}

/// As [`portal`], with this status in the answers.
pub fn portal_with(lab: &Lab, hosts: &[&str], status: &str) -> Vec<crate::in_lab::Running> {
    let address = crate::in_lab::ok(
        lab,
        "client",
        &script("ip -4 -o address show dev wan1 | awk '{ print $4 }'"),
    );
    let address = crate::host::text(&address.stdout);
    let address = address.trim().split('/').next().unwrap().to_owned();
    let led = format!(
        "nft add table ip portal
        nft 'add chain ip portal in {{ type nat hook prerouting priority dstnat; }}'
        nft 'add rule ip portal in ip saddr {address} tcp dport != 8888 redirect to :8888'"
    );
    let mut all = Vec::new();
    for host in hosts {
        let mut python = Command::new("python3");
        python.args(["-c", PORTAL, status]);
        let mut running = within(lab, host, &python).spawn().unwrap();
        let mut line = String::new();
        let out = running.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        all.push(crate::in_lab::Running(running));
        change(lab, host, &led);
    }
    all
}

/// The resident anonymous memory, bytes, of the largest process below `pid`: the process started here is only the
/// parent of the one inside the lab.
pub fn memory_below(pid: u32) -> u64 {
    let parents = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    });
    let parents: Vec<(u32, u32)> = parents.collect();
    let mut all = vec![pid];
    while let Some((child, _)) =
        parents.iter().find(|(child, parent)| all.contains(parent) && !all.contains(child))
    {
        all.push(*child);
    }
    all.into_iter().filter_map(memory).max().unwrap_or(0)
}

/// The resident anonymous memory of a process, bytes; `None` once it has ended.
fn memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
