//! A mesh in the hosts of a lab whose nodes each receive casts in an inbox.

use crate::program;
use anyhow::{Context as _, bail, ensure};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;

/// The port of all nodes.
const PORT: u16 = 7373;

/// The longest wait until a node serves.
const STARTS: Duration = Duration::from_secs(20);

/// The interval between two checks whether it serves.
const LOOK: Duration = Duration::from_millis(20);

/// How many hosts join or start at a time.
const AT_ONCE: usize = 8;

/// A mesh; dropping it kills its nodes.
pub struct CastMesh<'a> {
    lab: &'a Lab,
    dir: PathBuf,
    program: PathBuf,
    founder: String,
    /// A host, and the words before the command of its node.
    wrapped: Option<(String, Vec<String>)>,
    nodes: BTreeMap<String, Child>,
}

/// Settings that differ between hosts or measurements.
#[derive(Default)]
pub struct MeshOptions<'a> {
    /// Hosts that forward what they do not keep.
    pub relays: &'a [String],
    /// Further settings of all hosts, as TOML.
    pub more: &'a str,
    /// A host, and the words before the command of its node, such as those of a tracer.
    pub wrapped: Option<(&'a str, Vec<String>)>,
}

impl<'a> CastMesh<'a> {
    /// Founds the mesh at `founder` and lets all `hosts` join; only the founder's node runs yet.
    ///
    /// # Errors
    /// When a command fails.
    pub fn create(
        lab: &'a Lab,
        dir: &Path,
        founder: &str,
        hosts: &[String],
        kinds: &MeshOptions<'_>,
    ) -> anyhow::Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(dir)?;
        let (program, founder) = (program::product()?, founder.to_owned());
        let wrapped = kinds.wrapped.as_ref();
        let wrapped = wrapped.map(|(host, words)| ((*host).to_owned(), words.clone()));
        let (dir, nodes) = (dir.to_owned(), BTreeMap::new());
        let mut mesh = Self { lab, dir, program, founder, wrapped, nodes };
        let first = mesh.founder.clone();
        for host in hosts.iter().chain([&first]) {
            mesh.write_settings(host, kinds)?;
        }
        let address = format!("{first}:{PORT}");
        mesh.thalweg(&first, &["mesh", "init", "--name", &first, "--address", &address])?;
        mesh.start(&[first])?;
        mesh.admit(hosts)?;
        Ok(mesh)
    }

    /// Creates the directories and settings of a host.
    fn write_settings(&self, host: &str, kinds: &MeshOptions<'_>) -> anyhow::Result<()> {
        let inbox = self.inbox(host);
        fs::create_dir_all(&inbox)?;
        let relay =
            if kinds.relays.iter().any(|name| name == host) { "relay = true\n" } else { "" };
        let settings = format!(
            "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n[measure]\nenabled = false\n\
             [oracle.measure]\nenabled = false\n[cast]\nkeep_free = \"0 B\"\n{relay}\
             inbox = [{{ path = \"{}\", from = [\"*\"] }}]\n{}",
            inbox.display(),
            kinds.more,
        );
        fs::write(self.file(host, "toml"), settings)?;
        Ok(())
    }

    fn admit(&self, hosts: &[String]) -> anyhow::Result<()> {
        let mut tokens = Vec::new();
        for host in hosts {
            let args = ["mesh", "token", "--role", "relay", "--name", host];
            tokens.push(self.thalweg(&self.founder, &args)?);
        }
        let all: Vec<(&String, String)> = hosts.iter().zip(tokens).collect();
        in_parts(&all, |(host, token)| {
            let address = format!("{host}:{PORT}");
            self.thalweg(host, &["mesh", "join", "--address", &address, token]).map(drop)
        })
    }

    fn file(&self, host: &str, ending: &str) -> PathBuf {
        self.dir.join(format!("{host}.{ending}"))
    }

    /// The directory in which casts to a host arrive.
    pub fn inbox(&self, host: &str) -> PathBuf {
        self.dir.join("in").join(host)
    }

    /// A host's state directory.
    pub fn state(&self, host: &str) -> PathBuf {
        self.dir.join("state").join(host)
    }

    /// The command `thalweg` on a host.
    fn command(&self, host: &str) -> Command {
        let mut command = self.lab.command(host, &self.program);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command on a host, with the host's state, and returns its output.
    fn thalweg(&self, host: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(host);
        command.args(args).env("THALWEG_STATE", self.state(host));
        let output = command.output()?;
        if !output.status.success() {
            bail!(
                "{host}: thalweg {}: {}",
                args[..2].join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts the nodes of these hosts, for the first time or again, and waits until they serve.
    ///
    /// # Errors
    /// When a node does not serve in time.
    pub fn start(&mut self, hosts: &[String]) -> anyhow::Result<()> {
        let mut begun = Vec::new();
        for host in hosts {
            begun.push((host.clone(), self.spawn(host)?));
        }
        for (host, child) in begun {
            // A dropped `Child` would keep running and nobody would kill it.
            self.nodes.insert(host.clone(), child);
            self.wait(&host)?;
        }
        Ok(())
    }

    fn spawn(&self, host: &str) -> anyhow::Result<Child> {
        let (out, log) = (self.file(host, "out"), self.file(host, "log"));
        let mut command = self.lab.command(host, "sh");
        // The shell writes the process id as /proc in the lab has it.
        command.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.file(host, "pid"));
        if let Some((_, words)) = self.wrapped.as_ref().filter(|(wrapped, _)| wrapped == host) {
            command.args(words);
        }
        command.arg(&self.program).arg("node").arg("--state").arg(self.state(host));
        command.arg("--config").arg(self.file(host, "toml"));
        command.args(["--listen", &format!("0.0.0.0:{PORT}")]).stdin(Stdio::null());
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdout(File::create(out)?).stderr(log);
        command.spawn().with_context(|| format!("cannot start the node of {host}"))
    }

    fn wait(&mut self, host: &str) -> anyhow::Result<()> {
        let (since, out) = (Instant::now(), self.file(host, "out"));
        while !fs::read_to_string(&out)?.contains("ready") {
            let child = self.nodes.get_mut(host).context("the node was not started")?;
            let has_ended = child.try_wait()?.is_some();
            ensure!(
                !has_ended && since.elapsed() < STARTS,
                "the node did not start: {}",
                self.log(host)
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The last five lines of a node's log.
    pub fn log(&self, host: &str) -> String {
        let text = fs::read_to_string(self.file(host, "log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.len().saturating_sub(5);
        format!("{host}: {}", lines[last..].join(" | "))
    }

    /// Kills a node (SIGKILL).
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, host: &str) -> anyhow::Result<()> {
        let mut child =
            self.nodes.remove(host).with_context(|| format!("there is no node on {host}"))?;
        ensure!(child.try_wait()?.is_none(), "a node ended unexpectedly: {}", self.log(host));
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// The nodes that ended by themselves.
    pub fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for (host, child) in &mut self.nodes {
            if matches!(child.try_wait(), Ok(Some(_))) {
                ended.push(host.clone());
            }
        }
        ended
    }

    /// The TCP counters of a host, from /proc/net/netstat.
    pub fn netstat(&self, host: &str) -> Option<String> {
        let pid = fs::read_to_string(self.file(host, "pid")).ok()?;
        fs::read_to_string(format!("/proc/{}/net/netstat", pid.trim())).ok()
    }

    /// A value of /proc/PID/status of a host's node, kB; `VmHWM` is its peak memory.
    pub fn memory_kb(&self, host: &str, line: &str) -> Option<f64> {
        let pid = fs::read_to_string(self.file(host, "pid")).ok()?;
        let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).ok()?;
        let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))?;
        found.trim().strip_suffix("kB")?.trim().parse().ok()
    }
}

impl Drop for CastMesh<'_> {
    fn drop(&mut self) {
        for child in self.nodes.values_mut() {
            _ = child.kill();
        }
        for child in self.nodes.values_mut() {
            _ = child.wait();
        }
    }
}

/// Runs `work` for some items at a time; stops after the first part with an error.
fn in_parts<T: Sync>(
    all: &[T],
    work: impl Fn(&T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    for part in all.chunks(AT_ONCE) {
        let work = &work;
        thread::scope(|scope| {
            let begun: Vec<_> = part.iter().map(|one| scope.spawn(move || work(one))).collect();
            let ended = begun.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("panic")));
            ended.collect::<anyhow::Result<Vec<()>>>()
        })?;
    }
    Ok(())
}
