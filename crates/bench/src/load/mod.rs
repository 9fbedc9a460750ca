//! `thalweg-bench load`: load generators and their measurements, for the plans of `experiments/`.
//!
//! One client program drives every relay, ours and the peers', with the same sockets and buffers:
//!
//! - [`server`]: sends, receives, or answers, as the first byte of a connection demands;
//! - [`bulk`], [`connect`], [`idle`], [`latency`]: a client each, which prints one JSON object: `{"metrics": {"NAME":
//!   {"unit", "value"}}}`;
//! - [`background`]: a normal download beside one that yields to it;
//! - [`bistro`]: drop boxes before their deadline, and their collection;
//! - [`mod@bond`]: one stream over several interfaces, and the alternatives that it is compared with;
//! - [`carrier`]: the cost of packets through the carrier;
//! - [`cast`]: casts through the hosts of a lab, and the programs that they are compared with;
//! - [`codec`]: blocks coded on one core, compared with the code's crate alone;
//! - [`crowd`]: casts among many nodes on this machine;
//! - [`cut`]: downloads through a whole mesh, until a revocation ends them;
//! - [`doctor`]: hosts with one fault each, and what `thalweg doctor` says of them;
//! - [`gather`]: a collection from seven sources, compared with its lower bound;
//! - [`get_faults`]: downloads that are killed, refused and disturbed;
//! - [`hostile`]: attacks on a node, by a member without rights and by strangers;
//! - [`jobs`]: a long queue of downloads in a node that is killed;
//! - [`mgrp`]: probe trains with riders beside a source and other traffic;
//! - [`oracle`]: an oracle with thousands of synthetic members;
//! - [`mod@probe`]: results of probe trains, compared with an emulator's record;
//! - [`servers`]: servers that misbehave, and how downloaders cope with them;
//! - [`soak`]: connections that stall, half-close and break, for minutes;
//! - [`stream`]: live media beside other traffic, and a decoder that knows which frames depend on which;
//! - [`cast_events`]: the events of `thalweg cast --json`;
//! - [`strangers`]: connections of strangers to the port of a mesh of its own;
//! - [`browser`]: headless Chromium; [`console`]: the page beside a large mesh, and what it costs;
//! - [`page`]: a mesh with transfers under way, to look at its page;
//! - [`takeover`]: oracles on one database, of which the elected one is killed;
//! - [`mod@trees`]: trees of files, copied by the product and by rsync;
//! - [`unseen`]: a transfer in a network of random rates, compared with the network's bound;
//! - [`mod@upgrade`]: a mesh under load whose nodes are upgraded one after the other;
//! - [`why`]: transfers with a known bottleneck, and whether their verdict names it;
//! - [`server_dialer`]: how the client connects to the server;
//! - [`listeners`]: CPU time and memory of the relay's processes;
//! - [`mod@process`]: CPU time and memory of one process; [`veth`]: another network namespace.

mod background;
mod bistro;
mod bond;
mod browser;
mod bulk;
mod carrier;
mod carrier_hosts;
mod cast;
mod cast_events;
mod codec;
mod connect;
mod console;
mod crowd;
mod cut;
mod doctor;
mod gather;
mod get_faults;
mod hostile;
mod idle;
mod jobs;
mod latency;
mod listeners;
mod mesh;
mod mgrp;
mod oracle;
mod page;
mod pattern;
mod probe;
mod process;
mod report;
mod server;
mod server_dialer;
mod servers;
mod soak;
mod strangers;
mod stream;
mod takeover;
mod tls;
mod trees;
mod unseen;
mod upgrade;
mod veth;
mod why;

use anyhow::Context as _;
use clap::Subcommand;
use std::process::ExitCode;
use thalweg_base::descriptors::raise_descriptor_limit;

/// Arguments of `thalweg-bench load`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: LoadCommand,
}

