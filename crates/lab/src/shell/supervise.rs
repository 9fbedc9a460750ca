//! The lab's process tree: a supervisor outside, and inside a PID namespace of
//! its own the process that is pid 1, holds every namespace and device, and
//! takes all with it when it ends.
//!
//! Whatever kills the supervisor kills pid 1 (parent-death signal), and the
//! kernel ends a PID namespace whose pid 1 is gone. Nothing outside keeps a
//! namespace or a device, so nothing is left.

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

/// Packets later than this at the 99th percentile make a run suspect: 5 % of a 40 ms round trip.
const SUSPECT_LATENESS_US: u64 = 2_000;

/// What is to be started.
pub struct Order {
    /// The network, as text.
    pub topology: String,
    /// The same, expanded.
    pub resolved: Resolved,
    /// Where it is to be asked.
    pub socket: PathBuf,
    /// When the program began.
    pub began: Instant,
    /// Held until the socket is bound.
    pub lock: OwnedFd,
}

impl Order {
    /// Reads and expands a topology; the lab's name becomes its socket's.
    ///
    /// # Errors
    /// A fault of the topology, or a lab of that name that runs already.
    pub fn new(text: &str, name: Option<&str>) -> Result<Self> {
        let began = Instant::now();
        let resolved = Topology::from_toml(text)?.resolve()?;
        let fit = |name: &str| !name.is_empty() && !name.contains('/');
        let named = name.unwrap_or("lab");
        anyhow::ensure!(fit(named), "`{named}` cannot name a lab");
        let socket = discover::socket(name)?;
        let lock = discover::lock()?;
        anyhow::ensure!(
            !discover::answers_or_removed(&socket),
            "a lab named `{named}` is running; end it with `thalweg-bench lab down {named}`"
        );
        Ok(Self { topology: text.to_owned(), resolved, socket, began, lock })
    }
}

/// A lab that stands; seen from inside.
pub struct Standing {
    /// Where it is to be asked.
    pub socket: PathBuf,
    /// Seconds it took.
    pub setup_s: f64,
    engine: engine::Handle,
}

impl Standing {
    /// How late packets have been.
    pub fn lateness(&self) -> Option<Lateness> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.engine.send(engine::Order::Report(false, reply)).ok()?;
        answer.recv().ok().map(|report| report.lateness)
    }

    /// Warns on stderr if the emulator could not keep up.
    pub fn warn_if_late(&self) {
        if let Some(l) = self.lateness()
            && l.p99_us > SUSPECT_LATENESS_US
        {
            note!(
                "thalweg-lab: warning: packets were late by {:.1} ms at the 99th percentile: this \
                 machine was too busy for this network, do not trust its timing",
                l.p99_us as f64 / 1e3
            );
        }
    }
}

/// Starts the lab, runs `inside` as its pid 1, and waits until all of it is gone.
///
/// `interrupt`: whether the terminal's Ctrl-C ends the lab, or is left to the
/// program that runs in the foreground.
///
/// # Errors
/// What this machine does not allow; the message says what to do.
pub fn supervise(
    order: Order,
    interrupt: bool,
    inside: impl FnOnce(&Standing) -> Result<u8>,
    failed: impl FnOnce(&anyhow::Error),
) -> Result<ExitCode> {
    tun::open_device()?;
    leave_for_namespaces()?;
    let (alive, held) = pipe_with(PipeFlags::CLOEXEC)?;
    let socket = order.socket.clone();
    match sys::fork()? {
        sys::Fork::Child => {
            drop(held);
            let code = bound_to_parent(&alive).and_then(|()| {
                let standing = build(order)?;
                inside(&standing)
            });
            let code = code.unwrap_or_else(|e| {
                failed(&e);
                1
            });
            std::process::exit(code.into())
        }
        sys::Fork::Parent(child) => {
            drop((alive, order));
            sys::kill_child_on_term(child, interrupt);
            let code = wait_for(child);
            // A successor of the same name may have bound it meanwhile.
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

/// Dies with the supervisor, also if that died before the kernel was asked to see to it.
fn bound_to_parent(alive: &OwnedFd) -> Result<()> {
    sys::die_with_parent(libc::SIGKILL)?;
    let mut fds = [PollFd::new(alive, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    anyhow::ensure!(!fds[0].revents().contains(PollFlags::HUP), "the lab's supervisor died");
    Ok(())
}

/// New PID namespace for the children; as an ordinary user first a user namespace.
fn leave_for_namespaces() -> Result<()> {
    let wanted = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    if sys::unshare(wanted).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    sys::unshare(UnshareFlags::NEWUSER | wanted).context(
        "this user may not make namespaces\n\
         hint: as root `sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu); \
         in a container, run it with --privileged or as root with CAP_SYS_ADMIN",
    )?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", uid.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", gid.as_raw()))?;
    Ok(())
}

/// Makes names, hosts, emulator and socket.
fn build(order: Order) -> Result<Standing> {
    let children = sys::Signals::block(&[libc::SIGCHLD])?;
    raise_descriptor_limit();
    let names = names::all(&order.resolved);
    let scratch = order.socket.parent().unwrap_or(Path::new("/tmp"));
    names::mount_lab(scratch, &names)?;
    let (mut hosts, mut devices, mut resolvers) = (Vec::new(), Vec::new(), Vec::new());
    for plan in &order.resolved.hosts {
        let host = host::create(&order.resolved, plan)?;
        devices.extend(plan.interfaces.iter().copied().zip(host.devices));
        resolvers.extend(host.resolver);
        hosts.push((plan.name.clone(), host.namespaces));
    }
    devices.sort_by_key(|(interface, _)| *interface);
    let devices = devices.into_iter().map(|(_, device)| device).collect();
    dns::start(resolvers, names.into_iter().map(|(n, a)| (n.to_lowercase(), a)).collect())?;
    let engine = engine::start(&order.resolved, devices)?;
    let setup_s = order.began.elapsed().as_secs_f64();
    let user = File::open("/proc/self/ns/user")?.into();
    let pid = File::open("/proc/self/ns/pid")?.into();
    let socket = order.socket.clone();
    let lab = server::Lab::new(&order, setup_s, [user, pid], hosts, engine.clone());
    server::start(lab, order.lock)?;
    std::thread::Builder::new().name("reaper".into()).spawn(move || reap(&children))?;
    Ok(Standing { socket, setup_s, engine })
}

/// The program of `lab run`, whose end is waited for elsewhere: its process id,
/// [`STARTING`] while that is not known yet, 0 if there is none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
const STARTING: i32 = -1;

/// As pid 1, takes leave of orphans.
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

/// 300 hosts need five descriptors each.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _kept = setrlimit(Resource::Nofile, limit);
}

/// Runs the program of `lab run` and gives its exit code.
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
