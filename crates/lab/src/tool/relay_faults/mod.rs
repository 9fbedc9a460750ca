//! `relay-faults`: a SOCKS5 relay that alters a byte, stalls, or resets its connections.
//!
//! It counts the bytes of servers' answers that it relays to all clients together, and injects the fault at the given
//! count. Each connection has two threads.

mod session;

use super::{net, output};
use session::{RelayFault, RelaySession};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};
use thalweg_units::ByteSize;

/// The most simultaneous connections.
const CONNECTIONS_MAX: usize = 256;

/// Arguments of `relay-faults`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("fault").required(true))]
pub struct Args {
    #[command(flatten)]
    at: net::Listening,
    /// Forward every connection to this address, without SOCKS
    #[arg(long, value_name = "ADDRESS", value_parser = net::resolve)]
    to: Option<SocketAddr>,
    /// Flip a bit of the byte at this offset
    #[arg(long, value_name = "SIZE", group = "fault")]
    corrupt_at: Option<ByteSize>,
    /// Stop forwarding after this many bytes; connections stay open
    #[arg(long, value_name = "SIZE", group = "fault")]
    stall_after: Option<ByteSize>,
    /// Reset every connection after this many bytes
    #[arg(long, value_name = "SIZE", group = "fault")]
    reset_after: Option<ByteSize>,
}

impl Args {
    fn fault(&self) -> RelayFault {
        match (self.corrupt_at, self.stall_after, self.reset_after) {
            (Some(at), ..) => RelayFault::Corrupts(at.as_bytes()),
            (_, Some(at), _) => RelayFault::Stalls(at.as_bytes()),
            (.., Some(at)) => RelayFault::Resets(at.as_bytes()),
            // Clap requires one of them.
            _ => RelayFault::Corrupts(u64::MAX),
        }
    }
}

/// Relays until `--max`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.at.max;
    let listener = net::listen(&args.at.listen)?;
    output::print_ready(listener.local_addr()?)?;
    let open = Arc::new(AtomicUsize::new(0));
    let session = RelaySession::new(args.fault(), args.to);
    while let Some(client) = net::accept_until(&listener, deadline)? {
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            net::reset(client);
            continue;
        }
        let (session, open) = (session.clone(), Arc::clone(&open));
        thread::spawn(move || {
            // It is not an error if either side disconnects early.
            _ = session.run(client);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}