#[derive(Subcommand)]
enum LoadCommand {
    /// Run the server, which sends, receives and answers
    Server(server::Args),
    /// Transfer bytes for some time, over one connection or several
    Bulk(bulk::Args),
    /// Open connections with one request each, and measure rate and latency
    Connect(connect::Args),
    /// Hold idle connections and measure what they cost the relay
    Idle(idle::Args),
    /// Send small requests through a relay and directly, in turn
    Latency(latency::Args),
    /// Download through all relays until each connection is cut
    Cut(cut::Args),
    /// Let many connections stall, half-close and break, and measure the relay's memory
    Soak(soak::Args),
    /// Download under faults and check that the file never has a wrong byte
    GetFaults(get_faults::Args),
    /// Give hosts one fault each, and compare it with what `thalweg doctor` finds
    Doctor(doctor::Args),
    /// Queue many downloads in a node, kill it again and again, and count what is lost or done twice
    Jobs(jobs::Args),
    /// Open the page of a node that replays a large mesh, and measure what the page costs
    ConsoleScale(console::Args),
    /// Run a mesh on loopback with transfers under way, and print the link to its page
    Page(page::Args),
    /// Serve as misbehaving servers do, and download from them with several tools
    Servers(Box<servers::Args>),
    /// Copy trees of files of every kind, and count what differs from the original
    Trees(Box<trees::Args>),
    /// Upgrade and downgrade the nodes of a mesh under load, and count the transfers that fail
    Upgrade(upgrade::Args),
    /// Collect in the lab's network and compare with the optimum
    Gather(gather::Args),
    /// Transfer in a lab whose pairs of hosts have rates of their own, and compare with the network's bound
    Unseen(unseen::Args),
    /// Cast in a lab and compare each receiver's rate with that of its slowest hop
    Cast(cast::Args),
    /// Rank a synthetic mesh and query its oracle
    Oracle(oracle::Args),
    /// Kill the elected oracle of several, and measure when another one takes over
    Takeover(takeover::Args),
    /// Encode and decode blocks on one core, and compare with the bare raptorq crate
    Codec(codec::Args),
    /// Cast among hundreds of nodes on this machine, or through one node on its own core
    Crowd(crowd::Args),
    /// Download beside `thalweg get --background`, and measure how much it leaves
    Background(background::Args),
    /// Submit to drop boxes just before a deadline
    Bistro(bistro::Args),
    /// Send one stream over several interfaces and compare with their sum
    Bond(bond::Args),
    /// Compare a TCP connection over the carrier with a direct one and with WireGuard
    Carrier(carrier::Args),
    /// Probe a bottleneck while a source's packets ride in the probes, and measure source and cross traffic
    Mgrp(Box<mgrp::Args>),
    /// Stream live media over a bottleneck beside other traffic, and count the frames that can be decoded
    Stream(Box<stream::Args>),
    /// Congest and cut the path of a stream, and measure when it arrives over another one
    StreamReroute(stream::reroute::Args),
    /// Publish to many subscribers, of which some stall or have narrow links, and count the others' frames
    StreamFanout(stream::fanout::Args),
    /// Stream the same video by `thalweg stream`, HLS or SRT, and measure what the viewer sees
    StreamPeers(stream::peers::Args),
    /// Compare measurements by probe trains with the emulator's own record
    Probe(probe::Args),
    /// Attack a node as a member without rights and as a stranger, and measure the effect on others
    Hostile(Box<hostile::Args>),
    /// Connect to a mesh without permission and record what its port answers
    Strangers(strangers::Args),
    /// Transfer with known bottlenecks and compare them with the verdicts
    Why(why::Args),
}

/// Runs the command.
///
/// # Errors
/// When a connection fails or a byte is wrong.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit();
    // As many workers as cores, like the relays under test.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match args.work {
            LoadCommand::Server(args) => server::run(&args).await,
            LoadCommand::Bulk(args) => bulk::run(&args).await,
            LoadCommand::Connect(args) => connect::run(&args).await,
            LoadCommand::ConsoleScale(args) => console::run(&args).await,
            LoadCommand::Idle(args) => idle::run(&args).await,
            LoadCommand::Latency(args) => latency::run(&args).await,
            LoadCommand::Cut(args) => cut::run(&args).await,
            LoadCommand::Soak(args) => soak::run(&args).await,
            // It has its own processes and threads; nothing else runs in this runtime.
            LoadCommand::GetFaults(args) => tokio::task::block_in_place(|| get_faults::run(&args)),
            // It has its own processes and threads.
            LoadCommand::Servers(args) => tokio::task::block_in_place(|| servers::run(&args)),
            LoadCommand::Trees(args) => tokio::task::block_in_place(|| trees::run(&args)),
            LoadCommand::Codec(args) => tokio::task::block_in_place(|| codec::run(&args)),
            // Other processes do the work.
            LoadCommand::Crowd(args) => tokio::task::block_in_place(|| crowd::run(&args)),
            // Another process does the work.
            LoadCommand::Gather(args) => tokio::task::block_in_place(|| gather::run(&args)),
            LoadCommand::Unseen(args) => tokio::task::block_in_place(|| unseen::run(&args)),
            LoadCommand::Cast(args) => tokio::task::block_in_place(|| cast::run(&args)),
            LoadCommand::Oracle(args) => oracle::run(&args).await,
            LoadCommand::Takeover(args) => takeover::run(&args).await,
            LoadCommand::Background(args) => tokio::task::block_in_place(|| background::run(&args)),
            LoadCommand::Bistro(args) => bistro::run(&args).await,
            // Other processes do the work.
            LoadCommand::Carrier(args) => tokio::task::block_in_place(|| carrier::run(&args)),
            LoadCommand::Mgrp(args) => tokio::task::block_in_place(|| mgrp::run(&args)),
            LoadCommand::Stream(args) => tokio::task::block_in_place(|| stream::run(&args)),
            LoadCommand::StreamReroute(args) => {
                tokio::task::block_in_place(|| stream::reroute::run(&args))
            }
            LoadCommand::StreamFanout(args) => {
                tokio::task::block_in_place(|| stream::fanout::run(&args))
            }
            LoadCommand::StreamPeers(args) => {
                tokio::task::block_in_place(|| stream::peers::run(&args))
            }
            // Other processes do the work, and threads that send at exact times.
            LoadCommand::Probe(args) => tokio::task::block_in_place(|| probe::run(&args)),
            LoadCommand::Bond(args) => bond::run(&args).await,
            LoadCommand::Doctor(args) => doctor::run(&args).await,
            LoadCommand::Jobs(args) => jobs::run(&args).await,
            LoadCommand::Page(args) => page::run(&args).await,
            LoadCommand::Hostile(args) => hostile::run(&args).await,
            LoadCommand::Upgrade(args) => upgrade::run(&args).await,
            LoadCommand::Strangers(args) => strangers::run(&args).await,
            // Other processes do the work.
            LoadCommand::Why(args) => tokio::task::block_in_place(|| why::run(&args)),
        }
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
