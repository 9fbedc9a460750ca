//! A second network namespace, joined to this one by veth pairs.
//!
//! Packets between the namespaces are neither delayed nor limited, but pass two devices, as between hosts. On loopback
//! both ends share one device, whose packets are up to 64 KiB long.

use anyhow::{Context as _, ensure};
use std::{
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The address of this end of the first pair.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// The address of the other end.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// The longest wait for the namespace.
const COMES: Duration = Duration::from_secs(10);

/// The interval between two checks whether it exists.
const LOOK: Duration = Duration::from_millis(5);

/// The namespace of an idle process; dropping it removes the namespace and its pairs.
pub struct FarNamespace(Child);

impl FarNamespace {
    /// Creates a namespace and joins it by one pair to the namespace of this process, which should be a private one
    /// (`unshare --net`). This end is at [`NEAR`], the other at [`FAR`]. Loopback is brought up in both.
    ///
    /// # Errors
    /// Without the privileges, or without `ip`, `unshare` and `nsenter`.
    pub fn join() -> anyhow::Result<Self> {
        Self::join_by(1)
    }

    /// As [`Self::join`], by `pairs` pairs: `near0` at 10.9.0.1 and `far0` at 10.9.0.2, `near1` at 10.9.1.1 and so on.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_by(pairs: u8) -> anyhow::Result<Self> {
        let mut idle = Command::new("unshare");
        idle.args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).stdout(Stdio::null());
        let far = Self(idle.spawn().context("cannot run `unshare`")?);
        far.wait()?;
        ip(&["link", "set", "lo", "up"])?;
        far.ip(&["link", "set", "lo", "up"])?;
        (0..pairs).try_for_each(|pair| far.pair(pair))?;
        Ok(far)
    }

    fn pair(&self, pair: u8) -> anyhow::Result<()> {
        let ends = ["near", "far"].map(|end| format!("{end}{pair}"));
        let at = [NEAR, FAR].map(|end| format!("{}/24", pair_address(end, pair)));
        let [near, far] = ends.each_ref().map(String::as_str);
        let id = self.id().to_string();
        ip(&["link", "add", near, "type", "veth", "peer", "name", far, "netns", &id])?;
        ip(&["addr", "add", &at[0], "dev", near])?;
        ip(&["link", "set", near, "up"])?;
        self.ip(&["addr", "add", &at[1], "dev", far])?;
        self.ip(&["link", "set", far, "up"])
    }

    /// The id of the process whose namespace it is.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    fn wait(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        let its = format!("/proc/{}/ns/net", self.id());
        // Until `unshare` has created the namespace, the process is in this one.
        while fs::read_link(&its).ok() == fs::read_link("/proc/self/ns/net").ok() {
            ensure!(since.elapsed() < COMES, "cannot create a network namespace; run as root");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// A command that runs in the namespace; its process is `program` itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.id().to_string(), "--net"]).arg(program);
        inside
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, args: &[&str]) -> anyhow::Result<()> {
        run_checked(self.command("ip").args(args))
    }
}

impl Drop for FarNamespace {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The address of an end in another pair.
pub fn pair_address(end: Ipv4Addr, pair: u8) -> Ipv4Addr {
    let [a, b, _, d] = end.octets();
    Ipv4Addr::new(a, b, pair, d)
}

/// Runs `ip` in this namespace.
///
/// # Errors
/// When it fails.
pub fn ip(args: &[&str]) -> anyhow::Result<()> {
    run_checked(Command::new("ip").args(args))
}

fn run_checked(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
