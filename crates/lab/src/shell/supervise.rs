//! The lab's process tree: a supervisor outside, and inside a new PID namespace the lab's main process as PID 1, which
//! holds every namespace and device.
//!
//! When the supervisor dies for any reason, the kernel kills PID 1 (parent-death signal) and with it all processes of
//! its PID namespace. No process outside holds a namespace or a device, so all of them are released.

use super::{dns, engine, host, names, server, sys, tun};
use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Resource, WaitOptions, getrlimit, setrlimit, waitpid},
    thread::UnshareFlags,
};
use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicI32, Ordering},
    time::Instant,
};
use thalweg_console::note;
use thalweg_lab::{
    discover,
    stats::Lateness,
    topology::{Resolved, Topology},
};

/// A run is suspect if the 99th percentile of lateness exceeds this: 5 % of a round-trip time of 40 ms.
const SUSPECT_LATENESS_US: u64 = 2_000;

/// A lab to start.
pub struct LabSetup {
    /// The topology as TOML.
    pub topology: String,
    /// The resolved topology.
    pub resolved: Resolved,
    /// The lab's control socket.
    pub socket: PathBuf,
    /// When the program started.
    pub began: Instant,
    /// The lock on lab names, held until the socket is bound.
    pub lock: OwnedFd,
}

impl LabSetup {
    /// Parses and resolves a topology. The lab's name determines its socket.
    ///
    /// # Errors
    /// If the topology or the name is invalid, or a lab of that name is already running.
    pub fn new(text: &str, name: Option<&str>) -> Result<Self> {
        let began = Instant::now();
        let resolved = Topology::from_toml(text)?.resolve()?;
        let fit = |name: &str| !name.is_empty() && !name.contains('/');
        let named = name.unwrap_or("lab");
        anyhow::ensure!(fit(named), "`{named}` is not a valid name for a lab");
        let socket = discover::socket_path(name)?;
        let lock = discover::lock()?;
        anyhow::ensure!(
            !discover::answers_or_removed(&socket),
            "a lab named `{named}` is running; end it with `thalweg-bench lab down {named}`"
        );
        Ok(Self { topology: text.to_owned(), resolved, socket, began, lock })
    }
}

/// A lab that is set up, as seen by its PID 1.
pub struct RunningLab {
    /// The lab's control socket.
    pub socket: PathBuf,
    /// The set-up time, seconds.
    pub setup_s: f64,
    engine: engine::EngineHandle,
}

impl RunningLab {
    /// The lateness of packets; `None` if the emulator has stopped.
    pub fn lateness(&self) -> Option<Lateness> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.engine.send(engine::EngineOrder::Report(false, reply)).ok()?;
        answer.recv().ok().map(|report| report.lateness)
    }

    /// Warns on stderr if the emulator could not keep up.
    pub fn warn_if_late(&self) {
        if let Some(l) = self.lateness()
            && l.p99_us > SUSPECT_LATENESS_US
        {
            note!(
                "thalweg-lab: warning: packets were {:.1} ms late at the 99th percentile: this \
                 machine was too busy for this network; its timing is not reliable",
                l.p99_us as f64 / 1e3
            );
        }
    }
}

/// Starts the lab, runs `inside` as its PID 1, and waits until all its processes have ended.
///
/// With `interrupt`, Ctrl-C in the terminal ends the lab; otherwise it is left to the program in the foreground.
/// `failed` gets the error if the set-up or `inside` fails.
///
/// # Errors
/// If the machine does not allow a lab; the message says what to do.
pub fn supervise(
    setup: LabSetup,
    interrupt: bool,
    inside: impl FnOnce(&RunningLab) -> Result<u8>,
    failed: impl FnOnce(&anyhow::Error),
) -> Result<ExitCode> {
    tun::open_device()?;
    enter_new_namespaces()?;
    let (alive, held) = pipe_with(PipeFlags::CLOEXEC)?;
    let socket = setup.socket.clone();
    match sys::fork()? {
        sys::Fork::Child => {
            drop(held);
            let code = die_with_supervisor(&alive).and_then(|()| {
                let standing = build(setup)?;
                inside(&standing)
            });
            let code = code.unwrap_or_else(|e| {
                failed(&e);
                1
            });
            std::process::exit(code.into())
        }
        sys::Fork::Parent(child) => {
            drop((alive, setup));
            sys::kill_child_on_term(child, interrupt);
            let code = wait_for(child);
            // A new lab of the same name may have bound the socket in the meantime.
            if let Ok(_lock) = discover::lock() {
                discover::answers_or_removed(&socket);
            }
            code
        }
    }
}

