//! `thalweg run CMD…`: runs a command whose traffic uses a proxy of its own.

mod child;
mod environment;
mod supervise;

use super::proxy::{self, Format, Log, ProxyPathArgs, Running};
use anyhow::Context as _;
use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};
use supervise::RedirectTargets;
use thalweg_base::descriptors::raise_descriptor_limit;
use thalweg_console::note;
use thalweg_proxy::{ProxyConfig, RedirectSource};
use tokio::runtime::Runtime;

/// The exit code for failures of this program instead of the command, as in timeout(1).
const OWN_FAILURE: u8 = 125;

const HELP: &str = "\
Starts a proxy on a free port, as `thalweg proxy` does, and passes its address to the command in
http_proxy, https_proxy, all_proxy and the variables of npm, Node.js and rsync. The proxy ends with
the command.

  thalweg run git clone https://example.org/big.git
  thalweg run -v sh -c 'apt-get update && apt-get -y upgrade'   # -v: the path of each request
  thalweg run --no-proxy localhost,.example.org curl -O https://example.net/big.iso
  thalweg run --transparent ./program-without-proxy-support

Options after CMD belong to CMD.

Environment: http_proxy and the like are replaced for the command; no_proxy is kept, and --no-proxy
added to it. THALWEG_STATE, XDG_STATE_HOME and HOME determine the state directory (--state);
XDG_CACHE_HOME and HOME the history's place without one.

Exit codes: the command's; 128 + N if signal N ended it; 127 if there is no such program; 126 if it
cannot be run; 125 if the proxy cannot be run; 2 wrong usage.";

/// Arguments of `thalweg run`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Hosts that the command reaches without the proxy, besides those in its no_proxy
    #[arg(long, value_name = "LIST", default_value = environment::NEAR)]
    no_proxy: String,

    /// Report each request and tunnel, and totals at the end, on standard error
    #[arg(short, long)]
    verbose: bool,

    /// Do not report unused relays or a proxy that is replaced
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Intercept the TCP connections of the command and its children, for programs without proxy
    /// support. Needs no root (seccomp, Linux 5.19); the command cannot gain privileges (no sudo)
    #[arg(long)]
    transparent: bool,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,

    // Last, because its heading applies to all options that follow.
    #[command(flatten)]
    paths: ProxyPathArgs,
}

/// Runs the command. The exit code is the child's; 128 + N if signal N ended it, 127 if there is no such program, 126
/// if it cannot be run, 125 if the proxy cannot be run.
///
/// # Errors
/// None: failures are printed here.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit();
    let code = run_command(&args).unwrap_or_else(|error| {
        note!("thalweg: {error:#}");
        OWN_FAILURE
    });
    Ok(ExitCode::from(code))
}

fn run_command(args: &Args) -> anyhow::Result<u8> {
    let format = if args.verbose { Format::Lines } else { Format::Nothing };
    let (log, writer) = Log::start(format).context("cannot start the log")?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let log = Arc::new(log);
    let code = runtime.block_on(run_child_and_proxy(args, Arc::clone(&log)));
    // A name lookup may hang for half a minute; its answer is not waited for.
    runtime.shutdown_background();
    log.close();
    writer.finish();
    code
}

/// Runs the child and the proxy until the child ends.
async fn run_child_and_proxy(args: &Args, log: Arc<Log>) -> anyhow::Result<u8> {
    let note = |text: String| {
        if !args.quiet {
            note!("thalweg: {text}");
        }
    };
    let redirect_source =
        if args.transparent { RedirectSource::Supervisor } else { RedirectSource::None };
    let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let config = ProxyConfig { redirect_source, ..ProxyConfig::new(listen) };
    let Running { proxy, mut updater } = proxy::start(config, &args.paths, log, &note).await?;
    let variables = environment::variables(proxy.local_addr(), &args.no_proxy);
    let replaced = environment::replaced(&variables, |name| std::env::var_os(name).is_some());
    if !replaced.is_empty() {
        // Never print the value: it may contain a password.
        note(format!(
            "{} replaced for the command: its traffic does not use the proxy set before",
            replaced.join(", ")
        ));
    }
    let targets = proxy
        .redirect_ports()
        .map(|ports| RedirectTargets { ports, meant: proxy.redirect_destinations() });
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let serving = proxy.run(async { _ = end.await });
    let living = async {
        let code = child::run(&args.command, &variables, targets).await;
        drop(ended);
        code
    };
    tokio::pin!(serving, living);
    let code = tokio::select! {
        code = &mut living => code,
        summary = &mut serving => anyhow::bail!("the proxy ended: {}", proxy::in_words(&summary)),
        () = updater.keep(&note) => Ok(OWN_FAILURE),
    };
    // The proxy may still finish connections that have just ended: it records the command's last connection only then.
    // Open requests have no reader any more.
    let summary = tokio::time::timeout(child::MOMENT, serving).await;
    updater.save(&note).await;
    if let (true, Ok(summary)) = (args.verbose, &summary) {
        note(proxy::in_words(summary));
    }
    code
}
