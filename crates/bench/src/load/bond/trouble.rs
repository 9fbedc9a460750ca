//! Failures of an interface and their repair.

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use thalweg_lab::{client::Lab, topology::LinkChange};

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailureKind {
    /// The interface goes down, which the kernel reports
    Down,
    /// The link drops all packets in both directions, without notice
    Blackhole,
    /// The link drops all packets to the client
    Loss,
    /// The interface loses its address, and gets it again
    Address,
}

/// An interface of a host of the lab, whose link to the network is called `HOST.wanK`.
pub struct FailingInterface<'a> {
    lab: &'a Lab,
    host: String,
    interface: String,
    /// Whether its MPTCP endpoint is removed and added along with its address.
    is_managed: bool,
    /// Commands that restore the address and the routes that the kernel forgets.
    again: String,
}

/// Prints the address and the routes of an interface as commands that restore them.
const ROUTES: &str = "
    for a in $(ip -4 -o address show dev $0 | awk '{ print $4 }'); do
        echo ip address add $a dev $0 noprefixroute
    done
    ip -4 route show table all dev $0 | grep -v 'table local' | while read -r r; do
        echo ip route replace $r dev $0
    done";

/// Removes the MPTCP endpoint of an interface.
const FORGET: &str = "
    for id in $(ip mptcp endpoint show | awk -v d=$0 '{ for (i = 1; i <= NF; i++) if ($i == \"id\") n = $(i + 1) }
        index($0, \" dev \" d) { print n }'); do
        ip mptcp endpoint delete id $id
    done";

/// Adds the MPTCP endpoint of an interface.
const ENDPOINT: &str = "
    for a in $(ip -4 -o address show dev $0 | awk '{ print $4 }'); do
        ip mptcp endpoint add ${a%/*} dev $0 subflow
    done";

impl<'a> FailingInterface<'a> {
    /// Records the interface's present address and routes.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn new(
        lab: &'a Lab,
        host: &str,
        interface: &str,
        is_managed: bool,
    ) -> anyhow::Result<Self> {
        let (host, interface) = (host.to_owned(), interface.to_owned());
        let mut victim = Self { lab, host, interface, is_managed, again: String::new() };
        victim.again = victim.run_shell(ROUTES)?;
        ensure!(victim.again.contains("route replace"), "{} has no routes", victim.interface);
        Ok(victim)
    }

    fn run_shell(&self, script: &str) -> anyhow::Result<String> {
        let mut command = self.lab.command(&self.host, "sh");
        let output = command.args(["-ec", script, &self.interface]).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", self.host, error.trim());
        String::from_utf8(output.stdout).context("the output of `ip` is not valid UTF-8")
    }

    /// Runs `ip mptcp endpoint add` or `delete`, as a network manager does with each address.
    fn endpoint(&self, script: &str) -> anyhow::Result<()> {
        if self.is_managed { self.run_shell(script).map(drop) } else { Ok(()) }
    }

    fn link(&self, half: &str) -> String {
        format!("{}.{}{half}", self.host, self.interface)
    }

    /// Causes a failure.
    ///
    /// # Errors
    /// When the lab or `ip` fails.
    pub fn cause(&self, kind: FailureKind) -> anyhow::Result<()> {
        match kind {
            FailureKind::Down => {
                self.run_shell("ip link set $0 down")?;
                self.endpoint(FORGET)
            }
            FailureKind::Address => {
                self.run_shell("ip -4 address flush dev $0")?;
                self.endpoint(FORGET)
            }
            FailureKind::Blackhole => Ok(self.lab.set(&self.link(""), &LinkChange::up(false))?),
            FailureKind::Loss => {
                let lost = LinkChange::parse(&["loss=100%"])?;
                Ok(self.lab.set(&self.link(".rev"), &lost)?)
            }
        }
    }

    /// Repairs a failure.
    ///
    /// # Errors
    /// When the lab or `ip` fails.
    pub fn repair(&self, kind: FailureKind) -> anyhow::Result<()> {
        let routes = || self.again.lines().filter(|line| line.starts_with("ip route"));
        match kind {
            FailureKind::Down => {
                let routes: Vec<&str> = routes().collect();
                self.run_shell(&format!("ip link set $0 up\n{}", routes.join("\n")))?;
                self.endpoint(ENDPOINT)
            }
            FailureKind::Address => {
                self.run_shell(&self.again)?;
                self.endpoint(ENDPOINT)
            }
            FailureKind::Blackhole => Ok(self.lab.set(&self.link(""), &LinkChange::up(true))?),
            FailureKind::Loss => {
                let whole = LinkChange::parse(&["loss=none"])?;
                Ok(self.lab.set(&self.link(".rev"), &whole)?)
            }
        }
    }
}
