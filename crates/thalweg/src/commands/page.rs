//! `thalweg page`: prints a link that opens the node's page.

use super::{
    host::{self, StateDir},
    text::say,
};
use anyhow::Context as _;
use serde_json::json;
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_mesh::State;

const HELP: &str = "\
Prints a link to the page of the running daemon: the mesh, its paths, and the jobs. The link opens
the page once, within five minutes; the browser then stays logged in until it was not used for 30
days, or the daemon restarts.

  thalweg page
  thalweg page --revoke              # log all browsers out, and replace the token of programs
  ssh -L 7374:127.0.0.1:7374 HOST    # from another host; then open the link there

The page stays open only for the user of the host whose browser opened it: another user's server on
127.0.0.1 is sent the same cookie, but cannot use it.

The address is `[api] listen` of the settings. Programs use the token in the file api.token of the
state directory instead: see docs/console.md.

Exit codes: 0 done; 1 no daemon runs, or its page is off.";

/// Arguments of `thalweg page`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// End all sessions of the page and replace the token in api.token; prints no link
    #[arg(long)]
    revoke: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let link = host::block_on(async {
        let daemon = host::daemon(&state).await?.context("no daemon runs; start `thalweg node`")?;
        if args.revoke {
            daemon.revoke_page().await?;
            return Ok(None);
        }
        Ok(Some(daemon.page_link().await?))
    })?;
    let Some(link) = link else {
        if args.json {
            say(&format!("{}\n", json!({ "revoked": true })))?;
        }
        note!("all sessions have ended; programs read the new token in {}", token_file(&state));
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        say(&(serde_json::to_string(&link)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{}\n", link.url))?;
    note!("it opens the page once, until {}", link.expires);
    note!("from another host: {}, then open the link there", forwarding(&link.url));
    Ok(ExitCode::SUCCESS)
}

fn token_file(state: &State) -> String {
    state.api_token_file().display().to_string()
}

/// The command that makes the page's port reachable on another host. The port must be the same there: the page answers
/// only to its own address.
fn forwarding(url: &str) -> String {
    let address = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let port = address.rsplit(':').next().unwrap_or_default();
    format!("`ssh -L {port}:{address} HOST`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_forwarded_to_itself() {
        let of = |url| forwarding(url);
        assert_eq!(of("http://127.0.0.1:7374/enter?code=a"), "`ssh -L 7374:127.0.0.1:7374 HOST`");
        assert_eq!(of("http://[::1]:80/enter?code=a:b"), "`ssh -L 80:[::1]:80 HOST`");
    }
}
