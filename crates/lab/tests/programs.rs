//! Unmodified programs of the distribution run in the lab's hosts.
//!
//! Ports are fixed, because every host has its own network namespace.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use support::{read_output, run_command, start_lab, wait_until};
use thalweg_lab::client::Lab;

const PAIR: &str = r#"
    congestion = "cubic"
    [host.client]
    [host.server]
    names = ["www.example"]
    [link.core]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [[path]]
    from = "client"
    to = "server"
    links = ["core"]
"#;

/// Starts a lab for these programs. Skips the test, with a message, if labs are not possible or a program is missing.
fn lab_for(topology: &str, programs: &[&str]) -> Option<Lab> {
    if let Some(missing) = programs.iter().find(|p| find(p).is_none()) {
        support::skip(&format!("the program `{missing}` is not installed"));
        return None;
    }
    start_lab(topology)
}

/// Finds a program in PATH or in the distribution's directories for servers.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    dirs.extend(versions.map(|v| v.path().join("bin")));
    dirs.iter().map(|d| d.join(program)).find(|p| p.is_file())
}

/// A server in a host; killed when dropped.
struct DistributionServer(Child);

impl DistributionServer {
    /// Starts the server and waits until it listens on `port` in the host.
    fn start(lab: &Lab, host: &str, mut command: Command, port: u16) -> Self {
        let mut server = Self(command.stdout(Stdio::null()).spawn().unwrap());
        wait_until(&format!("{command:?} listens on {port}"), || {
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} ended: {ended:?}");
            listens(lab, host, port)
        });
        server
    }
}

impl Drop for DistributionServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a program listens on a TCP port of a host: state 0A in /proc/net/tcp.
fn listens(lab: &Lab, host: &str, port: u16) -> bool {
    let tables = read_output(lab.command(host, "cat").args(["/proc/net/tcp", "/proc/net/tcp6"]));
    let local = format!(":{port:04X} ");
    tables.lines().any(|l| l.contains(&local) && l.split_whitespace().nth(3) == Some("0A"))
}

/// Bytes that do not compress well or repeat.
fn content(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A directory readable by every user, with a file `data`.
fn directory(len: u32) -> (tempfile::TempDir, Vec<u8>) {
    let (dir, content) = (tempfile::tempdir().unwrap(), content(len));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("data"), &content).unwrap();
    (dir, content)
}

fn carried(lab: &Lab, link: &str) -> u64 {
    lab.stats(false).unwrap().link(link).unwrap().bytes
}

#[test]
fn names_resolve_by_files_and_by_dns() {
    let Some(lab) = lab_for(PAIR, &["getent"]) else { return };
    let v4 = lab.address("server").to_string();
    let host = lab.resolved().hosts.iter().find(|h| h.name == "server").unwrap();
    let v6 = lab.resolved().interfaces[host.interfaces[0]].v6.to_string();
    for service in ["files", "dns"] {
        for name in ["server", "www.example"] {
            for (database, address) in [("ahostsv4", &v4), ("ahostsv6", &v6)] {
                let args = ["-s", &format!("hosts:{service}"), database, name];
                let found = read_output(lab.command("client", "getent").args(args));
                assert!(found.starts_with(address), "{name} by {service}: {found}");
            }
        }
    }
    let unknown = run_command(lab.command("client", "getent").args(["ahosts", "nowhere.example"]));
    assert!(!unknown.status.success());
}

#[test]
fn nginx_serves_curl_over_both_families() {
    let Some(lab) = lab_for(PAIR, &["curl", "nginx"]) else { return };
    let (dir, content) = directory(3_000_000);
    let root = dir.path().display();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log stderr;\n\
         events {{}}\nhttp {{ access_log off; client_body_temp_path {root}/body;\n\
         proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;\n\
         uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;\n\
         server {{ listen 80; listen [::]:80; root {root}; }} }}\n"
    );
    fs::write(dir.path().join("nginx.conf"), config).unwrap();
    let mut nginx = lab.command("server", find("nginx").unwrap());
    nginx.arg("-e").arg("stderr").arg("-p").arg(dir.path());
    nginx.arg("-c").arg(dir.path().join("nginx.conf"));
    let _server = DistributionServer::start(&lab, "server", nginx, 80);
    for family in ["-4", "-6"] {
        let fetch = ["-sS", "--fail", family, "http://www.example/data"];
        let got = run_command(lab.command("client", "curl").args(fetch));
        assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
        assert!(got.stdout == content, "curl {family} got other bytes");
    }
    assert!(carried(&lab, "core.rev") > 2 * content.len() as u64);
}

