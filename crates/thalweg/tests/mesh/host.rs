//! The hosts of a mesh, with state directories, commands and daemons, all on loopback.

use std::{
    io::{BufRead, BufReader, Lines, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_lab::port::Port;

/// Longer than any wait, on the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Settings that let relays connect to the tests' servers.
const SETTINGS: &str = "[relay]\nallow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n";

/// The state directory and the port of a host.
pub struct Host {
    dir: TempDir,
    port: Port,
}

impl Host {
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), port: Port::reserve(Ipv4Addr::LOCALHOST).unwrap() }
    }

    /// The founder of a mesh, named `fra`.
    pub fn founder() -> Self {
        let host = Self::new();
        host.ok(&["mesh", "init", "--name", "fra", "--address", &host.address()]);
        host
    }

    /// A host that has joined the mesh of `founder`, whose daemon runs.
    pub fn joined(founder: &Self, name: &str, token: &[&str], join: &[&str]) -> Self {
        let host = Self::new();
        let token = founder.ok(&[&["mesh", "token"], token].concat());
        let args = ["mesh", "join", token.trim(), "--name", name];
        host.ok(&[&args, join].concat());
        founder.wait_until_known(name);
        host
    }

    /// A relay that has joined the mesh of `founder`.
    pub fn relay(founder: &Self, name: &str, tags: &[&str]) -> Self {
        let host = Self::new();
        let mut token = vec!["mesh", "token", "--role", "relay"];
        tags.iter().for_each(|tag| token.extend(["--tag", tag]));
        let token = founder.ok(&token);
        host.ok(&["mesh", "join", token.trim(), "--name", name, "--address", &host.address()]);
        founder.wait_until_known(name);
        host
    }

    /// Waits until the founder's own node knows this member, not only the oracle in it.
    fn wait_until_known(&self, name: &str) {
        let has = |roster: &serde_json::Value| {
            roster["members"].as_array().unwrap().iter().any(|m| m["name"] == name)
        };
        until("the founder's node knows the member", || {
            has(&self.json(&["mesh", "members", "--json"]))
        });
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A command on this host, in a directory where it may write.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(args).current_dir(self.dir.path()).env("COLUMNS", "100");
        command.env("THALWEG_STATE", self.state()).env("XDG_CONFIG_HOME", self.path("config"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed. Returns standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail with this code and print nothing to standard output. Returns standard error.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
        said
    }

    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Starts the host's daemon and waits until it serves.
    pub fn start(&self) -> Daemon {
        self.start_with("", None)
    }

    /// As [`Self::start`], with these additional settings (first those of `[relay]`), and at most this many
    /// descriptors.
    pub fn start_with(&self, settings: &str, descriptors: Option<u32>) -> Daemon {
        self.start_under(&format!("{SETTINGS}{settings}"), descriptors)
    }

    /// As [`Self::start_with`], with only these settings.
    pub fn start_under(&self, settings: &str, descriptors: Option<u32>) -> Daemon {
        let file = self.path("node.toml");
        std::fs::write(&file, settings).unwrap();
        let (listen, file) = (self.address(), file.display().to_string());
        let args = ["node", "--json", "--listen", &listen, "--config", &file];
        let mut command = match descriptors {
            None => self.command(&args),
            Some(most) => limited(&self.command(&args), most),
        };
        Daemon::spawn(&mut command)
    }
}

/// The same command with a limit of descriptors.
fn limited(command: &Command, most: u32) -> Command {
    let mut limited = Command::new("sh");
    let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
    limited.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    let environment = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    limited.envs(environment).current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    limited
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    pub ready: serde_json::Value,
    log: Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    /// Starts the daemon and waits until it reports that it serves.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let Ok(ready) = serde_json::from_str(&line) else {
            let said: Vec<_> = log.by_ref().map(Result::unwrap).collect();
            panic!("no line that says ready: {line}{said:?}");
        };
        Self { child, ready, log }
    }

    pub fn socks(&self) -> SocketAddr {
        self.ready["socks"].as_str().unwrap().parse().unwrap()
    }

    /// The number of its process.
    #[allow(dead_code, reason = "only for the tests of jobs")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, in whatever way.
    #[allow(dead_code, reason = "only for the tests of jobs")]
    pub fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// The resident anonymous memory of the daemon, bytes.
    #[allow(dead_code, reason = "only for the tests of faults")]
    pub fn memory(&self) -> u64 {
        let file = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    /// Reads the log up to the first line with this text.
    pub fn log_until(&mut self, text: &str) -> String {
        // A test that waits in vain shows what it has read.
        let seen = |line: &String| println!("log: {line}");
        let lines = self.log.by_ref().map(Result::unwrap);
        let found = lines.inspect(seen).find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("the log ended without `{text}`"))
    }

    /// Ends the daemon in order. Returns the rest of its log.
    pub fn end(self) -> Vec<String> {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until the daemon has ended in order. Returns the rest of its log.
    pub fn ended(mut self) -> Vec<String> {
        let lines = self.log.by_ref().map(Result::unwrap).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{lines:?}");
        lines
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Repeats a check until it is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A mesh of the founder and relays with these names, all started by `start`.
#[allow(dead_code, reason = "only for the tests of gather and cast")]
pub fn mesh(names: &[&str], start: impl Fn(&Host) -> Daemon) -> (Vec<Host>, Vec<Daemon>) {
    let founder = Host::founder();
    let mut daemons = vec![start(&founder)];
    let mut hosts = vec![];
    for name in names {
        let host = Host::relay(&founder, name, &[]);
        daemons.push(start(&host));
        hosts.push(host);
    }
    hosts.insert(0, founder);
    (hosts, daemons)
}

/// The events of a command with `--json`.
#[allow(dead_code, reason = "only for the tests of gather and cast")]
pub fn events(output: &Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The events with this name.
#[allow(dead_code, reason = "only for the tests of gather and cast")]
pub fn named<'a>(events: &'a [serde_json::Value], name: &str) -> Vec<&'a serde_json::Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// A SOCKS5 connection to `to`, through the listener at `proxy`.
pub fn by_socks(proxy: SocketAddr, to: SocketAddr) -> std::net::TcpStream {
    use std::io::Read as _;
    let mut tcp = std::net::TcpStream::connect(proxy).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let SocketAddr::V4(to) = to else { panic!("{to} is not IPv4") };
    let connect = [&[5, 1, 0, 5, 1, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()];
    tcp.write_all(&connect.concat()).unwrap();
    let mut reply = [0; 12];
    tcp.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 0], "{reply:?}");
    tcp
}
