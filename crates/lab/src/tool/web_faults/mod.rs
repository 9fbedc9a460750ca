//! `web-faults`: a static file server with faults of real servers.
//!
//! The faults are part of the URL: `/FAULT[,FAULT…]/NAME`, see [`fault`]. Each URL, including its query, has its own
//! state, so that one server serves many trials; `/counts/FAULT…/NAME` returns its counters as JSON.
//!
//! HTTP is implemented here because a library would not allow broken framing. Each connection has a thread.

mod answer;
mod fault;
mod request;
mod send;
mod site;

use super::{net, output};
use anyhow::bail;
use std::{
    net::TcpStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The most simultaneous connections: far more than any experiment opens.
const CONNECTIONS_MAX: usize = 256;

/// A connection is closed after this time without a request or without progress in sending.
const IDLE: Duration = Duration::from_secs(120);

/// The most bytes that wait in a socket to be sent. The server counts bytes when it writes them to the socket; without
/// this bound it would count megabytes for a client that leaves after the head of an answer.
const UNSENT_MAX: u32 = 64 << 10;

/// Arguments of `web-faults`.
#[derive(Debug, clap::Args)]
#[command(after_help = fault::HELP)]
pub struct Args {
    /// The directory to serve
    directory: PathBuf,
    #[command(flatten)]
    at: net::Listening,
}

/// Serves until `--max`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !args.directory.is_dir() {
        bail!("{} is not a directory", args.directory.display());
    }
    let deadline = Instant::now() + args.at.max;
    let listener = net::listen(&args.at.listen)?;
    output::print_ready(listener.local_addr()?)?;
    let sites = Arc::new(site::Sites::new(&args.directory));
    let open = Arc::new(AtomicUsize::new(0));
    while let Some(stream) = net::accept_until(&listener, deadline)? {
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            net::reset(stream);
            continue;
        }
        let (sites, open) = (Arc::clone(&sites), Arc::clone(&open));
        thread::spawn(move || {
            // It is not an error if a client disconnects early.
            _ = serve(stream, &sites);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// Answers the requests of a connection one after the other.
fn serve(stream: TcpStream, sites: &site::Sites) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_MAX)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut reader = request::RequestReader::new(stream.try_clone()?);
    while let Some(request) = reader.next()? {
        match sites.answer(&request, &stream)? {
            send::ConnectionFate::StaysOpen if request.field("connection") != Some("close") => {}
            send::ConnectionFate::StaysOpen | send::ConnectionFate::Closes => return Ok(()),
            send::ConnectionFate::Resets => {
                net::reset(stream);
                return Ok(());
            }
        }
    }
    Ok(())
}