#[test]
fn curl_resumes_from_the_labs_own_server() {
    let Some(lab) = lab_for(PAIR, &["curl"]) else { return };
    let (dir, content) = directory(1_000_000);
    let root = dir.path().to_str().unwrap();
    let http = lab.tool("server", &["http", root, "--listen", "[::]:8080"]);
    let _server = DistributionServer::start(&lab, "server", http, 8080);
    let target = dir.path().join("copy");
    fs::write(&target, &content[..300_000]).unwrap();
    let mut curl = lab.command("client", "curl");
    curl.args(["-sS", "--fail", "-C", "-", "http://server:8080/data", "-o"]).arg(&target);
    read_output(&mut curl);
    assert!(fs::read(&target).unwrap() == content);
    assert!(carried(&lab, "core.rev") < content.len() as u64);
}

#[test]
fn iperf3_sends_through_the_link_with_the_labs_congestion_control() {
    let Some(lab) = lab_for(PAIR, &["iperf3"]) else { return };
    let mut iperf = lab.command("server", "iperf3");
    iperf.args(["-s", "-1"]);
    let _server = DistributionServer::start(&lab, "server", iperf, 5201);
    let args = ["-c", "server", "-n", "4M", "-J"];
    let report: Value =
        serde_json::from_str(&read_output(lab.command("client", "iperf3").args(args))).unwrap();
    // The server stops counting at the end of the test, when the last bytes are still in flight.
    let bytes = |side: &str| report["end"][side]["bytes"].as_u64().unwrap();
    let received = bytes("sum_received");
    assert!(bytes("sum_sent") >= 4 << 20 && received > 1 << 20, "{received}");
    assert_eq!(report["end"]["sender_tcp_congestion"], "cubic");
    assert!(carried(&lab, "core.fwd") > received);
}

#[test]
fn rsync_mirrors_a_directory_from_a_daemon() {
    let Some(lab) = lab_for(PAIR, &["rsync"]) else { return };
    let (dir, content) = directory(2_000_000);
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/small"), "small").unwrap();
    let aside = tempfile::tempdir().unwrap();
    let config = aside.path().join("rsyncd.conf");
    let module = format!("use chroot = no\n[data]\npath = {}\n", dir.path().display());
    fs::write(&config, format!("{module}uid = 0\ngid = 0\n")).unwrap();
    let mut daemon = lab.command("server", "rsync");
    daemon.args(["--daemon", "--no-detach", "--config"]).arg(&config);
    let _server = DistributionServer::start(&lab, "server", daemon, 873);
    let copy = aside.path().join("copy");
    let mirror = ["-r", "--times", "rsync://server/data/"];
    read_output(lab.command("client", "rsync").args(mirror).arg(&copy));
    assert!(fs::read(copy.join("data")).unwrap() == content);
    assert_eq!(fs::read_to_string(copy.join("sub/small")).unwrap(), "small");
    let before = carried(&lab, "core.rev");
    read_output(lab.command("client", "rsync").args(mirror).arg(&copy));
    assert!(carried(&lab, "core.rev") - before < 100_000, "the second run copied again");
}

const MULTIHOMED: &str = r#"
    congestion = "cubic"
    [generate]
    kind = "multihomed"
    links = [{ rate = "20 Mbit/s", delay = "5 ms" }, { rate = "20 Mbit/s", delay = "10 ms" }]
"#;

