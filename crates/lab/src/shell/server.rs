//! Serves the lab's clients over its socket: one request per connection.

use super::{
    engine::{EngineHandle, EngineOrder, EngineReport},
    pcap, supervise,
};
use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use std::{
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::{
    pressure::Pressure,
    protocol::{self, Description, Reply, Request},
    stats::Stats,
    topology::Resolved,
};

/// The most simultaneous connections, each with a thread. Further clients are asked to try again.
const MAX_CLIENTS: usize = 256;

/// How long a client that has connected may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The lab as its clients see it.
pub struct LabServer {
    description: Description,
    resolved: Resolved,
    socket: std::path::PathBuf,
    began: Instant,
    outer: [OwnedFd; 2],
    hosts: Vec<(String, [OwnedFd; 3])>,
    engine: EngineHandle,
    pressure: Mutex<Pressure>,
    clients: AtomicUsize,
}

impl LabServer {
    /// Creates the server's view of a lab that is set up. `outer` are the lab's user and PID namespaces, `hosts` the
    /// hosts' mount, network and UTS namespaces.
    pub fn new(
        setup: &supervise::LabSetup,
        setup_s: f64,
        outer: [OwnedFd; 2],
        hosts: Vec<(String, [OwnedFd; 3])>,
        engine: EngineHandle,
    ) -> Self {
        let description = describe(setup, setup_s);
        Self {
            description,
            resolved: setup.resolved.clone(),
            socket: setup.socket.clone(),
            began: setup.began,
            outer,
            hosts,
            engine,
            pressure: Mutex::new(Pressure::start()),
            clients: AtomicUsize::new(0),
        }
    }

    /// Carries out a request. Returns the reply and the descriptors to send with it.
    fn answer(
        &self,
        request: Request,
        stream: &UnixStream,
        fds: Vec<OwnedFd>,
    ) -> Result<(Reply, Vec<BorrowedFd<'_>>)> {
        let reply = match request {
            Request::Describe => Reply::Description(self.description.clone()),
            Request::Enter(host) => return Ok((Reply::Namespaces, self.namespaces(&host)?)),
            Request::Set { link, change } => {
                let links = self.resolved.link_indices(&link)?;
                let (done, changed) = sync_channel(1);
                self.engine.send(EngineOrder::Set(links, change, done))?;
                changed.recv().context("the emulator has stopped")?;
                Reply::Done
            }
            Request::Stats { series } => Reply::Stats(Box::new(self.stats(series)?)),
            Request::ResetStats => {
                self.engine.send(EngineOrder::Reset)?;
                *self.pressure.lock() = Pressure::start();
                Reply::Done
            }
            Request::Pcap(link) => self.capture(&link, stream, fds)?,
            Request::Stop => Reply::Done,
        };
        Ok((reply, Vec::new()))
    }

    /// The namespaces of a host: user, PID, mount, network, UTS.
    fn namespaces(&self, name: &str) -> Result<Vec<BorrowedFd<'_>>> {
        let (_, namespaces) =
            self.hosts.iter().find(|(host, _)| host == name).ok_or_else(|| {
                anyhow!("there is no host `{name}`; available: {}", self.host_names())
            })?;
        Ok(self.outer.iter().chain(namespaces).map(AsFd::as_fd).collect())
    }

    fn host_names(&self) -> String {
        let names: Vec<_> = self.hosts.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    fn report(&self, series: bool) -> Result<EngineReport> {
        let (reply, answer) = sync_channel(1);
        self.engine.send(EngineOrder::Report(series, reply))?;
        answer.recv().context("the emulator has stopped")
    }

    fn stats(&self, series: bool) -> Result<Stats> {
        let report = self.report(series)?;
        let pressure = self.pressure.lock().percent();
        Ok(Stats {
            elapsed_s: self.began.elapsed().as_secs_f64(),
            setup_s: self.description.setup_s,
            hosts: self.hosts.len(),
            realtime: report.realtime,
            emulator_cpu_s: report.cpu_s,
            cpu_pressure_percent: pressure,
            lateness: report.lateness,
            no_route: report.no_route,
            refused: report.refused,
            capture_missed: report.capture_missed,
            links: report.links,
        })
    }

    /// Confirms that the capture is running, then writes packets until the client disconnects.
    fn capture(&self, link: &str, stream: &UnixStream, fds: Vec<OwnedFd>) -> Result<Reply> {
        let links = self.resolved.link_indices(link)?;
        let file =
            fds.into_iter().next().context("the request has no file to write the capture to")?;
        let (sink, records) = sync_channel(pcap::BACKLOG);
        for link in links {
            self.engine.send(EngineOrder::Tap(link, sink.clone()))?;
        }
        drop(sink);
        protocol::send(stream, &Reply::Done, &[])?;
        self.write_capture(file, records, stream.try_clone()?)?;
        Ok(Reply::Done)
    }

    fn write_capture(
        &self,
        file: OwnedFd,
        records: Receiver<pcap::PcapRecord>,
        client: UnixStream,
    ) -> Result<()> {
        let (stop, stopped) = sync_channel::<()>(0);
        thread::spawn(move || {
            let _hung_up = protocol::receive::<Request>(&client, protocol::MAX_REQUEST);
            drop(stop);
        });
        pcap::write(File::from(file), &records, &stopped).context("the capture is incomplete")?;
        Ok(())
    }
}

fn describe(setup: &supervise::LabSetup, setup_s: f64) -> Description {
    let network = &setup.resolved;
    let addresses = |host: &thalweg_lab::topology::HostPlan| {
        let plans = host.interfaces.iter().map(|i| &network.interfaces[*i]);
        plans.flat_map(|p| [p.v4.into(), p.v6.into()]).collect()
    };
    Description {
        topology: setup.topology.clone(),
        setup_s,
        hosts: network.hosts.iter().map(|h| (h.name.clone(), addresses(h))).collect(),
        links: network.links.iter().map(|l| l.name.clone()).collect(),
    }
}

/// Starts serving, with one thread per connection, and releases `lock` when the socket is bound.
pub fn start(lab: LabServer, lock: OwnedFd) -> Result<()> {
    let listener = UnixListener::bind(&lab.socket)
        .with_context(|| format!("cannot listen on {}", lab.socket.display()))?;
    // Since the fork the supervisor may still have this descriptor open, so closing ours might not release the lock.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock)?;
    let lab = Arc::new(lab);
    thread::Builder::new().name("clients".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let others = lab.clients.fetch_add(1, Ordering::SeqCst);
            if others >= MAX_CLIENTS {
                lab.clients.fetch_sub(1, Ordering::SeqCst);
                let busy = format!("the lab is busy with {others} clients; try again");
                let _gone = protocol::send(&stream, &Reply::Error(busy), &[]);
                continue;
            }
            let lab = Arc::clone(&lab);
            thread::spawn(move || serve(&lab, &stream));
        }
    })?;
    Ok(())
}

fn serve(lab: &LabServer, stream: &UnixStream) {
    if let Err(e) = converse(lab, stream) {
        // The client may have disconnected; then it needs no answer.
        let _gone = protocol::send(stream, &Reply::Error(format!("{e:#}")), &[]);
    }
    lab.clients.fetch_sub(1, Ordering::SeqCst);
}

fn converse(lab: &LabServer, stream: &UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let (request, fds) = protocol::receive::<Request>(stream, protocol::MAX_REQUEST)?;
    stream.set_read_timeout(None)?;
    let stop = matches!(request, Request::Stop);
    let (reply, beside) = lab.answer(request, stream, fds)?;
    protocol::send(stream, &reply, &beside)?;
    if stop {
        process::exit(0);
    }
    Ok(())
}
