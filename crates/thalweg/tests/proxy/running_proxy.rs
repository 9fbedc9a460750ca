//! A running `thalweg proxy`, and programs that use it.

use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

/// The proxy's process; killed when dropped.
pub struct RunningProxy {
    pub at: SocketAddr,
    child: Child,
    out: BufReader<ChildStdout>,
}

/// `thalweg` without the mesh, history and proxies of the user who runs the tests.
pub fn thalweg(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    without_proxies(&mut command);
    command.env("THALWEG_STATE", dir.join("no-mesh"));
    command.env("XDG_CACHE_HOME", dir.join("cache")).env("HOME", "/nonexistent/home");
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Removes the proxies of the user who runs the tests from the command's environment.
pub fn without_proxies(command: &mut Command) {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
}

impl RunningProxy {
    pub fn new(dir: &Path, args: &[&str]) -> Self {
        let mut command = thalweg(dir);
        command.args(["proxy", "--listen", "127.0.0.1:0", "--json"]).args(args);
        Self::spawn(command)
    }

    /// Starts the proxy by this command, which prints JSON.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{line}{said}")
        });
        let at = ready["listen"].as_str().unwrap().parse().unwrap();
        Self { at, child, out }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// The id of its process; in a lab, of the process that started it there.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the proxy in order. Returns its events, the summary last, and its standard error. The test's own servers
    /// continue meanwhile: tunnels end when both sides have ended them.
    pub async fn end(self) -> (Vec<Value>, String) {
        tokio::task::spawn_blocking(|| self.ended()).await.unwrap()
    }

    /// Signals the proxy to end, and once more while it drains. Returns its events and its exit code.
    pub fn interrupted_twice(mut self) -> (Vec<Value>, Option<i32>) {
        signal(&self.child, rustix::process::Signal::INT);
        let said = BufReader::new(self.child.stderr.take().unwrap());
        let drains = |line: &String| line.contains("draining");
        assert!(said.lines().map(Result::unwrap).any(|line| drains(&line)), "no word of draining");
        signal(&self.child, rustix::process::Signal::INT);
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (events, self.child.wait().unwrap().code())
    }

    /// As [`Self::end`], but blocks the thread.
    pub fn ended(mut self) -> (Vec<Value>, String) {
        signal(&self.child, rustix::process::Signal::TERM);
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), said)
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        // It may have ended in order.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether `program` is installed; prints that the test is skipped otherwise.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are in directories that an ordinary user's PATH may lack.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = dirs.map(|dir| dir.join(program)).any(|file| file.is_file());
    if !found {
        eprintln!("skipped: {program} is not installed (scripts/setup installs it)");
    }
    found
}

/// A program by its name, without proxies in its environment, in `dir`.
pub fn program(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(name);
    without_proxies(&mut command);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Runs a command to its end without blocking the server's thread; it must succeed.
pub async fn succeeds(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {:?}: {said}", output.status);
    output
}