#[test]
fn mptcpize_makes_iperf3_use_both_links_of_a_multihomed_client() {
    let Some(lab) = lab_for(MULTIHOMED, &["mptcpize", "iperf3", "ip", "ss"]) else { return };
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        support::skip("this kernel has no MPTCP");
        return;
    }
    let client = lab.resolved().hosts.iter().find(|h| h.name == "client").unwrap();
    let second = lab.resolved().interfaces[client.interfaces[1]].v4.to_string();
    for (host, args) in [
        ("client", "limits set subflow 2 add_addr_accepted 2".to_owned()),
        ("server", "limits set subflow 2 add_addr_accepted 2".to_owned()),
        ("client", format!("endpoint add {second} dev wan1 subflow")),
    ] {
        read_output(lab.command(host, "ip").arg("mptcp").args(args.split(' ')));
    }
    let mut iperf = lab.command("server", "mptcpize");
    iperf.args(["run", "iperf3", "-s", "-1"]);
    let _server = DistributionServer::start(&lab, "server", iperf, 5201);
    let args = ["run", "iperf3", "-4", "-c", "server", "-n", "12M", "-J"];
    let mut flow = lab.command("client", "mptcpize");
    let mut flow = flow.args(args).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("two subflows of one connection are established", || {
        // ss marks the TCP socket of a subflow with "tcp-ulp-mptcp".
        let sockets =
            read_output(lab.command("client", "ss").args(["-tinH", "state", "established"]));
        sockets.lines().filter(|l| l.contains("tcp-ulp-mptcp")).count() >= 2
            && sockets.contains(&second)
    });
    assert!(flow.wait().unwrap().success());
    let used: Vec<u64> = lab
        .resolved()
        .links
        .iter()
        .filter(|l| l.config.rate.is_some())
        .map(|l| carried(&lab, &l.name))
        .filter(|bytes| *bytes > 1_000_000)
        .collect();
    assert!(used.len() >= 2, "only {used:?} bytes went over a limited link");
}

/// Creates a PostgreSQL cluster in `dir`, owned by the user `postgres`.
fn init_cluster(lab: &Lab, dir: &Path) {
    let mut initdb = lab.command("server", "runuser");
    initdb.args(["-u", "postgres", "--"]).arg(find("initdb").unwrap());
    initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "-D"]).arg(dir);
    read_output(&mut initdb);
    let access = "local all all trust\nhost all all all trust\n";
    fs::write(dir.join("pg_hba.conf"), access).unwrap();
}

#[test]
fn postgresql_serves_psql_in_another_host() {
    let programs = ["initdb", "postgres", "psql", "runuser"];
    if !rustix::process::geteuid().is_root() {
        support::skip("PostgreSQL needs a user of its own, and only root can change users");
        return;
    }
    let Some(lab) = lab_for(PAIR, &programs) else { return };
    if !run_command(Command::new("getent").args(["passwd", "postgres"])).status.success() {
        support::skip("there is no user `postgres`");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let chown = Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
    assert!(chown.success());
    let cluster = dir.path().join("cluster");
    init_cluster(&lab, &cluster);
    let mut postgres = lab.command("server", "runuser");
    postgres.args(["-u", "postgres", "--"]).arg(find("postgres").unwrap());
    postgres.args(["-c", "listen_addresses=*", "-c", "unix_socket_directories="]);
    postgres.arg("-D").arg(&cluster).stderr(Stdio::null());
    let _server = DistributionServer::start(&lab, "server", postgres, 5432);
    let psql = |sql: &str| {
        let mut psql = lab.command("client", find("psql").unwrap());
        psql.args(["-h", "server", "-U", "postgres", "-X", "-A", "-t", "-c", sql]);
        run_command(&mut psql)
    };
    wait_until("the database takes connections", || psql("select 1").status.success());
    psql("create table n as select g, repeat('x', 1000) as t from generate_series(1, 1000) g");
    let sum = psql("select sum(g), sum(length(t)) from n");
    assert_eq!(String::from_utf8_lossy(&sum.stdout).trim(), "500500|1000000");
    let before = carried(&lab, "core.rev");
    let all = psql("select t from n");
    assert_eq!(all.stdout.len(), 1_001_000);
    assert!(carried(&lab, "core.rev") - before > 1_000_000);
}