fn wait_for(child: Pid) -> Result<ExitCode> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
            Ok(None) => {}
            Ok(Some((_, status))) => return Ok(ExitCode::from(super::exec::exit_code(status))),
        }
    }
}

/// Makes this process die with the supervisor, even if the supervisor died before the parent-death signal was set.
fn die_with_supervisor(alive: &OwnedFd) -> Result<()> {
    sys::die_with_parent(libc::SIGKILL)?;
    let mut fds = [PollFd::new(alive, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    anyhow::ensure!(!fds[0].revents().contains(PollFlags::HUP), "the lab's supervisor died");
    Ok(())
}

/// Enters a new mount namespace and creates a new PID namespace for child processes; an ordinary user needs a new user
/// namespace too.
fn enter_new_namespaces() -> Result<()> {
    let wanted = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    if sys::unshare(wanted).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    sys::unshare(UnshareFlags::NEWUSER | wanted).context(
        "this user may not create namespaces\n\
         hint: as root `sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu); \
         in a container, run it with --privileged or as root with CAP_SYS_ADMIN",
    )?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", uid.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", gid.as_raw()))?;
    Ok(())
}

/// Sets up names, hosts, emulator and socket.
fn build(setup: LabSetup) -> Result<RunningLab> {
    let children = sys::Signals::block(&[libc::SIGCHLD])?;
    raise_descriptor_limit();
    let names = names::list_names(&setup.resolved);
    let scratch = setup.socket.parent().unwrap_or(Path::new("/tmp"));
    names::mount_lab(scratch, &names)?;
    let (mut hosts, mut devices, mut resolvers) = (Vec::new(), Vec::new(), Vec::new());
    for plan in &setup.resolved.hosts {
        let host = host::create(&setup.resolved, plan)?;
        devices.extend(plan.interfaces.iter().copied().zip(host.devices));
        resolvers.extend(host.resolver);
        hosts.push((plan.name.clone(), host.namespaces));
    }
    devices.sort_by_key(|(interface, _)| *interface);
    let devices = devices.into_iter().map(|(_, device)| device).collect();
    dns::start(resolvers, names.into_iter().map(|(n, a)| (n.to_lowercase(), a)).collect())?;
    let engine = engine::start(&setup.resolved, devices)?;
    let setup_s = setup.began.elapsed().as_secs_f64();
    let user = File::open("/proc/self/ns/user")?.into();
    let pid = File::open("/proc/self/ns/pid")?.into();
    let socket = setup.socket.clone();
    let lab = server::LabServer::new(&setup, setup_s, [user, pid], hosts, engine.clone());
    server::start(lab, setup.lock)?;
    std::thread::Builder::new().name("reaper".into()).spawn(move || reap(&children))?;
    Ok(RunningLab { socket, setup_s, engine })
}

/// The process id of the program of `lab run`, which [`run_program`] waits for; [`STARTING`] while it is not known yet,
/// 0 if there is no program.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
const STARTING: i32 = -1;

/// Reaps orphans, as PID 1 must.
fn reap(children: &sys::Signals) {
    while children.next().is_ok() {
        while let Some(dead) = sys::dead_child() {
            let program = PROGRAM.load(Ordering::SeqCst);
            if program == STARTING || program == dead.as_raw_nonzero().get() {
                break;
            }
            let _reaped = waitpid(Some(dead), WaitOptions::NOHANG);
        }
    }
}

/// Raises the limit of open descriptors to the maximum: each host needs five, and there may be 300 hosts.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _kept = setrlimit(Resource::Nofile, limit);
}

/// Runs the program of `lab run`. Returns its exit code, or 128 + n if signal n ended it.
pub fn run_program(command: &mut Command) -> Result<u8> {
    let name = command.get_program().to_owned();
    PROGRAM.store(STARTING, Ordering::SeqCst);
    let mut child = sys::heed_interrupt(command)
        .spawn()
        .with_context(|| format!("cannot run `{}`", name.display()))?;
    PROGRAM.store(child.id().cast_signed(), Ordering::SeqCst);
    let status = child.wait()?;
    use std::os::unix::process::ExitStatusExt;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
}
