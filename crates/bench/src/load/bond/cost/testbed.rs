//! The two network namespaces of the measurement and the programs in them.

use super::{
    super::super::veth::{self, FAR, FarNamespace, NEAR},
    CostTransport,
};
use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    ffi::OsStr,
    io::{self, BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The address of the far end, reached over either link.
const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

/// Ports; nothing else runs in the namespaces.
const SERVER: u16 = 9000;
const NEAR_PROGRAM: u16 = 7000;
const FAR_PROGRAM: u16 = 7373;

/// The interval between two attempts to connect.
const LOOK: Duration = Duration::from_millis(20);

/// The testbed of one measurement; dropping it ends all of it.
pub struct BondTestbed {
    server: ProgramGuard,
    programs: Option<[ProgramGuard; 2]>,
    _far: FarNamespace,
}

/// A child process, killed on drop.
struct ProgramGuard(Child);

impl BondTestbed {
    /// Creates two namespaces and starts the programs, which are ready or about to be.
    ///
    /// # Errors
    /// When a program does not start.
    pub fn new(by: CostTransport, further: &[String]) -> anyhow::Result<Self> {
        let far = FarNamespace::join_by(2)?;
        far.ip(&["addr", "add", &format!("{THERE}/32"), "dev", "lo"])?;
        for (pair, metric) in [(0, "1"), (1, "2")] {
            let (to, via) = (THERE.to_string(), veth::pair_address(FAR, pair).to_string());
            let (dev, from) = (format!("near{pair}"), veth::pair_address(NEAR, pair).to_string());
            let way = ["route", "add", &to, "via", &via, "dev", &dev, "src", &from];
            veth::ip(&[&way[..], &["metric", metric]].concat())?;
        }
        let own = program::own()?;
        let serve = ["load", "server", "--listen", &format!("0.0.0.0:{SERVER}")];
        let server = ProgramGuard::start_ready(far.command(&own).args(serve))?;
        let programs = programs(by, further, &far, own.as_os_str())?;
        Ok(Self { server, programs, _far: far })
    }

    /// The process id of the near end.
    pub fn near(&self) -> u32 {
        self.programs.as_ref().map_or_else(std::process::id, |[near, _]| near.id())
    }

    /// The process id of the far end.
    pub fn far(&self) -> u32 {
        self.programs.as_ref().map_or_else(|| self.server.id(), |[_, far]| far.id())
    }

    /// The ids of all processes, including this one and the server.
    pub fn all(&self) -> Vec<u32> {
        let programs = self.programs.iter().flatten().map(ProgramGuard::id);
        programs.chain([std::process::id(), self.server.id()]).collect()
    }

    /// Connects to the near program as soon as it listens.
    ///
    /// # Errors
    /// When it does not listen within `patience`.
    pub fn connect(&self, patience: Duration) -> anyhow::Result<TcpStream> {
        let at = match self.programs {
            Some(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, NEAR_PROGRAM)),
            None => SocketAddr::from((THERE, SERVER)),
        };
        let since = Instant::now();
        loop {
            match TcpStream::connect(at) {
                Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
                    ensure!(since.elapsed() < patience, "no program listens on {at}");
                    thread::sleep(LOOK);
                }
                done => return done.with_context(|| format!("cannot connect to {at}")),
            }
        }
    }
}

/// Starts the programs of both ends.
fn programs(
    by: CostTransport,
    further: &[String],
    far: &FarNamespace,
    own: &OsStr,
) -> anyhow::Result<Option<[ProgramGuard; 2]>> {
    let server = format!("127.0.0.1:{SERVER}");
    let (here, there) = (format!("127.0.0.1:{NEAR_PROGRAM}"), format!("{THERE}:{FAR_PROGRAM}"));
    let pipe = ["load", "bond", "pipe", "--listen"];
    let near = || Command::new(own);
    Ok(Some(match by {
        CostTransport::Direct => return Ok(None),
        CostTransport::Tcp => {
            let far = ProgramGuard::start_ready(
                far.command(own).args(pipe).args([&*there, "--to", &server]),
            )?;
            [ProgramGuard::start_ready(near().args(pipe).args([&*here, "--to", &there]))?, far]
        }
        CostTransport::Bond => {
            let serve = ["load", "bond", "serve", "--lead", &server, "--bonds", &there];
            let far = ProgramGuard::start_ready(far.command(own).args(serve).args(further))?;
            let by = [&*here, "--to", &there, "--bond", &there];
            [ProgramGuard::start_ready(near().args(pipe).args(by).args(further))?, far]
        }
        CostTransport::Aggligator => {
            let (port, ports) = (SERVER.to_string(), format!("{SERVER}:{NEAR_PROGRAM}"));
            let listens = FAR_PROGRAM.to_string();
            let serve = ["server", "--no-monitor", "--tcp", &listens, "--port", &port];
            let far =
                ProgramGuard::start(far.command("agg-tunnel").args(serve).stdout(Stdio::null()))?;
            let to = [0, 1].map(|pair| format!("{}:{FAR_PROGRAM}", veth::pair_address(FAR, pair)));
            let mut near = Command::new("agg-tunnel");
            near.args(["client", "--no-monitor", "--port", &ports]);
            near.args(["--tcp", &to[0], "--tcp", &to[1]]).stdout(Stdio::null());
            [ProgramGuard::start(&mut near)?, far]
        }
    }))
}

impl ProgramGuard {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| format!("cannot start {command:?}"))?))
    }

    /// Starts one of our programs and waits until it says that it is ready.
    fn start_ready(command: &mut Command) -> anyhow::Result<Self> {
        let mut part = Self::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        let output = part.0.stdout.take().context("cannot read the program's output")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.contains("ready"), "{command:?} did not start");
        Ok(part)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
